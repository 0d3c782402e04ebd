"""A judgement as an annotation of Phoenix: which span it is about, and what of it goes out.

The same facts give the same annotation, with the same identifier: sent twice, it changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from bubbot.features.otel.content import Exposure
from bubbot.features.otel.people import find_people
from bubbot.features.otel.requests import MAX_MESSAGES_READ
from bubbot.features.otel.spans import agent_span, command_span, find_step_span
from bubbot.ports.judgements import REACTION, Annotator, AnnotatorKind, JudgedTarget, Label
from bubbot.tape.entry import Kind, TapeEntry, canonical, text_field
from bubbot.tape.events import STEP_EVENT, TURN_START
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService

KINDS: Mapping[AnnotatorKind, str] = MappingProxyType({"human": "HUMAN", "model": "LLM", "code": "CODE"})
RESERVED_NAME = "note"
"""Phoenix refuses annotations of this name; they go out with an underscore behind it."""
MAX_ENTRIES_READ = 200
"""Entries beside an entry, or at the end of a slice, among which its step and its turn are looked for."""
_WORD = re.compile(r"\S{1,32}")


class Annotation(Struct, frozen=True):
    """A label as it goes out.

    Attributes:
        tape: where it stands.
        entry: its entry.
        date: of what it is about: a turn that ended before the export began has no span.
        body: what is sent.
    """

    tape: str
    entry: int
    date: str
    body: Mapping[str, Any]

    @property
    def span(self) -> str:
        """The id of the span, in hex."""
        return str(self.body["span_id"])


async def build_annotations(tape: TapeService, labels: Sequence[Label], exposure: Exposure) -> list[Annotation]:
    """Build the annotations of labels of one tape. One about something that no turn wrote has no span, and is left out."""
    if not labels:
        return []
    wanted = {label.entry for label in labels} | {label.superseded_by for label in labels}
    ranges = IdRanges(tuple((number, number) for number in sorted(wanted - {0})))
    (entries,) = await tape.fetch([TapeQuery(tape.name, ranges)])
    identifiers = {entry.id: _identify(tape.name, entry, exposure) for entry in entries}
    if exposure.content == "redacted" and any(label.judgement.rationale for label in labels):
        exposure = await _know_people(tape, exposure)
    found = []
    for label in labels:
        target = await _find_span(tape, label.judgement.target)
        if target is not None and label.entry in identifiers:
            span, date = target
            body = {"span_id": span.hex(), **_describe(label, identifiers, exposure)}
            found.append(Annotation(tape.name, label.entry, date, body))
    return found


def _identify(tape: str, entry: TapeEntry, exposure: Exposure) -> str:
    """Return the hash of an entry. It has a key, so that nobody finds a short text by trying."""
    facts = {"tape": tape, "id": entry.id, "kind": entry.kind, "date": entry.date, "payload": entry.payload}
    return exposure.fingerprint(canonical(facts))


async def _know_people(tape: TapeService, exposure: Exposure) -> Exposure:
    """Let the exposure know the people of a tape, whom a rationale may name."""
    newest = [
        TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1),
        TapeQuery(tape.name, kinds=(Kind.MESSAGE,), newest=True, limit=MAX_MESSAGES_READ),
    ]
    starts, messages = await tape.fetch(newest)
    return exposure.of_turn(text_field(starts[0].data, "session") if starts else "", find_people(messages))


def _describe(label: Label, identifiers: Mapping[int, str], exposure: Exposure) -> dict[str, Any]:
    """Return what goes out of a label. One that another took the place of has no result, so that a reader counts the newest."""
    fact = label.judgement
    word = fact.label if exposure.has_content or _WORD.fullmatch(fact.label) else ""
    result = {
        "score": fact.score,
        "label": (exposure.text(word) if exposure.has_content else exposure.label(word)) or None,
        "explanation": exposure.error(fact.rationale) or None,
    }
    metadata: dict[str, Any] = {
        "entry": label.entry,
        "date": label.date,
        "target": fact.target.kind,
        "annotator": _name_annotator(fact.annotator, exposure),
    }
    if fact.identifier:
        metadata["identifier"] = exposure.label(fact.identifier)
    if not label.is_in_force:
        metadata |= {"superseded_by": identifiers.get(label.superseded_by, ""), "score": result["score"]}
        metadata |= {"label": result["label"]}
        result = dict.fromkeys(result)
    # A reaction has another scale than a rating: under one name a viewer would take the mean of both.
    name = exposure.label(f"{fact.name}.{REACTION}" if fact.identifier == REACTION else fact.name)
    return {
        "name": f"{name}_" if name == RESERVED_NAME else name,
        "annotator_kind": KINDS[fact.annotator.kind],
        "identifier": identifiers[label.entry],
        "result": result,
        "metadata": metadata,
    }


def _name_annotator(annotator: Annotator, exposure: Exposure) -> str:
    if annotator.kind == "human":
        return exposure.identify("user", f"{annotator.channel}:{annotator.id}")
    return exposure.label(annotator.id)


async def _find_span(tape: TapeService, target: JudgedTarget) -> tuple[bytes, str] | None:
    """Find the span of what is judged, and when that was stored.

    Of an answer and of a turn that is the turn's own, of what a model wrote before it, or a call or its result, that of the step.
    A branch has the span of its agent. A slice has that of the last turn in it.
    """
    part = IdRanges(tuple((low, high) for low, high in target.entries))
    newest = TapeQuery(tape.name, part, newest=True, limit=MAX_ENTRIES_READ)
    for entry in (await tape.fetch([newest]))[0]:
        if turn := text_field(entry.meta, "turn"):
            if target.kind == "entry":
                return await _find_part(tape, entry, turn), entry.date
            return agent_span(turn, text_field(entry.meta, "fork") if target.kind == "branch" else ""), entry.date
    return None


async def _find_part(tape: TapeService, entry: TapeEntry, turn: str) -> bytes:
    """Find the span of the part of a turn that an entry belongs to; that of the turn, or of the sub-task, if it has none."""
    fork = text_field(entry.meta, "fork")
    is_written = entry.kind == Kind.TOOL_CALL or (entry.payload.get("role") == "assistant" and fork)
    if entry.name == STEP_EVENT:
        return find_step_span(turn, entry)
    if entry.name == "command":
        return command_span(turn, entry.id)
    if is_written or entry.kind == Kind.TOOL_RESULT:
        # A step stands behind what its model wrote, and before the results of its calls.
        near = ((entry.id, None),) if is_written else ((1, entry.id),)
        steps = TapeQuery(
            tape.name,
            IdRanges(near),
            kinds=(Kind.EVENT,),
            names=(STEP_EVENT,),
            newest=not is_written,
            limit=MAX_ENTRIES_READ,
        )
        for step in (await tape.fetch([steps]))[0]:
            if text_field(step.meta, "turn") == turn and text_field(step.meta, "fork") == fork:
                return find_step_span(turn, step)
    return agent_span(turn, fork)
