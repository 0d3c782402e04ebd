"""The search of a whole tape: of a chat for people and models, of any tape from a shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta, structs
from msgspec.structs import asdict

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import ValueInvalid
from bubbot.features.search.view import SEARCH_TOOL, Match, SearchHit, SearchResult, SearchView
from bubbot.ports.agents import THE_BOT
from bubbot.ports.turn import Turn
from bubbot.runtime.context.copies import FindHeads, check_copies, find_no_heads
from bubbot.runtime.context.quoting import escape_tags
from bubbot.shell_command import Argument
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.query import IdRanges, Span, TapeQuery, date_bounds, format_date
from bubbot.texts import Texts
from bubbot.tool import READS_PEOPLE, CommandHelp, HelpTopic

EXIT_OK, EXIT_NO_MATCH = 0, 1

SearchedKind: TypeAlias = Literal["message", "tool_call", "tool_result", "anchor", "event", "system", "error"]


def parse_limit(text: str) -> int:
    """Parse the number of hits. Raise `ValueError`."""
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ValueError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


FindTopic: TypeAlias = Callable[[TapeHandle, str], Awaitable[Sequence[Span] | None]]
"""Return the id ranges of a topic of a tape, by its name; None if there is no such topic."""


class SearchArgs(Args, frozen=True):
    """What to find in a chat."""

    query: Annotated[str, Meta(description="words or a phrase")]
    kinds: Annotated[tuple[SearchedKind, ...], Meta(description="default: all but system and error")] = ()
    person: Annotated[str, Meta(description="who wrote it")] = ""
    topic: Annotated[str, Meta(description="its topic")] = ""
    since: Annotated[str | None, Meta(description="2026-11-21, monday, 3 days ago")] = None
    until: Annotated[str | None, Meta(description="included")] = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class SearchTapeArgs(Args, frozen=True):
    """What to find, and on which tape."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    words: Annotated[str, Argument("what to look for", rest=True)]
    kinds: Annotated[tuple[SearchedKind, ...], Argument("only these kinds, separated by commas")] = ()
    person: Annotated[str, Argument("only what this person wrote: a name, a part of it, or an id")] = ""
    since: Annotated[
        str | None, Argument("from this day or time on, in UTC: monday, 3 days ago, 2026-11-21 or 2026-11-21T18:00")
    ] = None
    until: Annotated[str | None, Argument("up to this date or time")] = None
    limit: Annotated[int, Argument("how many hits at most (default: 20)", "N", parse_limit)] = 20


