"""`[tools.shell]` of the settings."""

from __future__ import annotations

from pydantic import Field

from bubbot.ports.settings import SettingsSection


class ShellSettings(SettingsSection):
    """`[tools.shell]`: the tool `shell.run`."""

    enabled: bool = Field(default=False, description="Let the model run programs.")
