"""A model for each session: the deployment's own, or the one its tape says it was switched to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bubbot.errors import ConfigError, ModelUnavailable
from bubbot.ports.model import Model
from bubbot.ports.turn import Turn
from bubbot.tape.view import View
from bubbot.views.model import ModelChoiceView


class ReadsTape(Protocol):
    """A tape, or a fork of one."""

    async def read(self, view: View[str]) -> str:
        """The view's value."""
        ...


class SessionModels:
    """Knows which model answers where. `load` makes a model by its name or raises `ConfigError`; each is made once.

    `names` gives those there are, as people would type them.
    """

    def __init__(self, default: Model, load: Callable[[str], Model], names: Callable[[], Sequence[str]]) -> None:
        self.default = default
        self.names = names
        self._load = load
        self._made: dict[str, Model] = {default.name: default}

    async def of(self, turn: Turn) -> Model:
        """The model of a turn's session. Raises `ModelUnavailable` where it was switched to one that is gone."""
        return await self.on(turn.tape)

    async def on(self, tape: ReadsTape) -> Model:
        """The model of the session with this tape."""
        name = await tape.read(ModelChoiceView())
        try:
            return self.named(name) if name else self.default
        except ConfigError as error:
            raise ModelUnavailable(f"this chat was switched to {name}: {error}. ,model switches to another") from error

    def named(self, name: str) -> Model:
        """The model of this name. Raises `ConfigError` where there is none or it cannot be used."""
        if name not in self._made:
            self._made[name] = self._load(name)
        return self._made[name]

    async def aclose(self) -> None:
        """Closes every model that was made."""
        for model in self._made.values():
            await model.aclose()
