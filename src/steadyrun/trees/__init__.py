"""Job: which question comes after which, and the one engine that walks them.
May import: questions and below.
Entry point: `walker.walk`.
Output: a `Walk`: the path with its answers.
"""
