"""What answers where no model is set up: one plain sentence. Commands go on working."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bubbot.errors import ModelUnconfigured
from bubbot.model import ModelEvent, ModelRequest, ModelTraits
from bubbot.texts import Texts


class UnconfiguredModel:
    """See `Model`; every request raises `ModelUnconfigured`."""

    name = "none"

    def __init__(self, texts: Texts | None = None, *, missing_key: str = "") -> None:
        """`missing_key`: the file with the key of a model that is set up, if it is that which cannot be used."""
        texts = texts or Texts()
        self._told = texts.say("no_model_key", file=missing_key) if missing_key else texts.say("no_model")
        self.traits = ModelTraits(tools=False, notice=self._told)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:  # noqa: ARG002 - the port's signature
        """See `Model.stream`."""
        raise ModelUnconfigured(self._told)
        yield  # makes this a generator

    async def aclose(self) -> None:
        """See `Model.aclose`."""
