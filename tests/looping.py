"""How long the event loop is held by what runs on it, by its own thread's processor time: other programs do not count,
and a wait on the loop (a sleep, a slow disk) is not seen either."""

from __future__ import annotations

import gc
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

HELD = 0.05
"""Seconds that nothing may hold the loop."""


@dataclass
class Steps:
    """The longest step of the loop so far: seconds of its thread, and what it was."""

    longest: float = 0.0
    what: str = ""


@contextmanager
def steps() -> Iterator[Steps]:
    """Looks at every step of the loop within the block. What the tests before left to the garbage is not its fault."""
    found, plain = Steps(), Handle._run

    def run(handle: Handle) -> None:
        began = time.thread_time()
        plain(handle)
        took = time.thread_time() - began
        if took > found.longest:
            found.longest, found.what = took, repr(handle)

    gc.collect()
    gc.freeze()
    try:
        with patch.object(Handle, "_run", run):
            yield found
    finally:
        gc.unfreeze()
