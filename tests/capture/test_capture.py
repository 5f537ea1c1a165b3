"""What is captured, when, and within what bounds."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import incident_programs as programs
import pytest
import torch
from incident_programs import cnn, rnn

import steadyrun
from steadyrun.capture import checkpoints
from steadyrun.program import tensor_files
from steadyrun.replay.incident import choose, incidents_of


def watched(run: steadyrun.Run, task: steadyrun.Task, **options: object) -> None:
    run.watch(task.model, task.optimizer, scheduler=task.scheduler, loss_fn=task.loss_fn, **options)


def nan_at(step: int):
    def spoil(now: int, part: list[torch.Tensor]) -> list[torch.Tensor]:
        return [part[0] * float("nan"), part[1]] if now == step else part

    return spoil


def backwards_at(rows: dict[int, int]):
    """Counting backwards, in some rows of the batches of some steps."""

    def spoil(now: int, part: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        count = rows.get(now, 0)
        return {name: torch.cat([tensor[:count].flip(1), tensor[count:]]) for name, tensor in part.items()}

    return spoil


def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    run = cnn(spoil=nan_at(150)).run(tmp_path / "run", 200)
    (incident,) = incidents_of(run)
    assert (incident.step, incident.kind, incident.missing) == (150, "non-finite", "")
    assert incident.why == "the loss of step 150 is nan"
    assert incident.first_step == 0
    assert incident.steps == list(range(200))[: incident.steps[-1] + 1]
    assert incident.content["code"]["function"] == "one"
    assert incident.content["code"]["file"].endswith("incident_programs.py")
    (event,) = steadyrun.open_run(run).events("incident")
    assert event.step == 150
    assert event.fields["path"] == "incidents/step-0000150"
    assert event.fields["replayable"] is True


def test_nothing_is_captured_without_a_loss_function(tmp_path: Path) -> None:
    loop = cnn(spoil=nan_at(5))
    loop.watch = {"capture": True}
    loop.task.loss_fn, loss_fn = None, loop.task.loss_fn  # type: ignore[assignment]
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        loop.task.loss_fn = loss_fn
        original(run, step)

    loop.one = one  # type: ignore[method-assign]
    run = loop.run(tmp_path / "run", 10)
    assert not (run / "incidents").exists()


def test_capture_can_be_left_out(tmp_path: Path) -> None:
    run = cnn(spoil=nan_at(5), watch={"capture": False}).run(tmp_path / "run", 10)
    assert not (run / "incidents").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("yes", "must be True, False or a dict"),
        ({"evry": 3}, "has no setting evry; it has: batch_bytes, checkpoint_bytes, every, incidents"),
        ({"every": 0}, "must be a number of at least 1"),
        ({"every": True}, "must be a number of at least 1"),
    ],
)
def test_bad_settings_are_refused_before_training(tmp_path: Path, given: object, words: str) -> None:
    with pytest.raises(steadyrun.UsageError, match=words):
        cnn(watch={"capture": given}).run(tmp_path / "run", 1)


def test_a_spike_and_the_steps_after_it(tmp_path: Path) -> None:
    run = rnn(spoil=backwards_at({170: 6})).run(tmp_path / "run", 300)
    incident = choose(run, 170)
    assert incident.kind == "spike"
    assert ", normally " in incident.why
    assert incident.steps[-1] == 220
    assert incident.recorded("loss")[170] == steadyrun.open_run(run).series("loss").values[170]


def test_a_larger_spike_takes_the_place_of_a_smaller_one(tmp_path: Path) -> None:
    spoil = backwards_at({160: 3, 280: 6})
    run = rnn(spoil=spoil, watch={"capture": {"incidents": 1}}).run(tmp_path / "run", 340)
    assert [incident.step for incident in incidents_of(run)] == [280]
    steps = [event.step for event in steadyrun.open_run(run).events("incident")]
    assert steps == [160, 280]


def test_an_exception_in_the_loss_function_keeps_its_batch(tmp_path: Path) -> None:
    def spoil(step: int, part: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**part, "tokens": part["tokens"] + 99} if step == 33 else part

    with pytest.raises(IndexError):
        rnn(spoil=spoil).run(tmp_path / "run", 60)
    (incident,) = incidents_of(tmp_path / "run")
    assert (incident.step, incident.kind, incident.missing) == (33, "exception", "")
    assert incident.why.startswith("IndexError")
    assert int(incident.batch(33, torch.device("cpu"))["tokens"].max()) > 40
    result = steadyrun.replay(tmp_path / "run", programs.rnn_task)
    assert result.raised.startswith("IndexError")
    assert result.proof.verdict == "bit-equal"


def test_an_exception_elsewhere_in_the_loop_keeps_the_batch_of_its_variable(tmp_path: Path) -> None:
    task, batches = programs.cnn_task(), programs.images(1)
    with pytest.raises(RuntimeError, match="twice"), steadyrun.record(tmp_path / "run") as run:
        watched(run, task)
        for step in range(20):
            batch = next(batches)
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            if step == 12:
                raise RuntimeError("twice")
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
    incident = choose(tmp_path / "run")
    assert incident.step == 12
    assert torch.equal(incident.batch(12, torch.device("cpu"))[0], batch[0])


def test_an_exception_between_two_steps_has_no_batch_and_the_window_ends_before_it(tmp_path: Path) -> None:
    task, batches = programs.cnn_task(), programs.images(1)
    loop = programs.Loop(task, batches)
    with pytest.raises(OSError, match="disk"), steadyrun.record(tmp_path / "run") as run:
        watched(run, task)
        for step in range(10):
            loop.one(run, step)
        raise OSError("disk")
    incident = choose(tmp_path / "run")
    assert (incident.step, incident.steps[-1], incident.missing) == (10, 9, "")
    assert steadyrun.replay(tmp_path / "run", programs.cnn_task).proof.verdict == "bit-equal"


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit])
def test_leaving_is_no_incident(tmp_path: Path, failure: type[BaseException]) -> None:
    loop = cnn()
    with pytest.raises(failure), steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task)
        loop.one(run, 0)
        raise failure
    assert incidents_of(tmp_path / "run") == []


def test_running_out_of_memory(tmp_path: Path) -> None:
    loop = cnn()
    with pytest.raises(torch.OutOfMemoryError), steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task)
        loop.one(run, 0)
        raise torch.OutOfMemoryError("no memory")
    assert [incident.kind for incident in incidents_of(tmp_path / "run")] == ["out-of-memory"]


def test_a_fault_of_the_monitor(tmp_path: Path) -> None:
    from steadyrun.tutor.faults import load_recipe
    from steadyrun.tutor.train import train_recorded

    train_recorded(load_recipe("zero-lr", steps=120), tmp_path / "run")
    incident = choose(tmp_path / "run")
    assert incident.kind == "fault"
    assert incident.content["found"]["code"] == "C2.1"


def test_the_ring_keeps_to_its_budget_and_checkpoints_come_more_often(tmp_path: Path) -> None:
    """Batches of about 4 KiB and an account of 32 each, 50 in the budget: a checkpoint at least every 25 steps."""
    loop = cnn(watch={"capture": {"batch_bytes": 50 * (32_768 + 16 * 64 * 4 + 128)}})
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, **loop.watch)
        ring = run._flusher.capture._ring  # type: ignore[union-attr]
        for step in range(200):
            loop.one(run, step)
            assert ring.nbytes <= 50 * (32_768 + 16 * 64 * 4 + 128)
        assert 45 <= len(ring) <= 50
        run.incident("now")
    incident = choose(tmp_path / "run")
    assert incident.missing == ""
    assert incident.step - incident.first_step <= 50
    assert steadyrun.replay(tmp_path / "run", programs.cnn_task).proof.verdict == "bit-equal"


def test_a_batch_larger_than_the_budget(tmp_path: Path) -> None:
    loop = cnn(spoil=nan_at(6), watch={"capture": {"batch_bytes": 1000}})
    incident = choose(loop.run(tmp_path / "run", 10))
    assert "was not kept" in incident.missing
    with pytest.raises(steadyrun.RunDirectoryError, match="cannot be replayed: the batch of step"):
        steadyrun.replay(tmp_path / "run", programs.cnn_task)


def test_a_state_that_is_too_large_is_said(tmp_path: Path) -> None:
    run = cnn(spoil=nan_at(6), watch={"capture": {"checkpoint_bytes": 1000}}).run(tmp_path / "run", 10)
    said = [event.fields["why"] for event in steadyrun.open_run(run).events("not-recorded")]
    assert any("more than capture's checkpoint_bytes allows" in why for why in said)
    assert choose(run).missing == "no finite checkpoint from before it was kept"


def test_checkpoints_are_few_and_the_last_good_one_stays(tmp_path: Path) -> None:
    loop = cnn(watch={"capture": {"every": 20}}, spoil=nan_at(130))
    counts = set()
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task, **loop.watch)
        for step in range(180):
            loop.one(run, step)
            counts.add(len(list((tmp_path / "run/incidents/rolling").glob("step-*.json"))))
    assert max(counts) <= checkpoints.KEPT + 2  # one that is not finite, and one that is being replaced
    (left,) = (tmp_path / "run/incidents/rolling").glob("*.json")
    assert json.loads(left.read_text())["finite"] is True
    assert choose(tmp_path / "run").first_step < 130


def test_a_full_disk_costs_an_event_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_files, "write_tensors", refuse)
    run = cnn(spoil=nan_at(30)).run(tmp_path / "run", 60)
    view = steadyrun.open_run(run)
    assert view.last_step() == 59
    said = {event.fields["probe"]: event.fields["why"] for event in view.events("probe-failed")}
    assert "No space left" in said["a rolling checkpoint"]
    assert not list(run.rglob("*.tmp"))


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A filesystem of 2 MiB: where it cannot be mounted, the test says so."""
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small filesystem is not allowed here")
    try:
        from steadyrun.tutor.faults import load_recipe
        from steadyrun.tutor.train import train_recorded

        result = train_recorded(load_recipe(steps=30), disk / "run")
        assert len(result.losses) == 30
        events = steadyrun.open_run(disk / "run").events("probe-failed")
        assert any(event.fields["probe"] == "a rolling checkpoint" for event in events)
    finally:
        subprocess.run(["umount", disk], check=True)  # which fails where a file is still open


