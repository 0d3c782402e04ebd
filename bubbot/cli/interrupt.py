"""Ctrl-C while the program loads and while it ends: it leaves at once, without a traceback.

In between a command takes Ctrl-C as `KeyboardInterrupt`, or its event loop does. This module imports nothing heavy, since
nothing before it is protected.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C, as of a shell: 128 and the number of the signal."""


def leave_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, for as long as no command works that could leave something half done."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again, if `leave_on_interrupt` changed that."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
