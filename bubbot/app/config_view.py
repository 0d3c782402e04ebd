"""The last values of the settings, from the facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bubbot.tape.entry import JsonObject, Kind
from bubbot.tape.fact import Fact
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

CONFIG_TAPE = "bubbot/config"


class ConfigLoaded(Fact):
    """The settings of the bot have changed; null stands for the default. `later`: what waits for the next start."""

    EVENTS = ("config/loaded",)
    how: str
    changed: JsonObject
    later: tuple[str, ...]


class ConfigRefused(Fact):
    """Settings were refused; a sentence for each of the problems."""

    EVENTS = ("config/refused",)
    how: str
    problems: tuple[str, ...]


class ConfigView(Struct, frozen=True):
    """All values that differ from the default, by `section.key`, without secrets."""

    @property
    def heavy(self) -> bool:
        """False: settings rarely change."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=ConfigLoaded.EVENTS, missing="empty"),)

    def fold(self, answers: QueryAnswers) -> Mapping[str, Any]:
        """Keep the newest value of each key that differs from the default."""
        values: dict[str, Any] = {}
        for entry in answers[0]:
            if loaded := ConfigLoaded.try_of(entry):
                values |= loaded.changed
        return {key: value for key, value in values.items() if value is not None}
