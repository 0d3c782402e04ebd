"""A command beside another process: done here, done by the bot, or refused."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbot.errors import HomeLocked
from bubbot.home import Home, WriterLock
from bubbot.server.client import DaemonNotRunning, run_on_home

WAIT = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def lock(home: Home, **held: object) -> str:
    """What a command does first; `held` is what the lock file says while it is locked."""
    if held:
        home.lock_file.write_text(json.dumps(held))
    raise HomeLocked("locked")


async def answer(address: str) -> str:
    """A bot that is there."""
    return f"by the bot at {address}"


async def nobody(_address: str) -> str:
    """A bot that is not."""
    raise DaemonNotRunning


async def told(home: Home, here: Callable[[], object], there: Callable[[str], object] = answer) -> object:
    """What comes of it, in time."""
    async with asyncio.timeout(WAIT):
        return await run_on_home(home, here, there)  # type: ignore[arg-type]


async def test_with_the_lock_it_is_done_here(home: Home) -> None:
    async def here() -> str:
        return "here"

    assert await told(home, here) == "here"


async def test_beside_a_bot_it_is_done_there(home: Home) -> None:
    assert await told(home, lambda: lock(home, pid=7, address="/a")) == "by the bot at /a"


@pytest.mark.parametrize("address", [None, "", 7])
async def test_a_holder_without_an_address_is_told_at_once(home: Home, address: object) -> None:
    calls = 0

    async def here() -> str:
        nonlocal calls
        calls += 1
        return await lock(home, pid=7, address=address)

    with pytest.raises(HomeLocked):
        await told(home, here)
    assert calls == 1


async def test_a_holder_that_is_beginning_or_ending_is_waited_for(home: Home) -> None:
    """The file is empty, then names an address where nobody is yet, then the lock is free."""
    said = iter(["", json.dumps({"pid": 7, "address": "/a"})])

    async def here() -> str:
        if (text := next(said, None)) is None:
            return "here"
        home.lock_file.write_text(text)
        raise HomeLocked("locked")

    assert await told(home, here, nobody) == "here"


@pytest.mark.parametrize(
    ("held", "patience"),
    [({}, "LOCK_HOLDER_TIMEOUT_SECONDS"), ({"pid": 7, "address": "/a"}, "TRANSITION_TIMEOUT_SECONDS")],
)
async def test_but_not_for_ever(
    home: Home, monkeypatch: pytest.MonkeyPatch, held: dict[str, object], patience: str
) -> None:
    monkeypatch.setattr(f"bubbot.server.client.{patience}", 0.1)
    with pytest.raises(HomeLocked):
        await told(home, lambda: lock(home, **held), nobody)


async def test_a_socket_that_is_gone_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.server.client.TRANSITION_TIMEOUT_SECONDS", 0.1)
    path = home.path / "s"
    with pytest.raises(HomeLocked, match=f"locked Its control socket {path} does not exist.*restart the bot"):
        await told(home, lambda: lock(home, pid=7, address=str(path)), nobody)
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(path))
        with pytest.raises(HomeLocked, match=r"^locked$"):
            await told(home, lambda: lock(home, pid=7, address=str(path)), nobody)


def test_the_lock_file_names_the_address(home: Home) -> None:
    with WriterLock(home, "/run/x.sock"):
        assert home.read_lock_holder()[1] == "/run/x.sock"
        assert home.read_lock_holder()[0] == home.holder_pid()
    assert home.read_lock_holder() == (None, None)
    for text in ("", "[]", "{", '{"pid": true, "address": 7}', '{"pid": -1, "address": ""}'):
        home.lock_file.write_text(text)
        assert home.read_lock_holder() == (None, None)
