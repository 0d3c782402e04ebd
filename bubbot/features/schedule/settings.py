"""`[schedule]` of the settings."""

from collections.abc import Mapping
from datetime import time
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from bubbot.ports.settings import SettingsSection, Whole


class ScheduleSettings(SettingsSection):
    """`[schedule]`: limits of jobs."""

    renamed_keys: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"endless": "min_unbounded_interval", "failures": "max_failures", "per_chat": "max_jobs_per_chat"}
    )

    max_jobs_per_chat: Whole = Field(default=20, ge=1, le=10_000, description="Jobs that one chat may have.")
    max_failures: Whole = Field(default=5, ge=1, le=1000, description="Failures in a row after which a job is paused.")
    min_unbounded_interval: Whole = Field(
        default=10,
        ge=1,
        le=10_000,
        description="Minutes: what comes more often needs an end or a number of runs, unless an owner makes it.",
    )
    default_time: str = Field(
        default="09:00",
        pattern=r"^([01]\d|2[0-3]):[0-5]\d$",
        description="Time of day of a date that names none, such as tomorrow.",
    )

    @property
    def default_clock(self) -> time:
        """The time of day of a date that names none."""
        return time.fromisoformat(self.default_time)


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"schedule": ScheduleSettings})
"""The section of the feature in config.toml."""
