"""The dependencies of a session: how its channel works, and what all sessions share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import tzinfo

from bubbot.ports.channel import Inbound, MessagePart, Outbound, Role
from bubbot.runtime.intake import AttachmentIntake, Fetch, no_fetch
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.metering import RateGate, nothing_said
from bubbot.runtime.preview import Show, show_nothing
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
        parts: cuts a message into parts that the platform takes.
        role: gives the role of the sender.
        rules: how the channel wants waiting messages treated.
        chat_limit: a chat's own limit of turns at once.
        fetch: fetches the attachments of a message.
        other: gives another channel by its name; None if it does not run here.
    """

    name: str
    inbox: str
    outbox: str
    parts: Callable[[Outbound], Sequence[MessagePart]]
    role: Callable[[Inbound], Role]
    rules: QueuePolicy = QueuePolicy()  # noqa: RUF009 - frozen
    chat_limit: Callable[[str], AbstractAsyncContextManager[object]] = lambda _session: nullcontext()
    fetch: Fetch = no_fetch
    other: Callable[[str], SessionChannel | None] = lambda _channel: None


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """The dependencies that every session shares.

    Attributes:
        loop: runs a turn.
        now: the clock.
        new_id: makes the ids of turns.
        zone: the time zone of chats.
        retention_days: days after which the memory zone drops a daily note.
        places: limits the turns at once.
        deliver: gets the channel and each merged outbox message.
        show: gets the previews of a running turn.
        texts: the bot's own sentences.
        firings: knows the jobs of scheduled turns; None if nothing is scheduled.
        intake: takes in attachments.
        pace: keeps messages to their rates.
    """

    loop: AgentLoop
    now: Clock
    new_id: NewId
    zone: tzinfo
    retention_days: int
    places: TurnLimiter
    deliver: Callable[[str, OutboxMessage], Awaitable[None]]
    show: Show = show_nothing
    texts: Texts = Texts()  # noqa: RUF009 - frozen
    firings: Firings | None = None
    intake: AttachmentIntake = field(default_factory=AttachmentIntake)
    pace: RateGate = field(default_factory=lambda: RateGate(None, Texts(), nothing_said))
