"""Memory on the trace page: the versions of each zone, with what each changed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bubbot.features.memory.changes import ZoneChangesView, ZoneState
from bubbot.features.memory.scopes import WORKSPACE_TAPE, ZONE_TAPES
from bubbot.features.memory.views import MemorySnapshot, MemoryVersionView, format_memory_page
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.runtime.context.evidence import find_evidence
from bubbot.tape.anchor import MEMORY_SEAL
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import EVIDENCE_EVENT, EvidenceNode
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery


class ShownMemoryChange(Struct, frozen=True):
    """What one entry of a tape changed, as everything that was remembered before it and after it."""

    tape: str
    entry: int
    version: int
    before: str
    after: str


class ShownQuotation(Struct, frozen=True):
    """What a memory view quoted beside a message: the fact, the view, and how many entries of which node."""

    entry: int
    message: int
    date: str
    source: str
    title: str
    count: int


class ChatMemory(Struct, frozen=True):
    """A page of the versions of a chat's memory, as entry and number, newest first, and what the chosen one changed.

    A number is 0 if it is not known. `change` is None if nothing was ever remembered. `quoted` is what its memory view
    quoted beside the newest messages.
    """

    tape: str
    change: ShownMemoryChange | None = None
    versions: tuple[tuple[TapeEntry, int], ...] = ()
    more: str = ""
    quoted: tuple[ShownQuotation, ...] = ()


class ZoneMemory(Struct, frozen=True):
    """A page of the changes to a zone, newest first, and what the chosen one changed."""

    tape: str
    name: str
    change: ShownMemoryChange
    changes: tuple[TapeEntry, ...]
    more: str


class ZoneSummary(Struct, frozen=True):
    """A zone, with its newest fact (None if it has none) and the number of its facts."""

    tape: str
    name: str
    newest: TapeEntry | None
    changes: int


class SharedMemory(Struct, frozen=True):
    """The zones that the viewer may see, and the chosen one."""

    zones: tuple[ZoneSummary, ...]
    chosen: ZoneMemory | None = None


async def read_chat_memory(reader: PanelReader, query: PanelQuery) -> ChatMemory:
    """Read the versions of a chat's own memory, and what the chosen one changed."""
    tape = reader.tapes.open_tape(query.tape, query.session)
    seals, quoted = await _read_seals(tape, query.cursor_id(), query.limit + 1), await _read_quoted(tape, query.limit)
    if not seals:
        return ChatMemory(query.tape, quoted=quoted)
    chosen = next((seal for seal in seals if str(seal.id) == query.params.get("version")), None)
    if chosen is None and (number := query.params.get("version", "")).isdecimal() and len(number) < 19:
        chosen = next(iter(await _read_seals(tape, int(number) + 1, 1)), None)
    versions = tuple((seal, _version(seal)) for seal in seals[: query.limit])
    more = str(seals[query.limit - 1].id) if len(seals) > query.limit else ""
    return ChatMemory(query.tape, await _compare_version(tape, chosen or seals[0]), versions, more, quoted)


async def _read_quoted(tape: TapeHandle, limit: int) -> tuple[ShownQuotation, ...]:
    """Return what was quoted last, newest first; without words, which the viewer may not be allowed to see."""
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(EVIDENCE_EVENT,), newest=True, limit=limit)
    (found,) = await tape.fetch([query])
    return tuple(
        ShownQuotation(entry.id, fact.message or entry.id, entry.date, fact.source, node.title, _count_entries(node))
        for entry, fact in find_evidence(found)
        for node in fact.nodes
    )


def _count_entries(node: EvidenceNode) -> int:
    spans = [*node.entries, *(span for _, elsewhere in node.elsewhere for span in elsewhere)]
    return sum(high - low + 1 for low, high in spans)


async def _read_seals(tape: TapeHandle, before: int | None, limit: int) -> Sequence[TapeEntry]:
    """Return the newest seals below an id, newest first."""
    part = IdRanges(((1, None if before is None else max(before - 1, 0)),))
    query = TapeQuery(tape.name, part, kinds=(Kind.ANCHOR,), names=(MEMORY_SEAL,), newest=True, limit=limit)
    return (await tape.fetch([query]))[0]


async def _compare_version(tape: TapeHandle, seal: TapeEntry) -> ShownMemoryChange:
    """Compare a version with the one before it; what a version wrote stands between two seals."""
    newest, *older = await _read_seals(tape, seal.id + 1, 3)
    bounds = [each.id for each in older] + [0, 0]
    after = await _read_version(tape, newest, bounds[0])
    before = await _read_version(tape, older[0], bounds[1]) if older else MemorySnapshot()
    return ShownMemoryChange(tape.name, newest.id, _version(newest), _page(before), _page(after))


async def _read_version(tape: TapeHandle, seal: TapeEntry, previous: int) -> MemorySnapshot:
    found = await tape.read(MemoryVersionView(_version(seal), (previous + 1, seal.id)))
    return found or MemorySnapshot()


def _version(seal: TapeEntry) -> int:
    state = seal.payload.get("state") if not seal.erased else None
    number = state.get("version") if state else None
    return number if type(number) is int else 0


def _page(memory: MemorySnapshot) -> str:
    """Return everything remembered, without the heading that names the version."""
    return "" if memory.is_empty else format_memory_page(memory).partition("\n")[2].strip()


async def read_shared_memory(reader: PanelReader, query: PanelQuery) -> SharedMemory:
    """Read the memory of the workspace and of people, as far as the viewer may see it, and what one change did to it."""
    zones = [tape for tape in await reader.tapes.tapes() if tape.name.startswith(ZONE_TAPES)]
    newest = await reader.tapes.fetch(
        [TapeQuery(tape.name, kinds=(Kind.EVENT,), newest=True, limit=1) for tape in zones]
    )
    summaries = tuple(
        ZoneSummary(tape.name, _zone_name(reader, tape.name), next(iter(found), None), tape.head)
        for tape, found in zip(zones, newest, strict=True)
    )
    chosen = query.params.get("zone", "")
    is_shown = chosen in {tape.name for tape in zones}
    return SharedMemory(summaries, await _read_zone(reader, query, chosen) if is_shown else None)


async def _read_zone(reader: PanelReader, query: PanelQuery, name: str) -> ZoneMemory | None:
    changes = await reader.tapes.open_tape(name).read(ZoneChangesView())
    if not changes:
        return None
    chosen = next((each for each in changes if str(each.id) == query.params.get("change")), changes[-1])
    state, before = ZoneState(), MemorySnapshot()
    for change in changes:
        before = state.memory
        state.apply([change])
        if change.id == chosen.id:
            break
    cursor = query.cursor_id()
    shown = [each for each in reversed(changes) if cursor is None or each.id < cursor]
    more = str(shown[query.limit - 1].id) if len(shown) > query.limit else ""
    compared = ShownMemoryChange(name, chosen.id, 0, _page(before), _page(state.memory))
    return ZoneMemory(name, _zone_name(reader, name), compared, tuple(shown[: query.limit]), more)


def _zone_name(reader: PanelReader, tape: str) -> str:
    if tape == WORKSPACE_TAPE:
        return reader.texts.say("panel_workspace")
    return reader.texts.say("panel_person", id=tape.rpartition("/")[2][:12])


PANELS = (
    Panel("memory", "Memory", "session", read_chat_memory, "bubbot.features.memory:chat_memory.html"),
    Panel(
        "shared-memory", "Shared memory", "deployment", read_shared_memory, "bubbot.features.memory:shared_memory.html"
    ),
)
