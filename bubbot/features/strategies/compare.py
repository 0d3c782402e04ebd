"""What each context strategy would send for a chat's real window, without a call of any model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import Struct

from bubbot.command import Caller
from bubbot.errors import BubbotError, EntryNotFound
from bubbot.formatting import format_table
from bubbot.log import printable
from bubbot.ports.model import NANOS_PER_USD, ModelPrice, Usage
from bubbot.runtime.compose import estimate_fixed_tokens, has_request, parse_tools
from bubbot.runtime.context.strategy import ContextStrategies, ModelContext
from bubbot.runtime.context.tokens import estimate_context_tokens
from bubbot.runtime.context.view import ContextView, records_view
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, text_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import OpeningAnchor, TapeQuery
from bubbot.texts import Texts

MAX_STEPS_SEARCHED = 20
"""The newest model calls among which the last answer's is looked for."""
MAX_NAME_CHARS = 28
"""Characters of a selector in the table."""

FindPrice: TypeAlias = Callable[[str], ModelPrice | None]
"""Return the price of a model by its name; None if unknown."""


class ComparedStrategy(Struct, frozen=True):
    """What one strategy would send.

    Attributes:
        selector: of the strategy.
        version: of the strategy.
        tokens: of the whole request, estimated.
        cost: US dollars for a model that reads it once; null if the price is unknown.
        shown: the number of entries that it shows.
        left_out: the number of entries of the window that it does not show.
        shortened: the number of results that it shows as pointers.
        is_cut: it would cut more with the next request.
        problem: why it cannot be used here; empty if it can.
    """

    selector: str
    version: int = 0
    tokens: int = 0
    cost: float | None = None
    shown: int = 0
    left_out: int = 0
    shortened: int = 0
    is_cut: bool = False
    problem: str = ""

    def format_row(self, texts: Texts) -> tuple[str, ...]:
        """Write its cells; a star after its name means that it cuts now."""
        cost = texts.say("compare_unknown") if self.cost is None else f"{self.cost:.6f}"
        name = self.selector if len(self.selector) <= MAX_NAME_CHARS else f"{self.selector[: MAX_NAME_CHARS - 1]}…"
        numbers = (self.shown, self.left_out, self.shortened)
        return (f"{name}*" if self.is_cut else name, str(self.tokens), cost, *map(str, numbers))


class ContextComparison(Struct, frozen=True):
    """The next request of a chat, as each strategy would build it.

    Attributes:
        tape: the name of the tape.
        step: the entry of the model call whose prompt, tools, model and room are those of the comparison.
        model: its model.
        selector: the strategy that it used.
        budget: the estimated tokens that the messages may have; null: unlimited.
        fixed_tokens: of the prompt and the tools, estimated; they are among the tokens of each strategy.
        strategies: what each would send.
    """

    tape: str
    step: int
    model: str
    selector: str
    budget: int | None
    fixed_tokens: int
    strategies: tuple[ComparedStrategy, ...]

    def describe(self, caller: Caller) -> str:
        """Write it as a table that fits the terminal, with lines about it."""
        texts, usable = caller.texts, [item for item in self.strategies if not item.problem]
        header = [
            texts.say("compare_strategy"),
            texts.say("compare_tokens"),
            texts.say("compare_cost"),
            texts.say("compare_shown"),
            texts.say("compare_left_out"),
            texts.say("compare_shortened"),
        ]
        columns = caller.context.terminal_width if caller.context else 0
        lines = [texts.say("compare_head", step=self.step, model=self.model, fixed=self.fixed_tokens)]
        rows = [item.format_row(texts) for item in usable]
        lines += format_table(rows, columns=columns, right=range(1, len(header)), header=header)
        lines += [
            texts.say("compare_problem", selector=item.selector, problem=item.problem)
            for item in self.strategies
            if item.problem
        ]
        lines += [
            texts.say("compare_foot"),
            *([texts.say("compare_cut")] if any(item.is_cut for item in usable) else []),
        ]
        return printable("\n".join(lines), keep="\n")


