"""Anchors: entries where reconstruction may start, and the contract of their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bubbot.errors import EntryInvalid
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry

SESSION_START = "session/start"
SESSION_NEW = "session/new"
SESSION_RESUME = "session/resume"
SESSION_MODEL = "session/model"
OVERFLOW_HANDOFF = "auto_handoff/context_overflow"
MEMORY_OPEN = "memory/open"
MEMORY_SEAL = "memory/seal"

_TEXTS = ("phase", "summary", "owner")
_LISTS = {"next_steps": str, "source_ids": int, "parents": int}


def anchor(
    name: str,
    state: JsonObject | None = None,
    *,
    window: bool = True,
    recalls: Sequence[tuple[int, int]] = (),
    meta: JsonObject = EMPTY_OBJECT,
) -> TapeEntry:
    """Build an anchor entry.

    Args:
        name: such as phase/design.
        state: what the next phase needs; see `check_state`.
        window: False leaves the window where it is.
        recalls: inclusive id ranges before the anchor that still belong to its window: the inbound messages of the turn
            that hands off, or the thread that `,resume` continues.
        meta: the entry's meta.
    """
    if not name.strip():
        raise EntryInvalid("an anchor needs a name, such as phase/design")
    payload: dict[str, Any] = {"name": name, "state": dict(state or {})}
    if not window:
        payload["window"] = False
    if recalls:
        payload["recalls"] = [list(span) for span in recalls]
    return TapeEntry(Kind.ANCHOR, payload, meta)


def recalled_ranges(entry: TapeEntry) -> tuple[tuple[int, int], ...]:
    """Return the inclusive id ranges an anchor recalls, without malformed ones (imports)."""
    spans = entry.payload.get("recalls", ())
    if not isinstance(spans, tuple):
        return ()
    return tuple(
        (span[0], span[1])
        for span in spans
        if isinstance(span, tuple) and len(span) == 2 and all(type(end) is int for end in span) and span[1] < entry.id
    )


def check_state(state: Mapping[str, Any], head: int) -> None:
    """Check a handoff state against the contract.

    All keys are optional and unknown ones pass: `phase`, `summary`, `owner` are texts, `next_steps` a list of texts,
    `source_ids` and `parents` lists of ids of this tape, `head` at most.

    Raises:
        EntryInvalid: names the key and its value.
    """
    for key in _TEXTS:
        if key in state and not isinstance(state[key], str):
            raise EntryInvalid(f"handoff state: {key} is {state[key]!r}; it has to be a text")
    for key, item in _LISTS.items():
        values = state.get(key, ())
        if not isinstance(values, (list, tuple)) or any(type(value) is not item for value in values):
            expected = "texts" if item is str else "entry ids"
            raise EntryInvalid(f"handoff state: {key} is {values!r}; it has to be a list of {expected}")
    for key in ("source_ids", "parents"):
        for entry_id in state.get(key, ()):
            if not 1 <= entry_id <= head:
                raise EntryInvalid(f"handoff state: {key} names entry {entry_id}; this tape has entries 1 to {head}")
