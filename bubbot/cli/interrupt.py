"""Ctrl-C while the program loads and while it ends: exit at once, without a traceback.

In between, the command or its event loop handles Ctrl-C as `KeyboardInterrupt`. Before this module has loaded, the
launcher (`launcher/bubbot`) does the same; `python -m bubbot` has nothing there.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell: 128 plus the number of the signal."""


def leave_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, in phases in which nothing can be left half done."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # ignored by a shell that starts it in the background
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again, if `leave_on_interrupt` changed that."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
