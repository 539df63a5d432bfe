"""Reservations: paths that an agent asks others to leave alone for a while."""