class SearchShown(SearchResult, frozen=True, kw_only=True):
    """The hits of a search with what was asked for.

    Attributes:
        asked: what was looked for.
        zone: the time zone of the dates that are shown.
    """

    is_text: ClassVar = True
    asked: SearchArgs
    zone: tzinfo

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if nothing was found."""
        return EXIT_OK if self.hits else EXIT_NO_MATCH

    def describe(self, caller: Caller) -> str:
        """Write a line for each hit, and what was left out."""
        texts = caller.result_texts
        hits = [format_hit(hit, self.zone, texts) for hit in self.hits]
        remarks = format_remarks(self, texts)
        if caller.turn is None:
            nothing = [] if hits else [texts.say("SearchResult.none@shell", query=self.asked.query)]
            return "\n".join(" ".join(line.splitlines()) for line in [*hits, *remarks, *nothing])
        scope = _describe_scope(self.asked, texts)
        if hits:
            head = texts.say("SearchResult.found", number=len(hits), query=self.asked.query, scope=scope)
        else:
            head = texts.say("SearchResult.none", query=self.asked.query, scope=scope)
        return "\n".join([head, *hits, *remarks])


def _describe_scope(asked: SearchArgs, texts: Texts) -> str:
    bounds = (
        texts.say("search_topic", bound=asked.topic) if asked.topic else "",
        texts.say("search_person", bound=asked.person) if asked.person else "",
        texts.say("search_from", bound=asked.since) if asked.since else "",
        texts.say("search_until", bound=asked.until) if asked.until else "",
        texts.say("search_kinds", bound=", ".join(asked.kinds)) if asked.kinds else "",
    )
    return texts.say("search_scope", bounds="".join(bounds))


class SearchCommands:
    """The search of a chat, and of any tape in a shell."""

    def __init__(self, find_topic: FindTopic | None = None, find_heads: FindHeads = find_no_heads) -> None:
        """See `search_feature`."""
        self._find_topic = find_topic
        self._find_heads = find_heads

    @command(
        "search",
        chat=(SEARCH_TOOL, "search"),
        in_shell=False,
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Search all that was said here",
            (",search passport", ',search "train to Rome" since=monday', ",search tickets person=Ann"),
            in_menu=True,
        ),
    )
    async def search_chat(self, caller: Caller, args: SearchArgs) -> SearchResult:
        """Search everything ever said and done in this chat, not only what is in view. Hits cite entry ids (#7)."""
        turn = caller.required_turn
        view = build_search(args, turn.now(), turn.zone)
        view = replace(
            view, excluded_ids=frozenset(turn.message_ids), agent=THE_BOT if turn.runs_command else turn.agent
        )
        if args.topic:
            spans = await self._find_topic(turn.tape, args.topic) if self._find_topic else None
            if spans is None:
                raise ValueInvalid("search_no_topic", topic=args.topic)
            view = replace(view, spans=tuple(spans))
        result = await turn.tape.read(view)
        if not turn.runs_command:
            result = await self._without_withheld(turn, result)
        return SearchShown(**asdict(result), asked=args, zone=turn.zone)

    async def _without_withheld(self, turn: Turn, result: SearchResult) -> SearchResult:
        """Leave out the hits in what was copied of a chat that may not be read here any more: a model must not be shown it again."""
        spans = spans_of([hit.id for hit in result.hits])
        if not spans:
            return result
        found = await turn.tape.fetch([TapeQuery(turn.tape.name, IdRanges(tuple(spans)))])
        withheld = await check_copies(turn, found, self._find_heads)
        hits = tuple([hit for hit in result.hits if hit.id not in withheld])
        return structs.replace(result, hits=hits) if withheld else result

    @command("tape search <tape> <words>", example="default green tea --since 2026-11-01", effect=READS_PEOPLE)
    async def search_tape(self, caller: Caller, args: SearchTapeArgs) -> SearchResult:
        """Find words on a whole tape, also with other endings and spelling mistakes."""
        assert caller.context is not None
        asked = SearchArgs(args.words, args.kinds, args.person, since=args.since, until=args.until, limit=args.limit)
        view = build_search(asked, caller.context.now(), UTC)
        async with caller.context.open_session(args.tape, usage="searched") as tape:
            result = await tape.read(view)
        return SearchShown(**asdict(result), asked=asked, zone=UTC)


def build_search(args: SearchArgs, now: datetime, zone: tzinfo) -> SearchView:
    """Return the search, without its topic. Raise `ValueInvalid` for no words, no date, and dates in the wrong order."""
    if not args.query.strip():
        raise ValueInvalid("search_empty")
    since, until = _read_date(args.since, now, zone)[0], _read_date(args.until, now, zone)[1]
    if since and until and since > until:
        raise ValueInvalid("search_backwards", start=args.since, end=args.until)
    return SearchView(args.query.strip(), args.kinds, since, until, args.limit, sender=args.person.strip())


def _read_date(text: str | None, now: datetime, zone: tzinfo) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last instant of a day or time. Raise `ValueInvalid` if it is none."""
    if not text:
        return None, None
    try:
        return date_bounds(text, text, zone)
    except ValueError as error:
        from bubbot.times.past import read_past_day  # compiled when a time is read

        day = read_past_day(text, now, zone)
        if day is None:
            raise ValueInvalid("not_a_date", text=text) from error
        return date_bounds(day.isoformat(), day.isoformat(), zone)


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
    """Write a hit on a line, if its snippet is one."""
    marks = "" if hit.match != Match.SPELLING else texts.say("hit_approximate")
    marks += texts.say("hit_superseded", entry=hit.superseded_by) if hit.superseded_by else ""
    date = format_date(hit.date, zone, undated=texts.say("undated"))
    snippet = escape_tags(f"{hit.author}: {hit.snippet}" if hit.author else hit.snippet)
    return texts.say("search_hit", entry=hit.id, date=date, kind=hit.kind, marks=marks, snippet=snippet)


COMMANDS = make_group(
    "tape",
    SearchCommands,
    None,
    "",
    search={
        "description": "Finds words anywhere on a tape: whole words first, then other endings, parts of words and spelling mistakes; the "
        "newest first in each. "
        "The exit code is 1 if nothing is found.",
        "is_answered_without_home": False,
    },
)
