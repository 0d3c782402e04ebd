"""`[topics]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import SettingsSection, Whole


class TopicSettings(SettingsSection):
    """`[topics]`: what taking up a topic brings back."""

    recall_messages: Whole = Field(
        default=40, ge=0, le=500, description="Newest messages of a topic that come back when it is taken up."
    )
    recall_tokens: Whole = Field(
        default=4_000, ge=0, le=200_000, description="Estimated tokens at most of these messages together."
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"topics": TopicSettings})
"""The section of the feature in config.toml."""
