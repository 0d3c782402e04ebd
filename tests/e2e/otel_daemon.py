"""A real daemon that sends traces and ends itself with SIGKILL: see kill_daemon.py, with `append-otel` for its checkpoints.

BREAK removes one guard: `early-checkpoint`, the checkpoint is written before the spans are sent; `new-ids`, the ids of spans are
others each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bubbot.features.otel import exporter, spans
from bubbot.features.otel.facts import TurnsExported
from tests.e2e import kill_daemon


async def _deliver_early(self: exporter.TraceExporter, batch: exporter._Batch, checkpoint: int) -> None:
    fact = TurnsExported(batch.position, len(batch.turns), batch.spans)
    await self._tape.append([fact.to_entry()])
    await self._send(batch.turns, checkpoint)


def run(arguments: Sequence[str]) -> int:
    """The process."""
    exporter.GATHER_SECONDS = 0.0
    broken = arguments[-1]
    if broken == "early-checkpoint":
        exporter.TraceExporter._deliver = _deliver_early  # type: ignore[method-assign]
    elif broken == "new-ids":
        spans.span_id = lambda turn, part: os.urandom(8)
    return kill_daemon.run(arguments)
