"""R4.1: are all processes of the job alive?"""

from __future__ import annotations

from collections.abc import Sequence

from steadyrun.questions.form import FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.processes import Member, Processes, processes_of
from steadyrun.signals.ranks import in_words
from steadyrun.signals.run_signals import Signals
from steadyrun.text import in_utc, shown

_TOGETHER = (
    "Decide to stop on all ranks together: torch.distributed.all_reduce(stop, op=torch.distributed.ReduceOp.MAX) "
    "before `if stop: break`, with a tensor `stop` of each rank."
)
_NO_MEMORY = (
    "Lower the batch size of this rank and accumulate gradients, or free its device: another process may use its "
    "memory."
)


def find(run: Signals, limit: Limits) -> Finding:
    job = processes_of(run, limit["silent"])
    if job is None:
        raise NotApplicable("the run has one process, or its processes left no heartbeats")
    looks = (_failed, _died, _ended_early, _timed_out, _stalled, _missing, _lost_each_other, _killed, _unrecorded)
    for look in looks:
        if (found := look(job, limit)) is not None:
            return found
    ended = [member for member in job.members if member.ended]
    state = "ended" if len(ended) == len(job.members) else "are alive"
    return Finding("pass", f"All {job.world} processes {state}.", {"processes": float(job.world)})


def _failed(job: Processes, _limit: Limits) -> Finding | None:
    """An exception of its own ended a process; what the others report follows from it."""
    failed = [member for member in job.members if member.failed_by_itself]
    if not failed:
        return None
    first = min(failed, key=lambda member: (member.step is None, member.step or 0, member.rank))
    same = [member.rank for member in failed if _text(member) == _text(first)]
    message = f"{_named(same)} failed at step {first.step}{_operation(first)}: {_text(first)}.{_followers(job, same)}"
    fix = _NO_MEMORY if first.cause == "out-of-memory" else ""
    return Finding("failed", message, _measured(job, same), first.step, fix, ranks=tuple(same))


def _died(job: Processes, limit: Limits) -> Finding | None:
    """A process vanished without an exception, and others waited for it."""
    proved = [member for member in job.members if member.open and (member.gone or member not in job.alive)]
    proved = [member for member in proved if not job.outlived(member)]
    left = [member for member in job.members if member not in proved and (member.waited or member.stalls_in_a_pass)]
    if not job.alive and not left:  # all have vanished: those that did so long before the others were first
        proved = [member for member in proved if job.silence(member) > limit["silent"]]
        left = [member for member in job.members if member not in proved and member.in_a_pass]
    if not proved or not left or (job.alive and not any(member.gone for member in proved)):
        return None
    ranks = [member.rank for member in proved]
    waited = [member.step for member in left if member.waited and member.step is not None]
    step = min(waited) if waited else proved[0].step
    ago = max(job.silence(member) for member in proved)
    since = f"{shown(ago)} s" if ago >= limit["beat"] else f"less than {limit['beat']:g} s"
    message = (
        f"{_named(ranks)} died at step {step} without an exception, {since} before the last sign of the others."
        f"{_followers(job, ranks)}"
    )
    measured = _measured(job, ranks) | {"silent": ago}
    return Finding("died", message, measured, step, _log_of(proved[0]), ranks=tuple(ranks))


def _ended_early(job: Processes, _limit: Limits) -> Finding | None:
    """A process came to its end while others waited for it in a later step."""
    waiting = [member for member in job.members if member.waited or (member.open and member.stalls_in_a_pass)]
    steps = [member.step for member in waiting if member.step is not None]
    if not steps:
        return None
    early = [member for member in job.members if member.ended and member.step is not None and member.step <= max(steps)]
    if not early:
        return None
    ranks = [member.rank for member in early]
    batches = {job.batches.get(member.rank) for member in (*early, *waiting)}
    decided = len(batches) == 1 and None not in batches
    message = (
        f"{_named(ranks)} ended after step {(early[0].step or 1) - 1}, but {in_words([m.rank for m in waiting])} "
        f"waited in step {max(steps)}{', although the loaders have equal numbers of batches' if decided else ''}."
        f"{_collective(job)}"
    )
    fix = _TOGETHER if decided else ""
    return Finding("ended-early", message, _measured(job, ranks), max(steps), fix, ranks=tuple(ranks))


def _timed_out(job: Processes, _limit: Limits) -> Finding | None:
    """The others waited for a process until their time-out."""
    waited = [member for member in job.members if member.cause == "timeout"]
    if not waited:
        return None
    step = min((member.step for member in waited if member.step is not None), default=None)
    late, phase = _behind(job.members)
    if not late:
        return None
    message = (
        f"{_named(late)} did not arrive in step {step}{_phase(phase)}.{_stacks(job, late)} "
        f"{_named([m.rank for m in waited])} waited until the time-out: {_text(waited[0])}.{_collective(job)}"
    )
    return Finding("timed-out", message, _measured(job, late), step, ranks=tuple(late))


