"""Anchors: entries where reconstruction may start, and the contract of their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

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
_LISTS = {"next_steps": str, "source_ids": int}
AnchorParent: TypeAlias = tuple[str, int]
"""The tape of a parent, and its id there."""


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
        window: False: the anchor does not move the window.
        recalls: inclusive id ranges before the anchor that still belong to its window: the inbound messages of the turn
            that hands off, or the thread that `,resume` continues.
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


def find_parents(entry: TapeEntry, tape: str) -> tuple[AnchorParent, ...]:
    """Return the parents that an anchor names, in its order, each once.

    It skips what cannot be a parent (imports): malformed names, and ids of the same tape that are not older than the
    anchor. So within a tape parents never lead back to the anchor.
    """
    state = entry.payload.get("state")
    names = _parse_parents(state, tape) if isinstance(state, Mapping) else ()
    parents = (name for name in names if name is not None and name[1] >= 1)
    return tuple(dict.fromkeys(parent for parent in parents if parent[0] != tape or parent[1] < entry.id))


def _parse_parents(state: Mapping[str, Any], tape: str) -> tuple[AnchorParent | None, ...]:
    values = state.get("parents", ())
    return tuple(map(partial(_parse_parent, tape=tape), values)) if isinstance(values, (list, tuple)) else (None,)


def _parse_parent(value: object, *, tape: str) -> AnchorParent | None:
    if type(value) is int:
        return tape, value
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int:
        return value[0], value[1]
    return None


def check_state(state: Mapping[str, Any], head: int, tape: str = "") -> tuple[AnchorParent, ...]:
    """Check a handoff state against the contract; return the parents it names, which may not exist.

    All keys are optional and unknown ones pass: `phase`, `summary` and `owner` are texts, `next_steps` is a list of
    texts, `source_ids` a list of ids of this tape, `parents` a list of ids of this tape or pairs of a tape and an id.
    Ids of this tape must not exceed `head`.

    Args:
        head: the newest id of the tape `tape`.

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
    parsed = _parse_parents(state, tape)
    parents = tuple(parent for parent in parsed if parent is not None)
    if len(parents) != len(parsed):
        raise EntryInvalid(
            f"handoff state: parents is {state['parents']!r}; it has to be a list of entry ids, or of pairs of a tape and "
            "an id"
        )
    own = [("source_ids", entry_id) for entry_id in state.get("source_ids", ())]
    own += [("parents", entry_id) for name, entry_id in parents if name == tape]
    for key, entry_id in own:
        if not 1 <= entry_id <= head:
            raise EntryInvalid(f"handoff state: {key} names entry {entry_id}; this tape has entries 1 to {head}")
    return parents
