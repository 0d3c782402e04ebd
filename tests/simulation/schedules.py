"""Schedules: a seed chooses what people do, when processes end, and which task runs next. The same seed is the same schedule."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest.mock import patch

import detangle

from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings
from bubbot.ports.channel import Role
from bubbot.stores.inmemory import InMemoryStore
from tests.doubles import SteppingClock
from tests.gateways import rules
from tests.simulation.checks import check
from tests.simulation.platform import OWNER, Platform, Post
from tests.simulation.process import Adapter, LiveAdapter, Outside, Process, SearchedAdapter

RESETS = (",new", ",reset archive", ",reset erase")
CHATS = {"1": ("1",), "2": ("2",), "work": ("1", "2", "3")}
"""The chats, with the people who are in them."""
TEXTS = ("hello", "hello", "send it", "send it", "send it", "and then", ",status", ",stop", ",tape.info")
QUIET_SECONDS = 60.0
MAX_STEPS = 100_000
CHANCES = {"act": 0.4, "send": 0.04}
"""How often a kill comes while something is done outside, or sent."""


class NumberedTask(asyncio.Task[Any]):
    """A task that stands in a set by its number and not by its address: a group ends its tasks in the order of a set."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


@dataclass
class Schedule:
    """One schedule and what became of it.

    Attributes:
        resets: what owners say to begin anew.
        adapter: builds the channel of each process.
        kills: the steps after which each process is killed; the one after the last lives on.
        moments: how many further kills may come while something is done or sent.
    """

    seed: int
    resets: Sequence[str] = RESETS
    adapter: Callable[[Platform, Outside], Adapter] | None = None
    rng: random.Random = field(init=False)
    platform: Platform = field(init=False)
    store: InMemoryStore = field(init=False)
    kills: list[int] = field(init=False)
    moments: int = field(init=False)
    steps: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.store = InMemoryStore(tape_shards=self.rng.choice([1, 4]))
        self.platform = Platform(self.rng, is_searchable=self.rng.random() < 0.5)
        self.kills = [self.rng.randint(20, 600) for _ in range(self.rng.randint(0, 4))]
        self.moments = self.rng.randint(0, 2)
        adapters = [Adapter, LiveAdapter] if not self.platform.is_searchable else [SearchedAdapter]
        self.adapter = self.adapter or self.rng.choice(adapters)
        self._debounce = self.rng.choice([0.0, 0.0, 1.0])
        self._busy = self.rng.choice(["queue", "queue", "steer", "drop"])
        self._clock = SteppingClock()
        self._people: set[asyncio.Task[None]] = set()
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._steps_left = 0

    def run(self) -> None:
        """Run it. Raise `AssertionError` if something did not hold, with the command that runs it again."""
        strategy = detangle.PCT(self.seed, depth=3, horizon=3000) if self.seed % 2 else detangle.RandomWalk(self.seed)
        try:
            with patch.object(os, "urandom", random.randbytes):  # cards get random ids
                detangle.run(
                    self._live,
                    strategy=strategy,
                    max_steps=MAX_STEPS,
                    fail_on_unobserved=False,
                    fail_on_callback_error=False,  # see `_note_error`
                )
        except (AssertionError, detangle.DetangleError) as error:
            raise AssertionError(f"{error}\n  again: python -m tests.simulation {self.seed}") from error

    async def _live(self) -> None:
        detangle.invariant(self._count_step)
        loop, numbers = asyncio.get_running_loop(), count()
        loop.set_task_factory(lambda loop, coro, **options: NumberedTask(next(numbers), coro, loop=loop, **options))
        loop.set_exception_handler(self._note_error)
        self.platform.on_buttons = self._answer_card
        self.platform.on_moment = self._kill_soon
        for chat, people in CHATS.items():
            self._begin(self._talk(chat, people))
        for number in count():
            if await self._run_process(number):
                return

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._people.add(task)
        task.add_done_callback(self._people.discard)

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep what a callback of the running process raised. What is left of a killed one may stumble."""
        if self._process is not None and self._process.outside.is_alive:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _kill_soon(self, kind: str) -> None:
        """Perhaps kill the process around this very moment."""
        if self.moments and self.rng.random() < CHANCES[kind]:
            self.moments -= 1
            self._steps_left = self.rng.randint(1, 25)

    def _count_step(self) -> None:
        """Kill the running process after its last step."""
        self.steps += 1
        if self._steps_left and self._process and self._task:
            self._steps_left -= 1
            if not self._steps_left:
                self.platform.story.append("KILL")
                self._process.kill()
                self._task.cancel()

    async def _run_process(self, number: int) -> bool:
        """Run a process until it is killed, or until everything is quiet; return true then."""
        self.platform.story.append(f"START {number}")
        assert self.adapter is not None
        process = self._process = Process(
            self.store,
            self.platform,
            clock=self._clock,
            policy=rules(self._debounce, admission=_admission(), busy=self._busy),
            name=f"life{number}",
            adapter=self.adapter,
        )
        self._task = asyncio.ensure_future(process.run(list(CHATS)))
        self._steps_left = self.kills.pop(0) if self.kills else 0
        quiet = asyncio.ensure_future(self._wait_quiet(process))
        await asyncio.wait({self._task, quiet}, return_when=asyncio.FIRST_COMPLETED)
        self._steps_left = 0
        is_over = quiet.done() and process.outside.is_alive
        if is_over:
            quiet.result()
            assert process.bench is not None
            assert not self.errors, self.errors
            await check(self.platform, process.bench, self.store)
            process.kill()
        quiet.cancel()
        self._task.cancel()
        ended = await asyncio.gather(self._task, quiet, return_exceptions=True)
        if process.outside.is_alive:
            raise AssertionError(f"the process ended by itself: {ended[0]!r}")
        return is_over

    async def _wait_quiet(self, process: Process) -> None:
        """Return when people and platform have nothing left, and the bot does nothing."""
        while True:
            while self._people or self.platform.has_updates or process.bench is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(1.0)
            await process.bench.quiet(10_000)
            await asyncio.sleep(QUIET_SECONDS)
            await process.bench.quiet(10_000)
            if not (self._people or self.platform.has_updates):
                return

    async def _talk(self, chat: str, people: Sequence[str]) -> None:
        """What the people of one chat do."""
        rng, platform = self.rng, self.platform
        for _ in range(rng.randint(1, 5)):
            await asyncio.sleep(rng.choice([0.0, 0.5, 3.0]) * rng.random())
            sender = rng.choice(people)
            lot = rng.random()
            mine = [said for said in platform.said.values() if said.inbound.chat == chat]
            if lot < 0.12 and mine:
                platform.edit(rng.choice(mine))
            elif lot < 0.2 and mine:
                platform.delete(rng.choice(mine))
            elif lot < 0.35 and OWNER in people:
                platform.say(rng.choice(self.resets), chat=chat, sender=OWNER)
            else:
                platform.say(rng.choice(TEXTS), chat=chat, sender=sender)

    def _answer_card(self, post: Post) -> None:
        self._begin(self._press(post))

    async def _press(self, post: Post) -> None:
        """One or two people press a button of a card."""
        assert post.buttons is not None
        buttons = post.buttons
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            await asyncio.sleep(4 * self.rng.random())
            sender = buttons.person or OWNER
            if post.buttons is None:  # the card shows none any more
                return
            self.platform.press(post, self.rng.randrange(len(buttons.buttons)), sender)


def _admission() -> AdmissionPolicy:
    listed = AdmissionSettings(owners=frozenset({OWNER}), members=frozenset({"2", "3"}))
    return AdmissionPolicy(listed, lambda _channel, _person: Role.STRANGER, lambda: 0.0)
