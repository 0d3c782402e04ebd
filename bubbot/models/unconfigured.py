"""What answers where no model is set up, or its key is missing: one plain sentence. Commands go on working."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from bubbot.errors import ModelKeyMissing, ModelUnconfigured
from bubbot.ports.model import ModelEvent, ModelRequest, ModelTraits
from bubbot.texts import Texts


class UnconfiguredModel:
    """See `Model`; every request raises `ModelUnconfigured`."""

    def __init__(self, texts: Texts | None = None, *, missing_key: str = "") -> None:
        """`missing_key`: the file with the key of a model that is set up, if it is that which cannot be used."""
        texts = texts or Texts()
        self.name = "none"
        self._error: type[ModelUnconfigured | ModelKeyMissing] = ModelUnconfigured
        self._told = texts.say("no_model_key", file=missing_key) if missing_key else texts.say("no_model")
        self.traits = ModelTraits(tools=False, notice=self._told)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:  # noqa: ARG002 - the port's signature
        """See `Model.stream`."""
        raise self._error(self._told)
        yield  # makes this a generator

    async def aclose(self) -> None:
        """See `Model.aclose`."""


class KeylessModel(UnconfiguredModel):
    """A model whose provider wants a key that nobody set; every request raises `ModelKeyMissing`, and none is sent."""

    def __init__(
        self, name: str, variables: Sequence[str], texts: Texts | None = None, *, is_configured: bool = True
    ) -> None:
        super().__init__(texts)
        self.name = name
        self._error = ModelKeyMissing
        self._told = key_missing(name, variables, texts, is_configured=is_configured)
        self.traits = ModelTraits(tools=False, notice=self._told)


def key_missing(name: str, variables: Sequence[str], texts: Texts | None = None, *, is_configured: bool = True) -> str:
    """Say that a model needs a key, and where it is looked for.

    `is_configured`: it is of the provider in `[model] name`; the key there is not for any other.
    """
    texts = texts or Texts()
    return texts.say(
        "no_key" if is_configured else "no_key_elsewhere", name=name, variables=texts.say("or").join(variables)
    )
