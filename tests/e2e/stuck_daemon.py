"""`bubbot` with an event loop that stops for a minute when the process gets SIGUSR1."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from bubbot.cli.main import main as bubbot

MINUTE = 60.0


def main(arguments: Sequence[str]) -> int:
    """The command, with the signal."""
    # A signal handler of Python runs in the main thread, between two steps of the loop: nothing else runs meanwhile.
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(MINUTE))
    return bubbot(arguments)