class StrategyComparer:
    """Builds the next request of a chat with each strategy."""

    def __init__(self, strategies: ContextStrategies, find_price: FindPrice) -> None:
        self._strategies = strategies
        self._find_price = find_price

    async def compare(self, tape: TapeHandle) -> ContextComparison:
        """Build the next request with each strategy. Raise `EntryNotFound` if no model was asked here yet."""
        step = await _find_step(tape)
        data = step.data
        recorded = data["view"]
        # The style and the room are those of the last request; its strategy need not be one that is installed.
        style = ContextView.from_json({**recorded, "selector": "window", "strategy_version": 1}).style
        fixed = await _read_fixed_tokens(tape, data)
        price = self._find_price(text_field(data, "answered") or text_field(data, "model"))
        opening = (await tape.fetch([TapeQuery(tape.name, OpeningAnchor(), missing="empty")]))[0]
        base = ContextView("window", style, recorded["budget"], ends_with_user=True, strategies=self._strategies)
        window = await _build(tape, base)
        compared = []
        for selector in _list_selectors(self._strategies, opening):
            view = replace(base, selector=selector)
            try:
                context = await _build(tape, view)
                version = view.strategy.version
            except Exception as error:  # noqa: BLE001 - the boundary of a package's strategy; an own one has no part of this tape
                problem = str(error) if isinstance(error, BubbotError) else f"{type(error).__name__}: {error}"
                compared.append(ComparedStrategy(selector, problem=problem))
                continue
            tokens = fixed + estimate_context_tokens(context.context_messages)
            compared.append(
                ComparedStrategy(
                    selector,
                    version,
                    tokens,
                    None if price is None else price.cost_nanousd(Usage(input_tokens=tokens)) / NANOS_PER_USD,
                    len(context.ids),
                    len({*window.ids} - {*context.ids}),
                    _count_shortened(window, context),
                    bool(context.facts),
                )
            )
        return ContextComparison(
            tape.name,
            step.id,
            text_field(data, "model"),
            str(recorded["selector"]),
            recorded["budget"],
            fixed,
            tuple(compared),
        )


async def _find_step(tape: TapeHandle) -> TapeEntry:
    """Find the newest model call that shows the conversation; those with a purpose of their own do not."""
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=MAX_STEPS_SEARCHED)
    for entry in (await tape.fetch([query]))[0]:
        if has_request(entry.data) and records_view(entry.data):
            return entry
    raise EntryNotFound("no model has been asked here yet, so there is no request to compare with: say something first")


async def _read_fixed_tokens(tape: TapeHandle, step: JsonObject) -> int:
    system, tools = [(await tape.get_blob(step[name])).decode() for name in ("system", "tools")]
    return estimate_fixed_tokens(system, parse_tools(tools))


def _list_selectors(strategies: ContextStrategies, opening: Sequence[TapeEntry]) -> list[str]:
    """List what is compared; the newest window stands for an argument."""
    name = (opening[0].name or "") if opening else ""
    own = [
        f"{item.name}:{name}" if item.argument else item.name for item in strategies.own if name or not item.argument
    ]
    return [*own, *strategies.installed]


async def _build(tape: TapeHandle, view: ContextView) -> ModelContext:
    answers: list[Sequence[TapeEntry]] = [*await tape.fetch(view.queries(tape.name))]
    if further := view.further_queries(tape.name, answers):
        answers += await tape.fetch(further)
    return await asyncio.to_thread(view.fold, answers)  # a whole tape may be long


def _count_shortened(window: ModelContext, context: ModelContext) -> int:
    """Count the results that are shown in another form than in the window."""
    whole = {
        item.message["tool_call_id"]: item.text for item in window.context_messages if item.message["role"] == "tool"
    }
    shown = [item for item in context.context_messages if item.message["role"] == "tool"]
    return sum(whole.get(item.message["tool_call_id"], item.text) != item.text for item in shown)
