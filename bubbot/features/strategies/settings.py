"""`[context]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import AUTO_SELECTOR, Flag, Name, Number, SettingsSection, Whole


class ContextSettings(SettingsSection):
    """`[context]`: the part of the tape that the model sees."""

    selector: Name = Field(default=AUTO_SELECTOR, description="The strategy that picks the entries the model sees.")
    summary_at: Number = Field(
        default=0.7,
        ge=0,
        le=1,
        description="The share of the room for messages after which the strategy `summary` writes one; 0 for never.",
    )
    timeout: Number = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Seconds that a strategy may prepare the context of a turn, its calls of models included.",
    )
    recall_tokens: Whole = Field(
        default=800,
        ge=50,
        le=100_000,
        description="Tokens that the strategy `retrieval` may recall for one message, an eighth of the context at most.",
    )
    embeddings: Flag = Field(
        default=False,
        description="The strategy `retrieval` finds by meaning, too, in English; needs the extra `embeddings`.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"context": ContextSettings})
"""The section of the feature in config.toml."""
