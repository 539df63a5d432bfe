"""Checkpoints: what an agent leaves for whoever resumes its task."""
