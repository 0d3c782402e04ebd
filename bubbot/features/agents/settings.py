"""`[agents]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import Number, SettingsSection, Whole

DAY_SECONDS = 86_400


class AgentsSettings(SettingsSection):
    """`[agents]`: limits of sub-tasks."""

    max_parallel: Whole = Field(
        default=3, ge=1, le=16, description="Sub-tasks of one turn that run at the same time, at each depth."
    )
    max_depth: Whole = Field(
        default=2, ge=1, le=4, description="How deep sub-tasks may be nested; 1: a sub-task has none of its own."
    )
    max_steps: Whole = Field(default=10, ge=1, le=1000, description="Model calls of one sub-task.")
    max_tokens: Whole = Field(
        default=200_000,
        ge=1000,
        le=100_000_000,
        description="Tokens that one sub-task may read and write, those of its own sub-tasks included.",
    )
    timeout: Number = Field(default=600.0, gt=0, le=DAY_SECONDS, description="Seconds one sub-task may take.")


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"agents": AgentsSettings})
"""The section of the feature in config.toml."""
