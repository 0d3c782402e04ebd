"""`[tools.files]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import Names, SettingsSection, Whole


class FileSettings(SettingsSection):
    """`[tools.files]`: the tools that read and change files."""

    enabled: bool = Field(
        default=False,
        description="Let the model read and change files: those of the chat's own workspace, and those below `roots`.",
    )
    roots: Names = Field(
        default=[],
        description="Folders besides the workspace, such as `~/notes` or `/srv/plans`. Only owners reach them, in direct chats.",
    )
    read_only: Names = Field(default=[], description="Further folders, like `roots`, in which nothing is changed.")
    max_bytes: Whole = Field(
        default=1_000_000, ge=1000, le=100_000_000, description="Bytes of one file that is read or written."
    )
    workspace_bytes: Whole = Field(
        default=100_000_000, ge=1000, le=100_000_000_000, description="Bytes of all files in the workspace of a chat."
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"tools.files": FileSettings})
"""The section of the feature in config.toml."""
