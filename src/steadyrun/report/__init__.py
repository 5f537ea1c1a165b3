"""Job: what a walk found, for a person and for a program.
May import: trees and below; rich in `terminal.py` alone.
Entry point: `check.check`.
Output: a `Report`, and the forms it is shown in.
"""

from steadyrun.report.report import Report, check

__all__ = ["Report", "check"]
