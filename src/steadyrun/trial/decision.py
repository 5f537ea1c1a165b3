"""From the twins' curves to a verdict: which change decides, how much, how sure; or undecided, and what would help."""

from __future__ import annotations

import math
from dataclasses import replace

from steadyrun.text import percent
from steadyrun.trial import factor as kinds
from steadyrun.trial.data_rules import inputs, labels, parts, prepared, repeated, terms
from steadyrun.trial.setting_rules import block, improvement, setting
from steadyrun.trial.twin_table import Table
from steadyrun.trial.verdict import CAUSES, CLEAR, FAULT, FIXES, IMPROVEMENT, UNDECIDED, Verdict


def decide(table: Table) -> Verdict:
    """What is proved without training first, then settings, then data and terms, then what is merely better."""
    if table.moves_freely:
        message = f"{table.moves_freely}: its last value does not show whether the program learns."
        return Verdict(UNDECIDED, "", "", message, "run the program to its end and compare the returns that it logs")
    for rule in (repeated, parts, inputs, setting, labels, prepared, terms, block, improvement):
        found = rule(table)
        if found is not None:
            code, outcome = CAUSES.get(found.cause, ("", ""))
            return replace(found, code=code, outcome=outcome, fix=_fix(table, found))
    return _rest(table)


def _fix(table: Table, verdict: Verdict) -> str:
    """What to change."""
    if verdict.kind not in (FAULT, IMPROVEMENT):
        return ""
    if verdict.factor.startswith("rate*"):
        times = float(verdict.factor.partition("*")[2])
        return (
            f"divide the learning rate by {1 / times:.6g}"
            if times < 1
            else f"multiply the learning rate by {times:.6g}"
        )
    if verdict.kind == IMPROVEMENT:
        return f"try it in a longer run: {table.factor(verdict.factor).words}"
    return FIXES.get(verdict.cause, "")


def _rest(table: Table) -> Verdict:
    """No change decides: either the program learns as well as with any of them, or nothing is known."""
    raised = next((curve.raised for curve in table.own.values() if curve.raised), "")
    if raised:
        return Verdict(UNDECIDED, "", "", f"the unchanged twin raised {raised}.", "correct this error first")
    if not math.isfinite(table.mean_end("own")):
        return Verdict(
            UNDECIDED,
            "",
            "",
            "the loss of the unchanged twin becomes NaN or infinite.",
            "replay the run: steadyrun replay RUN",
        )
    fall = table.learned("own")
    if not table.teaches("own"):
        message = f"the loss falls by {percent(fall)} in these steps, no more than with shuffled targets."
        return Verdict(UNDECIDED, "", "", message, "give more --steps: they show whether it learns at all")
    if len(table.curves) == 1:
        return Verdict(CLEAR, "", "", f"the loss falls by {percent(fall)}; no change was tried.")
    gains = [gain.mean for name in table.curves if table.is_setting(name) and (gain := table.gain(name)) is not None]
    best = max([each for each in gains if math.isfinite(each)], default=0.0)
    message = (
        f"the loss falls by {percent(fall)}, and no change does better by more than the spread between seeds (the "
        f"best: {percent(max(best, 0.0))} of what can be learned here)."
    )
    return Verdict(CLEAR, "", "", message)


def so_far(table: Table) -> str:
    """What is known so far, in a few words."""
    if not table.own:
        return ""
    verdict = decide(table)
    if verdict.factor and verdict.kind in (FAULT, UNDECIDED):
        return f"{table.factor(verdict.factor).words} may be it"
    return verdict.kind if verdict.kind == FAULT else ""


def tested(table: Table) -> list[str]:
    """The questions whose causes a trial has tried without finding one."""
    groups = {table.factor(name).group for name in table.curves}
    causes = {group for group in groups if group in CAUSES}
    if kinds.RATE in groups:
        causes |= {"rate-high", "rate-low"}
    return sorted({CAUSES[cause][0] for cause in causes})
