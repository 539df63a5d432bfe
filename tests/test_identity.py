"""Tokens, links and cookies: what the hall keeps of them, where, and for how long."""

import hashlib
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.edges.web.pages import make_link, use_link
from crewhall.errors import Unauthorized
from crewhall.identity import LINK_MS, OPERATOR, Actor, Credentials, hash_of, make_token, new_id, operator_token
from crewhall.token_file import read_operator_token
from tests.conftest import Agent, Clock

DAY = 86_400


def the_operators_token(hub: Hub, home: Path) -> str:
    with hub.own_work() as tx:
        return operator_token(tx, home, hub.clock())


def token_rows(hub: Hub) -> list[dict[str, Any]]:
    hub.store.texts["tokens_kept"] = "SELECT * FROM token ORDER BY created_at, id"
    with hub.store.read() as tx:
        return tx.all("tokens_kept")


def test_an_id_is_a_prefix_and_twelve_letters_or_digits() -> None:
    ids = {new_id("ag") for _ in range(1000)}
    assert len(ids) == 1000 and all(re.fullmatch(r"ag_[0-9a-z]{12}", one) for one in ids)


def test_the_hall_keeps_a_hash_and_never_the_token(hub: Hub) -> None:
    with hub.own_work() as tx:
        tokens = [make_token(tx, kind, "x", hub.clock()) for kind in ("operator", "browser", "link")]
    rows = token_rows(hub)
    assert {row["hash"] for row in rows} == {hashlib.sha256(token.encode()).hexdigest() for token in tokens}
    for token in tokens:
        assert re.fullmatch(r"ch_[a-z]+_[\w-]{43}", token) and token not in str(rows)


def test_the_operators_token_is_in_a_file_that_only_its_owner_may_read(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    token = the_operators_token(hub, home)
    assert (home / "operator.token").read_text() == token + "\n"
    assert stat.S_IMODE((home / "operator.token").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert hub.identify(Credentials(token=token)) == Actor("operator", "operator", proof="token")


def test_the_operators_token_survives_a_restart(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    first = the_operators_token(make_hub(), tmp_path)
    again = make_hub()
    assert the_operators_token(again, tmp_path) == first
    assert len(token_rows(again)) == 1


@pytest.mark.parametrize("content", [b"", b"ch_operator_of_another_hall\n", b"\xff\xfe\x00", None])
def test_a_token_that_this_hall_does_not_know_is_made_anew(hub: Hub, tmp_path: Path, content: bytes | None) -> None:
    """So it is when the database is new, and when the file is empty, damaged or gone."""
    path = tmp_path / "operator.token"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o666)
    token = the_operators_token(hub, tmp_path)
    assert hub.identify(Credentials(token=token)).kind == "operator"
    assert read_operator_token(tmp_path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_without_a_token_is_read_as_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "operator.token").write_bytes(content)
    assert read_operator_token(tmp_path) is None


def test_a_new_file_is_written_through_no_link_of_someone_elses(hub: Hub, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("old")
    (tmp_path / "operator.token").symlink_to(elsewhere)
    the_operators_token(hub, tmp_path)
    assert elsewhere.read_text() == "old" and not (tmp_path / "operator.token").is_symlink()


def test_a_link_signs_in_once_and_until_its_time_is_over(hub: Hub, clock: Clock) -> None:
    def link() -> str:
        with hub.own_work() as tx:
            return make_link(tx, "http://h:1", hub.clock()).removeprefix("http://h:1/?key=")

    used, late = link(), link()
    clock.advance(LINK_MS / 1000 - 1)
    cookie = use_link(hub, used, 30)
    assert cookie is not None and use_link(hub, used, 30) is None
    clock.advance(1)
    assert use_link(hub, late, 30) is None
    assert hub.identify(Credentials(cookie=cookie)) == Actor("operator", "operator", proof="cookie")
    for wrong in ("", "x", cookie, Agent(hub).token):
        assert use_link(hub, wrong, 30) is None


def test_a_cookie_is_good_for_its_days(hub: Hub, clock: Clock) -> None:
    with hub.own_work() as tx:
        link = make_link(tx, "", hub.clock()).removeprefix("/?key=")
    cookie = use_link(hub, link, 2)
    clock.advance(2 * DAY - 1)
    assert hub.identify(Credentials(cookie=cookie)).kind == "operator"
    clock.advance(1)
    with pytest.raises(Unauthorized, match="wrong, expired or revoked"):
        hub.identify(Credentials(cookie=cookie))


def test_what_is_over_is_forgotten_and_the_rest_is_kept(hub: Hub, clock: Clock) -> None:
    ada = Agent(hub)
    with hub.own_work() as tx:
        make_link(tx, "", hub.clock())
        make_token(tx, "browser", "x", hub.clock(), expires_at=hub.clock() + DAY * 1000)
        make_token(tx, "browser", "y", hub.clock(), expires_at=hub.clock() + 3 * DAY * 1000)
    clock.advance(2 * DAY)
    hub.chores.run_due()
    assert sorted(row["kind"] for row in token_rows(hub)) == ["agent", "browser"]
    assert ada.actor.id == ada.id


def test_a_wrong_token_is_never_taken_for_none(hub: Hub) -> None:
    for wrong in ("", "x", hash_of("x"), "\udcff"):
        for credentials in (Credentials(token=wrong, is_local=True), Credentials(cookie=wrong, is_local=True)):
            with pytest.raises(Unauthorized):
                hub.identify(credentials)
    assert hub.identify(Credentials(is_local=True)) is OPERATOR
    with pytest.raises(Unauthorized, match="carries no token"):
        hub.identify(Credentials())
