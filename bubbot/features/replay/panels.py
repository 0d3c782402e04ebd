"""Replays on the trace page: what came out again, and how another model did beside the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bubbot.features.replay.facts import RECORDED_SENTENCES, REPLAY_TAPE, REPLAYED
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
    Table,
    TapeLink,
)
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts

REPLAYS = SharedTape(REPLAY_TAPE)
MAX_SEARCHED = 1_000
"""Newest replays among which one is looked for."""


async def read_replays(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """List the replays of chats that the viewer may see, newest first, and show the chosen one side by side."""
    texts = reader.texts
    columns = tuple(map(texts.say, ("panel_when", "panel_chat", "panel_slice", "panel_model", "panel_result")))
    title, empty = texts.say("panel_replays"), texts.say("panel_replays_none")
    tape = reader.tapes.open_tape(REPLAY_TAPE)
    page, more = await query.read_page(tape, REPLAYED)
    blocks: list[Block] = []
    if wanted := query.params.get("replay"):
        facts = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(REPLAYED,), newest=True, limit=MAX_SEARCHED)
        searched = (await tape.fetch([facts]))[0]
        chosen = next((entry.data for entry in searched if entry.data.get("id") == wanted), None)
        blocks = _show(reader, chosen) if chosen else []
    rows = tuple(_row(entry, texts) for entry in page)
    return [*blocks, Table(title, columns, rows, empty, more)]


def _row(entry: TapeEntry, texts: Texts) -> tuple[Cell, ...]:
    data = entry.data
    changed = sum(step["recorded"] != "equal" or bool(step["differs"]) for step in data["steps"])
    result = texts.say("panel_replay_turns", count=len(data["turns"])) if data["model"] else texts.say(
        "panel_replay_steps", count=len(data["steps"]), changed=changed
    )  # fmt: skip
    return (
        Moment(entry.date),
        TapeLink(str(data["chat"]), session=str(data["chat"]), tape=data["tape"], entry=data["first"]),
        f"#{data['first']}-#{data['last']}",
        str(data["model"]),
        PanelLink(result, params={"replay": data["id"]}),
    )


def _show(reader: PanelReader, data: Mapping[str, Any]) -> list[Block]:
    """Show a replay."""
    texts = reader.texts
    notes: list[Block] = [Paragraph(data["problem"], "warning")] if data["problem"] else []
    if not data["model"]:
        return [*notes, _show_steps(data, texts)]
    return [*notes, *(block for turn in data["turns"] for block in _show_turn(data, turn, texts))]


def _show_steps(data: Mapping[str, Any], texts: Texts) -> Table:
    rows = tuple(
        (
            TapeLink(f"#{step['entry'][1]}", tape=data["tape"], entry=step["entry"][1]),
            texts.say(RECORDED_SENTENCES[step["recorded"]]),
            ", ".join(step["differs"]),
            step["first"],
        )
        for step in data["steps"]
        if step["recorded"] != "equal" or step["differs"]
    )
    columns = tuple(map(texts.say, ("panel_step", "panel_recorded", "panel_differs", "panel_first")))
    return Table(texts.say("panel_changed_steps"), columns, rows, texts.say("panel_changed_none"))


def _show_turn(data: Mapping[str, Any], turn: Mapping[str, Any], texts: Texts) -> Sequence[Block]:
    """Show a turn as it went beside how it went again, and what differs in the answer."""
    then, now = turn["recorded"], turn["replayed"]
    entry = turn["entry"][1]
    link = TapeLink(f"#{entry}", tape=data["tape"], entry=entry, turn=turn["turn"])

    def row(label: str, name: str) -> tuple[Cell, ...]:
        return (texts.say(label), _cell(then[name], texts), _cell(now[name], texts))

    rows = (
        row("panel_model", "model"),
        row("panel_answer", "text"),
        row("panel_error", "error"),
        row("panel_tools", "calls"),
        row("panel_not_recorded", "not_recorded"),
        row("panel_steps", "steps"),
        row("panel_input", "input_tokens"),
        row("panel_output", "output_tokens"),
        row("panel_cost", "cost"),
    )
    title = texts.say("panel_replayed_turn", entry=entry)
    table = Table(title, ("", texts.say("panel_recorded"), texts.say("panel_replayed")), rows)
    difference = Difference(texts.say("panel_answers_compared"), then["text"], now["text"], link)
    return [table, Paragraph(turn["question"], "quote", (link,)), difference]


def _cell(value: object, texts: Texts) -> Cell:
    if value is None:
        return texts.say("replay_no_cost")
    if isinstance(value, int | float):
        return Number(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


PANELS = (Panel("replays", "Replays", "deployment", read_replays, (REPLAYS,)),)
