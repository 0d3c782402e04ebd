"""The assembly of a memory view: its nodes share a budget, by weight or as a package chooses."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date

from msgspec import Struct, structs

from bubbot.errors import ConfigError
from bubbot.features.memory.block import BlockNode, BlockPolicy, ScopedMemory, plan_block
from bubbot.features.memory.nodes import NodeReading, ShownAlready
from bubbot.features.memory.policy import Claim, MemoryPolicy, PolicyInUse, share_budget
from bubbot.features.memory.scopes import Denial, ZoneAccess
from bubbot.features.memory.settings import Scope
from bubbot.ports.memory import MemoryCandidate, MemoryNode
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN, estimate_tokens
from bubbot.tape.events import EvidenceNode, EvidenceQuoted
from bubbot.tape.handle import spans_of
from bubbot.tape.query import parse_moment

log = logging.getLogger(__name__)


class ZoneReading(Struct, frozen=True):
    """A zone of a memory view.

    Attributes:
        node: the node that names it.
        scope: whose memory it is.
        memory: what it holds; None if it may not be shown here.
        denial: why it may not.
    """

    node: MemoryNode
    scope: Scope
    memory: ScopedMemory | None = None
    denial: Denial | None = None


class NodeShare(Struct, frozen=True):
    """What a node brings to a memory view.

    Attributes:
        node: the node.
        room: the tokens that it got.
        reading: what was read of it; None for a zone.
        zone: the zone; None for other nodes.
        chosen: what is shown of it, oldest first; empty for a zone.
        parts: the parts of a zone, shown and left out.
        no_room: how many candidates had no room.
        not_chosen: how many candidates a strategy did not choose.
    """

    node: MemoryNode
    room: int
    reading: NodeReading | None = None
    zone: ZoneReading | None = None
    chosen: tuple[MemoryCandidate, ...] = ()
    parts: tuple[BlockNode, ...] = ()
    no_room: int = 0
    not_chosen: int = 0

    @property
    def tokens(self) -> int:
        """The tokens that it takes."""
        return sum(each.tokens for each in self.chosen) + sum(map(_part_tokens, self.parts))


class AssembledView(Struct, frozen=True):
    """A memory view, assembled from its nodes.

    Attributes:
        limit: the tokens that it may have.
        shares: what each node brings, in the order of the policy.
        order: the parts of zones that are shown, in their order, then those that are left out.
    """

    limit: int
    shares: tuple[NodeShare, ...]
    order: tuple[BlockNode, ...]

    @property
    def tokens(self) -> int:
        """The tokens that it takes."""
        return sum(share.tokens for share in self.shares)


class PlannedBlock(Struct, frozen=True):
    """The memory block of a turn's next request, and what it rests on.

    Attributes:
        memories: what the turn may see, by scope.
        nodes: what of it is shown, and what is left out.
        access: why the turn sees no more.
        limit: characters that it may have.
        use: the policy.
        view: what the policy shows; None for the zones without one.
    """

    memories: tuple[ScopedMemory, ...]
    nodes: tuple[BlockNode, ...]
    access: ZoneAccess
    limit: int
    use: PolicyInUse
    view: AssembledView | None = None


class ViewLimits(Struct, frozen=True):
    """The limits of a memory view.

    Attributes:
        tokens: what it may have.
        section_chars: characters that a part of a zone may have.
        recent_days: days before today whose notes count as recent, if a node does not say otherwise.
        today: the date in the chat's time zone.
    """

    tokens: int
    section_chars: int
    recent_days: int
    today: date


def assemble(
    policy: MemoryPolicy, zones: Sequence[ZoneReading], readings: Sequence[NodeReading], limits: ViewLimits
) -> AssembledView:
    """Assemble a memory view.

    Zones and what is quoted share the budget by weight. The zones' part does not depend on what is quoted, or the system
    prompt would change with each message; what they leave is for the quotations.

    Raises:
        ConfigError: the package that chooses failed.
    """
    if policy.choose is not None:
        return _choose(policy, zones, readings, limits)
    zone_weight = sum(node.weight for node in policy.nodes if node.kind == "zone")
    all_weight = sum(node.weight for node in policy.nodes)
    whole = [_plan_zone(zone, limits) for zone in zones]
    claims = [_claim(zone.node, sum(map(_whole_tokens, parts))) for zone, parts in zip(zones, whole, strict=True)]
    rooms = share_budget(int(limits.tokens * zone_weight / all_weight), claims)
    shares = [
        NodeShare(zone.node, room, zone=zone, parts=tuple(_plan_zone(zone, limits, room)))
        for zone, room in zip(zones, rooms, strict=True)
    ]
    left = limits.tokens - sum(share.tokens for share in shares)
    claims = [_claim(each.node, sum(one.tokens for one in each.candidates)) for each in readings]
    shares += [_fill(reading, room) for reading, room in zip(readings, share_budget(left, claims), strict=True)]
    return _build_view(policy, shares, limits)


def _build_view(policy: MemoryPolicy, shares: Sequence[NodeShare], limits: ViewLimits) -> AssembledView:
    places = {node: place for place, node in enumerate(policy.nodes)}
    ordered = sorted(shares, key=lambda share: places[share.node])
    parts = [part for share in ordered for part in share.parts]
    order = [*(part for part in parts if part.text), *(part for part in parts if not part.text)]
    return AssembledView(limits.tokens, tuple(ordered), tuple(order))


def _claim(node: MemoryNode, wanted: int) -> Claim:
    return Claim(node.weight, wanted if node.max_tokens is None else min(wanted, node.max_tokens))


def _plan_zone(zone: ZoneReading, limits: ViewLimits, room: int | None = None) -> list[BlockNode]:
    """Plan the parts of a zone; without a room each as long as a part may be."""
    if zone.memory is None:
        return []
    days = limits.recent_days if zone.node.max_age_days is None else zone.node.max_age_days
    chars = 4 * limits.section_chars if room is None else room * BYTES_PER_TOKEN
    policy = BlockPolicy((zone.scope,), days, limits.section_chars, chars)
    return plan_block([zone.memory], policy, today=limits.today)


def _part_tokens(part: BlockNode) -> int:
    return estimate_tokens(part.text) if part.text else 0


def _whole_tokens(part: BlockNode) -> int:
    """Estimate what a part needs to be shown whole; characters are counted as the block counts them."""
    return part.total // BYTES_PER_TOKEN + 1 if part.text else 0


def _fill(reading: NodeReading, room: int) -> NodeShare:
    """Fill the room of a node with its first candidates; once one does not fit, the rest is left out."""
    chosen, used = list[MemoryCandidate](), 0
    for candidate in reading.candidates:
        used += candidate.tokens
        if used > room:
            break
        chosen.append(candidate)
    no_room = len(reading.candidates) - len(chosen)
    return NodeShare(reading.node, room, reading, chosen=_by_age(chosen), no_room=no_room)


def _by_age(chosen: Sequence[MemoryCandidate]) -> tuple[MemoryCandidate, ...]:
    return tuple(sorted(chosen, key=lambda each: each.id))


# A package chooses


def _choose(
    policy: MemoryPolicy, zones: Sequence[ZoneReading], readings: Sequence[NodeReading], limits: ViewLimits
) -> AssembledView:
    assert policy.choose is not None
    parts: dict[int, BlockNode] = {}
    candidates: list[MemoryCandidate] = []
    planned = [(zone, _plan_zone(zone, limits)) for zone in zones]
    for zone, found in planned:
        for part in found:
            if part.text and zone.memory is not None:
                candidate = _candidate_of(zone.node, zone.memory, part)
                parts[id(candidate)] = part
                candidates.append(candidate)
    candidates += [candidate for reading in readings for candidate in reading.candidates]
    try:
        named = list(policy.choose(tuple(candidates), limits.tokens))
    except (Exception, SystemExit) as error:  # a package is third-party code
        log.warning("memory strategy of %s failed", policy.name, exc_info=error, extra={"action": "memory.strategy"})
        raise ConfigError(f"it failed with {type(error).__name__}: {error}") from error
    given = {id(candidate) for candidate in candidates}
    chosen = list({id(each): each for each in named if id(each) in given}.values())
    kept, no_room, left = set[int](), set[int](), limits.tokens
    rooms = {node: limits.tokens if node.max_tokens is None else node.max_tokens for node in policy.nodes}
    for candidate in chosen:
        if candidate.tokens <= min(left, rooms[candidate.node]):
            kept.add(id(candidate))
            left -= candidate.tokens
            rooms[candidate.node] -= candidate.tokens
        else:
            no_room.add(id(candidate))
    shares = [
        NodeShare(zone.node, limits.tokens, zone=zone, parts=tuple(_mark(found, parts, kept, no_room)))
        for zone, found in planned
    ]
    for reading in readings:
        shown = [each for each in reading.candidates if id(each) in kept]
        cut = sum(id(each) in no_room for each in reading.candidates)
        rest = len(reading.candidates) - len(shown) - cut
        shares.append(
            NodeShare(reading.node, limits.tokens, reading, chosen=_by_age(shown), no_room=cut, not_chosen=rest)
        )
    view = _build_view(policy, shares, limits)
    first = [parts[id(each)] for each in chosen if id(each) in kept and id(each) in parts]
    return structs.replace(view, order=(*first, *(part for part in view.order if not part.text)))


def _mark(
    found: Sequence[BlockNode], parts: dict[int, BlockNode], kept: set[int], no_room: set[int]
) -> list[BlockNode]:
    """Leave out the parts of a zone that were not chosen, or had no room."""
    ids = {id(part): candidate for candidate, part in parts.items()}
    marked = []
    for part in found:
        candidate = ids.get(id(part))
        if candidate is None or candidate in kept:
            marked.append(part)
        else:
            marked.append(structs.replace(part, text="", left_out="size" if candidate in no_room else "choice"))
    return marked


def _candidate_of(node: MemoryNode, memory: ScopedMemory, part: BlockNode) -> MemoryCandidate:
    tape, number = memory.newest
    day = max(part.days, default="")
    tokens = estimate_tokens(part.text)
    return MemoryCandidate(node, tape, number, day, "you", part.text, tokens, str(part.part), part.provenance)


# What is quoted


def build_evidence(
    policy: MemoryPolicy, view: AssembledView, message: int, shown: ShownAlready
) -> EvidenceQuoted | None:
    """Build the fact about what is quoted beside a message; None for nothing. What the window shows is not repeated."""
    nodes = []
    for share in view.shares:
        reading = share.reading
        if reading is None:
            continue
        fresh = [each for each in share.chosen if not shown.is_quoted(reading.tape, each.id)]
        if not fresh:
            continue
        spans = tuple(spans_of([each.id for each in fresh]))
        title = _write_title(share.node, reading.session)
        if reading.tape:
            until = max((each.date for each in fresh), key=_moment_of)
            nodes.append(
                EvidenceNode(title=title, session=reading.session, elsewhere=((reading.tape, spans),), until=until)
            )
        else:
            nodes.append(EvidenceNode(title=title, entries=spans))
    return EvidenceQuoted(message, f"memory.views.{policy.name}", tuple(nodes)) if nodes else None


def _moment_of(text: str) -> float:
    moment = parse_moment(text)
    return moment.timestamp() if moment else 0.0


def _write_title(node: MemoryNode, session: str) -> str:
    """Say for the model where quotations are from."""
    where = f"another chat, {session}" if session else "this chat"
    if node.kind == "tape":
        return where
    return f"the {node.kind} {node.name} of {where}"
