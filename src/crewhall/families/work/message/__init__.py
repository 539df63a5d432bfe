"""Messages: agents and the operator write to each other."""
