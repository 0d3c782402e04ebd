"""The notify protocol, against a socket that is really bound; and when a start counts as over."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from bubbot import log
from bubbot.concurrency import Backoff
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ops.service.report import ServiceTiming, WatchedChannels, open_reporter
from bubbot.ports.channel import Channel, ChannelHealth
from bubbot.settings.environment import read_service_manager
from tests.e2e.manager import Manager, listening

STATUS_LIMIT = 300


PACE = Backoff(lambda: 0.5, first_seconds=0.01, max_seconds=0.02)
QUICK = ServiceTiming(start_timeout=0.2, poll_interval=0.01, extension_interval=0.02, extension=1.0, closing_time=0.05)


@pytest.fixture(params=["path", "abstract"])
async def manager(request: pytest.FixtureRequest) -> AsyncIterator[Manager]:
    """One that listens, on a path or on a name without a file."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/notify" if request.param == "path" else f"@bubbot-test{folder}"
        async with listening(address) as found:
            yield found


@pytest.fixture
def notifier(manager: Manager) -> Any:
    """One that tells it."""
    made = ServiceNotifier(manager.address, lambda: 5_000_999)
    yield made
    made.close()


async def test_each_message_is_a_datagram_of_lines(manager: Manager, notifier: ServiceNotifier) -> None:
    said: list[Callable[[], bool]] = [
        lambda: notifier.report_status("starting"),
        lambda: notifier.report_started("receiving: telegram"),
        notifier.report_reloading,
        notifier.report_reloaded,
        notifier.report_alive,
        lambda: notifier.extend_timeout(2.5),
        lambda: notifier.report_stopping("ending"),
    ]
    assert all(say() for say in said)
    await manager.until(lambda: len(manager.told) == len(said))
    assert [one.lines for one in manager.told] == [
        ("STATUS=starting",),
        ("READY=1", "STATUS=receiving: telegram"),
        ("RELOADING=1", "MONOTONIC_USEC=5000"),
        ("READY=1",),
        ("WATCHDOG=1",),
        ("EXTEND_TIMEOUT_USEC=2500000",),
        ("STOPPING=1", "STATUS=ending"),
    ]


async def test_a_reload_does_not_end_a_start(manager: Manager, notifier: ServiceNotifier) -> None:
    assert notifier.report_reloading()
    assert notifier.report_reloaded()
    notifier.report_status("still starting")
    await manager.until(lambda: manager.told)
    assert [one.lines for one in manager.told] == [("STATUS=still starting",)]


async def test_a_status_is_one_line_that_can_be_shown(manager: Manager, notifier: ServiceNotifier) -> None:
    notifier.report_status("not heard:\nREADY=1\x1b[2J " + "x" * 1000)
    await manager.until(lambda: manager.told)
    (line,) = manager.told[0].lines
    assert line.startswith("STATUS=not heard: READY=1\\x1b[2J xxx")
    assert len(line) == len("STATUS=") + STATUS_LIMIT


async def test_a_secret_with_several_blanks_is_redacted_before_the_line_is_joined(
    manager: Manager, notifier: ServiceNotifier
) -> None:
    log.setup("info", stream=io.StringIO(), secrets=["two  blanks\tand a tab"])
    notifier.report_status("refused: two  blanks\tand a tab")
    await manager.until(lambda: manager.told)
    assert manager.told[0].lines == ("STATUS=refused: [redacted]",)


async def test_a_manager_that_does_not_listen_is_said_once_and_told_again_when_it_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notifier = ServiceNotifier(f"{folder}/notify", lambda: 0)
        assert [notifier.report_started("up"), notifier.report_alive()] == [False, False]
        assert notifier.report_reloaded(), "there is no reload to end before the start is over"
        assert len(caplog.records) == 1
        async with listening(f"{folder}/notify") as manager:
            assert notifier.report_started("up")
            await manager.until(lambda: manager.told)
        assert not notifier.report_alive()
        assert len(caplog.records) == 2
        notifier.close()


