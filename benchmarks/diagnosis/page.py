"""Writes the page of a fleet from the results that are there: benchmarks/diagnosis.md is that of the first."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from diagnosis.fleets import Fleet
from diagnosis.harness import log_file
from diagnosis.running import build, stored
from diagnosis.seen import last_losses
from diagnosis.tools import TOOLS
from steadyrun.report.question_page import upper_bound

WAYS = ("check", "preflight", "replay")
Results = list[dict[str, Any]]


ABOUT_TOOLS = """\
The same programs: tools with hooks ran in the loop, the others read its log, per step and as means of ten steps.
*First*: the gravest finding names the cause; *named*: any finding does, also as one guess of several; *spoke*: there is
a finding of warning level or above. [mapping.py](diagnosis/tools/mapping.py) says which finding names which bug. Most
bugs are outside of what these tools promise; trainscope, for one, is about spikes of the loss."""


def write_page(fleet: Fleet) -> Path:
    rows = stored("steadyrun", fleet.name)
    faulty = [row for row in rows if row["bug"] is not None]
    healthy = [row for row in rows if row["bug"] is None]
    tools = {tool: found for tool in TOOLS if (found := stored(tool, fleet.name))}
    parts = [
        "# How often steadyrun is right",
        fleet.introduction,
        f"Measured: {len(rows)} of {len(fleet.cases())} cases. What is missing comes with the next call.",
        _totals(faulty, healthy),
        _tools(faulty, healthy, tools) if tools else "",
        _bugs(faulty, tools, fleet),
        _healthy(healthy, tools, fleet),
        _misses(faulty, fleet),
    ]
    fleet.page.parent.mkdir(parents=True, exist_ok=True)
    fleet.page.write_text("\n\n".join(part for part in parts if part) + "\n", "utf-8")
    return fleet.page


def _totals(faulty: Results, healthy: Results) -> str:
    lines = ["| | runs | detected | right |", "|---|---|---|---|"]
    for way in WAYS:
        found, right = (sum(row["judged"][name][way] for row in faulty) for name in ("detected", "right"))
        lines.append(f"| {way} | {len(faulty)} | {found} | {right} |")
    found, right = (sum(row["judged"][name] for row in faulty) for name in ("any_detected", "any_right"))
    lines.append(f"| together, one headline | {len(faulty)} | {_of(found, faulty)} | {_of(right, faulty)} |")
    return "\n".join([*lines, "", f"Healthy runs: {_verdicts(healthy)}.", "", f"Broken runs: {_verdicts(faulty)}."])


def _verdicts(rows: Results) -> str:
    """How many runs got each verdict, and how many notes they carry."""
    verdicts = Counter(row["said"]["together"]["verdict"] for row in rows)
    notes = sorted(len(row["said"]["together"]["notes"]) for row in rows)
    parts = [f"{verdicts[verdict]} {verdict}" for verdict in ("fault", "suspect", "cannot-tell", "healthy")]
    middle = notes[len(notes) // 2] if notes else 0
    return f"{len(rows)}, of which {', '.join(parts)}; {middle} notes in the median"


def _share(count: int, rows: Results) -> str:
    return f"{count / max(1, len(rows)):.0%}"


def _tools(faulty: Results, healthy: Results, tools: dict[str, Results]) -> str:
    lines = [
        "## The tools one would use instead",
        "",
        ABOUT_TOOLS,
        "",
        "| tool | faulty runs | first | named | spoke | healthy runs | false alarms | of them errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    first, alarms = sum(row["judged"]["any_right"] for row in faulty), sum(row["judged"]["alarm"] for row in healthy)
    spoke = sum(row["judged"]["any_detected"] for row in faulty)
    told = f"{_of(first, faulty)} | {_of(first, faulty)} | {_of(spoke, faulty)}"
    lines.append(f"| **steadyrun** | {len(faulty)} | {told} | {len(healthy)} | {alarms} | {alarms} |")
    for tool, rows in tools.items():
        bad = [row["judged"] for row in rows if row["bug"] is not None]
        good = [row["judged"] for row in rows if row["bug"] is None]
        told = " | ".join(_of(sum(row[name] for row in bad), bad) for name in ("first", "anywhere", "any"))
        false = f"{sum(row['alarm'] for row in good)} | {sum(row['grave_alarm'] for row in good)}"
        lines.append(f"| {tool} | {len(bad)} | {told} | {len(good)} | {false} |")
    return "\n".join(lines)


def _of(count: int, rows: Results) -> str:
    """A count with its share, and between what the true rate lies at 95%."""
    runs = len(rows)
    low, high = 1 - upper_bound(runs - count, runs, 0.975), upper_bound(count, runs, 0.975)
    return f"{count} ({_share(count, rows)}; {low:.0%} to {high:.0%} at 95%)"


def _bugs(faulty: Results, tools: dict[str, Results], fleet: Fleet) -> str:
    groups: dict[tuple[str, str], Results] = defaultdict(list)
    for row in faulty:
        groups[row["bug"], row["program"]].append(row)
    lines = [
        "## Per bug",
        "",
        "Losses are those of the end of the run, training / validation, of the first seed and of its clean twin.",
        "First step: when one could know (0 before training begins).",
        "",
        "| bug | what is wrong | program | loss | clean | detected | right | by | first step | named by other tools |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = {bug: number for number, bug in enumerate(fleet.causes)}
    for (bug, program), rows in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        found, right = (sum(row["judged"][name] for row in rows) for name in ("any_detected", "any_right"))
        ways = [way for way in WAYS if any(row["judged"]["right"][way] for row in rows)]
        steps = [str(row["judged"]["step"]) for row in rows if row["judged"]["step"] is not None]
        losses = [_losses(name, fleet) for name in (rows[0]["case"], fleet.twin(program, bug))]
        lines.append(
            f"| {bug} | {fleet.causes[bug].words} | {program} | {' | '.join(losses)} | {found}/{len(rows)} | "
            f"{right}/{len(rows)} | {', '.join(ways)} | {', '.join(steps)} | {_named(bug, program, tools)} |"
        )
    remarks = [f"- {bug}: {words}." for bug, words in fleet.remarks.items()]
    return "\n".join([*lines, "", "What was seen beside the clean twin, where the curve does not tell:", "", *remarks])


def _losses(case: str, fleet: Fleet) -> str:
    found = last_losses(log_file(build(fleet.name) / "runs" / case))
    return "raised" if found is None else f"{found[0]:.3g} / {found[1]:.3g}"


def _named(bug: str, program: str, tools: dict[str, Results]) -> str:
    parts = []
    for tool, rows in tools.items():
        mine = [row["judged"] for row in rows if row["bug"] == bug and row["program"] == program]
        if named := sum(row["anywhere"] for row in mine):
            parts.append(f"{tool} {named}/{len(mine)}")
    return ", ".join(parts)


def _healthy(healthy: Results, tools: dict[str, Results], fleet: Fleet) -> str:
    alarmed: dict[str, list[str]] = defaultdict(list)
    for tool, rows in tools.items():
        for row in rows:
            if row["bug"] is None and row["judged"]["alarm"]:
                alarmed[row["case"]].append(tool)
    lines = [
        "## Healthy runs",
        "",
        "| run | program | loss | steadyrun | alarms of other tools |",
        "|---|---|---|---|---|",
    ]
    for row in healthy:
        headline = row["said"]["check"]["headline"] or row["said"]["preflight"].get("headline")
        said = f"**{headline['code']} {headline['outcome']}**" if headline else row["said"]["check"]["verdict"]
        name, others = row["case"].removeprefix("healthy-"), ", ".join(alarmed[row["case"]])
        lines.append(f"| {name} | {row['program']} | {_losses(row['case'], fleet)} | {said} | {others} |")
    return "\n".join(lines)


def _misses(faulty: Results, fleet: Fleet) -> str:
    """What is not right, and what was said instead; seeds with the same answer share a line."""
    groups: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for row in faulty:
        said = _said_wrongly(row)
        if row["judged"]["any_right"] and not said:
            continue
        if row["raised"]:
            said += f" (the run ended with {row['raised'].split(':')[0]})"
        right = ", ".join(way for way in WAYS if row["judged"]["right"][way])
        groups[row["bug"], row["program"], said or "nothing", right].append(str(row["seed"]))
    lines = [
        "## Misses and wrong headlines",
        "",
        "Where another way of asking is right, the one headline of all is, too, unless a reason is given.",
        "",
        "| bug | what is wrong | program | seeds | said | right | reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for (bug, program, said, right), seeds in sorted(groups.items()):
        reason = "" if right else fleet.missed.get(f"{bug} {program}", "not known yet")
        words = fleet.causes[bug].words
        lines.append(f"| {bug} | {words} | {program} | {', '.join(seeds)} | {said} | {right} | {reason} |")
    return "\n".join(lines)


def _said_wrongly(row: dict[str, Any]) -> str:
    wrong = [
        way for way in ("check", "preflight") if row["judged"]["detected"][way] and not row["judged"]["right"][way]
    ]
    heard = {way: row["said"][way]["headline"] for way in wrong}
    return ", ".join(f"{way}: {headline['code']} {headline['outcome']}" for way, headline in heard.items())
