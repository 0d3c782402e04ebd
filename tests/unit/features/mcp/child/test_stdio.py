"""Servers that we start: what one does wrong costs its own call, in words and in bounded time, and its end leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from bubbot.features.mcp.child import connection as connections
from bubbot.features.mcp.child import limits, stdio
from bubbot.features.mcp.child.values import McpFailed, ServerPlace
from bubbot.features.shell.settings import ShellSettings
from bubbot.sandbox.sandbox import REAP_SECONDS, ProgramLimits, choose_sandbox, make_workspace, program_environment
from tests import sandboxes
from tests.docs.pages import ROOT
from tests.mcp.places import HOSTILE, WAIT, call, connected, hostile, sdk_server

PROGRAM_LIMITS = ProgramLimits(seconds=60, memory_bytes=2**31, processes=32)


async def test_a_server_of_the_sdk_speaks_the_newest_version_and_gets_the_metadata() -> None:
    async with connected(sdk_server()) as connection:
        tools = {tool.name: tool for tool in await connection.list_tools()}
        added = await call(connection, "add", arguments={"a": 1, "b": 2})
        echoed = await call(connection, "echo_meta", meta={"traceparent": "00-1", "bubbot/key": "k"})

    assert (connection.protocol_version, connection.server_name) == ("2026-07-28", "probe 1.2.3")
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].schema["required"] == ["a", "b"]
    assert (added.text, added.is_error) == ("3", False)
    assert "'traceparent': '00-1'" in echoed.text
    assert "'bubbot/key': 'k'" in echoed.text


@pytest.mark.parametrize("name", ["work", "noisy", "talkative", "strict_old"])
async def test_an_old_server_works_even_one_that_writes_more_than_messages(name: str) -> None:
    async with connected(hostile(name)) as connection:
        reply = await call(connection, meta={"key": "k1"})

    assert connection.protocol_version == "2025-11-25"
    assert json.loads(reply.text) == {"key": "k1"}


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("/nowhere/server",), "/nowhere/server cannot be started: No such file or directory"),
        (("/bin/sh", "-c", "echo 'no key set' >&2; exit 3"), "it ended with status 3: no key set"),
        (("/bin/sh", "-c", "kill -9 $$"), "it was ended by signal 9"),
        (("/bin/a\0b",), "/bin/a\0b cannot be started: embedded null byte"),
    ],
)
async def test_a_server_that_does_not_start_says_why(argv: tuple[str, ...], reason: str) -> None:
    with pytest.raises(McpFailed) as failure:
        async with connected(ServerPlace("x", argv=argv, env={"PATH": os.environ["PATH"]})):
            pass

    assert failure.value.reason == reason
    assert failure.value.is_gone


async def test_a_mute_server_costs_the_timeout_of_the_connection_and_is_ended() -> None:
    before = children()
    with pytest.raises(McpFailed, match="it did not answer in time"):
        async with connected(hostile("mute"), timeout=0.5):
            pass

    assert children() == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "reason", "is_gone"),
    [
        ("long_line", "it sent a message of more than 4.0 MB", True),
        ("broken", r'it sent a line that is not a message: {"jsonrpc": "2.0", "id": 1, "result"', True),
        ("dies", "it ended with status 7: out of luck", True),
        ("killed", "it was ended by signal 9", True),
        ("closes", "it closed its output", True),
        ("flood", "it sent 5000 messages that nobody asked for", True),
        ("liar", "tool work: no answer in time", False),
        ("shapeless", "its answer is not as the protocol says", False),
    ],
)
async def test_what_a_server_does_wrong_in_a_call_fails_this_call_in_words(
    name: str, reason: str, *, is_gone: bool
) -> None:
    async with connected(hostile(name)) as connection:
        with pytest.raises(McpFailed, match=re.escape(reason)) as failure:
            await call(connection, timeout=1.0 if name == "liar" else WAIT)

        assert (failure.value.is_gone, connection.is_lost) == (is_gone, is_gone)
        if is_gone:
            with pytest.raises(McpFailed, match=re.escape(reason)):
                await connection.list_tools()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("many_tools", "it offers more than 2000 tools"),
        ("cyclic", "its list of tools never ends: a page leads to an earlier one"),
        ("endless", "its list of tools has more than 200 pages"),
        ("twice", "it offers two tools with the name same"),
        ("deep", "a schema of its tool deep is more than 64 values deep"),
    ],
)
async def test_a_list_of_tools_without_measure_is_refused_in_words(name: str, reason: str) -> None:
    async with connected(hostile(name)) as connection:
        with pytest.raises(McpFailed, match=re.escape(reason)):
            await connection.list_tools()


async def test_a_long_text_is_cut_and_says_so() -> None:
    async with connected(hostile("long_text")) as connection:
        reply = await call(connection)

    text, _, note = reply.text.rpartition("\n")
    assert set(text) == {"ä"}
    assert len(text.encode()) == limits.MAX_TEXT_BYTES
    assert note == "… [2000000 bytes left out]"


async def test_a_pattern_that_takes_for_ever_is_never_compared() -> None:
    async with connected(hostile("slow_pattern")) as connection:
        await connection.list_tools()
        reply = await call(connection)

    assert reply.structured == {"a": "a" * 60 + "!"}


async def test_sampling_and_roots_are_refused_in_terms_that_the_server_understands() -> None:
    async with connected(hostile("wants")) as connection:
        reply = await call(connection)

    assert json.loads(reply.text) == [-32600, -32600, -32601]


async def test_a_server_that_never_leaves_is_ended_in_bounded_time() -> None:
    loop, before = asyncio.get_running_loop(), children()
    async with connected(hostile("deaf")):
        (server,) = children() - before
        began = loop.time()

    assert loop.time() - began < 2 * stdio.LEAVE_SECONDS + REAP_SECONDS
    assert not is_running(server)


async def test_a_cancelled_call_ends_and_the_connection_goes_on() -> None:
    async with connected(hostile("liar")) as connection:
        calling = asyncio.create_task(call(connection))
        await asyncio.sleep(0.1)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

        assert [tool.name for tool in await connection.list_tools()] == ["work"]


async def test_a_hanging_call_does_not_hold_up_another_one() -> None:
    async with connected(sdk_server()) as connection:
        hanging = asyncio.create_task(call(connection, "hang"))
        await asyncio.sleep(0.1)

        assert (await call(connection, "add", arguments={"a": 2, "b": 2})).text == "4"
        hanging.cancel()


@pytest.mark.parametrize("kind", ["bwrap", "landlock", "none"])
async def test_all_that_a_server_started_is_gone_with_the_connection(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sandboxes.require(kind, request)
    place, mark = await confine(kind, tmp_path)
    async with connected(place):
        assert len(marked(mark)) >= 3

    assert marked(mark) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["bwrap", "landlock", "none"])
async def test_a_sigkill_of_our_own_process_leaves_no_server(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sandboxes.require(kind, request)
    place, mark = await confine(kind, tmp_path)
    ours = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.mcp.holder", msgspec.json.encode(place).decode()),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert ours.stdout is not None
    async with asyncio.timeout(WAIT):
        assert await ours.stdout.readline() == b"connected\n"
    assert len(marked(mark)) >= 3

    ours.kill()
    await ours.wait()

    async with asyncio.timeout(WAIT):
        while marked(mark):  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [pytest.param(3), pytest.param(200, marks=pytest.mark.proof)])
async def test_starts_cancels_and_ends_leave_no_process(number: int) -> None:
    before = children()
    for turn in range(number):
        name = ("work", "deaf", "mute", "dies")[turn % 4] if turn % 20 < 4 else "work"
        connecting = asyncio.create_task(hold(name))
        await asyncio.sleep(turn % 7 * 0.01)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)

        assert children() == before


async def hold(name: str) -> None:
    """Connect and stay connected."""
    async with connected(hostile(name)):
        await asyncio.Event().wait()


async def confine(kind: str, folder: Path) -> tuple[ServerPlace, str]:
    """Return the place of a server with children, in a sandbox of the shell's kind, and what its command lines have in common."""
    workspace = folder / "workspace"
    make_workspace(workspace)
    mark = f"family-{os.getpid()}-{kind}"
    (workspace / f"{mark}.py").write_text(
        HOSTILE.read_text().replace('"import time; time.sleep(600)"', f'"import time; time.sleep(600) # {mark}"')
    )
    sandbox = await choose_sandbox(ShellSettings(sandbox=kind))  # type: ignore[arg-type]
    program: Sequence[str] = (
        "/usr/bin/env",
        "python3",
        "-I",
        "-S",
        str(workspace / f"{mark}.py"),
        "family",
        str(workspace / "pids"),
    )
    argv = sandbox.build_command(program, workspace, PROGRAM_LIMITS)
    return ServerPlace("x", argv=tuple(argv), env=program_environment(workspace), folder=str(workspace)), mark


def marked(mark: str) -> list[int]:
    """Return all processes, in any namespace, whose command line has a mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if mark.encode() in line and not is_zombie:
            found.append(int(folder.name))
    return found


def children() -> set[int]:
    """Return the children of this process."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(word) for word in text.split()}


def is_running(pid: int) -> bool:
    """Return true if there is such a process."""
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return True


def test_the_connection_knows_no_private_name_of_the_sdk() -> None:
    for module in (connections, stdio):
        assert module.__file__ is not None
        assert not re.search(
            r"(session|client|provider|transport)\._[a-z]", Path(module.__file__).read_text().replace("self._", "")
        )
