"""`crewhall`, and `python -m crewhall`: the bridge when the words say `mcp`, the command line for the rest.

`crewhall mcp-server` is what seed 002's clients start: the bridge with the tools of family pulls.

A client starts a bridge for each of its agents, so that one comes first and imports the least.
"""

import gc
import sys

KEPT = 50_000  # objects that are made before the collector looks: what a start imports stays, and to look costs a fifth


def main() -> int:
    gc.set_threshold(KEPT)
    try:
        return run()
    finally:
        gc.freeze()  # Python would look through everything again before it ends


def run() -> int:
    words = sys.argv[1:]
    rest = words[2:] if words[:1] == ["--home"] else words[1:] if words and words[0].startswith("--home=") else words
    if rest[:1] in (["mcp"], ["mcp-server"]):
        from crewhall.edges.bridge.command import main as bridge

        return bridge(words)
    from crewhall.edges.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
