"""Recall: which entries from before the window bear on a message."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
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
from bubbot.tape.entry import Kind, TapeEntry, int_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.query import (
    IdRanges,
    OpeningAnchor,
    TapeQuery,
    parse_moment,
)
from bubbot.tape.view import QueryAnswers
from bubbot.tape.words import fold_text, is_run, tokens

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
MAX_STEPS_READ = 8
"""The newest steps among which that of the conversation is looked for: sub-tasks and summaries write some, too."""
_STRATEGIES = ContextStrategies((RETRIEVAL,))
_CURRENT = {"selector": RETRIEVAL.name, "strategy_version": RETRIEVAL.version, "fork": "", "answered": ()}

FindEntries: TypeAlias = Callable[[ForkedTape, Sequence[str], datetime | None, int], Awaitable[Sequence[Sequence[int]]]]
"""Find the entries that hold each word, up to a date, newest first and so many at most of each."""

FindAlike: TypeAlias = Callable[[TapeHandle, str, int], Awaitable[Mapping[int, float]]]
"""Find the entries before one that are about the same as a text, each with its likeness: about 1 for the same meaning."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the model is shown anyway.

    Attributes:
        first: the oldest entry of the window that is not cut.
        until: its date.
        others: the entries before it that are shown: the window's anchor, what that recalls, and evidence.
    """

    first: int
    until: datetime | None
    others: frozenset[int]


async def recall_for(turn: Turn, find: FindEntries, budget: int, *, find_alike: FindAlike | None = None) -> None:
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
    try:
        scores = await _score(turn, find_terms(text), find, shown)
    except BubbotError as error:
        log.warning("nothing recalled: %s", error, extra={"action": "context.recall"})
        return
    alike = await find_alike(turn.tape, text, shown.first) if find_alike else {}
    for entry_id, likeness in alike.items():
        if entry_id not in shown.others:
            scores[entry_id] = scores.get(entry_id, 0.0) + likeness
    chosen = await _choose(turn, scores, budget)
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


def find_terms(text: str) -> list[str]:
    """Return the words to look for, longest first; runs without spaces as pairs of characters."""
    terms = dict.fromkeys(term for token in tokens(fold_text(text)) for term in _terms_of(token))
    return sorted(terms, key=len, reverse=True)[:MAX_TERMS]


def _terms_of(token: str) -> Iterator[str]:
    if is_run(token):
        yield from (token[start : start + 2] for start in range(max(len(token) - 1, 1)))
    elif len(token) >= MIN_LETTERS:
        yield token


async def _find_shown(turn: Turn, opening: TapeEntry, entries: Sequence[TapeEntry]) -> _Shown:
    start = read_cut(opening, entries).start
    if start is None:
        first, until, others = opening.id, opening.date, [opening.id, *ids_of(recalled_ranges(opening), opening.id)]
    else:
        first, until, others = start, (await turn.tape.entry(start)).date, [opening.id]
    # A cut takes along the evidence beside the messages that it leaves out.
    evidence = [
        entry_id
        for _, recalled in find_recalls(entries)
        if recalled.message >= first
        for entry_id in ids_of(recalled.entries, first)
    ]
    return _Shown(first, parse_moment(until), frozenset([*others, *evidence]))


async def _score(turn: Turn, terms: Sequence[str], find: FindEntries, shown: _Shown) -> dict[int, float]:
    """Score the entries by the words that they share with the message: a rare word counts more."""
    scores: defaultdict[int, float] = defaultdict(float)
    for hits in await find(turn.tape, terms, shown.until, MAX_HITS) if terms else ():
        if len(hits) < MAX_HITS:
            for entry_id in hits:
                if entry_id < shown.first and entry_id not in shown.others:
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
