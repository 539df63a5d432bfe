"""
A branch on its host, pushed there and removed there by git.

    push_branch(repo, url, branch, *, token, expected, stop) -> None            never forced, harmless to repeat
    fetch_branch(repo, url, branch, *, token, have) -> None                     its commits, under no ref
    delete_remote_branch(repo, url, branch, *, token, expected, stop) -> None   only while it has the expected commit

Git runs in an empty git directory of its own that borrows the repository's objects. So no hook, helper, proxy, header
or rewritten address that an agent wrote into the repository's configuration takes part; the operator's own
configuration does. Git never asks anything. With a token the operator's credential helpers are left out, and the token
goes to the scheme, host and port of `url` only; git takes keys for ssh, and no token.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from crewhall.errors import Conflict, Failure, Forbidden, InvalidInput, InvalidState, NotFound, Unavailable
from crewhall.outside.git import GitRepository
from crewhall.outside.program_files import open_plain
from crewhall.outside.run import Ended
from crewhall.stop import Stop

PROTOCOLS = ("https", "http", "ssh")
NO_QUESTIONS = {
    "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
    "GIT_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
}
ONLY_THIS = ("--porcelain", "--no-signed", "--recurse-submodules=no")
CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = true
[extensions]
\tobjectFormat = {format}
[push]
\tpushOption =
"""
# The token waits in a pipe that git's children inherit, and the helper of this one run reads it there: arguments are
# open to everyone in `ps`, the environment to every agent that runs as the same user, a file outlives a killed hub.
HELPER = """[credential]
\thelper =
[credential "{origin}"]
\thelper = "!f() {{ test $1 = get && echo username=x-access-token && printf password= && cat /dev/fd/{handle}; }}; f"
"""
FORBIDDEN = re.compile(r"Authentication failed|could not read \w+ for|error: 40[13]\b|Permission denied")
MISSING = re.compile(r"repository .{0,500}not found|error: 4(04|10)\b|not appear to be a git repository", re.IGNORECASE)
OUTDATED = ("non-fast-forward", "fetch first", "stale info", "needs force", "failed to update ref", "cannot lock ref")
COMMIT = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SHALLOW_BYTES = 10_000_000
ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


def push_branch(
    repo: GitRepository,
    url: str,
    branch: str,
    *,
    token: str | None,
    expected: str | None,
    stop: Stop | None,
    commit: str | None = None,
) -> None:
    """Push the branch under its own name, and nothing else; with `commit`, as it was when it had that.

    `expected` is the commit that the host's branch must have now; with None any will do that the push adds to.
    Raises Conflict when the host's branch has other commits, Forbidden for a refusal, NotFound, Unavailable, TimedOut.
    """
    repo.refuse_bad_branch(branch)
    ref = f"refs/heads/{branch}"
    commit = commit or repo.commit_of(ref)
    if commit is None:
        raise NotFound(f"{repo.root} has no branch '{branch}'", hint="Check the name with `git branch`.")
    if expected is not None and repo.git("merge-base", "--is-ancestor", expected, commit).code != 0:
        raise _conflict(url, branch, f"'{branch}' does not contain {expected}")
    lease = [] if expected is None else [f"--force-with-lease={ref}:{expected}"]
    words = ("push", *ONLY_THIS, *lease, "--", url, f"{commit}:{ref}")
    ended = _git_there(repo, url, *words, token=token, length=len(commit), stop=stop)
    if ended.code != 0:
        raise _failure(ended, url, branch, token)


def delete_remote_branch(
    repo: GitRepository, url: str, branch: str, *, token: str | None, expected: str, stop: Stop | None
) -> None:
    """Remove the branch from the host if it still has the expected commit; one that is gone already is fine.

    Raises what `push_branch` raises.
    """
    repo.refuse_bad_branch(branch)
    ref = f"refs/heads/{branch}"
    there = partial(_git_there, repo, url, token=token, length=len(expected), stop=stop)
    ended = there("push", *ONLY_THIS, f"--force-with-lease={ref}:{expected}", "--", url, f":{ref}")
    if ended.code == 0:
        return
    seen = there("ls-remote", "--heads", "--", url, ref)  # of a branch that is gone, git says "stale info" too
    if seen.code != 0 or seen.out:
        raise _failure(ended, url, branch, token)


def fetch_branch(repo: GitRepository, url: str, branch: str, *, token: str | None, have: str | None) -> None:
    """Get the commits of a host's branch into the repository's objects, under no ref.

    `have` is a commit of the repository from which git tells what is missing. Raises what `push_branch` raises.
    """
    repo.refuse_bad_branch(branch)
    tips = [] if have is None else [f"--negotiation-tip={have}"]
    words = ("fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", *tips)
    ended = _git_there(
        repo, url, *words, "--", url, f"refs/heads/{branch}", token=token, length=len(have or ""), stop=repo.stop
    )
    if ended.code != 0:
        raise _failure(ended, url, branch, token, "fetch")


