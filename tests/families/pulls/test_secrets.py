"""After a full run with logs at debug, good and bad, no token is anywhere but on its way to its host."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import NOWHERE, Call, Hub, Origin
from crewhall.edges.hub.logs import set_up as set_up_logs
from crewhall.errors import Failure
from crewhall.families.pulls.providers import accesses, host
from crewhall.identity import operator_token
from crewhall.stop import Stop
from tests.families.pulls.conftest import BRANCH, PERSON, TOKENS, Both, Site, bridge, set_up
from tests.families.work.workflows import all_rows, sql

pytestmark = pytest.mark.slow

OWN = "own_T0kenOfTheClient"


@pytest.fixture
def log_output(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a hub with MCP_LOG_LEVEL=debug writes to stderr."""
    text, root, ours = io.StringIO(), logging.getLogger(), logging.getLogger("crewhall")
    before = root.handlers[:], root.level, ours.level
    monkeypatch.setattr(sys, "stderr", text)
    set_up_logs("debug")
    yield text
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


class Full:
    """Every tool, with every outcome; all that a client is answered is kept."""

    def __init__(self, site: Site) -> None:
        self.site, self.answers = site, list[str]()
        self.client = bridge(GITHUB_TOKEN=OWN, GITEA_TOKEN=OWN, GITEA_URL=site.host.url, CLAUDEOPS_TIER="3")

    def ask(self, tool: str, **given: Any) -> None:
        ask = self.site.create if tool == "create_pr" else partial(self.site.ask, tool)
        try:
            self.answers.append(json.dumps(ask(**given)))
        except Failure as failure:
            self.answers.append(json.dumps(failure.body(tool)) + repr(failure) + str(failure.__cause__))

    def each(self, origin: Origin = NOWHERE, clone_url: str | None = None, **change: Any) -> None:
        where = {"origin": origin, "clone_url": clone_url or f"{self.site.host.url}/octo/{self.site.name}"}
        self.ask("create_pr", **where, **change)
        self.ask("list_prs", **where)
        self.ask("get_pr_status", pr_number=1, **where)
        self.ask("pulls_health", origin=origin)

    def run(self) -> None:
        self.each()
        self.each(self.client)
        self.each(bridge(CLAUDEOPS_TIER="1", GITHUB_TOKEN=OWN))
        self.each(bridge(CLAUDEOPS_TIER="3", CLAUDEOPS_DRY_RUN="1", GITHUB_TOKEN=OWN))
        self.each(clone_url=f"https://ada:{OWN}@elsewhere.example/octo/ops")
        for status in (401, 403, 404, 422, 429, 500):
            for token, origin in ((OWN, self.client), (TOKENS[self.site.kind], NOWHERE)):
                self.site.move_to_new_repository()
                self.site.fail(("", ""), **_echo(status, token), after=status % 7, times=20)
                self.each(origin)
        self.site.move_to_new_repository()
        self.site.fail(("POST", "/pulls$"), **_echo(422, TOKENS[self.site.kind]))
        self.site.fail(("DELETE", ""), **_echo(403, TOKENS[self.site.kind]))
        self.each()


def _echo(status: int, token: str) -> dict[str, Any]:
    """A host that says the token back in every way it can."""
    return {"status": status, "body": {"message": token, "errors": [{"message": token}]}, "headers": {"x-told": token}}


def test_no_token_is_in_logs_database_events_errors_or_answers(
    both: Both, database: str, log_output: io.StringIO
) -> None:
    hub = both.hub
    with hub.own_work() as tx:
        operators = operator_token(tx, hub.settings.home, hub.clock())
    answers = []
    for kind, there in (("github", both.github), ("gitea", both.gitea)):
        there.tokens[OWN] = "ada"
        full = Full(Site(hub, there, kind))
        full.run()
        answers += full.answers
        own, hubs = f"token {OWN}", f"token {TOKENS[kind]}"
        assert {one.headers["authorization"] for one in there.exchanges} == {own, hubs}
    hub.chores.run_due()
    kept = json.dumps(all_rows(hub), default=str) + json.dumps(full.site.ask_events()) + str(_files(database))
    hub.calls.close()
    kept += str(sql(hub, "SELECT * FROM call_log"))
    seen = {"logs": log_output.getvalue(), "kept": kept, "answers": "\n".join(answers)}
    assert "asked" in seen["logs"] and BRANCH in seen["kept"] and "[token]" in seen["answers"]
    secrets = {*TOKENS.values(), OWN, operators}
    assert [(where, secret) for where, text in seen.items() for secret in secrets if secret in text] == []


def _files(database: str) -> list[bytes]:
    """The bytes of a SQLite hall, with what is not yet written back."""
    return [one.read_bytes() for one in Path(database).parent.glob(f"{Path(database).name}*")]


def test_no_token_is_in_the_words_that_objects_have_for_themselves(site: Site) -> None:
    client = bridge(GITHUB_TOKEN=OWN, GITEA_TOKEN=OWN)
    call = Call(site.hub, site.hub.registry.find("list_prs"), PERSON, "python", Stop(), None, 0, "id", client)
    found = [*accesses(site.hub.settings, {}).values(), *accesses(site.hub.settings, client.variables).values()]
    things = [client, call, site.hub.settings, site.hub, *found, *(host(call, access) for access in found)]
    told = " ".join(f"{one!r} {one}" for one in things)
    assert len(found) > 1 and [secret for secret in (*TOKENS.values(), OWN) if secret in told] == []


def test_a_token_that_is_no_header_is_refused_without_being_shown(
    site: Site, make_hub: Callable[..., Hub], log_output: io.StringIO
) -> None:
    bad = f"{OWN}\nX-Other: 1 ü"
    site.hub = make_hub(**set_up(site.kind, site.host, token=bad))
    refusal = site.refusal()
    told = json.dumps([refusal.body(), site.ask("pulls_health")]) + log_output.getvalue()
    assert (refusal.code, OWN in told, site.host.exchanges) == ("FORBIDDEN", False, [])
    assert f"pulls.{site.kind}_token" in refusal.hint
