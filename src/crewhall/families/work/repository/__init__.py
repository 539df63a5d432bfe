"""Repositories: which git repositories the hall knows."""
