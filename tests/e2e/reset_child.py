"""The process of kill_child.py, whose model answers nothing before a number of messages is durable: they wait, whatever
the machine does.

Arguments: HOME SCRIPT POINT NUMBER.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bubbot.ports.model import Model, ModelEvent, ModelRequest
from tests.e2e.kill_child import Killer
from tests.e2e.kill_child import main as run_bot


class AcceptanceCounter(Killer):
    """Knows when so many messages are durable."""

    def __init__(self, point: str, number: int) -> None:
        super().__init__(point)
        self._missing = number
        self.all_accepted = asyncio.Event()

    def at(self, place: str) -> None:
        """See `Killer.at`; an acceptance is an append to the inbox before the first turn ends."""
        super().at(place)
        self._missing -= place == "append-inbox:after"
        if self._missing <= 0:
            self.all_accepted.set()


class PatientModel:
    """A model that waits until everything is accepted."""

    def __init__(self, model: Model, counter: AcceptanceCounter) -> None:
        self._model = model
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        await self._counter.all_accepted.wait()
        async for event in self._model.stream(request):
            yield event


async def main(home: str, script: str, point: str, number: int) -> None:
    """The bot, until its input ends and nothing is left to do."""
    counter = AcceptanceCounter(point, number)
    if not number:
        counter.all_accepted.set()
    await run_bot(Path(home), script, counter, [], wrap_model=lambda model: PatientModel(model, counter))


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, script, point, number = arguments[:4]
    asyncio.run(main(home, script, point, int(number or "0")))
    return 0
