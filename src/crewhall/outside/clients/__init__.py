"""The programs that join a hall by MCP: what each one's settings file is, what belongs into it, how it is edited."""
