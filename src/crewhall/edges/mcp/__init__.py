"""MCP, as the hub speaks it."""
