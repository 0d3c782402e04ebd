"""Tools about the tape itself: its content, its anchors, and opening a new window."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from bubbot.errors import EntryInvalid, ToolRetry
from bubbot.features.conversation.anchors import AnchorSummary, AnchorsView
from bubbot.features.conversation.info import InfoView
from bubbot.features.search.view import SEARCH_TOOL, SearchHit, SearchResult, SearchView
from bubbot.ports.tool import NoArgs, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.tape.anchor import check_state
from bubbot.tape.query import date_bounds, parse_moment

SearchedKind = Literal["message", "tool_call", "tool_result", "anchor", "event", "system", "error"]


def tape_tools() -> list[Tool]:
    """Return `tape.info`, `tape.search`, `tape.anchors` and `tape.handoff`."""
    return [tape_info, tape_search, tape_anchors, tape_handoff]


def split_text(value: object) -> object:
    """Split a list that was typed as one text with commas; return any other value unchanged."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


class SearchArgs(ToolArgs):
    """The arguments of `tape.search`."""

    query: str = Field(description="words or a phrase; spelling mistakes are forgiven")
    kinds: tuple[SearchedKind, ...] = Field(
        default=(), description="only these kinds of entries; all but system and error when left out"
    )
    start: str | None = Field(default=None, description="first date, such as 2026-11-21 or 2026-11-21T18:00")
    end: str | None = Field(default=None, description="last date, included")
    limit: int = Field(default=10, ge=1, le=100, description="how many hits at most")

    _kinds = field_validator("kinds", mode="before")(split_text)


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

    _source_ids = field_validator("source_ids", mode="before")(split_text)

    @field_validator("next_steps", mode="before")
    @classmethod
    def _split_lines(cls, value: object) -> object:
        """Split steps that were typed as one text, one step a line."""
        return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


@tool("tape.info")
async def tape_info(turn: Turn, args: NoArgs) -> str:
    """Show how many entries the tape of this chat has, where its window opened and what the last model call used."""
    info = await turn.tape.read(InfoView())
    if not info.entries:
        return "The tape is empty."
    first, last = _format_date(info.first_date, turn.zone), _format_date(info.last_date, turn.zone)
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


@tool(SEARCH_TOOL, commands=["search"])
async def tape_search(turn: Turn, args: SearchArgs) -> str:
    """Search everything ever said and done in this chat, not only what is in view. Hits cite entry ids (#7)."""
    query = args.query.strip()
    if not query:
        raise ToolRetry("query is empty: give the words to look for")
    since, until = _parse_dates(args, turn.zone)
    view = SearchView(
        query,
        kinds=args.kinds,
        since=since,
        until=until,
        limit=args.limit,
        excluded_ids=frozenset(turn.message_ids),
    )
    result = await turn.tape.read(view)
    scope = _describe_scope(args)
    if result.hits:
        lines = [f'Found {len(result.hits)} for "{query}" on {scope}, newest first:']
        lines += [format_hit(hit, turn.zone) for hit in result.hits]
    else:
        lines = [f'Nothing found for "{query}" on {scope}.']
    return "\n".join([*lines, *format_remarks(result)])


@tool("tape.anchors", commands=["anchors"])
async def tape_anchors(turn: Turn, args: AnchorsArgs) -> str:
    """List the anchors of this chat's tape, newest first: where windows opened and what was handed over."""
    lines = await turn.tape.read(AnchorsView(zones=args.zones))
    return "\n".join(_format_anchor(line, turn.zone) for line in lines) or "There are no anchors on this tape yet."


@tool("tape.handoff", commands=["handoff"])
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


def _parse_dates(args: SearchArgs, zone: tzinfo) -> tuple[datetime | None, datetime | None]:
    try:
        since, until = date_bounds(args.start, args.end, zone)
    except ValueError as error:
        raise ToolRetry(str(error)) from error
    if since and until and since > until:
        raise ToolRetry(f"start ({args.start}) is after end ({args.end})")
    return since, until


def _describe_scope(args: SearchArgs) -> str:
    dates = f" from {args.start}" if args.start else ""
    dates += f" until {args.end}" if args.end else ""
    kinds = f" (only {', '.join(args.kinds)})" if args.kinds else ""
    return f"the whole tape{dates}{kinds}"


def format_remarks(result: SearchResult) -> list[str]:
    """Say which hits were left out, and how far the search went."""
    counts = (
        (result.own_output, "own output of earlier searches"),
        (result.hidden, "hidden"),
        (result.old_memory, "in older versions of the memory"),
    )
    omitted = ", ".join(f"{count} {label}" for count, label in counts if count)
    lines = [f"Left out: {omitted}."] if omitted else []
    if result.incomplete:
        lines.append("Older matches may exist: narrow the search with kinds, start or end.")
    if result.spelling_from:
        lines.append(f"Spelling mistakes were looked for from #{result.spelling_from} on.")
    return lines


def format_hit(hit: SearchHit, zone: tzinfo) -> str:
    """Format a hit for people and models."""
    marks = "" if hit.exact else " (typo)"
    marks += f" [superseded by #{hit.superseded_by}]" if hit.superseded_by else ""
    return f"#{hit.id} {_format_date(hit.date, zone)} {hit.kind}{marks}: {escape_tags(hit.snippet)}"


def _format_anchor(line: AnchorSummary, zone: tzinfo) -> str:
    marks = "" if line.opens_window else " (no new window)"
    marks += f" [parents: {', '.join(f'#{parent}' for parent in line.parents)}]" if line.parents else ""
    return f"#{line.id} {_format_date(line.date, zone)} {line.name}: {line.state}{marks}"


def _format_date(text: str | None, zone: tzinfo) -> str:
    """Format date and minute in the chat's zone; return text that is not a date unchanged."""
    at = parse_moment(text or "")
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M") if at else (text or "undated")
