"""Reviews: a loop between coding and review instances that ends (seed 000)."""
