"""Job: measures a training loop without changing it.
May import: program, signals, store; torch when `run.watch` is called.
Entry point: `probe_set.Watcher`, built by `watch_setup.begin_watching`.
Output: rows of numbers, and facts for the manifest.

What each probe records, and how often, is in `docs/recording.md`.
"""
