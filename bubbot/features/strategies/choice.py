"""The context strategy that a chat has chosen for itself."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bubbot.command import Caller
from bubbot.errors import AnchorNotFound, CommandRefused, ConfigError
from bubbot.features.strategies.facts import StrategyChosen
from bubbot.formatting import clean
from bubbot.ports.settings import AUTO_SELECTOR
from bubbot.ports.turn import Turn
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.context.view import ContextView
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

DEFAULT = "default"
"""The word that takes a choice back."""


class ChoiceView(Struct, frozen=True):
    """The selector that a chat has chosen; empty for the configured one."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest choice, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=StrategyChosen.EVENTS, newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> str:
        return StrategyChosen.of(answers[0][0]).selector if answers[0] else ""


class StrategyInUse(Struct, frozen=True, kw_only=True):
    """The context strategy of a chat.

    Attributes:
        variant: `configured`, `chosen` earlier, `gone` if the chosen one is not installed, or `changed` now.
        name: the strategy.
        configured: that of the settings.
        choices: what each strategy shows, in a few English words, by its selector; empty after a change.
    """

    variant: str
    name: str
    configured: str
    choices: Mapping[str, str] = {}

    def describe(self, caller: Caller) -> str:
        """Say it, with a line for each choice."""
        texts = caller.texts
        lines = [texts.say(f"StrategyInUse.{self.variant}", name=self.name, configured=self.configured)]
        for selector, shows in self.choices.items():
            name = selector.partition(":")[0]
            lines.append(f"- {selector}: {texts.strategy(name, shows)}" if shows else f"- {selector}")
        return "\n".join([*lines, texts.say("strategy_hint")] if self.choices else lines)


class StrategyChoice:
    """Chooses the context strategy of a chat."""

    def __init__(self, strategies: ContextStrategies, configured: str = AUTO_SELECTOR) -> None:
        self.strategies = strategies
        self.configured = configured

    async def chosen(self, turn: Turn) -> str:
        """Return the selector that the chat of a turn has chosen; empty if it has chosen none."""
        return await turn.tape.read(ChoiceView())

    async def current(self, turn: Turn) -> str:
        """Return the selector that applies in the chat: its own, or the configured one if it has none that can be used."""
        chosen = await self.chosen(turn)
        return chosen if chosen and self.strategies.has(chosen) else self.configured

    async def describe(self, turn: Turn) -> StrategyInUse:
        """Return the strategy that the chat uses, with all that there are."""
        chosen, strategies = await self.chosen(turn), self.strategies
        variant = "configured" if not chosen else "chosen" if strategies.has(chosen) else "gone"
        choices = {each.selector: each.help for each in strategies.own} | dict.fromkeys(strategies.installed, "")
        return StrategyInUse(
            variant=variant, name=clean(chosen) or self.configured, configured=self.configured, choices=choices
        )

    async def choose(self, turn: Turn, name: str) -> StrategyInUse:
        """Choose a strategy for the chat of a turn; `DEFAULT` for the configured one. Raise `CommandRefused` for none."""
        before = await self.chosen(turn)
        if name == DEFAULT:
            if before:
                await turn.tape.append([StrategyChosen("").to_entry()])
            return StrategyInUse(variant="configured", name=self.configured, configured=self.configured)
        try:
            strategy = None if name == AUTO_SELECTOR else self.strategies.find(name)
            if strategy is not None and strategy.argument:  # a request would fail without its part of the tape
                await turn.tape.fetch(ContextView(name, strategies=self.strategies).queries(turn.tape.name))
        except (ConfigError, AnchorNotFound) as error:
            names = ", ".join([AUTO_SELECTOR, *self.strategies.selectors])
            raise CommandRefused("strategy_unknown", name=clean(name), names=names) from error
        if name != before:
            await turn.tape.append([StrategyChosen(name).to_entry()])
        return StrategyInUse(variant="changed", name=name, configured=self.configured)
