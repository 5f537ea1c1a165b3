"""Hardware or software: what repetitions of a replay prove, by one table. It does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from steadyrun.text import counted

REPRODUCIBLE, TRANSIENT, PERSISTENT, UNDECIDED = "reproducible", "transient", "persistent", "undecided"
_SHOWN = 3
ENOUGH = 3  # recorded losses before the first difference that must be bit-equal


@dataclass(frozen=True)
class FirstDifference:
    """The first step at which the recording and the replay differ beyond the tolerance, and in what."""

    step: int
    what: str  # loss, gradient norm, or parameters (the digest after the step)
    rank: int | None = None  # with several processes: the rank that differs first
    blocks: tuple[str, ...] = ()  # whose parameters differ, if a digest shows it

    @property
    def words(self) -> str:
        on = "" if self.rank is None else f" on rank {self.rank}"
        if self.what == "parameters":
            more = f" and {len(self.blocks) - _SHOWN} more" if len(self.blocks) > _SHOWN else ""
            return f"the parameters of {', '.join(self.blocks[:_SHOWN])}{more} differ after step {self.step}{on}"
        if self.what == "loss":
            return f"a weight, a gradient or the optimizer's state differs in the update of step {self.step - 1}{on}"
        return f"the gradients of step {self.step} differ{on}"


@dataclass(frozen=True)
class OtherHost:
    """An earlier replay of the same incident on another machine with the same versions and settings."""

    host: str
    times: int
    repeated: int


@dataclass(frozen=True)
class Evidence:
    """What the repetitions of a replay showed."""

    times: int
    repeated: int  # repetitions that show the incident
    agree: bool  # all repetitions have the same bits
    majority: int  # repetitions with the most common bits
    holds: bool  # the replay equals the recording, bit for bit or within the tolerance
    host: str
    of: str = "the incident"  # what comes back, or does not
    run_host: str = ""
    deterministic: bool = False  # torch's deterministic algorithms, or the CPU with one thread
    equal_before: int = 0  # recorded losses that are bit-equal before the first that differs
    first: FirstDifference | None = None
    environment: tuple[str, ...] = ()  # versions, settings and machine that differ from those of the run
    explained: str = ""  # what the replay does otherwise than the run, if it is known
    alone: str = ""  # why the gradients of the other ranks are not there
    elsewhere: tuple[OtherHost, ...] = field(default=())

    @property
    def always(self) -> bool:
        return self.repeated == self.times

    @property
    def never(self) -> bool:
        return self.repeated == 0

    @property
    def back(self) -> str:
        """`the incident never comes back in 3 repetitions`, `the incident comes back in 2 of 3 repetitions`."""
        if self.never:
            return f"{self.of} never comes back in {counted(self.times, 'repetition')}"
        of = "all " if self.always else f"{self.repeated} of "
        return f"{self.of} comes back in {of}{counted(self.times, 'repetition')}"


@dataclass(frozen=True)
class Rule:
    """One row of the table: if the evidence applies, the verdict with its reason and the next thing to do."""

    name: str
    applies: Callable[[Evidence], bool]
    verdict: str
    why: Callable[[Evidence], str]
    next: Callable[[Evidence], str]


@dataclass(frozen=True)
class Hardware:
    """The verdict: `reproducible`, `transient`, `persistent` or `undecided`, with its evidence."""

    verdict: str
    rule: str
    why: str
    next: str
    evidence: Evidence

    @property
    def blames_hardware(self) -> bool:
        return self.verdict in {TRANSIENT, PERSISTENT}

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "rule": self.rule, "why": self.why, "next": self.next, **asdict(self.evidence)}


def _only_here(evidence: Evidence) -> bool:
    """Whether the run's own machine always repeats it, and another one never does."""
    if evidence.environment not in ((), ("host",)) or not evidence.agree:
        return False
    counts = {other.host: other for other in evidence.elsewhere}
    counts[evidence.host] = OtherHost(evidence.host, evidence.times, evidence.repeated)
    own = counts.pop(evidence.run_host, None)
    return own is not None and own.repeated == own.times > 0 and any(not other.repeated for other in counts.values())


def _is_transient(evidence: Evidence) -> bool:
    return evidence.never and evidence.agree and evidence.first is not None and evidence.equal_before >= ENOUGH


def _where_wrong(evidence: Evidence) -> str:
    assert evidence.first is not None
    return (
        f"a memory or arithmetic error, such as a bit flip: {evidence.first.words}. {evidence.back.capitalize()}, "
        f"which agree bit for bit, and {counted(evidence.equal_before, 'step')} before it equal the recording. A "
        "loop that itself changes weights, gradients or moments at this step would look the same"
    )


