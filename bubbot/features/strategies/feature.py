"""The feature: strategies that fit a long conversation into a model's context, and what a chat says of them."""

from __future__ import annotations

from collections.abc import Callable

from bubbot.feature import Apply, Feature, FindModel, Kernel
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.strategies.meaning import MeaningSearch
from bubbot.features.strategies.reading_tools import reading_tools
from bubbot.features.strategies.recall import FindEntries, find_nothing_alike, recall_for
from bubbot.features.strategies.retrieval import RETRIEVAL
from bubbot.features.strategies.settings import ContextSettings
from bubbot.features.strategies.shell import CONTEXT_COMMANDS
from bubbot.features.strategies.sizes import ContextSizes
from bubbot.features.strategies.summaries import SUMMARY_ORIGIN, Summaries
from bubbot.ports.middleware import CallNext
from bubbot.ports.passages import PassageIndex
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.lessons import ModelLessons

READ_RULE = "Numbers such as #12 name entries of this chat: tape_read opens them, tape_around what was said around one."
RECALL_SHARE = 8
"""Evidence for one message takes at most one eighth of a model's context."""


class StrategiesFeature:
    """The context strategies of every chat.

    Attributes:
        settings: the current settings.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: ContextSettings,
        *,
        find_entries: FindEntries,
        find_model: FindModel,
        strategies: ContextStrategies,
        lessons: ModelLessons,
        passages: PassageIndex | None = None,
    ) -> None:
        """Set what the strategies need.

        Args:
            kernel: what the feature may use.
            settings: `[context]`.
            find_entries: searches the tape of a turn.
            find_model: returns the model of a turn.
            strategies: those of the bot.
            lessons: what refusals taught about models.
            passages: the index for `[context] embeddings`; None if its extra is not installed.
        """
        self.settings = settings
        self._kernel = kernel
        self._find_entries = find_entries
        self._find_model = find_model
        self._summaries = Summaries(kernel.accept, lambda: self.settings.summary_at)
        self._sizes = ContextSizes(lessons)
        self._choice = StrategyChoice(strategies, settings.selector)
        self._meaning = (
            MeaningSearch(passages, kernel.open_tape, is_on=lambda: self.settings.embeddings) if passages else None
        )

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="strategies",
            tools=(*reading_tools(self._context_size), self._choice.tool(), self._summaries.tool()),
            commands=CONTEXT_COMMANDS.commands,
            rules=(READ_RULE,),
            sources={SUMMARY_ORIGIN: self._summaries},
            choose_selector=self._choice.chosen,
            around_turn=(self._sizes.around_turn, self._summaries.around_turn, self.recall_evidence),
            around_model=(self._sizes.around_model,),
            on_merged=(self._summaries.on_merged,),
            lifespan=self._meaning.lifespan if self._meaning else None,
            prepare=self._prepare,
        )

    async def recall_evidence(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Recall what bears on the message before the model is asked, if the chat's strategy is retrieval."""
        if turn.message_ids and await self._choice.current(turn) == RETRIEVAL.name:
            find_alike = self._meaning.find if self._meaning else find_nothing_alike
            await recall_for(turn, self._find_entries, await self._recall_budget(turn), find_alike=find_alike)
        return await call_next(turn)

    async def _context_size(self, turn: Turn) -> int | None:
        return (await self._find_model(turn)).traits.context_tokens

    async def _recall_budget(self, turn: Turn) -> int:
        size = await self._context_size(turn)
        limit = self.settings.recall_tokens
        return limit if size is None else min(limit, size // RECALL_SHARE)

    async def _prepare(self, settings: ContextSettings) -> Apply:
        return self._apply_later(settings)

    def _apply_later(self, settings: ContextSettings) -> Callable[[], None]:
        def apply() -> None:
            self.settings = settings
            self._choice.configured = settings.selector

        return apply
