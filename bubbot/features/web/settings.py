"""`[tools.web]` of the settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from bubbot.formatting import did_you_mean
from bubbot.ports.settings import Names, Number, SettingsSection, Whole, blank_to_none, setting_error, web_address

ENGINES = ("searxng", "brave", "tavily", "ddgs")
"""The search engines, in the order in which they are asked by default."""


def _check_engines(names: list[str]) -> list[str]:
    for name in names:
        if name not in ENGINES:
            hint = did_you_mean(name, ENGINES, before="; ")
            raise setting_error(f"names {name!r}, but the search engines are {', '.join(ENGINES)}{hint}")
    return list(dict.fromkeys(names))


class WebSettings(SettingsSection):
    """`[tools.web]`: the tools `web.fetch` and `web.search`."""

    enabled: bool = Field(default=False, description="Let the model read pages of the web and search it.")
    engines: Annotated[Names, AfterValidator(_check_engines)] = Field(
        default=[],
        description="Search engines in the order in which they are asked; if one fails the next is asked. `searxng`, "
        "`brave`, `tavily`, and `ddgs`, which needs no key. Empty: those that have an address or a key, then `ddgs`.",
    )
    searxng_url: Annotated[str | None, web_address("http", "https"), BeforeValidator(blank_to_none)] = Field(
        default=None,
        description="The address of a SearXNG whose JSON format is on; it may be on this machine.",
        examples=["http://127.0.0.1:8888"],
    )
    brave_key: Annotated[SecretStr | None, BeforeValidator(blank_to_none)] = Field(
        default=None, description="The key of Brave's search API."
    )
    tavily_key: Annotated[SecretStr | None, BeforeValidator(blank_to_none)] = Field(
        default=None, description="The key of Tavily's search API."
    )
    max_bytes: Whole = Field(
        default=5_000_000, ge=1000, le=100_000_000, description="Bytes of one page, as sent and as decompressed."
    )
    timeout: Number = Field(default=20.0, gt=0, le=600, description="Seconds until a page has arrived whole.")
    requests_per_minute: Whole = Field(
        default=20, ge=1, le=1000, description="Requests to one registrable domain in a minute."
    )

    def list_engines(self) -> list[str]:
        """List the search engines in the order in which they are asked, without those that lack an address or a key."""
        return [name for name in self.engines or ENGINES if name not in self.list_unusable()]

    def list_unusable(self) -> list[str]:
        """List the search engines that lack an address or a key."""
        needs = {"searxng": self.searxng_url, "brave": self.brave_key, "tavily": self.tavily_key}
        return [name for name, value in needs.items() if not value]


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"tools.web": WebSettings})
"""The section of the feature in config.toml."""
