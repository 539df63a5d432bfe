"""Context: what an agent needs to resume a task, within a token budget."""
