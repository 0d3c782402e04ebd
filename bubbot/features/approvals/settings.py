"""`[approvals]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from bubbot.ports.settings import Number, SettingsSection

MAX_HOURS = 720


class ApprovalSettings(SettingsSection):
    """`[approvals]`: who says yes to what a model wants to do, and where that is asked."""

    role: Literal["owner", "admin"] = Field(
        default="owner", description="The least role that may allow what needs somebody else's yes: `owner` or `admin`."
    )
    to: str = Field(
        default="",
        max_length=1_000,
        description="A chat that gets the cards of groups and of jobs, such as an owner's direct chat; empty: each is asked "
        "where it came up.",
    )
    hours: Number = Field(
        default=24.0, gt=0, le=MAX_HOURS, description="Hours after which a card that nobody answered means no."
    )
    jobs: Literal["refuse", "ask"] = Field(
        default="refuse",
        description="What happens to a call of a job or a sub-agent for which it has no grant: `refuse` it at once, or `ask` "
        "with a card.",
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"approvals": ApprovalSettings})
"""The section of the feature in config.toml."""
