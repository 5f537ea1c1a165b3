"""Job: keeps the last batches and checkpoints, and leaves an incident folder when something goes wrong.
May import: program, probes, questions and below; torch, safetensors.
Entry point: `capture.Capture`.
Output: incident folders.
"""
