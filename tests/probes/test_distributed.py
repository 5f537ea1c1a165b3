"""Two real processes: DDP and FSDP2 over gloo. Every rank records, and the gradient norm is the global one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import steadyrun

PROGRAM = """
import math, sys, torch, torch.distributed as dist, steadyrun
from torch import nn

mode, path = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
if mode.startswith("ddp"):
    model = nn.parallel.DistributedDataParallel(model)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
with steadyrun.record(path, every=2) as run:
    run.watch(model, optimizer, collectives="fsdp" in mode)
    for step in range(5):
        source = torch.Generator().manual_seed(10 * step + rank)
        batch = torch.randn(16, 8, generator=source), torch.randint(0, 3, (16,), generator=source)
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        grads = [getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in model.parameters()]
        run.log(truth=math.sqrt(sum(float(g.double().pow(2).sum()) for g in grads)), step=step)
        if "clip" in mode:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss, batch=batch)
dist.barrier()  # closing a run takes one rank longer than another
store = dist.distributed_c10d._get_default_store()
store.set(f"done {rank}", "")  # gloo aborts if the other side closes while the barrier is still being left
store.wait(["done 0", "done 1"])
dist.destroy_process_group()
"""


def launch(tmp_path: Path, program: str, mode: str) -> steadyrun.RunView:
    """Run `program` in two processes and open what it recorded."""
    script = tmp_path / "program.py"
    script.write_text(program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *words, "--master-port", str(port), str(script), mode, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # whole: the launcher's own words come last, and say little
    return steadyrun.open_run(tmp_path / "run")


@pytest.mark.parametrize("mode", ["fsdp", pytest.param("fsdp-clip", marks=pytest.mark.slow)])
def test_one_rank_alone_may_record_a_sharded_model(tmp_path: Path, mode: str) -> None:
    """The usual `if rank == 0` pattern: a collective of ours would hang or abort the others."""
    alone = PROGRAM.replace('collectives="fsdp" in mode', "collectives=False").replace(
        "with steadyrun.record(path, every=2) as run:",
        "import contextlib, unittest.mock\n"
        "with steadyrun.record(path, every=2) if rank == 0 else contextlib.nullcontext(unittest.mock.Mock()) as run:",
    )
    view = launch(tmp_path, alone, mode)
    assert view.ranks == [0]
    assert len(view.series("loss")) == len(view.series("lr/0")) == 5
    assert "grad_norm" not in view.names()
    assert view.events("probe-failed") == []
    assert "collectives=True" in view.events("not-recorded")[0].fields["why"]


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("ddp", marks=pytest.mark.slow),
        "ddp-clip",
        pytest.param("fsdp", marks=pytest.mark.slow),
        "fsdp-clip",
    ],
)
def test_every_rank_records(tmp_path: Path, mode: str) -> None:
    view = launch(tmp_path, PROGRAM, mode)
    assert view.ranks == [0, 1]
    for rank in view.ranks:
        assert view.events("probe-failed", rank) == []
        truth = view.series("truth", rank).values.tolist()
        assert view.series("grad_norm", rank).values.tolist() == pytest.approx(truth, rel=1e-4)
        assert view.series("clipped", rank).values.tolist() == [float("clip" in mode)] * 5
        assert view.series("spectral_norm/2.weight", rank).values[0] > 0
        assert view.series("update_ratio/2", rank).values[0] > 0
    hashes = [set(view.series("batch_hash", rank).values) for rank in view.ranks]
    assert not hashes[0] & hashes[1]
