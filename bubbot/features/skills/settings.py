"""`[skills]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import Names, SettingsSection


class SkillsSettings(SettingsSection):
    """`[skills]`: folders with instructions that models open when a task needs them."""

    enabled: bool = Field(default=False, description="Let models use the skills that an owner accepted.")
    folders: Names = Field(
        default=[],
        description="Further folders with a folder for each skill, beside `skills` in the home, as whole paths outside the home.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"skills": SkillsSettings})
"""The section of the feature in config.toml."""
