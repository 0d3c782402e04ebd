"""What waits for a session, and what of it makes the next turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Literal

from bubbot.ports.channel import Deletion, Edit, Inbound
from bubbot.ports.turn import SCHEDULED, AcceptedInbound, TapeChange, TurnResult
from bubbot.runtime.router import is_command, is_overtaking
from bubbot.tape.handle import Clock
from bubbot.tape.query import moment

Busy = Literal["queue", "steer", "drop"]

JOINED_LIMIT = 20
"""Messages that one turn answers at most."""
MAX_DEBOUNCE_FACTOR = 5
"""Somebody who goes on writing is answered after this many times `debounce`."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How a channel wants waiting messages treated.

    `debounce`: seconds of quiet before the messages of one sender are answered together; 0 answers each alone.
    `busy`: what becomes of a message that comes while a turn runs: it waits, steers the turn between two steps, or
    is dropped with a notice. `stale_after`: seconds after which a message is too old to be answered; None: never.
    """

    debounce: float = 0.0
    busy: Busy = "queue"
    stale_after: float | None = None

    def too_old(self, inbound: Inbound, now: datetime) -> bool:
        """Whether a message is too old to be answered. One without a readable time is not."""
        sent = moment(inbound.time) if inbound.origin != SCHEDULED else None  # a job has rules of its own for that
        return self.stale_after is not None and sent is not None and (now - sent).total_seconds() > self.stale_after


@dataclass
class QueuedMessage:
    """A message that waits for its turn, and who waits for the result."""

    accepted: AcceptedInbound
    result: asyncio.Future[TurnResult] = field(repr=False)

    def settle(self, result: TurnResult) -> None:
        """Tells whoever waits, unless they have gone."""
        if not self.result.done():
            self.result.set_result(result)


class MessageQueue:
    """The messages and changes of one session, in the order they came."""

    def __init__(self, rules: QueuePolicy) -> None:
        self.rules = rules
        self._items: deque[QueuedMessage | TapeChange] = deque()
        self._came = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def messages(self) -> int:
        """How many messages wait; changes are not counted."""
        return sum(isinstance(one, QueuedMessage) for one in self._items)

    @property
    def stoppable(self) -> int:
        """How many messages wait whose turn somebody may stop."""
        waiting = (one for one in self._items if isinstance(one, QueuedMessage))
        return sum(not is_overtaking(one.accepted.inbound.text) for one in waiting)

    def add(self, item: QueuedMessage | TapeChange) -> None:
        """Puts it at the end."""
        self._items.append(item)
        self._came.set()

    async def quiet(self, now: Clock) -> None:
        """Returns when the first message has waited long enough for others to join it.

        What is too old waits for the rest that is: all of it gets one notice. Only messages prolong the wait.
        """
        rules, first = self.rules, self._items[0]
        if not rules.debounce or isinstance(first, TapeChange) or not (_joins(first) or self.stale(first, now())):
            return
        loop, came = asyncio.get_running_loop(), self.messages
        latest = loop.time() + MAX_DEBOUNCE_FACTOR * rules.debounce
        until = loop.time() + rules.debounce
        while self._open(now()):
            self._came.clear()
            try:
                async with asyncio.timeout_at(min(until, latest)):
                    await self._came.wait()
            except TimeoutError:
                return
            if self.messages != came:
                came, until = self.messages, loop.time() + rules.debounce

    def _open(self, now: datetime) -> bool:
        """Whether a message that comes now could still be taken with the first."""
        messages = [one for one in self._items if isinstance(one, QueuedMessage)]
        if self.stale(messages[0], now):
            return all(self.stale(one, now) for one in messages)
        said = len(messages) + sum(_heard(one) for one in self._items)
        return len(self._run()) == said < JOINED_LIMIT

    def holds(self, message: str) -> bool:
        """Whether a message with this id of the platform waits, to be answered or only to be heard."""
        return any(said is not None and said.message == message for said in (_said(one) for one in self._items))

    def change(self) -> TapeChange | None:
        """Takes a change from the front, where one stands there."""
        first = self._items[0] if self._items else None
        if isinstance(first, TapeChange):
            self._items.popleft()
            return first
        return None

    def batch(self, now: datetime) -> tuple[list[QueuedMessage], bool]:
        """Takes what the next turn is for, and whether that is too old to be answered.

        Commands come alone; messages of one sender come together, and so does everything that is too old. A batch
        that was interrupted comes again as it was, with what steered its turn and without anything newer.
        """
        first = self._items[0]
        assert isinstance(first, QueuedMessage)
        old = self.stale(first, now)
        if old:
            messages = [one for one in self._items if isinstance(one, QueuedMessage)]
            found = list(takewhile(lambda one: self.stale(one, now), messages))
        else:
            found = self._fresh(first, now)
        self._take(found)
        return found, old

    def _fresh(self, first: QueuedMessage, now: datetime) -> list[QueuedMessage]:
        if first.accepted.attempts:
            return self._interrupted(first)
        return self._answerable(now) if self.rules.debounce else [first]

    def _interrupted(self, first: QueuedMessage) -> list[QueuedMessage]:
        """Return the batch whose turn was cut off, wherever its messages stand in the line."""
        turn = first.accepted.interrupted_turn
        return [
            one
            for one in self._items
            if one is first or (turn and isinstance(one, QueuedMessage) and one.accepted.interrupted_turn == turn)
        ]

    def ahead(self, now: datetime) -> list[AcceptedInbound]:
        """What the next turn is for as things stand, left where it is; nothing where that is too old."""
        first = self._items[0] if self._items else None
        if not isinstance(first, QueuedMessage) or self.stale(first, now):
            return []
        return [one.accepted for one in self._fresh(first, now)]

    def steering(self, sender: str, now: datetime) -> list[QueuedMessage]:
        """Takes what may join a turn of this sender that runs already."""
        found = self.joining(sender, now)
        self._take(found)
        return found

    def joining(self, sender: str, now: datetime) -> list[QueuedMessage]:
        """What `steering` would take."""
        if self.rules.busy != "steer":
            return []
        found = self._answerable(now)
        if not found or found[0].accepted.inbound.sender.id != sender or not _joins(found[0]):
            return []
        return found

    def edits_of(self, accepted: AcceptedInbound) -> list[TapeChange]:
        """Takes the edits of a message that came before it was put before the model."""
        found = [one for one in self._items if isinstance(one, TapeChange) and _changes(one, Edit, accepted)]
        self._take(found)
        return found

    def withdrawn(self) -> list[tuple[QueuedMessage, TapeChange]]:
        """Takes the messages that were deleted before their turn, each with its deletion."""
        deletions = [one for one in self._items if isinstance(one, TapeChange) and isinstance(one.event, Deletion)]
        found = [
            (one, next(gone for gone in deletions if _changes(gone, Deletion, one.accepted)))
            for one in self._items
            if isinstance(one, QueuedMessage)
            and not one.accepted.attempts
            and any(_changes(gone, Deletion, one.accepted) for gone in deletions)
        ]
        self._take([item for pair in found for item in pair])
        return found

    def stale(self, waiting: QueuedMessage, now: datetime) -> bool:
        """Whether a message is too old to be answered. One that was begun already is not."""
        return not waiting.accepted.attempts and self.rules.too_old(waiting.accepted.inbound, now)

    def _answerable(self, now: datetime) -> list[QueuedMessage]:
        return list(takewhile(lambda one: not self.stale(one, now), self._run()))

    def _run(self) -> list[QueuedMessage]:
        """The first message and those behind it that can be answered with it: of the same sender, with nothing that
        was only heard between them."""
        found: list[QueuedMessage] = []
        for one in self._items:
            if _heard(one):
                break
            if isinstance(one, TapeChange):
                continue
            if found and (not _joins(one) or one.accepted.inbound.sender.id != found[0].accepted.inbound.sender.id):
                break
            found.append(one)
            if not _joins(one) or len(found) == JOINED_LIMIT:
                break
        return found

    def _take(self, taken: Iterable[QueuedMessage | TapeChange]) -> None:
        gone = {id(one) for one in taken}
        self._items = deque(one for one in self._items if id(one) not in gone)


def _joins(waiting: QueuedMessage) -> bool:
    inbound = waiting.accepted.inbound
    return not (waiting.accepted.attempts or inbound.origin == SCHEDULED or is_command(inbound.text))


def _said(item: QueuedMessage | TapeChange) -> Inbound | None:
    """The message that waits, where it is one."""
    said = item.accepted.inbound if isinstance(item, QueuedMessage) else item.event
    return said if isinstance(said, Inbound) else None


def _heard(item: QueuedMessage | TapeChange) -> bool:
    return isinstance(item, TapeChange) and isinstance(item.event, Inbound)


def _changes(changed: TapeChange, kind: type[Edit | Deletion], accepted: AcceptedInbound) -> bool:
    message = accepted.inbound.message
    return bool(message) and isinstance(changed.event, kind) and changed.event.message == message
