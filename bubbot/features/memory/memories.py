"""The memories of a bot, as its turns see them."""

from __future__ import annotations

from datetime import date, datetime, tzinfo
from functools import partial

from msgspec import Struct, field

from bubbot.errors import AccessError, ConfigError
from bubbot.feature import ReadSession
from bubbot.features.memory.assembly import PlannedBlock, ViewLimits, ZoneReading, assemble, build_evidence
from bubbot.features.memory.block import MAX_SECTION_CHARS, BlockPolicy, ScopedMemory, plan_block
from bubbot.features.memory.nodes import (
    FindCurrentTopic,
    FindTopic,
    NodeReader,
    NodeReading,
    OpenSession,
    ShownAlready,
    read_shown,
)
from bubbot.features.memory.policy import (
    ChosenView,
    MemoryPolicy,
    PolicyInUse,
    choose_policy,
    list_views,
    scope_of,
)
from bubbot.features.memory.scopes import ZoneAccess, choose_zones, read_facts
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import AnyZone, SharedZone, SharedZones
from bubbot.features.memory.views import MemorySnapshot
from bubbot.features.memory.zone import MemoryZone
from bubbot.ports.agents import NO_MEMORY, THE_BOT, Agent
from bubbot.ports.memory import ZONES_VIEW, InstalledMemory, MemoryNode
from bubbot.ports.turn import Turn
from bubbot.runtime.context.evidence import find_evidence
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN
from bubbot.tape.entry import Kind
from bubbot.tape.events import EVIDENCE_EVENT
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import TapeQuery

MEMORY_SHARE = 8
"""Each section of the memory block takes at most one eighth of a model's context, all of them one half."""


async def read_no_session(turn: Turn, source: str) -> TapeHandle:
    """Refuse to open another session, for a bot without others."""
    raise AccessError(f"{turn.session} may not read {source}")


class MemorySources(Struct, frozen=True):
    """What memory views are assembled from, besides the zones.

    Attributes:
        read_session: opens another session, by grant.
        find_topic: returns the id ranges of a topic; None if nothing knows topics.
        find_current_topic: returns the name of the topic that a chat is on.
        installed: what packages offer.
    """

    read_session: ReadSession = read_no_session
    find_topic: FindTopic | None = None
    find_current_topic: FindCurrentTopic | None = None
    installed: InstalledMemory = field(default_factory=InstalledMemory)

    def make_reader(
        self,
        tape: TapeHandle,
        now: datetime,
        zone: tzinfo,
        open_session: OpenSession,
        *,
        replies_elsewhere: bool = False,
    ) -> NodeReader:
        """Make the reader of the nodes of a chat."""
        return NodeReader(
            tape,
            now=now,
            zone=zone,
            open_session=open_session,
            find_topic=self.find_topic,
            find_current_topic=self.find_current_topic,
            replies_elsewhere=replies_elsewhere,
        )


class PinnedNodes(Struct, frozen=True):
    """What the nodes of a policy brought when the turn first asked: its requests show the same.

    Attributes:
        policy: the name of the policy.
        readings: what each node brought.
        shown: what the window showed then.
    """

    policy: str
    readings: tuple[NodeReading, ...]
    shown: ShownAlready


