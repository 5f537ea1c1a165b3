"""Programs of one step with a non-finite number planted in them, and innocent ones, for the hunt."""

from nonfinite.cases import CULPRITS, INNOCENTS, Case, build

__all__ = ["CULPRITS", "INNOCENTS", "Case", "build"]
