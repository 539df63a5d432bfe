"""
What is in a directory, and what of it git ignores.

    lookup = GitLookup(root, found, stop)
    read_listing(found, lookup, lambda: contents(found, lookup)) -> Listing(names, ignored, tracked, problem)
    look_at(found, name) -> ("file", 120)                                       type and size

Names come from the open directory alone. Git is asked which of them it tracks, and which of the others it ignores;
it walks no tree for that, and its answers take names away but never add any. Rules are those of the nearest `.git`
above, so a submodule or a nested repository has its own; where there is none, every `.gitignore` from the root down
counts, and the person's own rules. Git finds that `.git` itself, so that it refuses one of another owner.

    what a repository of strangers could do        why it does not here
    let git wait: a FIFO for a file of its own     such are refused beforehand, and git has little time
    tell lines of a file by what they ignore       its own core.excludesFile does not count, nor a linked info/exclude
    fetch what is missing, by their program        no protocol is allowed
    be another: a nested `.git` file leads there   that repository must name this working tree as one of its own
"""

import contextlib
import errno
import os
import stat
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from crewhall.errors import Failure, InvalidState, LimitExceeded, Unavailable
from crewhall.outside.files import Found
from crewhall.outside.git import git, refusal
from crewhall.outside.hostile_repository import refuse_strangers
from crewhall.outside.root_path import real_path
from crewhall.paths import is_below
from crewhall.stop import Stop

Kind = Literal["file", "directory", "symlink", "other"]
MOST_NAMES = 1_000_000  # in one directory
LINE_BYTES, CONFIG_BYTES = 8192, 65_536
SECONDS = 3.0  # that git has for one question; the calls of others wait meanwhile
OWN_SCOPES = ("local", "worktree")
EXPLICIT = {"safe.bareRepository": "explicit"}  # none but `.git` counts
# A repository that came with somebody's files fetches nothing, so runs nothing, when an object is missing in it.
NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}


@dataclass(frozen=True)
class Listing:
    """The names in a directory but `.git`, sorted, and how git sees them; `problem` says why it can't tell.

    `tracked` are names that git keeps as such, sorted, not for what is below them: a directory among them is a
    submodule.
    """

    names: list[str]
    ignored: Set[str] = frozenset()
    tracked: Sequence[str] = ()
    problem: str | None = None

    def tracks(self, name: str) -> bool:
        place = bisect_left(self.tracked, name)
        return self.tracked[place : place + 1] == [name]


def look_at(found: Found, name: str) -> tuple[Kind, int | None]:
    """What a name in a directory is, and the bytes of a file."""
    try:
        seen = os.stat(name, dir_fd=found.descriptor, follow_symlinks=False)
    except OSError:  # it was removed just now
        return "other", None
    if stat.S_ISREG(seen.st_mode):
        return "file", seen.st_size
    if stat.S_ISDIR(seen.st_mode):
        return "directory", None
    return ("symlink" if stat.S_ISLNK(seen.st_mode) else "other"), None


@dataclass(frozen=True)
class Contents:
    """The names in a directory, sorted, those of them that git keeps as such, and those that it knows nothing of.

    `rules` is the file of the person's own rules, if the repository names another.
    """

    names: list[str]
    tracked: list[str]
    others: Set[str]
    rules: str | None


def contents(found: Found, lookup: "GitLookup") -> Contents:
    """What is in a directory, the same until that or one of `lookup.depends` changes. Raises Failure."""
    with ThreadPoolExecutor(1) as beside:  # git reads its index while the directory is read
        asked = beside.submit(lookup.tracked_names)
        names = _names(found)
    tracked, above = asked.result()
    others = frozenset() if names == tracked else frozenset(names).difference(tracked, above)  # to compare is quicker
    return Contents(names, tracked, others, lookup.rules())


def read_listing(found: Found, lookup: "GitLookup", inside: Callable[[], Contents]) -> Listing:
    """List a directory with the names that git ignores; when git fails, `problem` holds the reason.

    Raises LimitExceeded, Unavailable, and what the lookup's `stop` raises.
    """
    try:
        lookup.refuse_waiting()
        known = inside()
        return Listing(known.names, lookup.ignored_names(known.others, known.rules), known.tracked)
    except Failure as failure:
        if lookup.stop is not None:
            lookup.stop.check()
        return Listing(_names(found), problem=failure.message)


