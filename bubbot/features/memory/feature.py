"""The feature: tools, the `<memory>` block of the prompt, and a zone on every session's tape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path

from bubbot.errors import TapeCorrupt
from bubbot.feature import Apply, Feature
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.tools import memory_tools
from bubbot.features.memory.views import MAX_SECTION_CHARS, build_memory_block
from bubbot.features.memory.zone import MemoryZone
from bubbot.ports.middleware import CallNext
from bubbot.ports.model import ModelTraits
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN
from bubbot.tape.handle import Clock

MEMORY_SHARE = 8
"""Each section of the memory block takes at most one eighth of a model's context."""
MEMORY_RULE = "When people tell you lasting facts or preferences, save them with memory_save or memory_daily, unasked."


class MemoryFeature:
    """The memory of every session.

    Attributes:
        settings: the current settings.
    """

    def __init__(self, home: Path, now: Clock, settings: MemorySettings) -> None:
        self.settings = settings
        self._home = home
        self._now = now
        self._pruned: set[str] = set()
        self._pruned_on: date | None = None

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="memory",
            tools=memory_tools(lambda: self.settings),
            rules=(MEMORY_RULE,),
            prompt=(self.build_block,),
            around_turn=(self.keep_zone,),
            prepare=self._prepare,
        )

    async def keep_zone(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Create and prune the zone of a session in its first turn of a day."""
        today = turn.now().date()
        if today != self._pruned_on:
            self._pruned, self._pruned_on = set(), today
        if turn.session not in self._pruned:
            self._pruned.add(turn.session)
            zone = self.open_zone(turn)
            with suppress(TapeCorrupt):  # the turn itself reports it
                await zone.ensure()
                await zone.prune()
        return await call_next(turn)

    async def build_block(self, turn: Turn, traits: ModelTraits) -> str:
        """Build the `<memory>` block; for small models it is empty if nothing is remembered."""
        zone = self.open_zone(turn)
        snapshot = await zone.read()
        if traits.short_prompt and not (snapshot.long_term or snapshot.dailies):
            return ""
        size = traits.context_tokens
        limit = MAX_SECTION_CHARS if size is None else min(MAX_SECTION_CHARS, size * BYTES_PER_TOKEN // MEMORY_SHARE)
        return build_memory_block(snapshot, today=zone.today(), recent_days=self.settings.recent_days, limit=limit)

    def open_zone(self, turn: Turn) -> MemoryZone:
        """Open the zone of the turn's session."""
        return MemoryZone(turn.tape, now=turn.now, zone=turn.zone, retention_days=self.settings.retention_days)

    async def export(self, turn: Turn) -> str:
        """Write the memory of the turn's session to its own file under `exports/` and return the path."""
        folder = self._home / "exports"
        folder.mkdir(mode=0o700, exist_ok=True)
        safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in turn.session)[:80]
        path = folder / f"memory-{safe}-{self._now():%Y%m%dT%H%M%S%f}.md"
        path.write_text(await self.open_zone(turn).export(), encoding="utf-8")
        return str(path)

    async def start_again(self, turn: Turn) -> None:
        """Create the zone on a tape that was just reset: a session has one from its first entry on."""
        await self.open_zone(turn).ensure()

    async def _prepare(self, settings: MemorySettings) -> Apply:
        return self._apply_later(settings)

    def _apply_later(self, settings: MemorySettings) -> Callable[[], None]:
        def apply() -> None:
            self.settings = settings

        return apply
