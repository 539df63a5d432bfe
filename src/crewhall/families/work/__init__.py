"""Family work: who is in the hall, what is to be done, and what happened."""
