"""Recall: which entries from before the window bear on a message."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, tzinfo
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.errors import BubbotError
from bubbot.features.strategies.compact import read_cut
from bubbot.features.strategies.facts import ContextRecalled
from bubbot.features.strategies.retrieval import (
    EVIDENCE_KINDS,
    MAX_EVIDENCE_CHARS,
    RETRIEVAL,
    QueriedTape,
    evidence_text,
    find_recalls,
    fold_retrieval,
    is_evidence,
)
from bubbot.runtime.compose import request_token_limit
from bubbot.runtime.context.ports import StrategyPorts
from bubbot.runtime.context.strategy import ContextStrategy, PreparationInput
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.context.view import records_view
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, int_field, is_said_by_person
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.fact import Fact
from bubbot.tape.handle import ids_of, spans_of
from bubbot.tape.query import IdRanges, OpeningAnchor, Ranked, TapeQuery, parse_moment
from bubbot.tape.ranking import order_scores, score_entries

log = logging.getLogger(__name__)

MAX_EVIDENCE = 8
"""Entries recalled for one message at most, the other messages of their turns included."""
MAX_RANKED = 64
"""Entries that are ranked by their words, and by their meaning."""
MAX_COMPARED = 24
"""The first of them, which are compared with each other: it takes a third of a millisecond each."""
MAX_OF_DAYS = 200
"""Entries that are read of the days that a message speaks of."""
RANK_OFFSET = 10
"""Added to each rank before ranks by words and by meaning are joined: the smaller, the more the first ones count."""
TURN_ENTRIES = 12
"""How far from a message the other messages of its turn are looked for: calls of tools may be between them."""
LINE_TOKENS = 20
"""What the head of one quoted entry takes."""
MAX_STEPS_READ = 8
"""The newest steps among which that of the conversation is looked for: sub-tasks and summaries write some, too."""
_QUESTION_MARK = re.compile(r"[?？]")

FindLimit: TypeAlias = Callable[[int | None], int]
"""Return the tokens that the evidence for one message may take, by the size of the model's context; None: unknown."""
FindAlike: TypeAlias = Callable[[QueriedTape, str, int], Awaitable[Mapping[int, float]]]
"""Find the entries before one that are about the same as a text, each with its likeness: about 1 for the same meaning."""


class _Shown(Struct, frozen=True):
    """What the model is shown anyway.

    Attributes:
        first: the oldest entry of the window that is not cut.
        others: the entries before it that are shown: the window's anchor, what that recalls, and evidence.
    """

    first: int
    others: frozenset[int]


def make_retrieval(find_limit: FindLimit, find_alike: FindAlike | None = None) -> ContextStrategy:
    """Build the strategy, which recalls evidence before an answer.

    Args:
        find_limit: returns the tokens that the evidence for one message may take.
        find_alike: finds entries by their meaning; None without the extra `embeddings`.
    """
    return replace(RETRIEVAL, prepare=partial(_recall, find_limit, find_alike))


async def _recall(
    find_limit: FindLimit, find_alike: FindAlike | None, ports: StrategyPorts, source: PreparationInput
) -> list[TapeEntry | Fact]:
    """Return the fact that names what to show beside the newest answered message, if anything bears on it.

    If the evidence would make a cut necessary, the fact of the cut comes first. A search that fails leaves the turn without
    evidence.
    """
    budget = find_limit(source.context_tokens)
    (opening,) = await ports.fetch([TapeQuery(ports.name, OpeningAnchor(), missing="empty")])
    if budget <= 0 or not opening:
        return []
    message, window = source.answered[-1].id, source.source.entries
    if any(recalled.message == message for _, recalled in find_recalls(window)):  # an interrupted attempt has chosen
        return []
    cuts = await _make_room(ports, source, budget)
    text = "\n".join(evidence_text(entry) for entry in source.answered if entry.payload.get("role") == "user")
    shown = _find_shown(opening[0], [*window, *(cut.with_id(message + 1) for cut in cuts)])
    from bubbot.times.past import find_past_days  # compiled when a time is read

    days = find_past_days(text, source.now, source.zone)
    try:
        rankings = await rank_before(ports, text, shown.first, days, source.zone)
        alike = await find_alike(ports, text, shown.first) if find_alike else {}
        ranked = join_ranks(*rankings, sorted(alike, key=alike.__getitem__, reverse=True))
        ranked = [entry_id for entry_id in ranked if entry_id not in shown.others]
        chosen = await choose_evidence(ports, ranked, shown.first, budget, hidden=shown.others)
    except BubbotError as error:
        log.warning("nothing recalled: %s", error, extra={"action": "context.recall"})
        return [*cuts]
    return [*cuts, ContextRecalled(message, tuple(spans_of(chosen)))] if chosen else [*cuts]


