"""Memory on the trace page: the versions of each zone, with what each changed."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.features.memory.changes import ZoneChangesView, ZoneState
from bubbot.features.memory.scopes import WORKSPACE_TAPE, ZONE_TAPES
from bubbot.features.memory.views import MemorySnapshot, MemoryVersionView, format_memory_page
from bubbot.ports.panel import (
    Block,
    Cell,
    Difference,
    Moment,
    Number,
    Panel,
    PanelLink,
    PanelQuery,
    PanelReader,
    Paragraph,
    PersonName,
    Table,
    TapeLink,
)
from bubbot.tape.anchor import MEMORY_SEAL
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery


async def read_chat_memory(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the versions of a chat's own memory, and what the chosen one changed."""
    tape, texts = reader.tapes.open_tape(query.tape, query.session), reader.texts
    seals = await _read_seals(tape, query.cursor_id(), query.limit + 1)
    if not seals:
        return [Paragraph(texts.say("panel_memory_none"))]
    chosen = next((seal for seal in seals if str(seal.id) == query.params.get("version")), None)
    if chosen is None and (number := query.params.get("version", "")).isdecimal() and len(number) < 19:
        chosen = next(iter(await _read_seals(tape, int(number) + 1, 1)), None)
    rows: list[tuple[Cell, ...]] = [
        (
            PanelLink(str(_version(seal) or "?"), params={"version": str(seal.id)}),
            Moment(seal.date),
            TapeLink(f"#{seal.id}", tape=query.tape, entry=seal.id),
        )
        for seal in seals[: query.limit]
    ]
    more = str(seals[query.limit - 1].id) if len(seals) > query.limit else ""
    columns = (texts.say("panel_version"), texts.say("panel_when"), texts.say("panel_entry"))
    difference = await _compare_version(reader, tape, chosen or seals[0])
    return [*difference, Table(texts.say("panel_versions"), columns, tuple(rows), next_cursor=more)]


async def _read_seals(tape: TapeHandle, before: int | None, limit: int) -> Sequence[TapeEntry]:
    """Return the newest seals below an id, newest first."""
    part = IdRanges(((1, None if before is None else max(before - 1, 0)),))
    query = TapeQuery(tape.name, part, kinds=(Kind.ANCHOR,), names=(MEMORY_SEAL,), newest=True, limit=limit)
    return (await tape.fetch([query]))[0]


async def _compare_version(reader: PanelReader, tape: TapeHandle, seal: TapeEntry) -> list[Block]:
    """Compare a version with the one before it; what a version wrote stands between two seals."""
    newest, *older = await _read_seals(tape, seal.id + 1, 3)
    bounds = [each.id for each in older] + [0, 0]
    after = await _read_version(tape, newest, bounds[0])
    before = await _read_version(tape, older[0], bounds[1]) if older else MemorySnapshot()
    title = reader.texts.say("panel_memory_change", version=_version(newest) or "?")
    link = TapeLink(f"#{newest.id}", tape=tape.name, entry=newest.id)
    return [Difference(title, _page(before), _page(after), link)]


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


async def read_shared_memory(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the memory of the workspace and of people, as far as the viewer may see it, and what one change did to it."""
    texts = reader.texts
    zones = [tape for tape in await reader.tapes.tapes() if tape.name.startswith(ZONE_TAPES)]
    if not zones:
        return [Paragraph(texts.say("panel_zones_none"))]
    newest = await reader.tapes.fetch(
        [TapeQuery(tape.name, kinds=(Kind.EVENT,), newest=True, limit=1) for tape in zones]
    )
    rows: list[tuple[Cell, ...]] = [
        (
            PanelLink(_zone_name(reader, tape.name), params={"zone": tape.name}),
            _writer(found[0]) if found else "",
            Number(tape.head),
        )
        for tape, found in zip(zones, newest, strict=True)
    ]
    columns = tuple(map(texts.say, ("panel_zone", "panel_by", "panel_changes")))
    blocks: list[Block] = [Table(texts.say("panel_zones"), columns, tuple(rows))]
    chosen = query.params.get("zone", "")
    if chosen in {tape.name for tape in zones}:
        blocks += await _read_zone(reader, query, chosen)
    return blocks


async def _read_zone(reader: PanelReader, query: PanelQuery, name: str) -> list[Block]:
    """Show the changes of a zone, newest first, and the difference that the chosen one made."""
    texts = reader.texts
    changes = await reader.tapes.open_tape(name).read(ZoneChangesView())
    if not changes:
        return []
    chosen = next((each for each in changes if str(each.id) == query.params.get("change")), changes[-1])
    state, before = ZoneState(), MemorySnapshot()
    for change in changes:
        before = state.memory
        state.apply([change])
        if change.id == chosen.id:
            break
    title = texts.say("panel_zone_change", zone=_zone_name(reader, name), entry=chosen.id)
    link = TapeLink(f"#{chosen.id}", tape=name, entry=chosen.id)
    cursor = query.cursor_id()
    shown = [each for each in reversed(changes) if cursor is None or each.id < cursor]
    rows = tuple(_change_row(name, each) for each in shown[: query.limit])
    more = str(shown[query.limit - 1].id) if len(shown) > query.limit else ""
    columns = tuple(map(texts.say, ("panel_change", "panel_when", "panel_chat", "panel_by", "panel_entry")))
    return [
        Difference(title, _page(before), _page(state.memory), link),
        Table(texts.say("panel_zone_changes", zone=_zone_name(reader, name)), columns, rows, next_cursor=more),
    ]


def _change_row(tape: str, change: TapeEntry) -> tuple[Cell, ...]:
    data = change.data
    session = str(data.get("session", ""))
    return (
        PanelLink((change.name or "?").removeprefix("memory/"), params={"zone": tape, "change": str(change.id)}),
        Moment(change.date),
        TapeLink(session, session=session) if session else "",
        _writer(change),
        TapeLink(f"#{change.id}", tape=tape, entry=change.id),
    )


def _writer(change: TapeEntry) -> PersonName:
    """Return who made a change; that of a person's own memory is this person."""
    return PersonName(":".join(filter(None, (text_field(change.data, "channel"), text_field(change.data, "by")))))


def _zone_name(reader: PanelReader, tape: str) -> str:
    if tape == WORKSPACE_TAPE:
        return reader.texts.say("panel_workspace")
    return reader.texts.say("panel_person", id=tape.rpartition("/")[2][:12])


PANELS = (
    Panel("memory", "Memory", "session", read_chat_memory),
    Panel("shared-memory", "Shared memory", "deployment", read_shared_memory),
)
