"""Agents: who works in the hall."""
