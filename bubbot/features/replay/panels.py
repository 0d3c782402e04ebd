"""Replays on the trace page: what came out again, and how another model did beside the record."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bubbot.features.replay.facts import RECORDED_SENTENCES, REPLAY_TAPE, REPLAYED, ReplayEnded
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery

REPLAYS = SharedTape(REPLAY_TAPE)
MAX_SEARCHED = 1_000
"""Newest replays among which one is looked for."""


class Replays(Struct, frozen=True):
    """A page of replays of chats that the viewer may see, each with its time, newest first, and the chosen one."""

    replays: tuple[tuple[str, ReplayEnded], ...]
    more: str
    chosen: ReplayEnded | None = None
    recorded: Mapping[str, str] = RECORDED_SENTENCES


async def read_replays(reader: PanelReader, query: PanelQuery) -> Replays:
    """Read a page of replays, and the chosen one."""
    tape = reader.tapes.open_tape(REPLAY_TAPE)
    page, more = await query.read_page(tape, REPLAYED)
    chosen = None
    if wanted := query.params.get("replay"):
        facts = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(REPLAYED,), newest=True, limit=MAX_SEARCHED)
        searched = (await tape.fetch([facts]))[0]
        chosen = next((ReplayEnded.try_of(entry) for entry in searched if entry.data.get("id") == wanted), None)
    replays = [(entry.date, ReplayEnded.try_of(entry)) for entry in page]
    return Replays(tuple((date, replay) for date, replay in replays if replay), more, chosen)


PANELS = (Panel("replays", "Replays", "deployment", read_replays, "bubbot.features.replay:replays.html", (REPLAYS,)),)
