"""
A call's answer over HTTP: plain, or for who accepts `text/event-stream` as events that tell of its progress first.

    event: progress    {"progress": 2, "total": 4, "message": "gitea: pull"}    while it runs
    event: answer      {"status": 200, "body": {…}}                             at last, and once

A client that leaves cancels its call.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from crewhall.edges.http.guard import CHALLENGE
from crewhall.edges.hub.dispatch import CallResult

BEHIND = 256  # events that wait for a slow client
EVENTS = "text/event-stream"
Coming = Callable[..., Coroutine[Any, Any, CallResult]]  # may be given a `report`


async def reply(request: Request, coming: Coming) -> Response:
    """The answer as the client wants it. A GET has no events: a browser's EventSource would ask for ever."""
    if request.method == "POST" and _accepts_events(request):
        return event_stream(_events(coming))
    answer = await _while_listening(request, coming())
    headers = CHALLENGE if _status(answer) == 401 else None
    return JSONResponse(answer.body, _status(answer), headers)


def _accepts_events(request: Request) -> bool:
    kinds = request.headers.get("accept", "").split(",")
    return EVENTS in (kind.partition(";")[0].strip().lower() for kind in kinds)


def _status(answer: CallResult) -> int:
    return answer.failure.status if answer.failure else 200


def event(name: str, data: str) -> str:
    """One event, its data on one line."""
    return f"event: {name}\ndata: {data}\n\n"


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """A stream that nobody on the way keeps or holds back."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, headers=headers, media_type=EVENTS)


async def _events(coming: Coming) -> AsyncIterator[str]:
    out: asyncio.Queue[str | None] = asyncio.Queue()

    async def report(done: float, total: float | None, message: str | None) -> None:
        if out.qsize() < BEHIND:  # who does not keep up misses some of it
            out.put_nowait(event("progress", json.dumps({"progress": done, "total": total, "message": message})))

    answering = asyncio.create_task(coming(report=report))
    answering.add_done_callback(lambda _: out.put_nowait(None))
    try:
        while (text := await out.get()) is not None:
            yield text
        answer = answering.result()
        yield event("answer", json.dumps({"status": _status(answer), "body": answer.body}))
    finally:
        answering.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([answering])


async def _while_listening(request: Request, coming: Coroutine[Any, Any, CallResult]) -> CallResult:
    """The answer, if the client stays to hear it; a client that leaves cancels its call."""
    answering = asyncio.ensure_future(coming)
    leaving = asyncio.ensure_future(_wait_for_leave(request))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not answering.done():
            answering.cancel()
    if leaving.done() and not leaving.cancelled() and (error := leaving.exception()) is not None:
        raise error  # what it sent instead of leaving was refused
    try:
        return await answering
    except asyncio.CancelledError:
        raise ClientDisconnect from None


async def _wait_for_leave(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
