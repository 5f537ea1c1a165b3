"""Job: recording from inside a framework's own loop; each module is one framework.
May import: recording and below; the framework, which nothing else imports.
Entry point: the callback, tracker or function of each module.
Output: a run directory.
"""
