"""Recall: which entries from before the window bear on a message."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, TypeAlias

from bubbot.errors import BubbotError
from bubbot.features.strategies.compact import read_cut
from bubbot.features.strategies.facts import ContextRecalled
from bubbot.features.strategies.retrieval import (
    EVIDENCE_KINDS,
    MAX_EVIDENCE_CHARS,
    RETRIEVAL,
    evidence_text,
    find_recalls,
    is_evidence,
)
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import narrow_view, request_token_limit
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.context.view import ContextView, records_view
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, int_field, is_said_by_person
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.query import IdRanges, OpeningAnchor, Ranked, TapeQuery, parse_moment
from bubbot.tape.ranking import order_scores, score_entries
from bubbot.tape.view import QueryAnswers
from bubbot.times.past import find_past_days

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
_STRATEGIES = ContextStrategies((RETRIEVAL,))
_CURRENT = {"selector": RETRIEVAL.name, "strategy_version": RETRIEVAL.version, "fork": "", "answered": ()}

FindAlike: TypeAlias = Callable[[TapeHandle, str, int], Awaitable[Mapping[int, float]]]
"""Find the entries before one that are about the same as a text, each with its likeness: about 1 for the same meaning."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the model is shown anyway.

    Attributes:
        first: the oldest entry of the window that is not cut.
        others: the entries before it that are shown: the window's anchor, what that recalls, and evidence.
    """

    first: int
    others: frozenset[int]


async def recall_for(turn: Turn, budget: int, *, find_alike: FindAlike | None = None) -> None:
    """Append the fact that names what to show beside the newest message of the turn, if anything bears on it.

    Call it before the first model call of the turn. The evidence takes at most `budget` tokens. A search that fails leaves
    the turn without evidence; `find_alike` is None without the extra `embeddings`.
    """
    if not turn.message_ids or budget <= 0:
        return
    message = turn.message_ids[-1]
    (opening,) = await turn.tape.fetch([TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty")])
    if not opening:
        return
    view, has_room = await _next_view(turn, budget)
    answers = await turn.tape.fetch(view.queries(turn.tape.name))
    window = [entry for entry in answers[1] if entry.is_shown_to("")]  # sub-tasks cut their own windows
    if any(recalled.message == message for _, recalled in find_recalls(window)):  # an interrupted attempt has chosen
        return
    entries = [*window, *(await _make_room(turn, view, answers) if has_room else ())]
    asked = (await turn.tape.fetch([TapeQuery(turn.tape.name, IdRanges(tuple(spans_of(turn.message_ids))))]))[0]
    text = "\n".join(evidence_text(entry) for entry in asked if entry.payload.get("role") == "user")
    shown = await _find_shown(turn, opening[0], entries)
    days = find_past_days(text, turn.now(), turn.zone)
    try:
        rankings = await rank_before(turn.tape, text, shown.first, days, turn.zone)
    except BubbotError as error:
        log.warning("nothing recalled: %s", error, extra={"action": "context.recall"})
        return
    alike = await find_alike(turn.tape, text, shown.first) if find_alike else {}
    ranked = join_ranks(*rankings, sorted(alike, key=alike.__getitem__, reverse=True))
    ranked = [entry_id for entry_id in ranked if entry_id not in shown.others]
    chosen = await choose_evidence(turn.tape, ranked, shown.first, budget, hidden=shown.others)
    if chosen:
        await turn.tape.append([ContextRecalled(message, tuple(spans_of(chosen))).to_entry()])


async def _make_room(turn: Turn, view: ContextView, answers: QueryAnswers) -> Sequence[TapeEntry]:
    """Cut the window if the evidence would make it necessary; return the facts of it.

    Evidence leaves out what the window shows. What a cut after it took away would be missing.
    """
    further = view.further_queries(turn.tape.name, answers)
    found = [*answers, *(await turn.tape.fetch(further) if further else ())]
    facts = view.fold(found).facts
    return await turn.tape.append(facts) if facts else ()


async def _next_view(turn: Turn, reserve: int) -> tuple[ContextView, bool]:
    """Return the view of the next request beside evidence of so many tokens, and whether its budget is known.

    That is the budget of the newest step. If there is none, as on an imported tape, the size of the model tells what is read.
    """
    newest = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=MAX_STEPS_READ)
    (steps,) = await turn.tape.fetch([newest])
    step = next((data for entry in steps if (data := _conversation_step(entry))), None)
    recorded = ContextView().as_json() if step is None else step["view"]
    view = ContextView.from_json({**recorded, **_CURRENT}, _STRATEGIES)
    size, room = (await turn.runner.find_model(turn)).traits.context_tokens, view.budget
    if step is None or room is None:
        budget = request_token_limit(size) if size else None
        return await narrow_view(turn.tape, replace(view, budget=budget)), False
    count = step.get("count")
    if size and isinstance(count, Mapping) and (tokens := int_field(count, "tokens")):
        room += max(
            request_token_limit(size) - tokens, 0
        )  # a count is better than the estimate: what it left free is room
    return await narrow_view(turn.tape, replace(view, budget=max(room - reserve, room // 2))), True


def _conversation_step(entry: TapeEntry) -> Mapping[str, Any] | None:
    """Return the data of a step of the conversation itself, which records its view."""
    data = entry.data if entry.is_shown_to("") else {}
    return data if records_view(data) and not data.get("purpose") else None


async def _find_shown(turn: Turn, opening: TapeEntry, entries: Sequence[TapeEntry]) -> _Shown:
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
    tape: TapeHandle, text: str, first: int, days: Sequence[tuple[date, date]], zone: tzinfo
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


async def _read_days(tape: TapeHandle, first: int, days: tuple[date, date], zone: tzinfo) -> Sequence[TapeEntry]:
    """Read what was said before an entry from one day to another: the first of it, if it is much."""
    since, until = (datetime.combine(day, time(), zone) for day in (days[0], days[1] + timedelta(days=1)))
    begin, end = [await _find_first(tape, moment, first) for moment in (since, until)]
    if begin >= end:
        return []
    query = TapeQuery(tape.name, IdRanges(((begin, end - 1),)), kinds=EVIDENCE_KINDS, limit=MAX_OF_DAYS)
    (entries,) = await tape.fetch([query])
    return [entry for entry in entries if is_evidence(entry)]


async def _find_first(tape: TapeHandle, moment: datetime, end: int) -> int:
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
    tape: TapeHandle, ranked: Sequence[int], first: int, budget: int, *, hidden: Container[int] = ()
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