def _stalled(job: Processes, _limit: Limits) -> Finding | None:
    """A step lasts far longer than usual, or a process is silent while others are alive."""
    silent = [member for member in job.members if member.open and member not in job.alive]
    stalled = [member for member in job.alive if member.stall is not None]
    late, phase = _behind(job.alive)
    if not job.alive or not (silent or (stalled and late) or any(member.stalls_in_a_pass for member in stalled)):
        return None
    if silent:
        ranks, seconds = [member.rank for member in silent], max(job.silence(member) for member in silent)
        message = (
            f"{_named(ranks)} sent no heartbeat for {shown(seconds)} s, last in step {silent[0].step}: the process is "
            f"dead, frozen, or its host is lost.{_stacks(job, [member.rank for member in stalled])}"
        )
        return Finding(
            "stalled", message, _measured(job, ranks) | {"seconds": seconds}, silent[0].step, ranks=tuple(ranks)
        )
    seconds = max(job.now - job.seen(m) + (m.beat.seconds_in_step if m.beat else 0.0) for m in stalled)
    if late:
        others = [member.rank for member in job.alive if member.rank not in late]
        words = (
            f"{_named(late)} {_either(late, 'has', 'have')} been in step {_step(job, late)}{_phase(phase)} for "
            f"{shown(seconds)} s; {in_words(others)} {_either(others, 'waits', 'wait')}"
        )
    else:
        words = f"All processes have been in step {stalled[0].step}{_phase(phase)} for {shown(seconds)} s"
    message = f"{words}.{_stacks(job, late or [m.rank for m in stalled])}{_usual(stalled)}{_collective(job)}"
    return Finding("stalled", message, _measured(job, late) | {"seconds": seconds}, stalled[0].step, ranks=tuple(late))


def _missing(job: Processes, _limit: Limits) -> Finding | None:
    """Ranks without files, while the others cannot go on."""
    stuck = [member for member in job.members if member.stall is not None or member.waited]
    if not job.missing or not stuck:
        return None
    message = f"{_named(job.missing)} left no files, and {in_words([member.rank for member in stuck])} cannot go on."
    return Finding("missing", message, _measured(job, job.missing), stuck[0].step, ranks=job.missing)


def _lost_each_other(job: Processes, _limit: Limits) -> Finding | None:
    """Processes failed because another did not answer, but each of them closed its run."""
    waited = [member for member in job.members if member.waited]
    if not waited:
        return None
    ranks = [member.rank for member in waited]
    message = f"{_named(ranks)} failed at step {waited[0].step}{_operation(waited[0])}: {_text(waited[0])}."
    return Finding("failed", message + _collective(job), _measured(job, ranks), waited[0].step, ranks=tuple(ranks))


def _killed(job: Processes, _limit: Limits) -> Finding | None:
    opened = [member for member in job.members if member.open]
    if job.alive or not opened:
        return None
    step = max(member.step for member in opened if member.step is not None)
    message = f"{_named([member.rank for member in opened])} stopped at about step {step} without an exception."
    return Finding(
        "killed",
        message,
        _measured(job, [member.rank for member in opened]),
        step,
        ranks=tuple(member.rank for member in opened),
    )


def _unrecorded(job: Processes, _limit: Limits) -> Finding | None:
    if not job.missing:
        return None
    there = [member.rank for member in job.members]
    message = f"Only {in_words(there)} of {job.world} recorded, so the others cannot be compared."
    return Finding("unrecorded", message, _measured(job, job.missing), ranks=job.missing)


def _log_of(member: Member) -> str:
    """Where to look for what ended a process: its host, and when by the clock of that host."""
    if member.beat is None or not (when := in_utc(member.beat.now)):
        return ""
    return (
        f"Look in the log of host {member.beat.host} around {when} UTC: the kernel's out-of-memory "
        "killer (dmesg), a lost host, or the scheduler. Resume from the last checkpoint."
    )


# -- words ------------------------------------------------------------------------------------------------


def _behind(members: Sequence[Member]) -> tuple[list[int], str | None]:
    """The ranks that have come least far, and their phase; no ranks if all have come equally far."""
    known = [member for member in members if member.then is not None]
    least = min((member.progress for member in known), default=(0, 0))
    late = [member for member in known if member.progress == least]
    phase = next((member.then.phase for member in late if member.then is not None), None)
    return ([] if len(late) == len(known) else [member.rank for member in late]), phase


def _named(ranks: Sequence[int]) -> str:
    return in_words(ranks).capitalize()


