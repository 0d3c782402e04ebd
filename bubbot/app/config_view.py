"""The last values of the settings, from the facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bubbot.records import dataclass
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

CONFIG_TAPE = "bubbot/config"
LOADED = "config/loaded"
"""The settings of the bot have changed: `{"how", "changed": {key: value}, "later": [key]}`; null: the default."""
CONFIG_REFUSED = "config/refused"
"""Settings that were refused: `{"how", "problems": [sentence]}`."""


@dataclass(frozen=True, slots=True)
class ConfigView:
    """All values that are not the default, by `section.key`, without secrets."""

    @property
    def heavy(self) -> bool:
        """False: settings are seldom changed."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read all changes."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(LOADED,), missing="empty"),)

    def fold(self, answers: QueryAnswers) -> Mapping[str, Any]:
        """Keep the newest value of each key."""
        values: dict[str, Any] = {}
        for entry in answers[0]:
            values |= entry.data["changed"]
        return {key: value for key, value in values.items() if value is not None}
