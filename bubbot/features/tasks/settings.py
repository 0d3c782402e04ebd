"""`[tasks]` of the settings: how many runs a chat may have, and how much a step is shown."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import SettingsSection, Whole


class TaskSettings(SettingsSection):
    """`[tasks]`: graphs of turns under a contract; each is a folder of `tasks` in the home."""

    max_runs: Whole = Field(default=20, ge=1, le=1000, description="Runs of one chat that may be under way at once.")
    max_view_tokens: Whole = Field(
        default=20_000,
        ge=100,
        le=1_000_000,
        description="Estimated tokens at most that a step of a task is shown of it, whatever its `view_tokens` says.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"tasks": TaskSettings})
"""The section of the feature in config.toml."""
