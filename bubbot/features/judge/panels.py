"""Judgements on the trace page: the answers of a chat, and of one the decision that it is, what is thought of it, and a form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bubbot.command import Surface, explain
from bubbot.errors import BubbotError, CommandRefused, ValueInvalid
from bubbot.features.judge.decision import DecisionView, ModelDecision
from bubbot.features.judge.labels import (
    LabelsView,
    find_annotator,
    labels_of,
    offer_labels,
    read_answers,
)
from bubbot.features.judge.results import BEST, WORST, LabelRow
from bubbot.features.judge.settings import JudgeSettings
from bubbot.panel import Panel, PanelForm, PanelQuery, PanelReader
from bubbot.ports.judgements import Label
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.runtime.calls import shorten
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.targets import find_target, format_target
from bubbot.tape.boundary import SharedTape
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges

OUTBOXES = SharedTape(f"{OUTBOX_PREFIX}/")
"""They know to which answer a reaction is."""
MAX_SHOWN_CHARS = 300
NEIGHBOURS_WITHIN = 2_000
"""Entries before and after an answer among which the one before it and the one after it are looked for."""


class AnswerLine(Struct, frozen=True):
    """An answer in the list; `judged` is what people think of it."""

    entry: int
    date: str
    text: str
    judged: str


class JudgedPart(Struct, frozen=True):
    """What is looked at.

    Attributes:
        target: how people name it.
        labels: the judgements in force that the viewer is shown.
        withheld: how many of judges are not shown until the viewer has judged it.
        before: the entry of the answer before it; 0 for none.
        after: the entry of the answer after it; 0 for none.
        own: what the viewer thinks of it; None for nothing.
    """

    target: str
    decision: ModelDecision
    labels: tuple[LabelRow, ...]
    withheld: int
    before: int = 0
    after: int = 0
    own: LabelRow | None = None


class JudgedChat(Struct, frozen=True):
    """The answers of a chat, newest first, and what is looked at.

    Attributes:
        name: what is judged if nobody says what.
        scores: what the form offers, the worst first.
        problem: why nothing is looked at, though something was named.
    """

    name: str
    answers: tuple[AnswerLine, ...] = ()
    more: str = ""
    part: JudgedPart | None = None
    scores: tuple[int, ...] = tuple(range(WORST, BEST + 1))
    problem: str = ""


async def read_judged(reader: PanelReader, query: PanelQuery) -> JudgedChat:
    """Read what is named, or a page of the answers."""
    settings: JudgeSettings = reader.settings
    tape = reader.tapes.open_tape(query.tape, query.session)
    labels = await tape.read(LabelsView.of_tape(tape, settings.name, settings.reactions))
    problem = ""
    if named := query.params.get("target", ""):
        try:
            return JudgedChat(settings.name, part=await _read_part(reader, tape, named, labels))
        except CommandRefused as error:
            problem = explain(error, "", reader.texts, Surface.SHELL)
        except BubbotError as error:
            problem = reader.texts.reason(error)
    people: dict[int, list[str]] = defaultdict(list)
    for label in labels:
        if label.is_in_force and label.judgement.annotator.kind == "human" and label.judgement.target.kind == "entry":
            people[label.judgement.target.entries[0][0]].append(LabelRow.of(label).value)
    found = await read_answers(tape, query.below_cursor)
    lines = tuple(
        AnswerLine(
            each.id,
            each.date,
            shorten(text_of(each.payload.get("content")), MAX_SHOWN_CHARS),
            ", ".join(people[each.id]),
        )
        for each in found[: query.limit]
    )
    more = str(lines[-1].entry) if len(found) > query.limit else ""
    return JudgedChat(settings.name, lines, more, problem=problem)


async def _read_part(reader: PanelReader, tape: TapeHandle, named: str, labels: tuple[Label, ...]) -> JudgedPart:
    target = await find_target(tape, named)
    decision = await tape.read(DecisionView(target))
    viewer = find_annotator(reader.tapes.viewer.account)
    shown, withheld = offer_labels(labels_of(labels, target), viewer, reader.settings)
    first, last = target.entries[0][0], target.entries[-1][1]
    before = await read_answers(tape, IdRanges(((max(first - NEIGHBOURS_WITHIN, 1), first - 1),))) if first > 1 else []
    after = await read_answers(tape, IdRanges(((last + 1, last + NEIGHBOURS_WITHIN),)))
    own = next((LabelRow.of(each) for each in shown if each.judgement.annotator == viewer), None)
    rows = tuple(LabelRow.of(each) for each in shown)
    return JudgedPart(
        format_target(target),
        decision,
        rows,
        withheld,
        before[0].id if before else 0,
        after[-1].id if after else 0,
        own,
    )


def read_label(query: PanelQuery, fields: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the arguments of `judge label` that the form means. They name the tape: an archive has the session of its chat."""
    score = fields.get("score", "").strip()
    try:
        number = float(score) if score else None
    except ValueError as error:
        raise ValueInvalid("judge_no_number", score=score[:40]) from error
    words = {name: fields.get(name, "").strip() for name in ("name", "label", "why")}
    target = query.params.get("target", "")
    return {"chat": query.tape, "target": target, "score": number, **words}


PANELS = (
    Panel(
        "judge",
        "Judge",
        "session",
        read_judged,
        "bubbot.features.judge:judge.html",
        (OUTBOXES,),
        PanelForm("judge label", read_label),
    ),
)
