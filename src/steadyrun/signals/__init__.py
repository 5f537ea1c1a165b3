"""Job: quantities computed from recorded series; a signal measures and has no threshold.
May import: store; numpy, never torch.
Entry point: `run_signals.Signals`.
Output: series and facts for the questions.
"""
