"""The queue of a session: the waiting messages, and the choice of those for the next turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Literal

from msgspec import Struct

from bubbot.ports.channel import AGENT_ORIGIN, TASK_ORIGIN, Deletion, Edit, Inbound
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.runtime.router import holds_command, is_overtaking
from bubbot.tape.handle import Clock
from bubbot.tape.query import parse_moment

Busy = Literal["queue", "steer", "drop"]

MAX_JOINED_MESSAGES = 20
"""The most messages that one turn answers."""
MAX_DEBOUNCE_FACTOR = 5
"""A sender who keeps writing gets an answer after this many times `debounce`."""


class QueuePolicy(Struct, frozen=True):
    """The rules of a channel for waiting messages.

    Attributes:
        debounce: seconds of quiet before the messages of one sender are answered together; 0 answers each alone.
        busy: for a message during a turn: `queue` lets it wait, `steer` adds it to the turn between two steps, `drop`
            drops it with a notice.
        stale_after: seconds after which a message is too old to be answered; None: never.
    """

    debounce: float = 0.0
    busy: Busy = "queue"
    stale_after: float | None = None

    def is_too_old(self, inbound: Inbound, now: datetime) -> bool:
        """Return true if a message is too old to be answered; without a readable time it is not."""
        if self.stale_after is None or not inbound.is_typed:  # other sources have their own rules
            return False
        sent = parse_moment(inbound.time)
        return sent is not None and (now - sent).total_seconds() > self.stale_after


@dataclass
class QueuedMessage:
    """A waiting message with the future of its result."""

    accepted: AcceptedInbound
    result: asyncio.Future[TurnResult] = field(repr=False)

    def settle(self, result: TurnResult) -> None:
        """Set the result, unless the future is already done."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        """Set the error, unless the future is already done; often nothing awaits it."""
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()


class MessageQueue:
    """The messages and changes of one session in order of arrival.

    Thousands of messages may come at once while other sessions wait for the same event loop: no work for a message or a
    turn may scan the whole queue.
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
        """Add an item at the end; calls of agents and steps of tasks that wait there stay behind any other item."""
        calls: list[QueuedMessage | TapeChange] = []
        while self._items and not _gives_way(item) and _gives_way(self._items[-1]):
            calls.append(self._items.pop())
        self._items.append(item)
        self._items.extend(reversed(calls))
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

    def list_calls(self, message: str = "") -> list[QueuedMessage]:
        """List what agents ask each other, all or the chain that began with the message of this platform id."""
        calls: list[QueuedMessage] = []
        for item in reversed(self._items):
            if not _gives_way(item) or not isinstance(item, QueuedMessage):
                break
            if item.accepted.inbound.origin != AGENT_ORIGIN:
                continue
            call = item.accepted.inbound.call
            if not message or (call is not None and call.message == message):
                calls.append(item)
        return calls[::-1]

    def remove_calls(self, calls: Sequence[QueuedMessage]) -> None:
        """Remove calls that nobody answers any more."""
        self._remove(calls)
        for call in calls:
            call.settle(TurnResult("", "silent"))

    def take_all(self) -> list[QueuedMessage]:
        """Empty the queue; return its messages."""
        messages = [item for item in self._items if isinstance(item, QueuedMessage)]
        self._items.clear()
        self._message_count = 0
        self._platform_ids.clear()
        return messages

    def count_interrupted(self, turns: Mapping[int, str]) -> None:
        """Count interrupted turns, given by inbound, as attempts of the waiting messages."""
        for item in self._items:
            if isinstance(item, QueuedMessage):
                item.accepted = item.accepted.after_interruption(turns.get(item.accepted.id, ""))

    async def wait_quiet(self, now: Clock) -> None:
        """Wait until the first message has waited long enough for others to join.

        If it is too old, wait for the other old ones: all get one notice. Only messages prolong the wait.
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
        """Return true if a new message could still join the first.

        Args:
            checked: how many items from the front are known to let more messages join.
        """
        arrived = islice(self._items, checked, None)
        if self.is_stale(first, now):
            return all(self.is_stale(item, now) for item in arrived if isinstance(item, QueuedMessage))
        return self.message_count < MAX_JOINED_MESSAGES and all(_lets_join(item, first) for item in arrived)

    def has_message(self, message: str) -> bool:
        """Return true if a message with this platform id waits, also if only to be recorded."""
        return message in self._platform_ids

    def has_inbound(self, inbound_id: int) -> bool:
        """Return true if this inbound waits."""
        return any(isinstance(item, QueuedMessage) and item.accepted.id == inbound_id for item in self._items)

    def take_change(self) -> TapeChange | None:
        """Take the first item if it is a change; else return None."""
        first = self._items[0] if self._items else None
        if isinstance(first, TapeChange):
            self._remove([first])
            return first
        return None

    def take_batch(self, now: datetime) -> tuple[list[QueuedMessage], bool]:
        """Take the messages of the next turn; return them, and true if they are too old to be answered.

        A command comes alone; messages of one sender come together, and so do all messages that are too old. An
        interrupted batch comes back unchanged, with the messages that steered its turn and without newer ones.
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
        """Return the batch of the interrupted turn, wherever its messages stand in the queue."""
        turn = first.accepted.interrupted_turn
        return [
            item
            for item in self._items
            if item is first or (turn and isinstance(item, QueuedMessage) and item.accepted.interrupted_turn == turn)
        ]

    def peek_batch(self, now: datetime) -> list[AcceptedInbound]:
        """List the messages that the next turn would take; empty if they are too old."""
        first = self._items[0] if self._items else None
        if not isinstance(first, QueuedMessage) or self.is_stale(first, now):
            return []
        return [message.accepted for message in self._next_batch(first, now)]

    def take_steering(self, sender: str, agents: tuple[str, ...], now: datetime) -> list[QueuedMessage]:
        """Take the messages that may join a running turn of this sender and these agents."""
        messages = self.peek_steering(sender, agents, now)
        self._remove(messages)
        return messages

    def peek_steering(self, sender: str, agents: tuple[str, ...], now: datetime) -> list[QueuedMessage]:
        """List the messages that `take_steering` would take."""
        if self.policy.busy != "steer":
            return []
        messages = self._fresh_joinable(now)
        if not messages or not _may_join(messages[0]):
            return []
        first = messages[0].accepted.inbound
        return messages if first.sender.id == sender and first.agents == agents else []

    def take_edits(self, accepted: AcceptedInbound) -> list[TapeChange]:
        """Take the edits of a message that no model has seen yet."""
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
        """Return true if a message is too old to be answered and its turn has not begun."""
        return not message.accepted.attempts and self.policy.is_too_old(message.accepted.inbound, now)

    def _fresh_joinable(self, now: datetime) -> list[QueuedMessage]:
        return list(takewhile(lambda message: not self.is_stale(message, now), self._joinable()))

    def _joinable(self) -> list[QueuedMessage]:
        """List the first message and those that can be answered with it.

        They have the same sender, and no message that is only recorded stands between them.
        """
        messages: list[QueuedMessage] = []
        for item in self._items:
            if _is_recorded_only(item):
                break
            if isinstance(item, TapeChange):
                continue
            if messages and not (_may_join(item) and _is_to_same(item, messages[0])):
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
        """Remove items; most stand at the front."""
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
    """Return true if messages after this item can still be answered with the first one."""
    if isinstance(item, TapeChange):
        return not _is_recorded_only(item)
    return _may_join(item) and _is_to_same(item, first)


def _is_to_same(item: QueuedMessage, first: QueuedMessage) -> bool:
    """Return true if two messages are of the same person and ask the same agents."""
    inbound, other = item.accepted.inbound, first.accepted.inbound
    return inbound.sender.id == other.sender.id and inbound.agents == other.agents


def _gives_way(item: QueuedMessage | TapeChange) -> bool:
    """Return true for a call of an agent, and for the next step of a task: people come first."""
    return isinstance(item, QueuedMessage) and item.accepted.inbound.origin in (AGENT_ORIGIN, TASK_ORIGIN)


def _may_join(waiting: QueuedMessage) -> bool:
    inbound = waiting.accepted.inbound
    is_alone = inbound.model or inbound.instructions or not inbound.is_typed or holds_command(inbound)
    return not (waiting.accepted.attempts or is_alone)


def _is_recorded_only(item: QueuedMessage | TapeChange) -> bool:
    return isinstance(item, TapeChange) and isinstance(item.event, Inbound)


def _is_change_of(changed: TapeChange, kind: type[Edit | Deletion], accepted: AcceptedInbound) -> bool:
    message = accepted.inbound.message
    return bool(message) and isinstance(changed.event, kind) and changed.event.message == message
