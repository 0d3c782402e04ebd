"""`[learn]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from bubbot.ports.settings import (
    Names,
    Number,
    SettingsSection,
    Text,
    Whole,
    blank_to_none,
    matches,
    setting_error,
    web_address,
)

EVALUATION, EVALUATION_FORM = (
    r"|[a-z][a-z0-9_-]{0,39}",
    "the name of an evaluation: small letters, digits, _ and -, a letter first",
)


def _check_endpoint(endpoint: str | None) -> str | None:
    if endpoint is not None and "@" in endpoint:
        raise setting_error(
            "has a user or a password in it (the value is not shown): [learn] endpoint_key is for the key"
        )
    return endpoint


def _check_sessions(sessions: list[str]) -> list[str]:
    for name in sessions:
        channel, colon, chat = name.partition(":")
        if not (channel and colon and chat):
            raise setting_error(f"has to name chats such as telegram:42, and {name!r} is none")
    return sessions


class LearnSettings(SettingsSection):
    """`[learn]`: how judgements become rewards, when exports are written, which calls are recorded, and when newer weights are used."""

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

    endpoint: Annotated[
        str | None, web_address("http", "https"), AfterValidator(_check_endpoint), BeforeValidator(blank_to_none)
    ] = Field(
        default=None,
        description="The web address of a proxy of AReaL, which records the calls of chats to train on them. Not set: no call is "
        "recorded.",
        examples=["http://127.0.0.1:8000"],
    )
    endpoint_key: Annotated[SecretStr | None, BeforeValidator(blank_to_none)] = Field(
        default=None, description="The admin key of the proxy, which begins its sessions."
    )
    endpoint_model: Annotated[Text, Field(min_length=1, max_length=200)] = Field(
        default="default", description="The name of the model at the proxy."
    )
    endpoint_sessions: Annotated[Names, AfterValidator(_check_sessions)] = Field(
        default=[],
        description="The chats whose answers the proxy's model writes and records, such as `telegram:42`; only turns whose people allow "
        "training (`,consent`).",
    )
    endpoint_idle: Number = Field(
        default=1800.0,
        ge=10,
        le=86400,
        description="Seconds without a call after which the recorded session of a chat ends, and its rewards are final; the proxy "
        "drops a session after 3600 by default.",
    )

    @property
    def endpoint_is_on(self) -> bool:
        """True if calls of any chat are recorded."""
        return bool(self.endpoint and self.endpoint_key and self.endpoint_sessions)

    @model_validator(mode="after")
    def _check_scale(self) -> "LearnSettings":
        if self.best <= self.worst:
            raise ValueError("best has to be above worst: give the best and the worst score of judgements")
        return self


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"learn": LearnSettings})
"""The section of the feature in config.toml."""
