"""Faults that a test scripts: per route, from a given occurrence on, a number of times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Effect = Literal["before", "after"]
"""Whether the fault comes before the request took effect, or after it."""
Scope = Literal["user", "global", "shared"]

HTML = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n"


@dataclass(frozen=True, slots=True)
class Html:
    """An answer of a proxy in between: a status and a page instead of JSON."""

    status: int = 502
    page: str = HTML
    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal in the form of the API, such as 500 with code 0 or 403 with code 50013."""

    status: int
    message: str = "Internal Server Error"
    code: int = 0
    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class TooMany:
    """429 with the seconds to wait, as the API says it; `banned` is a block of the network in front of it."""

    retry_after: float
    scope: Scope = "user"
    banned: bool = False
    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection ends without a byte of an answer. aiohttp's client by itself repeats a GET once after that."""

    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer ends in its middle. The request took effect."""


@dataclass(frozen=True, slots=True)
class Wedge:
    """The connection stays open and nothing comes, until the client or the server goes away."""

    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Slow:
    """The answer is right and comes after some seconds; the effect is there at once."""

    seconds: float


Fault = Html | Refuse | TooMany | Drop | Cut | Wedge | Slow


def template(route: str) -> str:
    """A route with its parameters blanked: `POST /channels/{}/messages`."""
    return re.sub(r"\{[^}]*\}", "{}", route)


@dataclass(slots=True)
class _Rule:
    route: str
    fault: Fault
    skip: int
    times: int


@dataclass(slots=True)
class Faults:
    """The script. The oldest rule that applies to a request is used."""

    rules: list[_Rule] = field(default_factory=list)

    def add(self, route: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """The next `times` requests of a route fail after `skip` good ones.

        `*` is any request but a connection to the gateway, `file` a download, `gateway` such a connection.
        """
        self.rules.append(_Rule(template(route), fault, skip, times))

    def clear(self) -> None:
        """Nothing fails any more."""
        self.rules.clear()

    def take(self, route: str) -> Fault | None:
        """The fault of this request; counts it."""
        for rule in self.rules:
            if rule.route != route and (rule.route != "*" or route == "gateway"):
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            if rule.times:
                rule.times -= 1
                return rule.fault
        return None
