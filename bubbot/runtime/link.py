"""What a session is given: how its channel works, and what all sessions share."""

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
    """What a session knows of its channel: the tapes beside it, how it cuts a message, who may do what, and how it
    wants waiting messages treated. `chat_limit` gives a chat's own limit of turns at once; `fetch` fetches what came
    with a message; `other` gives the link of another channel."""

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
    """What every session shares. `deliver` is told of each merged intent, `show` of what a turn shows meanwhile;
    `places` are those for turns at once, `pace` keeps messages to their rates; `texts` are the bot's own sentences;
    `firings` knows what a scheduled turn is for."""

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
