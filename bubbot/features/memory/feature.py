"""The feature: tools, the `<memory>` block of the prompt, a zone on every session's tape, and shared memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path

from bubbot.errors import TapeCorrupt
from bubbot.feature import Apply, Feature
from bubbot.features.memory.block import MAX_SECTION_CHARS, BlockPolicy, ScopedMemory, plan_block, render_block
from bubbot.features.memory.scopes import ZoneAccess, choose_zones, read_facts
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import AnyZone, SharedZone, SharedZones
from bubbot.features.memory.tools import PlannedBlock, memory_tools
from bubbot.features.memory.views import MemoryView
from bubbot.features.memory.zone import MemoryZone
from bubbot.ports.middleware import CallNext
from bubbot.ports.model import ModelTraits
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.compose import PromptText
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN
from bubbot.tape.handle import Clock
from bubbot.tape.provenance import Source
from bubbot.tape.query import Span

MEMORY_SHARE = 8
"""Each section of the memory block takes at most one eighth of a model's context, all of them one half."""
MEMORY_RULE = "When people tell you lasting facts or preferences, save them with memory_save or memory_daily, unasked."


_EMPTY = PromptText(render_block(()), foreign=())
_EMPTY_SHORT = PromptText("", foreign=())


class MemoryFeature:
    """The memory of every session, of people and of the workspace.

    Attributes:
        settings: the current settings.
        shared: the memory of people and of the workspace; None for a bot without it.
    """

    def __init__(self, home: Path, now: Clock, settings: MemorySettings, shared: SharedZones | None = None) -> None:
        self.settings = settings
        self.shared = shared
        self._home = home
        self._now = now
        self._context_tokens: dict[str, int | None] = {}
        """The context of the model that each session asked last, as far as this process knows."""
        self._pruned: set[str] = set()
        self._pruned_on: date | None = None

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="memory",
            tools=memory_tools(self),
            rules=(MEMORY_RULE,),
            services=() if self.shared is None else (self.shared,),
            prompt=(self.build_block,),
            around_turn=(self.keep_zone,),
            on_merged=() if self.shared is None else (self.shared.follow,),
            find_traces=None if self.shared is None else self.shared.find_traces,
            prepare=self._prepare,
        )

    async def keep_zone(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Create and prune the zone of a session in its first turn of a day."""
        today = turn.now().date()
        if today != self._pruned_on:
            self._pruned, self._pruned_on = set(), today
            self._context_tokens.clear()
        if turn.session not in self._pruned:
            self._pruned.add(turn.session)
            zone = self.open_zone(turn)
            with suppress(TapeCorrupt):  # the turn itself reports it
                await zone.ensure()
                await zone.prune()
        return await call_next(turn)

    async def build_block(self, turn: Turn, traits: ModelTraits) -> PromptText:
        """Build the `<memory>` block; for small models it is empty if nothing is remembered."""
        self._context_tokens[turn.session] = traits.context_tokens
        facts = read_facts(turn)
        sees_chat_only = self.shared is None or self.shared.sees_nothing(turn, facts)
        if sees_chat_only and (await turn.tape.read(MemoryView())).is_empty:
            return _EMPTY_SHORT if traits.short_prompt else _EMPTY
        planned = await self.plan(turn)
        if self.shared is not None and len(planned.memories) == 1 and planned.memories[0].scope is Scope.CHAT:
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

    async def plan(self, turn: Turn) -> PlannedBlock:
        """Choose what the model is shown of the memory that the turn may see."""
        access = self.choose(turn)
        scopes = [scope for scope in self.settings.scopes if scope in access.reads]
        memories = [await self._read(turn, scope) for scope in scopes if not await self._is_unused(turn, scope)]
        size = self._context_tokens.get(turn.session)
        section = MAX_SECTION_CHARS if size is None else min(MAX_SECTION_CHARS, size * BYTES_PER_TOKEN // MEMORY_SHARE)
        limit = self.settings.block_tokens * BYTES_PER_TOKEN
        if size is not None:
            limit = min(limit, 4 * section)
        policy = BlockPolicy(self.settings.scopes, self.settings.recent_days, section, limit)
        nodes = plan_block(memories, policy, today=turn.now().astimezone(turn.zone).date())
        return PlannedBlock(tuple(memories), tuple(nodes), access, limit)

    async def _is_unused(self, turn: Turn, scope: Scope) -> bool:
        return scope is not Scope.CHAT and self.shared is not None and await self.shared.is_unused(turn, scope)

    async def _read(self, turn: Turn, scope: Scope) -> ScopedMemory:
        zone = await self.open_scope(turn, scope)
        if isinstance(zone, SharedZone):
            return await zone.read_scoped()
        memory = await zone.read()
        entries = {turn.tape.name: ((memory.open_id, memory.seal_id),)} if memory.seal_id else {}
        return ScopedMemory(scope, memory, entries, (turn.tape.name, memory.seal_id))

    def choose(self, turn: Turn) -> ZoneAccess:
        """Decide which memory the turn may see and change."""
        return choose_zones(read_facts(turn), self.settings.scopes if self.shared else ())

    async def open_scope(self, turn: Turn, scope: Scope) -> AnyZone:
        """Open a memory that the turn has access to (see `choose`)."""
        if scope is Scope.CHAT or self.shared is None:
            return self.open_zone(turn)
        return await self.shared.open_zone(turn, scope, self.settings.retention_days)

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
            if self.shared is not None:
                self.shared.forget_unused()

        return apply