def _names(found: Found) -> list[str]:
    try:
        names = os.listdir(found.descriptor)
    except OSError as error:
        raise Unavailable(f"'{found.path}' can't be listed: {error.strerror}", hint="Try again.") from None
    if len(names) > MOST_NAMES:
        raise LimitExceeded(f"'{found.path}' holds {len(names)} names", hint=f"{MOST_NAMES} can be listed at the most.")
    with contextlib.suppress(ValueError):
        names.remove(".git")
    names.sort()
    return names


class GitLookup:
    """Queries git about one directory. Raises Failure; among them InvalidState with git's message."""

    def __init__(self, root: str, found: Found, stop: Stop | None = None) -> None:
        self.stop = stop
        self.directory = os.path.normpath(os.path.join(root, found.path))
        self.top = _top_above(self.directory)
        self._base = self.top or os.path.normpath(root)
        self._prefix = "" if self.directory == self._base else f"{os.path.relpath(self.directory, self._base)}/"
        git_dir = "" if self.top is None else _git_dir(self.top)
        common = git_dir and _common_dir(git_dir)
        self._root, self._git_dir, self._common = root, git_dir, common
        self._files = [f"{git_dir}/index", f"{common}/info/exclude"] if git_dir else []
        self._config_files = [f"{common}/config", f"{git_dir}/config.worktree"] if git_dir else []
        self._config = " ".join(_config(path) for path in self._config_files)

    @property
    def depends(self) -> list[str] | None:
        """The files by whose change `contents` changes; None when there may be more than can be told."""
        return None if "include" in self._config else self._files + self._config_files

    def refuse_waiting(self) -> None:
        """Raise InvalidState when git would wait for a file, or read one that lies elsewhere as its rules."""
        _refuse(f"{directory}/.gitignore" for directory in _between(self._base, self.directory))
        _refuse(self._config_files)
        _refuse(self._files, links=True)
        self._refuse_strangers()

    def _refuse_strangers(self) -> None:
        """Raise InvalidState for a repository outside the root that does not name the working tree as its own."""
        if self.top is None:
            return
        ours = (self._root, self.top)
        if all(any(is_below(own, where) for where in ours) for own in (self._git_dir, self._common)):
            return
        is_linked = self._git_dir != self._common
        named = [] if is_linked else self._names(("config", "--local", "-z", "--get", "core.worktree"))
        refuse_strangers(self.top, self._git_dir, self._common, named[0] if named else None)

    def tracked_names(self) -> tuple[list[str], Set[str]]:
        """The names here that git tracks, sorted, and the directories that hold tracked files."""
        words = ("ls-files", "-z", "--cached", "--", *([f":(literal){self._prefix}"] if self._prefix else []))
        known = [] if self.top is None else self._names(words, self._prefix)
        above = {name.partition("/")[0] for name in known if "/" in name}
        return sorted(name for name in known if "/" not in name) if above else sorted(known), above

    def ignored_names(self, names: Collection[str], rules: str | None = None) -> Set[str]:
        """The names that git ignores; none of `names` may be tracked, `rules` is as in Contents."""
        if not names:
            return frozenset()
        begin = f"./{self._prefix}"  # a name that begins with a colon is a name
        told = begin + f"\0{begin}".join(names)
        words = ("check-ignore", "-z", "--stdin", "--no-index")
        return set(self._names(words, begin, told, {} if rules is None else {"core.excludesFile": rules}))

    def rules(self) -> str | None:
        """The person's own file of rules, or the place of one, if the repository's configuration names another."""
        if "excludesfile" not in self._config and "include" not in self._config:
            return None
        fields = self._names(("config", "--show-scope", "-z", "--get-all", "core.excludesFile"))
        scopes, values = fields[::2], fields[1::2]
        if not set(scopes) & set(OWN_SCOPES):
            return None
        theirs = [value for scope, value in zip(scopes, values, strict=True) if scope not in OWN_SCOPES]
        return theirs[-1] if theirs else f"{os.environ.get('XDG_CONFIG_HOME') or '~/.config'}/git/ignore"

    def _names(
        self, words: Sequence[str], begin: str = "", told: str = "", settings: dict[str, str] | None = None
    ) -> list[str]:
        """Git's answer, by names that all begin so, without that; a submodule that is this directory comes first."""
        with self._repository(settings or {}) as env:
            ended = git(
                words,
                cwd=self._base,
                env=NO_FETCH | env,
                stdin=os.fsencode(told),
                seconds=SECONDS,
                stop=self.stop,
            )
        if ended.code not in (0, 1):  # 1 is the way to say none
            raise refusal(ended, words[0])
        told = "\0" + os.fsdecode(ended.out.removesuffix(b"\0"))
        return told.split(f"\0{begin}")[1:] if ended.out else []

    @contextlib.contextmanager
    def _repository(self, settings: dict[str, str]) -> Iterator[dict[str, str]]:
        """Where git finds the rules: in `.git` at the top and nowhere else, or in an empty repository."""
        ways = {"GIT_WORK_TREE": self._base} | _as_variables(EXPLICIT | settings)
        if self.top is not None:
            yield ways | {"GIT_CEILING_DIRECTORIES": os.path.dirname(self.top)}
        else:
            with _empty_repository() as git_dir:
                yield ways | {"GIT_DIR": git_dir}


