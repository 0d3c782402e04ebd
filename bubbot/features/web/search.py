"""Search engines: each is one GET or POST on the guarded client, and its answer a list of results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.features.web.client import HTTP_OK, WebClient, WebError, WebResponse
from bubbot.features.web.reading import PageReader, WebResult

BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
TAVILY_URL = "https://api.tavily.com/search"
KEYLESS_ENGINES = ("duckduckgo", "mojeek")
"""The engines of ddgs whose pages answer a program without an account, in the order in which they are asked."""

AskEngine: TypeAlias = Callable[[str, int], Awaitable[Sequence[WebResult]]]
"""Ask a search engine for so many results at most. Raises `WebError`."""


class SearchEngine(Struct, frozen=True):
    """A search engine and its name."""

    name: str
    ask: AskEngine


class SearchAnswer(Struct, frozen=True):
    """The results of the first search engine that had some.

    Attributes:
        engine: its name.
        results: what it found; empty if every engine that answered found nothing.
        failures: why each engine before it has not answered, by name.
    """

    engine: str
    results: Sequence[WebResult]
    failures: Mapping[str, str]


async def search(engines: Sequence[SearchEngine], query: str, limit: int) -> SearchAnswer:
    """Ask one engine after another until one finds something. Raise `WebError` if none of them answers."""
    failures: dict[str, str] = {}
    empty = ""
    for engine in engines:
        try:
            results = await engine.ask(query, limit)
        except WebError as error:
            failures[engine.name] = str(error)
            continue
        if results:
            return SearchAnswer(engine.name, results[:limit], failures)
        empty = empty or engine.name
    if empty:
        return SearchAnswer(empty, (), failures)
    raise WebError("; ".join(f"{name}: {reason}" for name, reason in failures.items()) or "no search engine is set up")


def searxng_engine(client: WebClient, url: str) -> SearchEngine:
    """Build the engine of a SearXNG at this address."""

    async def ask(query: str, limit: int) -> list[WebResult]:
        response = await client.get(f"{url.rstrip('/')}/search", params={"q": query, "format": "json"})
        return _parse_results(response, ("results",), "content", limit)

    return SearchEngine("searxng", ask)


def brave_engine(client: WebClient, key: str, url: str = BRAVE_URL) -> SearchEngine:
    """Build the engine of Brave's API with this key."""

    async def ask(query: str, limit: int) -> list[WebResult]:
        headers = {"X-Subscription-Token": key, "Accept": "application/json"}
        response = await client.get(url, params={"q": query, "count": str(limit)}, headers=headers)
        return _parse_results(response, ("web", "results"), "description", limit)

    return SearchEngine("brave", ask)


def tavily_engine(client: WebClient, key: str, url: str = TAVILY_URL) -> SearchEngine:
    """Build the engine of Tavily's API with this key."""

    async def ask(query: str, limit: int) -> list[WebResult]:
        wanted = {"query": query, "max_results": limit, "search_depth": "basic"}
        response = await client.post(url, json=wanted, headers={"Authorization": f"Bearer {key}"})
        return _parse_results(response, ("results",), "content", limit)

    return SearchEngine("tavily", ask)


def keyless_engine(client: WebClient, reader: PageReader, names: Sequence[str] = KEYLESS_ENGINES) -> SearchEngine:
    """Build the engine that reads the result pages of public search engines as the package ddgs does."""

    async def ask_one(name: str, query: str, _limit: int) -> list[WebResult]:
        wanted = await reader.build_query(name, query)
        if wanted.method == "POST":
            response = await client.post(wanted.url, data=wanted.payload)
        else:
            response = await client.get(wanted.url, params=wanted.payload)
        # A page that asks whether we are a person has another status, or no results.
        _check_status(response)
        return await reader.read_results(name, query, response.body)

    async def ask(query: str, limit: int) -> list[WebResult]:
        answer = await search([SearchEngine(name, partial(ask_one, name)) for name in names], query, limit)
        return list(answer.results)

    return SearchEngine("ddgs", ask)


def _check_status(response: WebResponse) -> None:
    if response.status != HTTP_OK:
        raise WebError(f"it answered with the status {response.status}")


def _parse_results(response: WebResponse, path: Sequence[str], text_key: str, limit: int) -> list[WebResult]:
    """Read the results of an API: objects with `title`, `url` and a text, in a list at this path of the JSON."""
    _check_status(response)
    try:
        found: Any = json.loads(response.body)
    except (ValueError, RecursionError):
        raise WebError("its answer is not JSON") from None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    if found is None:
        return []
    if not isinstance(found, list):
        raise WebError("its answer has no list of results")
    items = [item for item in found if isinstance(item, dict) and isinstance(item.get("url"), str)]
    return [
        WebResult(str(item.get("title") or ""), item["url"], str(item.get(text_key) or "")) for item in items[:limit]
    ]
