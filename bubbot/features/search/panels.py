"""Search on the trace page: in one tape, or in all that the viewer may see.

The boundary comes first: a tape that the viewer may not see is not searched, so it takes part in no ranking and no count.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from bubbot.command import Surface, explain
from bubbot.errors import TapeCorrupt, ValueInvalid
from bubbot.features.search.commands import SearchArgs, build_search, format_remarks
from bubbot.features.search.view import SearchHit, SearchView
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.ports.session_names import read_session
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

TAPES_PER_PAGE = 30
"""Tapes that are searched for one page."""
MAX_WORDS_CHARS = 200


class FoundEntry(Struct, frozen=True):
    """A hit with its tape; `session` is empty if it is not known."""

    tape: str
    session: str
    hit: SearchHit


class SearchPage(Struct, frozen=True):
    """What was found for the words, if there are any.

    Attributes:
        words: as they were searched.
        person: whose entries were searched; empty for those of all.
        since: the first day, as it was typed.
        until: the last day, as it was typed.
        shows_chats: the hits are of several chats.
        found: in the order in which they are shown.
        problems: why tapes were left out, or nothing was searched.
        remarks: what the search says of its result.
        searched: the first and the last number of the tapes that were searched, and how many there are; None if that is all.
        more: the cursor of the next page.
    """

    words: str
    shows_chats: bool
    person: str = ""
    since: str = ""
    until: str = ""
    found: tuple[FoundEntry, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    searched: tuple[int, int, int] | None = None
    more: str = ""


async def search_tape(reader: PanelReader, query: PanelQuery) -> SearchPage:
    """Find words on one tape."""
    page, view = _read_form(reader, query, shows_chats=False)
    if view is None:
        return page
    result = await reader.tapes.open_tape(query.tape, query.session).read(view)
    found = tuple(FoundEntry(query.tape, query.session, hit) for hit in result.hits)
    return replace(page, found=found, remarks=tuple(format_remarks(result, reader.texts)))


async def search_everything(reader: PanelReader, query: PanelQuery) -> SearchPage:
    """Find words on all tapes that the viewer may see, some tapes at a time; the best hits come first."""
    page, view = _read_form(reader, query, shows_chats=True)
    if view is None:
        return page
    names = [tape.name for tape in await reader.tapes.tapes() if not tape.name.startswith(SYSTEM_TAPE_PREFIX)]
    start = query.cursor_id() or 0
    found: list[FoundEntry] = []
    problems: list[str] = []
    for name in names[start : start + TAPES_PER_PAGE]:
        try:
            result = await reader.tapes.open_tape(name).read(view)
            session = await read_session(reader.tapes, name) if result.hits and reader.tapes.viewer.sees_all else ""
        except TapeCorrupt as error:  # the other tapes are searched
            problems.append(reader.texts.reason(error))
            continue
        if result.hits:
            session = session or next((each for each in _granted(reader, name)), "")
            found += [FoundEntry(name, session, hit) for hit in result.hits]
    found.sort(key=lambda each: each.hit.date, reverse=True)
    found.sort(key=lambda each: each.hit.order)
    last = min(start + TAPES_PER_PAGE, len(names))
    return replace(
        page,
        found=tuple(found[: query.limit]),
        problems=tuple(problems),
        searched=(start + 1, last, len(names)) if start or last < len(names) else None,
        more=str(start + TAPES_PER_PAGE) if len(names) > start + TAPES_PER_PAGE else "",
    )


def _read_form(reader: PanelReader, query: PanelQuery, *, shows_chats: bool) -> tuple[SearchPage, SearchView | None]:
    """Return the page with what was typed, and the search; None if nothing is to be found, or a date is none."""
    words, person, since, until = (
        query.params.get(name, "").strip()[:MAX_WORDS_CHARS] for name in ("words", "person", "since", "until")
    )
    page = SearchPage(words, shows_chats, person, since, until)
    if not words:
        return page, None
    try:
        asked = SearchArgs(words, person=person, since=since, until=until, limit=query.limit)
        view = build_search(asked, reader.now, reader.zone)
    except ValueInvalid as error:
        return replace(page, problems=(explain(error, "", reader.texts, Surface.CHAT),)), None
    return page, view


def _granted(reader: PanelReader, tape: str) -> list[str]:
    """Return the granted sessions that have this tape or its archive: at most one."""
    sessions = reader.tapes.viewer.sessions or ()
    return [each for each in sessions if reader.tapes.open_session(each).name == tape.partition("@")[0]]


PANELS = (
    Panel("search", "Search", "session", search_tape, "bubbot.features.search:search.html"),
    Panel("search", "Search", "deployment", search_everything, "bubbot.features.search:search.html"),
)