def test_without_an_address_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("socket.socket")
    notifier = ServiceNotifier("", lambda: 0)
    assert notifier.report_started("up")
    assert notifier.report_reloading()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ("", None)),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000"}, ("/run/n", 30.0)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "500000", "WATCHDOG_PID": "42"}, ("@n", 0.5)),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "500000", "WATCHDOG_PID": "41"}, ("/run/n", None)),
        ({"NOTIFY_SOCKET": "vsock:2:1", "WATCHDOG_USEC": "0"}, ("", None)),
        ({"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "-1"}, ("", None)),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "²"}, ("/run/n", None)),
    ],
)
def test_what_the_manager_wants_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[str, float | None]
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read_service_manager(42) == expected


@dataclass
class Reporting:
    """A channel that says how it is, or cannot."""

    now: ChannelHealth | Exception

    def health(self) -> ChannelHealth:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


def watched(**channels: object) -> WatchedChannels:
    return WatchedChannels(cast("dict[str, Channel]", channels), dict.fromkeys(channels, "running"), {})


@pytest.fixture
async def one() -> AsyncIterator[Manager]:
    """One that listens on a path."""
    with tempfile.TemporaryDirectory() as folder:
        async with listening(f"{folder}/notify") as found:
            yield found


async def test_a_start_is_over_when_every_channel_that_tells_is_heard(one: Manager) -> None:
    deaf, silent = Reporting(ChannelHealth(is_ready=False, note="reconnecting")), object()
    async with open_reporter(ServiceNotifier(one.address, lambda: 0), None, PACE, QUICK) as report:
        report.watch(lambda: watched(discord=deaf, own=silent, telegram=Reporting(ChannelHealth(is_ready=True))))
        await one.until(lambda: one.status == "receiving: own, telegram; not heard: discord (reconnecting)")
        assert not one.times("READY=1")
        deaf.now = ChannelHealth(is_ready=True, note="slow")
        await one.until(lambda: one.times("READY=1"))
    assert one.status == "receiving: discord (slow), own, telegram"


async def test_a_start_is_over_in_time_though_a_platform_is_not(one: Manager) -> None:
    begun = asyncio.get_running_loop().time()
    async with open_reporter(ServiceNotifier(one.address, lambda: 0), None, PACE, QUICK) as report:
        report.watch(lambda: watched(discord=Reporting(ChannelHealth(is_ready=False))))
        await one.until(lambda: one.times("READY=1"))
    assert one.times("READY=1")[0] - begun >= QUICK.start_timeout
    assert one.status == "not heard: discord (not connected yet)"


async def test_a_start_is_over_in_time_though_a_channel_cannot_say_how_it_is(one: Manager) -> None:
    broken = Reporting(ValueError("no"))
    async with open_reporter(ServiceNotifier(one.address, lambda: 0), None, PACE, QUICK) as report:
        report.watch(lambda: watched(own=broken))
        await one.until(lambda: one.times("READY=1"))
        broken.now = ChannelHealth(is_ready=True)
        await one.until(lambda: one.status == "receiving: own")
    assert len(one.times("READY=1")) < 5


async def test_more_time_is_asked_for_until_the_end_has_had_all_it_may_take(one: Manager) -> None:
    async with open_reporter(ServiceNotifier(one.address, lambda: 0), 0.03, PACE, QUICK) as report:
        report.begin_shutdown(0.25)
        await one.until(lambda: len(one.values("EXTEND_TIMEOUT_USEC")) >= 3)
        await asyncio.sleep(0.4)
        asked, alive = [int(value) for value in one.values("EXTEND_TIMEOUT_USEC")], len(one.times("WATCHDOG=1"))
        await one.until(lambda: len(one.times("WATCHDOG=1")) >= alive + 3)
        assert len(one.values("EXTEND_TIMEOUT_USEC")) == len(asked), "a process that never ends is not waited for"
    assert asked == sorted(asked, reverse=True)
    assert asked[0] <= 300_000


async def test_the_longest_end_of_the_manager_is_known() -> None:
    grace = ShutdownTimeouts(turns=30, deliveries=10)
    # Receiving stops, turns finish, are cut off, answers go out, each line closes.
    assert grace.max_seconds(2) == 10 + 30 + 10 + 10 + 2 * 10
