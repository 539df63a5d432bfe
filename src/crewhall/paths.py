"""Paths as texts: what can be told of them without a look at the disk."""


def is_below(path: str, top: str) -> bool:
    """Whether a path is another one, or below it, by their names alone: `..` and links are not resolved."""
    return f"{path}/".startswith(f"{top.rstrip('/')}/")
