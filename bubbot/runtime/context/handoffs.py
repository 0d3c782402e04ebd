"""Anchors of another tape that are quoted: what of a handoff a grant covers.

A grant covers what was said in a chat. A handoff may sum up more: memory, results of tools, what was quoted there from a third
chat. So its words are quoted only if a person typed them there, or if the model that wrote them was shown nothing but messages
of that chat in that turn. Of any other anchor only its name is quoted, and not even that if a model chose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from bubbot.runtime.context.selectors import is_in_context
from bubbot.runtime.turns import StepRecord
from bubbot.tape.entry import Kind, TapeEntry, int_field, text_field
from bubbot.tape.events import STEP_EVENT, CommandRun
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import IdRanges, Span, TapeQuery, union

MAX_TURN_ENTRIES = 500
"""Entries before an anchor, at most, among which the steps and commands of its turn are looked for."""
MAX_ENTRIES_AFTER = 20
"""Entries after it among which the command is looked for that wrote it: a command is recorded once it has run."""
MAX_SOURCES = 1_000
"""Entries that the model was shown, at most, for its words to be checked."""


class AnchorQuotation(Struct, frozen=True):
    """An anchor of another tape, as far as it may be quoted.

    Attributes:
        entry: the anchor.
        name: its name; empty if a model chose it and its words may not be quoted.
        words: what it hands over, as far as that may be quoted; empty for nothing.
    """

    entry: TapeEntry
    name: str
    words: str = ""


def words_handed_over(anchor: TapeEntry) -> list[str]:
    """Return the texts of an anchor's state: its phase, summary and next steps."""
    state = anchor.payload.get("state")
    if not isinstance(state, Mapping):
        return []
    steps = state.get("next_steps")
    parts = [state.get("phase"), state.get("summary"), *(steps if isinstance(steps, tuple) else ())]
    return [part for part in parts if isinstance(part, str) and part.strip()]


def is_quotable_anchor(entry: TapeEntry) -> bool:
    """Return true for an anchor that opens a window of its tape, and is not hidden."""
    is_shown = is_in_context(entry) and entry.is_shown_to("") and not entry.erased
    return entry.kind == Kind.ANCHOR and is_shown and entry.payload.get("window") is not False


async def read_anchor_quotations(
    tape: TapeHandle, name: str, spans: Sequence[Span], head: int | None = None
) -> dict[int, AnchorQuotation]:
    """Read anchors of another tape as they may be quoted, by id, ascending.

    Args:
        tape: the tape that reads; it may read others, too.
        name: the tape that is read.
        spans: the anchors.
        head: its newest entry then; None: now.
    """
    found = (await tape.fetch([TapeQuery(name, IdRanges(tuple(spans)), kinds=(Kind.ANCHOR,), as_of=head)]))[0]
    anchors = [entry for entry in found if is_quotable_anchor(entry)]
    return {anchor.id: await _quote_anchor(tape, name, anchor, head) for anchor in anchors}


async def _quote_anchor(tape: TapeHandle, name: str, anchor: TapeEntry, head: int | None) -> AnchorQuotation:
    state, words = anchor.payload.get("state"), words_handed_over(anchor)
    is_of_person = isinstance(state, Mapping) and state.get("owner") == "human"
    label = (anchor.name or "") if is_of_person else ""
    if not words:
        return AnchorQuotation(anchor, label)
    around = IdRanges(((max(1, anchor.id - MAX_TURN_ENTRIES), anchor.id + MAX_ENTRIES_AFTER),))
    names = (STEP_EVENT, *CommandRun.EVENTS)
    events = (await tape.fetch([TapeQuery(name, around, kinds=(Kind.EVENT,), names=names, as_of=head)]))[0]
    turn = text_field(anchor.meta, "turn")
    events = tuple([event for event in events if turn and text_field(event.meta, "turn") == turn])
    commands = [event for event in events if event.name in CommandRun.EVENTS]
    is_typed = is_of_person and any(_types_all(command, words) for command in commands)
    steps = [event for event in events if event.name == STEP_EVENT and event.id < anchor.id]
    if is_typed or await _rests_on_messages(tape, name, anchor, steps, head):
        return AnchorQuotation(anchor, anchor.name or "", "\n".join(words))
    return AnchorQuotation(anchor, label)


def _types_all(command: TapeEntry, words: Iterable[str]) -> bool:
    """Return true if a person typed all of these words in this command."""
    raw = text_field(command.data, "raw")
    return all(part in raw for part in words)


async def _rests_on_messages(
    tape: TapeHandle, name: str, anchor: TapeEntry, steps: Sequence[TapeEntry], head: int | None
) -> bool:
    """Return true if the model was shown only messages of its tape before it wrote the anchor, none of them changed since."""
    if not steps:
        return False
    shown: list[Span] = []
    for step in steps:
        record = StepRecord(step, step.data, None, ())
        if record.shown_elsewhere or source_of(step) is Source.WORLD:  # an imported step may claim anything
            return False
        shown.extend((low, high) for low, high in record.shown)
    spans = union(shown)
    if not spans or sum([(high or anchor.id) - low + 1 for low, high in spans]) > MAX_SOURCES:
        return False
    after = IdRanges(((anchor.id + 1, None),))
    entries, changes = await tape.fetch(
        [
            TapeQuery(name, IdRanges(spans), as_of=head),
            TapeQuery(name, after, kinds=(Kind.EVENT,), names=(CORRECTION,), as_of=head),
        ]
    )
    changed = {int_field(change.data, "corrects") for change in changes}
    return all(_is_said_there(entry) and entry.id not in changed for entry in entries)


def _is_said_there(entry: TapeEntry) -> bool:
    """Return true for what a grant covers, and for what has no words."""
    if entry.erased or not entry.is_shown_to(""):
        return False
    if entry.kind == Kind.ANCHOR:
        return is_quotable_anchor(entry) and not words_handed_over(entry)
    return entry.kind == Kind.MESSAGE or entry.name == CORRECTION
