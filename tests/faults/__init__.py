"""Hubs of one hall on PostgreSQL, what can befall them, and a checker of what their clients were told."""
