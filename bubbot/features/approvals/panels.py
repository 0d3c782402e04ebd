"""Approvals and effects on the trace page: what was decided about each call, what waits for a yes, and what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from bubbot.features.approvals.facts import (
    AnswerRejected,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalOpened,
    CallChecked,
    Card,
    Grant,
    GrantRevoked,
    ToolGranted,
)
from bubbot.features.approvals.service import asked_key
from bubbot.features.approvals.state import APPROVALS_PROJECTION, APPROVALS_TAPE, ApprovalState
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import EffectBegin, EffectEnd
from bubbot.tape.fact import Fact
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import read_projection
from bubbot.tape.query import IdRanges, TapeQuery

ANSWERS = (
    *ApprovalOpened.EVENTS,
    *ApprovalDecided.EVENTS,
    *AnswerRejected.EVENTS,
    *ToolGranted.EVENTS,
    *GrantRevoked.EVENTS,
)
APPROVALS = SharedTape(APPROVALS_TAPE, facts=ANSWERS)
(EFFECT_BEGIN,) = EffectBegin.EVENTS
(EFFECT_END,) = EffectEnd.EVENTS
MAX_ENDS_READ = 2_000
F = TypeVar("F", bound=Fact)


class EffectFact(Struct, frozen=True):
    """What was decided about a call, or what it did outside; `result` is empty if that is unknown."""

    name: str
    id: int
    date: str
    tool: str
    result: str
    why: str
    is_unknown: bool = False


class Effects(Struct, frozen=True):
    """The facts of a page, newest first, on the tape of a chat; `more` is the cursor of the next page."""

    tape: str
    facts: tuple[EffectFact, ...]
    more: str


class Approvals(Struct, frozen=True):
    """The cards that wait, what may run without asking, and a page of who decided what, newest first."""

    cards: tuple[Card, ...]
    grants: tuple[Grant, ...]
    answers: tuple[TapeEntry, ...]
    more: str
    tape: str = APPROVALS_TAPE


async def read_effects(reader: PanelReader, query: PanelQuery) -> Effects:
    """Read what was decided about the calls of a chat, and what began and ended outside."""
    tape = reader.tapes.open_tape(query.tape, query.session)
    facts, more = await query.read_page(tape, *CallChecked.EVENTS, *ApprovalAsked.EVENTS, EFFECT_BEGIN)
    ends = await _read_ends(tape, facts)
    described = [_describe(entry, ends) for entry in facts]
    return Effects(query.tape, tuple(fact for fact in described if fact), more)


async def _read_ends(tape: TapeHandle, facts: Sequence[TapeEntry]) -> Mapping[str, str]:
    """Return how the effects of a page ended, by call. A call without an end has none: whether it happened is unknown."""
    begun = [entry.id for entry in facts if entry.name == EFFECT_BEGIN]
    if not begun:
        return {}
    part = IdRanges(((min(begun), None),))
    query = TapeQuery(tape.name, part, kinds=(Kind.EVENT,), names=(EFFECT_END,), limit=MAX_ENDS_READ)
    ends = (await tape.fetch([query]))[0]
    return {_call(entry): str(entry.data.get("status", "")) for entry in ends if not entry.erased}


def _call(entry: TapeEntry) -> str:
    return str(entry.data.get("call", ""))


def _describe(entry: TapeEntry, ends: Mapping[str, str]) -> EffectFact | None:
    """Return the line of a fact; None if it cannot be read."""
    if begin := _try_of(EffectBegin, entry):
        result, is_unknown = ends.get(begin.call, ""), begin.call not in ends
        return EffectFact(EFFECT_BEGIN, entry.id, entry.date, begin.tool, result, begin.once, is_unknown=is_unknown)
    if asked := _try_of(ApprovalAsked, entry):
        tool = ", ".join(call.tool for call in asked.calls)
        result, why = f"{asked.id}: {asked.verdict}", " ".join(asked.why)
    elif check := _try_of(CallChecked, entry):
        tool, result, why = check.tool, check.verdict, " ".join((check.effect, check.row, *check.columns))
    else:
        return None
    return EffectFact(entry.name or "", entry.id, entry.date, tool, result, why)


def _try_of(kind: type[F], entry: TapeEntry) -> F | None:
    return kind.try_of(entry) if entry.name in kind.EVENTS else None


async def read_approvals(reader: PanelReader, query: PanelQuery) -> Approvals:
    """Read the cards that wait, what may run without asking, and who decided what."""
    tape = reader.tapes.open_tape(APPROVALS_TAPE)
    state = await read_projection(APPROVALS_PROJECTION, tape)
    answers, more = await query.read_page(tape, *ANSWERS)
    return Approvals(tuple(await _find_waiting(reader, state)), tuple(state.grants), tuple(answers), more)


async def _find_waiting(reader: PanelReader, state: ApprovalState) -> list[Card]:
    """Return the cards that wait for an answer, as `ApprovalService.list_open` does: none of a chat that was reset."""
    cards = [card for card in state.open if card.fact.ends_at > reader.now and reader.tapes.may_read(card.fact.tape)]
    queries = [TapeQuery(card.fact.tape, keys=(asked_key(card.fact.id),)) for card in cards]
    return [
        card
        for card, found in zip(cards, await reader.tapes.fetch(queries), strict=True)
        if found and found[0].name in ApprovalAsked.EVENTS and not found[0].erased
    ]


PANELS = (
    Panel("effects", "Approvals and effects", "session", read_effects, "bubbot.features.approvals:effects.html"),
    Panel(
        "approvals", "Approvals", "deployment", read_approvals, "bubbot.features.approvals:approvals.html", (APPROVALS,)
    ),
)
