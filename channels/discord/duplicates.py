"""Detection of a second program with the same token: both get every message, so people are answered twice.

Discord does not report this. But it sends the bot its own messages with their nonces, and bubbot knows its own nonces.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)
MAX_RECENT_NONCES = 4000
"""Remembered nonces; Discord sends a message back at once, or when a connection is resumed."""
REQUIRED_CONFIRMATIONS = 3
"""Foreign messages within `WINDOW_SECONDS` that confirm a second program."""
WINDOW_SECONDS = 600.0


class DuplicateMonitor:
    """A comparison of the bot's messages that the gateway reports with those that this process sent.

    It ignores messages without a nonce (the operator may run a script with the token), responses to interactions, and messages
    of the first seconds (a killed process may have sent them).

    Args:
        monotonic: the clock, in seconds.
        grace_seconds: seconds after the first `start_session` in which nothing is counted.
    """

    def __init__(self, channel: str, *, monotonic: Callable[[], float], grace_seconds: float) -> None:
        self._channel = channel
        self._monotonic = monotonic
        self._grace = grace_seconds
        self._began: float | None = None
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._foreign: deque[float] = deque(maxlen=REQUIRED_CONFIRMATIONS)
        self._has_warned = False

    def start_session(self) -> None:
        """Record that the bot is connected."""
        if self._began is None:
            self._began = self._monotonic()

    def record_nonce(self, nonce: str) -> None:
        """Record the nonce of a message before it is sent."""
        self._sent[nonce] = None
        self._sent.move_to_end(nonce)
        while len(self._sent) > MAX_RECENT_NONCES:
            self._sent.popitem(last=False)

    def check_message(self, bot_id: str, raw: Any) -> None:
        """Check a message from the gateway; `bot_id` is the bot's own id."""
        if not isinstance(raw, dict) or not isinstance(author := raw.get("author"), dict) or author.get("id") != bot_id:
            return
        nonce, now = raw.get("nonce"), self._monotonic()
        if nonce is None or str(nonce) in self._sent or self._began is None or now - self._began < self._grace:
            return
        if any(raw.get(key) for key in ("webhook_id", "interaction", "interaction_metadata")):
            return
        if self._foreign and now - self._foreign[-1] > WINDOW_SECONDS:
            self._has_warned = False
        self._foreign.append(now)
        if self.warning and not self._has_warned:
            self._has_warned = True
            log.warning(
                "token used by another program: channel=%s warning=%s",
                self._channel,
                self.warning,
                extra={"action": "discord.duplicate"},
            )

    @property
    def warning(self) -> str:
        """The warning for the operator; empty if no other program was noticed for a while."""
        if len(self._foreign) < REQUIRED_CONFIRMATIONS or self._monotonic() - self._foreign[0] > WINDOW_SECONDS:
            return ""
        return (
            "another program sends messages with this bot's token, so that people may be answered twice: end it, or "
            "give this bot a new token (discord.com/developers, page Bot, Reset Token)."
        )
