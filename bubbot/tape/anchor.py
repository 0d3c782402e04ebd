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
_REFERENCES = ("source_ids", "parents")
CitedEntry: TypeAlias = tuple[str, int]
"""An entry that a state names: its tape, and its id there."""


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


def find_parents(entry: TapeEntry, tape: str) -> tuple[CitedEntry, ...]:
    """Return the parents that an anchor names, in its order, each once.

    It skips what cannot be a parent (imports): malformed names, and ids of the same tape that are not older than the
    anchor. So within a tape parents never lead back to the anchor.
    """
    return _find_older(entry.payload.get("state"), "parents", tape, entry.id)


def find_sources(state: object, tape: str, before: int | None = None) -> tuple[CitedEntry, ...]:
    """Return the entries that the state of an anchor on `tape` cites, in its order, each once, without what names none (imports).

    Args:
        before: the id of the anchor: of its own tape it can only cite older entries; None: all are returned.
    """
    return _find_older(state, "source_ids", tape, before)


def _find_older(state: object, key: str, tape: str, before: int | None) -> tuple[CitedEntry, ...]:
    names = _parse_references(state, key, tape) if isinstance(state, Mapping) else ()
    found = [name for name in names if name is not None and name[1] >= 1]
    return tuple(dict.fromkeys([each for each in found if each[0] != tape or before is None or each[1] < before]))


def _parse_references(state: Mapping[str, Any], key: str, tape: str) -> tuple[CitedEntry | None, ...]:
    values = state.get(key, ())
    return tuple(map(partial(_parse_reference, tape=tape), values)) if isinstance(values, (list, tuple)) else (None,)


def _parse_reference(value: object, *, tape: str) -> CitedEntry | None:
    if type(value) is int:
        return tape, value
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int:
        return value[0], value[1]
    return None


def check_state(state: Mapping[str, Any], head: int, tape: str = "") -> tuple[CitedEntry, ...]:
    """Check a handoff state against the contract; return the parents it names, which may not exist.

    All keys are optional and unknown ones pass: `phase`, `summary` and `owner` are texts, `next_steps` is a list of
    texts, `source_ids` and `parents` are lists of ids of this tape or pairs of a tape and an id.
    Ids of this tape must not exceed `head`.

    Args:
        head: the newest id of the tape `tape`.

    Raises:
        EntryInvalid: names the key and its value.
    """
    for key in _TEXTS:
        if key in state and not isinstance(state[key], str):
            raise EntryInvalid(f"handoff state: {key} is {state[key]!r}; it has to be a text")
    steps = state.get("next_steps", ())
    if not isinstance(steps, (list, tuple)) or any(type(step) is not str for step in steps):
        raise EntryInvalid(f"handoff state: next_steps is {steps!r}; it has to be a list of texts")
    found: dict[str, list[CitedEntry]] = {}
    for key in _REFERENCES:
        parsed = _parse_references(state, key, tape)
        found[key] = [each for each in parsed if each is not None]
        if len(found[key]) != len(parsed):
            raise EntryInvalid(
                f"handoff state: {key} is {state[key]!r}; it has to be a list of entry ids, or of pairs of a tape and an id"
            )
    for key, references in found.items():
        for name, entry_id in references:
            if name == tape and not 1 <= entry_id <= head:
                raise EntryInvalid(f"handoff state: {key} names entry {entry_id}; this tape has entries 1 to {head}")
    return tuple(found["parents"])
