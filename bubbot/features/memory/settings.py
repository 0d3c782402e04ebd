"""`[memory]` of the settings."""

from __future__ import annotations

from pydantic import Field

from bubbot.ports.settings import SettingsSection, Whole


class MemorySettings(SettingsSection):
    """`[memory]`: how long memory keeps notes."""

    retention_days: Whole = Field(
        default=30, ge=1, le=36500, description="Days after which the notes of a day are dropped."
    )
    recent_days: Whole = Field(default=7, ge=1, le=36500, description="Days before today whose notes count as recent.")