_KILLED = """
import sys, torch
sys.path.insert(0, {folder!r})
from incident_programs import cnn
from steadyrun.program import tensor_files
real, paths = tensor_files.write_tensors, []
def slow(path, tensors):
    written = real(path, tensors)
    paths.append(path)
    if len(paths) == 3:
        print("writing", flush=True)
        import time; time.sleep(600)
    return written
tensor_files.write_tensors = slow
cnn(watch={{"capture": {{"every": 20}}}}).run({run!r}, 100000)
"""


def test_killed_while_a_checkpoint_is_written_the_one_before_stays(tmp_path: Path) -> None:
    code = textwrap.dedent(_KILLED).format(
        folder=str(Path(__file__).parents[2] / "benchmarks"), run=str(tmp_path / "run")
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "writing\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    kept = sorted((tmp_path / "run/incidents/rolling").glob("step-*.json"))
    assert [path.name for path in kept[:1]] == ["step-0000000.json"]
    assert len(kept) == 2
    content, tensors = tensor_files.load(kept[1].with_suffix(""))
    assert content["step"] >= 20, "later if a checkpoint took longer to write than 20 steps"
    assert any(name.startswith("optimizers.0.state") for name in tensors)


def test_tied_tensors_are_kept_once(tmp_path: Path) -> None:
    loop = rnn()
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task)
        loop.one(run, 0)
        run.incident("look")
    _, tensors = choose(tmp_path / "run").state
    assert "parameters.embed.weight" in tensors
    assert "parameters.out.weight" not in tensors


