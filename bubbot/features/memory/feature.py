"""The feature: tools, the `<memory>` block of the prompt, a zone on every session's tape, and shared memory."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import date
from pathlib import Path

from bubbot.errors import BubbotError, TapeCorrupt
from bubbot.feature import Apply, Around, Feature, Lifecycle
from bubbot.features.memory.block import render_block
from bubbot.features.memory.commands import memory_tools
from bubbot.features.memory.memories import Memories, MemorySources
from bubbot.features.memory.scopes import read_facts
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import SharedZones
from bubbot.features.memory.views import MemorySnapshot, MemoryView
from bubbot.middleware import CallNext
from bubbot.ports.agents import NO_MEMORY
from bubbot.ports.model import ModelTraits
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.compose import PromptText
from bubbot.settings.loader import Settings
from bubbot.tape.handle import Clock
from bubbot.tape.provenance import Source
from bubbot.tape.query import Span

log = logging.getLogger(__name__)

MEMORY_RULE = "When people tell you lasting facts or preferences, save them with memory_save or memory_daily, unasked."


_EMPTY = PromptText(render_block(()), foreign=())
_EMPTY_SHORT = PromptText("", foreign=())


class MemoryFeature(Memories):
    """The memory of every session, of people and of the workspace, and what it adds to turns and prompts."""

    def __init__(
        self,
        home: Path,
        now: Clock,
        settings: MemorySettings,
        shared: SharedZones | None = None,
        sources: MemorySources | None = None,
    ) -> None:
        super().__init__(settings, shared, sources)
        self._home = home
        self._now = now
        self._pruned: set[str] = set()
        self._pruned_on: date | None = None

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="memory",
            tools=memory_tools(self),
            services=() if self.shared is None else (self.shared,),
            prompt=(
                MEMORY_RULE,
                self.build_block,
            ),
            around=Around(turn=(self.keep_zone, self.quote_evidence)),
            on_merged=() if self.shared is None else (self.shared.follow,),
            lifecycle=Lifecycle(prepare=self._prepare),
        )

    async def keep_zone(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Create and prune the zone of a session in its first turn of a day."""
        today = turn.now().date()
        if today != self._pruned_on:
            self._pruned, self._pruned_on = set(), today
            self.context_tokens.clear()
        if turn.session not in self._pruned:
            self._pruned.add(turn.session)
            zone = self.open_zone(turn)
            with suppress(TapeCorrupt):  # the turn itself reports it
                await zone.ensure()
                await zone.prune()
        return await call_next(turn)

    async def quote_evidence(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Quote what the chat's memory view brings from outside the zones, before the model is asked."""
        try:
            await self.quote_nodes(turn)
        except BubbotError as error:  # an answer without it is better than none
            log.warning("nothing quoted: %s", error, extra={"action": "memory.quote"})
        return await call_next(turn)

    async def build_block(self, turn: Turn, traits: ModelTraits) -> PromptText:
        """Build the `<memory>` block; for small models it is empty if nothing is remembered."""
        if turn.agent.memory == NO_MEMORY:
            return _EMPTY_SHORT
        self.context_tokens[turn.session] = traits.context_tokens
        facts = read_facts(turn)
        only: MemorySnapshot | None = None
        if self.shared is None or self.shared.sees_nothing(turn, facts):
            only = await turn.tape.read(MemoryView())
            if only.is_empty:
                return _EMPTY_SHORT if traits.short_prompt else _EMPTY
        planned = await self.plan(turn, only)
        is_default = planned.view is None
        if (
            is_default
            and only is None
            and self.shared is not None
            and [each.scope for each in planned.memories] == [Scope.CHAT]
        ):
            self.shared.note_unused(turn, facts)
        if traits.short_prompt and all(each.memory.is_empty for each in planned.memories):
            return _EMPTY_SHORT
        shown = {node.scope for node in planned.nodes if node.text}
        entries: dict[str, tuple[Span, ...]] = {}
        for each in planned.memories:
            for tape, spans in each.entries.items() if each.scope in shown else ():
                entries[tape] = (*entries.get(tape, ()), *spans)
        newest = {each.scope: each.newest for each in planned.memories}
        nodes = [node for node in planned.nodes if node.text]
        foreign = [(newest[node.scope], node.provenance) for node in nodes if node.provenance is not Source.OWN]
        return PromptText(render_block(planned.nodes), entries, foreign)

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

    async def _prepare(self, settings: Settings) -> Apply:
        section = settings.section(MemorySettings)

        def apply() -> None:
            self.settings = section
            if self.shared is not None:
                self.shared.forget_unused()

        return apply
