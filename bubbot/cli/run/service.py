"""Reports of `bubbot run` to the service manager that started it, if there is one."""

from __future__ import annotations

import os
import random
import time
from contextlib import AbstractAsyncContextManager

from bubbot.concurrency import Backoff
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ops.service.report import ServiceReporter, ServiceTiming, WatchedChannels, open_reporter
from bubbot.settings.environment import read_service_manager
from bubbot.wiring.daemon import Daemon


def start_reporting() -> AbstractAsyncContextManager[ServiceReporter]:
    """Report to the service manager during a block; to nobody without one."""
    address, watchdog = read_service_manager(os.getpid())
    return open_reporter(ServiceNotifier(address, time.monotonic_ns), watchdog, Backoff(random.random), ServiceTiming())


def watched_channels(daemon: Daemon) -> WatchedChannels:
    """Return the channels of the daemon, except that of the terminals, which always receives."""
    lines = daemon.bot.channel_runtimes.items()
    channels = {name: line.channel for name, line in lines if name != daemon.remote.name}
    return WatchedChannels(channels, daemon.manager.states, daemon.manager.refusals)
