"""`[plants]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field

from bubbot.ports.settings import Number, SettingsSection


class PlantSettings(SettingsSection):
    """`[plants]`: how plants are watered."""

    litres: Number = Field(default=0.5, gt=0, description="Litres, if nothing else is said.")


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"plants": PlantSettings})
