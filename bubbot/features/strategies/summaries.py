"""The handoffs of the strategy `summary`: when one is due, and what it hands over. It uses the ports that a package gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial

from msgspec import Struct, structs

from bubbot.features.strategies.compact import SUMMARY
from bubbot.features.strategies.reader import EntriesView, OpenedEntry
from bubbot.features.strategies.summary import QuotedElsewhere, SummaryState, SummaryWriter, reason_of
from bubbot.runtime.compose import PAGE_ENTRIES, PAGE_GROWTH, request_token_limit
from bubbot.runtime.context.ports import StrategyPorts
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle, is_in_context, select_messages
from bubbot.runtime.context.strategy import ContextStrategy, HandoffInput, StrategyHandoff
from bubbot.runtime.context.tokens import estimate_context_tokens, estimate_message_tokens
from bubbot.runtime.turns import find_conversation_step
from bubbot.tape.anchor import find_sources
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import CORRECTION, spans_of
from bubbot.tape.query import IdRanges, TapeQuery, Window

log = logging.getLogger(__name__)

SUMMARY_ORIGIN = "summary"
"""The origin of turns in which a strategy hands off unasked."""
SUMMARY_COMMAND = ",summary"
PART = 4
"""A summary takes at most one fourth of the room of the messages, and so do the newest exchanges that stay."""
MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 150, 1_500
MAX_KEPT_TOKENS = 6_000
UNKNOWN_BUDGET = 16_000
"""The room of the messages, if no step has recorded it."""
MAX_EXPANSIONS = 5
"""Summaries of summaries that are followed to their sources."""
MAX_STEPS_READ = 8
"""The newest steps among which that of the answer is looked for; those of sub-tasks may be newer."""


class WindowContents(Struct, frozen=True):
    """What a window holds.

    Attributes:
        entries: its entries, with those that the anchor recalls.
        messages: as a model would be shown them uncut.
        budget: the tokens that the messages may have, as the newest step recorded them; None if unlimited or unknown.
    """

    entries: Sequence[TapeEntry]
    messages: tuple[ContextMessage, ...]
    budget: int | None


def make_summary(find_share: Callable[[], float]) -> ContextStrategy:
    """Build the strategy, which hands off before its window is full.

    Args:
        find_share: returns the part of a window's room after which it does; 0 for never.
    """
    return replace(SUMMARY, is_due=partial(_is_due, find_share), hand_off=_hand_off)


async def _is_due(find_share: Callable[[], float], ports: StrategyPorts, source: HandoffInput) -> bool:
    """Return true if the window is fuller than it may be."""
    share = find_share()
    if not share or source.opening is None:
        return False
    newest = TapeQuery(source.tape, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=MAX_STEPS_READ)
    budget = _find_budget((await ports.fetch([newest]))[0][::-1])
    return budget is not None and await _is_fuller(ports, source, share * budget)


async def _hand_off(ports: StrategyPorts, source: HandoffInput) -> StrategyHandoff | None:
    """Summarise the window but for its newest exchanges; None if there is nothing to summarise."""
    window = await _read_window(ports, source)
    kept = find_kept(window)
    left = {entry.id for entry in window.entries if is_in_context(entry)} - kept
    entries = [entry for entry in await _open(ports, sorted(left)) if entry.id in left and entry.text.strip()]
    if not entries:
        return None
    earlier = await _read_earlier(ports, source)
    quoted = await _read_quoted(ports, window, entries)
    limit = max(min(MAX_SUMMARY_TOKENS, _find_room(source, window) // PART), MIN_SUMMARY_TOKENS)
    summary, failure = await SummaryWriter(ports, source, limit, earlier, quoted).write(entries)
    state, recalls = summary.as_json(), tuple(spans_of(sorted(kept)))
    if failure is None:
        return StrategyHandoff(
            state, recalls, lambda anchor: source.texts.say("summary_written", count=len(entries), entry=anchor)
        )
    log.info("summary written without the model: %s", failure, extra={"action": "context.summary_without_model"})
    reason = reason_of(failure, source.texts)
    return StrategyHandoff(
        state | {"form": "extractive"},
        recalls,
        lambda anchor: source.texts.say("summary_cited", count=len(entries), entry=anchor, reason=reason),
    )


async def _read_quoted(
    ports: StrategyPorts, window: WindowContents, entries: Sequence[OpenedEntry]
) -> dict[int, QuotedElsewhere]:
    """Read what stands of other chats in and beside the entries to summarise, as far as it may be shown now."""
    beside = await ports.read_beside(window.entries)
    found: dict[int, QuotedElsewhere] = {}
    for entry in entries:
        copied = await ports.read_cited(cited, entry.date) if (cited := ports.list_copied(entry.id)) else ()
        if copied or entry.id in beside:
            found[entry.id] = QuotedElsewhere(beside.get(entry.id, ()), copied)
    return found


async def _open(ports: StrategyPorts, ids: Sequence[int]) -> Sequence[OpenedEntry]:
    """Open entries of the conversation."""
    view = EntriesView(tuple(spans_of(ids)))
    return view.fold(await ports.fetch(view.queries(ports.name))).entries if ids else ()


def find_kept(window: WindowContents) -> frozenset[int]:
    """Return the entries of the newest whole exchanges, which stay; empty if all of the window would stay."""
    room = min(MAX_KEPT_TOKENS, (window.budget or UNKNOWN_BUDGET) // PART)
    start, used = len(window.messages), 0
    for place in range(len(window.messages) - 1, -1, -1):
        message = window.messages[place]
        used += estimate_message_tokens(message)
        if used > room:
            break
        if message.message["role"] == "user" and message.ids:
            start = place
    if start in (0, len(window.messages)):
        return frozenset()
    first = min(window.messages[start].ids)
    return frozenset(entry.id for entry in window.entries if entry.id >= first and entry.kind in _KEPT_KINDS)


_KEPT_KINDS = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


async def _is_fuller(ports: StrategyPorts, source: HandoffInput, tokens: float) -> bool:
    """Return true if the window, uncut, has more tokens; it is read from its end until that is known."""
    limit = PAGE_ENTRIES
    while True:
        query = TapeQuery(source.tape, Window(), missing="empty", newest=True, limit=limit)
        page = (await ports.fetch([query]))[0]
        if estimate_context_tokens(_show(page[::-1], source.zone)) > tokens:
            return True
        if len(page) < limit:
            return False
        limit *= PAGE_GROWTH


def _show(entries: Sequence[TapeEntry], zone: tzinfo) -> tuple[ContextMessage, ...]:
    shown = [entry for entry in entries if entry.kind in _KEPT_KINDS and entry.is_shown_to("")]
    return select_messages(shown, MessageStyle(stamps=zone))


async def _read_window(ports: StrategyPorts, source: HandoffInput) -> WindowContents:
    (found,) = await ports.fetch([TapeQuery(source.tape, Window(), missing="empty")])
    entries = [entry for entry in found if entry.is_shown_to("")]  # what sub-tasks wrote is their own
    return WindowContents(entries, _show(entries, source.zone), _find_budget(entries))


def _find_budget(entries: Sequence[TapeEntry]) -> int | None:
    """Return the tokens of messages that the newest step of the conversation recorded; None if unlimited or unknown."""
    step = find_conversation_step(entries)
    budget = step["view"].get("budget") if step else None
    return budget if type(budget) is int else None


def _find_room(source: HandoffInput, window: WindowContents) -> int:
    """Return the tokens that messages may have."""
    if window.budget is not None:
        return window.budget
    return UNKNOWN_BUDGET if source.context_tokens is None else request_token_limit(source.context_tokens) // 2


async def _read_earlier(ports: StrategyPorts, source: HandoffInput) -> SummaryState:
    """Read what the window opened with. It cites first sources: an anchor among them is replaced by its own sources."""
    opening = source.opening
    if opening is None or not is_in_context(opening):
        return SummaryState()
    state = SummaryState.from_json(opening.payload.get("state"))
    if state.is_empty:
        return SummaryState()
    head = await ports.head()
    sources = {number for number in state.source_ids if 1 <= number <= head}
    for _ in range(MAX_EXPANSIONS):
        if not sources:
            break
        part = IdRanges(tuple(spans_of(sorted(sources))))
        anchors = (await ports.fetch([TapeQuery(source.tape, part, kinds=(Kind.ANCHOR,))]))[0]
        found = {anchor.id: SummaryState.from_json(anchor.payload.get("state")).source_ids for anchor in anchors}
        found = {entry: ids for entry, ids in found.items() if ids}
        if not found:
            break
        sources -= found.keys()
        sources |= {number for entry, ids in found.items() for number in ids if 1 <= number < entry}
    cited = await _read_elsewhere(ports, opening)
    state = structs.replace(state, source_ids=tuple(sorted(sources)), cited=cited.found)
    return await _without_deleted(ports, state, cited.missing)


class _CitedElsewhere(Struct, frozen=True):
    """The entries of other chats that a summary cites: by mark, and how many of them may not be shown any more."""

    found: Mapping[str, tuple[str, int]]
    missing: int


async def _read_elsewhere(ports: StrategyPorts, opening: TapeEntry) -> _CitedElsewhere:
    """Read what a summary cites of other chats."""
    state = opening.payload.get("state")
    cited = [each for each in find_sources(state, ports.name, opening.id) if each[0] != ports.name]
    shown = await ports.read_cited(cited, opening.date) if cited else ()
    return _CitedElsewhere({each.mark: (each.tape, each.entry.id) for each in shown}, len(cited) - len(shown))


async def _without_deleted(ports: StrategyPorts, state: SummaryState, missing: int = 0) -> SummaryState:
    """Cite no source that was deleted since, and say so: a summary that still rests on it is refused, and written again."""
    name, part = ports.name, IdRanges(tuple(spans_of(state.source_ids)))
    sources, events = await ports.fetch(
        [TapeQuery(name, part), TapeQuery(name, kinds=(Kind.EVENT,), names=(CORRECTION,))]
    )
    hidden = Corrections.of(events).hidden
    deleted = sorted(entry.id for entry in sources if entry.erased or entry.id in hidden)
    if not deleted and not missing:
        return state
    notes: list[str] = []
    if deleted:
        notes.append(f"Deleted since, so that nothing of it may be carried over: {', '.join(map(str, deleted))}.")
    if missing:
        notes.append(
            f"{missing} of its sources in other chats may not be shown here any more: carry nothing of these over."
        )
    note = " ".join(notes)
    left = tuple(number for number in state.source_ids if number not in deleted)
    return structs.replace(state, summary=f"{note}\n{state.summary}", source_ids=left)
