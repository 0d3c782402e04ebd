"""The tool that searches the whole tape of a chat."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Literal

from pydantic import Field, field_validator

from bubbot.errors import ToolRetry
from bubbot.features.search.view import SEARCH_TOOL, SearchHit, SearchResult, SearchView
from bubbot.ports.tool import CommandHelp, HelpTopic, ToolArgs, split_items, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.tape.query import date_bounds, format_date

SearchedKind = Literal["message", "tool_call", "tool_result", "anchor", "event", "system", "error"]


class SearchArgs(ToolArgs):
    """The arguments of `tape.search`."""

    query: str = Field(description="words or a phrase; spelling mistakes are forgiven")
    kinds: tuple[SearchedKind, ...] = Field(
        default=(), description="only these kinds of entries; all but system and error when left out"
    )
    start: str | None = Field(default=None, description="first date, such as 2026-11-21 or 2026-11-21T18:00")
    end: str | None = Field(default=None, description="last date, included")
    limit: int = Field(default=10, ge=1, le=100, description="how many hits at most")

    _kinds = field_validator("kinds", mode="before")(split_items)


@tool(
    SEARCH_TOOL,
    commands=["search"],
    help=CommandHelp(
        HelpTopic.HISTORY,
        "Search all that was said here",
        (",search passport", ',search "train to Rome"'),
        in_menu=True,
    ),
)
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
    marks = "" if hit.exact else " (approximate)"
    marks += f" [superseded by #{hit.superseded_by}]" if hit.superseded_by else ""
    return f"#{hit.id} {format_date(hit.date, zone)} {hit.kind}{marks}: {escape_tags(hit.snippet)}"
