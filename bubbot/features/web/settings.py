"""`[tools.web]` of the settings."""

from __future__ import annotations

from pydantic import Field

from bubbot.ports.settings import SettingsSection


class WebSettings(SettingsSection):
    """`[tools.web]`: the tools `web.fetch` and `web.search`."""

    enabled: bool = Field(default=False, description="Let the model read pages of the web and search it.")
