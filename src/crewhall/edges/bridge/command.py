"""`crewhall mcp`: its words and its environment, and then the bridge. Standard library only."""

import os
import signal
import sys

from crewhall import __version__
from crewhall.edges.bridge.bridge import Bridge
from crewhall.edges.bridge.hello import client_variables, working_directory
from crewhall.edges.bridge.launch import EmbeddedHub, HubSource, NoHub, SharedHub
from crewhall.errors import Failure
from crewhall.options import read_words

USAGE = """\
usage: crewhall [--home DIR] mcp [--families A,B] [--profile P] [--directory DIR] [--standalone]
       crewhall [--home DIR] mcp-server …    the same with --families pulls: pull requests alone

Speaks MCP on stdin and stdout, for a client's config. It joins the hub that runs, or starts one.

  --families A,B   show the tools of these families alone
  --profile P      worker, coordinator, reviewer, standard, worktree, readonly or all
  --directory DIR  the client works there; left out, where it starts this
  --standalone     serve the hall in this process, without a hub

In the environment, for this client alone:

  CREWHALL_TOKEN                         an agent's token; the client is that agent
  CLAUDEOPS_TIER                         1: it opens no pull requests, 2: with up to 3 files, 3: with any number
  CLAUDEOPS_DRY_RUN                      it is shown what a pull request would be, and nothing is sent
  GITHUB_TOKEN, GITEA_URL, GITEA_TOKEN   its own accounts for pull requests, before the hub's
"""
VALUES = ("--home", "--families", "--profile", "--directory")


def main(words: list[str]) -> int:
    """Run as the words say; the exit code."""
    options: dict[str, str] = {}
    if not _has_streams():
        return 0
    for word in read_words(words, lambda name, _: name in VALUES):
        if word.text in ("mcp", "mcp-server") and not word.is_text:
            if word.text == "mcp-server":
                options.setdefault("--families", "pulls")
            continue
        if word.name in ("--help", "-h"):
            sys.stdout.write(USAGE)
            return 0
        takes_value = word.name in VALUES
        if takes_value != bool(word.value) or (word.name != "--standalone" and not takes_value):
            shown = f"'{word.name or word.text}'"
            wrong = f"{shown} needs a value" if takes_value else f"unexpected argument {shown}"
            sys.stderr.write(f"crewhall mcp: {wrong}\n\n{USAGE}")
            return 2
        options[word.name] = word.value or ""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _serve(options)
    return 0


def _has_streams() -> bool:
    """Whether there is a client to talk to. A closed descriptor's number would go to the next file that is opened."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            if descriptor < 2:
                return False
            os.open(os.devnull, os.O_RDWR)
    return True


def _serve(options: dict[str, str]) -> None:
    hello = {
        "crewhall": __version__,
        "bridge": f"br_{os.urandom(8).hex()}",
        "directory": os.path.abspath(options["--directory"]) if "--directory" in options else working_directory(),
        "token": os.environ.get("CREWHALL_TOKEN"),
        "families": options.get("--families", ""),
        "profile": options.get("--profile"),
        "variables": client_variables(os.environ),
    }
    try:
        hub_source: HubSource = (EmbeddedHub if "--standalone" in options else SharedHub)(options.get("--home"))
    except Failure as failure:
        sys.stderr.write(f"crewhall mcp: {failure.message}\n  {failure.hint}\n")
        hub_source = NoHub(failure)
    try:
        Bridge(hub_source, hello).run()
    finally:
        hub_source.close()
