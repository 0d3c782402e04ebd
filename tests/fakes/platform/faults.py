"""Faults that a test scripts: per route, from a given occurrence on, a number of times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

Effect = Literal["before", "after"]
"""Whether the fault comes before the request took effect, or after it."""

HTML = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n"


class Fault:
    """Something that goes wrong with a request. One with an `effect` takes the place of the answer."""

    __slots__ = ()

    def response(self) -> web.Response | None:
        """Build what comes instead of the answer; None if the connection ends without one."""
        return None


@dataclass(frozen=True, slots=True)
class Html(Fault):
    """An answer of a proxy in between: a status and a page instead of JSON."""

    status: int = 502
    page: str = HTML
    effect: Effect = "before"

    def response(self) -> web.Response:
        return web.Response(status=self.status, text=self.page, content_type="text/html")


@dataclass(frozen=True, slots=True)
class Drop(Fault):
    """The connection ends without a byte of an answer. aiohttp's client by itself repeats a GET once after that."""

    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Wedge(Fault):
    """The connection stays open and nothing comes, until the client or the server goes away."""

    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """The answer ends in its middle. The request took effect."""


@dataclass(frozen=True, slots=True)
class Slow(Fault):
    """The answer is right and comes after some seconds; the effect is there at once."""

    seconds: float


@dataclass(slots=True)
class _Rule:
    route: str
    fault: Fault
    skip: int
    times: int


@dataclass(slots=True)
class Faults:
    """The script. The oldest rule that applies to a request is used. `spell` makes spellings of a route equal."""

    spell: Callable[[str], str]
    rules: list[_Rule] = field(default_factory=list)

    def add(self, route: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """Let the next `times` requests of a route fail after `skip` good ones.

        `*` is any request except a connection to a `gateway`, `file` a download.
        """
        self.rules.append(_Rule(self.spell(route), fault, skip, times))

    def clear(self) -> None:
        """Let nothing fail any more."""
        self.rules.clear()

    def take(self, route: str) -> Fault | None:
        """Return the fault of this request and count it."""
        for rule in self.rules:
            if rule.route != self.spell(route) and (rule.route != "*" or route == "gateway"):
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            if rule.times:
                rule.times -= 1
                return rule.fault
        return None
