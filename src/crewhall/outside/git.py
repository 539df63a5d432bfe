"""
A git repository, asked and changed by the git command.

    open_repository(path, stop=None, seconds=300) -> GitRepository(root, git_dir, stop, seconds)
        .current_branch(env) -> str         .commit_of(rev) -> str | None       .branch_exists(name) -> bool
        .set_ref(name, new, old) -> Ended   .delete_ref(name) -> bool           .base_of(name) -> str
        .refuse_bad_branch(name) -> None    .git(*words, …) -> Ended            .text(*words, …) -> str
    version() -> (2, 39)                    lock(repo)                          a `with` block alone in the repository

Worktrees are in worktrees.py, saved work in saving.py, forecasts in forecast.py. Whatever the person has set up, git
runs without their hooks, watchers and housekeeping, never asks anything, takes a name that looks like an option as a
name, and sees each commit as it is, whatever `git replace` or a graft puts in its place. Paths are text with surrogate
escapes, as the os module gives them; a repository's root, its current branch and the words of a failure are real text.
"""

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from crewhall.errors import Failure, InvalidInput, InvalidState, LimitExceeded, TimedOut, Unavailable
from crewhall.outside.environment import git_environment
from crewhall.outside.hostile_repository import refuse_planted
from crewhall.outside.root_path import real_path
from crewhall.outside.run import Ended, run
from crewhall.paths import is_below
from crewhall.stop import Stop

LEAST_GIT = (2, 33)  # from which on a worktree is made with a reason for its lock, which tells a half-made one
MOST_BYTES = 64_000_000  # of one answer of git
LOCK_SECONDS = 120.0
FACTS = ("--absolute-git-dir", "--is-inside-work-tree", "--is-bare-repository", "--git-common-dir")
OWN_WAYS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.safecrlf": "false",  # a file with mixed line ends is saved, not refused
    "core.splitIndex": "false",  # a temporary index leaves no shared one in the repository
    "core.untrackedCache": "false",
    "submodule.recurse": "false",
    "log.showSignature": "false",  # it would run gpg.program
    "i18n.logOutputEncoding": "UTF-8",
    "color.diff": "false",
    "core.alternateRefsCommand": "true",  # any program, when a submodule's commits are fetched
}
CHANGED_NAMES = ("--name-only", "-z", "--no-renames", "--ignore-submodules=none")  # for git diff, of all that changed
EXPLICIT = ["-c", "safe.bareRepository=explicit"]  # once we know it, it is never looked for
SETTINGS = [word for name, value in OWN_WAYS.items() for word in ("-c", f"{name}={value}")]
FULL_ID = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")  # git takes it for the commit, whatever has this name
NO_REPOSITORY = "Name a directory in a git repository; `git init` and a first commit make one."
STRANGE = b"dubious ownership"
COMPLAINTS = ("fatal: ", "error: ")
SYSTEM_WORDS = frozenset(map(os.strerror, errno.errorcode))
# Messages that quote what is in a file before any colon, or without one: the group is what is told of them.
QUOTES = re.compile(
    r"(config (?:value|variable)) '.*|(?<=object directory)() .*(?= does not exist)|(orrupt \w+ file) \(.*"
)
STRANGERS = (
    "Another user owns it, and its configuration can run programs. If you trust it, run "
    "`git config --global --add safe.directory PATH` with its path, as the hall's user."
)
# An agent can write a history in which a commit that changes a workflow is nobody's, and push the true one.
TRUE_HISTORY = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none"}
# What a partial clone lacks is fetched by a program that its own settings name: only a checkout may do that.
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
LAZY_FETCH = {"GIT_NO_LAZY_FETCH": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}
AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Crewhall"), ("EMAIL", "crewhall@localhost"))
}


def git(
    words: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    seconds: float = 300.0,
    stop: Stop | None = None,
    keep: Sequence[int] = (),
) -> Ended:
    """Run one git command in our own ways. Raises Unavailable without git; any exit code is an answer."""
    ways = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    explicit = EXPLICIT if env and "GIT_DIR" in env else []
    ended = run(
        ["git", *SETTINGS, *explicit, *words],
        cwd=cwd,
        env=git_environment(os.environ) | ways | TRUE_HISTORY | NO_FETCH | AUTHOR | dict(env or {}),
        stdin=stdin,
        seconds=seconds,
        most_bytes=MOST_BYTES,
        stop=stop,
        keep=keep,
        called=f"git {words[0]}",
    )
    if ended.left_out:
        raise LimitExceeded(
            f"git {words[0]} answered more than {MOST_BYTES} bytes", hint="It is too large for the hall."
        )
    return ended


