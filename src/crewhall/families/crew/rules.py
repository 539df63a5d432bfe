"""
Rules of instances: no clock, no database, no world.

    started ─▶ waiting_review | pr_created | abandoned | terminated ── restart ──▶ started
    waiting_review ─▶ started | pr_created | abandoned | terminated
    pr_created ─▶ waiting_review | pr_merged | pr_closed | abandoned | terminated
    pr_closed ─▶ started | abandoned
"""

import re
import unicodedata

from crewhall.errors import InvalidState, LimitExceeded

ID_PATTERN = re.compile(r"(work|review|plan)-[a-z0-9]+(?:-[a-z0-9]+)*-a[1-9][0-9]{0,5}")
PREFIXES = {"coding": "work", "review": "review", "planning": "plan"}
NEXT = {
    "started": ("waiting_review", "pr_created", "abandoned", "terminated"),
    "waiting_review": ("started", "pr_created", "abandoned", "terminated"),
    "pr_created": ("waiting_review", "pr_merged", "pr_closed", "abandoned", "terminated"),
    "pr_closed": ("started", "abandoned"),
    "terminated": ("started", "abandoned"),
    "pr_merged": (),
    "abandoned": (),
}
LIVE = ("started", "waiting_review", "pr_created")  # statuses in which its process should run
MOST_NUMBER = 999_999  # that ID_PATTERN takes
SLUG = 40  # characters of a title in an id


def stem_for(instance_type: str, issue_number: int | None, title: str) -> str:
    """What an instance's id begins with: its type, and its issue or the first words of its title."""
    what = str(issue_number) if issue_number is not None else slug(title)
    return f"{PREFIXES[instance_type]}-{what}"


def slug(title: str) -> str:
    """The title in lower-case letters, digits and hyphens; `task` when nothing is left of it."""
    plain = unicodedata.normalize("NFKD", title.lower()).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", plain)
    text = ""
    for word in words:
        longer = f"{text}-{word}" if text else word[:SLUG]
        if len(longer) > SLUG:
            break
        text = longer
    return text or "task"


def numbered_id(stem: str, taken: list[str]) -> str:
    """The id with this stem whose number is after all that were given out; numbers that no id can have don't count."""
    pattern = re.compile(rf"{re.escape(stem)}-a([0-9]{{1,6}})", re.IGNORECASE)
    numbers = {int(found[1]) for found in map(pattern.fullmatch, taken) if found}
    following = max(numbers, default=0) + 1
    if following > MOST_NUMBER:  # somebody has a branch of that name
        following = next(number for number in range(1, MOST_NUMBER) if number not in numbers)
    return f"{stem}-a{following}"


def choose_ports(candidates: list[int], taken: set[int], count: int) -> list[int]:
    """The first ports that nobody has. Raises LimitExceeded when there are too few."""
    free = [port for port in candidates if port not in taken][:count]
    if len(free) < count:
        raise LimitExceeded(
            f"{len(free)} of {count} ports are free for a new instance",
            hint="Abandon instances that are over, or make crew.port_range larger.",
        )
    return free


def refuse_status(instance_id: str, status: str, allowed: tuple[str, ...], doing: str) -> None:
    """Raise InvalidState when an instance in this status can't be treated so."""
    if status not in allowed:
        raise InvalidState(
            f"instance {instance_id} is {status}, and only {' or '.join(allowed)} ones can be {doing}",
            hint="`crewhall instance list` shows what can be done: restart a terminated one, stop or abandon others.",
            instance_id=instance_id,
            status=status,
        )


def refuse_busy(instance_id: str, kinds: list[str]) -> None:
    """Raise InvalidState while another operation on the instance is under way."""
    if kinds:
        raise InvalidState(
            f"instance {instance_id} is in the middle of {kinds[0].replace('_', ' ')}",
            hint="Try again in a few seconds; instance_get shows what became of it.",
            instance_id=instance_id,
        )
