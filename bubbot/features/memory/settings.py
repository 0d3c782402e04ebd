"""`[memory]` of the settings."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from pydantic import Field, field_validator

from bubbot.ports.settings import Names, SettingsSection, Whole


class Scope(StrEnum):
    """Whose memory it is."""

    CHAT = "chat"
    USER = "user"
    WORKSPACE = "workspace"


class MemorySettings(SettingsSection):
    """`[memory]`: whose memory the model is shown, how much of it, and how long notes are kept."""

    retention_days: Whole = Field(
        default=30, ge=1, le=36500, description="Days after which the notes of a day are dropped."
    )
    recent_days: Whole = Field(default=7, ge=1, le=36500, description="Days before today whose notes count as recent.")
    zones: Names = Field(
        default=[scope.value for scope in Scope],
        description=(
            "Whose memory there is, the most important first, which gets the room if that is short: of the chat, of the "
            "person in direct chats, and of everybody who may speak."
        ),
    )
    block_tokens: Whole = Field(
        default=22_000,
        ge=500,
        le=1_000_000,
        description="Tokens that the memory may take of a request; never more than half of the model's context.",
    )

    @field_validator("zones")
    @classmethod
    def _check_zones(cls, value: list[str]) -> list[str]:
        names = [scope.value for scope in Scope]
        if unknown := [name for name in value if name not in names]:
            raise ValueError(f"there is no zone {unknown[0]!r}: the zones are {', '.join(names)}")
        if Scope.CHAT not in value or len(set(value)) < len(value):
            raise ValueError(f"has to name {Scope.CHAT.value}, and each zone once")
        return value

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of memory that are on, the most important first."""
        return tuple(Scope(name) for name in self.zones)


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"memory": MemorySettings})
"""The section of the feature in config.toml."""