def refusal(ended: Ended, doing: str, hint: str = "See what git says, put that right, and try again.") -> Failure:
    """Git's own words as a failure: its first complaint, which is the cause, and its last; not what they quote."""
    lines = ended.err.decode("utf-8", "replace").splitlines()
    complaints = [_cut_quotes(line) for line in lines if line.startswith(COMPLAINTS)]
    complaints = complaints or [line for line in lines if line.rpartition(": ")[2] in SYSTEM_WORDS]
    told = "; ".join(dict.fromkeys([*complaints[:1], *complaints[-1:]]))
    return InvalidState(f"git could not {doing}: {told or f'exit code {ended.code}'}", hint=hint)


def _cut_quotes(complaint: str) -> str:
    """A complaint without lines of files: git quotes those behind a colon, as it does the system's own words.

    What git reads as its own may be a link to any file, so that such a line is anybody's secret.
    """
    kind, _, told = complaint.partition(": ")
    words, colon, more = QUOTES.sub(lambda found: found[found.lastindex or 0], told).partition(": ")
    why = more.rpartition(": ")[2]
    return f"{kind}: {words}{colon}{why}" if why in SYSTEM_WORDS else f"{kind}: {words}"


def version() -> tuple[int, int]:
    """The two first numbers of git's version."""
    return _version_in(os.environ.get("PATH", ""))


@cache
def _version_in(path: str) -> tuple[int, int]:
    words = git(["version"], cwd="/").out.decode("utf-8", "replace").split()
    numbers = [int(number) for number in words[2].split(".")[:2]]
    return numbers[0], numbers[1]


