"""Workflows: a plan of tasks, its progress, and its pauses."""
