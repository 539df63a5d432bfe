"""How large the tests are that are long by nature."""

import os


def size(small: int, full: int) -> int:
    """How many rounds, rows or examples a test has: `make soak` sets CREWHALL_TEST_FULL=1 for the full number."""
    return full if os.environ.get("CREWHALL_TEST_FULL") == "1" else small
