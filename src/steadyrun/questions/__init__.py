"""Job: one question per file: what it asks, why, its limits, its outcomes and what to do about each.
May import: signals and below; numpy, never torch.
Entry point: `QUESTION` of each file; `form.Question`. Which comes after which is said in `trees/`.
Output: an `Answer` per question.
"""
