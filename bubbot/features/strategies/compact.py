"""Compaction: reading less of a window, without deleting anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from bubbot.features.strategies.events import CUT
from bubbot.features.strategies.hint import build_hint
from bubbot.runtime.context.selectors import ContextMessage, prepend_opening, select_messages
from bubbot.runtime.context.strategy import ContextInput, ContextStrategy, ModelContext
from bubbot.runtime.context.tokens import estimate_message_tokens
from bubbot.tape.entry import TapeEntry, event


def fold_compact(source: ContextInput) -> ModelContext:
    """Cut whole exchanges, oldest first, until the rest fits into the budget."""
    return _compact(source, has_hint=False)


def fold_with_hint(source: ContextInput) -> ModelContext:
    """Cut as `fold_compact` does, and begin with a hint that names what was cut."""
    return _compact(source, has_hint=True)


def _compact(source: ContextInput, *, has_hint: bool) -> ModelContext:
    return compact_messages(source, select_messages(source.entries, source.style), has_hint=has_hint)


def compact_messages(source: ContextInput, body: tuple[ContextMessage, ...], *, has_hint: bool = False) -> ModelContext:
    """Cut messages that were made of the entries of the source."""
    if source.budget is None:
        return ModelContext(prepend_opening(source.opening, body, source.style))
    rest = _messages_from(body, _recorded_cut(source.entries))
    new_cut = find_cut(rest, source.budget)
    rest = _messages_from(rest, new_cut)
    hint = build_hint(body[: len(body) - len(rest)]) if has_hint else ()
    facts = () if new_cut is None else (event(CUT, {"from": new_cut}),)
    return ModelContext(prepend_opening(source.opening, (*hint, *rest), source.style), facts)


def find_cut(messages: Sequence[ContextMessage], budget: int) -> int | None:
    """Return the entry id from which the rest fits into half the budget; None if everything fits.

    Whole exchanges are cut, oldest first: the rest begins with a user message. Half the budget, so that the cut holds
    for a while and consecutive requests keep extending each other. The newest exchange always stays.
    """
    sizes = [estimate_message_tokens(message) for message in messages]
    if sum(sizes) <= budget:
        return None
    starts = [place for place, message in enumerate(messages) if message.message["role"] == "user" and message.ids]
    if not starts:
        return None
    rests = [*accumulate(reversed(sizes))][::-1]  # tokens from each place on, in one pass: a window may be long
    start = next((place for place in starts if rests[place] <= budget // 2), starts[-1])
    return messages[start].ids[-1]


def _messages_from(body: tuple[ContextMessage, ...], cut: int | None) -> tuple[ContextMessage, ...]:
    """Return the messages from the entry `cut` on. A result stays with its call, however late it came."""
    if cut is None:
        return body
    positions = (
        (place, message.ids[-1])
        for place, message in enumerate(body)
        if message.ids and message.message["role"] != "tool"
    )
    return body[next((place for place, entry_id in positions if entry_id >= cut), len(body)) :]


def _recorded_cut(entries: Sequence[TapeEntry]) -> int | None:
    data = [entry.payload.get("data") for entry in entries if entry.name == CUT]
    cuts = [item.get("from") for item in data if isinstance(item, Mapping)]
    return max((cut for cut in cuts if type(cut) is int), default=None)


STRATEGIES = (
    ContextStrategy("compact", fold_compact, is_compacting=True, events=(CUT,)),
    ContextStrategy("summary", fold_with_hint, is_compacting=True, events=(CUT,)),
)
"""The strategies of this feature."""
