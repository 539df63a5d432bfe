"""The hub's process: what serves a hall by every way in."""
