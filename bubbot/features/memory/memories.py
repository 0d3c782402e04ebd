"""The memories of a bot, as its turns see them."""

from __future__ import annotations

from bubbot.features.memory.block import MAX_SECTION_CHARS, BlockPolicy, PlannedBlock, ScopedMemory, plan_block
from bubbot.features.memory.scopes import ZoneAccess, choose_zones, read_facts
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import AnyZone, SharedZone, SharedZones
from bubbot.features.memory.views import MemorySnapshot
from bubbot.features.memory.zone import MemoryZone
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN

MEMORY_SHARE = 8
"""Each section of the memory block takes at most one eighth of a model's context, all of them one half."""


class Memories:
    """The memory of every session, of people and of the workspace.

    Attributes:
        settings: the current settings.
        shared: the memory of people and of the workspace; None for a bot without it.
        context_tokens: the context of the model that each session asked last, as far as this process knows.
    """

    def __init__(self, settings: MemorySettings, shared: SharedZones | None = None) -> None:
        self.settings = settings
        self.shared = shared
        self.context_tokens: dict[str, int | None] = {}

    async def plan(self, turn: Turn, only: MemorySnapshot | None = None) -> PlannedBlock:
        """Choose what the model is shown of the memory that the turn may see.

        Args:
            turn: the turn.
            only: the chat's own memory, if it is known that nothing else was kept.
        """
        access = self.choose(turn)
        if only is not None:
            memories = [self._of_chat(turn, only)]
        else:
            scopes = [scope for scope in self.settings.scopes if scope in access.reads]
            memories = [await self._read(turn, scope) for scope in scopes if not await self._is_unused(turn, scope)]
        size = self.context_tokens.get(turn.session)
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
        return self._of_chat(turn, await zone.read())

    def _of_chat(self, turn: Turn, memory: MemorySnapshot) -> ScopedMemory:
        entries = {turn.tape.name: ((memory.open_id, memory.seal_id),)} if memory.seal_id else {}
        return ScopedMemory(Scope.CHAT, memory, entries, (turn.tape.name, memory.seal_id))

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
