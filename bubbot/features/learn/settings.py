"""`[learn]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field, model_validator

from bubbot.ports.settings import Number, SettingsSection


class LearnSettings(SettingsSection):
    """`[learn]`: how judgements become rewards in `bubbot export`."""

    rewards: dict[str, Number] = Field(
        default={"quality": 1.0},
        description="The names of judgements that count, each with its weight; below 0, what is judged high counts as bad.",
    )
    worst: Number = Field(
        default=1.0,
        ge=-1e6,
        le=1e6,
        description="The score that counts as -1. The scores of reactions count as they are, from -1 to 1.",
    )
    best: Number = Field(default=5.0, ge=-1e6, le=1e6, description="The score that counts as 1.")
    discount: Number = Field(
        default=0.0,
        ge=0,
        le=1,
        description="How much of the reward of a later turn of a slice counts for the turn before it; 0: nothing.",
    )

    @model_validator(mode="after")
    def _check_scale(self) -> "LearnSettings":
        if self.best <= self.worst:
            raise ValueError("best has to be above worst: give the best and the worst score of judgements")
        return self


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"learn": LearnSettings})
"""The section of the feature in config.toml."""
