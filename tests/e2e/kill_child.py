"""A real bot on standard input and output that ends itself with SIGKILL at one point of a turn.

Arguments: HOME SCRIPT [POINT [BREAK [FEATURES]]]. POINT is `operation:before` or `operation:after`, with
`#N` for the Nth time; `+N` behind it means N operations later, `+N` alone the Nth of all. The ports are wrapped, as any deployment may wrap them; nothing in bubbot knows of it.
BREAK=`split-done` removes one guard: the inbounds are marked done after the merge instead of with it.
FEATURES=`none` leaves the kernel alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from bubbot.app.bot import PortWrappers, open_app
from bubbot.app.own_features import FEATURES
from bubbot.app.settings import load
from bubbot.arguments.fields import NoArguments
from bubbot.home import Home
from bubbot.ports.channel import Channel, MessagePart, Receipt
from bubbot.ports.model import ListsMessages, Model, ModelEvent, ModelRequest
from bubbot.ports.turn import Turn
from bubbot.tape.entry import JsonObject
from bubbot.tape.store import Batch, ResetBatch, TapeStore
from bubbot.tool import INSIDE, Tool, tool


class Killer:
    """Counts operations and ends the process at the point it was given, or at the Nth operation after `POINT+N`."""

    def __init__(self, point: str) -> None:
        self._point, _, count = point.partition("+")
        self._left = int(count or 0)
        self._is_counting = bool(count) and not self._point
        self._seen: Counter[str] = Counter()

    def at(self, place: str) -> None:
        self._seen[place] += 1
        if self._is_counting:
            self._left -= 1
        self._is_counting = self._is_counting or self._point in (f"{place}#{self._seen[place]}", place)
        if self._is_counting and self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class KillingStore:
    """A store that may end the process before or after each of its writes."""

    def __init__(self, store: TapeStore, killer: Killer, *, split_done: bool) -> None:
        self._store = store
        self._killer = killer
        self._split_done = split_done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batches: Sequence[Batch]) -> Any:
        place = batches[0].tape.split("/")[1] if batches[0].tape.startswith("bubbot/") else "session"
        return await self._around(f"append-{place}", self._store.append(batches))

    async def open_fork(self, record: Any, *, expect_head: bool = True) -> Any:
        return await self._around("open-fork", self._store.open_fork(record, expect_head=expect_head))

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> Any:
        return await self._around("extend-fork", self._store.extend_fork(fork, staged, reset))

    async def merge_fork(self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None) -> Any:
        if not self._split_done:
            return await self._around("merge", self._store.merge_fork(fork, batches, reset))
        done = [batch for batch in batches if batch.tape.startswith("bubbot/inbox/")]
        emptied = [structs.replace(batch, entries=()) if batch in done else batch for batch in batches]
        merged = await self._around("merge", self._store.merge_fork(fork, emptied, reset))
        await self._store.append(done)
        return merged

    async def _around(self, operation: str, work: Any) -> Any:
        try:
            self._killer.at(f"{operation}:before")
        except BaseException:
            work.close()
            raise
        result = await work
        self._killer.at(f"{operation}:after")
        return result


class KillingChannel:
    """A channel that may end the process around a send."""

    def __init__(self, channel: Channel, killer: Killer) -> None:
        self._channel = channel
        self._killer = killer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def send(self, part: MessagePart) -> Receipt:
        self._killer.at("send:before")
        receipt = await self._channel.send(part)
        self._killer.at("send:after")
        return receipt


class KillingModel:
    """A model that may end the process in mid-stream."""

    def __init__(self, model: Model, killer: Killer) -> None:
        self._model = model
        self._killer = killer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def list_messages(self, request: ModelRequest) -> list[JsonObject]:
        """See `ListsMessages.list_messages`; powers are looked for on the object itself."""
        found: list[JsonObject] = await cast("ListsMessages", self._model).list_messages(request)
        return found

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in self._model.stream(request):
            self._killer.at("model:before")
            yield event


def touching(home: Path, killer: Killer) -> Tool:
    """Build the tool that does something that can be seen from outside."""

    @tool("probe.touch", effect=INSIDE)  # a file of the test: nobody has to allow it
    async def touch(turn: Turn, args: NoArguments) -> str:
        """Does something that can be seen from outside."""
        killer.at("tool:before")
        with (home / "touched").open("a") as file:
            file.write("touched\n")
        killer.at("tool:after")
        return "touched"

    return touch


async def main(
    home: Path,
    script: str,
    killer: Killer,
    tools: Sequence[Tool],
    *,
    broken: str = "",
    features: str = "",
    wrap_model: Callable[[Model], Any] = lambda model: model,
) -> None:
    """The bot, until its input ends and nothing is left to do."""
    wrap = PortWrappers(
        store=lambda store: KillingStore(store, killer, split_done=broken == "split-done"),
        model=lambda model: KillingModel(wrap_model(model), killer),
        channel=lambda channel: KillingChannel(channel, killer),
        tools=tools,
    )
    settings = load(home=home)
    settings = settings.model_copy(
        update={"model": settings.model.model_copy(update={"name": "scripted", "script": Path(script)})}
    )
    # What acts outside would wait for a yes here: see approval_daemon.py for bots that ask.
    names = () if features == "none" else [name for name in FEATURES if name != "approvals"]
    async with open_app(settings, Home(home), wrappers=wrap, features=names) as app:
        await app.recover("stdin:default")
        await app.channel.run(app.gate.receive)
        await app.runtime.wait_idle()


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, script, point, broken, features = [*arguments, "", "", ""][:5]
    killer = Killer(point)
    asyncio.run(main(Path(home), script, killer, [touching(Path(home), killer)], broken=broken, features=features))
    return 0
