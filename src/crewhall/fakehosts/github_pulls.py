"""GitHub's pulls, their checks, labels and issues."""

from crewhall.fakehosts.github_base import GitHubBase, created_response, invalid
from crewhall.fakehosts.merging import is_mergeable, merge
from crewhall.fakehosts.records import CheckRecord, Issue, PullRecord, Refusal
from crewhall.fakehosts.routes import Routes
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository

talk = Routes()


@talk.on("GET", "/pulls")
def pulls(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    found = [one for one in repo.pulls.values() if _is_wanted(repo, one, request.query)]
    sort = request.query.get("sort", "created")
    is_up = request.query.get("direction", "desc" if sort == "created" else "asc") == "asc"
    found.sort(key=lambda one: (one.updated if sort == "updated" else one.created, one.number), reverse=not is_up)
    return host.page(request, found, "per_page", lambda one: host.shapes.pull(repo, one))


def _is_wanted(repo: FakeRepository, pull: PullRecord, query: dict[str, str]) -> bool:
    """Whether a pull is in the list; a head without its owner filters nothing, as at GitHub."""
    owner, _, head = query.get("head", "").rpartition(":")
    is_from = not owner or (owner.lower(), head) == (repo.owner.lower(), pull.head)
    return is_from and query.get("base", pull.base) == pull.base and query.get("state", "open") in ("all", pull.state)


@talk.on("POST", "/pulls")
def pull_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    title, head, base = request.need("title", "head", "base")
    owner, _, name = head.rpartition(":")
    if owner.lower() not in ("", repo.owner.lower()) or name not in repo.branches:
        raise invalid("PullRequest", "head")
    if base not in repo.branches:
        raise invalid("PullRequest", "base")
    if any(repo.open_pulls(name, base)):
        raise _custom(f"A pull request already exists for {repo.owner}:{name}.")
    if not repo.ahead(repo.branches[base], repo.branches[name]):
        raise _custom(f"No commits between {base} and {name}")
    draft, body = bool(request.fields.get("draft")), request.fields.get("body") or ""
    pull = repo.add_pull(title=title, head=name, base=base, body=body, author=request.login, draft=draft)
    return created_response(host.shapes.whole_pull(repo, pull))


@talk.on("GET", "/pulls/{number}")
def pull_get(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    return FakeResponse(200, host.shapes.whole_pull(repo, repo.pull(number)))


@talk.on("PATCH", "/pulls/{number}")
def pull_edit(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull, given = repo.pull(number), request.fields
    if given.get("state") == "open" and pull.state == "closed" and (pull.merged or pull.head not in repo.branches):
        raise _custom("state cannot be changed. The branch was deleted or merged.")
    for name in {"title", "body", "base"} & given.keys():
        setattr(pull, name, given[name] or "")
    repo.set_state(pull, given.get("state", pull.state))
    return FakeResponse(200, host.shapes.whole_pull(repo, pull))


@talk.on("GET", "/pulls/{number}/files")
def pull_files(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull = repo.pull(number)
    return host.page(request, pull.files, "per_page", lambda one: host.shapes.change(repo, pull, one))


@talk.on("GET", "/pulls/{number}/reviews")
def pull_reviews(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull = repo.pull(number)
    return host.page(request, pull.reviews, "per_page", lambda one: host.shapes.review(repo, pull, one))


@talk.on("PUT", "/pulls/{number}/merge")
def pull_merge(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull, given = repo.pull(number), request.fields
    how = given.get("merge_method", "merge")
    if how == "rebase":
        raise Refusal(405, "Rebase merges are not allowed on this repository.")
    if pull.draft:
        raise Refusal(405, "Pull Request is still a draft")
    if not is_mergeable(repo, pull):
        raise Refusal(405, "Pull Request is not mergeable")
    if given.get("sha", pull.head_sha) != pull.head_sha:
        raise Refusal(409, "Head branch was modified. Review and try the merge again.")
    usual = f"Merge pull request #{number} from {repo.owner}/{pull.head}"
    title = given.get("commit_title") or (f"{pull.title} (#{number})" if how == "squash" else usual)
    message = f"{title}\n\n{given.get('commit_message') or pull.title}"
    sha = merge(repo, pull, message, request.login, squash=how == "squash")
    return FakeResponse(200, {"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


# Checks, labels, issues


@talk.on("GET", "/commits/{ref*}/check-runs")
def check_runs(host: GitHubBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    sha = _sha(repo, ref)
    checks = list(_latest(repo.checks.get(sha, [])).values())
    page = host.page(request, checks, "per_page", lambda one: host.shapes.check(repo, sha, one))
    page.body = {"total_count": len(checks), "check_runs": page.body}
    return page


@talk.on("GET", "/commits/{ref*}/status")
def commit_status(host: GitHubBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    sha = _sha(repo, ref)
    statuses = list(_latest(repo.statuses.get(sha, [])).values())
    states = {one.state for one in statuses}
    state = "failure" if states & {"error", "failure"} else "success" if states == {"success"} else "pending"
    page = host.page(request, statuses, "per_page", lambda one: host.shapes.status(repo, sha, one))
    here = f"{host.shapes.of(repo)}/commits/{sha}"
    about = {"state": state, "sha": sha, "total_count": len(statuses), "commit_url": here, "url": f"{here}/status"}
    page.body = {**about, "statuses": page.body, "repository": host.shapes.repository(repo)}
    return page


@talk.on("GET", "/labels")
def labels(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    return host.page(request, repo.label_list, "per_page", lambda one: host.shapes.label(repo, one))


@talk.on("POST", "/labels")
def label_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    (name,) = request.need("name")
    color = request.fields.get("color", "ededed")
    if len(color) != 6:
        raise invalid("Label", "color")
    if repo.find_label(name):
        raise invalid("Label", "name", "already_exists")
    return created_response(host.shapes.label(repo, repo.add_label(name, color, request.fields.get("description", ""))))


@talk.on("GET", "/issues/{number}/labels")
def issue_labels(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    return host.page(request, repo.issue(number).labelled, "per_page", lambda one: host.shapes.label(repo, one))


@talk.on("POST", "/issues/{number}/labels")
def issue_label(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    issue = repo.issue(number)
    for one in request.need("labels")[0]:
        label = repo.label(one if isinstance(one, str) else one["name"])
        if label not in issue.labelled:
            issue.labelled.append(label)
    return FakeResponse(200, [host.shapes.label(repo, one) for one in issue.labelled])


@talk.on("GET", "/issues")
def issues(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    wanted = request.query.get("state", "open")
    labels = {name for name in request.query.get("labels", "").split(",") if name}
    both: list[Issue] = [*repo.issues.values(), *repo.pulls.values()]
    found = [one for one in both if wanted in ("all", one.state) and labels <= set(one.labels)]
    found.sort(key=lambda one: -one.number)
    return host.page(request, found, "per_page", lambda one: host.shapes.issue(repo, one))


@talk.on("POST", "/issues")
def issue_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    if not repo.has_issues:
        raise Refusal(410, "Issues has been disabled in this repository.")
    names = [one if isinstance(one, str) else one["name"] for one in request.fields.get("labels", ())]
    (title,), body = request.need("title"), request.fields.get("body") or ""
    issue = repo.add_issue(title=title, body=body, author=request.login, labels=names)
    return created_response(host.shapes.issue(repo, issue))


@talk.on("GET", "/issues/{number}")
def issue_get(host: GitHubBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    return FakeResponse(200, host.shapes.issue(repo, repo.issue(number)))


def _sha(repo: FakeRepository, ref: str) -> str:
    commit = repo.commit(ref)
    if commit is None:
        raise Refusal(404, f"No commit found for SHA: {ref}")
    return commit.sha


def _latest(checks: list[CheckRecord]) -> dict[str, CheckRecord]:
    return {one.name: one for one in checks}


def _custom(message: str) -> Refusal:
    return Refusal(422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": message}])
