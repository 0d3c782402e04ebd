"""`[search]` of the settings."""

from pydantic import Field

from bubbot.ports.settings import SettingsSection


class SearchSettings(SettingsSection):
    """`[search]`: the search of texts on the tapes."""

    index: bool = Field(
        default=True,
        description="Keep words in a search index, a separate file; without it every search reads the tape.",
    )
