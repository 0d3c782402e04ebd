"""What `bubbot run` tells the service manager that started it, where there is one."""

from __future__ import annotations

import os
import random
import time
from contextlib import AbstractAsyncContextManager

from bubbot.service.notify import Notifier
from bubbot.service.report import Report, Times, Watched, reporting
from bubbot.settings import service_manager
from bubbot.supervise import Pace
from bubbot.wiring_daemon import Daemon


def reported() -> AbstractAsyncContextManager[Report]:
    """Reports for the time of a block; to nobody where nobody asked for it."""
    address, watchdog = service_manager(os.getpid())
    return reporting(Notifier(address, time.monotonic_ns), watchdog, Pace(random.random), Times())


def watched(daemon: Daemon) -> Watched:
    """The channels of the daemon, without that of the terminals, which is always heard."""
    lines = daemon.app.lines.items()
    channels = {name: line.channel for name, line in lines if name != daemon.remote.name}
    return Watched(channels, daemon.manager.states, daemon.manager.refusals)
