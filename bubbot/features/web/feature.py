"""The feature: tools that read the web, off by default."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from bubbot.feature import Feature, Kernel
from bubbot.features.web.settings import WebSettings
from bubbot.settings.loader import Settings

if TYPE_CHECKING:
    from bubbot.features.web.client import WebClient
    from bubbot.features.web.reading import PageReader
    from bubbot.features.web.search import SearchEngine


def create(_kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    return web_feature(settings.section(WebSettings))


def web_feature(settings: WebSettings) -> Feature:
    """Build the feature from its settings; a reload builds it again."""
    if not settings.enabled:
        return Feature(name="web")
    # Imported here: bots without these tools load nothing of them.
    from bubbot.features.web.client import WebClient
    from bubbot.features.web.commands import web_tools
    from bubbot.features.web.reading import PageReader

    make_client = partial(
        WebClient,
        clock=time.monotonic,
        max_bytes=settings.max_bytes,
        timeout=settings.timeout,
        requests_per_minute=settings.requests_per_minute,
    )
    client, reader = make_client(), PageReader()
    # The owner wrote the address of a SearXNG down: it may be on this machine, at any port, and is not redirected.
    own_client = make_client(max_redirects=0, ports=(), is_allowed=lambda _: True)
    return Feature(name="web", tools=web_tools(client, reader, build_engines(settings, client, own_client, reader)))


def build_engines(
    settings: WebSettings, client: WebClient, own_client: WebClient, reader: PageReader
) -> list[SearchEngine]:
    """Build the search engines of the settings, in the order in which they are asked.

    `own_client` asks the address of the owner's SearXNG, `client` public ones.
    """
    from bubbot.features.web.search import brave_engine, keyless_engine, searxng_engine, tavily_engine

    engines = []
    for name in settings.list_engines():
        match name:
            case "searxng" if settings.searxng_url:
                engines.append(searxng_engine(own_client, settings.searxng_url))
            case "brave" if settings.brave_key:
                engines.append(brave_engine(client, settings.brave_key.get_secret_value()))
            case "tavily" if settings.tavily_key:
                engines.append(tavily_engine(client, settings.tavily_key.get_secret_value()))
            case "ddgs":
                engines.append(keyless_engine(client, reader))
    return engines
