"""`bubbot run`: the daemon, with every configured channel."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from bubbot.cli.quarantine import read_quarantine
from bubbot.cli.run.control import control
from bubbot.cli.run.health import health
from bubbot.cli.run.service import reported, watched
from bubbot.cli.setup import CommandSetup, setup
from bubbot.control.address import socket_path
from bubbot.errors import ChannelRefused, ConfigError, StoreError, StoreFull
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.models.lazy import LazyModel
from bubbot.ops.service.report import ServiceReporter
from bubbot.settings.environment import runtime_folder
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.wiring.daemon import Daemon, open_daemon
from bubbot.wiring.reload import Reloader

log = logging.getLogger(__name__)
START_GRACE_SECONDS = 5.0
"""Seconds that a bot told to end before it has started has to finish the start."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Run the bot in the foreground with every channel of config.toml, until SIGTERM or Ctrl-C: then it stops "
        "receiving, finishes the turns under way, and delivers. A second signal ends it at once; nothing is lost. "
        "SIGHUP, or `bubbot reload`, takes over changed settings."
    )


def run(args: argparse.Namespace) -> int:
    """Runs until a signal; 6 where every channel was refused, 130 after a second signal."""
    asked = PendingSignals()
    try:
        asyncio.run(_run(setup(args, quiet=False), asked))
    except asyncio.CancelledError:  # by a signal: `_on_signals`
        if asked.started or asked.at_once:
            raise KeyboardInterrupt from None
    return 0


async def _run(made: CommandSetup, asked: PendingSignals) -> None:
    _on_signals(asked)
    if made.settings.missing_secrets and await read_quarantine(made) is None:
        made.settings.require_secrets()  # in quarantine no channel is started, so that nothing needs them yet
    made.home.ensure()
    path = socket_path(made.home.path, runtime_folder(), Path(gettempdir()))
    try:
        async with reported() as report, open_daemon(made.settings, made.home, address=str(path)) as daemon:
            asked.store = daemon.app.opened
            await _serve(daemon, made, path, asked, report)
    except StoreFull as error:
        if not asked.ending.is_set():
            raise
        log.warning(
            "ended without room for the last writes (%s); the next start goes on with what is open",
            error,
            extra={"action": "end.full"},
        )


@dataclass
class PendingSignals:
    """What signals have asked for. `started`: whether the bot runs, and looks at that by itself; `store`: what it
    writes to, as soon as that is open; `at_once`: whether there was a second signal."""

    started: bool = False
    store: SqliteStore | None = None
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: bool = False
    reload: asyncio.Event = field(default_factory=asyncio.Event)


async def _serve(
    daemon: Daemon, made: CommandSetup, path: Path, asked: PendingSignals, report: ServiceReporter
) -> None:
    app, manager, ending = daemon.app, daemon.manager, asked.ending
    left_open = await app.recover_all()
    read = made.read if daemon.quarantine is None else made.read_without_secrets
    reloader = Reloader(daemon, made.settings, read)
    await reloader.begin()
    async with (
        control(daemon, reloader, path) as server,
        _web_door(daemon, made),
        health(daemon, made),
    ):
        manager.start(app.group.create_task)
        report.watch(partial(watched, daemon))
        beside = [
            daemon.keep_time(),
            daemon.tell_daily(made.settings.bot.timezone),
            app.group.create_task(_reload_when(asked.reload, reloader, report)),
        ]
        names = ", ".join(name for name in app.lines if name != daemon.remote.name)
        if not names:
            log.warning("no channel is set up: `bubbot init` asks for a token", extra={"action": "run.alone"})
        asked.started = True
        log.info("running; channels: %s", names or "none", extra={"action": "run.started", "left_open": left_open})
        if names and isinstance(app.model, LazyModel):
            app.model.warm()
        await _first(ending.wait(), manager.wait(beside=daemon.remote.name))
        log.info("ending", extra={"action": "run.ending"})
        app.opened.stop_waiting_for_room()
        server.quiesce()
        for task in beside:
            task.cancel()
        grace = ShutdownTimeouts()
        report.stopping(grace.longest(len(app.lines)) + grace.turns)
        await reloader.end(grace.turns)
        await manager.end(grace)
    if not ending.is_set() and manager.refusals:
        raise ChannelRefused("; ".join(manager.refusals.values()))


@asynccontextmanager
async def _web_door(daemon: Daemon, made: CommandSetup) -> AsyncIterator[None]:
    """Lets platforms in that call; the HTTP library, a third of the start-up, is loaded only where one does."""
    if not daemon.webhooks():
        yield
        return
    web: Any = import_module("bubbot.gateway.webhooks")
    async with web.web_door(daemon.webhooks, web.WebSettings(made.settings.http.host, made.settings.http.port)):
        daemon.called = True
        yield


async def _reload_when(asked: asyncio.Event, reloader: Reloader, report: ServiceReporter) -> None:
    """Takes over changed settings whenever somebody asks. What cannot be used is logged and left; the bot goes on."""
    while True:
        await asked.wait()
        asked.clear()
        with report.reloading(), suppress(ConfigError):  # which was logged
            try:
                await reloader.reload("signal")
            except StoreError as error:
                log.error("the reload failed: %s", error, extra={"action": "config.failed"})  # noqa: TRY400


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when one of them does."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _on_signals(asked: PendingSignals) -> None:
    """The first signal ends in an orderly way, the second at once; so does the first if the start still waits after
    some seconds, for room on the disk for instance. SIGHUP asks for a reload, but where the bot was started in a
    terminal, which is gone then."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        if asked.ending.is_set() and task is not None:
            asked.at_once = True
            loop.remove_signal_handler(number)
            task.cancel()
        elif not asked.started:
            loop.call_later(START_GRACE_SECONDS, give_up_start)
        asked.ending.set()

    def give_up_start() -> None:
        if asked.started:
            return
        if asked.store is not None:  # which then says that it is full, or lets the start finish
            asked.store.stop_waiting_for_room()
        elif task is not None:
            task.cancel()

    in_terminal = sys.stdin is not None and sys.stdin.isatty()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(end, number))
    loop.add_signal_handler(signal.SIGHUP, partial(end, signal.SIGHUP) if in_terminal else asked.reload.set)
