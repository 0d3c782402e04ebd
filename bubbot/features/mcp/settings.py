"""`[mcp]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from bubbot.ports.settings import Number, SettingsSection, Whole


class McpSettings(SettingsSection):
    """`[mcp]`: tools of other programs, which speak the Model Context Protocol."""

    enabled: bool = Field(
        default=False, description="Offer the pinned tools of the servers that were added with `bubbot mcp add`."
    )
    sandbox: Literal["auto", "bwrap", "landlock", "none"] = Field(
        default="auto",
        description="What servers run in that the bot starts, as in `[tools.shell]`. `none` gives them all that the bot may do.",
    )
    timeout: Number = Field(default=60.0, gt=0, le=3600, description="Seconds that a call of a tool may take.")
    connect_timeout: Number = Field(
        default=30.0, gt=0, le=600, description="Seconds until a server has started and answered."
    )
    idle: Number = Field(
        default=300.0,
        gt=0,
        le=86400,
        description="Seconds without a call after which the process that holds the connections ends, with the servers that it started.",
    )
    memory: Whole = Field(
        default=16_000,
        ge=16,
        le=1_000_000,
        description="Megabytes of memory that each process of a server may address; some runtimes address far more than they use.",
    )
    max_processes: Whole = Field(default=128, ge=1, le=10_000, description="Processes of one server at a time.")
    cpu_seconds: Whole = Field(
        default=3600, ge=1, le=1_000_000, description="Seconds of processor time that each process of a server may use."
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"mcp": McpSettings})
"""The section of the feature in config.toml."""
