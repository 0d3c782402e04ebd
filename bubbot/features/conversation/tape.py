"""Tools about the tape itself: its content, its anchors, and opening a new window."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, ClassVar

from pydantic import Field, field_validator

from bubbot.errors import ToolRetry
from bubbot.features.conversation.anchors import AnchorSummary, AnchorsView
from bubbot.features.conversation.info import InfoView
from bubbot.ports.channel import Role
from bubbot.ports.tool import (
    INSIDE,
    READS_PEOPLE,
    CommandHelp,
    HelpTopic,
    NoArgs,
    Tool,
    ToolArgs,
    split_items,
    tool,
)
from bubbot.ports.turn import Turn
from bubbot.tape.entry import Kind
from bubbot.tape.query import format_date
from bubbot.texts import Texts

MAX_CHAT_ANCHORS = 30
"""Anchors that `,graph` draws by default."""


def tape_tools(reserved_names: Sequence[str] = ()) -> list[Tool]:
    """Return `tape.info`, `tape.anchors`, `tape.graph` and `tape.handoff`.

    `reserved_names`: what the name of an anchor may not begin with, as a feature writes such anchors.
    """
    return [tape_info, tape_anchors, tape_graph, handoff_tool(reserved_names)]


class AnchorsArgs(ToolArgs):
    """The arguments of `tape.anchors`."""

    zones: bool = Field(default=False, description="also the markers of the memory zone")


class GraphArgs(ToolArgs):
    """The arguments of `tape.graph`."""

    last: int = Field(default=MAX_CHAT_ANCHORS, ge=1, le=500, description="how many of the newest anchors")


class HandoffArgs(ToolArgs):
    """The arguments of `tape.handoff`: the least state that the next phase needs."""

    name: str = Field(description="the new anchor's name, such as phase/design")
    summary: str = Field(default="", description="what the next phase has to know")
    next_steps: tuple[str, ...] = ()
    phase: str = ""
    source_ids: tuple[int, ...] = Field(default=(), description="ids of the entries the summary rests on")
    parents: tuple[int, ...] = Field(default=(), description="ids of the anchors that this one continues")
    positional: ClassVar[tuple[str, ...]] = ("name", "summary")

    _ids = field_validator("source_ids", "parents", mode="before")(split_items)

    @field_validator("next_steps", mode="before")
    @classmethod
    def _split_lines(cls, value: object) -> object:
        """Split steps that were typed as one text, one step a line."""
        return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


@tool(
    "tape.info",
    effect=READS_PEOPLE,
    is_rare=True,
    help=CommandHelp(HelpTopic.HISTORY, "The size of this chat", (",tape.info",)),
)
async def tape_info(turn: Turn, args: NoArgs) -> str:
    """Show how many entries the tape of this chat has, where its window opened and what the last model call used."""
    info, texts = await turn.tape.read(InfoView()), turn.result_texts
    if not info.entries:
        return texts.say("info_empty")
    undated = texts.say("undated")
    first, last = (format_date(date, turn.zone, undated=undated) for date in (info.first_date, info.last_date))
    lines = [texts.say("info_entries", number=info.entries, first=first, last=last)]
    if info.last_anchor:
        name, entry_id = info.last_anchor
        lines.append(texts.say("info_anchor", name=name, entry=entry_id, number=info.entries_since_anchor))
    else:
        lines.append(texts.say("info_no_anchor"))
    if usage := info.last_usage:
        dollars = "" if usage.cost is None else f"${usage.cost:.6f}".rstrip("0").rstrip(".")
        cost = texts.say("info_cost", cost=dollars) if dollars else ""
        cached = texts.say("info_cached", number=usage.cached_tokens) if usage.cached_tokens else ""
        lines.append(
            texts.say("info_call", input=usage.input_tokens, cached=cached, output=usage.output_tokens, cost=cost)
        )
    return "\n".join(lines)


@tool(
    "tape.anchors",
    effect=READS_PEOPLE,
    is_rare=True,
    commands=["anchors"],
    help=CommandHelp(HelpTopic.HISTORY, "Where earlier windows begin", (",anchors", ",anchors zones=yes")),
)
async def tape_anchors(turn: Turn, args: AnchorsArgs) -> str:
    """List the anchors of this chat's tape, newest first: where windows opened and what was handed over."""
    lines, texts = await turn.tape.read(AnchorsView(zones=args.zones)), turn.result_texts
    return "\n".join(_format_anchor(line, turn.zone, texts) for line in lines) or texts.say("anchors_none")


