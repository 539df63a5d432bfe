"""Tasks: what there is to do, and how far it is."""
