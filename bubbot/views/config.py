"""What the facts say about the settings: the values the bot went by last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import Found

CONFIG_TAPE = "bubbot/config"
LOADED = "config/loaded"
"""The settings the bot goes by have changed: `{"how", "changed": {key: value}, "later": [key]}`; null: the default."""
CONFIG_REFUSED = "config/refused"
"""Settings that were not taken over: `{"how", "problems": [sentence]}`."""


@dataclass(frozen=True, slots=True)
class ConfigView:
    """Every value that is not the default, by `section.key`, without secrets."""

    @property
    def heavy(self) -> bool:
        """A few facts: settings are seldom changed."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Every change there was."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(LOADED,), missing="empty"),)

    def fold(self, found: Found) -> Mapping[str, Any]:
        """The newest value of each key."""
        values: dict[str, Any] = {}
        for entry in found[0]:
            values |= entry.payload["data"]["changed"]
        return {key: value for key, value in values.items() if value is not None}
