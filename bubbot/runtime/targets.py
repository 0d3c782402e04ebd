"""What people name on a tape to judge it: an entry, a turn, a slice, or a branch."""

from __future__ import annotations

import re

from bubbot.errors import AnchorNotFound, ValueInvalid
from bubbot.ports.judgements import JudgedTarget
from bubbot.runtime.turn_spans import find_turn_spans
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import BetweenAnchors, TapeQuery

BRANCH_ENDED = "branch/ended"
"""The fact that a branch has ended, with its `fork` and its `entries`."""
BRANCH_CHOSEN = "branch/chosen"
"""The fact that a branch became part of the conversation, with its `fork`."""
SUBTASK_ENDED = "agent/ended"
"""The fact that a sub-task has ended, with its `fork` and the `call_id` of the call that ordered it."""
MIN_PREFIX = 4
"""The least characters of the id of a turn or a fork."""
_ENTRY = re.compile(r"#?(\d{1,15})")
_SLICE = re.compile(r"#?(\d{1,15})\s*-\s*#?(\d{1,15})")
_ANCHORS = re.compile(r"(\S+)\.\.(\S+)")
_ID = re.compile(r"[\w/-]+")


async def find_target(tape: TapeHandle, text: str) -> JudgedTarget:
    """Find what a text names.

    Raises:
        ValueInvalid: it names nothing on this tape.
    """
    word = text.strip()
    # The beginning of an id may be digits alone: an entry that there is goes first.
    if (match := _ENTRY.fullmatch(word)) and (int(match[1]) <= await tape.head() or not await _find_by_id(tape, word)):
        return await _find_slice(tape, int(match[1]), int(match[1]))
    if match := _SLICE.fullmatch(word):
        return await _find_slice(tape, int(match[1]), int(match[2]))
    if match := _ANCHORS.fullmatch(word):
        return await _find_between(tape, match[1], match[2])
    if found := await _find_by_id(tape, word):
        return found
    raise ValueInvalid("target_no_target", target=word)


async def _find_by_id(tape: TapeHandle, word: str) -> JudgedTarget | None:
    if len(word) < MIN_PREFIX or not _ID.fullmatch(word):
        return None
    return await _find_branch(tape, word) or await _find_turn(tape, word)


async def _find_slice(tape: TapeHandle, first: int, last: int) -> JudgedTarget:
    head = await tape.head()
    if not 1 <= first <= last <= head:
        raise ValueInvalid("target_no_entry", entry=first if not 1 <= first <= head else last, last=head)
    if first == last and (await tape.entry(first)).erased:
        raise ValueInvalid("target_erased", entry=first)
    return JudgedTarget("entry" if first == last else "slice", ((first, last),))


async def _find_between(tape: TapeHandle, first: str, second: str) -> JudgedTarget:
    query = TapeQuery(tape.name, BetweenAnchors(first, second))
    try:
        (found,) = await tape.fetch([query])
    except AnchorNotFound:
        raise ValueInvalid("target_no_anchors", first=first, second=second) from None
    if not found:
        raise ValueInvalid("target_no_anchors", first=first, second=second)
    return JudgedTarget("slice", ((found[0].id, found[-1].id),), f"{first}..{second}")


async def _find_branch(tape: TapeHandle, prefix: str) -> JudgedTarget | None:
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(BRANCH_ENDED,), newest=True)
    for entry in (await tape.fetch([query]))[0]:
        fork, spans = text_field(entry.data, "fork"), read_spans(entry)
        if spans and (fork.startswith(prefix) or fork.rpartition("/")[2].startswith(prefix)):
            return JudgedTarget("branch", spans, fork)
    return None


async def _find_turn(tape: TapeHandle, prefix: str) -> JudgedTarget | None:
    for span in reversed(await find_turn_spans(tape)):
        if span.id.startswith(prefix):
            return JudgedTarget("turn", ((span.first, span.last),), span.id)
    return None


def read_spans(branch: TapeEntry) -> tuple[tuple[int, int], ...]:
    """Return the id ranges of all that a branch wrote, by the fact of its end."""
    spans = branch.data.get("entries")
    pairs = [span for span in spans if isinstance(span, tuple) and len(span) == 2] if isinstance(spans, tuple) else []
    return tuple((low, high) for low, high in pairs if type(low) is int and type(high) is int)


def format_target(target: JudgedTarget) -> str:
    """Write a target as people name it."""
    if target.kind in ("turn", "branch") and target.name:
        return f"{target.kind} {target.name}"
    spans = [tuple(span) for span in target.entries]
    words = ", ".join(f"#{low}" if low == high else f"#{low}-#{high}" for low, high in spans)
    return f"{target.name} ({words})" if target.name else words
