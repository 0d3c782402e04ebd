"""Stand-ins for a model that is not set up, lacks its key, or may not be called yet. Requests raise one sentence; commands keep
working."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from bubbot.errors import ModelKeyMissing, ModelQuarantined, ModelUnconfigured
from bubbot.ports.model import ModelEvent, ModelRequest, ModelTraits
from bubbot.texts import Texts


class UnconfiguredModel:
    """A `Model` for which every request raises `ModelUnconfigured`.

    `missing_key`: the unusable file with the key of a configured model; empty if no model is configured.
    """

    def __init__(self, texts: Texts | None = None, *, missing_key: str = "") -> None:
        texts = texts or Texts()
        self.name = "none"
        self._error: type[ModelUnconfigured] = ModelUnconfigured
        self._sentence = texts.say("no_model_key", file=missing_key) if missing_key else texts.say("no_model")
        self.traits = ModelTraits(tools=False, notice=self._sentence)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:  # noqa: ARG002 - the port's signature
        """See `Model.stream`."""
        raise self._error(self._sentence)
        yield  # makes this a generator

    async def aclose(self) -> None:
        """See `Model.aclose`."""


class KeylessModel(UnconfiguredModel):
    """A `Model` without a key: every request raises `ModelKeyMissing` and sends nothing."""

    def __init__(
        self, name: str, variables: Sequence[str], texts: Texts | None = None, *, is_configured: bool = True
    ) -> None:
        super().__init__(texts)
        self.name = name
        self._error = ModelKeyMissing
        self._sentence = missing_key_sentence(name, variables, texts, is_configured=is_configured)
        self.traits = ModelTraits(tools=False, notice=self._sentence)


class QuarantinedModel(UnconfiguredModel):
    """A `Model` at an address that came with a backup: it sends neither a request nor a key before the release."""

    def __init__(self, name: str, texts: Texts | None = None) -> None:
        super().__init__(texts)
        self.name = name
        self._error = ModelQuarantined
        self._sentence = quarantine_sentence(name, texts)
        self.traits = ModelTraits(tools=False, notice=self._sentence)


def quarantine_sentence(name: str, texts: Texts | None = None) -> str:
    """Say why a restored home does not call this model, and what to do."""
    return (texts or Texts()).say("model_quarantined", name=name)


def missing_key_sentence(
    name: str, variables: Sequence[str], texts: Texts | None = None, *, is_configured: bool = True
) -> str:
    """Say that a model needs a key, and where to set it.

    Args:
        name: the model, `provider/model`.
        variables: the environment variables that may hold the key.
        texts: the language of the sentence; None for English.
        is_configured: the model is of the provider in `[model] name`; `[model] api_key` is for no other provider.
    """
    texts = texts or Texts()
    return texts.say(
        "no_key" if is_configured else "no_key_elsewhere", name=name, variables=texts.say("or").join(variables)
    )
