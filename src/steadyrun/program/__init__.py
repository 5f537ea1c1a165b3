"""Job: the user's training program as an object: its task, state, random numbers, frames, and all that we need of
    torch's inside.
May import: errors, records; torch when used.
Entry point: `task.Task`, `snapshot.take`.
Output: a program that can be kept, put back and executed.
"""