def _git_there(repo: GitRepository, url: str, *words: str, token: str | None, length: int, stop: Stop | None) -> Ended:
    """Run a git command that talks to the host; `length` is that of the repository's object names."""
    origin = _origin(url)
    variables = NO_QUESTIONS | {"GIT_OBJECT_DIRECTORY": os.path.join(repo.git_dir, "objects")}
    # The hub may have it from its own environment, which git's children have no need of.
    variables |= {name: "" for name, value in os.environ.items() if token and value == token}
    with (
        tempfile.TemporaryDirectory(prefix="crewhall-push-") as place,
        _token_pipe(token if origin else None) as handles,
    ):
        config = CONFIG.format(format="sha256" if length == 64 else "sha1")
        for handle in handles:
            config += HELPER.format(origin=origin, handle=handle)
        _make_git_directory(Path(place), config, Path(repo.git_dir))
        neutral = GitRepository(place, place, stop, repo.seconds, (*repo.keep, *handles))
        return neutral.git(*words, env=variables)


def _origin(url: str) -> str:
    """Scheme, host and port of an address over HTTP, else an empty text. Raises InvalidInput for other addresses."""
    parts = urlsplit(url)
    is_ssh = parts.scheme == "ssh" or re.match(r"[^/:-][^/:]*:[^/:]", url)
    if ODD.search(url) or '"' in url or not (is_ssh or parts.scheme in PROTOCOLS):
        raise InvalidInput("the address to push to is not one of https, http or ssh", hint="Check the remote's URL.")
    if parts.password:
        raise InvalidInput(
            f"the address of {parts.hostname} has a password in it, which `ps` would show",
            hint="Remove it with `git remote set-url`, and store it with a credential helper.",
        )
    return "" if is_ssh else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@contextlib.contextmanager
def _token_pipe(token: str | None) -> Iterator[tuple[int, ...]]:
    """A pipe's end that the token can be read from, once; none without a token."""
    if token is None:
        yield ()
        return
    if not re.fullmatch("[!-~]{1,4000}", token):
        raise Forbidden("the token has blanks or characters that are not ASCII", hint="Set it again, without them.")
    reading, writing = os.pipe()
    try:
        os.write(writing, f"{token}\n".encode())
        os.close(writing)
        yield (reading,)
    finally:
        os.close(reading)


def _make_git_directory(place: Path, config: str, git_dir: Path) -> None:
    for name in ("objects", "refs"):
        (place / name).mkdir()
    (place / "HEAD").write_text("ref: refs/heads/none\n")
    (place / "config").write_text(config)
    shallow = _read_shallow(git_dir / "shallow")
    if shallow:
        (place / "shallow").write_bytes(shallow)


def _read_shallow(path: Path) -> bytes:
    """The commits at which a shallow clone ends; empty for a whole one. Git's error would quote any other file."""
    try:
        with open_plain(path) as file:
            data = file.read(SHALLOW_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError:
        data = b"no file"
    if len(data) > SHALLOW_BYTES or not all(COMMIT.fullmatch(line) for line in data.splitlines()):
        raise InvalidState(f"{path} is no list of commits", hint="`git fetch --unshallow` makes the clone a whole one.")
    return data


def _failure(ended: Ended, url: str, branch: str, token: str | None, doing: str = "push") -> Failure:
    """What went wrong, in the words of the host or of git."""
    lines = [_clean(line, token) for line in ended.err.decode("utf-8", "replace").splitlines()]
    host_words = " ".join(line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:"))[:300]
    git_words = [line for line in lines if line and not line.startswith(("remote:", "hint:", "warning:", "To "))]
    refused = next((line for line in ended.out.decode("utf-8", "replace").splitlines() if line.startswith("!")), "")
    if refused:
        return _refusal(url, branch, _clean(refused.rpartition("\t")[2], token), host_words)
    words, every = host_words or " ".join(git_words[:1]) or f"exit code {ended.code}", "\n".join(git_words)
    if FORBIDDEN.search(every):
        return Forbidden(
            f"{url} refuses the {doing} of '{branch}': {words}",
            hint="Give the token write access to the repository's contents; without one, check git's own credentials.",
        )
    if MISSING.search(every):
        return NotFound(
            f"there is no repository {url}: {words}",
            hint="Check owner and name. To a token that may not see it, a private repository looks the same.",
        )
    way = "to" if doing == "push" else "from"
    return Unavailable(
        f"git could not {doing} '{branch}' {way} {url}: {words}", hint="Try again later; that does no harm."
    )


def _refusal(url: str, branch: str, reason: str, host_words: str) -> Failure:
    if any(word in reason for word in OUTDATED):
        return _conflict(url, branch, reason)
    return Forbidden(
        f"{url} refuses the push of '{branch}': {host_words or reason}",
        hint="A rule or hook of the host's repository refuses it. Change the commits or the rule, then push again.",
    )


def _conflict(url: str, branch: str, reason: str) -> Conflict:
    return Conflict(
        f"'{branch}' at {url} has other commits: {reason}",
        hint="Fetch that branch and look at it. Merge it into yours, then push again.",
    )


def _clean(line: str, token: str | None) -> str:
    return " ".join(ODD.sub(" ", line.replace(token, "[token]") if token else line).split())[:300]
