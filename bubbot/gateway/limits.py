"""Limits of one person on a channel: messages per minute and hour, and bytes per day.

Times are the platform's: messages sent over hours while the bot was down are not a flood, and this machine's clock does
not matter.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from bubbot.ports.channel import Attachment, Edit, Inbound, Reaction
from bubbot.tape.handle import Clock
from bubbot.tape.query import parse_moment

ONE_MINUTE, ONE_HOUR, ONE_DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
PEOPLE_REMEMBERED = 10_000
UNKNOWN_SIZE_BYTES = 1_000_000
"""The size to assume for a file if the platform does not report one."""
NOT_TAKEN = "{kind} not taken: its sender has used up the bytes of a day"

Limit = Literal["minute", "hour", "bytes"]
_Sizes: TypeAlias = "deque[tuple[datetime, int]]"
"""Bytes that one person sent, with their times."""


class PersonLimits(Struct, frozen=True):
    """Limits of each person on one channel; 0: no limit."""

    messages_per_minute: int = 0
    messages_per_hour: int = 0
    bytes_per_day: int = 0


@dataclass
class _PersonUsage:
    """The recent messages and changes of one person.

    Attributes:
        messages: the times of messages, oldest first.
        changes: the times of edits and reactions, oldest first.
        sizes: sent bytes with their times.
        notified: the time of the last notice about each limit.
    """

    messages: deque[datetime] = field(default_factory=deque)
    changes: deque[datetime] = field(default_factory=deque)
    sizes: _Sizes = field(default_factory=deque)
    notified: dict[Limit, datetime] = field(default_factory=dict)


class PersonLimiter:
    """Counts messages and bytes of each person on one channel. You may replace `limits` at any time; the counts stay."""

    def __init__(self, limits: PersonLimits, now: Clock) -> None:
        self.limits = limits
        self._now = now
        self._people: OrderedDict[str, _PersonUsage] = OrderedDict()

    def load(self, accepted: Iterable[Inbound]) -> None:
        """Count messages that an earlier process, or another one, accepted, oldest first."""
        for inbound in accepted:
            usage, at = self._usage(inbound.sender.id), self._at(inbound.time)
            _forget(usage.messages, at)
            usage.messages.append(at)
            _add_bytes(usage.sizes, at, _size(inbound))

    def exceeded(self, event: Inbound | Edit | Reaction) -> Limit | None:
        """Count an event and return None, or return the limit that it would exceed. Changes have their own count."""
        usage, at = self._usage(event.sender.id), self._at(event.time)
        times = usage.messages if isinstance(event, Inbound) else usage.changes
        _forget(times, at)
        for name, limit, span in self._rates():
            if 0 < limit <= len(times) and sum(at - time < span for time in times) >= limit:
                return name
        size = 0 if isinstance(event, Reaction) else len(event.text.encode(errors="replace"))
        if not self._has_room(usage.sizes, at, size):
            return "bytes"
        times.append(at)
        _add_bytes(usage.sizes, at, size)
        return None

    def without_excess(self, inbound: Inbound) -> Inbound:
        """Count the files of a message and its quote; keep only those within the sender's limit.

        A note of their kind replaces the other files.
        """
        quote = inbound.quote
        if not inbound.attachments and (quote is None or not quote.attachments):
            return inbound
        if quote is not None:
            quote = structs.replace(quote, attachments=self._admit_all(inbound, quote.attachments))
        return structs.replace(inbound, attachments=self._admit_all(inbound, inbound.attachments), quote=quote)

    def should_notify(self, event: Inbound, limit: Limit) -> bool:
        """Return true, and record it, if the sender got no notice of this limit within the last hour."""
        usage, at = self._usage(event.sender.id), self._at(event.time)
        last = usage.notified.get(limit)
        if last is not None and abs(at - last) < ONE_HOUR:
            return False
        usage.notified[limit] = at
        return True

    def _rates(self) -> tuple[tuple[Limit, int, timedelta], ...]:
        limits = self.limits
        return (("minute", limits.messages_per_minute, ONE_MINUTE), ("hour", limits.messages_per_hour, ONE_HOUR))

    def _admit_all(self, inbound: Inbound, attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
        return tuple(self._admit(inbound, attachment) for attachment in attachments)

    def _admit(self, inbound: Inbound, attachment: Attachment) -> Attachment:
        if not attachment.reference:
            return attachment
        size = UNKNOWN_SIZE_BYTES if attachment.size is None else attachment.size
        sizes, at = self._usage(inbound.sender.id).sizes, self._at(inbound.time)
        if self._has_room(sizes, at, size):
            _add_bytes(sizes, at, size)
            return attachment
        return structs.replace(attachment, reference="", note=NOT_TAKEN.format(kind=attachment.kind or "file"))

    def _has_room(self, sizes: _Sizes, at: datetime, size: int) -> bool:
        if not self.limits.bytes_per_day or not size:
            return True
        while sizes and at - sizes[0][0] >= ONE_DAY:
            sizes.popleft()
        while sizes and sizes[-1][0] - at > ONE_DAY:
            sizes.pop()
        return sum(counted for _, counted in sizes) + size <= self.limits.bytes_per_day

    def _usage(self, sender_id: str) -> _PersonUsage:
        usage = self._people.get(sender_id)
        if usage is None:
            usage = self._people[sender_id] = _PersonUsage()
            if len(self._people) > PEOPLE_REMEMBERED:
                self._people.popitem(last=False)
        self._people.move_to_end(sender_id)
        return usage

    def _at(self, time: str) -> datetime:
        return parse_moment(time) or self._now()


def _add_bytes(sizes: _Sizes, at: datetime, size: int) -> None:
    if sizes and abs(at - sizes[-1][0]) < ONE_MINUTE:
        sizes[-1] = (sizes[-1][0], sizes[-1][1] + size)
    else:
        sizes.append((at, size))


def _forget(times: deque[datetime], at: datetime) -> None:
    """Drop times an hour old, and times so far ahead that a clock must have been set back."""
    while times and at - times[0] >= ONE_HOUR:
        times.popleft()
    while times and times[-1] - at >= ONE_HOUR:
        times.pop()


def _size(inbound: Inbound) -> int:
    attachments = [*inbound.attachments, *(inbound.quote.attachments if inbound.quote else ())]
    files = sum(
        UNKNOWN_SIZE_BYTES if attachment.size is None else attachment.size
        for attachment in attachments
        if attachment.reference
    )
    return files + len(inbound.text.encode(errors="replace"))
