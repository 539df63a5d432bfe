"""Templates: plans to use again, with variables."""
