"""The door for programs: what each path says, where it listens, and what a wrong address is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from bubbot.errors import ConfigError, StoreUnavailable
from bubbot.features.budget.health import budget_readiness
from bubbot.features.budget.outages import ModelOutage
from bubbot.gateway.health.snapshot import BackupStatus, HealthSnapshot
from bubbot.gateway.metrics import Metrics
from bubbot.server.health import HealthProbe, serve_health
from bubbot.server.listener import HttpAddress
from tests.unit.features.budget.test_health import failing
from tests.unit.gateway.health.test_formatter import CONTEXT, FULL

FINE = structs.replace(FULL, channels=FULL.channels[:1])


@asynccontextmanager
async def door(
    snapshot: HealthSnapshot,
    error: Exception | None = None,
    *,
    disk: Any = "",
    readiness: Mapping[str, object] = {},
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A door before a bot that is like this."""

    async def told() -> HealthSnapshot:
        if error is not None:
            raise error
        return snapshot

    asked = HealthProbe(
        lambda: snapshot.channels, lambda: snapshot.quarantine, told, lambda: 5, lambda: readiness, lambda: disk
    )
    async with (
        serve_health(HttpAddress("health", "127.0.0.1", 0), asked, Metrics(), ["bot_1"]) as port,
        aiohttp.ClientSession() as session,
    ):
        yield session, f"http://127.0.0.1:{port}"


async def test_a_bot_that_hears_all_its_channels_is_alive_and_ready() -> None:
    async with door(FINE) as (session, address):
        async with session.get(f"{address}/live") as live:
            assert (live.status, await live.text()) == (200, "ok\n")
        async with session.get(f"{address}/ready") as ready:
            assert (ready.status, await ready.json()) == (200, {"ready": True, "channels": {}})
        async with session.get(f"{address}/metrics") as metrics:
            assert metrics.headers["Content-Type"].startswith("text/plain; version=")
            assert "bubbot_store_commits_total 5.0" in await metrics.text()


async def test_a_deaf_bot_is_alive_and_not_ready_and_says_why() -> None:
    async with door(FULL) as (session, address):
        async with session.get(f"{address}/live") as live:
            assert live.status == 200
        async with session.get(f"{address}/ready") as ready:
            assert ready.status == 503
            told = await ready.json()
    assert told["ready"] is False
    assert told["channels"]["work"] == {"state": "running", "note": "no answer for 60 s"}
    assert told["channels"]["old"] == {"state": "refused", "note": "its token is not taken"}
    assert set(told["channels"]) == {"work", "old", "gone", "new"}


@pytest.mark.parametrize("disk", ["full", "read-only"])
async def test_while_the_disk_takes_nothing_the_bot_accepts_nothing_and_is_not_ready(disk: Any) -> None:
    async with (
        door(FINE, disk=disk) as (session, address),
        session.get(f"{address}/ready") as ready,
    ):
        assert (ready.status, await ready.json()) == (503, {"ready": False, "channels": {}, "disk": disk})


async def test_a_model_that_does_not_answer_is_named_and_the_bot_stays_ready() -> None:
    trouble = ModelOutage("openai/x", "2026-11-22T11:00:00+00:00", "2026-11-22T11:59:00+00:00", "model_refused", 401)
    async with (
        door(failing(trouble), readiness=budget_readiness(CONTEXT, (trouble,))) as (session, address),
        session.get(f"{address}/ready") as ready,
    ):
        assert ready.status == 200
        told = await ready.json()
    assert told["ready"] is True
    assert told["models"] == {
        "openai/x": {"since": trouble.since, "asked": trouble.newest, "why": "it refuses the key"}
    }


async def test_a_bot_in_quarantine_is_not_ready_and_a_number_says_so() -> None:
    async with door(
        structs.replace(FINE, channels=(), quarantine=BackupStatus("copy", "2026-11-22T11:00:00+00:00"))
    ) as (
        session,
        at,
    ):
        async with session.get(f"{at}/ready") as ready:
            assert ready.status == 503
            told = {
                "ready": False,
                "channels": {},
                "quarantine": "copy",
            }
            assert await ready.json() == told
        async with session.get(f"{at}/metrics") as metrics:
            assert "\nbubbot_quarantine 1.0\n" in await metrics.text()
    async with door(FINE) as (session, at), session.get(f"{at}/metrics") as metrics:
        assert "\nbubbot_quarantine 0.0\n" in await metrics.text()


async def test_without_a_database_there_are_no_metrics_and_the_bot_is_alive() -> None:
    async with door(FINE, StoreUnavailable("gone")) as (session, address):
        async with session.get(f"{address}/metrics") as metrics:
            assert metrics.status == 503
        async with session.get(f"{address}/live") as live:
            assert live.status == 200


async def test_nothing_else_is_answered() -> None:
    async with door(FINE) as (session, address):
        async with session.get(f"{address}/") as other:
            assert other.status == 404
        async with session.post(f"{address}/metrics") as post:
            assert post.status == 405


async def test_a_port_in_use_is_one_sentence_that_names_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        asked = HealthProbe(lambda: (), lambda: None, _never, lambda: 0)
        with pytest.raises(ConfigError, match=rf"^\[health\] host and port: 127\.0\.0\.1:{port} cannot be listened on"):
            async with serve_health(HttpAddress("health", "127.0.0.1", port), asked, Metrics()):
                pass


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
async def test_a_host_that_others_can_reach_is_warned_of(
    host: str, *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked = HealthProbe(lambda: (), lambda: None, _never, lambda: 0)
    async with serve_health(HttpAddress("health", host, 0), asked, Metrics()):
        pass
    assert any(record.levelname == "WARNING" and host in record.getMessage() for record in caplog.records) is warned


async def _never() -> HealthSnapshot:
    raise AssertionError


@pytest.mark.parametrize("path", ["/ready", "/metrics"])
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example:9464", 421),
        ("bot@evil.example", 421),
        ("", 421),
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:9464", 200),
        ("10.0.0.5:9464", 200),
        ("Bot_1:9464", 200),
    ],
)
async def test_a_page_under_a_foreign_name_reads_nothing(path: str, host: str, status: int) -> None:
    """A name of a page's own that leads to this machine (DNS rebinding) is no name of the bot."""
    async with door(FINE) as (session, address), session.get(f"{address}{path}", headers={"Host": host}) as answer:
        assert answer.status == status
        assert ("bubbot_" in await answer.text() or "channels" in await answer.text()) == (status == 200)


async def test_probes_without_a_host_and_those_that_ask_only_for_life_are_answered() -> None:
    async with door(FINE) as (session, address):
        async with session.get(f"{address}/live", headers={"Host": "evil.example"}) as live:
            assert live.status == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
        assert b" 200 " in await reader.readline()
        writer.close()
