"""A key goes only to the provider it was set for: two providers on loopback, asked by a whole bot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbot.app.bot import Bot, open_app
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e import openai_server, provider_server
from tests.e2e.anthropic_server import MODEL, AnthropicServer, Fails, Says, text
from tests.e2e.anthropic_server import says as says_anthropic
from tests.e2e.model_paths import model_path, via  # noqa: F401 - a fixture among them
from tests.e2e.openai_server import OpenaiServer, Step, fails
from tests.e2e.provider_asking import asked

# Warnings of pydantic about litellm's own code: not ours to mend. Everything else stays an error.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm", "model_path"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

CLAUDE = f"anthropic/{MODEL}"
KEY, OTHER_KEY = "sk-of-the-first-1", "sk-of-the-other-1"
"""The key in `[model] api_key`, for `openai/test`, and the one in the variable of the other provider."""
FROM_OTHER = says_anthropic(text("From the other."))


@asynccontextmanager
async def bot(
    home: Path, monkeypatch: pytest.MonkeyPatch, first: Step, other: Says | Fails, *fallback: str
) -> AsyncIterator[tuple[Bot, OpenaiServer, AnthropicServer]]:
    """A bot of `openai/test` with a key and an address; the variables of the other provider say where that one is."""
    async with openai_server.serving(first) as one, provider_server.serving(AnthropicServer([other])) as two:
        monkeypatch.setenv("ANTHROPIC_API_KEY", OTHER_KEY)
        monkeypatch.setenv("ANTHROPIC_API_BASE", two.address)
        model = ModelSettings.model_validate(
            {
                "name": "openai/test",
                "api_base": one.address,
                "api_key": KEY,
                "retries": 0,
                "fallback": fallback,
                "via": via(),
            }
        )
        given = {"write": lambda _: None}
        async with open_app(Settings(model=model), Home(home), channel_settings=given) as app:
            yield app, one, two


async def answers(app: Bot, *texts: str) -> list[str]:
    """What the bot says to each of these messages of its owner."""
    sender, at = Sender("0", "owner"), "2026-11-21T20:21:00Z"
    return [(await app.ask(Inbound("stdin", text, "default", sender, text, at))).text for text in texts]


def keys(server: AnthropicServer) -> set[str | None]:
    """The keys that the other provider was sent, after a look at every header and body."""
    for request in server.requests:
        assert KEY not in repr(request)
    return {request.headers.get("x-api-key") for request in server.requests}


async def test_a_chat_that_switches_to_another_provider_sends_it_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bot(tmp_path / "home", monkeypatch, openai_server.says("From the first."), FROM_OTHER) as (
        app,
        one,
        two,
    ):
        said = await answers(app, "hi", f",model {CLAUDE}", "and now?", ",model openai/second", "and again?")
    assert (said[0], said[2], said[4]) == ("From the first.", "From the other.", "From the first.")
    assert keys(two) == {OTHER_KEY}
    assert set(one.keys) == {f"Bearer {KEY}"}
    assert len(one.keys) == 2


async def test_a_refused_key_is_named_by_the_variable_that_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Fails(401, "authentication_error", "invalid x-api-key")
    async with bot(tmp_path / "home", monkeypatch, fails(401, "no such key"), refusal) as (app, _, _):
        first, _, other = await answers(app, "hi", f",model {CLAUDE}", "and now?")
    assert "openai/test refused the credentials ([model] api_key)" in first
    assert f"{CLAUDE} refused the credentials (ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN)" in other


@pytest.mark.parametrize(
    ("key", "source"), [(None, "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"), (OTHER_KEY, "[model] api_key")]
)
async def test_a_refused_key_of_a_proxy_is_named_by_where_it_came_from(
    key: str | None, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", OTHER_KEY)
    refusal = Fails(401, "authentication_error", "invalid x-api-key")
    async with provider_server.serving(AnthropicServer([refusal])) as proxy:
        outcome = await asked(CLAUDE, proxy.address, api_key=key)
    assert keys(proxy) == {OTHER_KEY}
    assert str(outcome.error) == f"{CLAUDE} refused the credentials ({source}): invalid x-api-key"


async def test_a_fallback_of_another_provider_is_sent_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = fails(503, "overloaded")
    async with bot(tmp_path / "home", monkeypatch, busy, FROM_OTHER, CLAUDE) as (app, one, two):
        assert await answers(app, "hi") == ["From the other."]
    assert (keys(two), one.keys) == ({OTHER_KEY}, [f"Bearer {KEY}"])


async def test_a_fallback_of_the_configured_provider_keeps_its_key_if_the_chat_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Fails(529, "overloaded_error", "Overloaded")
    first = openai_server.says("From the first.")
    async with bot(tmp_path / "home", monkeypatch, first, busy, "openai/second") as (app, one, two):
        assert (await answers(app, f",model {CLAUDE}", "hi"))[1] == "From the first."
    assert (keys(two), one.keys) == ({OTHER_KEY}, [f"Bearer {KEY}"])
