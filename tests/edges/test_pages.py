"""The pages in a real browser: signing in, what is shown, and what can never run."""

import json
import re
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from crewhall.app import Origin
from crewhall.edges.hub import doorkeeper
from crewhall.families.project.open_worktrees import LISTENER
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import OPERATOR
from crewhall.store.transaction import Work
from tests.conftest import Agent, Clock, Live, eventually
from tests.edges.conftest import SharedHubs
from tests.edges.raw_http import http
from tests.families.work.claims import PERSON
from tests.postgres import missing

CHROMIUM = Path("/usr/bin/chromium")
DAY = 86_400
PROMPT = {"source_type": "prompt", "source_content": "x"}
# A page that lost its hub tries again after a tenth of its time.
HURRY = "const wait = setTimeout; window.setTimeout = (then, ms) => wait(then, ms >= 1000 ? ms / 10 : ms)"


@pytest.fixture
def database(sqlite_file: Path, tmp_path: Path) -> str:
    """No page looks into a database, so one kind is enough."""
    return shutil.copy(sqlite_file, str(tmp_path / "hall.db"))


@pytest.fixture
def hall(shared_hubs: SharedHubs) -> Live:
    """One hub for the tests that mind nobody in the hall."""
    return shared_hubs.find("hall", "sqlite")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        missing("Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Visit:
    """A browser of its own at a hub, which notes what the page does."""

    def __init__(self, context: BrowserContext, live: Live) -> None:
        self.context = context
        context.add_init_script(HURRY)
        self.live = live
        self.page: Page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", self._dialog)
        context.on("request", lambda request: self.hosts.add(urllib.parse.urlsplit(request.url).netloc))

    def _dialog(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def sign_in(self) -> Page:
        self.page.goto(f"{self.live.url}/?key={self.live.link_key()}")
        expect(self.page.locator("#hub")).to_contain_text("sqlite")
        return self.page

    def assert_clean(self) -> None:
        assert self.errors == []
        assert self.hosts == {urllib.parse.urlsplit(self.live.url).netloc}


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    contexts: list[BrowserContext] = []

    def start(live: Live, **options: Any) -> Visit:
        contexts.append(browser.new_context(**options))
        return Visit(contexts[-1], live)

    yield start
    for context in contexts:
        context.close()


Start = Callable[..., Visit]


def call(live: Live, tool: str, **arguments: Any) -> dict[str, Any]:
    return live.hub.call(tool, arguments, OPERATOR)


def test_the_link_signs_a_browser_in_and_works_once(hall: Live, visit: Start) -> None:
    link = f"{hall.url}/?key={hall.link_key()}"
    first, second = visit(hall), visit(hall)
    answer = first.page.goto(link)
    assert answer is not None and answer.status == 200
    assert first.page.url == f"{hall.url}/", "the key is not left in the address"
    expect(first.page.get_by_role("heading", name="Agents")).to_be_visible()
    again = second.page.goto(link)
    assert again is not None and again.status == 401
    expect(second.page.get_by_text("This hall does not know your browser yet")).to_be_visible()
    first.page.reload()
    expect(first.page.get_by_role("heading", name="Agents")).to_be_visible()
    first.assert_clean()


def test_without_the_link_there_is_a_welcome_and_no_rest(hall: Live, visit: Start) -> None:
    stranger = visit(hall)
    answer = stranger.page.goto(hall.url)
    assert answer is not None and answer.status == 401
    expect(stranger.page.get_by_text("crewhall link")).to_be_visible()
    statuses = stranger.page.evaluate(
        """async () => Promise.all(["/api/v1/agent/list", "/api/v1/hub", "/api/v1/tools", "/mcp"].map(
            async (path) => (await fetch(path)).status))"""
    )
    assert statuses == [401, 401, 401, 401]


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(hall: Live, visit: Start) -> None:
    signed = visit(hall)
    page = signed.sign_in()
    (cookie,) = signed.context.cookies()
    assert cookie["name"] == f"crewhall-{hall.port}" and cookie["value"].startswith("ch_browser_")
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
    assert page.evaluate("document.cookie") == ""


def test_an_expired_cookie_is_refused_and_the_open_page_says_so(
    serve: Callable[..., Live], clock: Clock, visit: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorkeeper, "CHECK_SECONDS", 0.1)
    live = serve(clock=clock)
    page = visit(live).sign_in()
    clock.advance(30 * DAY)
    expect(page.get_by_role("status")).to_contain_text("crewhall link")
    answer = page.goto(live.url)
    assert answer is not None and answer.status == 401


def test_an_empty_hall_says_how_it_fills(live: Live, visit: Start) -> None:
    at = visit(live)
    page = at.sign_in()
    for text in ("No agent is in the hall", "crewhall agent register", "Nothing has happened yet", "None is known yet"):
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(0)
    at.assert_clean()


def test_the_open_page_shows_what_happens(live: Live, visit: Start) -> None:
    at = visit(live)
    page = at.sign_in()
    expect(page.get_by_text("No agent is in the hall")).to_be_visible()
    page.evaluate("window.same = true")
    agent = call(live, "agent_register", name="ada", runtime="codex")["id"]
    expect(page.get_by_role("row", name="ada")).to_contain_text("online")
    expect(page.get_by_text("No agent is in the hall")).to_be_hidden()
    call(live, "agent_heartbeat", agent_id=agent, status="busy")
    expect(page.get_by_role("row", name="ada")).to_contain_text("busy")
    call(live, "repository_register", path="/srv/app")
    expect(page.get_by_role("row", name="/srv/app")).to_be_visible()
    expect(page.locator("#events li strong")).to_have_text(
        ["repository.registered", "agent.updated", "agent.registered"]
    )
    expect(page.locator("#events li").nth(1)).to_contain_text("online → busy")
    expect(page.locator("#events li").nth(1)).to_contain_text("ada on ada")
    assert page.evaluate("window.same"), "the page was not loaded again"
    at.assert_clean()


def test_the_page_shows_how_far_a_workflow_is(live: Live, visit: Start) -> None:
    workflow = call(live, "workflow_create", name="Dark mode", source_type="prompt", source_content="x")["id"]
    page = visit(live).sign_in()
    row = page.get_by_role("row", name="Dark mode")
    expect(row).to_contain_text("planning")
    tasks = [{"name": name, "description": "x", "sequence": 1} for name in ("one", "two")]
    call(live, "workflow_set_plan", id=workflow, plan={"summary": "s", "approach": "a", "tasks": tasks})
    task = call(live, "task_list", workflow_id=workflow)["tasks"][0]["id"]
    agent = call(live, "agent_register", name="ada", runtime="codex")["id"]
    call(live, "task_claim", task_id=task, agent_id=agent)
    expect(page.get_by_role("row", name="ada")).to_contain_text(task)
    call(live, "task_update_status", id=task, status="in_progress")
    call(live, "task_update_status", id=task, status="completed", outcome="done")
    expect(row).to_contain_text("in progress")
    expect(row).to_contain_text("1 of 2")
    expect(page.get_by_role("progressbar", name="Dark mode: tasks finished")).to_have_js_property("position", 0.5)


def test_the_page_is_told_what_happens_and_finds_a_hub_again(serve: Callable[..., Live], visit: Start) -> None:
    live = serve()
    at = visit(live)
    page = at.sign_in()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    call(live, "agent_register", name="ada", runtime="codex")
    expect(page.get_by_role("row", name="ada")).to_be_visible()
    assert not [url for url in asked if "event/list" in url], "it is told, it does not ask"
    live.stop()
    expect(page.get_by_role("status")).to_contain_text("trying again")
    again = serve(server__port=str(live.port))
    call(again, "agent_register", name="bob", runtime="codex")
    expect(page.get_by_role("row", name="bob")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("")
    expect(page.locator("#events li")).to_have_count(2)


def test_events_that_were_pruned_do_not_stop_the_page(serve: Callable[..., Live], clock: Clock, visit: Start) -> None:
    live = serve(clock=clock)
    for number in range(70):
        call(live, "repository_register", path=f"/{number}")
    clock.advance(31 * DAY)
    live.hub.chores.run_due()
    call(live, "agent_register", name="late", runtime="codex")
    page = visit(live).sign_in()
    expect(page.locator("#events li strong")).to_have_text(["agent.registered"])
    expect(page.get_by_role("row", name="late")).to_be_visible()


def test_a_name_that_is_markup_is_shown_and_runs_nothing(hall: Live, visit: Start) -> None:
    evil = "<img src=x onerror=alert(1)>"
    call(hall, "agent_register", name=evil, runtime="codex")
    call(hall, "repository_register", path="/<script>alert(2)</script>", name="'\"><svg onload=alert(3)>")
    at = visit(hall)
    page = at.sign_in()
    expect(page.get_by_role("cell", name=evil)).to_have_text(evil)
    expect(page.get_by_text("/<script>alert(2)</script>")).to_be_visible()
    assert page.locator("main img, main svg, main script").count() == 0
    at.assert_clean()


def test_the_policy_lets_nothing_run_that_is_not_ours(hall: Live, visit: Start) -> None:
    at = visit(hall)
    page = at.sign_in()
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 2'}))")
    page.evaluate("fetch('http://127.0.0.1:9/').catch(() => (window.refused = true))")
    page.wait_for_function("window.refused")
    assert page.evaluate("window.ran") is None
    assert len([error for error in at.errors if "Content Security Policy" in error]) >= 3


def test_every_page_and_file_carries_the_policy(hall: Live) -> None:
    key = hall.link_key()
    for path in ("/", f"/?key={key}", "/?key=wrong", "/api/docs", "/web/hall.css", "/web/hall.js", "/web/api.js"):
        headers = http.get(hall.url + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


def test_only_the_listed_files_are_served(hall: Live) -> None:
    for name in ("__init__.py", "hall.html", "%2e%2e/pages.py", "..%2fpages.py", "nope.js"):
        assert http.get(f"{hall.url}/web/{name}").status_code == 404, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(live: Live, visit: Start, scheme: str, tmp_path: Path) -> None:
    for number, name in enumerate(("ada", "bob", "grace")):
        agent = call(live, "agent_register", name=name, runtime="codex")["id"]
        if number:
            call(live, "agent_update", id=agent, status=("busy", "offline")[number - 1])
    for path in ("/srv/one", "/srv/two"):
        call(live, "repository_register", path=path)
    at = visit(live, color_scheme=scheme)
    page = at.sign_in()
    expect(page.get_by_role("row", name="/srv/two")).to_be_visible()
    assert len(page.screenshot(path=tmp_path / f"{scheme}.png")) > 10_000
    for selector in ("h1", "#hub", "nav a", "th", ".online", ".busy", ".offline", "#events strong", "#events .soft"):
        assert contrast(page, selector) >= 4.5, selector
    assert (luminance(page, "body", "backgroundColor") < 0.2) == (scheme == "dark")
    at.assert_clean()


def luminance(page: Page, selector: str, name: str) -> float:
    """How light a colour of the first such thing is, by WCAG; a background is that of what it stands on."""
    script = """(node, name) => {
        const colour = () => getComputedStyle(node)[name];
        while (name === "backgroundColor" && colour() === "rgba(0, 0, 0, 0)") node = node.parentElement;
        return colour();
    }"""
    # Empty for a row that the page has just drawn anew.
    colour = eventually(lambda: page.locator(selector).first.evaluate(script, name))
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(page: Page, selector: str) -> float:
    one, other = luminance(page, selector, "color"), luminance(page, selector, "backgroundColor")
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_everything_is_reached_and_used_by_keyboard(hall: Live, visit: Start) -> None:
    call(hall, "agent_register", name="ada", runtime="codex")
    at = visit(hall)
    page = at.sign_in()
    expect(page.get_by_role("row", name="ada")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="REST")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-labelledby')") == "agents-title"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/api/docs")
    first = page.locator("summary").first
    expect(first).to_be_visible()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("details").first).to_have_attribute("open", "")
    at.assert_clean()


def test_the_rest_page_lists_every_tool(hall: Live, visit: Start) -> None:
    at = visit(hall)
    at.page.goto(f"{hall.url}/api/docs")
    expect(at.page.get_by_role("alert")).to_contain_text("token")
    at.errors.clear()  # it was not signed in
    at.sign_in()
    at.page.goto(f"{hall.url}/api/docs")
    tools = hall.hub.registry.tools
    paths = [f"/api/v1/{'/'.join(tool.command)}" for tool in tools]
    behind = paths.index("/api/v1/pr/status") + 1
    paths[behind:behind] = ["/api/v1/prs", "/api/v1/prs"]  # ways in of their own, with their family
    expect(at.page.locator("summary code")).to_have_text(paths)
    methods = ["POST" if tool.changes else "GET" for tool in tools]
    methods[behind:behind] = ["POST", "GET"]
    expect(at.page.locator("summary .method")).to_have_text(methods)
    at.assert_clean()


def test_open_worktrees_are_shown_with_where_they_are_served(live: Live, visit: Start, tmp_path: Path) -> None:
    page = visit(live).sign_in()
    expect(page.get_by_text("None is open")).to_be_visible()
    (tmp_path / "shop").mkdir()
    eventually(lambda: live.hub.state(LISTENER).servers)
    url = call(live, "worktree_open", path=str(tmp_path / "shop"))["url"]
    row = page.get_by_role("region", name="Open worktrees").get_by_role("row").nth(1)
    expect(row).to_contain_text(str(tmp_path / "shop"))
    expect(row).to_contain_text(url)


HALTS = """\
import json
verdict = {"task_id": "T-<b>7", "verdict": "CRITICAL_HALT", "blocking_issues": ["it deletes the backups"]}
usage = {"input_tokens": 18_000, "output_tokens": 210}
told = {"type": "result", "is_error": False, "result": json.dumps(verdict), "usage": usage, "total_cost_usd": 0.214}
print(json.dumps(told))
"""


def test_what_the_judge_halts_is_said_at_the_top_until_it_goes_on(
    serve: Callable[..., Live], visit: Start, tmp_path: Path
) -> None:
    (tmp_path / "claude.py").write_text(HALTS)
    live = serve(**{"judge.command": (sys.executable, str(tmp_path / "claude.py"))})
    page = visit(live).sign_in()
    expect(page.get_by_text("asks Claude for one")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    workflow = call(live, "workflow_create", name="Dark mode", source_type="prompt", source_content="x")["id"]
    tasks = [{"name": "t", "description": "d", "sequence": 1}]
    call(live, "workflow_set_plan", id=workflow, plan={"summary": "s", "approach": "a", "tasks": tasks})
    contract = {"task_id": "T-<b>7", "workflow_id": workflow, "specification": {"requirements": ["dark"]}}
    more = {"acceptance_criteria": ["it is dark"], "changed_files": ["a.py"]}
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "contract.json").write_text(json.dumps(contract | more))
    origin = Origin(directory=str(tmp_path / "shop"))
    review = live.hub.call("claude_judge_review", {"contract_path": "contract.json"}, OPERATOR, origin=origin)
    assert review["workflow_paused"]
    expect(page.get_by_role("alert")).to_contain_text(
        f"CRITICAL HALT: the judge's report {review['report_id']} on task T-<b>7 stopped “Dark mode” ({workflow})"
    )
    row = page.get_by_role("region", name="Judge's reports").get_by_role("row").nth(1)
    for text in ("CRITICAL HALT", "T-<b>7", "review", "18,210 tokens, 0.21 USD"):
        expect(row).to_contain_text(text)
    live.hub.call("workflow_update_status", {"id": workflow, "status": "in_progress"}, PERSON)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_every_halt_is_shown_however_many_workflows_and_forged_reasons_there_are(live: Live, visit: Start) -> None:
    eve = Agent(live.hub, "eve")
    halted = [call(live, "workflow_create", name=f"halted {number}", **PROMPT)["id"] for number in range(25)]
    with live.hub.store.write(Work("operator", None, now=live.hub.clock())) as tx:
        for number, workflow in enumerate(halted):
            assert halt(tx, workflow, f"the judge's report jr_{number} on task T-{number}", tx.now)
    plan = {"summary": "s", "approach": "a", "tasks": [{"name": "t", "description": "d", "sequence": 1}]}
    for number in range(32):
        made = eve.call("workflow_create", name=f"eves {number}", **PROMPT)["id"]
        eve.call("workflow_set_plan", id=made, plan=plan)
        eve.call("workflow_update_status", id=made, status="in_progress")
        forged = "CRITICAL_HALT: the judge's report jr_0 on task T-0"
        eve.call("workflow_update_status", id=made, status="paused", reason=forged)
    page = visit(live).sign_in()
    lines = page.get_by_role("alert").get_by_role("paragraph")
    expect(lines).to_have_count(25)
    shown = {line.partition(" (wf_")[0] for line in lines.all_text_contents()}
    told = "CRITICAL HALT: the judge's report jr_{0} on task T-{0} stopped “halted {0}”"
    assert shown == {told.format(number) for number in range(25)}
