"""The commands of docs/howto/many-workers.md, typed on two machines: network namespaces with a cable between them and a disk in common."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.e2e.platforms import OnTelegram, counted
from tests.fakes.botapi.server import Server
from tests.postgres_server import SUPERUSER, OwnServer, own_server

PAGE = ROOT / "docs" / "howto" / "many-workers.md"
ADDRESSES = {"one": "10.77.0.1", "two": "10.77.0.2"}
WAIT = 90.0
_BLOCK = re.compile(r"<!-- on: (\w+) -->\n```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


@dataclass
class Machine:
    """A namespace with a home folder. `prefix` enters the namespace; that of the tests needs none.

    Attributes:
        running: the bot, once the page has started it.
    """

    name: str
    home: Path
    env: dict[str, str]
    prefix: tuple[str, ...] = ()
    running: subprocess.Popen[bytes] | None = None

    def type(self, commands: str) -> str:
        """Run commands, and return what they print; the last one may be `bubbot run`, which goes on."""
        lines = commands.splitlines()
        if lines[-1] == "bubbot run":
            with (self.home / "log").open("ab") as log:
                before = "".join(f"{line}\n" for line in lines[:-1])
                if before:
                    self.type(before)
                self.running = subprocess.Popen(
                    [*self.prefix, "bash", "-c", "exec bubbot run"],
                    env=self.env,
                    cwd=self.home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            return ""
        done = subprocess.run(
            [*self.prefix, "bash", "-euc", commands],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, f"on {self.name}: {commands}\n{done.stdout}{done.stderr}{self.log}"
        return done.stdout

    @property
    def log(self) -> str:
        """What its bot has logged."""
        return (self.home / "log").read_text() if (self.home / "log").exists() else ""

    async def runs(self) -> None:
        """Wait until its bot runs."""
        async with asyncio.timeout(WAIT):
            while "action=run.started" not in self.log:
                assert self.running is not None
                assert self.running.poll() is None, self.log
                await asyncio.sleep(0.1)

    def end(self, number: int = signal.SIGKILL) -> int:
        """End its bot with a signal; return the exit code."""
        assert self.running is not None
        self.running.send_signal(number)
        return self.running.wait(WAIT)


@contextmanager
def cable() -> Iterator[str]:
    """Connect a new namespace with this one; yield its name."""
    name = f"bubbot{os.getpid()}"
    here, there = f"bb{os.getpid()}a", f"bb{os.getpid()}b"

    def ip(words: str) -> None:
        subprocess.run(["ip", *shlex.split(words)], check=True, capture_output=True)

    with ExitStack() as stack:
        try:
            ip(f"netns add {name}")
            stack.callback(ip, f"netns delete {name}")
            ip(f"link add {here} type veth peer name {there} netns {name}")
            stack.callback(ip, f"link delete {here}")
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("network namespaces need the rights of root")
        ip(f"address add {ADDRESSES['one']}/24 dev {here}")
        ip(f"link set {here} up")
        ip(f"-n {name} address add {ADDRESSES['two']}/24 dev {there}")
        ip(f"-n {name} link set {there} up")
        yield name


@asynccontextmanager
async def forwarded(port: int) -> AsyncIterator[str]:
    """Let the other machine reach a port of this one's loopback interface; yield the address."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the other side has gone
        finally:
            writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(forward, ADDRESSES["one"], 0)
    try:
        yield f"{ADDRESSES['one']}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def machines(folder: Path, namespace: str, server: OwnServer) -> dict[str, Machine]:
    """The server and both machines. Copies between them go over the disk that they have in common."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "scp").write_text(f'#!/bin/sh\nexec cp "{folder}/one/${{2#*:}}" "$3"\n')
    (tools / "scp").chmod(0o755)
    (tools / "bubbot").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bubbot "$@"\n')
    (tools / "bubbot").chmod(0o755)
    found = {}
    for name in ("server", *ADDRESSES):
        (folder / name).mkdir()
        env = {
            "PATH": f"{tools}:{server.programs}:{os.environ['PATH']}",
            "HOME": str(folder / name),
            "PYTHONPATH": str(ROOT),
        }
        env |= {"LANG": "C.UTF-8", "BUBBOT_MODEL__NAME": "scripted", "BUBBOT_STORE__LEASE": "3"}
        if name == "server":
            env |= {"PGHOST": str(server.folder), "PGUSER": SUPERUSER, "PGDATABASE": "postgres"}
        found[name] = Machine(name, folder / name, env, ("ip", "netns", "exec", namespace) if name == "two" else ())
    return found


def steps() -> list[tuple[str, str, str]]:
    """The page's commands, each with its machine and what it shows."""
    return [(where, commands, shown or "") for where, commands, shown in _BLOCK.findall(PAGE.read_text("utf-8"))]


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_every_command_of_the_page_on_two_machines(tmp_path: Path) -> None:
    with ExitStack() as stack:
        namespace = stack.enter_context(cable())
        server = stack.enter_context(own_server(f"listen_addresses={ADDRESSES['one']}"))
        async with (
            Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as telegram,
            forwarded(telegram.port) as there,
        ):
            platform = OnTelegram(telegram)
            ada = platform.person("Ada")
            found = machines(tmp_path, namespace, server)
            for machine in found.values():
                stack.callback(lambda machine=machine: machine.running and machine.end())  # type: ignore[misc]
            write_config(found["one"], telegram, there, ada)
            found["one"].type("bubbot ask 'Remember the milk.'")
            for where, commands, shown in steps():
                if "bubbot workers" in commands:
                    await asyncio.gather(found["one"].runs(), found["two"].runs())
                printed = await asyncio.to_thread(found[where].type, commands)
                if shown:
                    assert re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed), printed
            assert "Remember the milk." in found["two"].type("bubbot tape show stdin:default")
            platform.say(ada, "one")
            await platform.until(lambda: platform.answers(ada), WAIT)
            asking = "one" if "telegram connected" in found["one"].log else "two"
            other = {"one": "two", "two": "one"}[asking]
            found[asking].end()
            platform.say(ada, "two")
            # The first answer may come again, with its mark: the kill may come before its receipt.
            await platform.until(lambda: set(counted(platform, ada)) == {"You said: one", "You said: two"}, WAIT)
            assert found[other].end(signal.SIGTERM) == 0


def write_config(machine: Machine, telegram: Server, address: str, owner: str) -> None:
    """Write the configuration of a bot on Telegram."""
    home = machine.home / ".local/share/bubbot"
    home.mkdir(mode=0o700, parents=True)
    base = telegram.base_url.replace(f"127.0.0.1:{telegram.port}", address)
    (home / "config.toml").write_text(
        f'[channels.telegram]\ntoken = "{telegram.bot.token}"\nbase_url = "{base}"\nowners = ["{owner}"]\n'
        "debounce = 0\npoll_timeout = 1\n"
    )
