"""Approvals and effects on the trace page: what was decided about each call, what waits for a yes, and what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bubbot.features.approvals.facts import (
    AnswerRejected,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalOpened,
    CallChecked,
    Card,
    GrantRevoked,
    ToolGranted,
)
from bubbot.features.approvals.service import asked_key
from bubbot.features.approvals.state import APPROVALS_PROJECTION, APPROVALS_TAPE, ApprovalState
from bubbot.ports.panel import (
    Block,
    Cell,
    Moment,
    Panel,
    PanelQuery,
    PanelReader,
    Paragraph,
    PersonName,
    Table,
    TapeLink,
)
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry, timestamp
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
EFFECT_BEGIN, EFFECT_END = "effect.begin", "effect.end"
MAX_ENDS_READ = 2_000


async def read_effects(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show what was decided about the calls of a chat, and what began and ended outside."""
    texts, tape = reader.texts, reader.tapes.open_tape(query.tape, query.session)
    facts, more = await query.read_page(tape, *CallChecked.EVENTS, *ApprovalAsked.EVENTS, EFFECT_BEGIN)
    ends = await _read_ends(tape, facts)
    rows = tuple(_effect_row(reader, query.tape, entry, ends) for entry in facts)
    columns = tuple(map(texts.say, ("panel_fact", "panel_when", "panel_tool", "panel_result", "panel_why")))
    table = Table(texts.say("panel_effects"), columns, rows, texts.say("panel_effects_none"), more)
    unknown = [entry for entry in facts if entry.name == EFFECT_BEGIN and _call(entry) not in ends]
    notes: list[Block] = [Paragraph(texts.say("panel_effects_unknown"), "warning")] if unknown else []
    return [*notes, table]


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


def _effect_row(reader: PanelReader, tape: str, entry: TapeEntry, ends: Mapping[str, str]) -> tuple[Cell, ...]:
    data, texts = entry.data, reader.texts
    if entry.name == EFFECT_BEGIN:
        tool, result, why = str(data["tool"]), ends.get(_call(entry)) or texts.say("panel_unknown"), str(data["once"])
    elif entry.name in ApprovalAsked.EVENTS:
        asked = ApprovalAsked.of(entry)
        tool = ", ".join(call.tool for call in asked.calls)
        result, why = f"{asked.id}: {asked.verdict}", " ".join(asked.why)
    else:
        check = CallChecked.of(entry)
        tool, result, why = check.tool, check.verdict, " ".join((check.effect, check.row, *check.columns))
    return (TapeLink(entry.name or "", tape=tape, entry=entry.id), Moment(entry.date), tool, result, why)


async def read_approvals(reader: PanelReader, query: PanelQuery) -> list[Block]:
    """Show the cards that wait, what may run without asking, and who decided what."""
    texts, tape = reader.texts, reader.tapes.open_tape(APPROVALS_TAPE)
    state = await read_projection(APPROVALS_PROJECTION, tape)
    cards: list[tuple[Cell, ...]] = [
        (
            TapeLink(card.fact.id, tape=APPROVALS_TAPE, entry=card.id),
            TapeLink(card.fact.session, session=card.fact.session),
            ", ".join(card.fact.tools),
            PersonName(card.fact.account),
            Moment(timestamp(card.fact.ends_at)),
        )
        for card in await _find_waiting(reader, state)
    ]
    grants: list[tuple[Cell, ...]] = [
        (
            TapeLink(f"#{grant.id}", tape=APPROVALS_TAPE, entry=grant.id),
            grant.fact.tool,
            f"{grant.fact.kind} {grant.fact.value}",
            TapeLink(grant.fact.session, session=grant.fact.session) if grant.fact.session else "",
            PersonName(grant.fact.giver),
            Moment(grant.date),
        )
        for grant in state.grants
    ]
    facts, more = await query.read_page(tape, *ANSWERS)

    return [
        Table(texts.say("panel_cards"), tuple(map(texts.say, ("panel_card", "panel_chat", "panel_tool", "panel_asker", "panel_expires"))), tuple(cards),
              texts.say("panel_cards_none")),
        Table(texts.say("panel_grants"), tuple(map(texts.say, ("panel_entry", "panel_tool", "panel_covers", "panel_chat", "panel_by", "panel_when"))), tuple(grants),
              texts.say("panel_grants_none")),
        Table(texts.say("panel_answers"), tuple(map(texts.say, ("panel_fact", "panel_when", "panel_card", "panel_chat", "panel_result", "panel_by"))),
              tuple(map(_answer_row, facts)), texts.say("panel_answers_none"), more),
    ]  # fmt: skip


async def _find_waiting(reader: PanelReader, state: ApprovalState) -> list[Card]:
    """Return the cards that wait for an answer, as `ApprovalService.list_open` does: none of a chat that was reset."""
    cards = [card for card in state.open if card.fact.ends_at > reader.now and reader.tapes.may_read(card.fact.tape)]
    queries = [TapeQuery(card.fact.tape, keys=(asked_key(card.fact.id),)) for card in cards]
    return [
        card
        for card, found in zip(cards, await reader.tapes.fetch(queries), strict=True)
        if found and found[0].name in ApprovalAsked.EVENTS and not found[0].erased
    ]


def _answer_row(entry: TapeEntry) -> tuple[Cell, ...]:
    data = entry.data
    session = str(data.get("session", ""))
    result = [data.get("verdict"), data.get("scope"), data.get("tool"), data.get("value"), data.get("reason")]
    person = ":".join(str(data[name]) for name in ("channel", "by") if data.get(name))
    return (
        TapeLink((entry.name or "").removeprefix("approval."), tape=APPROVALS_TAPE, entry=entry.id),
        Moment(entry.date),
        str(data.get("id") or data.get("approval") or ""),
        TapeLink(session, session=session) if session else "",
        " ".join(str(part) for part in result if part),
        PersonName(person),
    )


PANELS = (
    Panel("effects", "Approvals and effects", "session", read_effects),
    Panel("approvals", "Approvals", "deployment", read_approvals, (APPROVALS,)),
)
