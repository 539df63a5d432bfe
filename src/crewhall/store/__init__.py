"""The store: one SQL text, two databases, one log of events."""
