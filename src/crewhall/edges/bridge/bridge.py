"""
The bridge, `crewhall mcp`: what a client's config starts. It carries lines between its client and the hall's hub.

    client ──stdin──▶ bridge ──Unix socket──▶ hub        looking ── connected ─▶ greeting ── answered ─▶ open
           ◀─stdout──        ◀──────────────                ▲                                             │
                                                            └───────────────── the hub is gone ◀──────────┘

An MCP server in Python costs a second and 70 MB for each agent; this one imports the standard library alone. Of a
message it reads the id and the method, which is what it needs to outlive a hub: a call that was with the hub when it
died is answered with UNAVAILABLE, all else is asked again of the next one, and a 2025-era client's handshake is
replayed. It starts a hub when there is something to ask and nobody to answer.
"""

import json
import os
import select
import time
from collections import deque
from contextlib import suppress
from typing import Any

from crewhall.edges.bridge.hello import BYE, LEAVING
from crewhall.edges.bridge.jsonrpc import is_id, refusal
from crewhall.edges.bridge.launch import HubSource
from crewhall.edges.bridge.lines import CHUNK, Lines, Outbox
from crewhall.edges.bridge.probe import Probe
from crewhall.errors import Failure, TooLarge, Unavailable

DISCOVER_SECONDS = 1.5  # Claude Code's patience with its first question is little more than two
START_SECONDS = 60.0
GREETING_SECONDS = 10.0
QUIET_SECONDS = 10.0  # after which a hub that has something of ours is asked whether it is at work
SOCKET_SECONDS = 0.5  # between looks whether the socket is still the one that we wait at
LAST_SECONDS = 30.0  # for answers, after the client has ended its input
QUICK_LOOKS = 2.0
LEAVING_SECONDS = 3.0  # whoever has a hub leave starts the next one; the others let it go first
BUFFER = 16 * 1024 * 1024
MOST_TIMES = 3
PARSE_ERROR, METHOD_NOT_FOUND = -32700, -32601
READ = select.POLLIN | select.POLLHUP


