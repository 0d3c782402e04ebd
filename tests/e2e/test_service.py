"""A real daemon and the service manager that started it: what it is told, and when."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from bubbot.ops.service.render import render_unit
from tests.e2e.daemon import configure, configured, running, started
from tests.e2e.forked import ROOT
from tests.e2e.manager import Manager, listening
from tests.e2e.platforms import OnTelegram
from tests.e2e.stuck_daemon import STUCK
from tests.fakes.botapi.errors import Refuse
from tests.fakes.botapi.server import Server
from tests.fakes.platform.faults import Wedge

READY = "READY=1"


@pytest.fixture
async def manager() -> AsyncIterator[Manager]:
    """One that listens on a path."""
    # Not in pytest's folder: the path of a socket may have 107 bytes.
    with tempfile.TemporaryDirectory() as folder:
        async with listening(Path(folder) / "notify") as found:
            yield found


async def test_it_is_ready_when_polling_succeeds_and_says_when_it_goes_deaf_and_hears_again(
    tmp_path: Path, manager: Manager
) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        configured(home, server)
        server.fail("getUpdates", Refuse(500, "Internal Server Error"), times=1_000_000)
        async with running(home, env={"NOTIFY_SOCKET": manager.address}):
            await manager.until(lambda: "not heard: telegram (500" in manager.status)
            assert server.calls("getMe"), "it was connected, and that is not enough"
            assert not manager.times(READY)
            server.faults.clear()
            await manager.until(lambda: manager.times(READY))
            assert manager.status == "receiving: telegram"
            server.fail("getUpdates", Refuse(502, "Bad Gateway"))
            server.private(server.user("Ada")).say("which ends the poll under way")
            await manager.until(lambda: "not heard: telegram (502" in manager.status)
            await manager.until(lambda: manager.status == "receiving: telegram")
            before = len(manager.told)
            await asyncio.sleep(0.6)  # two looks
            assert len(manager.told) == before, "what has not changed is not told again"
            assert len(manager.times(READY)) == 1
    assert manager.times("STOPPING=1")


async def test_a_poll_that_hangs_is_not_taken_for_one_that_hears(tmp_path: Path, manager: Manager) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        configured(home, server)
        server.fail("getUpdates", Wedge(), times=1_000_000)
        daemon = await started(home, env={"NOTIFY_SOCKET": manager.address})
        await server.until(lambda: server.calls("getUpdates"))
        await manager.until(lambda: "not heard: telegram (connected, nothing received yet)" in manager.status)
        assert not manager.times(READY)
        assert await daemon.end() == 0, daemon.errors
        assert not manager.times(READY)
        assert manager.times("STOPPING=1")


async def test_a_refused_channel_is_named_and_keeps_nobody_waiting(tmp_path: Path, manager: Manager) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server, Server(limits=None) as other:
        tables = {
            "telegram": OnTelegram(server).table(),
            "second": {"kind": "telegram", **OnTelegram(other).table(), "token": "4242:not-the-token-of-a-bot"},
        }
        configure(home, tables)
        async with running(home, env={"NOTIFY_SOCKET": manager.address}):
            await manager.until(lambda: manager.times(READY))
            await manager.until(lambda: "receiving: telegram; ended: second ([channels.second] token" in manager.status)
            assert "not-the-token" not in json.dumps([one.lines for one in manager.told])


async def test_signs_of_life_come_from_the_loop_and_stop_with_it(tmp_path: Path, manager: Manager) -> None:
    home = tmp_path / "home"
    configure(home, {})
    env = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "300000"}
    daemon = await started(home, target="tests.e2e.stuck_daemon:main", env=env)
    await manager.until(lambda: manager.times(READY) and len(manager.times("WATCHDOG=1")) >= 5)
    pings = manager.times("WATCHDOG=1")
    pauses = [after - before for before, after in pairwise(pings)]
    assert sorted(pauses)[len(pauses) // 2] > 0.05, "a third of what was asked, or more on a busy machine"
    daemon.process.send_signal(signal.SIGUSR1)
    while STUCK not in daemon.errors:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    for _ in range(20):  # a step of our loop takes one of those that were sent before
        await asyncio.sleep(0)
    before = len(manager.told)
    await asyncio.sleep(0.5)  # longer than the limit: systemd would kill it now
    assert len(manager.told) == before
    await daemon.kill()


async def test_signs_of_life_meant_for_another_process_are_not_given(tmp_path: Path, manager: Manager) -> None:
    home = tmp_path / "home"
    configure(home, {})
    env = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}
    async with running(home, env=env):
        await manager.until(lambda: manager.times(READY))
        assert manager.status == "no channels; commands of the shell are answered"
        await asyncio.sleep(0.1)
    assert not manager.times("WATCHDOG=1")


async def test_a_turn_that_takes_its_time_at_the_end_is_given_it(tmp_path: Path, manager: Manager) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.private(ada)
        configured(home, server, {"default": [{"text": "late", "delay": 0.7}]}, owners=[ada.id])
        daemon = await started(home, env={"NOTIFY_SOCKET": manager.address})
        await manager.until(lambda: manager.times(READY))
        room.say("wait for me")
        await server.until(lambda: server.calls("sendChatAction"))
        daemon.process.terminate()
        await manager.until(lambda: manager.values("EXTEND_TIMEOUT_USEC"))
        assert manager.times("STOPPING=1")
        assert int(manager.values("EXTEND_TIMEOUT_USEC")[0]) == 20_000_000
        assert manager.status.startswith("ending")
        assert await daemon.ended() == 0, daemon.errors
        assert "late" in server.transcript(times=False)
        assert manager.status.startswith("ending"), "that nothing is received any more is no news"


async def test_the_command_of_the_unit_starts_a_bot(tmp_path: Path, manager: Manager) -> None:
    home = tmp_path / "my home 100%"
    configure(home, {})
    unit = render_unit("bubbot-user.service", python=Path(sys.executable), home=home, config=home / "config.toml")
    (line,) = re.findall("^ExecStart=:(.*)$", unit, re.MULTILINE)
    command = [word.replace("%%", "%") for word in shlex.split(line)]
    env = {"NOTIFY_SOCKET": manager.address, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
    try:
        await manager.until(lambda: manager.times(READY))
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    assert manager.times("STOPPING=1")


async def test_a_service_manager_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        configured(home, server)
        env = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "50000"}
        async with running(home, env=env) as daemon:
            await server.until(lambda: server.calls("getUpdates"), 60)
        assert daemon.errors.count("action=service.untold") == 1
