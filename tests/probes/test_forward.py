"""What a forward pass shows, against slow and obvious twins; found in models of every ordinary kind."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_programs import Block, Gpt, batch_of, loss_of, mlp, values
from torch import Tensor, nn

import steadyrun
from steadyrun.probes.activations import NAMES, magnitude_counts
from steadyrun.probes.attention import fused_scores, head_entropies
from steadyrun.probes.dead_units import find_units, silence
from steadyrun.program.model_parts import find_blocks


def one_step(path: Path, model: nn.Module, *inputs: Any, **options: Any) -> steadyrun.RunView:
    """Record one step of `model` with every probe on."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(path, every=1) as run:
        run.watch(model, optimizer, **options)
        output = model(*inputs)
        while not isinstance(output, Tensor):
            output = output["logits"] if isinstance(output, dict) else output[0]
        loss = output.float().pow(2).mean()
        loss.backward()
        optimizer.step()
        run.step(loss, batch=inputs)
    view = steadyrun.open_run(path)
    assert view.events("probe-failed") == []
    return view


def tokens(rows: int = 4, length: int = 9) -> Tensor:
    return torch.randint(0, 50, (rows, length), generator=torch.Generator().manual_seed(3))


# -- activations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("returns", ["tensor", "tuple", "dict"])
def test_activations_of_a_transformer(tmp_path: Path, returns: str) -> None:
    torch.manual_seed(0)
    model = Gpt(returns=returns)
    stream = model.tokens(tokens()).detach()
    truth = {"embed": stream}
    for index, block in enumerate(model.blocks):
        stream = block(stream).detach()
        truth[f"blocks.{index}"] = stream
    truth["final_norm"] = model.final_norm(stream).detach()
    view = one_step(tmp_path, model, tokens())
    for name, tensor in truth.items():
        assert view.series(f"activation/{name}").values[0] == pytest.approx(float(tensor.abs().mean()), rel=1e-5)
        assert view.series(f"activation_std/{name}").values[0] == pytest.approx(
            float(tensor.std(correction=0)), rel=1e-5
        )
    assert view.manifest["inferred"]["output_width"] == 50
    assert [block["role"] for block in view.manifest["blocks"]] == ["embedding", "block", "block", "norm"]


class SmallResNet(nn.Module):
    class Basic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(x + self.bn(self.conv(x)))

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = nn.Sequential(self.Basic(), self.Basic())
        self.layer2 = nn.Sequential(self.Basic(), self.Basic())
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer2(self.layer1(self.conv1(x))).mean((2, 3)))


class LstmModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(50, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, 50)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(x))[0])


class PlainCnn(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
            nn.LazyLinear(4),
        )  # fmt: skip
        self(torch.zeros(1, 3, 8, 8))


