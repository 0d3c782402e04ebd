"""Recall: which entries from before the window bear on a message."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

from bubbot.errors import BubbotError
from bubbot.features.strategies.events import CUT, RECALLED
from bubbot.features.strategies.retrieval import (
    EVIDENCE_KINDS,
    MAX_EVIDENCE_CHARS,
    evidence_text,
    find_recalls,
    is_evidence,
)
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, event
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import ids_of, spans_of
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, Window, fold_text, parse_moment
from bubbot.tape.words import is_run, tokens

log = logging.getLogger(__name__)

MAX_TERMS = 12
"""Words of a message that are looked for; each is a search of its own."""
MAX_HITS = 20
"""Entries that a word may be found in; one that is in more tells little, and does not count."""
MAX_EVIDENCE = 8
"""Entries recalled for one message at most."""
MIN_LETTERS = 3
"""Shorter words are not looked for."""
LINE_TOKENS = 20
"""What the head of one quoted entry takes."""

FindEntries: TypeAlias = Callable[[ForkedTape, str, datetime | None, int], Awaitable[Sequence[int]]]
"""Find the entries that hold a word, up to a date, newest first and so many at most."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """What the model is shown anyway: the entries from `first` on, and those in `shown`."""

    first: int
    until: datetime | None
    shown: frozenset[int]


async def recall_for(turn: Turn, find: FindEntries, budget: int) -> None:
    """Append the fact that names what to show beside the newest message of the turn, if anything bears on it.

    A search that fails leaves the turn without evidence.

    Args:
        turn: the turn, before its first model call.
        find: the search.
        budget: tokens that the evidence may take.
    """
    if not turn.message_ids or budget <= 0:
        return
    message = turn.message_ids[-1]
    opening, window = await turn.tape.fetch(
        [
            TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty"),
            TapeQuery(turn.tape.name, Window(), kinds=(Kind.EVENT,), names=(CUT, RECALLED), missing="empty"),
        ]
    )
    window = tuple(entry for entry in window if entry.is_shown_to(""))  # sub-tasks cut their own windows
    recalls = list(find_recalls(window))
    if not opening or any(recall.message == message for recall in recalls):  # an interrupted attempt has chosen
        return
    asked = (await turn.tape.fetch([TapeQuery(turn.tape.name, IdRanges(tuple(spans_of(turn.message_ids))))]))[0]
    terms = find_terms("\n".join(evidence_text(entry) for entry in asked if entry.payload.get("role") == "user"))
    boundary = await _find_boundary(turn, opening[0], window)
    still_shown = [recall for recall in recalls if recall.message >= boundary.first]  # a cut takes its evidence along
    seen = boundary.shown | {entry_id for recall in still_shown for entry_id in ids_of(recall.spans, boundary.first)}
    try:
        scores = await _score(turn, terms, find, boundary, seen)
    except BubbotError as error:
        log.warning("nothing recalled: %s", error, extra={"action": "context.recall"})
        return
    chosen = await _choose(turn, scores, budget)
    if chosen:
        await turn.tape.append([event(RECALLED, {"message": message, "entries": spans_of(chosen)})])


def find_terms(text: str) -> list[str]:
    """Return the words to look for, longest first; runs without spaces as pairs of characters."""
    terms = dict.fromkeys(term for token in tokens(fold_text(text)) for term in _terms_of(token))
    return sorted(terms, key=len, reverse=True)[:MAX_TERMS]


def _terms_of(token: str) -> Iterator[str]:
    if is_run(token):
        yield from (token[start : start + 2] for start in range(max(len(token) - 1, 1)))
    elif len(token) >= MIN_LETTERS:
        yield token


async def _find_boundary(turn: Turn, opening: TapeEntry, window: Sequence[TapeEntry]) -> _Boundary:
    cuts = [data.get("from") for entry in window if entry.name == CUT and (data := entry.payload.get("data"))]
    cut = max((cut for cut in cuts if type(cut) is int), default=opening.id)
    if cut <= opening.id:
        recalled = ids_of(recalled_ranges(opening), opening.id)
        return _Boundary(opening.id, parse_moment(opening.date), frozenset([opening.id, *recalled]))
    return _Boundary(cut, parse_moment((await turn.tape.entry(cut)).date), frozenset([opening.id]))


async def _score(
    turn: Turn, terms: Sequence[str], find: FindEntries, boundary: _Boundary, seen: frozenset[int]
) -> dict[int, float]:
    """Score the entries by the words that they share with the message: a rare word counts more."""
    scores: defaultdict[int, float] = defaultdict(float)
    for term in terms:
        hits = await find(turn.tape, term, boundary.until, MAX_HITS)
        if len(hits) < MAX_HITS:
            for entry_id in hits:
                if entry_id < boundary.first and entry_id not in seen:
                    scores[entry_id] += 1 / len(hits)
    return dict(scores)


async def _choose(turn: Turn, scores: dict[int, float], budget: int) -> list[int]:
    """Choose the best entries that fit into the budget; among equals the newest."""
    best = sorted(scores, key=lambda entry_id: (scores[entry_id], entry_id), reverse=True)[: 2 * MAX_EVIDENCE]
    if not best:
        return []
    query = TapeQuery(turn.tape.name, IdRanges(tuple(spans_of(best))), kinds=EVIDENCE_KINDS)
    entries = {entry.id: entry for entry in (await turn.tape.fetch([query]))[0] if is_evidence(entry)}
    chosen: list[int] = []
    for entry_id in best:
        if entry_id in entries and len(chosen) < MAX_EVIDENCE:
            cost = estimate_tokens(evidence_text(entries[entry_id])[:MAX_EVIDENCE_CHARS]) + LINE_TOKENS
            if cost <= budget:
                budget -= cost
                chosen.append(entry_id)
    return chosen
