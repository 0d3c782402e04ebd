"""What `bubbot run` tells the service manager that started it, where there is one."""

from __future__ import annotations

import os
import random
import time
from contextlib import AbstractAsyncContextManager

from bubbot.concurrency import Backoff
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ops.service.report import ServiceReporter, ServiceTiming, WatchedChannels, reporting
from bubbot.settings.environment import service_manager
from bubbot.wiring.daemon import Daemon


def reported() -> AbstractAsyncContextManager[ServiceReporter]:
    """Reports for the time of a block; to nobody where nobody asked for it."""
    address, watchdog = service_manager(os.getpid())
    return reporting(ServiceNotifier(address, time.monotonic_ns), watchdog, Backoff(random.random), ServiceTiming())


def watched(daemon: Daemon) -> WatchedChannels:
    """The channels of the daemon, without that of the terminals, which is always heard."""
    lines = daemon.app.lines.items()
    channels = {name: line.channel for name, line in lines if name != daemon.remote.name}
    return WatchedChannels(channels, daemon.manager.states, daemon.manager.refusals)
