"""Job: serve the runs below a folder to coding agents: six tools, bounded JSON.
May import: postmortem, panels and below; mcp and anyio in `mcp_server.py` alone.
Entry point: `tools.TOOLS`.
Output: bounded JSON.
"""
