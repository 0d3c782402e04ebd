"""Evaluations on the trace page: how each setup did, and what its judges said of each answer."""

from __future__ import annotations

from msgspec import Struct

from bubbot.features.judge.evals.facts import EVALS_TAPE, STARTED, EvalStarted, read_results
from bubbot.features.judge.evals.report import (
    STATE_SENTENCES,
    EvalReport,
    EvalResult,
    build_report,
    describe_failure,
    list_evaluations,
    list_facts,
)
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.tape.boundary import SharedTape

EVALS = SharedTape(EVALS_TAPE)


class EvalLine(Struct, frozen=True):
    """An evaluation in the list; `state` is the name of a sentence."""

    id: str
    name: str
    began: str
    state: str


class JudgedLine(Struct, frozen=True):
    """A result of the chosen evaluation; `judged` says what the judges said that did not pass, `entry` is 0 for a made case."""

    setup: str
    case: str
    repeat: int
    chat: str
    tape: str
    entry: int
    score: float | None
    answer: str
    judged: str


class Evaluations(Struct, frozen=True):
    """The evaluations, newest first, and the chosen one."""

    evaluations: tuple[EvalLine, ...]
    more: str
    chosen: EvalReport | None = None
    results: tuple[JudgedLine, ...] = ()


async def read_evaluations(reader: PanelReader, query: PanelQuery) -> Evaluations:
    """Read a page of evaluations, and the chosen one, with the results of chats that the viewer may see."""
    tape = reader.tapes.open_tape(EVALS_TAPE)
    page, more = await query.read_page(tape, STARTED)
    known = {each.started.id: each for each in await list_evaluations(tape.fetch)}
    lines = [
        EvalLine(started.id, started.name, entry.date, STATE_SENTENCES[each.state])
        for entry in page
        if (started := EvalStarted.try_of(entry)) is not None and (each := known.get(started.id))
    ]
    chosen = known.get(query.params.get("eval", ""))
    if chosen is None:
        return Evaluations(tuple(lines), more)
    found = await read_results(tape.fetch, chosen.started.id, chosen.entry)
    results = tuple(
        JudgedLine(
            fact.setup,
            fact.case,
            fact.repeat,
            fact.chat,
            fact.tape,
            fact.entry,
            fact.score,
            fact.answer,
            describe_failure(EvalResult.of(fact)),
        )
        for fact in list_facts(chosen, found)
    )
    return Evaluations(tuple(lines), more, build_report(chosen, found), results)


PANELS = (
    Panel(
        "evaluations",
        "Evaluations",
        "deployment",
        read_evaluations,
        "bubbot.features.judge.evals:evaluations.html",
        (EVALS,),
    ),
)
