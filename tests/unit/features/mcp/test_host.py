"""The child for servers of others: it starts at first use, ends when idle, dies alone, and leaves no process whatever kills it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from bubbot.features.mcp.child.values import McpFailed
from bubbot.features.mcp.facts import ServerAdded
from bubbot.features.mcp.host import LOGINS, McpHost
from bubbot.features.mcp.secrets import McpSecrets
from bubbot.features.mcp.settings import McpSettings
from tests.mcp.benches import LIGHT, READABLE, ROOT, program, wait_for_end
from tests.mcp.login_server import login_server
from tests.mcp.raw_http import behave, serving
from tests.sandboxes import require

SERVER = program(*LIGHT, name="light")


@asynccontextmanager
async def open_host(home: Path, **settings: object) -> AsyncIterator[McpHost]:
    section = McpSettings.model_validate({"enabled": True, **settings})
    host = McpHost(home, lambda: section, McpSecrets(home))
    try:
        yield host
    finally:
        await host.close()


async def call(host: McpHost, tool: str = "hello") -> str:
    return (await host.call(SERVER, tool, {}, meta={})).text


async def test_it_starts_at_first_use_and_ends_when_idle(tmp_path: Path) -> None:
    async with open_host(tmp_path, idle=0.5) as host:
        assert host.pid is None
        assert await call(host) == "hello"
        pid = host.pid
        assert pid is not None
        await wait_for_end(pid)
        assert host.pid is None
        assert await call(host) == "hello"
        assert host.starts == 2


async def test_a_child_that_dies_fails_what_runs_in_words_and_the_next_call_starts_another(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        await call(host)
        assert host.pid is not None
        waiting = [asyncio.create_task(call(host, "wait")) for _ in range(3)]
        await asyncio.sleep(0.2)
        os.kill(host.pid, signal.SIGKILL)
        for failed in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failed, McpFailed)
            assert "the process that holds the connections ended" in failed.reason
        assert await call(host) == "hello"


async def test_a_call_without_an_answer_costs_itself_alone(tmp_path: Path) -> None:
    async with open_host(tmp_path, timeout=1.0) as host:
        await call(host)
        pid = host.pid
        slow = asyncio.create_task(call(host, "wait"))
        assert await call(host) == "hello"
        with pytest.raises(McpFailed, match=r"timed out|no answer"):
            await slow
        assert await call(host) == "hello"
        assert host.pid == pid


async def test_a_program_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with open_host(tmp_path) as host:
        with pytest.raises(McpFailed, match="ended with status 127"):
            await host.list_tools(program("no-such-program"))
        with pytest.raises(McpFailed, match="its variable KEY is not in this home"):
            await host.list_tools(replace(SERVER, env=("KEY",)))


async def test_an_address_is_reached_through_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ServerAdded("x", (), "http://docs.example/mcp", "auto", False, (), (), (), False, "terminal")
    async with serving(behave) as proxy, open_host(tmp_path) as host:
        monkeypatch.setenv("http_proxy", proxy.url(""))
        assert [tool.name for tool in (await host.list_tools(place)).tools] == ["work"]
        assert {request.path for request in proxy.requests} == {"http://docs.example/mcp"}


async def test_a_server_that_wants_a_login_says_so_before_there_ever_was_one(tmp_path: Path) -> None:
    async with login_server() as server, open_host(tmp_path) as host:
        place = ServerAdded("x", (), server.url, "auto", False, (), (), (), True, "terminal")
        with pytest.raises(McpFailed, match="it wants a login") as failure:
            await host.list_tools(place)
        assert failure.value.needs_login
        assert (tmp_path / LOGINS).stat().st_mode & 0o777 == 0o700


def list_children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def list_left(home: Path) -> list[str]:
    """The processes that have something to do with a home: their command, folder or environment names it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            about = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if str(home).encode() in about or str((entry / "cwd").readlink()).startswith(str(home)):
                found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()[:200]!r}")
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sandbox", ["bwrap", "landlock", "none"])
async def test_what_a_server_leaves_whose_sandbox_is_killed_ends_with_it(
    tmp_path: Path, sandbox: str, request: pytest.FixtureRequest
) -> None:
    require(sandbox, request)
    stubborn = replace(SERVER, argv=(*SERVER.argv, "stubborn"), readable=READABLE)
    async with open_host(tmp_path, sandbox=sandbox) as host:
        for killed in range(3):
            try:
                said = await host.call(stubborn, "hello", {}, meta={})
            except McpFailed as error:  # the child had not heard yet of the end of the one before
                if not killed or str(error) != "it was ended by signal 9":
                    raise
                said = await host.call(stubborn, "hello", {}, meta={})
            assert said.text == "hello"
            (front,) = list_children(host.pid or 0)
            assert len(list_left(tmp_path)) > 1
            os.kill(front, signal.SIGKILL)
            for _ in range(100):
                if not (left := list_left(tmp_path)):
                    break
                await asyncio.sleep(0.05)
            assert left == []


def play(home: Path, sandbox: str, seed: int, acts: int) -> list[str]:
    """Let a process use servers, kill it, and return what is left of it."""
    home.mkdir()
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.mcp.host_child", str(home), sandbox, str(seed), str(acts)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout is not None
    try:
        done = [daemon.stdout.readline() for _ in range(acts)]
        assert all(done), f"it ended by itself after {done}"
        assert list_left(home)
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
    for _ in range(100):
        if not (left := list_left(home)):
            break
        asyncio.run(asyncio.sleep(0.1))
    return left


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sandbox", ["bwrap", "landlock", "none"])
def test_starts_cancels_and_kills_leave_no_process(
    tmp_path: Path, sandbox: str, request: pytest.FixtureRequest
) -> None:
    require(sandbox, request)
    assert play(tmp_path / sandbox, sandbox, 0, 5) == []


@pytest.mark.proof
@pytest.mark.parametrize("sandbox", ["bwrap", "landlock", "none"])
def test_two_hundred_starts_cancels_and_kills_leave_no_process(
    tmp_path: Path, sandbox: str, request: pytest.FixtureRequest
) -> None:
    require(sandbox, request)
    for seed in range(20):
        assert play(tmp_path / f"{sandbox}{seed}", sandbox, 100 + seed, 10) == []
