"""How Gitea shows what it has. What it would show as null is left out: its description knows no null."""

import base64
from typing import Any
from urllib.parse import quote

from crewhall.fakehosts.merging import is_mergeable
from crewhall.fakehosts.objects import Commit, FakeTreeEntry
from crewhall.fakehosts.records import CheckRecord, FileDifference, Issue, Label, PullRecord, ReviewRecord
from crewhall.fakehosts.state import FakeRepository

Shape = dict[str, Any]
STATUS = {"added": "added", "modified": "changed", "removed": "deleted"}


class GiteaShapes:
    """The shapes of one host: `url` is where people look, `api` where programs do."""

    def __init__(self, url: str, api: str) -> None:
        self.url, self.api = url, api

    def of(self, repo: FakeRepository) -> str:
        return f"{self.api}/repos/{repo.owner}/{repo.name}"

    def web(self, repo: FakeRepository) -> str:
        return f"{self.url}/{repo.owner}/{repo.name}"

    def user(self, login: str) -> Shape:
        pages = {"avatar_url": f"{self.url}/avatars/{login}", "html_url": f"{self.url}/{login}"}
        names = {"login": login, "login_name": "", "full_name": login, "email": f"{login}@noreply.example.com"}
        return {"id": sum(login.encode()), **names, **pages, "is_admin": False, "active": True, "visibility": "public"}

    def repository(self, repo: FakeRepository) -> Shape:
        web = self.web(repo)
        return {
            "id": repo.id,
            "owner": self.user(repo.owner),
            "name": repo.name,
            "full_name": f"{repo.owner}/{repo.name}",
            "description": "",
            "empty": not repo.branches,
            "default_branch": repo.default_branch,
            "url": self.of(repo),
            "html_url": web,
            "clone_url": f"{web}.git",
            "ssh_url": f"ssh://git@example.com/{repo.owner}/{repo.name}.git",
            "permissions": {"admin": False, "push": repo.may_push, "pull": True},
            "open_pr_counter": sum(one.state == "open" for one in repo.pulls.values()),
            "open_issues_count": sum(one.state == "open" for one in repo.issues.values()),
            "has_issues": repo.has_issues,
            "has_pull_requests": True,
            **dict.fromkeys(("private", "fork", "archived", "mirror", "template"), False),
            "object_format_name": "sha1",
        }

    def branch(self, repo: FakeRepository, name: str) -> Shape:
        commit = repo.commits[repo.branches[name]]
        author = {"name": commit.author.name, "email": commit.author.email, "username": commit.author.name}
        head = {
            "id": commit.sha,
            "message": commit.message,
            "url": f"{self.web(repo)}/commit/{commit.sha}",
            "author": author,
            "committer": author,
            "timestamp": commit.committer.date,
        }
        is_protected = name in repo.protected
        may = {"user_can_push": repo.may_push and not is_protected, "user_can_merge": repo.may_push}
        return {
            "name": name,
            "commit": head,
            **may,
            "protected": is_protected,
            "required_approvals": 0,
            "status_check_contexts": [],
        }

    def ref(self, repo: FakeRepository, name: str) -> Shape:
        sha, here = repo.branches[name], f"{self.of(repo)}/git"
        there = {"type": "commit", "sha": sha, "url": f"{here}/commits/{sha}"}
        return {"ref": f"refs/heads/{name}", "url": f"{here}/refs/heads/{quote(name)}", "object": there}

    def entry(self, repo: FakeRepository, path: str, entry: FakeTreeEntry) -> Shape:
        is_blob = entry.kind == "blob"
        size = len(repo.objects.blobs[entry.sha]) if is_blob else 0
        url = f"{self.of(repo)}/git/{'blobs' if is_blob else 'trees'}/{entry.sha}"
        return {"path": path, "mode": entry.mode, "type": entry.kind, "size": size, "sha": entry.sha, "url": url}

    def commit(self, repo: FakeRepository, commit: Commit) -> Shape:
        inner = self.file_commit(repo, commit)
        here = f"{self.of(repo)}/git/commits/{commit.sha}"
        git = {name: inner[name] for name in ("author", "committer", "message", "tree")}
        people = {"author": self.user(commit.author.name), "committer": self.user(commit.committer.name)}
        return {
            "sha": commit.sha,
            "url": here,
            "html_url": inner["html_url"],
            "created": commit.committer.date,
            "commit": {**git, "url": here},
            **people,
            "parents": inner["parents"],
        }

    def file_commit(self, repo: FakeRepository, commit: Commit) -> Shape:
        """A commit as the answer to a change of files has it."""
        git = f"{self.of(repo)}/git"
        parents = [{"sha": sha, "url": f"{git}/commits/{sha}"} for sha in commit.parents]
        return {
            "sha": commit.sha,
            "url": f"{git}/commits/{commit.sha}",
            "html_url": f"{self.web(repo)}/commit/{commit.sha}",
            "created": commit.committer.date,
            "author": vars(commit.author),
            "committer": vars(commit.committer),
            "message": commit.message,
            "tree": {"sha": commit.tree, "url": f"{git}/trees/{commit.tree}", "created": commit.committer.date},
            "parents": [{**one, "created": commit.committer.date} for one in parents],
        }

    def file(self, repo: FakeRepository, branch: str, path: str, entry: FakeTreeEntry) -> Shape:
        raw, here = repo.objects.blobs[entry.sha], f"{self.of(repo)}/contents/{quote(path)}?ref={quote(branch)}"
        return {
            "name": path.rpartition("/")[2],
            "path": path,
            "sha": entry.sha,
            "type": "file",
            "size": len(raw),
            "encoding": "base64",
            "content": base64.b64encode(raw).decode(),
            "url": here,
            "html_url": f"{self.web(repo)}/src/branch/{quote(branch)}/{quote(path)}",
            "git_url": f"{self.of(repo)}/git/blobs/{entry.sha}",
        }

    def label(self, repo: FakeRepository, label: Label) -> Shape:
        return {**vars(label), "exclusive": False, "is_archived": False, "url": f"{self.of(repo)}/labels/{label.id}"}

    def _common(self, repo: FakeRepository, issue: Issue) -> Shape:
        return {
            "id": repo.id * 1_000_000 + issue.number,
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "user": self.user(issue.author),
            "labels": [self.label(repo, one) for one in issue.labelled],
            "state": issue.state,
            "is_locked": False,
            "comments": 0,
            "assignees": [],
            "created_at": issue.created,
            "updated_at": issue.updated,
            **({"closed_at": issue.closed} if issue.closed else {}),
        }

    def issue(self, repo: FakeRepository, issue: Issue) -> Shape:
        is_pull = isinstance(issue, PullRecord)
        html = f"{self.web(repo)}/{'pulls' if is_pull else 'issues'}/{issue.number}"
        meta = {"id": repo.id, "name": repo.name, "owner": repo.owner, "full_name": f"{repo.owner}/{repo.name}"}
        urls = {"url": f"{self.of(repo)}/issues/{issue.number}", "html_url": html, "repository": meta}
        pull = {"pull_request": {"merged": issue.merged, "html_url": html}} if isinstance(issue, PullRecord) else {}
        return {**self._common(repo, issue), **urls, **pull}

    def pull(self, repo: FakeRepository, pull: PullRecord) -> Shape:
        web, shown = f"{self.web(repo)}/pulls/{pull.number}", self.repository(repo)
        sides = {"head": (pull.head, pull.head_sha), "base": (pull.base, repo.branches.get(pull.base, pull.base_sha))}
        ends = {
            side: {"label": ref, "ref": ref, "sha": sha, "repo_id": repo.id, "repo": shown}
            for side, (ref, sha) in sides.items()
        }
        merged = {"merged_at": pull.closed, "merged_by": self.user(pull.author)}
        merged["merge_commit_sha"] = pull.merge_sha or pull.head_sha
        return {
            **self._common(repo, pull),
            "url": web,
            "html_url": web,
            "diff_url": f"{web}.diff",
            "patch_url": f"{web}.patch",
            "mergeable": bool(is_mergeable(repo, pull)),
            "merged": pull.merged,
            **(merged if pull.merged else {}),
            "merge_base": pull.base_sha,
            "draft": pull.draft,
            "allow_maintainer_edit": False,
            "requested_reviewers": [],
            **ends,
        }

    def whole_pull(self, repo: FakeRepository, pull: PullRecord) -> Shape:
        files = pull.files
        added, gone = sum(one.additions for one in files), sum(one.deletions for one in files)
        return {**self.pull(repo, pull), "additions": added, "deletions": gone, "changed_files": len(files)}

    def change(self, repo: FakeRepository, pull: PullRecord, change: FileDifference) -> Shape:
        place = f"{pull.head_sha}/{quote(change.path)}"
        return {
            "filename": change.path,
            "status": STATUS[change.status],
            "additions": change.additions,
            "deletions": change.deletions,
            "changes": change.additions + change.deletions,
            "html_url": f"{self.web(repo)}/src/commit/{place}",
            "raw_url": f"{self.web(repo)}/raw/commit/{place}",
            "contents_url": f"{self.of(repo)}/contents/{quote(change.path)}?ref={pull.head_sha}",
        }

    def review(self, repo: FakeRepository, pull: PullRecord, review: ReviewRecord) -> Shape:
        web = f"{self.web(repo)}/pulls/{pull.number}"
        return {
            "id": review.id,
            "user": self.user(review.user),
            "state": review.state,
            "body": review.body,
            "commit_id": review.commit,
            "stale": review.stale,
            "official": True,
            "dismissed": review.dismissed,
            "comments_count": 0,
            "submitted_at": review.at,
            "updated_at": review.at,
            "html_url": f"{web}#issuecomment-{review.id}",
            "pull_request_url": web,
        }

    def status(self, repo: FakeRepository, sha: str, status: CheckRecord) -> Shape:
        return {
            "id": status.id,
            "status": status.state,
            "context": status.name,
            "description": status.description,
            "target_url": status.url or self.url,
            "url": f"{self.of(repo)}/statuses/{sha}",
            "creator": self.user(repo.owner),
            "created_at": status.at,
            "updated_at": status.at,
        }
