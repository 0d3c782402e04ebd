"""The tool that searches the whole tape of a chat."""

from datetime import datetime, tzinfo
from typing import Literal

from pydantic import Field, field_validator

from bubbot.errors import ToolRetry
from bubbot.features.search.view import SEARCH_TOOL, SearchHit, SearchResult, SearchView
from bubbot.ports.tool import READS_PEOPLE, CommandHelp, HelpTopic, ToolArgs, split_items, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.tape.query import date_bounds, format_date
from bubbot.texts import Texts

SearchedKind = Literal["message", "tool_call", "tool_result", "anchor", "event", "system", "error"]


class SearchArgs(ToolArgs):
    """The arguments of `tape.search`."""

    query: str = Field(description="words or a phrase, spelling mistakes forgiven")
    kinds: tuple[SearchedKind, ...] = Field(
        default=(), description="only these kinds; default: all but system and error"
    )
    start: str | None = Field(default=None, description="first date, such as 2026-11-21 or 2026-11-21T18:00")
    end: str | None = Field(default=None, description="last date, included")
    limit: int = Field(default=10, ge=1, le=100, description="how many hits at most")

    _kinds = field_validator("kinds", mode="before")(split_items)


@tool(
    SEARCH_TOOL,
    effect=READS_PEOPLE,
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
    query, texts = args.query.strip(), turn.result_texts
    if not query:
        raise ToolRetry(texts.say("search_empty"))
    since, until = _parse_dates(args, turn.zone, texts)
    view = SearchView(
        query,
        kinds=args.kinds,
        since=since,
        until=until,
        limit=args.limit,
        excluded_ids=frozenset(turn.message_ids),
    )
    result = await turn.tape.read(view)
    scope = _describe_scope(args, texts)
    if result.hits:
        lines = [texts.say("search_found", number=len(result.hits), query=query, scope=scope)]
        lines += [format_hit(hit, turn.zone, texts) for hit in result.hits]
    else:
        lines = [texts.say("search_nothing", query=query, scope=scope)]
    return "\n".join([*lines, *format_remarks(result, texts)])


def _parse_dates(args: SearchArgs, zone: tzinfo, texts: Texts) -> tuple[datetime | None, datetime | None]:
    for text in (args.start, args.end):
        try:
            date_bounds(text, None, zone)
        except ValueError as error:
            raise ToolRetry(texts.say("not_a_date", text=text)) from error
    since, until = date_bounds(args.start, args.end, zone)
    if since and until and since > until:
        raise ToolRetry(texts.say("search_backwards", start=args.start, end=args.end))
    return since, until


def _describe_scope(args: SearchArgs, texts: Texts) -> str:
    dates = texts.say("search_from", date=args.start) if args.start else ""
    dates += texts.say("search_until", date=args.end) if args.end else ""
    kinds = texts.say("search_kinds", kinds=", ".join(args.kinds)) if args.kinds else ""
    return texts.say("search_scope", dates=dates, kinds=kinds)


def format_remarks(result: SearchResult, texts: Texts) -> list[str]:
    """Say which hits were left out, and how far the search went."""
    counts = (
        (result.own_output, "left_out_own_output"),
        (result.hidden, "left_out_hidden"),
        (result.old_memory, "left_out_old_memory"),
    )
    omitted = texts.say("list_comma").join(texts.say(name, number=number) for number, name in counts if number)
    lines = [texts.say("search_left_out", parts=omitted)] if omitted else []
    if result.incomplete:
        lines.append(texts.say("search_incomplete"))
    if result.spelling_from:
        lines.append(texts.say("search_spelling", entry=result.spelling_from))
    return lines


def format_hit(hit: SearchHit, zone: tzinfo, texts: Texts) -> str:
    """Format a hit for people and models."""
    marks = "" if hit.exact else texts.say("hit_approximate")
    marks += texts.say("hit_superseded", entry=hit.superseded_by) if hit.superseded_by else ""
    date = format_date(hit.date, zone, undated=texts.say("undated"))
    snippet = escape_tags(f"{hit.author}: {hit.snippet}" if hit.author else hit.snippet)
    return texts.say("search_hit", entry=hit.id, date=date, kind=hit.kind, marks=marks, snippet=snippet)
