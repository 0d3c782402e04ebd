"""Faults that a test scripts: per method, from a given occurrence on, a number of times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Effect = Literal["before", "after"]
"""Whether the fault comes before the request took effect, or after it."""

HTML = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n"


@dataclass(frozen=True, slots=True)
class Html:
    """An answer of a proxy in between: a status and a page instead of JSON."""

    status: int = 502
    page: str = HTML
    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Refuse:
    """A refusal in the form of the API, such as 429 with `retry_after` seconds."""

    status: int
    description: str
    retry_after: int | None = None
    effect: Effect = "before"


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection ends without a byte of an answer."""

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


Fault = Html | Refuse | Drop | Cut | Wedge | Slow


@dataclass(slots=True)
class _Rule:
    method: str
    fault: Fault
    skip: int
    times: int


@dataclass(slots=True)
class Faults:
    """The script. The oldest rule that applies to a request is used."""

    rules: list[_Rule] = field(default_factory=list)

    def add(self, method: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """The next `times` requests of a method (`*` is any, `file` a download) fail, after `skip` good ones."""
        self.rules.append(_Rule(method.lower(), fault, skip, times))

    def clear(self) -> None:
        self.rules.clear()

    def take(self, method: str) -> Fault | None:
        """The fault of this request; counts it."""
        for rule in self.rules:
            if rule.method not in ("*", method.lower()):
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            if rule.times:
                rule.times -= 1
                return rule.fault
        return None
