"""`bubbot run`: the daemon, with every configured channel."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from bubbot.channel import Webhook
from bubbot.cli.run_control import control
from bubbot.cli.run_service import reported, watched
from bubbot.cli.setup import Setup, setup
from bubbot.control.address import socket_path
from bubbot.errors import ChannelRefused
from bubbot.gateway.manager import Grace
from bubbot.models.lazy import LazyModel
from bubbot.service.report import Report
from bubbot.settings import runtime_folder
from bubbot.wiring_daemon import Daemon, open_daemon

log = logging.getLogger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Run the bot in the foreground with every channel of config.toml, until SIGTERM or Ctrl-C: then it stops "
        "receiving, finishes the turns under way, and delivers. A second signal ends it at once; nothing is lost."
    )


def run(args: argparse.Namespace) -> int:
    """Runs until a signal; 6 where every channel was refused, 130 after a second signal."""
    try:
        asyncio.run(_run(setup(args, quiet=False)))
    except asyncio.CancelledError:  # by the second signal: `_on_signals`
        raise KeyboardInterrupt from None
    return 0


async def _run(made: Setup) -> None:
    ending = asyncio.Event()
    _on_signals(ending)
    made.home.ensure()
    path = socket_path(made.home.path, runtime_folder(), Path(gettempdir()))
    async with reported() as report, open_daemon(made.settings, made.home, address=str(path)) as daemon:
        await _serve(daemon, made, path, ending, report)


async def _serve(daemon: Daemon, made: Setup, path: Path, ending: asyncio.Event, report: Report) -> None:
    app, manager = daemon.app, daemon.manager
    left_open = await app.recover_all()
    async with control(daemon, made, path) as server, _web_door(daemon, made):
        manager.start(app.group.create_task)
        report.watch(watched(daemon))
        keeping = daemon.keep_time()
        names = ", ".join(name for name in app.lines if name != daemon.remote.name)
        if not names:
            log.warning("no channel is set up: `bubbot init` asks for a token", extra={"action": "run.alone"})
        log.info("running; channels: %s", names or "none", extra={"action": "run.started", "left_open": left_open})
        if names and isinstance(app.model, LazyModel):
            app.model.warm()
        await _first(ending.wait(), manager.wait(beside=daemon.remote.name))
        log.info("ending", extra={"action": "run.ending"})
        server.quiesce()
        keeping.cancel()
        report.stopping(Grace().longest(len(app.lines)))
        await manager.end(Grace())
    if not ending.is_set() and manager.refusals:
        raise ChannelRefused("; ".join(manager.refusals.values()))


@asynccontextmanager
async def _web_door(daemon: Daemon, made: Setup) -> AsyncIterator[None]:
    """Lets platforms in that call; the HTTP library, a third of the start-up, is loaded only where one does."""
    webhooks = {name: line.channel for name, line in daemon.app.lines.items() if isinstance(line.channel, Webhook)}
    if not webhooks:
        yield
        return
    web: Any = import_module("bubbot.gateway.web")
    async with web.web_door(webhooks, web.WebSettings(made.settings.http.host, made.settings.http.port)):
        yield


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when one of them does."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _on_signals(ending: asyncio.Event) -> None:
    """The first signal ends in an orderly way, the second at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        if ending.is_set() and task is not None:
            loop.remove_signal_handler(number)
            task.cancel()
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(end, number))
