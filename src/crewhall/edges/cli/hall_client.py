"""The command line's access to a hall's tools: over HTTP if a hub runs, or else in this process."""

import http.client
import json
import os
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from crewhall.config import Settings
from crewhall.edges.bridge.address_files import CONNECT_SECONDS, HubAddress, hub_addresses
from crewhall.edges.bridge.hello import client_directory, client_variables, working_directory
from crewhall.edges.cli.silence import ACCEPT_SECONDS, ANSWER_SECONDS, SilenceWatch, is_stopped, silent_hub
from crewhall.errors import Unauthorized, Unavailable, every_failure
from crewhall.outside.peers import is_served_by_us
from crewhall.token_file import read_operator_token

EVENTS = "text/event-stream"
Progress = Callable[[float, float | None, str | None], None]  # is called as a call goes on


class Hall:
    """A hall's tools, over HTTP if one of its hubs runs, or else in this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        hubs = hub_addresses(settings)
        if len(hubs) > 1:
            hubs.sort(key=is_stopped)
        self.urls = [hub.url for hub in hubs]
        self.hub = hubs[0] if hubs else None
        self.url = self.hub.url if self.hub else None
        # An empty CREWHALL_TOKEN is a wrong token, never none: a script's unset variable must not make an operator.
        self._directory = client_directory(working_directory())
        # A hub that lives says something about a long call more often than that.
        self.silence_seconds = max(60.0, 4 * settings["tool.progress"])
        self._token = os.environ.get("CREWHALL_TOKEN", read_operator_token(settings.home))

    def tools(self) -> list[dict[str, Any]]:
        if self.url is not None:
            status, body = self.ask("GET", "/api/v1/tools")
            if status == 200:
                tools: list[dict[str, Any]] = body["tools"]
                return tools
            raise Unauthorized(body["message"], hint=body["hint"])
        from crewhall.edges.cli.in_process import tool_descriptions

        return tool_descriptions()

    def call(
        self, tool: Mapping[str, Any], arguments: Mapping[str, Any], progress: Progress = lambda *_: None
    ) -> tuple[dict[str, Any], bool]:
        """The tool's body, and whether it succeeded; the `progress` is called for a long one."""
        if self.url is not None:
            variables = client_variables(os.environ) if tool.get("family") == "pulls" else {}
            path, heard = f"/api/v1/{'/'.join(tool['command'])}", progress if tool.get("long") else None
            status, body = self.ask("POST", path, arguments, variables, heard)
            return body, status == 200
        from crewhall.edges.cli.in_process import call_here

        token = os.environ.get("CREWHALL_TOKEN")
        return call_here(self.settings, tool["name"], arguments, token, self._directory, progress)

    def ask(
        self,
        method: str,
        path: str,
        arguments: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The hub's HTTP status and body. Raises Unavailable when it breaks off.

        `variables` are those of the client's environment that count for this call. With `progress` the call may take
        as long as it likes, if it reports some.
        """
        hub = self.hub
        assert hub is not None
        connection = self._connect(hub)
        assert connection.sock is not None
        headers = self._headers(variables) | ({"Accept": EVENTS} if progress else {})
        connection.sock.settimeout(self.silence_seconds if progress else self.settings["tool.timeout"] + 30)
        try:
            with SilenceWatch(hub, connection.sock) as watch:
                connection.request(method, path, json.dumps(arguments) if arguments is not None else None, headers)
                answer = connection.getresponse()
                if progress and answer.headers.get_content_type() == EVENTS:
                    return _answer(answer, progress)
                return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            if watch.is_silent:
                raise silent_hub(hub, may_happen=method != "GET") from None
            raise Unavailable(
                f"the hub at {hub.url} broke off: {error}",
                hint="It may have happened: look before you repeat it. `crewhall status` tells whether it runs.",
            ) from None
        finally:
            connection.close()

    def _connect(self, hub: HubAddress) -> http.client.HTTPConnection:
        """A connection that a process of our own user has accepted. Raises Unavailable."""
        place = urllib.parse.urlsplit(hub.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            assert connection.sock is not None
            if is_served_by_us(connection.sock, ANSWER_SECONDS):
                return connection
            if not is_stopped(hub) and is_served_by_us(connection.sock, ACCEPT_SECONDS - ANSWER_SECONDS):
                return connection
        except OSError as error:
            if not isinstance(error, TimeoutError):
                raise Unavailable(
                    f"the hub at {hub.url} is gone: {error}", hint="Nothing was done. Try again."
                ) from None
        connection.close()
        raise self._not_served(hub)

    def _not_served(self, hub: HubAddress) -> Unavailable:
        if is_stopped(hub):
            return silent_hub(hub, may_happen=False)
        return Unavailable(
            f"no process of yours answers at {hub.url}, so your token was not sent there",
            hint="Look who listens there (`ss -ltnp`). If that is a hub of yours that stands still, end it.",
        )

    def _headers(self, variables: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._directory is not None:
            headers["X-Crewhall-Directory"] = urllib.parse.quote(self._directory)
        if variables:
            headers["X-Crewhall-Variables"] = urllib.parse.quote(json.dumps(variables))
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers


def _answer(lines: Iterable[bytes], progress: Progress) -> tuple[int, dict[str, Any]]:
    """The status and body at the end of a stream of events (reply.py). Raises ValueError when there is no such end."""
    name = ""
    for line in lines:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = json.loads(value)
            if name == "answer":
                return data["status"], data["body"]
            progress(data["progress"], data["total"], data["message"])
    raise ValueError("it ended without an answer")


def result_of(hall: Hall, tool: str, command: str, **arguments: Any) -> dict[str, Any]:
    """The body of a tool's result. Raises the failure that the hall returns."""
    described = {"name": tool, "command": command.split()}
    body, has_succeeded = hall.call(described, arguments)
    if has_succeeded:
        return body
    kinds = {kind.code: kind for kind in every_failure()}
    raise kinds.get(body["code"], Unavailable)(body["message"], hint=body["hint"])
