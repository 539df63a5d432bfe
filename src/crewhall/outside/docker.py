"""
Containers that Docker Compose started from a directory, by the docker command.

    containers_of(root, stop) -> [Container(id, name, told)]        log_of(container, lines, stop) -> its last lines
"""

import os
import shutil
from dataclasses import dataclass

from crewhall.errors import Unavailable
from crewhall.outside.environment import program_environment
from crewhall.outside.run import Ended, run
from crewhall.stop import Stop

SECONDS = 3.0
MOST_BYTES = 200_000
SOCKET = "/var/run/docker.sock"
LABEL = "com.docker.compose.project.working_dir"
FIELDS = ("{{.ID}}", "{{.Names}}", "{{.Image}}  {{.Status}}  {{.Ports}}")


@dataclass(frozen=True)
class Container:
    id: str
    name: str
    told: str  # its image, how long it is up, its ports


def containers_of(root: str, stop: Stop) -> list[Container]:
    """The containers that were started from a directory, also those that have ended.

    Raises Unavailable without docker, or in docker's words when its daemon does not answer.
    """
    if shutil.which("docker") is None:
        raise Unavailable("docker is not installed where the hub runs", hint="Install it if you want its containers.")
    if not _may_answer():
        raise Unavailable(f"docker does not answer: there is no {SOCKET}", hint="Start its daemon.")
    ended = _docker(["ps", "--all", "--filter", f"label={LABEL}={root}", "--format", "\t".join(FIELDS)], stop)
    lines = [line.split("\t", 2) for line in ended.out.decode("utf-8", "replace").splitlines()]
    return [Container(*words) for words in lines if len(words) == len(FIELDS)]


def _may_answer() -> bool:
    """Whether anything says where a daemon is: to start the command costs more than to look."""
    settings = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    is_elsewhere = any(os.environ.get(name) for name in ("DOCKER_HOST", "DOCKER_CONTEXT"))
    return is_elsewhere or os.path.exists(SOCKET) or os.path.isdir(os.path.join(settings, "contexts"))


def log_of(container: Container, lines: int, stop: Stop) -> list[str]:
    """The end of a container's log: so many lines of its output, then as many of its errors."""
    ended = _docker(["logs", "--tail", str(lines), "--", container.id], stop)
    both = [stream.decode("utf-8", "replace").rstrip("\n") for stream in (ended.out, ended.err)]
    return [line for stream in both if stream for line in stream.split("\n")]


def _docker(words: list[str], stop: Stop) -> Ended:
    ended = run(
        ["docker", *words],
        cwd="/",
        env=program_environment(os.environ),
        seconds=SECONDS,
        most_bytes=MOST_BYTES,
        stop=stop,
        called=f"docker {words[0]}",
    )
    if ended.code != 0:
        said = ended.err.decode("utf-8", "replace").strip().partition("\n")[0]
        raise Unavailable(f"docker does not answer: {said}", hint="Start its daemon.")
    return ended
