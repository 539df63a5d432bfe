"""What the command line does in its own process, when no hub is there to ask. Imports everything; see main.py."""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from crewhall.app import Hub, Origin, Progress
from crewhall.config import Settings
from crewhall.edges.bridge.hello import client_directory, client_variables
from crewhall.edges.http.feed import PAGE, WAIT_SECONDS
from crewhall.edges.http.rest import describe
from crewhall.edges.hub import dispatch, logs
from crewhall.edges.web.pages import make_link
from crewhall.errors import Forbidden
from crewhall.families.all import registry
from crewhall.families.work.event.model import Event
from crewhall.identity import OPERATOR, Actor, Credentials, Sender
from crewhall.outside.disk import has_entries
from crewhall.stop import Stop
from crewhall.store.copy import backup, restore
from crewhall.store.events import events_after, newest_event, newest_seen, wait_for_event
from crewhall.store.open import open_store
from crewhall.store.sql import Queries, texts_in
from crewhall.store.transaction import Store


def tool_descriptions() -> list[dict[str, Any]]:
    return [describe(tool) for tool in registry().tools]


def serve_here(settings: Settings, say: Callable[[str], object], lock: int | None) -> int:
    from crewhall.edges.hub.serve import up  # it brings the web framework and MCP along, which a command has no use for

    if lock is None and has_entries(str(settings.instances)):  # it prints a link that signs a browser in
        with closing(_open_own(settings)) as store:
            _refuse_instances(settings, "up", store)
    logs.set_up(settings["log.level"])
    up(settings, registry(), say, lock)
    return 0


def call_here(
    settings: Settings,
    name: str,
    arguments: Mapping[str, Any],
    token: str | None,
    directory: str | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """The tool's body, and whether it succeeded; progress goes to `progress`. Raises KeyboardInterrupt."""
    origin = Origin(client_directory(directory), variables=client_variables(os.environ))
    with closing(Hub(settings, registry())) as hub:
        # Who may read the hall's own files has the operator's token, which a command shows to a hub.
        actor = _identify_own(hub, token)
        actor = replace(actor, proof="token") if actor is OPERATOR else actor
        stop = Stop(hub.seconds_for(hub.registry.find(name)))
        answer = _unless_interrupted(
            stop,
            lambda: dispatch.call(hub, name, arguments, actor, edge="cli", stop=stop, progress=progress, origin=origin),
        )
    return answer.body, answer.failure is None


def _identify_own(hub: Hub, token: str | None) -> Actor:
    """Who runs this command: the instance in whose session it runs, the token's agent, or the operator."""
    sender = _trace_own(hub.store, hub.settings)
    return hub.identify(Credentials(token=token, is_local=token is None, sender=sender))


def _trace_own(store: Store, settings: Settings) -> Sender:
    sender = Sender(lambda: [os.getpid()])
    sender.trace(store, settings.node)
    return sender


def _unless_interrupted(stop: Stop, work: Callable[[], dispatch.CallResult]) -> dispatch.CallResult:
    """What the work gives. Ctrl-C tells it to stop and waits for its end; a second Ctrl-C does not wait.

    Raises KeyboardInterrupt, unless the work had succeeded by then.
    """
    answers: list[dispatch.CallResult] = []
    is_done = threading.Event()  # a join that is interrupted takes its thread for ended

    def do() -> None:
        answers.append(work())
        is_done.set()

    threading.Thread(target=do, daemon=True).start()
    try:
        is_done.wait()
    except KeyboardInterrupt:
        stop.cancel()
        is_done.wait()
        if answers[0].failure is not None:
            raise
    return answers[0]


def status_here(settings: Settings) -> dict[str, Any]:
    from crewhall.edges.hub.serve import hub_facts

    with closing(Hub(settings, registry())) as hub:
        facts = hub_facts(hub)
    return {key: value for key, value in facts.items() if key not in ("pid", "hub", "calls_not_logged")}


def watch_here(
    settings: Settings,
    after: int | None,
    topic: str | None,
    token: str | None,
    tell: Callable[[dict[str, Any]], object],
) -> NoReturn:
    """Tell of every event after a cursor (None: from now on), for ever; the log is read here, so a hub may come and go.

    Raises CursorExpired.
    """
    with closing(Hub(settings, registry())) as hub:
        _identify_own(hub, token)
        cursor = newest_seen(hub.store) if after is None else after
        while True:
            with hub.store.read(of_events=True) as tx:
                rows = events_after(tx, cursor, PAGE, topic=topic)
                newest = newest_event(tx)
            for row in rows:
                tell(_with_names(hub, Event.from_row(row).model_dump(mode="json")))
            cursor = rows[-1]["seq"] if len(rows) == PAGE else max(cursor, newest)
            wait_for_event(hub.store, cursor, WAIT_SECONDS)


def _with_names(hub: Hub, event: dict[str, Any]) -> dict[str, Any]:
    """The event, with the names of the agents in it."""
    for part in ("subject", "actor"):
        agent = hub.store.one("agent_get", id=event[part]) if event[part].startswith("ag_") else None
        event[f"{part}_name"] = agent["name"] if agent else None
    return event


def refuse_agents(settings: Settings, command: str, token: str | None) -> None:
    """Raise Forbidden when the process has another's token than the operator's: these commands are the operator's."""
    if token is None:
        return
    with closing(Hub(settings, registry())) as hub:
        actor = _identify_own(hub, token)
    if actor.kind != "operator":
        raise Forbidden(
            f"{command} is for the operator, and CREWHALL_TOKEN is that of {actor.id}",
            hint="Unset CREWHALL_TOKEN to act as yourself.",
        )


def _refuse_instances(settings: Settings, command: str, store: Store) -> None:
    """Raise Forbidden when this process belongs to an instance, whatever tokens it can read."""
    instance = _trace_own(store, settings).instance
    if instance is not None:
        raise Forbidden(
            f"{command} is for the operator, and this process belongs to {instance}",
            hint="Run it in a terminal of your own, outside the instance's session.",
        )


def link_here(settings: Settings, url: str) -> str:
    with closing(Hub(settings, registry())) as hub:
        _refuse_instances(settings, "link", hub.store)
        with hub.own_work() as tx:
            return make_link(tx, url, hub.clock())


def _open_own(settings: Settings) -> Store:
    return open_store(settings.database, Queries(texts_in("crewhall")))


def backup_here(settings: Settings, target: Path) -> int:
    with closing(_open_own(settings)) as store:
        _refuse_instances(settings, "backup", store)
        return backup(store, target)


def restore_here(settings: Settings, source: Path, replace: bool) -> int:
    with closing(_open_own(settings)) as store:
        _refuse_instances(settings, "restore", store)
        return restore(source, store, replace=replace)
