"""Runs for coding agents: an MCP server with few tools and bounded answers."""
