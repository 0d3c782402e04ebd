"""What a feature quotes of another tape: what the window quotes already, what shares words with a message, and the fact."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from msgspec import UNSET, Struct

from bubbot.errors import BubbotError
from bubbot.runtime.context.copies import is_there
from bubbot.runtime.context.evidence import find_evidence
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import EVIDENCE_EVENT, EvidenceNode, EvidenceQuoted
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.query import IdRanges, Ranked, TapeQuery, Window

log = logging.getLogger(__name__)

MAX_RANKED = 64
"""Entries of the other tape that are ranked by the words of a message."""


class WindowQuotations(Struct, frozen=True):
    """What a window quotes already of another tape.

    Attributes:
        parts: the facts, each with the entries that it names. What the other tape held before it began again is left out.
    """

    parts: tuple[tuple[EvidenceQuoted, frozenset[int]], ...] = ()

    def ids(self, selects: Callable[[EvidenceQuoted], bool] = lambda _: True) -> frozenset[int]:
        """Return the entries that the selected facts name."""
        return frozenset().union(*[ids for fact, ids in self.parts if selects(fact)])


async def find_quoted(tape: TapeHandle, other: str) -> WindowQuotations:
    """Find what the window of a tape quotes of another tape, by its name."""
    query = TapeQuery(tape.name, Window(), kinds=(Kind.EVENT,), names=(EVIDENCE_EVENT,), missing="empty")
    named: list[tuple[EvidenceQuoted, str, list[int]]] = []
    for _, fact in find_evidence((await tape.fetch([query]))[0]):
        for node in fact.nodes:
            ids = [number for name, spans in node.elsewhere if name == other for number in ids_of(spans, 0)]
            named += [(fact, node.until, ids)] if ids else []
    if not named:
        return WindowQuotations()
    newest = spans_of([max(ids) for _, _, ids in named])
    (found,) = await tape.fetch([TapeQuery(other, IdRanges(tuple(newest)))])
    dates = {entry.id: entry.date for entry in found}
    return WindowQuotations(
        tuple([(fact, frozenset(ids)) for fact, until, ids in named if is_there(dates, max(ids), until)])
    )


async def find_alike(tape: TapeHandle, other: str, text: str, *, as_of: int | None = None) -> tuple[TapeEntry, ...]:
    """Find messages of another tape that share words with a text, best first; none if the search fails."""
    if not text.strip():
        return ()
    query = TapeQuery(other, Ranked(text), kinds=(Kind.MESSAGE,), as_of=as_of, limit=MAX_RANKED)
    try:
        (found,) = await tape.fetch([query])
    except BubbotError as error:
        log.warning("nothing found in another chat: %s", error, extra={"action": "context.quoted"})
        return ()
    return found


async def quote_elsewhere(
    tape: TapeHandle,
    other: TapeHandle,
    ids: Collection[int],
    *,
    message: int,
    source: str,
    title: str,
    anchors: bool = False,
) -> None:
    """Append the fact that quotes entries of another session.

    Args:
        tape: the tape that gets the fact.
        other: the tape of the other session.
        ids: the entries; not empty.
        message: the message beside which they stand; 0 for a message of their own.
        source: what has chosen them.
        title: what they are from, in a few words.
        anchors: they are anchors.
    """
    newest = max(ids)
    (last,) = await tape.fetch([TapeQuery(other.name, IdRanges(((newest, newest),)))])
    node = EvidenceNode(
        title=title,
        session=other.session,
        elsewhere=((other.name, tuple(spans_of(sorted(ids)))),),
        until=last[0].date if last else "",
        anchors=True if anchors else UNSET,
    )
    await tape.append([EvidenceQuoted(message, source, (node,)).to_entry()])
