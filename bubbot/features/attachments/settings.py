"""`[attachments]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import SettingsSection, Whole


class AttachmentSettings(SettingsSection):
    """`[attachments]`: the handling of incoming files, and the size limits of all files."""

    max_bytes: Whole = Field(
        default=20_000_000,
        ge=1000,
        le=1_000_000_000,
        description="Bytes of one file, in and out; larger ones are refused.",
    )
    max_inline: Whole = Field(
        default=20_000, ge=0, le=1_000_000, description="Characters of a text file that the model is shown at once."
    )
    images: bool = Field(default=True, description="Show images to models with image input.")
    transcription: str = Field(
        default="", description="The model that writes down voice messages, `provider/model`; empty for none."
    )


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"attachments": AttachmentSettings})
"""The section of the feature in config.toml."""
