"""The languages of people, as the platform last reported them, derived from the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bubbot.gateway.inbox_views import LanguagesView, place_of
from bubbot.ports.channel import Inbound
from bubbot.tape.handle import TapeHandle


class PersonLanguages:
    """The language of each person of a channel and of the last writer in each chat. It reads the inbox on first use."""

    def __init__(self, tapes: Sequence[TapeHandle]) -> None:
        self._tapes = tapes
        self._known: dict[str, str] = {}
        self._is_read = False
        self._lock = asyncio.Lock()

    def note(self, inbound: Inbound) -> None:
        """Note the language of an accepted message."""
        if language := inbound.sender.language:
            self._known[inbound.sender.id] = self._known[place_of(inbound.chat)] = language

    def forget(self) -> None:
        """Read the inbox again: entries were erased."""
        self._known, self._is_read = {}, False

    async def find(self, *names: str) -> str:
        """Return the first known language of these people and places; empty if none is known."""
        if not self._is_read and not any(name in self._known for name in names):
            async with self._lock:
                await self._read()
        return next((self._known[name] for name in names if name in self._known), "")

    async def _read(self) -> None:
        if not self._is_read:
            for tape in self._tapes:
                self._known = {**await tape.read(LanguagesView()), **self._known}
            self._is_read = True
