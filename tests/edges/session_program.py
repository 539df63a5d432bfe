"""
The program of an instance that runs what a test tells it, in its session: `in_session.py` is the other end.

    python session_program.py DIRECTORY      reads 1.json, 2.json … and writes 1.done, 2.done …

A command of crewhall that opens the database itself is forked from this process, which has imported all of it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any


def obey(place: str) -> None:
    number = 1
    while True:
        try:
            with open(f"{place}/{number}.json") as file:
                asked = json.load(file)
        except FileNotFoundError:
            time.sleep(0.01)
            continue
        around = {**os.environ, **asked["set"]}
        around = {name: value for name, value in around.items() if name not in asked["unset"]}
        done = (fork if asked["forked"] else start)(asked, around)
        with open(f"{place}/part", "w") as file:
            json.dump(done, file)
        os.replace(file.name, f"{place}/{number}.done")
        number += 1


def start(asked: dict[str, Any], around: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(asked["words"], env=around, input=asked["text"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def fork(asked: dict[str, Any], around: dict[str, str]) -> tuple[int, str, str]:
    from crewhall.edges.cli.in_process import tool_descriptions
    from tests.edges.prefork import become

    tool_descriptions()  # the child has the schemas of all tools, which it would make itself
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            request = {"words": asked["words"], "environment": around, "numbers": [0, 1, 2], "cwd": os.getcwd()}
            become(request, [os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno()])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


if __name__ == "__main__":
    obey(sys.argv[1])
