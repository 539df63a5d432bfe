"""A process of an instance's session is that instance over REST, whatever token it brings along."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.families.crew.site import tmux_of
from tests.conftest import Live, eventually
from tests.outside.repos import make_repository
from tests.trials import PERSON

# $1 is a file with curl's options; the instance's program asks who it is, and waits.
PROGRAM = 'while [ ! -s "$1" ]; do sleep 0.02; done; curl -s -K "$1" -o "$1.part"; mv "$1.part" "$1.out"; sleep 600'


@pytest.mark.parametrize("token", ["none", "operator", "wrong"])
def test_a_process_of_an_instance_is_that_instance(serve: Callable[..., Live], tmp_path: Path, token: str) -> None:
    asked = tmp_path / "asked"
    live = serve(crew__runtimes={"custom": {"command": ["sh", "-c", PROGRAM, "sh", str(asked)]}})
    repository = make_repository(tmp_path / "shop").root
    words = {"prompt": "Try", "title": "guard", "repository_path": repository, "runtime": "custom"}
    try:
        made = live.hub.call("instance_start", words, PERSON)
        lines = [f'url = "{live.url}/api/v1/agent/register"']
        lines.append('data = "{\\"name\\": \\"other\\", \\"runtime\\": \\"custom\\"}"')
        lines.append('header = "Content-Type: application/json"')
        given = {"operator": live.token, "wrong": "ch_agent_wrong"}.get(token)
        lines += [f'header = "Authorization: Bearer {given}"'] if given else []
        (tmp_path / "new").write_text("\n".join(lines))
        (tmp_path / "new").rename(asked)
        answer = json.loads(eventually(lambda: Path(f"{asked}.out").exists() and Path(f"{asked}.out").read_text()))
        assert answer.get("agent_id", answer.get("id")) == made["agent_id"], answer
    finally:
        for session in tmux_of(live.hub.settings).panes():
            tmux_of(live.hub.settings).kill(session)
