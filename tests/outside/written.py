"""Files that a program of a test writes sooner or later."""

from pathlib import Path


def written(path: Path) -> str:
    """What is in the file by now; empty while it is missing."""
    return path.read_bytes().decode() if path.exists() else ""
