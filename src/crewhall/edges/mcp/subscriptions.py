"""`subscriptions/listen`: what a client hears of the resources it named, fed by the event log of the whole hall."""

from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent
from mcp_types import SubscriptionFilter, SubscriptionsListenRequestParams, SubscriptionsListenResult

from crewhall.edges.http.feed import Feed, FeedEvent
from crewhall.edges.mcp.resources import addresses, is_told
from crewhall.tool import Registry


class Listening:
    """The handler of the hub's listen streams. An event of any hub reaches every stream that asked for it."""

    def __init__(self, feed: Feed, registry: Registry) -> None:
        self._feed = feed
        self._registry = registry
        self._handler = ListenHandler(self)
        self.streams = 0

    async def __call__(
        self, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        await self._feed.begin()
        self.streams += 1
        try:
            return await self._handler(ctx, self._without_untold(params))
        finally:
            self.streams -= 1

    def _without_untold(self, params: SubscriptionsListenRequestParams) -> SubscriptionsListenRequestParams:
        """The same for what is told alone, which the acknowledgement lists; no list changes while a hub runs."""
        wanted = params.notifications.resource_subscriptions or []
        told = [address for address in wanted if is_told(self._registry, address)]
        return params.model_copy(update={"notifications": SubscriptionFilter(resource_subscriptions=told)})

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """The SDK's bus: tell a stream which resources each batch of events touched, each once."""

        def tell(events: list[FeedEvent]) -> None:
            touched: set[str] = set()
            for event in events:
                touched |= addresses(self._registry, event.what, event.subject, event.owners)
            for uri in sorted(touched):
                listener(ResourceUpdated(uri=uri))

        return self._feed.listen(tell)

    async def publish(self, event: ServerEvent) -> None:
        """Nothing is published beside the log."""

    def close(self) -> None:
        """End every stream, with the answer that says so."""
        self._handler.close()