class Memories:
    """The memory of every session, of people and of the workspace.

    Attributes:
        settings: the current settings.
        shared: the memory of people and of the workspace; None for a bot without it.
        sources: what else memory views are assembled from.
        context_tokens: the context of the model that each session asked last, as far as this process knows.
    """

    def __init__(
        self, settings: MemorySettings, shared: SharedZones | None = None, sources: MemorySources | None = None
    ) -> None:
        self.settings = settings
        self.shared = shared
        self.sources = sources or MemorySources()
        self.context_tokens: dict[str, int | None] = {}

    async def find_policy(self, tape: TapeHandle, agent: Agent = THE_BOT) -> PolicyInUse:
        """Find the policy of an agent, or else of the chat. Without views there is nothing to choose, and nothing is read."""
        return await find_policy_of(tape, self.settings, self.sources.installed, agent.memory)

    def list_views(self) -> tuple[str, ...]:
        """List the names of the memory views that there are."""
        return list_views(self.settings, self.sources.installed)

    async def plan(self, turn: Turn, only: MemorySnapshot | None = None) -> PlannedBlock:
        """Choose what the model is shown of the memory that the turn may see.

        Args:
            turn: the turn.
            only: the chat's own memory, if it is known that nothing else was kept.
        """
        use = await self.find_policy(turn.tape, turn.agent)
        if not use.policy.is_default:
            return await self._plan_view(turn, use)
        return await self._plan_zones(turn, use, only)

    async def _plan_zones(self, turn: Turn, use: PolicyInUse, only: MemorySnapshot | None = None) -> PlannedBlock:
        access = self.choose(turn)
        if only is not None:
            memories = [self._of_chat(turn, only)]
        else:
            scopes = [scope for scope in self.settings.scopes if scope in access.reads]
            memories = [await self._read(turn, scope) for scope in scopes if not await self._is_unused(turn, scope)]
        section, limit = self._find_limits(turn, self.settings.block_tokens)
        policy = BlockPolicy(self.settings.scopes, self.settings.recent_days, section, limit)
        nodes = plan_block(memories, policy, today=_today(turn))
        return PlannedBlock(tuple(memories), tuple(nodes), access, limit, use)

    async def _plan_view(self, turn: Turn, use: PolicyInUse) -> PlannedBlock:
        """Assemble the view of a policy; one that fails gives the zones."""
        policy, access = use.policy, self.choose(turn)
        zones = [await self._read_zone(turn, node, access) for node in policy.nodes if node.kind == "zone"]
        section, chars = self._find_limits(turn, policy.max_tokens or self.settings.block_tokens)
        limits = ViewLimits(chars // BYTES_PER_TOKEN, section, self.settings.recent_days, _today(turn))
        readings = (await self._pin_nodes(turn, policy)).readings if policy.quotes else ()
        try:
            view = assemble(policy, zones, readings, limits)
        except ConfigError as error:
            failed = PolicyInUse(MemoryPolicy(), "failed", use.wanted, str(error))
            return await self._plan_zones(turn, failed)
        memories = tuple(zone.memory for zone in zones if zone.memory is not None)
        return PlannedBlock(memories, view.order, access, chars, use, view)

    def _find_limits(self, turn: Turn, tokens: int) -> tuple[int, int]:
        """Return the characters that a section, and all of memory, may have."""
        size = self.context_tokens.get(turn.session)
        section = MAX_SECTION_CHARS if size is None else min(MAX_SECTION_CHARS, size * BYTES_PER_TOKEN // MEMORY_SHARE)
        limit = tokens * BYTES_PER_TOKEN
        return section, limit if size is None else min(limit, 4 * section)

    async def _read_zone(self, turn: Turn, node: MemoryNode, access: ZoneAccess) -> ZoneReading:
        scope = scope_of(node)
        if scope not in access.reads:
            return ZoneReading(node, scope, denial=access.unread[scope])
        return ZoneReading(node, scope, await self._read(turn, scope))

    async def quote_nodes(self, turn: Turn) -> None:
        """Append the fact that names what is quoted beside the newest message of the turn, if its policy quotes anything.

        Call it before the first model call of the turn.
        """
        if not turn.message_ids or turn.agent.memory == NO_MEMORY:
            return
        use = await self.find_policy(turn.tape, turn.agent)
        if not use.policy.quotes:
            return
        message = turn.message_ids[-1]
        query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(EVIDENCE_EVENT,), newest=True, limit=1)
        (facts,) = await turn.tape.fetch([query])
        if any(quoted.message == message for _, quoted in find_evidence(facts)):  # an interrupted attempt has chosen
            return
        self.context_tokens[turn.session] = (await turn.runner.find_model(turn)).traits.context_tokens
        planned = await self._plan_view(turn, use)
        if planned.view is None:
            return
        shown = (await self._pin_nodes(turn, use.policy)).shown
        evidence = build_evidence(use.policy, planned.view, message, shown)
        if evidence is not None:
            await turn.tape.append([evidence.to_entry()])

    async def _pin_nodes(self, turn: Turn, policy: MemoryPolicy) -> PinnedNodes:
        """Return what the nodes outside the zones brought when the turn first asked."""
        pinned: PinnedNodes | None = turn.metadata.get(PinnedNodes)
        if pinned is None or pinned.policy != policy.name:
            reader = self.sources.make_reader(
                turn.tape,
                turn.now(),
                turn.zone,
                partial(self.sources.read_session, turn),
                replies_elsewhere=turn.replies_elsewhere,
            )
            shown = await read_shown(turn.tape)
            readings = [await reader.read(node, shown) for node in policy.nodes if node.kind != "zone"]
            turn.metadata[PinnedNodes] = pinned = PinnedNodes(policy.name, tuple(readings), shown)
        return pinned

    async def _is_unused(self, turn: Turn, scope: Scope) -> bool:
        return scope is not Scope.CHAT and self.shared is not None and await self.shared.is_unused(turn, scope)

    async def _read(self, turn: Turn, scope: Scope) -> ScopedMemory:
        zone = await self.open_scope(turn, scope)
        if isinstance(zone, SharedZone):
            return await zone.read_scoped()
        return self._of_chat(turn, await zone.read())

    def _of_chat(self, turn: Turn, memory: MemorySnapshot) -> ScopedMemory:
        return scope_chat(turn.tape.name, memory)

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


async def find_policy_of(
    tape: TapeHandle, settings: MemorySettings, installed: InstalledMemory, chosen: str = ""
) -> PolicyInUse:
    """Find the policy that was chosen, or else that of the chat with a tape."""
    if chosen:
        return choose_policy(chosen, settings, installed)
    if list_views(settings, installed) == (ZONES_VIEW,) and settings.view == ZONES_VIEW:
        return PolicyInUse(MemoryPolicy())
    return choose_policy(await tape.read(ChosenView()), settings, installed)


def scope_chat(tape: str, memory: MemorySnapshot) -> ScopedMemory:
    """Return the memory of the chat with a tape."""
    entries = {tape: ((memory.open_id, memory.seal_id),)} if memory.seal_id else {}
    return ScopedMemory(Scope.CHAT, memory, entries, (tape, memory.seal_id))


def _today(turn: Turn) -> date:
    return turn.now().astimezone(turn.zone).date()
