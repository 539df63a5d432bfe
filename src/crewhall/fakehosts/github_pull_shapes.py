"""How GitHub shows pulls and what belongs to them: labels, issues, files, reviews, checks and statuses."""

from urllib.parse import quote

from crewhall.fakehosts.github_shapes import GitHubGitShapes, Shape, links, node
from crewhall.fakehosts.merging import is_mergeable
from crewhall.fakehosts.records import CheckRecord, FileDifference, Issue, Label, PullRecord, ReviewRecord
from crewhall.fakehosts.state import FakeRepository

PULL_LINKS = "html issue comments commits review_comments review_comment statuses"
NOTHING = "assignee auto_merge milestone active_lock_reason"
STATES = {True: "clean", False: "dirty", None: "unknown"}


class GitHubShapes(GitHubGitShapes):
    """All shapes of one host."""

    def label(self, repo: FakeRepository, label: Label) -> Shape:
        url = f"{self.of(repo)}/labels/{quote(label.name)}"
        return {**vars(label), "node_id": node("Label", label.name), "url": url, "default": False}

    def issue(self, repo: FakeRepository, issue: Issue) -> Shape:
        here = f"{self.of(repo)}/issues/{issue.number}"
        kind = "pull" if isinstance(issue, PullRecord) else "issues"
        web = f"{self.web(repo)}/{kind}/{issue.number}"
        link = (
            {"pull_request": dict.fromkeys(("url", "html_url", "diff_url", "patch_url"), web)} if kind == "pull" else {}
        )
        return {
            **self._common(repo, issue),
            **link,
            "url": here,
            "html_url": web,
            "repository_url": self.of(repo),
            "comments": 0,
            **links(here, "comments events labels"),
        }

    def _common(self, repo: FakeRepository, issue: Issue) -> Shape:
        return {
            "id": repo.id * 1_000_000 + issue.number,
            "node_id": node("Issue", str(issue.number)),
            "number": issue.number,
            "title": issue.title,
            "body": issue.body or None,
            "state": issue.state,
            "locked": False,
            "user": self.user(issue.author),
            "author_association": "MEMBER",
            "labels": [self.label(repo, label) for label in issue.labelled],
            "assignees": [],
            **dict.fromkeys(NOTHING.split()),
            "created_at": issue.created,
            "updated_at": issue.updated,
            "closed_at": issue.closed,
        }

    def pull(self, repo: FakeRepository, pull: PullRecord) -> Shape:
        """As in a list: without what is counted."""
        urls, shown = self._pull_links(repo, pull), self.repository(repo)
        fields = {"self": "url"} | {name: f"{name}_url" for name in PULL_LINKS.split()}
        ends = {"head": (pull.head, pull.head_sha), "base": (pull.base, pull.base_sha)}
        return {
            **self._common(repo, pull),
            **urls,
            "_links": {name: {"href": urls[field]} for name, field in fields.items()},
            **{
                side: {"label": f"{repo.owner}:{ref}", "ref": ref, "sha": sha, "repo": shown, "user": shown["owner"]}
                for side, (ref, sha) in ends.items()
            },
            "draft": pull.draft,
            "requested_reviewers": [],
            "requested_teams": [],
            "merge_commit_sha": (pull.merge_sha or pull.head_sha) if pull.merged else None,
            "merged_at": pull.closed if pull.merged else None,
        }

    def _pull_links(self, repo: FakeRepository, pull: PullRecord) -> dict[str, str]:
        here, issue = f"{self.of(repo)}/pulls/{pull.number}", f"{self.of(repo)}/issues/{pull.number}"
        web = f"{self.web(repo)}/pull/{pull.number}"
        return {
            "url": here,
            "html_url": web,
            "diff_url": f"{web}.diff",
            "patch_url": f"{web}.patch",
            "issue_url": issue,
            "comments_url": f"{issue}/comments",
            "commits_url": f"{here}/commits",
            "review_comments_url": f"{here}/comments",
            "review_comment_url": f"{self.of(repo)}/pulls/comments{{/number}}",
            "statuses_url": f"{self.of(repo)}/statuses/{pull.head_sha}",
        }

    def whole_pull(self, repo: FakeRepository, pull: PullRecord) -> Shape:
        files, mergeable = pull.files, is_mergeable(repo, pull) if pull.state == "open" else None
        return {
            **self.pull(repo, pull),
            "additions": sum(one.additions for one in files),
            "deletions": sum(one.deletions for one in files),
            "changed_files": len(files),
            "commits": len(repo.ahead(pull.base_sha, pull.head_sha)),
            "comments": 0,
            "review_comments": 0,
            "maintainer_can_modify": False,
            "mergeable": mergeable,
            "mergeable_state": STATES[mergeable],
            "merged": pull.merged,
            "merged_by": self.user(pull.author) if pull.merged else None,
        }

    def change(self, repo: FakeRepository, pull: PullRecord, change: FileDifference) -> Shape:
        web = self.web(repo)
        quoted = f"{pull.head_sha}/{quote(change.path)}"
        return {
            "sha": change.sha,
            "filename": change.path,
            "status": change.status,
            "additions": change.additions,
            "deletions": change.deletions,
            "changes": change.additions + change.deletions,
            "blob_url": f"{web}/blob/{quoted}",
            "raw_url": f"{web}/raw/{quoted}",
            "contents_url": f"{self.of(repo)}/contents/{quote(change.path)}?ref={pull.head_sha}",
        }

    def review(self, repo: FakeRepository, pull: PullRecord, review: ReviewRecord) -> Shape:
        web = f"{self.web(repo)}/pull/{pull.number}"
        here = f"{self.of(repo)}/pulls/{pull.number}"
        return {
            "id": review.id,
            "node_id": node("Review", str(review.id)),
            "user": self.user(review.user),
            "body": review.body,
            "state": review.state,
            "commit_id": review.commit,
            "submitted_at": review.at,
            "html_url": web,
            "pull_request_url": here,
            "author_association": "MEMBER",
            "_links": {"html": {"href": web}, "pull_request": {"href": here}},
        }

    def check(self, repo: FakeRepository, sha: str, check: CheckRecord) -> Shape:
        here = f"{self.of(repo)}/check-runs/{check.id}"
        output = {**dict.fromkeys(("title", "summary", "text")), "annotations_count": 0}
        return {
            "id": check.id,
            "node_id": node("CheckRun", str(check.id)),
            "head_sha": sha,
            "name": check.name,
            "status": check.state,
            "conclusion": check.conclusion,
            "started_at": check.at,
            "completed_at": check.at if check.conclusion else None,
            "url": here,
            "html_url": check.url or here,
            "details_url": check.url or None,
            "external_id": "",
            "output": {**output, "annotations_url": f"{here}/annotations"},
            "check_suite": None,
            "app": None,
            "pull_requests": [],
        }

    def status(self, repo: FakeRepository, sha: str, status: CheckRecord) -> Shape:
        return {
            "id": status.id,
            "node_id": node("Status", str(status.id)),
            "url": f"{self.of(repo)}/statuses/{sha}",
            "avatar_url": None,
            "context": status.name,
            "state": status.state,
            "description": status.description or None,
            "target_url": status.url or None,
            "created_at": status.at,
            "updated_at": status.at,
        }
