"""The first version of compaction, which requests on older tapes were built with."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.features.strategies.compact import find_cut
from bubbot.features.strategies.events import CUT
from bubbot.features.strategies.hint import build_hint
from bubbot.runtime.context.selectors import ContextMessage, prepend_opening, select_messages
from bubbot.runtime.context.strategy import ContextInput, ModelContext
from bubbot.tape.entry import TapeEntry, event


def fold_compact_first(source: ContextInput) -> ModelContext:
    """Cut whole exchanges, oldest first, until the rest fits into the budget."""
    return _compact(source, has_hint=False)


def fold_with_hint(source: ContextInput) -> ModelContext:
    """Cut as `fold_compact_first` does, and begin with a hint that names what was cut."""
    return _compact(source, has_hint=True)


def _compact(source: ContextInput, *, has_hint: bool) -> ModelContext:
    body = select_messages(source.entries, source.style)
    if source.budget is None:
        return ModelContext(prepend_opening(source.opening, body, source.style))
    rest = _messages_from(body, _recorded_cut(source.entries))
    new_cut = find_cut(rest, source.budget)
    rest = _messages_from(rest, new_cut)
    hint = build_hint(body[: len(body) - len(rest)]) if has_hint else ()
    facts = () if new_cut is None else (event(CUT, {"from": new_cut}),)
    return ModelContext(prepend_opening(source.opening, (*hint, *rest), source.style), facts)


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
    cuts = [entry.data.get("from") for entry in entries if entry.name == CUT]
    return max((cut for cut in cuts if type(cut) is int), default=None)
