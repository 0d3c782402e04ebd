"""The feature: strategies that fit a long conversation into a model's context, and what a chat says of them."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Apply, Around, Feature, FindModel, Kernel, Lifecycle
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.strategies.commands import ContextCommands, ReadingCommands, StrategyCommands
from bubbot.features.strategies.compare import FindPrice, StrategyComparer
from bubbot.features.strategies.meaning import MeaningSearch
from bubbot.features.strategies.recall import make_retrieval
from bubbot.features.strategies.settings import ContextSettings
from bubbot.features.strategies.sizes import ContextSizes
from bubbot.features.strategies.summaries import SUMMARY_COMMAND, SUMMARY_ORIGIN, make_summary
from bubbot.ports.passages import PassageIndex
from bubbot.ports.turn import Turn
from bubbot.runtime.context.strategy import ContextStrategies, ContextStrategy
from bubbot.runtime.lessons import ModelLessons
from bubbot.runtime.strategy_turns import StrategyTurns
from bubbot.settings.loader import Settings

READ_RULE = "Numbers such as #12 name entries of this chat: tape_read opens them, tape_around what was said around one."
RECALL_SHARE = 8
"""Evidence for one message takes at most one eighth of a model's context."""


class StrategiesFeature:
    """The context strategies of every chat."""

    def __init__(
        self,
        kernel: Kernel,
        settings: ContextSettings,
        *,
        find_model: FindModel,
        strategies: ContextStrategies,
        lessons: ModelLessons,
        find_price: FindPrice,
        passages: PassageIndex | None = None,
    ) -> None:
        """Build it. `passages` is the index for `[context] embeddings`; None if its extra is not installed."""
        self.settings = settings
        self._find_model = find_model
        self._find_heads = kernel.find_heads
        self._turns = StrategyTurns(kernel.accept, SUMMARY_ORIGIN, SUMMARY_COMMAND)
        self._sizes = ContextSizes(lessons)
        self.choice = StrategyChoice(strategies, settings.selector)
        self._comparer = StrategyComparer(strategies, find_price)
        self._meaning = (
            MeaningSearch(passages, kernel.open_tape, is_on=lambda: self.settings.embeddings) if passages else None
        )

    @property
    def retrieval(self) -> ContextStrategy:
        """The strategy `retrieval`, which recalls under the settings in force."""
        return make_retrieval(self._find_recall_limit, self._meaning.find if self._meaning else None)

    @property
    def summary(self) -> ContextStrategy:
        """The strategy `summary`, which hands off under the settings in force."""
        return make_summary(lambda: self.settings.summary_at)

    def feature(self) -> Feature:
        """Build the record."""
        reading, choosing = ReadingCommands(self._context_size, self._find_heads), StrategyCommands(self.choice)
        return Feature(
            name="strategies",
            tools=(
                *make_tools(ReadingCommands, lambda: reading, tape_around={"is_rare": True}),
                *make_tools(StrategyCommands, lambda: choosing),
                *make_tools(ContextCommands, lambda: ContextCommands(self._comparer)),
            ),
            prompt=(READ_RULE,),
            sources={SUMMARY_ORIGIN: self._turns},
            around=Around(turn=(self._sizes.around_turn, self._turns.around_turn), model=(self._sizes.around_model,)),
            on_merged=(self._turns.on_merged,),
            lifecycle=Lifecycle(lifespan=self._meaning.lifespan if self._meaning else None, prepare=self._prepare),
        )

    def _find_recall_limit(self, context_tokens: int | None) -> int:
        limit = self.settings.recall_tokens
        return limit if context_tokens is None else min(limit, context_tokens // RECALL_SHARE)

    async def _context_size(self, turn: Turn) -> int | None:
        return (await self._find_model(turn)).traits.context_tokens

    async def _prepare(self, settings: Settings) -> Apply:
        section = settings.section(ContextSettings)

        def apply() -> None:
            self.settings = section
            self.choice.configured = section.selector

        return apply