def test_several_incidents_and_which_is_the_gravest(tmp_path: Path) -> None:
    loop = rnn(spoil=backwards_at({150: 6}))
    original = loop.one

    def one(run: steadyrun.Run, step: int) -> None:
        if step == 300:
            with torch.no_grad():
                loop.task.model.rnn.weight_hh_l0[0, 0] = float("nan")
        original(run, step)

    loop.one = one  # type: ignore[method-assign]
    run = loop.run(tmp_path / "run", 330)
    assert {(incident.step, incident.kind) for incident in incidents_of(run)} == {(150, "spike"), (300, "non-finite")}
    assert choose(run).step == 300
    there = r"no incident at step 7; it has incidents at: 150 \(spike\), 300 \(non-finite\)"
    with pytest.raises(steadyrun.UsageError, match=there):
        choose(run, 7)


def test_a_second_watch_begins_with_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    loop = cnn()
    with steadyrun.record(tmp_path / "run") as run:
        watched(run, loop.task)
        for step in range(30):
            loop.one(run, step)
        loop.task.optimizer = torch.optim.SGD(loop.task.model.parameters(), lr=0.01)
        loop.task.scheduler = None
        watched(run, loop.task)
        for step in range(30, 70):
            loop.one(run, step)
        run.incident("after it")
    assert choose(tmp_path / "run").first_step == 30


def test_an_incident_without_capture_is_still_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with steadyrun.record(tmp_path / "run") as run:
        run.log(loss=1.0)
        run.incident("odd")
    (event,) = steadyrun.open_run(tmp_path / "run").events("incident")
    assert event.fields["why"] == "odd"
    assert "nothing is captured" in capsys.readouterr().err