@tool(
    "tape.graph",
    effect=READS_PEOPLE,
    commands=["graph"],
    for_model=False,
    help=CommandHelp(HelpTopic.HISTORY, "How the windows of this chat are linked", (",graph", ",graph last=100")),
)
async def tape_graph(turn: Turn, args: GraphArgs) -> str:
    """Draw the anchors of this chat, oldest first: the order of its windows, their parents, and what they recall."""
    # Imported here: few chats draw, and `bubbot status` loads this module.
    from bubbot.features.conversation.graph import GraphView
    from bubbot.features.conversation.graph_formats import format_graph

    graph, texts = await turn.tape.read(GraphView(turn.tape.name, args.last)), turn.result_texts
    return format_graph(graph, turn.zone, texts, lambda _: texts.say("graph_other_chat"))


def handoff_tool(reserved_names: Sequence[str] = ()) -> Tool:
    """Build `tape.handoff`; see `tape_tools`."""

    @tool(
        "tape.handoff",
        effect=INSIDE,
        is_rare=True,
        commands=["handoff"],
        help=CommandHelp(
            HelpTopic.TALK,
            "Go on in a new window with a summary",
            (
                ",handoff plan-done",
                ',handoff name=trip summary="Hotel booked, flights open."',
                ",handoff name=trip-done parents=12,41",
            ),
        ),
    )
    async def tape_handoff(turn: Turn, args: HandoffArgs) -> str:
        """Open a new window that begins with the state given here. What came before stays on the tape, out of view."""
        name, texts = args.name.strip(), turn.result_texts
        is_group = not all(accepted.inbound.direct for accepted in turn.inbounds)
        if turn.runs_command and is_group and not turn.role.at_least(Role.ADMIN):
            raise ToolRetry(texts.say("handoff_only_admins"))
        if not name:
            raise ToolRetry(texts.say("handoff_unnamed"))
        if name.startswith("memory/"):
            raise ToolRetry(texts.say("handoff_memory", name=name))
        if name.startswith(tuple(reserved_names)):
            raise ToolRetry(texts.say("handoff_reserved", name=name))
        last = await turn.tape.head()
        for entry in args.source_ids:
            if not 1 <= entry <= last:
                raise ToolRetry(texts.say("handoff_no_source", entry=entry, last=last))
        for entry in args.parents:
            if not 1 <= entry <= last or (await turn.tape.entry(entry)).kind != Kind.ANCHOR:
                raise ToolRetry(texts.say("handoff_no_parent", entry=entry))
        fields: dict[str, Any] = {
            "phase": args.phase,
            "summary": args.summary,
            "next_steps": list(args.next_steps),
            "source_ids": list(args.source_ids),
            "parents": list(args.parents),
        }
        state = {key: value for key, value in fields.items() if value} | {"owner": _owner(turn)}
        turn.handoff_after_results(name, state)
        return turn.texts.say("handed_off", name=name)

    return tape_handoff


def _owner(turn: Turn) -> str:
    """Return a handoff's owner: `human` for a typed command, `agent` for a call of the model, or an agent's name."""
    if turn.origin.startswith("agent:"):
        return turn.origin.removeprefix("agent:")
    return "human" if turn.origin == "human" and turn.runs_command else "agent"


def _format_anchor(line: AnchorSummary, zone: tzinfo, texts: Texts) -> str:
    marks = "" if line.opens_window else texts.say("anchor_no_window")
    if line.parents:
        marks += texts.say("anchor_parents", entries=", ".join(f"#{parent}" for parent in line.parents))
    date = format_date(line.date, zone, undated=texts.say("undated"))
    return texts.say("anchor_line", entry=line.id, date=date, name=line.name, state=line.state, marks=marks)
