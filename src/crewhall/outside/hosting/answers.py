"""What an answer of a host says besides its body: whether to wait, where to go, whether there is more."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

SECONDARY_SECONDS = 60.0  # what GitHub asks for when it names no time
SECONDARY = re.compile("secondary rate|abuse detection|rate limit", re.IGNORECASE)


@dataclass(frozen=True)
class HostResponse:
    status: int
    body: Any
    headers: Mapping[str, str]
    error_text: str  # the host's own, when it refuses


def error_text(body: Any) -> str:
    """The message of a refusal, followed by the messages of its details."""
    if not isinstance(body, dict):
        return ""
    parts = body.get("errors")
    told = [_part(one) for one in parts] if isinstance(parts, list) else []
    return ": ".join(str(one) for one in (body.get("message"), *told) if one)


def _part(part: Any) -> Any:
    """One of a refusal's details: GitHub has a message in it, or a field and a code."""
    return (part.get("message") or f"{part.get('field')} {part.get('code')}") if isinstance(part, dict) else part


def redirect_of(url: str, method: str, answer: HostResponse) -> str | None:
    """Where a redirect leads: to the same host alone, and what writes goes there only when it stays a write."""
    if answer.status not in ((301, 302, 307, 308) if method == "GET" else (307, 308)):
        return None
    target = urljoin(url, answer.headers.get("location", ""))
    old, new = urlsplit(url), urlsplit(target)
    return target if (old.scheme, old.netloc) == (new.scheme, new.netloc) and target != url else None


def requested_wait(answer: HostResponse, now: float) -> float | None:
    """The seconds that a rate limit asks the caller to wait; None without a rate limit."""
    headers, is_empty = answer.headers, answer.headers.get("x-ratelimit-remaining") == "0"
    if answer.status != 429 and not (
        answer.status == 403 and ("retry-after" in headers or is_empty or SECONDARY.search(answer.error_text))
    ):
        return None
    if "retry-after" in headers:
        return _seconds(headers["retry-after"], now)
    if is_empty:
        reset = headers.get("x-ratelimit-reset", "")
        return max(0.0, int(reset) - now) if re.fullmatch(r"[0-9]{1,12}", reset) else SECONDARY_SECONDS
    return SECONDARY_SECONDS if answer.status == 403 else 0.0


def _seconds(text: str, now: float) -> float:
    """A number of seconds, or a date, as seconds from now."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text.strip()):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return SECONDARY_SECONDS


def items_of(body: Any) -> list[Any]:
    """The items of a page: a list, or the one in an object around it."""
    if isinstance(body, list):
        return body
    lists = [value for value in body.values() if isinstance(value, list)] if isinstance(body, dict) else []
    return max(lists, key=len, default=[])


def has_more(answer: HostResponse, seen: int, is_full: bool) -> bool:
    """Whether a list goes on after this page: the host says so, or the page is full."""
    if "link" in answer.headers:
        return 'rel="next"' in answer.headers["link"]
    total = answer.headers.get("x-total-count", "")
    return seen < int(total) if re.fullmatch("[0-9]{1,12}", total) else is_full
