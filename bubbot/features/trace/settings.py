"""`[trace]` of the settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from bubbot.ports.settings import Name, Names, OptionalWhole, SettingsSection, blank_to_none, web_address

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - named, not listened on
"""Hosts to listen on that are no address to go to."""


class TraceSettings(SettingsSection):
    """`[trace]`: the page that shows what happened; without `port` the daemon serves none."""

    host: Name = Field(default="127.0.0.1", description="The address to listen on.")
    port: OptionalWhole = Field(
        default=None, ge=0, le=65535, description="The port to listen on; 0 for any that is free.", examples=[8766]
    )
    hosts: Names = Field(
        default=[], description="Names by which browsers reach the page, besides `host`, localhost and IP addresses."
    )
    url: Annotated[str | None, web_address("http", "https"), BeforeValidator(blank_to_none)] = Field(
        default=None,
        description="The address of the page as people reach it, for links in `,why`; default: `host` and `port`. With "
        "`https` the browser sends its cookie over nothing else.",
        examples=["https://bot.example.org"],
    )

    @property
    def address(self) -> str:
        """The address of the page as people reach it; empty if nobody serves it, or if nobody knows it."""
        if self.port is None:
            return ""
        if self.url:
            return self.url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}" if self.port and self.host not in EVERYWHERE else ""
