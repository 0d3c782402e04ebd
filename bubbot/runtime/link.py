"""The dependencies of a session: how its channel works, and what all sessions share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import tzinfo

from bubbot.ports.channel import Inbound, MessagePart, Outbound, Role
from bubbot.runtime.intake import AttachmentIntake, Fetch, refuse_fetch
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.metering import RateGate, ignore_notice
from bubbot.runtime.preview import PreviewCallback, ignore_preview
from bubbot.runtime.queue import QueuePolicy
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.schedule.firing import Firings
from bubbot.tape.handle import Clock
from bubbot.tape.service import NewId
from bubbot.texts import Texts
from bubbot.views.outbox import OutboxMessage


@dataclass(frozen=True, slots=True)
class SessionChannel:
    """A channel as its sessions use it.

    Attributes:
        name: the channel's name.
        inbox: the name of its inbox tape.
        outbox: the name of its outbox tape.
        split: cuts a message into parts that the platform takes.
        role: gives the role of the sender.
        queue_policy: how the channel wants waiting messages treated.
        chat_limit: a chat's own limit of turns at once.
        fetch: fetches the attachments of a message.
        find_channel: gives another channel by its name; None if it does not run here.
    """

    name: str
    inbox: str
    outbox: str
    split: Callable[[Outbound], Sequence[MessagePart]]
    role: Callable[[Inbound], Role]
    queue_policy: QueuePolicy = QueuePolicy()  # noqa: RUF009 - frozen
    chat_limit: Callable[[str], AbstractAsyncContextManager[object]] = lambda _session: nullcontext()
    fetch: Fetch = refuse_fetch
    find_channel: Callable[[str], SessionChannel | None] = lambda _channel: None


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """The dependencies that every session shares.

    Attributes:
        loop: runs a turn.
        now: the clock.
        new_id: makes the ids of turns.
        zone: the time zone of chats.
        retention_days: days after which the memory zone drops a daily note.
        turn_limiter: limits the turns at once.
        deliver: gets the channel and each merged outbox message.
        on_preview: gets the previews of a running turn.
        texts: the bot's own sentences.
        firings: knows the jobs of scheduled turns; None if nothing is scheduled.
        intake: takes in attachments.
        rate_gate: keeps messages to their rates.
    """

    loop: AgentLoop
    now: Clock
    new_id: NewId
    zone: tzinfo
    retention_days: int
    turn_limiter: TurnLimiter
    deliver: Callable[[str, OutboxMessage], Awaitable[None]]
    on_preview: PreviewCallback = ignore_preview
    texts: Texts = field(default_factory=Texts)
    firings: Firings | None = None
    intake: AttachmentIntake = field(default_factory=AttachmentIntake)
    rate_gate: RateGate = field(default_factory=lambda: RateGate(None, Texts(), ignore_notice))
