"""The queue of a session: what waits, and which of it makes the next turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import islice, takewhile
from typing import Literal

from bubbot.ports.channel import Deletion, Edit, Inbound
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.records import dataclass
from bubbot.runtime.router import holds_command, is_overtaking
from bubbot.tape.handle import Clock
from bubbot.tape.query import parse_moment

Busy = Literal["queue", "steer", "drop"]

MAX_JOINED_MESSAGES = 20
"""Messages that one turn answers at most."""
MAX_DEBOUNCE_FACTOR = 5
"""A sender who keeps writing is answered after this many times `debounce`."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The rules of a channel for waiting messages.

    Attributes:
        debounce: seconds of quiet before the messages of one sender are answered together; 0 answers each alone.
        busy: what happens to a message that comes during a turn: `queue` lets it wait, `steer` adds it to the turn
            between two steps, `drop` drops it with a notice.
        stale_after: seconds after which a message is too old to be answered; None: never.
    """

    debounce: float = 0.0
    busy: Busy = "queue"
    stale_after: float | None = None

    def is_too_old(self, inbound: Inbound, now: datetime) -> bool:
        """Return true if a message is too old to be answered; one without a readable time never is."""
        if self.stale_after is None or not inbound.is_typed:  # other sources have their own rules
            return False
        sent = parse_moment(inbound.time)
        return sent is not None and (now - sent).total_seconds() > self.stale_after


@dataclass
class QueuedMessage:
    """A message that waits for its turn, with the future of the result."""

    accepted: AcceptedInbound
    result: asyncio.Future[TurnResult] = field(repr=False)

    def settle(self, result: TurnResult) -> None:
        """Set the result, unless the future is already done."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        """Set the error, unless the future is already done; often nobody waits for it."""
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()


class MessageQueue:
    """The messages and changes of one session, in the order they came.

    Somebody may send thousands of messages at once, while other sessions wait for the same event loop: nothing that is
    done for each message or each turn looks at all that waits.
    """

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self._items: deque[QueuedMessage | TapeChange] = deque()
        self._message_count = 0
        self._platform_ids: Counter[str] = Counter()
        self._arrived = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def message_count(self) -> int:
        """The number of waiting messages, without changes."""
        return self._message_count

    @property
    def stoppable_count(self) -> int:
        """The number of waiting messages whose turn may be stopped."""
        waiting = (item for item in self._items if isinstance(item, QueuedMessage))
        return sum(not is_overtaking(item.accepted.inbound) for item in waiting)

    def add(self, item: QueuedMessage | TapeChange) -> None:
        """Append an item."""
        self._items.append(item)
        self._count(item, 1)
        self._arrived.set()

    def _count(self, item: QueuedMessage | TapeChange, change: int) -> None:
        if isinstance(item, QueuedMessage):
            self._message_count += change
            inbound: object = item.accepted.inbound
        else:
            inbound = item.event
        if isinstance(inbound, Inbound) and inbound.message:
            self._platform_ids[inbound.message] += change
            if not self._platform_ids[inbound.message]:
                del self._platform_ids[inbound.message]

    def take_all(self) -> list[QueuedMessage]:
        """Empty the queue; return its messages."""
        messages = [item for item in self._items if isinstance(item, QueuedMessage)]
        self._items.clear()
        self._message_count = 0
        self._platform_ids.clear()
        return messages

    def count_interrupted(self, turns: Mapping[int, str]) -> None:
        """Count the interrupted turns, by inbound, as attempts of the waiting messages."""
        for item in self._items:
            if isinstance(item, QueuedMessage):
                item.accepted = item.accepted.after_interruption(turns.get(item.accepted.id, ""))

    async def wait_quiet(self, now: Clock) -> None:
        """Wait until the first message has waited long enough for others to join it.

        A message that is too old waits for the other old ones: all of them get one notice. Only messages prolong the
        wait.
        """
        rules, first = self.policy, self._items[0]
        if not rules.debounce or isinstance(first, TapeChange) or not (_may_join(first) or self.is_stale(first, now())):
            return
        loop, count, checked = asyncio.get_running_loop(), self.message_count, 1
        latest = loop.time() + MAX_DEBOUNCE_FACTOR * rules.debounce
        until = loop.time() + rules.debounce
        while self._accepts_more(first, checked, now()):
            checked = len(self._items)
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(min(until, latest)):
                    await self._arrived.wait()
            except TimeoutError:
                return
            if self.message_count != count:
                count, until = self.message_count, loop.time() + rules.debounce

    def _accepts_more(self, first: QueuedMessage, checked: int, now: datetime) -> bool:
        """Return true if a message that comes now could still be taken with the first.

        Args:
            first: the first item.
            checked: so many items from the front let more messages join.
            now: the time.
        """
        arrived = islice(self._items, checked, None)
        if self.is_stale(first, now):
            return all(self.is_stale(item, now) for item in arrived if isinstance(item, QueuedMessage))
        return self.message_count < MAX_JOINED_MESSAGES and all(_lets_join(item, first) for item in arrived)

    def has_message(self, message: str) -> bool:
        """Return true if a message with this platform id waits, to be answered or only recorded."""
        return message in self._platform_ids

    def take_change(self) -> TapeChange | None:
        """Take a change from the front; None if the first item is not a change."""
        first = self._items[0] if self._items else None
        if isinstance(first, TapeChange):
            self._remove([first])
            return first
        return None

    def take_batch(self, now: datetime) -> tuple[list[QueuedMessage], bool]:
        """Take the messages of the next turn; return them, and whether they are too old to be answered.

        Commands come alone; messages of one sender come together, and so do all messages that are too old. An
        interrupted batch comes back as it was, with the messages that steered its turn and without newer ones.
        """
        first = self._items[0]
        assert isinstance(first, QueuedMessage)
        old = self.is_stale(first, now)
        if old:
            messages = (message for message in self._items if isinstance(message, QueuedMessage))
            batch = list(takewhile(lambda message: self.is_stale(message, now), messages))
        else:
            batch = self._next_batch(first, now)
        self._remove(batch)
        return batch, old

    def _next_batch(self, first: QueuedMessage, now: datetime) -> list[QueuedMessage]:
        if first.accepted.attempts:
            return self._interrupted_batch(first)
        return self._fresh_joinable(now) if self.policy.debounce else [first]

    def _interrupted_batch(self, first: QueuedMessage) -> list[QueuedMessage]:
        """Return the batch whose turn was cut off, wherever its messages stand in the queue."""
        turn = first.accepted.interrupted_turn
        return [
            item
            for item in self._items
            if item is first or (turn and isinstance(item, QueuedMessage) and item.accepted.interrupted_turn == turn)
        ]

    def peek_batch(self, now: datetime) -> list[AcceptedInbound]:
        """List the messages the next turn would take now, without taking them; empty if they are too old."""
        first = self._items[0] if self._items else None
        if not isinstance(first, QueuedMessage) or self.is_stale(first, now):
            return []
        return [message.accepted for message in self._next_batch(first, now)]

    def take_steering(self, sender: str, now: datetime) -> list[QueuedMessage]:
        """Take the messages that may join a running turn of this sender."""
        messages = self.peek_steering(sender, now)
        self._remove(messages)
        return messages

    def peek_steering(self, sender: str, now: datetime) -> list[QueuedMessage]:
        """List the messages that `steering` would take."""
        if self.policy.busy != "steer":
            return []
        messages = self._fresh_joinable(now)
        if not messages or messages[0].accepted.inbound.sender.id != sender or not _may_join(messages[0]):
            return []
        return messages

    def take_edits(self, accepted: AcceptedInbound) -> list[TapeChange]:
        """Take the edits of a message that the model has not been shown yet."""
        edits = [item for item in self._changes() if _is_change_of(item, Edit, accepted)]
        if edits:
            self._remove(edits)
        return edits

    def take_withdrawn(self) -> list[tuple[QueuedMessage, TapeChange]]:
        """Take the messages that were deleted before their turn, each with its deletion."""
        deletions = [item for item in self._changes() if isinstance(item.event, Deletion)]
        if not deletions:
            return []
        pairs = [
            (item, next(deletion for deletion in deletions if _is_change_of(deletion, Deletion, item.accepted)))
            for item in self._items
            if isinstance(item, QueuedMessage)
            and not item.accepted.attempts
            and any(_is_change_of(deletion, Deletion, item.accepted) for deletion in deletions)
        ]
        self._remove([item for pair in pairs for item in pair])
        return pairs

    def is_stale(self, message: QueuedMessage, now: datetime) -> bool:
        """Return true if a message is too old to be answered; one whose turn has begun never is."""
        return not message.accepted.attempts and self.policy.is_too_old(message.accepted.inbound, now)

    def _fresh_joinable(self, now: datetime) -> list[QueuedMessage]:
        return list(takewhile(lambda message: not self.is_stale(message, now), self._joinable()))

    def _joinable(self) -> list[QueuedMessage]:
        """List the first message and those that can be answered with it.

        They have the same sender, and no recorded-only message stands between them.
        """
        messages: list[QueuedMessage] = []
        for item in self._items:
            if _is_recorded_only(item):
                break
            if isinstance(item, TapeChange):
                continue
            if messages and (
                not _may_join(item) or item.accepted.inbound.sender.id != messages[0].accepted.inbound.sender.id
            ):
                break
            messages.append(item)
            if not _may_join(item) or len(messages) == MAX_JOINED_MESSAGES:
                break
        return messages

    def _changes(self) -> list[TapeChange]:
        if self._message_count == len(self._items):
            return []
        return [item for item in self._items if isinstance(item, TapeChange)]

    def _remove(self, items: Sequence[QueuedMessage | TapeChange]) -> None:
        """Remove items, which mostly stand at the front."""
        ids = {id(item) for item in items}
        passed: list[QueuedMessage | TapeChange] = []
        while ids:
            item = self._items.popleft()
            if id(item) in ids:
                ids.remove(id(item))
                self._count(item, -1)
            else:
                passed.append(item)
        self._items.extendleft(reversed(passed))


def _lets_join(item: QueuedMessage | TapeChange, first: QueuedMessage) -> bool:
    """Return true if messages behind this item can still be answered with the first one."""
    if isinstance(item, TapeChange):
        return not _is_recorded_only(item)
    return _may_join(item) and item.accepted.inbound.sender.id == first.accepted.inbound.sender.id


def _may_join(waiting: QueuedMessage) -> bool:
    inbound = waiting.accepted.inbound
    is_alone = inbound.model or inbound.instructions or not inbound.is_typed or holds_command(inbound)
    return not (waiting.accepted.attempts or is_alone)


def _is_recorded_only(item: QueuedMessage | TapeChange) -> bool:
    return isinstance(item, TapeChange) and isinstance(item.event, Inbound)


def _is_change_of(changed: TapeChange, kind: type[Edit | Deletion], accepted: AcceptedInbound) -> bool:
    message = accepted.inbound.message
    return bool(message) and isinstance(changed.event, kind) and changed.event.message == message
