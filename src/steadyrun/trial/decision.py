"""The verdict from the twins' curves: the change that decides, or undecided and what would decide."""

from __future__ import annotations

import math
from dataclasses import replace

from steadyrun.text import percent
from steadyrun.trial import factor as kinds
from steadyrun.trial.data_rules import inputs, labels, parts, prepared, repeated, terms
from steadyrun.trial.setting_rules import block, improvement, setting
from steadyrun.trial.twin_table import LEARNED, Table
from steadyrun.trial.verdict import CAUSES, CLEAR, FAULT, FIXES, IMPROVEMENT, UNDECIDED, Verdict


def decide(table: Table) -> Verdict:
    """The first rule that applies: proofs without training, settings, data and terms, blocks, improvements."""
    if table.moves_freely:
        message = f"{table.moves_freely}, so its last value does not show whether the program learns."
        return Verdict(UNDECIDED, "", "", message, "run the program to its end and compare the returns that it logs")
    for rule in (repeated, parts, inputs, setting, labels, prepared, terms, block, improvement):
        found = rule(table)
        if found is not None:
            code, outcome = CAUSES.get(found.cause, ("", ""))
            return replace(found, code=code, outcome=outcome, fix=_fix(table, found))
    return _rest(table)


def _fix(table: Table, verdict: Verdict) -> str:
    """The fix of a verdict."""
    if verdict.kind not in (FAULT, IMPROVEMENT):
        return ""
    if verdict.factor.startswith("rate*"):
        times = float(verdict.factor.partition("*")[2])
        return (
            f"Divide the learning rate by {1 / times:.6g}."
            if times < 1
            else f"Multiply the learning rate by {times:.6g}."
        )
    if verdict.kind == IMPROVEMENT:
        return f"Try this in a longer run: {table.factor(verdict.factor).words}."
    return FIXES.get(verdict.cause, "")


def _rest(table: Table) -> Verdict:
    """The verdict if no change decides: the program learns as well without them, or it is undecided."""
    raised = next((curve.raised for curve in table.own.values() if curve.raised), "")
    if raised:
        return Verdict(UNDECIDED, "", "", f"The unchanged program raised {raised}.", "fix this error first")
    if not math.isfinite(table.mean_end("own")):
        return Verdict(
            UNDECIDED,
            "",
            "",
            "The loss of the unchanged program becomes NaN or infinite.",
            "replay the run: steadyrun replay RUN",
        )
    fall = table.learned("own")
    if not table.teaches("own"):
        why = "no further than with shuffled targets" if fall > LEARNED else "too little to show that it learns"
        message = f"The loss falls by {percent(fall)} in these steps, {why}."
        return Verdict(UNDECIDED, "", "", message, "give more --steps")
    if len(table.curves) == 1:
        return Verdict(CLEAR, "", "", f"The loss falls by {percent(fall)}; no change was tried.")
    gains = [gain.mean for name in table.curves if table.is_setting(name) and (gain := table.gain(name)) is not None]
    best = max([each for each in gains if math.isfinite(each)], default=0.0)
    message = (
        f"The loss falls by {percent(fall)}. No change gains more than the spread between seeds (best: "
        f"{percent(max(best, 0.0))} of the attainable fall)."
    )
    return Verdict(CLEAR, "", "", message)


def so_far(table: Table) -> str:
    """The most likely cause so far, in a few words."""
    if not table.own:
        return ""
    verdict = decide(table)
    if verdict.factor and verdict.kind in (FAULT, UNDECIDED):
        return f"likely: {table.factor(verdict.factor).words}"
    return verdict.kind if verdict.kind == FAULT else ""


def tested(table: Table) -> list[str]:
    """The questions whose causes the trial tried."""
    groups = {table.factor(name).group for name in table.curves}
    causes = {group for group in groups if group in CAUSES}
    if kinds.RATE in groups:
        causes |= {"rate-high", "rate-low"}
    return sorted({CAUSES[cause][0] for cause in causes})
