"""
Who has a stream open is looked at again each second: a token that was revoked closes the streams that it opened.

    open streams ── each second ──▶ one query for the tokens of all ──▶ those that are gone: told why, and closed
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

from crewhall.app import Hub
from crewhall.errors import Failure, Internal
from crewhall.identity import Credentials, hashes_gone

log = logging.getLogger(__name__)
CHECK_SECONDS = 1.0
Refuse = Callable[[Failure], object]
Refused = dict[Credentials, Failure]


class Doorkeeper:
    """Knows by what each open stream came in. Used in the loop's thread; `asking` runs a function in another."""

    def __init__(self, hub: Hub, asking: Callable[[Callable[[], Refused]], Awaitable[Refused]]) -> None:
        self._hub = hub
        self._asking = asking
        self._streams: dict[object, tuple[Credentials, Refuse]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, credentials: Credentials, refuse: Refuse) -> Iterator[None]:
        """Call `refuse` during the block, in the loop, once these open nothing any more."""
        stream = object()
        self._streams[stream] = credentials, refuse
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_each_second())
        try:
            yield
        finally:
            del self._streams[stream]
            if not self._streams and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_each_second(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            asked = {credentials for credentials, _ in self._streams.values() if not credentials.needs_no_look}
            found = await self._find_refusals(asked) if asked else {}
            for credentials, refuse in list(self._streams.values()) if found else []:
                if credentials in found:
                    refuse(found[credentials])

    async def _find_refusals(self, asked: Collection[Credentials]) -> Refused:
        """Those that open nothing any more, and why; all of them if that cannot be found out."""
        try:
            return await self._asking(lambda: find_refusals(self._hub, asked))
        except Failure as failure:
            return dict.fromkeys(asked, failure)
        except Exception:
            log.exception("a bug in looking at the tokens of streams")
            internal = Internal("the stream ended because of a fault in Crewhall itself", hint="Connect again.")
            return dict.fromkeys(asked, internal)


def find_refusals(hub: Hub, asked: Collection[Credentials]) -> Refused:
    """Those that open nothing any more, and why. Tokens are looked up together, processes of instances one by one."""
    by_token = {one for one in asked if one.hash is not None and hub.knows_sender(one) and not one.is_instances}
    gone = hashes_gone(hub.store, {one.hash for one in by_token if one.hash}, hub.clock()) if by_token else set()
    found: Refused = {}
    for one in asked:
        if one not in by_token or one.hash in gone:
            try:
                hub.identify(one)
            except Failure as failure:
                found[one] = failure
    return found
