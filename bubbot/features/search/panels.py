"""Search on the trace page: in one tape, or in all that the viewer may see.

The boundary comes first: a tape that the viewer may not see is not searched, so it takes part in no ranking and no count.
"""

from __future__ import annotations

from bubbot.errors import TapeCorrupt
from bubbot.features.search.commands import format_remarks
from bubbot.features.search.view import SearchHit, SearchView
from bubbot.ports.panel import Block, Cell, Form, Moment, Panel, PanelQuery, PanelReader, Paragraph, Table, TapeLink
from bubbot.ports.session_names import read_session
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

TAPES_PER_PAGE = 30
"""Tapes that are searched for one page."""
MAX_WORDS_CHARS = 200


async def search_tape(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Find words on one tape."""
    words = query.params.get("words", "").strip()[:MAX_WORDS_CHARS]
    form = _form(reader, words)
    if not words:
        return [form]
    result = await reader.tapes.open_tape(query.tape, query.session).read(SearchView(words, limit=query.limit))
    rows = [_row(reader, query.tape, query.session, hit)[1:] for hit in result.hits]
    table = Table("", _columns(reader)[1:], tuple(rows), reader.texts.say("panel_search_none", words=words))
    return [form, table, *(Paragraph(remark) for remark in format_remarks(result, reader.texts))]


async def search_everything(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Find words on all tapes that the viewer may see, some tapes at a time; the best hits come first."""
    words, texts = query.params.get("words", "").strip()[:MAX_WORDS_CHARS], reader.texts
    form = _form(reader, words)
    if not words:
        return [form]
    names = [tape.name for tape in await reader.tapes.tapes() if not tape.name.startswith(SYSTEM_TAPE_PREFIX)]
    start = query.cursor_id() or 0
    found: list[tuple[bool, str, tuple[Cell, ...]]] = []
    damaged: list[Block] = []
    for name in names[start : start + TAPES_PER_PAGE]:
        try:
            result = await reader.tapes.open_tape(name).read(SearchView(words, limit=query.limit))
            session = await read_session(reader.tapes, name) if result.hits and reader.tapes.viewer.sees_all else ""
        except TapeCorrupt as error:  # the other tapes are searched
            damaged.append(Paragraph(texts.reason(error), "warning"))
            continue
        if result.hits:
            session = session or next((each for each in _granted(reader, name)), "")
            found += [(hit.exact, hit.date, _row(reader, name, session, hit)) for hit in result.hits]
    found.sort(key=lambda each: each[:2], reverse=True)
    rows = tuple(row for *_, row in found[: query.limit])
    more = str(start + TAPES_PER_PAGE) if len(names) > start + TAPES_PER_PAGE else ""
    none = texts.say("panel_search_none", words=words)
    blocks: list[Block] = [form, *damaged, Table("", _columns(reader), rows, none, more)]
    if more or start:
        last = min(start + TAPES_PER_PAGE, len(names))
        blocks.append(Paragraph(texts.say("panel_search_tapes", first=start + 1, last=last, all=len(names))))
    return blocks


def _granted(reader: PanelReader, tape: str) -> list[str]:
    """Return the granted sessions that have this tape or its archive: at most one."""
    sessions = reader.tapes.viewer.sessions or ()
    return [each for each in sessions if reader.tapes.open_session(each).name == tape.partition("@")[0]]


def _form(reader: PanelReader, words: str) -> Form:
    return Form("words", reader.texts.say("panel_search_words"), reader.texts.say("panel_search"), words)


def _columns(reader: PanelReader) -> tuple[str, ...]:
    return tuple(
        map(reader.texts.say, ("panel_chat", "panel_entry", "panel_when", "panel_by", "panel_kind", "panel_text"))
    )


def _row(reader: PanelReader, tape: str, session: str, hit: SearchHit) -> tuple[Cell, ...]:
    notes = [] if hit.exact else [reader.texts.say("panel_spelling")]
    return (
        TapeLink(session or tape, session=session, tape=tape),
        TapeLink(f"#{hit.id}", tape=tape, entry=hit.id),
        Moment(hit.date),
        hit.author,
        " ".join(filter(None, (hit.kind, hit.name))),
        " ".join([hit.snippet, *(f"({note})" for note in notes)]),
    )


PANELS = (
    Panel("search", "Search", "session", search_tape),
    Panel("search", "Search", "deployment", search_everything),
)
