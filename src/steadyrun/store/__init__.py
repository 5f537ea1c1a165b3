"""Job: the run directory: the one interface between recording and everything else.
May import: records, errors; numpy, pyarrow, never torch.
Entry point: `writer.RunWriter`, `reader.open_run`.
Output: files, and series and events read from them; nothing in them is executed.

The layout is drawn in `docs/run-directory.md`.
"""