class ClientMessage:
    """A message from the client. A request has a key, which its response repeats."""

    def __init__(self, line: bytes, id: Any = None, method: str | None = None) -> None:
        self.line = line
        self.id = id
        self.method = method
        self.key = None if id is None or method is None else json.dumps(id)
        self.cancels: str | None = None  # the key of a request
        self.at = time.monotonic()
        self.times = 0  # that it was with a hub

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again does no harm: only calls of tools change anything, unless it is what hubs die of."""
        return self.method != "tools/call" and (self.times < MOST_TIMES or not self.needs_hub)

    @property
    def needs_hub(self) -> bool:
        """Whether a hub should be started for it; a standing question can wait until there is one."""
        return self.key is not None and self.method != "subscriptions/listen"


class Bridge:
    def __init__(self, hub_source: HubSource, hello: dict[str, Any], stdin: int = 0, stdout: int = 1) -> None:
        self._hub_source = hub_source
        self._hello = hello
        self._unknown = 0  # calls that were with a hub when it died, and that no hub has been told of
        self._stdin, self._stdout = stdin, stdout
        self._from_client, self._to_client = Lines(), Outbox()
        self._from_hub, self._to_hub = Lines(), Outbox()
        self._waiting: deque[ClientMessage] = deque()  # not with any hub
        self._asked: dict[str, ClientMessage] = {}  # with the hub, unanswered
        self._handshake: list[ClientMessage] = []  # of a 2025-era client, to be replayed
        self._replayed: str | None = None
        self._hub: Any = None
        self._is_open = False
        self._is_leaving = False
        self._starts_next = False  # this bridge has told a hub to leave
        self._client_ended_at: float | None = None
        self._closed_at = self._connected_at = self._heard_at = time.monotonic()
        self._probe: Probe | None = None  # of a hub that says nothing
        self._next_look = 0.0
        self._most_bytes = 4 * 1024 * 1024

    def run(self) -> None:
        """Carry lines until the client ends."""
        while not self._is_done():
            self._keep_time()
            for descriptor, events in self._poll():
                if descriptor == self._stdout and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    return  # nobody listens any more
                if descriptor == self._stdout and not self._flush_to_client():
                    return
                if descriptor == self._stdin:
                    self._read_client()
                elif self._hub is not None and descriptor == self._hub.fileno():
                    self._turn_to_hub(events)

    def _flush_to_client(self) -> bool:
        """Whether the client is still there."""
        try:
            self._to_client.flush(self._stdout)
        except OSError:
            return False
        return True

    def _is_done(self) -> bool:
        if self._client_ended_at is None:
            return False
        if self._to_client or any(message.needs_hub for message in self._asked.values()):
            return False  # the hub has a time limit for each call, and a client that is gone shows itself
        is_late = time.monotonic() - self._client_ended_at > LAST_SECONDS
        return is_late or not (self._to_hub or any(message.needs_hub for message in self._waiting))

    def _poll(self) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(self._stdout, select.POLLOUT if self._to_client else 0)
        queued = self._to_hub.size + sum(len(message.line) for message in self._waiting)
        if self._client_ended_at is None and queued < BUFFER:
            poll.register(self._stdin, READ)
        if self._hub is not None:
            wanted = READ if self._to_client.size < BUFFER else 0
            poll.register(self._hub, wanted | (select.POLLOUT if self._to_hub else 0))
        return poll.poll(max(0.0, self._until_next() * 1000))

    # The client's side

    def _read_client(self) -> None:
        try:
            data = os.read(self._stdin, CHUNK)
        except OSError:
            data = b""  # a terminal that is gone
        if not data:
            self._client_ended_at = time.monotonic()
        for line in self._from_client.feed(data):
            self._take(line)

    def _take(self, line: bytes) -> None:
        """Pass a line of the client on, or keep it until there is a hub."""
        if not line.strip():
            return
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            self._answer(None, error={"code": PARSE_ERROR, "message": "this line is not JSON"})
            return
        content = content if isinstance(content, dict) else {}
        message = ClientMessage(line, _id(content.get("id")), content.get("method"))
        if len(line) > self._most_bytes and self._is_open:
            self._refuse(message, _too_large(self._most_bytes))
        elif message.method == "notifications/cancelled":
            self._forget(message, content.get("params"))
        else:
            self._pass_on(message)

    def _forget(self, message: ClientMessage, params: Any) -> None:
        """A client that cancels waits for no answer; what no hub has heard of yet is not told to one."""
        message.cancels = json.dumps(_id(params.get("requestId"))) if isinstance(params, dict) else None
        remaining = deque(waiting for waiting in self._waiting if waiting.key is None or waiting.key != message.cancels)
        if len(remaining) == len(self._waiting):
            self._pass_on(message)
        else:
            self._waiting = remaining

    def _pass_on(self, message: ClientMessage) -> None:
        if self._is_open and not self._is_leaving:
            self._to_hub.put(message.line, message)
            self._flush_to_hub()
        elif message.key is not None or message.method == "notifications/initialized" or self._waiting:
            self._waiting.append(message)  # a notice about nothing that a hub knows is not kept

    def _answer(self, id: Any, **content: Any) -> None:
        self._to_client.put(json.dumps({"jsonrpc": "2.0", "id": id, **content}).encode())

    def _refuse(self, message: ClientMessage, failure: Failure) -> None:
        """Answer with a failure, if it is a request."""
        if message.key is not None:
            self._to_client.put(json.dumps(refusal(message.id, message.method or "", failure)).encode())

    # The hub's side

    def _turn_to_hub(self, events: int) -> None:
        if events & select.POLLOUT:
            self._flush_to_hub()
        if self._hub is not None and events & ~select.POLLOUT:
            self._read_hub()

    def _flush_to_hub(self) -> None:
        try:
            left = self._to_hub.flush(self._hub)
        except OSError:
            self._lose()
            return
        for message in left:
            if isinstance(message, ClientMessage):
                self._is_sent(message)

    def _is_sent(self, message: ClientMessage) -> None:
        """A message of the client is with the hub, as a whole."""
        self._asked.pop(message.cancels or "", None)
        message.times += 1
        if message.key is not None:
            self._asked[message.key] = message
        if message.method == "tools/call":
            message.line = b""  # it is never sent again
        if message.method == "initialize":
            self._handshake = [message]
        elif message.method == "notifications/initialized":
            self._handshake.append(message)

    def _read_hub(self) -> None:
        try:
            data = self._hub.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard_at = time.monotonic()
        self._hear_all(data)
        if not data:
            self._lose()

    def _hear_all(self, data: bytes) -> None:
        hub = self._hub
        for line in self._from_hub.feed(data):
            if self._hub is not hub:
                break  # lost at one of these lines: the others are no greeting of the next hub's
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        """A line of the hub: the answer to our hello, a word between us, or something for the client."""
        if not self._is_open:
            self._finish_greeting(json.loads(line))
        elif line == LEAVING:
            self._is_leaving = True
            self._to_hub.put(BYE)
        else:
            content = json.loads(line)
            key = None if "method" in content else json.dumps(content.get("id"))
            if key is not None and key == self._replayed and key not in self._asked:
                self._replayed = None
                return
            self._asked.pop(key or "", None)
            self._to_client.put(line)

    def _finish_greeting(self, answer: dict[str, Any]) -> None:
        """The hub has answered our hello: open the connection, or leave it."""
        if "error" in answer:
            self._give_up(Unavailable(f"the hub refused us: {answer['error']['message']}", answer["error"]["hint"]))
        if "error" in answer or answer.get("leaving"):
            self._starts_next = bool(answer.get("leaving"))  # we are the newer one
            self._lose()
            return
        self._is_open = True
        self._unknown = 0
        self._most_bytes = int(answer["max_bytes"])
        self._replay()
        waiting, self._waiting = self._waiting, deque()
        for message in waiting:
            if len(message.line) > self._most_bytes:
                self._refuse(message, _too_large(self._most_bytes))
            else:
                self._to_hub.put(message.line, message)
        self._flush_to_hub()

    def _replay(self) -> None:
        """Give a new hub the handshake that its predecessor had, unless the client itself is still at it."""
        first = self._handshake[0] if self._handshake else None
        if first is None or any(message.method == "initialize" for message in self._waiting):
            return
        self._replayed = first.key
        for message in self._handshake:
            self._to_hub.put(message.line)

    def _lose(self, failure: Failure | None = None) -> None:
        """The hub is gone: answer what it may have done with a failure, keep the rest for the next one."""
        hub, self._hub = self._hub, None
        self._end_probe()
        if hub is not None:
            if self._is_open:
                with suppress(OSError):  # it may have answered before it went
                    while data := hub.recv(CHUNK):
                        self._hear_all(data)
            hub.close()
        now = time.monotonic()
        pause = 0.0 if self._is_open else 0.05  # one that hangs up at once is not asked in a loop
        if self._is_leaving and not self._starts_next:
            pause = LEAVING_SECONDS
        if self._is_open:
            self._closed_at = now
        self._from_hub = Lines()
        self._is_open = self._is_leaving = False
        unsent = [message for message in self._to_hub.take_back() if isinstance(message, ClientMessage)]
        again = [message for message in self._asked.values() if message.is_repeatable]
        for message in self._asked.values():
            if not message.is_repeatable:
                self._unknown += message.method == "tools/call"
                self._refuse(message, failure or _hub_lost())
        self._asked = {}
        self._waiting = deque((*again, *unsent, *self._waiting))
        self._next_look = now + pause

    # What happens by itself

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._hub is None and now >= self._next_look:
            self._look(now)
        if self._hub is not None and not self._is_open and not self._hub_source.is_current():
            self._lose()  # nobody will greet us there: another hub has come, or the same one made its socket again
        elif self._hub is not None and not self._is_open and now - self._connected_at > GREETING_SECONDS:
            self._lose()
            self._give_up(Unavailable("the hall's hub does not answer", hint="`crewhall doctor` looks for the reason."))
        for message in self._discovering():
            if now - message.at > DISCOVER_SECONDS:
                self._fall_back(message)
        self._watch_silence(now)

    def _watch_silence(self, now: float) -> None:
        """Leave a hub that stands still with requests of ours; one that works on them for long is waited for."""
        if self._probe is not None and self._probe.is_answered():
            self._end_probe()
            self._heard_at = now
        elif self._probe is not None and now - self._probe.began_at > GREETING_SECONDS:
            self._lose(_stands_still("it may still happen. Look before you repeat it"))
            self._give_up(_stands_still("nothing of this was done"))
        elif self._probe is None and now > self._quiet_at():
            connection = self._hub_source.probe()
            self._probe = None if connection is None else Probe(connection, now)
            self._heard_at = now  # when none could be made, later

    def _quiet_at(self) -> float:
        """When a hub that goes on saying nothing has said nothing for long."""
        asked = [message.at for message in self._asked.values() if message.needs_hub]
        return max(self._heard_at, min(asked)) + QUIET_SECONDS if self._is_open and asked else float("inf")

    def _end_probe(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _until_next(self) -> float:
        """Seconds until something has to be done even if nobody says a word."""
        now = time.monotonic()
        times = [now + 5.0]
        if self._hub is None:
            times.append(self._next_look)
        elif not self._is_open:
            times += [self._connected_at + GREETING_SECONDS, now + SOCKET_SECONDS]
        if self._client_ended_at is not None:
            times.append(self._client_ended_at + LAST_SECONDS)
        times += [message.at + DISCOVER_SECONDS for message in self._discovering()]
        times.append(self._quiet_at() if self._probe is None else self._probe.began_at + GREETING_SECONDS)
        return min(times) - now + 0.001

    def _look(self, now: float) -> None:
        """Look for a hub, and have one started when it is needed."""
        needs = [message.at for message in self._waiting if message.needs_hub]
        is_late = bool(needs) and now - max(self._closed_at, min(needs)) > START_SECONDS
        trouble = f"it did not come up within {START_SECONDS:.0f} s" if is_late else self._hub_source.trouble()
        if trouble is not None:
            hint = f"Nothing of this was done. `crewhall doctor` and {self._hub_source.log} tell more."
            self._give_up(Unavailable(f"no hub could be started: {trouble}", hint=hint))
            self._next_look = now + 0.1
            return
        self._hub = self._hub_source.connect()
        if self._hub is not None:
            self._connected_at = now
            self._hub.setblocking(False)
            self._to_hub.put(json.dumps(self._hello | {"unknown": self._unknown}).encode())
            self._flush_to_hub()
        elif needs:
            self._hub_source.start()
        is_soon = now - self._closed_at < QUICK_LOOKS
        self._next_look = now + (0.02 if needs and is_soon else 0.1 if needs else 0.5)

    def _give_up(self, failure: Failure) -> None:
        """Answer all that waits with a failure; a standing question goes on waiting."""
        for message in self._waiting:
            if message.needs_hub:
                self._refuse(message, failure)
        self._waiting = deque(message for message in self._waiting if not message.needs_hub)

    def _discovering(self) -> list[ClientMessage]:
        return [m for m in (*self._waiting, *self._asked.values()) if m.method == "server/discover" and m.key]

    def _fall_back(self, message: ClientMessage) -> None:
        """Send a client that asks what we speak to the older handshake, before it loses patience with a busy hub."""
        if message in self._waiting:
            self._waiting.remove(message)
        elif len(self._asked) == 1 and not self._to_hub:
            self._asked = {}
            self._hub.close()  # the question has settled the era of that connection; the handshake needs a new one
            self._lose()
        else:
            message.at = float("inf")
            return
        self._answer(message.id, error={"code": METHOD_NOT_FOUND, "message": "Method not found"})


def _id(value: Any) -> Any:
    return value if is_id(value) else None


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the message is larger than {most} bytes", hint="Send less, or keep large things in files.")


def _stands_still(kept: str) -> Unavailable:
    return Unavailable(
        f"the hall's hub does not answer: {kept}",
        hint="`crewhall status` tells which process it is, and if it is stopped.",
    )


def _hub_lost() -> Unavailable:
    return Unavailable(
        "the hub went away while this call was with it: it may have happened",
        hint="Look before you repeat it. With the idempotency_key that it had, it is done once.",
    )
