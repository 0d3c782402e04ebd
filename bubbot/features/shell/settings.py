"""`[tools.shell]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from bubbot.ports.settings import Names, Number, SettingsSection, Whole


class ShellSettings(SettingsSection):
    """`[tools.shell]`: the tools that run programs."""

    enabled: bool = Field(default=False, description="Let the model run programs.")
    sandbox: Literal["auto", "bwrap", "landlock", "none"] = Field(
        default="auto",
        description="What programs run in. `auto`: `bwrap` (the program bubblewrap) if it works, else `landlock`, else "
        "nothing runs. `none` gives programs all that the bot may do.",
    )
    network: bool = Field(default=False, description="Let programs use the network.")
    readable: Names = Field(
        default=[], description="Further folders that programs may read and run programs from, as whole paths."
    )
    timeout: Number = Field(default=60.0, gt=0, le=3600, description="Seconds that a program may run.")
    job_timeout: Number = Field(
        default=3600.0, gt=0, le=86400, description="Seconds that a program may run in the background."
    )
    max_jobs: Whole = Field(default=4, ge=0, le=100, description="Programs in the background of one chat.")
    max_output: Whole = Field(
        default=200_000, ge=1000, le=10_000_000, description="Bytes of output that are kept: the first and the last."
    )
    memory: Whole = Field(
        default=1024, ge=16, le=1_000_000, description="Megabytes of memory that each process may address."
    )
    max_processes: Whole = Field(default=64, ge=1, le=10_000, description="Processes of one program at a time.")


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"tools.shell": ShellSettings})
"""The section of the feature in config.toml."""
