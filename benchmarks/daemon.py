"""The daemon: start-up, idle memory, turns a second of many chats, and how long the event loop stands still.

    python -m benchmarks.daemon [--chats 100] [--messages 10] [--runs 3]

Everything runs on this machine: a Bot API server of the tests on loopback for the start-up, a channel within the process
for the turns, so that no client library is measured. Each figure stands beside a baseline of the same run: Python that
does nothing, and SQLite with one durable transaction for each turn.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.app.bot import PortWrappers, open_bot
from bubbot.app.channel_factory import ChannelFactory
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.home import Home
from bubbot.ports.channel import Inbound, MessagePart, Outbound, Receipt, Receive, Sender
from bubbot.runtime.queue import QueuePolicy
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e.daemon import configured, started
from tests.fakes.botapi.server import Server

TICK = 0.005


async def start_up(folder: Path) -> tuple[float, float]:
    """Seconds from the start of the process to its first poll; megabytes it holds two seconds later."""
    async with Server(limits=None) as server:
        configured(folder, server, owners=[1], poll_timeout=5)
        begun = time.perf_counter()
        daemon = await started(folder)
        await server.until(lambda: server.calls("getUpdates"), 60)
        took = time.perf_counter() - begun
        await asyncio.sleep(2)
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        held = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        await daemon.end()
    return took, held / 1024


def python_that_does_nothing() -> float:
    """Seconds."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begun


@dataclass
class Flood:
    """A channel on which every chat says its messages as fast as they are accepted."""

    chats: int
    messages: int
    name: str = "flood"
    sent: int = 0
    all_sent: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, receive: Receive) -> None:
        """Every chat at once."""
        await asyncio.gather(*(self._talk(receive, chat) for chat in range(self.chats)))

    async def _talk(self, receive: Receive, chat: int) -> None:
        for number in range(self.messages):
            text, at = f"message {number}", "2026-11-22T10:00:00+00:00"
            await receive(Inbound(self.name, f"{chat}-{number}", str(chat), Sender("1"), text, at))

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Whole."""
        return [MessagePart(outbound.chat, outbound.text)]

    async def send(self, part: MessagePart) -> Receipt:
        """Counts."""
        self.sent += 1
        if self.sent == self.chats * self.messages:
            self.all_sent.set()
        return Receipt(str(self.sent))


async def turns(folder: Path, chats: int, messages: int) -> tuple[float, list[float]]:
    """Turns a second, from accepted to delivered; the event loop's delays in seconds."""
    flood, lags = Flood(chats, messages), list[float]()

    async def lines(maker: ChannelFactory) -> list[ChannelRuntime]:
        rules = ChannelPolicy(QueuePolicy(), queue_limit=None, deliver_in_background=True)
        return [await maker.build_runtime(flood, rules)]

    async def ticking() -> None:
        while True:
            due = time.perf_counter() + TICK
            await asyncio.sleep(TICK)
            lags.append(time.perf_counter() - due)

    settings = Settings(model=ModelSettings(name="scripted"))
    async with open_bot(settings, Home(folder), lines, PortWrappers()) as app:
        ticker = asyncio.create_task(ticking())
        begun = time.perf_counter()
        await flood.run(app.channel_runtimes["flood"].gate.receive)
        await flood.all_sent.wait()
        took = time.perf_counter() - begun
        ticker.cancel()
        await app.runtime.wait_idle()
        await app.channel_runtimes["flood"].deliverer.wait_until_idle()
    return chats * messages / took, sorted(lags)


def raw_sqlite(folder: Path, count: int) -> float:
    """Transactions a second, one durable commit and one row each: what a turn costs at the very least without groups."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
    begun = time.perf_counter()
    for number in range(count):
        connection.execute("INSERT INTO t (body) VALUES (?)", (f"message {number} " * 20,))
    took = time.perf_counter() - begun
    connection.close()
    return count / took


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--chats", type=int, default=100)
    parser.add_argument("--messages", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    starts, nothing, rates, raw, worst, late = [], [], [], [], [], []
    held = 0.0
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            nothing.append(python_that_does_nothing())
            took, held = asyncio.run(start_up(folder / "home"))
            starts.append(took)
            raw.append(raw_sqlite(folder, given.chats * given.messages))
            rate, lags = asyncio.run(turns(folder / "flood", given.chats, given.messages))
            rates.append(rate)
            worst.append(lags[-1])
            late.append(lags[int(len(lags) * 0.99)])
    start, idle = statistics.median(starts), statistics.median(nothing)
    rate, base = statistics.median(rates), statistics.median(raw)
    print(
        f"start-up to the first poll: {start:.2f} s ({start / idle:.0f} times Python that does nothing, {idle:.3f} s)"
    )
    print(f"idle, model library not loaded: {held:.0f} MB")
    print(f"turns a second, {given.chats} chats: {rate:.0f} ({rate / base:.2f} of raw SQLite commits, {base:.0f})")
    print(
        f"event loop late: {statistics.median(late) * 1000:.0f} ms at the 99th percentile, {max(worst) * 1000:.0f} at worst"
    )


if __name__ == "__main__":
    main()
