"""`[learn]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bubbot.ports.settings import Number, SettingsSection, Text, Whole, matches

EVALUATION, EVALUATION_FORM = (
    r"|[a-z][a-z0-9_-]{0,39}",
    "the name of an evaluation: small letters, digits, _ and -, a letter first",
)


class LearnSettings(SettingsSection):
    """`[learn]`: how judgements become rewards in `bubbot export`, when exports are written, and when newer weights are used."""

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
    after: Whole = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="After how many further turns with a reward the running bot exports them for training; 0: never.",
    )
    format: Literal["trl-sft", "trl-kto", "trl-preference", "openai-chat", "openai-preference"] = Field(
        default="trl-sft", description="The format of these exports."
    )
    folder: Text = Field(
        default="exports", min_length=1, description="The folder that gets them; a relative path is one in the home."
    )
    evaluation: Annotated[str, matches(EVALUATION, EVALUATION_FORM)] = Field(
        default="",
        description="The evaluation that offered weights have to pass before sessions are answered by them; empty: an owner accepts them.",
    )
    pass_share: Number = Field(
        default=1.0,
        gt=0,
        le=1,
        description="The share of the results of that evaluation that have to pass.",
    )

    @model_validator(mode="after")
    def _check_scale(self) -> "LearnSettings":
        if self.best <= self.worst:
            raise ValueError("best has to be above worst: give the best and the worst score of judgements")
        return self


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"learn": LearnSettings})
"""The section of the feature in config.toml."""
