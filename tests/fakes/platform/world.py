"""What every platform's world has: a clock, what people saw in order, and an event for those who wait."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

Mark = Literal["message", "edit", "delete", "typing", "reaction", "service"]
C = TypeVar("C")
"""A chat of the platform."""


@dataclass(slots=True)
class Clock:
    """The server's time, which a test can move forward."""

    moved: float = 0.0

    def now(self) -> float:
        return time.time() + self.moved

    def seconds(self) -> int:
        return int(self.now())

    def stamp(self) -> str:
        """The time in ISO form, as Discord writes it."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="microseconds")

    def advance(self, seconds: float) -> None:
        self.moved += seconds


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that people in a chat see, in order; the transcript is made of it. `chat` is the chat's key."""

    time: float
    chat: Any
    what: Mark
    who: str
    text: str
    message: int | None = None


@dataclass(kw_only=True)
class World(ABC, Generic[C]):
    """Everything there is on a platform. It knows nothing of HTTP."""

    clock: Clock = field(default_factory=Clock)
    happenings: list[Happening] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @abstractmethod
    def key(self, chat: C) -> Hashable:
        """What happenings name a chat by."""

    @abstractmethod
    def title(self, key: Any) -> str:
        """Name the chat of a key in the transcript."""

    def number(self, message: int) -> int:
        """Return the number of a message in the transcript."""
        return message

    def remark(self, happening: Happening) -> str:
        """Return what the transcript adds to the line of a happening."""
        return ""

    def happened(self, chat: C, what: Mark, who: str, text: str, message: int | None = None) -> None:
        """Record what people in a chat see from now on."""
        self.happenings.append(Happening(self.clock.now(), self.key(chat), what, who, text, message))
        self.changed.set()
