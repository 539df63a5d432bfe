"""Family crew: agents that the hall itself starts (seed 000's hands)."""
