"""Job: the document of an incident in seven sections, and its verification.
May import: panels and below; incident folders as JSON, never torch.
Entry point: `document.write`, `verification.verify`.
Output: Markdown, JSON, a picture, lessons.
"""