@dataclass(frozen=True)
class GitRepository:
    """A repository: its main worktree (of a bare one, the git directory), and what all its worktrees have in common.

    Every method raises what `stop` raises, and TimedOut when one git command takes longer than `seconds`.
    """

    root: str
    git_dir: str
    stop: Stop | None = None
    seconds: float = 300.0
    keep: tuple[int, ...] = ()

    def git(
        self, *words: str, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> Ended:
        """Run a git command, in the main worktree or in `cwd`; any exit code is an answer."""
        return git(
            words,
            cwd=cwd or self.root,
            env={"GIT_DIR": self.git_dir} | dict(env or {}),
            stdin=stdin,
            seconds=self.seconds,
            stop=self.stop,
            keep=self.keep,
        )

    def text(
        self, *words: str, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> str:
        """What a git command answers, without its last line end. Raises InvalidState with git's words if it fails."""
        ended = self.git(*words, cwd=cwd, env=env, stdin=stdin)
        if ended.code != 0:
            raise refusal(ended, words[0])
        return os.fsdecode(ended.out.removesuffix(b"\n"))

    def current_branch(self, env: Mapping[str, str] | None = None) -> str:
        """The branch that the main worktree is on, or the one whose GIT_DIR is in `env`; its commit when detached.

        Raises InvalidInput when its name is not text.
        """
        ended = self.git("symbolic-ref", "--quiet", "HEAD", env=env)  # --short says heads/1.0 beside a tag 1.0
        if ended.code != 0:
            return self.text("rev-parse", "HEAD", env=env)
        name = os.fsdecode(ended.out.removesuffix(b"\n")).removeprefix("refs/heads/")
        return _real_text(name, f"the branch that {self.root} is on")

    def commit_of(self, rev: str, env: Mapping[str, str] | None = None) -> str | None:
        """The commit that a name means, or None."""
        ended = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}", env=env)
        return ended.out.decode().strip() if ended.code == 0 else None

    def base_of(self, name: str) -> str:
        """A name from which something begins, as git is to read it: the branch, where a tag has the same name."""
        is_commit = FULL_ID.fullmatch(name) is not None
        return f"refs/heads/{name}" if not is_commit and self.branch_exists(name) else name

    def branch_exists(self, name: str) -> bool:
        return self.git("show-ref", "--verify", "--quiet", "--", f"refs/heads/{name}").code == 0

    def set_ref(
        self, name: str, commit: str, before: str, reason: str = "", env: Mapping[str, str] | None = None
    ) -> Ended:
        """Write a ref, if it has the commit `before`; a symbolic one is replaced, and what it names stays."""
        why = ["-m", reason] if reason else []
        return self.git("update-ref", *why, "--no-deref", "--", name, commit, before, env=env)

    def delete_ref(self, name: str, commit: str | None = None) -> bool:
        """Delete a ref, if it has that commit; of a symbolic one, what it names stays. False when git refuses."""
        seen = [] if commit is None else [commit]
        return self.git("update-ref", "-d", "--no-deref", "--", name, *seen).code == 0

    def refuse_bad_branch(self, name: str) -> None:
        """Raises InvalidInput for a name that git does not allow for a branch."""
        ended = self.git("check-ref-format", "--branch", name)
        if ended.code != 0 or os.fsdecode(ended.out) != f"{name}\n" or name == "@":  # @{-1} means another branch
            raise InvalidInput(
                f"{name!r} is no name for a branch",
                hint="Use letters, digits, '-', '_', '.' and '/', and begin with a letter.",
            )


def open_repository(path: str, stop: Stop | None = None, seconds: float = 300.0) -> GitRepository:
    """Open the repository that a directory lies in, from any of its worktrees.

    Raises InvalidState when there is none, when it has no commit yet, or when it is a bare one among the files of
    another; NotFound when there is no such directory; InvalidInput when its path is not text; Unavailable for an old
    git.
    """
    refuse_old_git(LEAST_GIT, "the hall")
    absolute, is_inside, is_bare, shared = _facts(path, stop)
    git_dir = real_path(absolute)
    common = real_path(os.path.join(path, shared))
    own = common if is_below(git_dir, common) else git_dir
    if is_below(real_path(path), git_dir):  # no `.git` led here
        refuse_planted(own)
    repo = GitRepository(common, common, stop, seconds)
    if git_dir != common:
        root = _main_root(repo)
    elif is_inside == "true":
        root = _rev_parse(path, ["--show-toplevel"], stop)
    else:
        root = absolute if is_bare == "true" else os.path.dirname(absolute)
    root = real_path(root)
    if root == common:
        refuse_planted(common)
    if repo.commit_of("HEAD") is None and not repo.text("for-each-ref", "--count=1"):
        raise InvalidState(f"the repository at {root} has no commit", hint="Commit something in it first.")
    return replace(repo, root=_real_text(root, "the path of the repository"))


def _real_text(name: str, what: str) -> str:
    """The name. Raises InvalidInput when it has bytes that are not UTF-8: the hall could not write it down."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not UTF-8: {name}", hint="Rename it, or name another.") from None
    return name


def _main_root(repo: GitRepository) -> str:
    """The main worktree, seen from a linked one: git notes it only where it is not around the git directory."""
    elsewhere = repo.git("config", "--get", "core.worktree").out
    if elsewhere:
        return os.path.join(repo.git_dir, os.fsdecode(elsewhere.removesuffix(b"\n")))
    is_bare = repo.git("config", "--type=bool", "--get", "core.bare").out == b"true\n"
    around = os.path.basename(repo.git_dir) == ".git" and not is_bare
    return os.path.dirname(repo.git_dir) if around else repo.git_dir


def _facts(path: str, stop: Stop | None) -> list[str]:
    """Git's answers to FACTS: all at once, or one at a time if a path that breaks over lines makes those unclear."""
    answers = _rev_parse(path, FACTS, stop).split("\n")
    return answers if len(answers) == len(FACTS) else [_rev_parse(path, [question], stop) for question in FACTS]


def git_dir_at(path: str, stop: Stop | None = None) -> str:
    """The git directory of the worktree that a directory is in. Raises InvalidState when there is none."""
    return real_path(_rev_parse(path, ["--absolute-git-dir"], stop))


def _rev_parse(path: str, questions: Sequence[str], stop: Stop | None) -> str:
    ended = git(["rev-parse", *questions], cwd=path, stop=stop)
    if ended.code != 0:
        raise refusal(ended, f"open {path}", STRANGERS if STRANGE in ended.err else NO_REPOSITORY)
    return os.fsdecode(ended.out.removesuffix(b"\n"))


@contextlib.contextmanager
def lock(repo: GitRepository, seconds: float = LOCK_SECONDS) -> Iterator[GitRepository]:
    """Be alone in a repository, among all threads and processes that ask here; gives the repository to use inside.

    The lock is on the git directory itself, so it leaves no file behind. Git processes started inside hold it as well:
    one that outlives a killed caller is waited for. Raises TimedOut when others keep it too long.
    """
    handle = os.open(repo.git_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _wait_for_lock(handle, repo, time.monotonic() + seconds)
        yield replace(repo, keep=(handle,))
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, repo: GitRepository, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimedOut(f"others are busy in {repo.root}", hint="Try again when they are done.") from None
        pause(repo.stop)


def pause(stop: Stop | None) -> None:
    """A moment for others to finish. Raises what `stop` raises."""
    if stop is None:
        time.sleep(0.02)
    else:
        stop.wait(0.02)


def refuse_old_git(least: tuple[int, int], what: str) -> None:
    """Raises Unavailable when the installed git can't do this."""
    found = version()
    if found < least:
        raise Unavailable(
            f"{what} needs git {least[0]}.{least[1]}, and this is {found[0]}.{found[1]}", hint="Install a newer git."
        )
