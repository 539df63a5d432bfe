"""Family project: one worktree, its files, its context, its tasks."""
