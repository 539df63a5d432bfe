"""`crewhall config`: an entry for the hall in a client's settings."""
