"""
Every failure a caller can meet, each declared once.

    Failure                        HTTP  exit  what the caller does next
    ├── InvalidInput     INVALID_INPUT       400   2   corrects the arguments
    ├── Unauthorized     FORBIDDEN           401   4   brings a token
    ├── Forbidden        FORBIDDEN           403   4   lets someone else do it
    ├── PathOutsideRoot  PATH_OUTSIDE_ROOT   403   4   stays inside the worktree
    ├── NotFound         NOT_FOUND           404   3   looks the id up again
    ├── InvalidState     INVALID_STATE       409   5   changes the thing's state first
    ├── InvalidTransition INVALID_TRANSITION 409   5   goes by a state that leads there
    ├── TaskBlocked      TASK_BLOCKED        409   5   does what the task waits for, or another task
    ├── StaleClaim       STALE_CLAIM         409   5   stops, and claims again if it still wants the task
    ├── Conflict         CONFLICT            409   5   looks at what is already there
    ├── CursorExpired    CURSOR_EXPIRED      410   5   starts again from the oldest event kept
    ├── TooLarge         LIMIT_EXCEEDED      413   6   sends less
    ├── LimitExceeded    LIMIT_EXCEEDED      429   6   stays below the limit, or has it raised
    ├── ReviewLimitExceeded REVIEW_LIMIT_EXCEEDED 429 6 opens the pull request, or gives the approach up
    ├── Cancelled        CANCELLED           499   8   nothing: it asked for this
    ├── Internal         INTERNAL            500   1   reports it with the log line
    ├── Unavailable      UNAVAILABLE         503   7   tries again
    └── TimedOut         TIMED_OUT           504   8   tries again, or raises the time limit

One flat body leaves by every edge: see `Failure.body`.
"""

import re
from typing import Any, ClassVar


class Failure(Exception):
    """A refusal or fault that the caller can act on: a code, a message that names values, a hint."""

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    recoverable: ClassVar[bool] = False

    def __init__(self, message: str, hint: str, **fields: Any) -> None:
        # A path or a name of git's may have bytes that are no text; what leaves by an edge is text.
        self.message, self.hint = (re.sub("[\ud800-\udfff]", "\ufffd", text) for text in (message, hint))
        super().__init__(self.message)
        self.fields = fields

    def body(self, tool_name: str | None = None) -> dict[str, Any]:
        """The error as every edge sends it; `error` and `code` are the same word (seed 000 prints both)."""
        body: dict[str, Any] = {
            "error": self.code,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "recoverable": self.recoverable,
        }
        if tool_name is not None:
            body["tool_name"] = tool_name
        return body | self.fields


class InvalidInput(Failure):
    """An argument is missing, unknown, of the wrong type or out of range; nothing was changed."""

    code, status, exit_code, recoverable = "INVALID_INPUT", 400, 2, True


class Forbidden(Failure):
    """The caller is known and may not do this."""

    code, status, exit_code = "FORBIDDEN", 403, 4


class Unauthorized(Forbidden):
    """The caller is not known: no token where one is needed, or one that is wrong or revoked."""

    status = 401


class PathOutsideRoot(Failure):
    """The path leads out of the directory that the caller is held to; nothing was looked at (seed 001)."""

    code, status, exit_code, recoverable = "PATH_OUTSIDE_ROOT", 403, 4, True
    HINT = "Give a path inside the worktree, relative to its top. Links that lead out of it are not followed."

    def __init__(self, path: str, hint: str | None = None) -> None:
        super().__init__(
            "Path outside project root",
            hint=hint or self.HINT,
            path=re.sub("[\ud800-\udfff]", "\ufffd", path[:200]),
        )


class NotFound(Failure):
    """The id names nothing in this hall."""

    code, status, exit_code, recoverable = "NOT_FOUND", 404, 3, True


class InvalidState(Failure):
    """The thing exists, and its state does not allow this now."""

    code, status, exit_code, recoverable = "INVALID_STATE", 409, 5, True


class InvalidTransition(Failure):
    """No way leads from the state that the thing is in to the one that was asked for."""

    code, status, exit_code, recoverable = "INVALID_TRANSITION", 409, 5, True


class TaskBlocked(Failure):
    """The task waits for others that are not finished."""

    code, status, exit_code, recoverable = "TASK_BLOCKED", 409, 5, True


class StaleClaim(Failure):
    """The writer's claim on the task is not the current one; nothing was changed."""

    code, status, exit_code, recoverable = "STALE_CLAIM", 409, 5, True


class Conflict(Failure):
    """Something else already holds the place that was asked for."""

    code, status, exit_code, recoverable = "CONFLICT", 409, 5, True


class CursorExpired(Failure):
    """The events after this cursor were pruned, so none of them can be promised."""

    code, status, exit_code, recoverable = "CURSOR_EXPIRED", 410, 5, True


class LimitExceeded(Failure):
    """A limit that guards the hall was reached."""

    code, status, exit_code, recoverable = "LIMIT_EXCEEDED", 429, 6, True


class ReviewLimitExceeded(LimitExceeded):
    """The instance has had all its rounds of review (seed 000)."""

    code = "REVIEW_LIMIT_EXCEEDED"


class TooLarge(LimitExceeded):
    """The request itself is over the size limit; it was not read to its end."""

    status = 413


class Unavailable(Failure):
    """Something the hall needs does not answer right now."""

    code, status, exit_code, recoverable = "UNAVAILABLE", 503, 7, True


class TimedOut(Failure):
    """The call's time was over before it was done; what it had not committed is undone."""

    code, status, exit_code, recoverable = "TIMED_OUT", 504, 8, True


class Cancelled(Failure):
    """The client cancelled before the change was committed; it is undone."""

    code, status, exit_code, recoverable = "CANCELLED", 499, 8, True


class Internal(Failure):
    """A bug of ours: the log has the traceback, the caller gets no inner detail."""


def every_failure() -> list[type[Failure]]:
    """All failure classes, for the docs page; subclasses stand after their parent."""
    found: list[type[Failure]] = []
    queue = Failure.__subclasses__()
    while queue:
        cls = queue.pop(0)
        found.append(cls)
        queue = cls.__subclasses__() + queue
    return found
