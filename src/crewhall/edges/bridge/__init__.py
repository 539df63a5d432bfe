"""The bridge: MCP on standard input and output, carried to the hall's hub. Standard library only."""
