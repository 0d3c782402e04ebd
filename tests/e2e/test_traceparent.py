"""A server of models is told the span of the call, in both ways to it, and only if the user asked for that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import SecretStr

from bubbot.features.otel.propagation import make_call_headers
from bubbot.features.otel.settings import OtelSettings
from bubbot.settings.loader import ModelSettings
from tests.e2e.model_paths import model_path, via  # noqa: F401 - a fixture among them
from tests.e2e.openai_server import OpenaiServer, Step, calls, fails, says, serving
from tests.fakes.otlp_server import Receiver, receiver
from tests.made_settings import make_settings
from tests.traced import reload, say, traced, written

pytestmark = [
    pytest.mark.usefixtures("model_path"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]
TALK = (calls(("a", "tape_info", "{}")), fails(503), says("It is short."))


async def talk(home: Path, steps: Sequence[Step], **otel: str) -> tuple[OpenaiServer, Receiver]:
    """One turn with a model behind HTTP, whose second call is repeated."""
    async with receiver() as taken, serving(*steps) as server:
        settings = make_settings(
            OtelSettings.model_validate({"endpoint": taken.url, **otel}),
            model=ModelSettings(
                name="openai/gpt-4o-mini",
                via=via(),
                api_base=server.address,
                api_key=SecretStr("sk-x"),
                retry_wait=0.01,
            ),
        )
        async with traced(settings, home) as bot:
            await say(bot, "look")
            await taken.turns(1)
            await written(bot, "otel/exported")
    return server, taken


async def test_each_call_has_the_span_of_its_step(tmp_path: Path) -> None:
    server, taken = await talk(tmp_path, TALK, traceparent="near")
    first, second = taken.named("step")
    (root,) = taken.roots
    assert first.trace == second.trace == root.trace
    expected = [f"00-{root.trace}-{span.id}-01" for span in (first, second, second)]
    assert server.traces == expected, "a repeated call is of the same step"
    assert [span.name for span in taken.children(second)] == ["chat gpt-4o-mini"] * 2


@pytest.mark.parametrize("otel", [{}, {"traceparent": "off"}])
async def test_nobody_is_told_unless_asked_for(tmp_path: Path, otel: dict[str, str]) -> None:
    server, taken = await talk(tmp_path, TALK, **otel)
    assert server.traces == ["", "", ""]
    assert len(taken.named("step")) == 2


async def test_a_reload_takes_it_back(tmp_path: Path) -> None:
    async with receiver() as taken, serving(*TALK) as server:
        settings = make_settings(
            OtelSettings.model_validate({"endpoint": taken.url, "traceparent": "all"}),
            model=ModelSettings(
                name="openai/gpt-4o-mini", via=via(), api_base=server.address, api_key=SecretStr("sk-x")
            ),
        )
        async with traced(settings, tmp_path) as bot:
            await say(bot, "look")
            await taken.turns(1)
            off = settings.model_copy(update={"otel": OtelSettings(endpoint=taken.url)})
            await reload(bot, off)
            before = len(server.traces)
            await say(bot, "look again")
            assert set(server.traces[before:]) == {""}
    assert all(server.traces[:before])


@pytest.mark.parametrize(
    "host",
    ["api.openai.com", "", "8.8.8.8", "localhost.example.com", "printer", "2001:4860::8888", "::ffff:8.8.8.8"],
)
def test_a_server_elsewhere_is_not_near(host: str) -> None:
    assert make_call_headers("ab" * 16, "cd" * 8, "near")(host) == {}
    assert make_call_headers("ab" * 16, "cd" * 8, "all")(host) == {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}


@pytest.mark.parametrize(
    "host", ["localhost", "models.localhost", "127.0.0.1", "::1", "192.168.1.5", "10.0.0.9", "::ffff:10.0.0.9"]
)
def test_this_machine_and_private_addresses_are_near(host: str) -> None:
    assert make_call_headers("ab" * 16, "cd" * 8, "near")(host)
    assert make_call_headers("ab" * 16, "cd" * 8, "off")(host) == {}
