"""One line about one result."""

from __future__ import annotations

from typing import Any


def line(result: dict[str, Any]) -> str:
    judged = result["judged"]
    if result["bug"] is None:
        mark = "ALARM" if judged["alarm"] else "quiet"
    elif result["tool"] == "steadyrun":
        mark = "right" if judged["any_right"] else "wrong" if judged["any_detected"] else "missed"
    else:
        mark = "right" if judged["first"] else "named" if judged["anywhere"] else "other" if judged["any"] else "missed"
    return f"{mark:6} {result['case']:32} {result['seconds']:5.1f} s  {_said(result)}"


def _said(result: dict[str, Any]) -> str:
    if result["tool"] != "steadyrun":
        return "; ".join(result["findings"][:3])
    said = result["said"]
    parts = [
        f"{way}: {headline['code']} {headline['outcome']}: {headline['message'][:90]}"
        for way in ("check", "preflight")
        if (headline := said[way].get("headline"))
    ]
    culprit = (said["replay"] or {}).get("culprit")
    if culprit:
        parts.append(f"replay: {culprit['cause']}")
    return " | ".join(parts) or f"({said['check']['verdict']}; {', '.join(said['check']['notes']) or 'no notes'})"
