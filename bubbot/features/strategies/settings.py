"""`[context]` of the settings."""

from __future__ import annotations

from pydantic import Field

from bubbot.ports.settings import AUTO_SELECTOR, Name, SettingsSection


class ContextSettings(SettingsSection):
    """`[context]`: the part of the tape that the model sees."""

    selector: Name = Field(default=AUTO_SELECTOR, description="The strategy that picks the entries the model sees.")
