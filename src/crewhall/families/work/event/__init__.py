"""Events and calls: what happened in the hall, and who called what."""
