"""Who may open how large a pull: the tier is told by the connection, and by nothing that a caller writes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crewhall.app import NOWHERE, Hub, Origin
from crewhall.errors import Forbidden
from crewhall.identity import OPERATOR, Actor, Credentials, make_token, operator_token
from tests.conftest import Agent
from tests.families.pulls.conftest import FILE, Site, bridge, on_github, set_up

TIER_1 = "tier 1 agents cannot create PRs; minimum tier is 2"
TIER_2 = "tier 2 agents may modify at most 3 files per PR (got 4); consider escalating to tier 3"
OUTCOMES = {1: [TIER_1, TIER_1, TIER_1], 2: [None, None, TIER_2], 3: [None, None, None]}  # with 1, 3 and 4 files
FOUR = [{**FILE, "path": f"checks/{n}.md"} for n in range(4)]
WELL_FORMED = {"1": 1, "2": 2, "3": 3, " 3 ": 3, "2\n": 2}
UNSET = ["${CLAUDEOPS_TIER}", " ${CLAUDEOPS_TIER:-3}"]
MALFORMED = ["", "0", "4", "-1", "+3", "02", "2.0", "3 3", "3\n3", "٣", "\uff13", "three", "III", "true", "null"]

pytestmark = on_github


def tier(site: Site, actor: Actor, origin: Origin = NOWHERE) -> int:
    """The tier that pulls_health tells, which is what may be done."""
    dry = replace(origin, variables={**origin.variables, "CLAUDEOPS_DRY_RUN": "yes"})
    told: int = site.ask("pulls_health", actor=actor, origin=origin)["tier"]
    assert [_refusal(site, count, actor=actor, origin=dry) for count in (1, 3, 4)] == OUTCOMES[told]
    return told


def _refusal(site: Site, count: int, **who: Any) -> str | None:
    try:
        site.create(files=FOUR[:count], **who)
    except Forbidden as refusal:
        assert "CLAUDEOPS_TIER" in refusal.hint
        return refusal.message
    return None


@pytest.fixture
def agent(site: Site) -> Actor:
    return Agent(site.hub).actor


@pytest.fixture
def by_token(site: Site) -> Actor:
    with site.hub.own_work() as tx:
        token = operator_token(tx, site.hub.settings.home, site.hub.clock())
    return site.hub.identify(Credentials(token=token))


@pytest.fixture
def by_cookie(site: Site) -> Actor:
    with site.hub.own_work() as tx:
        cookie = make_token(tx, "browser", "browser", site.hub.clock())
    return site.hub.identify(Credentials(cookie=cookie))


def test_a_bridge_has_the_tier_of_its_environment(site: Site, agent: Actor, by_token: Actor) -> None:
    for text, expected in {**WELL_FORMED, **dict.fromkeys(MALFORMED, 1)}.items():
        told = {tier(site, actor, bridge(CLAUDEOPS_TIER=text)) for actor in (OPERATOR, agent, by_token)}
        assert told == {expected}, text


def test_a_bridge_without_a_tier_is_whoever_calls(site: Site, agent: Actor, by_token: Actor) -> None:
    for origin in (bridge(), *(bridge(CLAUDEOPS_TIER=text) for text in UNSET)):
        assert [tier(site, actor, origin) for actor in (OPERATOR, agent, by_token)] == [1, 1, 3]


def test_without_a_bridge_only_a_proven_operator_may(
    site: Site, agent: Actor, by_token: Actor, by_cookie: Actor
) -> None:
    assert [tier(site, actor) for actor in (by_token, by_cookie, OPERATOR, agent)] == [3, 3, 1, 1]


def test_what_is_said_without_a_bridge_can_lower_a_tier_and_never_raise_it(
    site: Site, agent: Actor, by_token: Actor
) -> None:
    for text, expected in {**WELL_FORMED, **dict.fromkeys(MALFORMED, 1), **dict.fromkeys(UNSET, 3)}.items():
        origin = Origin(variables={"CLAUDEOPS_TIER": text})
        assert [tier(site, actor, origin) for actor in (by_token, OPERATOR, agent)] == [expected, 1, 1], text


@pytest.mark.parametrize("own", [1, 2, 3])
def test_the_operators_own_tier_is_a_setting(
    site: Site, make_hub: Callable[..., Hub], by_token: Actor, by_cookie: Actor, own: int
) -> None:
    site.hub = make_hub(**set_up("github", site.host), pulls__operator_tier=own)
    assert [tier(site, actor) for actor in (by_token, by_cookie, OPERATOR)] == [own, own, 1]
    assert tier(site, by_token, Origin(variables={"CLAUDEOPS_TIER": "3"})) == own
    assert tier(site, by_token, bridge(CLAUDEOPS_TIER="3")) == 3, "whoever started it said so"


@pytest.mark.parametrize("name", ["tier", "CLAUDEOPS_TIER", "Tier", "agent_tier"])
def test_a_tier_is_no_argument(site: Site, agent: Actor, name: str) -> None:
    for tool in ("create_pr", "list_prs", "pulls_health"):
        refusal = site.refusal(tool, actor=agent, origin=bridge(CLAUDEOPS_TIER="1"), **{name: 3})
        assert (refusal.code, name in refusal.message) == ("INVALID_INPUT", True)
    nested = [{**FILE, "tier": 3}]
    assert site.refusal(actor=agent, files=nested).code == "INVALID_INPUT"
    assert site.host.exchanges == []


def test_a_refused_tier_sends_nothing_and_a_good_one_opens_the_pull(site: Site, agent: Actor) -> None:
    low = site.refusal(actor=agent, origin=bridge(CLAUDEOPS_TIER="2"), files=FOUR)
    assert (low.code, low.message, site.host.exchanges) == ("FORBIDDEN", TIER_2, [])
    assert site.create(actor=agent, origin=bridge(CLAUDEOPS_TIER="2"), files=FOUR[:3])["number"] == 1
    others = [{**FILE, "path": f"playbooks/{n}.md"} for n in range(4)]
    made = site.create(actor=agent, origin=bridge(CLAUDEOPS_TIER="3"), files=others, title="Four")
    assert (made["number"], site.rows()[1]["actor"]) == (2, agent.id)


def test_two_clients_of_one_hub_have_each_their_own_tier(site: Site) -> None:
    low, high = bridge(CLAUDEOPS_TIER="1"), bridge(CLAUDEOPS_TIER="3")
    assert [tier(site, OPERATOR, one) for one in (low, high, low)] == [1, 3, 1]


def test_reading_is_open_to_every_tier(site: Site, agent: Actor) -> None:
    site.create()
    for origin in (NOWHERE, bridge(CLAUDEOPS_TIER="1"), bridge(CLAUDEOPS_TIER="nonsense")):
        who: dict[str, Any] = {"actor": agent, "origin": origin}
        assert site.ask("list_prs", **who)["total"] == 1
        assert site.ask("get_pr_status", pr_number=1, **who)["number"] == 1
        assert site.ask("pulls_health", **who)["may_create"] == "nothing"


def test_a_client_in_the_readonly_profile_opens_nothing(site: Site, by_token: Actor) -> None:
    refusal = site.refusal(actor=by_token.reading_only(), origin=bridge(CLAUDEOPS_TIER="3"))
    assert (refusal.code, site.host.exchanges) == ("FORBIDDEN", [])
