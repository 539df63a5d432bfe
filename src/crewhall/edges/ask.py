"""How the command line reaches a hall's tools: through the hub that runs, or through the door in its own process."""

import http.client
import json
import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crewhall.config import Settings
from crewhall.edges.meeting import directory, directory_told, told_variables
from crewhall.edges.notices import CONNECT_SECONDS, running_hubs
from crewhall.errors import Unauthorized, Unavailable


class Hall:
    """The way to a hall's tools: through its hub when one runs, through the door in this process when not."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.urls = running_hubs(settings)
        self.url = self.urls[0] if self.urls else None
        # An empty CREWHALL_TOKEN is a wrong token, never none: a script's unset variable must not make an operator.
        self._directory = directory_told(directory())
        self._token = os.environ.get("CREWHALL_TOKEN", _operator_token(settings.home))

    def tools(self) -> list[dict[str, Any]]:
        if self.url is not None:
            status, body = self.ask("GET", "/api/v1/tools")
            if status == 200:
                tools: list[dict[str, Any]] = body["tools"]
                return tools
            raise Unauthorized(body["message"], hint=body["hint"])
        from crewhall.edges.local import described_tools

        return described_tools()

    def call(self, tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The tool's body, and whether it succeeded."""
        if self.url is not None:
            variables = told_variables(os.environ) if tool.get("family") == "pulls" else {}
            status, body = self.ask("POST", f"/api/v1/{'/'.join(tool['command'])}", arguments, variables)
            return body, status == 200
        from crewhall.edges.local import call_here

        return call_here(self.settings, tool["name"], arguments, os.environ.get("CREWHALL_TOKEN"), self._directory)

    def ask(
        self,
        method: str,
        path: str,
        arguments: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The hub's HTTP status and body. Raises Unavailable when it breaks off.

        `variables` are what the client's environment says about this call.
        """
        assert self.url is not None
        place = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=CONNECT_SECONDS)
        headers = {"Content-Type": "application/json"}
        if self._directory is not None:
            headers["X-Crewhall-Directory"] = urllib.parse.quote(self._directory)
        if variables:
            headers["X-Crewhall-Variables"] = urllib.parse.quote(json.dumps(variables))
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(self.settings["tool.timeout"] + 30)
            connection.request(method, path, json.dumps(arguments) if arguments is not None else None, headers)
            answer = connection.getresponse()
            body: dict[str, Any] = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(
                f"the hub at {self.url} broke off: {error}",
                hint="It may have happened: look before you repeat it. `crewhall status` tells whether it runs.",
            ) from None
        finally:
            connection.close()
        return answer.status, body


def _operator_token(home: Path) -> str | None:
    """As identity.read_operator_token, without what that imports: the command line starts with little."""
    try:
        return (home / "operator.token").read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
