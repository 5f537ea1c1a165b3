"""Job: one question per file: what it asks, why, its limits, its outcomes and the fix for each outcome.
May import: signals and below; numpy, never torch.
Entry point: `QUESTION` of each file; `form.Question`. `trees/` defines their order.
Output: an `Answer` per question.
"""
