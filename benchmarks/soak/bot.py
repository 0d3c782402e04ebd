"""The daemon of a soak with a watch on its event loop: python -m benchmarks.soak.bot HOME [joined] [memory].

It is `bubbot run` without the control socket. `joined`: the model names every message that it is to answer, so that
messages which were joined can be counted. `memory`: Python's own count of what it holds, which makes it slower. Asked
anything it tells how late its event loop was since it was last asked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.soak import words
from benchmarks.soak.lag import Lag
from benchmarks.soak.talk import Message, asked, tell
from bubbot.app.bot import PortWrappers
from bubbot.app.daemon import open_daemon
from bubbot.app.settings import load
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.home import Home
from bubbot.log import setup
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta

SHOWN = 12
"""Lines of code that hold the most memory, where it is counted."""


class Reciter:
    """A model that says which messages came since it last spoke."""

    name = "reciter"
    traits = ModelTraits()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        asked_for: list[str] = []
        for message in request.messages:
            asked_for = [] if message["role"] == "assistant" else [*asked_for, str(message["content"])]
        text = "heard " + ", ".join(found[0] for found in words.SAID.finditer("\n".join(asked_for)))
        yield TextDelta(text)
        yield ModelReply(text, model=self.name)

    async def aclose(self) -> None:
        """See `Model.aclose`."""


def held() -> Message:
    """What Python holds: objects by the collector's count, and the lines that made the most of it."""
    gc.collect()
    made: Message = {"objects": len(gc.get_objects())}
    if tracemalloc.is_tracing():
        now = tracemalloc.take_snapshot().statistics("lineno")
        made |= {"python_mb": tracemalloc.get_traced_memory()[0] / 2**20, "lines": [str(one) for one in now[:SHOWN]]}
    return made


async def main(home: Path, *, joined: bool, memory: bool) -> None:
    """Runs until standard input closes or SIGTERM."""
    if memory:
        tracemalloc.start()
    setup("info", secrets=())
    ending, lag = asyncio.Event(), Lag()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)

    async def answers() -> None:
        async for _ in asked():
            tell({"reply": {"lag": lag.figures(), **(held() if memory else {})}})
        ending.set()

    def model(configured: Model) -> Model:
        return Reciter() if joined else configured

    async with open_daemon(load(home=home), Home(home), wrappers=PortWrappers(model=model)) as daemon:
        await daemon.bot.recover_all()
        daemon.manager.start(daemon.bot.group.create_task)
        tasks = [asyncio.create_task(lag.watch()), asyncio.create_task(answers())]
        tell({"running": True})
        await ending.wait()
        for task in tasks:
            task.cancel()
        await daemon.manager.stop(ShutdownTimeouts(turns=5.0, deliveries=5.0))


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(main(Path(sys.argv[1]), joined="joined" in sys.argv[2:], memory="memory" in sys.argv[2:]))
