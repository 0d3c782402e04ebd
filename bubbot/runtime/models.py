"""The model of each session: the default one, or the one its tape was switched to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbot.errors import ConfigError, ModelUnavailable
from bubbot.ports.model import LoadsLater, Model
from bubbot.ports.turn import Turn
from bubbot.runtime.lessons import ModelLessons
from bubbot.runtime.model_choice import ModelChoiceView
from bubbot.tape.handle import TapeHandle


class SessionModels:
    """Finds the model of each session; `load` creates each model once."""

    def __init__(
        self,
        default: Model,
        load: Callable[[str], Model],
        list_names: Callable[[], Sequence[str]],
        lessons: ModelLessons,
    ) -> None:
        """Set the default model and the source of others.

        Args:
            load: creates a model by its name, or raises `ConfigError`.
            list_names: returns the available models as people type them.
        """
        self.default = default
        self.lessons = lessons
        self.list_names = list_names
        self._load = load
        self._loaded: dict[str, Model] = {default.name: default}

    async def model_for_turn(self, turn: Turn) -> Model:
        """Return the model that a turn's message names, else its agent's, else its session's; of a sub-task that of its agent first.

        Raise `ModelUnavailable` if it is gone.
        """
        named = [accepted.inbound.model for accepted in turn.inbounds if accepted.inbound.model]
        if turn.is_subtask and turn.agent.model:
            named = []
        name = named[0] if named else turn.agent.model
        if not name:
            return await self.model_for_tape(turn.tape)
        try:
            return self.get_model(name)
        except ConfigError as error:
            if turn.agent.name and not named:
                raise ModelUnavailable(f"the agent {turn.agent.name} is for the model {name}: {error}") from error
            raise ModelUnavailable(f"this message is for the model {name}: {error}") from error

    async def model_for_tape(self, tape: TapeHandle) -> Model:
        """Return the model of the session with this tape."""
        name = await tape.read(ModelChoiceView())
        try:
            return self.get_model(name) if name else self.default
        except ConfigError as error:
            raise ModelUnavailable(f"this chat was switched to {name}: {error}. ,model switches to another") from error

    def get_model(self, name: str) -> Model:
        """Return the model of this name. Raise `ConfigError` if it is unknown or cannot be used."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def loading_names(self) -> list[str]:
        return [name for name, model in self._loaded.items() if isinstance(model, LoadsLater) and model.is_loading]

    async def aclose(self) -> None:
        """Close every model that was loaded."""
        for model in self._loaded.values():
            await model.aclose()
