"""Job: the server (list, run pages, comparison), and the view that `top` shares with it.
May import: panels and below; starlette, uvicorn, sse-starlette, which nothing else imports.
Entry point: `server.serve`.
Output: pages, and patches to them while a run is written.
"""
