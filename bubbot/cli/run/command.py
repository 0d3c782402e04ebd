"""`bubbot run`: the daemon, with every configured channel."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from msgspec import structs

from bubbot.app.bot import Bot
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.reload import Reloader
from bubbot.cli.config import open_editor
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import terminal_columns
from bubbot.cli.quarantine import read_quarantine
from bubbot.cli.run.greeting import greet
from bubbot.cli.run.server import serve
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.concurrency import Backoff, supervise
from bubbot.errors import ChannelRefused, ConfigError, StoreError, StoreFull
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.ops.configuration import ConfigEditor
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ops.service.report import ServiceReporter, ServiceTiming, WatchedChannels, open_reporter
from bubbot.ports.model import WarmsUp
from bubbot.ports.settings import ReloadResult
from bubbot.ports.store import WaitsForRoom
from bubbot.server.address import socket_path
from bubbot.settings.environment import read_service_manager, runtime_folder
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandGroup
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts

log = logging.getLogger(__name__)
QUIET_WAIT_SECONDS = 600.0
"""The longest wait for a moment without a turn before the bot starts again in this process."""
RESTART_INTERVAL_SECONDS = 600.0
"""The shortest time from one start in this process to the next: anybody who may speak can ask to be forgotten."""
START_GRACE_SECONDS = 5.0
"""Seconds to finish the start if a signal comes before the bot has started."""


@local_command("run")
def run_bot(invocation: Invocation) -> int:
    """Run the bot with every configured channel.

    Run the bot in the foreground with every channel of config.toml, until SIGTERM or Ctrl-C: then it stops receiving,
    finishes the running turns, and delivers the answers. A second signal stops it at once; nothing is lost. SIGHUP or
    `bubbot reload` applies changed settings.
    """
    signals = PendingSignals()
    try:
        asyncio.run(_run(load_setup(invocation, quiet=False), signals))
    except asyncio.CancelledError:  # by a signal: see `_install_signal_handlers`
        if signals.is_running or signals.is_forced:
            raise KeyboardInterrupt from None
    return 0


async def _run(setup: CommandSetup, signals: PendingSignals) -> None:
    _install_signal_handlers(signals)
    if setup.settings.missing_secrets and await read_quarantine(setup) is None:
        setup.settings.require_secrets()  # in quarantine no channel starts and nothing needs them yet
    setup.settings.check_server()
    setup.home.ensure()
    path = socket_path(setup.home.path, runtime_folder(), Path(gettempdir()))
    try:
        async with _start_reporting() as report:
            while (current := await _run_once(setup, path, signals, report)) is not None:
                log.info("starting again", extra={"action": "run.again"})
                setup, signals.restarted_at = structs.replace(setup, settings=current), time.monotonic()
    except StoreFull as error:
        if not signals.ending.is_set():
            raise
        log.warning(
            "disk full at shutdown, the next start continues the open work: %s",
            error,
            extra={"action": "end.full"},
        )


async def _run_once(
    setup: CommandSetup, path: Path, signals: PendingSignals, report: ServiceReporter
) -> Settings | None:
    """Run the bot until it ends; return its settings if it has to start again, else None."""
    running = RunningSettings(setup)
    async with open_daemon(setup.settings, setup.home, address=str(path), running=running) as daemon:
        signals.store = daemon.bot.base_store
        await _serve(daemon, running, path, signals, report)
    if not daemon.bot.restart.is_set() or signals.ending.is_set() or running.reloader is None:
        return None
    signals.is_running, signals.store = False, None
    return running.reloader.current


@dataclass
class PendingSignals:
    """Requests by signals.

    Attributes:
        is_running: the bot runs and handles requests itself.
        store: the store, once it is open.
        ending: set by the first signal to end.
        is_forced: a second signal has come.
        reload: set by SIGHUP.
        restarted_at: when the bot last started again in this process, on the monotonic clock; None if it did not.
    """

    is_running: bool = False
    store: TapeStore | None = None
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    is_forced: bool = False
    reload: asyncio.Event = field(default_factory=asyncio.Event)
    restarted_at: float | None = None


class RunningSettings:
    """Changes the settings of the bot in this process; see `ChangesSettings`. `reloader` is set after the start."""

    def __init__(self, setup: CommandSetup) -> None:
        self.setup = setup
        self.reloader: Reloader | None = None

    def edit(self) -> ConfigEditor:
        return open_editor(self.setup)

    async def reload(self) -> ReloadResult:
        if self.reloader is None:
            raise ConfigError("the bot has not started yet: it reads the settings when it does")
        return await self.reloader.reload("chat")


async def _serve(
    daemon: Daemon, running: RunningSettings, path: Path, signals: PendingSignals, report: ServiceReporter
) -> None:
    setup = running.setup
    app, manager, ending = daemon.bot, daemon.manager, signals.ending
    left_open = await app.recover_all()
    read = setup.read_settings if daemon.quarantine is None else setup.read_settings_without_secrets
    reloader = running.reloader = Reloader(daemon, setup.settings, read)
    await reloader.record_changes()
    async with serve(daemon, reloader, setup.settings, setup.home, path) as api:
        manager.start(app.group.create_task)
        report.watch(partial(_watched_channels, daemon))
        jobs = _take_jobs(app)
        background = [
            *daemon.start_features(),
            *daemon.start_daily_digest(setup.settings.bot.timezone),
            app.group.create_task(reload_when(signals.reload, reloader, report)),
        ]
        if terminal_columns():
            kinds = {name: table.get("kind", name) for name, table in setup.settings.channels.items()}
            texts = Texts(setup.settings.bot.language)
            background.append(app.group.create_task(greet(partial(_watched_channels, daemon), kinds, texts)))
        names = ", ".join(name for name in app.channel_runtimes if name != daemon.remote.name)
        if not names:
            log.warning("no channel configured, run `bubbot init`", extra={"action": "run.alone"})
        signals.is_running = True
        log.info("running, channels: %s", names or "none", extra={"action": "run.started", "left_open": left_open})
        if names and isinstance(app.model, WarmsUp):
            app.model.warm()
        await _wait_for_first(
            ending.wait(),
            *([app.workers.drained.wait()] if app.workers else []),
            manager.wait_until_refused(excluding=daemon.remote.name),
            _wait_for_restart(app, signals),
        )
        log.info("shutting down", extra={"action": "run.ending"})
        if isinstance(app.base_store, WaitsForRoom):
            app.base_store.stop_waiting_for_room()
        api.is_stopping = True
        for task in background:
            task.cancel()
        timeouts = ShutdownTimeouts()
        if ending.is_set() or not app.restart.is_set():
            report.begin_shutdown(timeouts.max_seconds(len(app.channel_runtimes)) + timeouts.turns)
        if app.workers is not None:
            app.workers.stop()
        await reloader.stop(timeouts.turns)
        await manager.stop(timeouts)
        if jobs is not None and (await asyncio.wait([jobs], timeout=timeouts.deliveries))[1]:
            jobs.cancel()
    if not (ending.is_set() or app.restart.is_set()) and manager.refusals:
        raise ChannelRefused("; ".join(manager.refusals.values()))


def _take_jobs(app: Bot) -> asyncio.Task[None] | None:
    """Begin to run the turns that other processes may run, too; None if this process runs all."""
    if app.workers is None:
        return None
    return app.group.create_task(supervise("the work on chats", app.workers.run, Backoff(random.random)))


async def reload_when(requested: asyncio.Event, reloader: Reloader, report: ServiceReporter) -> None:
    """Apply changed settings at each requested reload; log and ignore unusable ones."""
    while True:
        await requested.wait()
        requested.clear()
        with report.reloading(), suppress(ConfigError):  # `Reloader` logs it
            try:
                await reloader.reload("signal")
            except StoreError as error:
                log.error("reload failed: %s", error, extra={"action": "config.failed"})  # noqa: TRY400


async def _wait_for_restart(app: Bot, signals: PendingSignals) -> None:
    """Wait until the bot has to start again, and then for a moment in which no turn runs."""
    await app.restart.wait()
    if signals.restarted_at is not None:
        await asyncio.sleep(max(0.0, signals.restarted_at + RESTART_INTERVAL_SECONDS - time.monotonic()))
    with suppress(TimeoutError):
        async with asyncio.timeout(QUIET_WAIT_SECONDS):
            await app.runtime.wait_idle()


async def _wait_for_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of the awaitables returns; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _install_signal_handlers(signals: PendingSignals) -> None:
    """Install the signal handlers.

    The first signal ends the bot in order, the second one at once. If the start still waits, for example for disk
    space, the first signal ends it after some seconds. SIGHUP requests a reload, unless the bot was started in a
    terminal: then the terminal is gone.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        if signals.ending.is_set() and task is not None:
            signals.is_forced = True
            loop.remove_signal_handler(number)
            task.cancel()
        elif not signals.is_running:
            loop.call_later(START_GRACE_SECONDS, abandon_start)
        signals.ending.set()

    def abandon_start() -> None:
        if signals.is_running:
            return
        if signals.store is not None:  # the store then raises `StoreFull` or lets the start finish
            if isinstance(signals.store, WaitsForRoom):
                signals.store.stop_waiting_for_room()
        elif task is not None:
            task.cancel()

    in_terminal = sys.stdin is not None and sys.stdin.isatty()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(end, number))
    loop.add_signal_handler(signal.SIGHUP, partial(end, signal.SIGHUP) if in_terminal else signals.reload.set)


def _start_reporting() -> AbstractAsyncContextManager[ServiceReporter]:
    """Report to the service manager, if there is one, during a block."""
    address, watchdog = read_service_manager(os.getpid())
    return open_reporter(ServiceNotifier(address, time.monotonic_ns), watchdog, Backoff(random.random), ServiceTiming())


def _watched_channels(daemon: Daemon) -> WatchedChannels:
    """Return the channels of the daemon, except the terminals' one, which always receives."""
    lines = daemon.bot.channel_runtimes.items()
    standing_by = daemon.bot.health_collector.standing_by
    channels = {name: line.channel for name, line in lines if name != daemon.remote.name and name not in standing_by}
    return WatchedChannels(channels, daemon.manager.states, daemon.manager.refusals)


RUN_COMMANDS = CommandGroup("run", (run_bot,))