async def _make_room(ports: StrategyPorts, source: PreparationInput, reserve: int) -> Sequence[TapeEntry]:
    """Cut the window if evidence of so many tokens would make it necessary; return the facts of it.

    Evidence leaves out what the window shows. What a cut after it took away would be missing.
    """
    room = await _find_room(ports, source)
    if room is None:
        return ()
    return fold_retrieval(replace(source.source, budget=max(room - reserve, room // 2))).facts


async def _find_room(ports: StrategyPorts, source: PreparationInput) -> int | None:
    """Return the tokens that the messages of the next request may have; None if nobody knows.

    If the newest step was counted, its budget, and what the count left free: a count is better than the estimate.
    """
    newest = TapeQuery(ports.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=MAX_STEPS_READ)
    (steps,) = await ports.fetch([newest])
    step = next((data for entry in steps if (data := _conversation_step(entry))), None)
    if step is None or (room := step["view"]["budget"]) is None:
        return None
    size, count = source.context_tokens, step.get("count")
    if size and isinstance(count, Mapping) and (tokens := int_field(count, "tokens")):
        return int(room) + max(request_token_limit(size) - tokens, 0)
    return int(room)


def _conversation_step(entry: TapeEntry) -> Mapping[str, Any] | None:
    """Return the data of a step of the conversation itself, which records its view."""
    data = entry.data if entry.is_shown_to("") else {}
    return data if records_view(data) and not data.get("purpose") else None


def _find_shown(opening: TapeEntry, entries: Sequence[TapeEntry]) -> _Shown:
    start = read_cut(opening, entries).start
    if start is None:
        first, others = opening.id, [opening.id, *ids_of(recalled_ranges(opening), opening.id)]
    else:
        first, others = start, [opening.id]
    # A cut takes along the evidence beside the messages that it leaves out.
    evidence = [
        entry_id
        for _, recalled in find_recalls(entries)
        if recalled.message >= first
        for entry_id in ids_of(recalled.entries, first)
    ]
    return _Shown(first, frozenset([*others, *evidence]))


async def rank_before(
    tape: QueriedTape, text: str, first: int, days: Sequence[tuple[date, date]], zone: tzinfo
) -> tuple[Sequence[int], Sequence[int]]:
    """Rank the entries before one that share words with a message, and those of the days that it speaks of; best first.

    Of the days come those first that share words with it. A question brings the others as well, in their order.
    """
    query = TapeQuery(tape.name, Ranked(text), kinds=EVIDENCE_KINDS, as_of=first - 1, limit=MAX_RANKED)
    (entries,) = await tape.fetch([query])
    evidence = [entry for entry in entries if is_evidence(entry)]
    ranked = [entry.id for entry in evidence]
    # The one that stands out among them is not below the third: it may lie under many questions that were asked alike.
    distinct = order_scores(score_entries(text, evidence[:MAX_COMPARED]))[:1]
    ranked = list(dict.fromkeys([*ranked[:2], *distinct, *ranked[2:]]))
    said = [entry for day in days for entry in await _read_days(tape, first, day, zone)]
    of_days = {entry.id for entry in said}
    chosen = [entry_id for entry_id in ranked if entry_id in of_days]
    if _QUESTION_MARK.search(text):
        chosen += order_scores(score_entries(text, said))
        chosen += [entry.id for entry in said if is_said_by_person(entry.kind, entry.payload)]
    return ranked, list(dict.fromkeys(chosen))[:MAX_RANKED]


async def _read_days(tape: QueriedTape, first: int, days: tuple[date, date], zone: tzinfo) -> Sequence[TapeEntry]:
    """Read what was said before an entry from one day to another: the first of it, if it is much."""
    since, until = (datetime.combine(day, time(), zone) for day in (days[0], days[1] + timedelta(days=1)))
    begin, end = [await _find_first(tape, moment, first) for moment in (since, until)]
    if begin >= end:
        return []
    query = TapeQuery(tape.name, IdRanges(((begin, end - 1),)), kinds=EVIDENCE_KINDS, limit=MAX_OF_DAYS)
    (entries,) = await tape.fetch([query])
    return [entry for entry in entries if is_evidence(entry)]


async def _find_first(tape: QueriedTape, moment: datetime, end: int) -> int:
    """Find the first entry of a moment or later among those before `end`, by halves: dates ascend."""
    low, high = 1, end
    while low < high:
        middle = (low + high) // 2
        (found,) = await tape.fetch([TapeQuery(tape.name, IdRanges(((middle, middle),)))])
        at = parse_moment(found[0].date) if found else moment  # after the last entry
        low, high = (middle + 1, high) if at is None or at < moment else (low, middle)
    return low


def join_ranks(*rankings: Sequence[int]) -> list[int]:
    """Join rankings by the reciprocals of the ranks, best first; among equals the newest."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, entry_id in enumerate(ranking, 1):
            scores[entry_id] += 1 / (RANK_OFFSET + rank)
    return sorted(scores, key=lambda entry_id: (scores[entry_id], entry_id), reverse=True)


async def choose_evidence(
    tape: QueriedTape, ranked: Sequence[int], first: int, budget: int, *, hidden: Container[int] = ()
) -> list[int]:
    """Choose the best entries that fit into the budget; if there is room, the rest of their turns, then what came next."""
    best = ranked[: 2 * MAX_EVIDENCE]
    if not best:
        return []
    near = tuple((max(1, entry_id - TURN_ENTRIES), min(entry_id + TURN_ENTRIES, first - 1)) for entry_id in best)
    query = TapeQuery(tape.name, IdRanges(near), kinds=EVIDENCE_KINDS)
    (found,) = await tape.fetch([query])
    entries = {entry.id: entry for entry in found if is_evidence(entry) and entry.id not in hidden}
    of_turns = defaultdict[object, list[int]](list)
    for entry in entries.values():
        of_turns[entry.meta.get("turn")].append(entry.id)
    turns = [entries[entry_id].meta.get("turn") for entry_id in best if entry_id in entries]
    said = sorted(entry.id for entry in entries.values() if is_said_by_person(entry.kind, entry.payload))
    next_said = [said[place] for entry_id in best if (place := bisect_right(said, entry_id)) < len(said)]
    chosen: list[int] = []
    for entry_id in dict.fromkeys([*best, *(other for name in turns if name for other in of_turns[name]), *next_said]):
        if entry_id in entries and len(chosen) < MAX_EVIDENCE:
            cost = estimate_tokens(evidence_text(entries[entry_id])[:MAX_EVIDENCE_CHARS]) + LINE_TOKENS
            if cost <= budget:
                budget -= cost
                chosen.append(entry_id)
    return chosen