_CODE = "Look for the cause in the code, the settings or the data: the experiments name it"
_DECIDE = "Make the program deterministic (torch.use_deterministic_algorithms(True), one thread) and replay again"

TABLE: tuple[Rule, ...] = (
    Rule(
        "only-one-host",
        _only_here,
        PERSISTENT,
        lambda evidence: (
            f"{evidence.run_host} repeats the incident every time, and another machine with the same versions and "
            "settings never does"
        ),
        lambda evidence: f"Drain {evidence.run_host} and test its memory and accelerators",
    ),
    Rule(
        "always",
        lambda evidence: evidence.always and (evidence.holds or evidence.agree),
        REPRODUCIBLE,
        lambda evidence: (
            f"{evidence.back}"
            + (", with the recorded numbers" if evidence.holds else ", although not with the recorded numbers")
            + ": hardware is not the cause"
        ),
        lambda _: _CODE,
    ),
    Rule(
        "repetitions-differ",
        lambda evidence: (
            not evidence.agree
            and evidence.deterministic
            and 2 * evidence.majority > evidence.times
            and evidence.majority > 1
            and not evidence.environment
        ),
        PERSISTENT,
        lambda evidence: (
            f"{evidence.majority} of {counted(evidence.times, 'repetition')} agree bit for bit and the others differ, "
            "although every operation is deterministic: this machine computes wrongly now and then"
        ),
        lambda evidence: f"Drain {evidence.host} and test its memory and accelerators",
    ),
    Rule(
        "not-deterministic",
        lambda evidence: not evidence.agree,
        UNDECIDED,
        lambda evidence: f"repetitions of the replay differ from each other ({evidence.back})",
        lambda _: _DECIDE,
    ),
    Rule(
        "other-environment",
        lambda evidence: bool(evidence.environment),
        UNDECIDED,
        lambda evidence: (
            f"{evidence.back}, but the replay does not run as the run did: {', '.join(evidence.environment)}"
        ),
        lambda evidence: (
            f"Replay on {evidence.run_host or 'the machine of the run'} with the versions and settings of the run"
        ),
    ),
    Rule(
        "one-rank-alone",
        lambda evidence: bool(evidence.alone),
        UNDECIDED,
        lambda evidence: f"the gradients of the other ranks are not reproduced: {evidence.alone}",
        lambda _: "Compare the ranks: steadyrun check names the rank whose replica differs",
    ),
    Rule(
        "explained",
        lambda evidence: bool(evidence.explained),
        UNDECIDED,
        lambda evidence: f"the replay does not do what the run did: {evidence.explained}",
        lambda _: "Remove this difference and replay again",
    ),
    Rule(
        "one-step-differs",
        _is_transient,
        TRANSIENT,
        _where_wrong,
        lambda evidence: (
            f"Resume from a checkpoint before step {evidence.first.step if evidence.first else 0}; watch "
            f"{evidence.run_host or evidence.host} (ECC counters, memory test), and drain it if this happens again"
        ),
    ),
    Rule(
        "nothing-to-compare",
        lambda _: True,
        UNDECIDED,
        lambda evidence: (
            f"{evidence.back}, and "
            + (
                f"fewer than {ENOUGH} losses before the first difference can be compared"
                if evidence.first is not None
                else "no recorded number differs from the replay: it comes from outside the replayed steps"
            )
        ),
        lambda _: 'Take checkpoints more often: run.watch(…, capture={"every": 50})',
    ),
)
"""The first rule that applies gives the verdict."""


def decide(evidence: Evidence) -> Hardware:
    rule = next(rule for rule in TABLE if rule.applies(evidence))
    return Hardware(rule.verdict, rule.name, rule.why(evidence), rule.next(evidence), evidence)


def earlier_hosts(replay: Mapping[str, Any], host: str) -> tuple[OtherHost, ...]:
    """What replay.json says of replays on other machines that ran as the run did."""
    hardware = replay.get("hardware")
    if not isinstance(hardware, Mapping):
        return ()
    listed = hardware.get("elsewhere")
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    if hardware.get("environment") in ([], ["host"]) and hardware.get("agree") is True:
        rows = [*rows, hardware]
    known = {
        row["host"]: OtherHost(row["host"], row["times"], row["repeated"])
        for row in rows
        if isinstance(row.get("host"), str) and all(type(row.get(key)) is int for key in ("times", "repeated"))
    }
    return tuple(other for name, other in sorted(known.items()) if name != host)
