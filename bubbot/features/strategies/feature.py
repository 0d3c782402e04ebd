"""The feature: strategies that fit a long conversation into a model's context, and what a chat says of them."""

from __future__ import annotations

from collections.abc import Callable

from bubbot.feature import Apply, Feature, Kernel
from bubbot.features.strategies.settings import ContextSettings


class StrategiesFeature:
    """The context strategies of every chat.

    Attributes:
        settings: the current settings.
    """

    def __init__(self, kernel: Kernel, settings: ContextSettings) -> None:
        self.settings = settings
        self._kernel = kernel

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(name="strategies", prepare=self._prepare)

    async def _prepare(self, settings: ContextSettings) -> Apply:
        return self._apply_later(settings)

    def _apply_later(self, settings: ContextSettings) -> Callable[[], None]:
        def apply() -> None:
            self.settings = settings

        return apply
