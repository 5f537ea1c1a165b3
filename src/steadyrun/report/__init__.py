"""What a walk found, for a person and for a program."""

from steadyrun.report.checking import Report, check

__all__ = ["Report", "check"]
