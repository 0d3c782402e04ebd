"""`[search]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from bubbot.ports.settings import SettingsSection


class SearchSettings(SettingsSection):
    """`[search]`: the search of texts on the tapes."""

    needs_restart: ClassVar[bool] = True

    index: bool = Field(
        default=True,
        description="Keep words in a search index, a separate file; without it every search reads the tape.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"search": SearchSettings})
"""The section of the feature in config.toml."""
