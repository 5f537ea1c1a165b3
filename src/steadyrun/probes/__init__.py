"""Measuring a live training run without changing it.

`recorder.Run` is what the user holds. Everything that needs torch is imported when `Run.watch` is called.
What each probe records, and how often, is in `docs/recording.md`.
"""
