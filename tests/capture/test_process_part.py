"""Which part of an incident a process keeps: its own folder, and in a large job little."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import steadyrun
from steadyrun.capture.checkpoints import Rolling
from steadyrun.capture.incident_folder import remove
from steadyrun.capture.process_part import OtherRanks, ProcessPart
from steadyrun.store.joint_incidents import captured, joint_incidents, path_in_run


def train(path: Path, steps: int = 12) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_fn(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return net(batch).square().mean()

    with steadyrun.record(path) as run:
        run.watch(model, optimizer, loss_fn=loss_fn, monitor=False, capture={"every": 4})
        for step in range(steps):
            batch = torch.full((3, 4), torch.nan if step == 9 else 1.0)
            loss = loss_fn(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=batch)


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))


def test_a_rank_of_a_large_job_keeps_its_batch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 9, 1024)
    train(tmp_path / "run")
    folder = tmp_path / "run/incidents/step-0000009/rank-00009"
    content = json.loads((folder / "incident.json").read_text())
    assert content["batches"] == [8, 9]
    assert (content["rank"], content["world"], content["checkpoint"]) == (9, 1024, None)
    assert content["missing"].startswith("rank 9 of 1,024 keeps only its batch")
    assert not (tmp_path / "run/incidents/rolling").exists()


def test_each_rank_of_a_small_job_keeps_checkpoints_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (1, 0):
        as_rank(monkeypatch, rank, 2)
        train(tmp_path / "run")
    incidents = tmp_path / "run/incidents"
    assert (incidents / "step-0000009/checkpoint.safetensors").is_file()
    assert (incidents / "step-0000009/rank-00001/checkpoint.safetensors").is_file()
    assert list((incidents / "rolling/rank-00001").glob("*.safetensors"))
    assert [(joint.main.rank, joint.ranks) for joint in joint_incidents(tmp_path / "run")] == [(0, (0, 1))]


def test_one_process_has_the_layout_it_always_had(tmp_path: Path) -> None:
    train(tmp_path / "run")
    content = json.loads((tmp_path / "run/incidents/step-0000009/incident.json").read_text())
    assert not {"rank", "world", "averaged"} & set(content)
    assert captured(tmp_path / "run") == {9: tmp_path / "run/incidents/step-0000009"}
    assert path_in_run(tmp_path / "run/incidents/step-0000009") == "incidents/step-0000009"


def test_a_rollback_of_one_rank_of_several_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 2)
    with steadyrun.record(tmp_path / "run") as run, pytest.raises(steadyrun.UsageError, match="one process"):
        run.rollback()


def make(folder: Path, *, kind: str = "non-finite") -> None:
    folder.mkdir(parents=True)
    (folder / "incident.json").write_text(json.dumps({"schema": 1, "kind": kind, "why": "", "severity": "inf"}))


def test_parts_of_nearby_steps_are_one_incident(tmp_path: Path) -> None:
    make(tmp_path / "incidents/step-0000003/rank-00001")
    make(tmp_path / "incidents/step-0000004")
    make(tmp_path / "incidents/step-0000004/rank-00002", kind="joined")
    make(tmp_path / "incidents/step-0000090", kind="spike")
    (tmp_path / "incidents/step-0000200/rank-00003").mkdir(parents=True)  # still being written
    joint = joint_incidents(tmp_path)
    assert [(each.main.step, each.main.rank, each.ranks) for each in joint] == [(3, 1, (0, 1, 2)), (90, 0, (0,))]


def test_incidents_of_one_rank_stay_apart_however_near(tmp_path: Path) -> None:
    make(tmp_path / "incidents/step-0000003")
    make(tmp_path / "incidents/step-0000004")
    assert [each.main.step for each in joint_incidents(tmp_path)] == [3, 4]


def test_a_dropped_part_leaves_those_of_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "incidents/step-0000003"
    make(folder / "rank-00001")
    (folder / "incident.json").write_text("{}")
    remove(folder)
    assert not (folder / "incident.json").exists()
    assert (folder / "rank-00001/incident.json").is_file()
    remove(folder / "rank-00001")
    assert not (folder / "rank-00001").exists()


def test_checkpoints_of_other_ranks_are_not_pruned(tmp_path: Path) -> None:
    (tmp_path / "rolling/rank-00001").mkdir(parents=True)
    (tmp_path / "rolling/step-0000001.json").write_text("{}")
    Rolling(tmp_path / "rolling").clear(keep=0)
    assert [path.name for path in (tmp_path / "rolling").iterdir()] == ["rank-00001"]


def test_incidents_of_other_ranks_are_taken_once_and_only_when_reached(tmp_path: Path) -> None:
    make(tmp_path / "incidents/step-0000002/rank-00002")  # of an attempt before
    others = OtherRanks(tmp_path, rank=1)
    make(tmp_path / "incidents/step-0000005")
    make(tmp_path / "incidents/step-0000007/rank-00001")
    make(tmp_path / "incidents/step-0000009/rank-00002")
    others.look()
    assert others.take(before=9) == [(5, 0)]
    others.look()
    assert others.take(before=None) == [(9, 2)]
    assert others.take(before=None) == []


def test_which_ranks_are_whole() -> None:
    assert ProcessPart(7, 8).whole
    assert not ProcessPart(1, 9).whole
    assert ProcessPart(0, 9).whole
    assert ProcessPart().facts == {}
