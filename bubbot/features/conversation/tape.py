"""Tools about the tape itself: its content, its anchors, and opening a new window."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, ClassVar

from pydantic import Field, field_validator

from bubbot.errors import EntryInvalid, ToolRetry
from bubbot.features.conversation.anchors import AnchorSummary, AnchorsView
from bubbot.features.conversation.info import InfoView
from bubbot.ports.tool import CommandHelp, HelpTopic, NoArgs, Tool, ToolArgs, split_items, tool
from bubbot.ports.turn import Turn
from bubbot.tape.anchor import check_state
from bubbot.tape.query import format_date


def tape_tools() -> list[Tool]:
    """Return `tape.info`, `tape.anchors` and `tape.handoff`."""
    return [tape_info, tape_anchors, tape_handoff]


class AnchorsArgs(ToolArgs):
    """The arguments of `tape.anchors`."""

    zones: bool = Field(default=False, description="also the markers of the memory zone")


class HandoffArgs(ToolArgs):
    """The arguments of `tape.handoff`: the least state that the next phase needs."""

    name: str = Field(description="the new anchor's name, such as phase/design")
    summary: str = Field(default="", description="what the next phase has to know")
    next_steps: tuple[str, ...] = ()
    phase: str = ""
    source_ids: tuple[int, ...] = Field(default=(), description="ids of the entries the summary rests on")
    positional: ClassVar[tuple[str, ...]] = ("name", "summary")

    _source_ids = field_validator("source_ids", mode="before")(split_items)

    @field_validator("next_steps", mode="before")
    @classmethod
    def _split_lines(cls, value: object) -> object:
        """Split steps that were typed as one text, one step a line."""
        return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


@tool("tape.info", help=CommandHelp(HelpTopic.HISTORY, "The size of this chat", (",tape.info",)))
async def tape_info(turn: Turn, args: NoArgs) -> str:
    """Show how many entries the tape of this chat has, where its window opened and what the last model call used."""
    info = await turn.tape.read(InfoView())
    if not info.entries:
        return "The tape is empty."
    first, last = format_date(info.first_date, turn.zone), format_date(info.last_date, turn.zone)
    lines = [f"entries: {info.entries}, {first} to {last}"]
    if info.last_anchor:
        name, entry_id = info.last_anchor
        lines.append(f"last anchor: {name} (#{entry_id}), {info.entries_since_anchor} entries since")
    else:
        lines.append("last anchor: none")
    if usage := info.last_usage:
        cost = "" if usage.cost is None else f", ${usage.cost:.6f}".rstrip("0").rstrip(".")
        cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
        lines.append(f"last model call: {usage.input_tokens} tokens in{cached}, {usage.output_tokens} out{cost}")
    return "\n".join(lines)


@tool(
    "tape.anchors",
    commands=["anchors"],
    help=CommandHelp(HelpTopic.HISTORY, "Where earlier windows begin", (",anchors", ",anchors zones=yes")),
)
async def tape_anchors(turn: Turn, args: AnchorsArgs) -> str:
    """List the anchors of this chat's tape, newest first: where windows opened and what was handed over."""
    lines = await turn.tape.read(AnchorsView(zones=args.zones))
    return "\n".join(_format_anchor(line, turn.zone) for line in lines) or "There are no anchors on this tape yet."


@tool(
    "tape.handoff",
    commands=["handoff"],
    help=CommandHelp(
        HelpTopic.TALK,
        "Go on in a new window with a summary",
        (",handoff plan-done", ',handoff name=trip summary="Hotel booked, flights open."'),
    ),
)
async def tape_handoff(turn: Turn, args: HandoffArgs) -> str:
    """Open a new window that begins with the state given here. What came before stays on the tape, out of view."""
    name = args.name.strip()
    if not name:
        raise ToolRetry("name is empty: give the anchor a name such as phase/design")
    if name.startswith("memory/"):
        raise ToolRetry(f"name is {name!r}: names that begin with memory/ belong to the memory zone")
    fields: dict[str, Any] = {
        "phase": args.phase,
        "summary": args.summary,
        "next_steps": list(args.next_steps),
        "source_ids": list(args.source_ids),
    }
    state = {key: value for key, value in fields.items() if value} | {"owner": _owner(turn)}
    try:
        check_state(state, await turn.tape.head())
    except EntryInvalid as error:
        raise ToolRetry(str(error)) from error
    turn.handoff_after_results(name, state)
    return turn.texts.say("handed_off", name=name)


def _owner(turn: Turn) -> str:
    """Return a handoff's owner: `human` for a typed command, `agent` for a call of the model, or an agent's name."""
    if turn.origin.startswith("agent:"):
        return turn.origin.removeprefix("agent:")
    return "human" if turn.origin == "human" and turn.runs_command else "agent"


def _format_anchor(line: AnchorSummary, zone: tzinfo) -> str:
    marks = "" if line.opens_window else " (no new window)"
    marks += f" [parents: {', '.join(f'#{parent}' for parent in line.parents)}]" if line.parents else ""
    return f"#{line.id} {format_date(line.date, zone)} {line.name}: {line.state}{marks}"
