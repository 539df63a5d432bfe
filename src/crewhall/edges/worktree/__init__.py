"""The servers of open worktrees, each with a port of its own."""
