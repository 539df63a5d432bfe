"""Workspaces: git worktrees in which workflows are worked on."""
