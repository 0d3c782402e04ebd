"""`bubbot` with an event loop that stops for a minute when the process gets SIGUSR1."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from bubbot.cli.main import main as bubbot

MINUTE = 60.0
STUCK = "the loop stands still"
"""What it says when that begins."""


def main(arguments: Sequence[str]) -> int:
    """The command, with the signal."""
    # A signal handler of Python runs in the main thread, between two steps of the loop: nothing else runs meanwhile.
    signal.signal(signal.SIGUSR1, lambda *_: _stand_still())
    return bubbot(arguments)


def _stand_still() -> None:
    os.write(2, STUCK.encode())
    time.sleep(MINUTE)
