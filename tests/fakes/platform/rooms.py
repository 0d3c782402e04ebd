"""A chat in the hands of its people, as far as it is the same on every platform."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

U = TypeVar("U")
"""A user of the platform."""


class Room(ABC, Generic[U]):
    """A chat with what people do and see in it."""

    __slots__ = ()

    @property
    @abstractmethod
    def id(self) -> int:
        """The id of the chat, as the platform tells it to bots."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """What happenings name the chat by."""

    @abstractmethod
    def write(self, text: str) -> None:
        """Let the person of a direct chat say something."""

    @abstractmethod
    def texts(self, by: U | None = None) -> list[str]:
        """Return the texts that stand in the chat now, oldest first, of one sender or of all."""

    @abstractmethod
    def text_of(self, message: int) -> str:
        """Return what a message says now; empty if it is gone."""
