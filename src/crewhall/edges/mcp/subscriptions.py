"""`subscriptions/listen`: what a client hears of the resources it named, fed by the event log of the whole hall."""

from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent
from mcp_types import SubscriptionFilter, SubscriptionsListenRequestParams, SubscriptionsListenResult

from crewhall.edges.http.feed import Feed, FeedEvent
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.edges.mcp.caller import Caller, caller_of
from crewhall.edges.mcp.resources import addresses, is_told, protocol_error
from crewhall.errors import Failure, InvalidInput, LimitExceeded
from crewhall.tool import Registry

MOST_ADDRESSES = 500  # that a stream listens to; each is compared with all resources


class Listening:
    """The handler of the hub's listen streams. An event of any hub reaches every stream that asked for it."""

    def __init__(self, dispatcher: Dispatcher, feed: Feed, registry: Registry) -> None:
        self._dispatcher = dispatcher
        self._feed = feed
        self._registry = registry
        self._handler = ListenHandler(self)
        self.streams = 0
        self._touched: tuple[list[FeedEvent], list[str]] = ([], [])

    async def __call__(
        self, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        told = self._without_untold(params)
        who = caller_of(ctx)
        await self._feed.begin()
        try:
            with self._dispatcher.stream(who.actor, who.origin):
                self.streams += 1
                try:
                    return await self._listen(ctx, told, who)
                finally:
                    self.streams -= 1
        except LimitExceeded as failure:
            raise protocol_error(failure, failure.body()) from None

    async def _listen(
        self, ctx: ServerRequestContext[Any], told: SubscriptionsListenRequestParams, who: Caller
    ) -> SubscriptionsListenResult:
        """Until the client goes, the hub stops, or what the client came in with opens nothing any more."""
        if who.credentials is None:
            return await self._handler(ctx, told)
        reasons: list[Failure] = []
        with anyio.CancelScope() as scope:

            def refuse(failure: Failure) -> None:
                reasons.append(failure)
                scope.cancel()

            with self._dispatcher.doorkeeper.watch(who.credentials, refuse):
                return await self._handler(ctx, told)
        raise protocol_error(reasons[0], reasons[0].body())

    def _without_untold(self, params: SubscriptionsListenRequestParams) -> SubscriptionsListenRequestParams:
        """The same for what is told alone, which the acknowledgement lists; no list changes while a hub runs."""
        wanted = params.notifications.resource_subscriptions or []
        if len(wanted) > MOST_ADDRESSES:
            many = InvalidInput(
                f"{len(wanted)} addresses, and a stream listens to {MOST_ADDRESSES}",
                hint="Listen to fewer, such as a workflow instead of its tasks, or to all events by the WebSocket.",
            )
            raise protocol_error(many, many.body())
        told = [address for address in wanted if is_told(self._registry, address)]
        return params.model_copy(update={"notifications": SubscriptionFilter(resource_subscriptions=told)})

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """The SDK's bus: tell a stream which resources each batch of events touched, each once."""

        def tell(events: list[FeedEvent]) -> None:
            for uri in self._addresses(events):
                listener(ResourceUpdated(uri=uri))

        return self._feed.listen(tell)

    def _addresses(self, events: list[FeedEvent]) -> list[str]:
        """The resources that these events touch, found once for all streams."""
        if self._touched[0] is not events:
            touched: set[str] = set()
            for event in events:
                touched |= addresses(self._registry, event.what, event.subject, event.owners)
            self._touched = events, sorted(touched)
        return self._touched[1]

    async def publish(self, event: ServerEvent) -> None:
        """Nothing is published beside the log."""

    def close(self) -> None:
        """End every stream, with the answer that says so."""
        self._handler.close()