def _config(path: str) -> str:
    """A repository's own configuration, in small letters; one that can't be told includes others."""
    text = _read(path, CONFIG_BYTES)
    return "include" if text is None else text.lower()


def _as_variables(settings: dict[str, str]) -> dict[str, str]:
    """Settings for git, which come before those in files."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def _between(top: str, directory: str) -> Iterator[str]:
    """A directory and all above it, up to the top."""
    yield directory
    while directory != top:
        directory = os.path.dirname(directory)
        yield directory


def _refuse(paths: Iterable[str], *, links: bool = False) -> None:
    """Raise InvalidState for what is neither a file nor a directory; with `links`, for a link too."""
    for path in paths:
        try:
            mode = os.stat(path, follow_symlinks=not links).st_mode
        except OSError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InvalidState(f"{path} is no regular file", hint="Put that right, and try again.")


def _top_above(directory: str) -> str | None:
    """The nearest directory, from this one up, whose `.git` is a file or looks like a repository."""
    while True:
        link = os.path.join(directory, ".git")
        if os.path.isfile(link) or os.path.lexists(f"{link}/HEAD"):
            return directory
        if directory == os.path.dirname(directory):
            return None
        directory = os.path.dirname(directory)


def _git_dir(top: str) -> str:
    """Where the repository of a working tree is: its `.git`, or where that file leads."""
    link = os.path.join(top, ".git")
    line = _read(link, LINE_BYTES)
    return real_path(os.path.join(top, line.removeprefix("gitdir: ").rstrip("\r\n")) if line else link)


def _common_dir(git_dir: str) -> str:
    """Where the repository is that all working trees have in common."""
    line = _read(os.path.join(git_dir, "commondir"), LINE_BYTES)
    return real_path(os.path.join(git_dir, (line or "").rstrip("\r\n")))


def _read(path: str, most: int) -> str | None:
    """A file of git's own, empty when there is none; None for what is long, or no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return "" if error.errno in (errno.ENOENT, errno.ENOTDIR) else None
    try:
        data = os.read(descriptor, most) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if data is None or len(data) == most else os.fsdecode(data)


@contextlib.contextmanager
def _empty_repository() -> Iterator[str]:
    """The least that git takes for a repository, for a moment."""
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(tempfile.TemporaryDirectory(prefix="crewhall-"))
            for name in ("objects", "refs"):
                os.mkdir(f"{path}/{name}")
            with open(f"{path}/HEAD", "w") as head:
                head.write("ref: refs/heads/main\n")
        except OSError as error:
            raise Unavailable(f"no temporary directory: {error.strerror}", hint="Make room on the disk.") from None
        yield path
