"""The context strategy that a chat has chosen for itself."""

from pydantic import Field

from bubbot.errors import AnchorNotFound, ConfigError, ToolFailed, ToolRetry
from bubbot.features.strategies.events import CHOSEN
from bubbot.ports.channel import Role
from bubbot.ports.settings import AUTO_SELECTOR
from bubbot.ports.text import clean
from bubbot.ports.tool import INSIDE, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.context.view import ContextView
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_SELECTOR_CHARS = 200
DEFAULT = "default"
"""The word that takes a choice back."""


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """The selector that a chat has chosen; empty for the configured one."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest choice, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(CHOSEN,), newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> str:
        selector = answers[0][0].data.get("selector") if answers[0] else None
        return selector if isinstance(selector, str) else ""


class StrategyArgs(ToolArgs):
    """The arguments of `session.strategy`."""

    name: str = Field(
        default="",
        description="the strategy to choose, or `default` for the configured one",
        max_length=MAX_SELECTOR_CHARS,
    )


class StrategyChoice:
    """Chooses strategies.

    Attributes:
        strategies: those of the bot.
        configured: the selector of the settings.
    """

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

    def tool(self) -> Tool:
        """Build `session.strategy`."""

        @tool(
            "session.strategy",
            effect=INSIDE,
            commands=("strategy",),
            for_model=False,
            help=CommandHelp(HelpTopic.SETTINGS, "See or choose what I read back", (",strategy", ",strategy window")),
        )
        async def session_strategy(turn: Turn, args: StrategyArgs) -> str:
            """Say which context strategy this chat uses, or choose another one for it."""
            name = args.name.strip()
            if not name:
                return await self._describe(turn)
            is_direct = bool(turn.inbounds) and all(accepted.inbound.direct for accepted in turn.inbounds)
            if is_direct or turn.role.at_least(Role.ADMIN):
                return await self._choose(turn, name)
            raise ToolFailed(turn.texts.say("strategy_for_admin", role=turn.texts.role(turn.role)))

        return session_strategy

    async def _describe(self, turn: Turn) -> str:
        texts, chosen = turn.texts, await self.chosen(turn)
        if not chosen:
            lines = [texts.say("strategy_configured", name=self.configured)]
        elif self.strategies.has(chosen):
            lines = [texts.say("strategy_chosen_here", name=chosen)]
        else:
            lines = [texts.say("strategy_gone", name=clean(chosen), configured=self.configured)]
        lines += [
            f"- {item.selector}: {texts.strategy(item.name, item.help)}" if item.help else f"- {item.selector}"
            for item in self.strategies.own
        ]
        lines += [f"- {name}" for name in self.strategies.installed]
        return "\n".join([*lines, texts.say("strategy_hint")])

    async def _choose(self, turn: Turn, name: str) -> str:
        texts, before = turn.texts, await self.chosen(turn)
        if name == DEFAULT:
            if before:
                await turn.tape.append([make.event(CHOSEN, {"selector": ""})])
            return texts.say("strategy_configured", name=self.configured)
        try:
            strategy = None if name == AUTO_SELECTOR else self.strategies.find(name)
            if strategy is not None and strategy.argument:  # a request would fail without its part of the tape
                await turn.tape.fetch(ContextView(name, strategies=self.strategies).queries(turn.tape.name))
        except (ConfigError, AnchorNotFound) as error:
            names = ", ".join([AUTO_SELECTOR, *self.strategies.selectors])
            raise ToolRetry(texts.say("strategy_unknown", name=clean(name), names=names)) from error
        if name != before:
            await turn.tape.append([make.event(CHOSEN, {"selector": name})])
        return texts.say("strategy_chosen", name=name)
