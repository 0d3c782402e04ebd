"""`[tools.files]` of the settings."""

from __future__ import annotations

from pydantic import Field

from bubbot.ports.settings import SettingsSection


class FileSettings(SettingsSection):
    """`[tools.files]`: the tools that read and change files."""

    enabled: bool = Field(
        default=False, description="Let the model read and change files below the folders of `roots`."
    )