def _either(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several


def _step(job: Processes, ranks: Sequence[int]) -> int | None:
    return next((member.step for member in job.of(ranks)), None)


def _phase(phase: str | None) -> str:
    return f" ({phase})" if phase else ""


def _operation(member: Member) -> str:
    operation = member.failure.fields.get("operation") if member.failure is not None else None
    return f" ({operation})" if isinstance(operation, str) and operation else ""


def _text(member: Member) -> str:
    """The exception of a process, its first line shortened."""
    if member.failure is None:
        return ""
    kind, message = (str(member.failure.fields.get(key) or "") for key in ("type", "message"))
    short = message.rpartition("] ")[2] if message.startswith("[") else message
    return ": ".join(part for part in (kind, short.partition(". ")[0].rstrip(".")[:200]) if part)


def _followers(job: Processes, ranks: Sequence[int]) -> str:
    """What the other processes reported afterwards."""
    others = [member for member in job.members if member.waited and member.rank not in ranks]
    if not others:
        return ""
    return f" {_named([member.rank for member in others])} then failed: {_text(others[0])}."


def _usual(stalled: Sequence[Member]) -> str:
    usual = [member.stall.fields.get("usual") for member in stalled if member.stall is not None]
    known = [float(seconds) for seconds in usual if isinstance(seconds, int | float)]
    return f" Until then no step took longer than {shown(max(known))} s." if known else ""


def _collective(job: Processes) -> str:
    """The collective that the others wait for, from the Flight Recorder."""
    waiting = job.waiting
    if waiting is None:
        return ""
    name = f"{waiting.collective.name} number {waiting.collective.number} of sizes {waiting.collective.sizes}"
    if waiting.differs:
        return f" The Flight Recorder shows another collective on {in_words(waiting.behind)} than {name}."
    return f" The Flight Recorder shows that {in_words(waiting.behind)} did not start {name}."


def _stacks(job: Processes, ranks: Sequence[int]) -> str:
    """The files with the stacks, and the line of the program."""
    for member in job.of(ranks):
        fields = member.stall.fields if member.stall is not None else {}
        if fields.get("stacks"):
            where = f" at {fields['where']}" if fields.get("where") else ""
            return f" Rank {member.rank} is{where}; its stacks are in {fields['stacks']}."
    return ""


def _measured(job: Processes, ranks: Sequence[int]) -> dict[str, float]:
    return {
        "processes": float(job.world),
        "affected": float(len(ranks)),
        **({"rank": float(ranks[0])} if ranks else {}),
    }


QUESTION = Question(
    code="R4.1",
    name="all processes are alive",
    asks="Are all processes of the job alive, and does each of them go on?",
    why="The processes of a job wait for each other in every step. If one dies, stalls or ends early, the others wait "
    "until a time-out of many minutes, and their error names the wrong process.",
    needs=("heartbeats",),
    panel=None,
    thresholds=(
        Threshold(
            name="beat",
            value=5,
            unit="seconds",
            meaning="the time between two heartbeats: shorter differences are not known",
            seed="",
            decision="often enough to date a death, rare enough for a file system that thousands of ranks share",
        ),
        Threshold(
            name="silent",
            value=60,
            unit="seconds without a heartbeat",
            meaning="after this time a process counts as gone",
            seed="",
            decision="12 heartbeats; a library that holds Python's lock for long delays a few of them",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="all processes are alive, or ended together"),
        Outcome(
            name="failed",
            answer=SUSPECT,
            meaning="an exception of one process ended the job",
            fix="Fix the line that raises on this rank and resume from the last checkpoint.",
            experiment="Resume from the last checkpoint. If the same exception returns on the same rank at the same "
            "step, its batch or state causes it; if it moves with the host, suspect the machine.",
            explains=("A7.1",),
        ),
        Outcome(
            name="died",
            answer=FAULT,
            meaning="a process vanished without an exception, and the others could not go on",
            fix="Look for the cause in the host's log: the kernel's out-of-memory killer (dmesg), a lost host, or the "
            "scheduler. Resume from the last checkpoint.",
            explains=("A7.1", "R2.3", "R4.2"),
        ),
        Outcome(
            name="ended-early",
            answer=FAULT,
            meaning="a process came to its end while others waited for it",
            fix="Give every rank the same number of batches: DistributedSampler with drop_last=True, or wrap the loop "
            "in `with model.join():`.",
            explains=("A7.1", "R4.2"),
        ),
        Outcome(
            name="timed-out",
            answer=FAULT,
            meaning="the others waited for a process until the time-out",
            fix="Let every rank run the same passes and collectives: no `continue`, no validation with the wrapped "
            "model and no long work on one rank alone. Or raise the timeout of init_process_group.",
            explains=("A7.1", "R2.3", "R4.2"),
        ),
        Outcome(
            name="stalled",
            answer=SUSPECT,
            meaning="a step lasts far longer than any before it",
            fix="Look at the stacks of the process that the others wait for. End the job if it does not go on.",
            experiment="Wait for the event went-on. If it does not come, end the job: the stacks show the line at "
            "which the process waits.",
            may_pass=True,
        ),
        Outcome(
            name="missing",
            answer=SUSPECT,
            meaning="a process left no files, and the others cannot go on",
            fix="Start all processes with the same launcher, and read the output of the missing rank.",
            experiment="Look for the process on its host. If it is not there, its own output names the error.",
        ),
        Outcome(
            name="killed",
            answer=NOTE,
            meaning="all processes stopped at the same time without an exception",
            fix="The scheduler, the launcher or a person ended the job: resume from the last checkpoint.",
        ),
        Outcome(
            name="unrecorded",
            answer=NOTE,
            meaning="some processes did not record",
            fix="Call steadyrun.record on every rank, with the same folder.",
        ),
    ),
    find=find,
    always=True,
    special=True,
)
