"""Writes benchmarks/diagnosis.md from the results that are there."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from diagnosis.causes import CAUSES
from diagnosis.running import ROOT, stored

PAGE = ROOT / "benchmarks" / "diagnosis.md"
Results = list[dict[str, Any]]


def write_page() -> Path:
    rows = stored("steadyrun")
    faulty = [row for row in rows if row["bug"] is not None]
    healthy = [row for row in rows if row["bug"] is None]
    lines = [
        "# How often steadyrun is right",
        "",
        "Written by `python benchmarks/diagnosis`. Real programs, none of them the tutor, with one real bug each;",
        "*detected*: something was called a fault; *right*: the headline names the cause (`diagnosis/causes.py` says",
        "which answers do). Check is asked after the run, preflight before it, replay about the incident.",
        "",
        *_totals(faulty, healthy),
        "",
        *_bugs(faulty),
        "",
        *_healthy(healthy),
        "",
        *_misses(faulty),
    ]
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")
    return PAGE


def _totals(faulty: Results, healthy: Results) -> list[str]:
    lines = ["| | runs | detected | right |", "|---|---|---|---|"]
    for way in ("check", "preflight", "replay"):
        found = sum(row["judged"]["detected"][way] for row in faulty)
        right = sum(row["judged"]["right"][way] for row in faulty)
        lines.append(f"| {way} | {len(faulty)} | {found} | {right} |")
    found, right = (sum(row["judged"][name] for row in faulty) for name in ("any_detected", "any_right"))
    lines.append(
        f"| any of them | {len(faulty)} | {found} ({_share(found, faulty)}) | {right} ({_share(right, faulty)}) |"
    )
    alarms = sum(row["judged"]["alarm"] for row in healthy)
    return [*lines, "", f"Healthy runs: {len(healthy)}; false alarms: {alarms}."]


def _share(count: int, rows: Results) -> str:
    return f"{count / max(1, len(rows)):.0%}"


def _bugs(faulty: Results) -> list[str]:
    groups: dict[tuple[str, str], Results] = defaultdict(list)
    for row in faulty:
        groups[row["bug"], row["program"]].append(row)
    lines = ["## Per bug", "", "| bug | what is wrong | program | detected | right | by | first step |"]
    lines.append("|---|---|---|---|---|---|---|")
    for (bug, program), rows in sorted(groups.items()):
        found, right = (sum(row["judged"][name] for row in rows) for name in ("any_detected", "any_right"))
        ways = [way for way in ("check", "preflight", "replay") if any(row["judged"]["right"][way] for row in rows)]
        steps = [str(row["judged"]["step"]) for row in rows if row["judged"]["step"] is not None]
        lines.append(
            f"| {bug} | {CAUSES[bug].words} | {program} | {found}/{len(rows)} | {right}/{len(rows)} "
            f"| {', '.join(ways)} | {', '.join(steps)} |"
        )
    return lines


def _healthy(healthy: Results) -> list[str]:
    lines = ["## Healthy runs", "", "| run | program | verdict | alarm |", "|---|---|---|---|"]
    for row in healthy:
        headline = row["said"]["check"]["headline"] or row["said"]["preflight"].get("headline")
        alarm = f"**{headline['code']} {headline['outcome']}**" if headline else ""
        lines.append(f"| {row['case']} | {row['program']} | {row['said']['check']['verdict']} | {alarm} |")
    return lines


def _misses(faulty: Results) -> list[str]:
    lines = ["## Misses and wrong headlines", ""]
    for row in faulty:
        if row["judged"]["any_right"]:
            continue
        headline = row["said"]["check"]["headline"]
        said = f"{headline['code']} {headline['outcome']}: {headline['message']}" if headline else "nothing"
        lines.append(f"- {row['case']} ({CAUSES[row['bug']].words}): said {said}")
    return lines
