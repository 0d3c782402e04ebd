"""What `memory why` and `memory view` return: the policy of a chat, and what each node brought to the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from bubbot.errors import AccessError
from bubbot.features.memory.assembly import NodeShare, PlannedBlock
from bubbot.features.memory.block import BlockNode, ScopedMemory
from bubbot.features.memory.policy import PolicyOrigin
from bubbot.features.memory.results import cite, name_zone
from bubbot.features.memory.scopes import ZONE_TAPES
from bubbot.features.memory.settings import Scope
from bubbot.formatting import clean
from bubbot.runtime.context.selectors import format_sender
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN, estimate_tokens
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import TURN_START, TurnStart
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, Span, TapeQuery, format_date
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.command import Caller

MAX_LISTED_ENTRIES = 20
"""Entries of one node that a chat or a shell lists; `--json` has all."""


class ShownEntry(Struct, frozen=True):
    """An entry that the model is shown, or a part of a zone.

    Attributes:
        entry: its number; of a part of a zone that of its newest version.
        date: ISO 8601; empty if unknown.
        author: who wrote it; empty if unknown.
        tokens: what it takes.
        part: the part of a zone: `long_term`, `today`, `ahead` or `recent`; empty for other nodes.
        days: the days of its notes.
        left_out: why not all of a part is shown: `age`, `size` or `choice`; empty if all is.
        provenance: whose words it is: `own`, `people` or `world`.
    """

    entry: int
    date: str
    author: str
    tokens: int
    part: str = ""
    days: tuple[str, ...] = ()
    left_out: str = ""
    provenance: str = "own"


class ShownNode(Struct, frozen=True):
    """What a node brought.

    Attributes:
        node: the node, as settings write it.
        weight: its claim against the others.
        room: the tokens that it may have.
        tokens: what it takes.
        session: the other session that it reads; empty for the own one.
        refusal: why it brings nothing: `off`, `group`, `elsewhere`, `person` or `role` for a zone, `grant`, `elsewhere`,
            `missing` or `main_line` for another node; empty if it was read.
        brought: what is shown.
        too_old: how many entries are too old.
        in_window: how many the window shows anyway.
        no_room: how many had no room.
        not_chosen: how many a strategy did not choose.
    """

    node: str
    weight: float
    room: int
    tokens: int
    session: str = ""
    refusal: str = ""
    brought: tuple[ShownEntry, ...] = ()
    too_old: int = 0
    in_window: int = 0
    no_room: int = 0
    not_chosen: int = 0


class MemoryWhy(Struct, frozen=True):
    """What of memory the model is shown, by which policy.

    Attributes:
        session: the session.
        view: the memory view.
        origin: `configured`, `chosen` by the chat, `gone` if the chosen one is not there, or `failed`.
        wanted: the view that was to apply.
        problem: why that one does not apply; empty if it does.
        tokens: what is shown.
        limit: the tokens that it may have.
        nodes: what each node brought, in the order of the view.
    """

    is_text: ClassVar = True
    session: str
    view: str
    origin: PolicyOrigin
    wanted: str
    problem: str
    tokens: int
    limit: int
    nodes: tuple[ShownNode, ...]


class MemoryInPrompt(MemoryWhy, frozen=True, kw_only=True):
    """The same with what is told of it.

    Attributes:
        planned: the block of the next request.
        recent_days: the days before today whose notes are shown.
        zone: the time zone of the chat.
    """

    planned: PlannedBlock
    recent_days: int
    zone: tzinfo

    def describe(self, caller: Caller) -> str:
        """Name the policy, then write a line for each part and each entry, and what is left out."""
        texts, names = caller.texts, {"name": self.view, "wanted": clean(self.wanted), "problem": self.problem}
        head = texts.say(f"why_view_{self.origin}", **names)
        if self.planned.view is None:
            return "\n".join([head, *self._write_zones(texts)])
        budget = texts.say("why_budget", tokens=self.tokens, limit=self.limit)
        lines = [line for node in self.nodes for line in self._write_node(node, texts)]
        return "\n".join([head, budget, *lines])

    def _write_zones(self, texts: Texts) -> Iterator[str]:
        """Write a line for each part of the zones."""
        planned = self.planned
        shown = [node for node in planned.nodes if node.text]
        yield texts.say("why_memory", number=sum(len(node.text) for node in shown), limit=planned.limit)
        cited = {each.scope: cite(each.scope, each.memory, texts) for each in planned.memories}
        brought = {(node.node, each.part): each for node in self.nodes for each in node.brought}
        for node in shown:
            count = texts.say("lines", count=len(node.text.splitlines()))
            yield texts.say(
                "why_node",
                part=_name_part(node.part, node.days, node.scope, texts),
                lines=count,
                cited=cited[node.scope],
            )
            entry = brought[_zone_label(node.scope), str(node.part)]
            author, date = (
                clean(entry.author) or texts.say("why_nobody"),
                format_date(entry.date, self.zone, undated="-"),
            )
            yield texts.say("why_written", author=author, date=date, count=entry.tokens)
            if node.left_out:
                yield texts.say(
                    "why_cut_node", part=_name_part(node.part, node.days, node.scope, texts), number=node.total
                )
        if not shown:
            yield texts.say("why_no_node")
        for node in [node for node in planned.nodes if not node.text]:
            reason = texts.say(f"why_left_{node.left_out}", count=self.recent_days)
            yield texts.say("why_left_out", part=_name_part(node.part, node.days, node.scope, texts), reason=reason)
        for scope, denial in planned.access.unread.items():
            reason = texts.say(f"zone_unread_{denial}", zone=name_zone(scope, texts))
            yield texts.say("why_unread", denial=reason)
        for each in planned.memories:
            if each.scope is not Scope.CHAT:
                for tape, spans in each.entries.items():
                    yield texts.say("why_entries", tape=tape, spans=_write_spans(spans))

    def _write_node(self, node: ShownNode, texts: Texts) -> Iterator[str]:
        weight = f"{node.weight:g}"
        yield texts.say("why_share", node=clean(node.node), weight=weight, tokens=node.tokens)
        if node.refusal:
            yield texts.say("why_nothing", reason=self._write_refusal(node, texts))
        for each in node.brought[-MAX_LISTED_ENTRIES:]:
            yield self._write_entry(each, node.node, texts)
        if (more := len(node.brought) - MAX_LISTED_ENTRIES) > 0:
            yield texts.say("why_more", count=more)
        for reason in ("too_old", "in_window", "no_room", "not_chosen"):
            if count := getattr(node, reason):
                yield texts.say(f"why_skipped_{reason}", count=count, room=node.room)
        if not (node.brought or node.refusal or node.too_old or node.in_window or node.no_room or node.not_chosen):
            yield texts.say("why_nothing", reason=texts.say("why_empty"))

    def _write_refusal(self, node: ShownNode, texts: Texts) -> str:
        if node.node.startswith("zone "):
            return texts.say(f"zone_unread_{node.refusal}", zone=name_zone(_scope_in(node.node), texts))
        return texts.say(f"why_refused_{node.refusal}", session=clean(node.session))

    def _write_entry(self, entry: ShownEntry, node: str, texts: Texts) -> str:
        date = format_date(entry.date, self.zone, undated=texts.say("undated"))
        author = clean(entry.author) or texts.say("why_nobody")
        number, tokens = entry.entry, entry.tokens
        if not entry.part:
            return texts.say("why_entry", entry=number, date=date, author=author, count=tokens)
        part = _name_part(entry.part, entry.days, _scope_in(node), texts)
        return texts.say("why_part", part=part, entry=number, date=date, author=author, count=tokens)


class MemoryViewInUse(Struct, frozen=True, kw_only=True):
    """The memory view of a chat.

    Attributes:
        variant: `configured`, `chosen` earlier, `gone` if the chosen one is not there, `failed` if it cannot be used, or
            `changed` now.
        name: the view.
        applies: the one that the model is shown.
        problem: why that is another one; empty if it is not.
        choices: what each view is assembled from, by its name; empty after a change.
    """

    variant: str
    name: str
    applies: str
    problem: str = ""
    choices: Mapping[str, str] = {}

    def describe(self, caller: Caller) -> str:
        """Say it, with a line for each choice."""
        texts = caller.texts
        values = {"name": clean(self.name), "applies": self.applies, "problem": self.problem}
        lines = [texts.say(f"MemoryViewInUse.{self.variant}", **values)]
        for name, nodes in self.choices.items():
            lines.append(f"- {name}: {clean(nodes)}" if nodes else f"- {name}")
        return "\n".join([*lines, texts.say("view_hint")] if self.choices else lines)


async def explain_memory(tape: TapeHandle, planned: PlannedBlock, *, recent_days: int, zone: tzinfo) -> MemoryInPrompt:
    """Explain a planned block: who wrote what it shows, and when."""
    writers = {each.scope: await _find_writer(tape, each) for each in planned.memories}
    if planned.view is None:
        nodes = [
            ShownNode(_zone_label(each.scope), 1, limit, sum(one.tokens for one in brought), brought=brought)
            for limit in [planned.limit // BYTES_PER_TOKEN]
            for each in planned.memories
            for brought in [_list_parts([node for node in planned.nodes if node.scope is each.scope], each, writers)]
        ]
        nodes += [
            ShownNode(_zone_label(scope), 1, 0, 0, refusal=denial)
            for scope, denial in sorted(planned.access.unread.items())
        ]
    else:
        nodes = [_explain_share(share, writers) for share in planned.view.shares]
    use = planned.use
    return MemoryInPrompt(
        tape.session,
        use.policy.name,
        use.origin,
        use.wanted,
        use.problem,
        sum(node.tokens for node in nodes),
        planned.limit // BYTES_PER_TOKEN,
        tuple(nodes),
        planned=planned,
        recent_days=recent_days,
        zone=zone,
    )


def _explain_share(share: NodeShare, writers: Mapping[Scope, tuple[str, str]]) -> ShownNode:
    node, base = share.node, (share.node.label, share.node.weight, share.room, share.tokens)
    if share.zone is not None:
        memory = share.zone.memory
        if memory is None:
            return ShownNode(*base, refusal=share.zone.denial or "")
        parts = _list_parts([part for part in share.parts if part.text], memory, writers)
        old = sum(len(part.days) for part in share.parts if not part.text and part.left_out == "age")
        no_room = sum(part.left_out == "size" for part in share.parts)
        choice = sum(part.left_out == "choice" for part in share.parts)
        return ShownNode(*base, brought=parts, too_old=old, no_room=no_room, not_chosen=choice)
    reading = share.reading
    assert reading is not None
    brought = tuple(
        ShownEntry(each.id, each.date, each.author, each.tokens, provenance=str(each.source)) for each in share.chosen
    )
    return ShownNode(
        *base,
        session=reading.session or (node.other_session if reading.refusal else ""),
        refusal=reading.refusal,
        brought=brought,
        too_old=reading.too_old,
        in_window=reading.in_window,
        no_room=share.no_room,
        not_chosen=share.not_chosen,
    )


def _list_parts(
    parts: Sequence[BlockNode], memory: ScopedMemory, writers: Mapping[Scope, tuple[str, str]]
) -> tuple[ShownEntry, ...]:
    author, date = writers[memory.scope]
    return tuple(
        ShownEntry(
            memory.newest[1],
            date if part.days else memory.memory.long_term_updated_at or date,
            author,
            estimate_tokens(part.text),
            str(part.part),
            part.days,
            part.left_out,
            str(part.provenance),
        )
        for part in parts
        if part.text
    )


async def _find_writer(tape: TapeHandle, memory: ScopedMemory) -> tuple[str, str]:
    """Find who made the newest change of a memory, and when; empty if unknown."""
    name, number = memory.newest
    if not number:
        return "", ""
    (found,) = await tape.fetch([TapeQuery(name, IdRanges(((number, number),)))])
    if not found:
        return "", ""
    change = found[0]
    if name.startswith(ZONE_TAPES):
        by, session = change.data.get("by"), change.data.get("session")
        return (f"#{by} ({session})" if by and session else ""), change.date
    return await _find_asker(tape, name, change), change.date


async def _find_asker(tape: TapeHandle, name: str, change: TapeEntry) -> str:
    """Find who wrote what the turn of a change answers; empty if no turn made it, or it is not known."""
    query = TapeQuery(name, IdRanges(((1, change.id),)), kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1)
    (starts,) = await tape.fetch([query])
    if not starts or starts[0].meta.get("turn") != change.meta.get("turn"):
        return ""
    start = TurnStart.try_of(starts[0])
    if start is None or not start.inbounds:
        return ""
    inbox, number = start.inbounds[-1]
    try:
        (received,) = await tape.fetch([TapeQuery(inbox, IdRanges(((number, number),)))])
    except AccessError:  # an auditor sees one session
        return ""
    sender = received[0].data.get("sender") if received else None
    return format_sender(sender) if isinstance(sender, Mapping) else ""


def _zone_label(scope: Scope) -> str:
    return f"zone {scope}"


def _write_spans(spans: Sequence[Span]) -> str:
    return ", ".join(f"#{low}" if low == high else f"#{low}-{high}" for low, high in spans)


def _scope_in(label: str) -> Scope:
    return Scope(label.removeprefix("zone "))


def _name_part(part: str, days: Sequence[str], scope: Scope, texts: Texts) -> str:
    """Name a part of one memory, with the days of its notes."""
    name = texts.say(f"part_{part}", zone=name_zone(scope, texts))
    return texts.say("part_days", part=name, days=", ".join(days)) if days else name