KINDS: dict[str, tuple[Any, Any, list[str]]] = {
    "mlp": (mlp, lambda: torch.randn(6, 8), ["0", "2", "4"]),
    "cnn": (PlainCnn, lambda: torch.randn(2, 3, 8, 8), ["0", "3", "6"]),
    "resnet": (
        SmallResNet, lambda: torch.randn(2, 3, 8, 8), ["stem", "layer1.0", "layer1.1", "layer2.0", "layer2.1"],
    ),
    "lstm": (LstmModel, tokens, ["embed", "rnn", "head"]),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
        lambda: torch.randn(2, 7, 16), ["stem", "layers.0", "layers.1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_blocks_are_found_in(tmp_path: Path, kind: str) -> None:
    build, inputs, expected = KINDS[kind]
    model = build()
    view = one_step(tmp_path, model, inputs())
    assert [block["name"] for block in view.manifest["blocks"]] == expected
    for name in expected:
        assert view.series(f"activation/{name}").values[0] > 0
        assert name in {"stem", "embed"} or view.series(f"update_ratio/{name}").values[0] > 0
    units_seen = any(name.startswith("dead_units/") for name in view.names())
    said = [event.fields["probe"] for event in view.events("not-recorded")]
    assert units_seen != ("dead units" in said)
    assert units_seen == (kind != "lstm")


def test_the_user_names_the_blocks(tmp_path: Path) -> None:
    view = one_step(tmp_path, Gpt(), tokens(), blocks=["blocks.*.down", "head"])
    names = [name for name in view.names() if name.startswith("activation/")]
    assert names == ["activation/blocks.0.down", "activation/blocks.1.down", "activation/head"]
    with pytest.raises(steadyrun.UsageError, match="no module matches 'nothing"):
        find_blocks(Gpt(), ["nothing.*"])


def test_validation_between_steps_is_not_taken_for_training(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for _ in range(2):
            model.eval()
            with torch.no_grad():
                model(torch.full((4, 8), 100.0))
            model.train()
            loss = loss_of(model, batch_of(0))
            loss.backward()
            optimizer.step()
            run.step(loss)
    activations = values(tmp_path, "activation/0")
    assert (
        activations[0]
        == activations[1]
        == pytest.approx(float(model[0](batch_of(0)[0]).detach().abs().mean()), rel=1e-5)
    )
    assert values(tmp_path, "modules_in_eval") == [0, 0]


def test_modes_are_seen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    model[1].eval()
    view = one_step(tmp_path, model, torch.randn(4, 8))
    assert view.series("modules_in_eval").values[0] == 1
    assert view.series("training").values[0] == 1
    assert one_step(tmp_path / "eval", model.eval(), torch.randn(4, 8)).series("training").values[0] == 0


def test_blocks_that_never_run_are_said(tmp_path: Path) -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Parameter(torch.ones(3))
            self.unused = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return x * self.used

    view = one_step(tmp_path, Idle(), torch.randn(4, 3))
    assert "activations" in [event.fields["probe"] for event in view.events("not-recorded")]
    assert not [name for name in view.names() if name.startswith("activation")]


class Parts(nn.Module):
    """A program's own module that is never called itself: its step calls the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.drop, self.criterion = Gpt(), nn.Dropout(0.5), nn.CrossEntropyLoss()


def test_a_model_whose_parts_are_called(tmp_path: Path) -> None:
    """The same numbers as those of the part, watched by itself; a second micro-batch is not taken for the first."""
    torch.manual_seed(0)
    model = Parts()
    alone = one_step(tmp_path / "alone", model.net, tokens())
    torch.manual_seed(0)
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path / "parts", every=1) as run:
        run.watch(model, optimizer)
        for given in (tokens(), tokens(2)):
            scores = model.drop(model.net(given))
            loss = model.criterion(scores.flatten(0, 1), given.flatten())
            loss.backward()
        optimizer.step()
        run.step(loss)
    view = steadyrun.open_run(tmp_path / "parts")
    shown = [name for name in alone.names() if name.startswith(("activation", "attention", "low_entropy", "future"))]
    assert len(shown) > 10
    for name in shown:
        kind, _, block = name.partition("/")
        mine = f"{kind}/{block if block == 'embed' else f'net.{block}'}"
        assert view.series(mine).values[0] == pytest.approx(alone.series(name).values[0], rel=1e-6), name
    assert len([name for name in view.names() if name.startswith("attention_entropy")]) == 2
    assert view.manifest["inferred"]["output_width"] == 50
    assert view.series("modules_in_eval").values[0] == 0
    assert view.events("probe-failed") == []


def test_validation_of_a_model_whose_parts_are_called(tmp_path: Path) -> None:
    """Passes of the part are counted with their mode; a teacher's pass inside a training step is no validation."""
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for mode in (False, True):
            with torch.no_grad():
                model.net(tokens())
            loss = model.net(tokens()).pow(2).mean()
            loss.backward()
            optimizer.step()
            run.step(loss)
            model.train(mode)
            with torch.no_grad():
                for _ in range(3):
                    model.drop(model.net(tokens()))
            run.val(1.0)
            model.train()
    modes = [event.fields["modes"] for event in steadyrun.open_run(tmp_path).events("validation")]
    assert [(validation["passes"], validation["passes_in_training"]) for validation in modes] == [(3, 0), (3, 3)]


def test_a_model_that_raises_leaves_no_mode_behind(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("user's own error")

    model = Fails()
    depth = torch._C._len_torch_function_stack()
    run = steadyrun.record(tmp_path, every=1)
    run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(KeyError):
        model(torch.ones(1, 2))
    assert torch._C._len_torch_function_stack() == depth
    run.close()


def test_a_part_that_raises_leaves_no_mode_behind(tmp_path: Path) -> None:
    model = Parts()
    depth = torch._C._len_torch_function_stack()
    run = steadyrun.record(tmp_path, every=1)
    run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(IndexError):
        model.net(torch.full((1, 2), 60))
    assert torch._C._len_torch_function_stack() == depth
    run.close()


# -- attention -------------------------------------------------------------------------------------


def naive_entropies(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """Entropy of every query, one softmax at a time."""
    batch, heads, length, width = q.shape
    entropies = torch.full((batch, heads, length), math.nan, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                keys = k[b, h, : t + 1] if causal else k[b, h]
                p = torch.softmax((keys.double() @ q[b, h, t].double()) / math.sqrt(width), 0)
                entropies[b, h, t] = -(p * p.log()).sum()
    return entropies


@pytest.mark.parametrize("causal", [True, False])
def test_entropy_against_the_naive_formula(causal: bool) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(3, 2, 10, 4) * 3, torch.randn(3, 2, 10, 4)
    mean, low = head_entropies(fused_scores(q, k, k, is_causal=causal))
    truth = naive_entropies(q, k, causal)[:, :, 2 if causal else 0 :]  # at least three keys to look at
    assert mean.tolist() == pytest.approx(truth.mean((0, 2)).tolist(), rel=1e-4)
    assert low.tolist() == pytest.approx((truth < math.log(2)).double().mean((0, 2)).tolist())


def test_masks_of_every_kind_agree() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 6, 4), torch.randn(2, 2, 6, 4)
    shown = torch.ones(6, 6).tril().bool()
    added = torch.zeros(6, 6).masked_fill(~shown, -math.inf)
    causal = head_entropies(fused_scores(q, k, k, is_causal=True))
    for mask in (shown, added, added.clamp(min=-1e9), shown.expand(2, 1, 6, 6), added.expand(2, 2, 6, 6)):
        entropies = head_entropies(fused_scores(q, k, k, attn_mask=mask))
        assert entropies[0].tolist() == pytest.approx(causal[0].tolist(), rel=1e-4)


def test_grouped_queries() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 6, 4), torch.randn(2, 2, 6, 4)
    whole = head_entropies(fused_scores(q, k.repeat_interleave(2, 1), k, is_causal=True))
    assert torch.allclose(head_entropies(fused_scores(q, k, k, is_causal=True, enable_gqa=True))[0], whole[0])


class WrittenOut(Block):
    """The same attention with its softmax in plain sight."""

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        mixed = torch.softmax(scores, dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def test_written_out_attention_is_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    fused = Gpt()
    plain = Gpt()
    plain.blocks = nn.ModuleList(WrittenOut() for _ in range(2))
    plain.load_state_dict(fused.state_dict())
    one, other = one_step(tmp_path / "a", fused, tokens()), one_step(tmp_path / "b", plain, tokens())
    parts = ("attention_entropy", "low_entropy", "dead_heads", "future")
    names = [name for name in one.names() if any(part in name for part in parts)]
    assert len(names) == 2 * (1 + 4 + 1 + 1)
    for name in names:
        assert one.series(name).values[0] == pytest.approx(other.series(name).values[0], rel=1e-4)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_multihead_attention_modules(tmp_path: Path, batch_first: bool, masked: bool) -> None:
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=batch_first)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(5, 5).triu(1).bool() if masked else None
            return self.attention(x, x, x, attn_mask=mask)[0]

    model = Model()
    x = torch.randn(3, 5, 16) if batch_first else torch.randn(5, 3, 16)
    with torch.no_grad():
        mask = torch.ones(5, 5).triu(1).bool() if masked else None
        weights = model.attention(x, x, x, attn_mask=mask, average_attn_weights=False)[1].double()
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1)[:, :, 2 if masked else 0 :]
    view = one_step(tmp_path, model, x)
    assert view.series("attention_entropy/attention").values[0] == pytest.approx(float(entropy.mean()), rel=1e-4)


def test_a_dead_head_is_counted(tmp_path: Path) -> None:
    """One head's keys are made so far apart that every query looks at one of them alone."""
    torch.manual_seed(0)
    model = Gpt(layers=1)
    with torch.no_grad():
        model.blocks[0].qkv.weight[:8] *= 400  # the queries of head 0 of 4
        model.blocks[0].qkv.weight[32:40] *= 400
    view = one_step(tmp_path, model, tokens(6, 12))
    assert view.series("dead_heads/blocks.0").values[0] == 1
    assert view.series("low_entropy_share/blocks.0/0").values[0] == 1
    assert view.series("low_entropy_share/blocks.0/1").values[0] < 0.99
    assert view.manifest["inferred"]["attention_heads"] == {"blocks.0": 4}


def test_a_softmax_over_pixels_is_not_taken_for_attention(tmp_path: Path) -> None:
    class Segmenter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.conv(x).movedim(1, -1), dim=-1)

    view = one_step(tmp_path, Segmenter(), torch.randn(2, 3, 8, 8))
    assert not [name for name in view.names() if "head" in name or "entropy" in name]


def test_without_attention_it_is_missing_not_zero(tmp_path: Path) -> None:
    view = one_step(tmp_path, mlp(), torch.randn(4, 8))
    assert not [name for name in view.names() if "head" in name or "entropy" in name]
    assert [event.fields["probe"] for event in view.events("not-recorded")] == ["attention"]


# -- dead units ------------------------------------------------------------------------------------


def test_dead_units_against_the_obvious_loop() -> None:
    torch.manual_seed(0)
    hidden = torch.relu(torch.randn(7, 9, 30) - torch.linspace(-1, 5, 30))
    hidden[..., 3] = 0
    rows = hidden.reshape(-1, 30)
    slow = sum(sum(abs(float(x)) < 1e-6 for x in rows[:, unit]) > 0.99 * len(rows) for unit in range(30))
    dead, total = silence(hidden).dead(), silence(hidden).units
    assert (int(dead), total) == (slow, 30)
    images = hidden.movedim(-1, 1).unsqueeze(-1)
    assert int(silence(images, channels_first=True).dead()) == slow


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_a_unit_of_a_convolution_is_a_channel(tmp_path: Path, kind: Any) -> None:
    model = nn.Sequential(kind(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(4, 3, *([8] * (kind.__name__.count("1") or kind.__name__.count("2") * 2 or 3)))
    model(x)
    with torch.no_grad():
        model[0].weight[:5] = 0
        model[0].bias[:5] = -1
    view = one_step(tmp_path, model, x)
    assert view.series("dead_units/1").values[0] == 5
    assert view.manifest["inferred"]["hidden_units"] == {"1": 16}


def test_dead_relus_are_counted_where_they_are(tmp_path: Path) -> None:
    model = Gpt(layers=2)
    for block in model.blocks:
        block.up.bias.data.zero_()
    model.blocks[1].up.weight.data[:40] = 0
    model.blocks[1].up.bias.data[:40] = -20  # GELU of -20 is nothing
    view = one_step(tmp_path, model, tokens())
    assert view.series("dead_units/blocks.0").values[0] == 0
    assert view.series("dead_units/blocks.1").values[0] == 40
    assert view.series("silent_inputs/blocks.1").values[0] == 0
    assert view.manifest["inferred"]["hidden_units"] == {"blocks.0": 128, "blocks.1": 128}


def test_a_sparse_layer_is_not_a_silent_one() -> None:
    """Of a thousand units one is active on each input: by the count all are dead, and yet every input has its unit."""
    sparse = torch.zeros(200, 1000)
    sparse[torch.arange(200), torch.arange(200) * 5] = 1.0
    assert int(silence(sparse).dead()) == 1000
    assert float(silence(sparse).rows()) == 0
    assert float(silence(torch.zeros(200, 1000)).rows()) == 1
    assert float(silence(sparse.repeat(1, 2)[:, None, :].movedim(-1, 1), channels_first=True).rows()) == 0
    assert float(silence(torch.zeros(0, 4)).rows()) == 0


def test_units_of_gated_and_functional_networks() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(8, 20), nn.Linear(8, 20), nn.Linear(20, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    assert [tap.name for tap in find_units(Gated(), [])] == ["down"]

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 9), nn.Linear(9, 9), nn.Linear(9, 2)

    assert [tap.name for tap in find_units(Functional(), [])] == ["b", "c"]


# -- histograms ------------------------------------------------------------------------------------


def test_histograms_against_the_obvious_loop() -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.5, 2.0, 0.75, 1e-30, 1e30, math.inf, -math.inf, math.nan, 3.99])
    slow = dict.fromkeys(NAMES, 0)
    for value in values.tolist():
        if value == 0:
            slow["zero"] += 1
        elif not math.isfinite(value):
            slow["nonfinite"] += 1
        else:
            slow[f"2^{min(16, max(-24, math.floor(math.log2(abs(value)))))}"] += 1
    counts = dict(zip(NAMES, magnitude_counts(values).tolist(), strict=True))
    assert counts == pytest.approx({name: count / len(values) for name, count in slow.items()})


def test_histograms_are_off_unless_asked_for(tmp_path: Path) -> None:
    assert not [n for n in one_step(tmp_path / "a", mlp(), torch.randn(4, 8)).names() if n.startswith("histogram/")]
    model = mlp()
    with steadyrun.record(tmp_path / "b", every={"histograms": 1}) as run:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run.watch(model, optimizer)
        loss = loss_of(model, batch_of(0))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.step(loss)
    view = steadyrun.open_run(tmp_path / "b")
    for kind, name in (("activation", "0"), ("weight", "2.weight"), ("gradient", "4.bias")):
        shares = [view.series(f"histogram/{kind}/{name}/{bin_name}").values[0] for bin_name in NAMES]
        assert sum(shares) == pytest.approx(1)
