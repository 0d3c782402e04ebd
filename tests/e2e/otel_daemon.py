"""A real daemon that sends traces and ends itself with SIGKILL: see kill_daemon.py, with `append-otel` for its checkpoints.

BREAK removes one guard: `early-checkpoint`, the checkpoint is written before the spans are sent; `new-ids`, the ids of spans are
others each time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from unittest.mock import patch

from bubbot.features.otel import exporter, sender, spans
from tests.e2e import kill_daemon


class HastySender(sender.SpanSender):
    """Says at once that the spans were taken, and sends them later."""

    async def send(self, body: bytes) -> bytes:
        """See `SpanSender.send`."""
        late.add(asyncio.create_task(self.send_later(body)))
        return b""

    async def send_later(self, body: bytes) -> None:
        """Send a request when its checkpoint is long written."""
        await asyncio.sleep(0.5)
        await super().send(body)


late: set[asyncio.Task[None]] = set()


def run(arguments: Sequence[str]) -> int:
    """The process."""
    exporter.GATHER_SECONDS = 0.0
    broken = arguments[-1]
    if broken == "early-checkpoint":
        patch.object(sender, "SpanSender", HastySender).start()
    elif broken == "new-ids":
        spans.span_id = lambda turn, part: os.urandom(8)
    return kill_daemon.run(arguments)
