"""HTTP: REST, metrics, the live feed, and the guard before them."""
