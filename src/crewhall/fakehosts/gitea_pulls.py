"""Gitea's pulls, their statuses, labels and issues."""

import re

from crewhall.fakehosts.gitea_base import GiteaBase, sha_of
from crewhall.fakehosts.merging import is_mergeable, merge
from crewhall.fakehosts.records import Issue, Label, PullRecord, Refusal
from crewhall.fakehosts.routes import Routes
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository

WORST = ("error", "failure", "warning", "pending", "success", "skipped")
talk = Routes()


@talk.on("GET", "/pulls")
def pulls(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    state, base = request.query.get("state", "open"), request.query.get("base_branch")
    found = [one for one in repo.pulls.values() if state in ("all", one.state) and base in (None, "", one.base)]
    found.sort(key=lambda one: one.number, reverse=request.query.get("sort") != "oldest")
    return host.counted_page(request, found, lambda one: host.shapes.pull(repo, one))


@talk.on("POST", "/pulls")
def pull_create(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    title, head, base = request.need("title", "head", "base")
    owner, _, name = head.rpartition(":")
    if owner.lower() not in ("", repo.owner.lower()) or name not in repo.branches or base not in repo.branches:
        raise Refusal(404, "The target couldn't be found.")
    if name == base:
        raise Refusal(422, "Invalid PullRequest: There are no changes between the head and the base")
    if there := next(repo.open_pulls(name, base), None):
        about = f"id: {there.number}, head_branch: {name}, base_branch: {base}"
        raise Refusal(409, f"pull request already exists for these targets [{about}]")
    labelled = _labels(repo, request.fields.get("labels") or [])
    pull = repo.add_pull(title=title, head=name, base=base, body=request.fields.get("body") or "", author=request.login)
    pull.labelled = labelled
    return FakeResponse(201, host.shapes.whole_pull(repo, pull))


@talk.on("GET", "/pulls/{number}")
def pull_get(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    return FakeResponse(200, host.shapes.whole_pull(repo, repo.pull(number)))


@talk.on("PATCH", "/pulls/{number}")
def pull_edit(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull = repo.pull(number)
    if pull.merged and "state" in request.fields:
        raise Refusal(412, "cannot change state of this pull request, it was already merged")
    for name in {"title", "body", "base"} & request.fields.keys():
        setattr(pull, name, request.fields[name])
    if "labels" in request.fields:
        pull.labelled = _labels(repo, request.fields["labels"])
    repo.set_state(pull, request.fields.get("state", pull.state))
    return FakeResponse(201, host.shapes.whole_pull(repo, pull))


@talk.on("GET", "/pulls/{number}/files")
def pull_files(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull = repo.pull(number)
    return host.counted_page(request, pull.files, lambda one: host.shapes.change(repo, pull, one))


@talk.on("GET", "/pulls/{number}/reviews")
def pull_reviews(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull = repo.pull(number)
    return host.counted_page(request, pull.reviews, lambda one: host.shapes.review(repo, pull, one))


@talk.on("GET", "/pulls/{number}/commits")
def pull_commits(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull = repo.pull(number)
    found = repo.ahead(pull.base_sha, pull.head_sha)
    return host.counted_page(request, found, lambda one: host.shapes.commit(repo, one))


@talk.on("POST", "/pulls/{number}/merge")
def pull_merge(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    pull, (how,) = repo.pull(number), request.need("do")
    if pull.merged:
        raise Refusal(405, "The PR is already merged")
    if pull.draft:
        raise Refusal(405, "Work in progress PRs cannot be merged")
    if how not in ("merge", "squash") or not is_mergeable(repo, pull):
        raise Refusal(405, "Please try again later")
    if request.fields.get("head_commit_id", pull.head_sha) != pull.head_sha:
        raise Refusal(409, "head out of date")
    usual = f"Merge pull request '{pull.title}' (#{number}) from {pull.head} into {pull.base}"
    title = request.fields.get("merge_title_field") or (f"{pull.title} (#{number})" if how == "squash" else usual)
    message = f"{title}\n\n{request.fields.get('merge_message_field', '')}".strip()
    merge(repo, pull, message, request.login, squash=how == "squash")
    if request.fields.get("delete_branch_after_merge"):
        repo.drop_branch(pull.head)
    return FakeResponse(200)


@talk.on("GET", "/pulls/{base}/{head*}")
def pull_between(host: GiteaBase, repo: FakeRepository, request: FakeRequest, base: str, head: str) -> FakeResponse:
    """The oldest pull between two branches, closed ones too, as Gitea has it."""
    name = head.rpartition(":")[2]
    found = [one for one in repo.pulls.values() if (one.base, one.head) == (base, name)]
    if not found:
        raise Refusal(404, "The target couldn't be found.")
    return FakeResponse(200, host.shapes.whole_pull(repo, found[0]))


# Statuses, labels, issues


@talk.on("GET", "/commits/{ref}/status")
def combined_status(host: GiteaBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    """The worst of the latest of each context, of one page of them; without any, no state at all."""
    sha, page = sha_of(repo, ref), request.number("page", 1)
    size = min(request.number("limit", 30), host.limit.page)
    latest = list({one.name: one for one in repo.statuses.get(sha, [])}.values())[(page - 1) * size : page * size]
    here = f"{host.shapes.of(repo)}/commits/{sha}"
    about = {"sha": sha, "total_count": len(latest), "commit_url": here, "url": f"{here}/status"}
    body = {**about, "repository": host.shapes.repository(repo)}
    if latest:
        worst = min(latest, key=lambda one: WORST.index(one.state)).state
        body["state"] = "failure" if worst in ("error", "warning") else worst
        body["statuses"] = [host.shapes.status(repo, sha, one) for one in latest]
    return FakeResponse(200, body)


@talk.on("GET", "/commits/{ref}/statuses")
def statuses(host: GiteaBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    sha = sha_of(repo, ref)
    found = list(reversed(repo.statuses.get(sha, [])))
    return host.counted_page(request, found, lambda one: host.shapes.status(repo, sha, one))


@talk.on("GET", "/labels")
def labels(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    return host.counted_page(request, repo.label_list, lambda one: host.shapes.label(repo, one))


@talk.on("POST", "/labels")
def label_create(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    name, color = request.need("name", "color")
    if not re.fullmatch("#?[0-9a-fA-F]{6}", color):
        raise Refusal(422, f"invalid color: {color}")
    label = repo.add_label(name, color.lstrip("#"), request.fields.get("description", ""))
    return FakeResponse(201, host.shapes.label(repo, label))


@talk.on("GET", "/issues/{number}/labels")
def issue_labels(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    return FakeResponse(200, [host.shapes.label(repo, one) for one in repo.issue(number).labelled])


@talk.on("POST", "/issues/{number}/labels")
def issue_label(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    issue = repo.issue(number)
    for label in _labels(repo, request.fields.get("labels") or []):
        if label not in issue.labelled:
            issue.labelled.append(label)
    return issue_labels(host, repo, request, number)


def _labels(repo: FakeRepository, given: list[int | str]) -> list[Label]:
    """The labels of these ids or names; unknown ones are passed over, as at Gitea."""
    return [one for one in repo.label_list if one.id in given or one.name in given]


@talk.on("GET", "/issues")
def issues(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    state, kind = request.query.get("state", "open"), request.query.get("type", "")
    labels = {name for name in request.query.get("labels", "").split(",") if name}
    both: list[Issue] = [*repo.issues.values(), *repo.pulls.values()]
    found = [one for one in both if state in ("all", one.state) and labels <= set(one.labels)]
    found = [one for one in found if kind in ("", "pulls" if isinstance(one, PullRecord) else "issues")]
    found.sort(key=lambda one: -one.number)
    return host.counted_page(request, found, lambda one: host.shapes.issue(repo, one))


@talk.on("POST", "/issues")
def issue_create(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    if not repo.has_issues:
        raise Refusal(403, "user should have specific read permission or be a repo admin or a site admin")
    (title,), labelled = request.need("title"), _labels(repo, request.fields.get("labels") or [])
    issue = repo.add_issue(title=title, body=request.fields.get("body") or "", author=request.login)
    issue.labelled = labelled
    return FakeResponse(201, host.shapes.issue(repo, issue))


@talk.on("GET", "/issues/{number}")
def issue_get(host: GiteaBase, repo: FakeRepository, request: FakeRequest, number: str) -> FakeResponse:
    return FakeResponse(200, host.shapes.issue(repo, repo.issue(number)))
