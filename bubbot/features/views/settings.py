"""`[views]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import SettingsSection, Whole


class ViewSettings(SettingsSection):
    """`[views]`: what a view of another chat may add to a request."""

    tokens: Whole = Field(
        default=1_000,
        ge=400,
        le=100_000,
        description="Estimated tokens at most that one view of another chat adds to one turn.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"views": ViewSettings})
"""The section of the feature in config.toml."""
