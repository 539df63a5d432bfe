"""What every HTTP application of ours says to a path that is not there, to a refusal, and after a fault of its own."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from crewhall.edges.http.guard import WrongMethod, refusal
from crewhall.errors import Failure, Internal, NotFound


async def _http_error(_: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        return refusal(WrongMethod("this method is not for this path", hint="/api/openapi.json lists the routes."))
    return refusal(NotFound("there is nothing at this path", hint="/api/openapi.json lists the routes."))


async def _bug(_: Request, error: Exception) -> Response:
    """A fault in an edge itself: the traceback goes to the log, the caller gets our usual body."""
    return refusal(Internal("this request met a fault in Crewhall itself", hint="The hub's log has the details."))


async def _failure(_: Request, failure: Failure) -> Response:
    return refusal(failure)


HANDLERS: dict[Any, Any] = {HTTPException: _http_error, Failure: _failure, Exception: _bug}
