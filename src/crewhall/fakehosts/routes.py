"""Which function answers which path, and which repository a name or an old name means."""

import re
from collections.abc import Callable
from urllib.parse import unquote

from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.server import FakeResponse
from crewhall.fakehosts.state import FakeRepository

Route = Callable[
    ..., FakeResponse
]  # of the host, the repository where it is below one, the request, and parts of the path


class Routes:
    """Which function answers what. `{name}` is a segment, `{name*}` may hold slashes; both come decoded."""

    def __init__(self, *others: "Routes") -> None:
        self._table: list[tuple[str, re.Pattern[str], Route]] = [row for other in others for row in other._table]

    def on(self, method: str, template: str) -> Callable[[Route], Route]:
        pattern = re.sub(r"\{\w+\*\}", "(.+)", template)
        pattern = re.sub(r"\{\w+\}", "([^/]+)", pattern)

        def add(function: Route) -> Route:
            self._table.append((method, re.compile(pattern), function))
            return function

        return add

    def find(self, method: str, path: str) -> tuple[Route, list[str]]:
        """The function and its parts of the path. Raises Refusal when there is none."""
        for known, pattern, function in self._table:
            if known == method and (match := pattern.fullmatch(path)):
                return function, [unquote(part) for part in match.groups()]
        raise Refusal(404, "Not Found")


class FakeRepositories(dict[tuple[str, str], FakeRepository]):
    """By owner and name, in any case of letters; an old name leads to the repository too."""

    def __init__(self) -> None:
        super().__init__()
        self._old: dict[tuple[str, str], FakeRepository] = {}

    def __getitem__(self, key: tuple[str, str]) -> FakeRepository:
        return super().__getitem__(_small(key))

    def __setitem__(self, key: tuple[str, str], repository: FakeRepository) -> None:
        super().__setitem__(_small(key), repository)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and super().__contains__(_small(key))

    def find_by_name(self, owner: str, name: str) -> FakeRepository | None:
        key = _small((owner, name))
        return self.get(key) or self._old.get(key)

    def find_by_id(self, number: int) -> FakeRepository | None:
        return next((one for one in self.values() if one.id == number), None)

    def rename(self, owner: str, name: str, new_name: str) -> None:
        repository = self.pop(_small((owner, name)))
        self._old[_small((owner, name))] = repository
        repository.name = new_name
        self[(owner, new_name)] = repository


def _small(key: tuple[str, ...]) -> tuple[str, str]:
    return key[0].lower(), key[1].lower()
