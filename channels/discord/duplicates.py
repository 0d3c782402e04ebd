"""A second program that runs with the same token: it gets every message too, so people are answered twice.

Discord does not say so. But it tells us of our own messages, with the nonce they were sent with, and we know ours.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)
RECENT_NONCES = 4000
"""Nonces that are remembered; Discord tells of a message at once, or when a connection is resumed."""
CONFIRMATIONS = 3
"""Messages of another program within `WINDOW_SECONDS` until it is believed."""
WINDOW_SECONDS = 600.0


class DuplicateMonitor:
    """Compares the bot's own messages that Discord tells of with those that this process sent.

    Messages without a nonce are left out (a script of the operator's may use the token), and so are answers to
    interactions and those of the first seconds: a process that was killed may have had requests under way.

    Args:
        channel: the configured name, for the log.
        grace: seconds after the first `begin` in which nothing is counted.
    """

    def __init__(self, channel: str, *, monotonic: Callable[[], float], grace: float) -> None:
        self._channel = channel
        self._monotonic = monotonic
        self._grace = grace
        self._began: float | None = None
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._foreign: deque[float] = deque(maxlen=CONFIRMATIONS)
        self._is_told = False

    def begin(self) -> None:
        """Take note that the bot is connected."""
        if self._began is None:
            self._began = self._monotonic()

    def sending(self, nonce: str) -> None:
        """Take note of a message before it is sent."""
        self._sent[nonce] = None
        self._sent.move_to_end(nonce)
        while len(self._sent) > RECENT_NONCES:
            self._sent.popitem(last=False)

    def hear(self, me: str, raw: Any) -> None:
        """Look at a message that Discord tells of; `me` is the bot's own id."""
        if not isinstance(raw, dict) or not isinstance(author := raw.get("author"), dict) or author.get("id") != me:
            return
        if any(raw.get(key) for key in ("webhook_id", "interaction", "interaction_metadata")):
            return
        nonce, now = raw.get("nonce"), self._monotonic()
        if nonce is None or str(nonce) in self._sent or self._began is None or now - self._began < self._grace:
            return
        if self._foreign and now - self._foreign[-1] > WINDOW_SECONDS:
            self._is_told = False
        self._foreign.append(now)
        if self.note and not self._is_told:
            self._is_told = True
            log.warning(
                "channel %s: %s", self._channel, self.note, extra={"action": "discord.duplicate"}
            )  # fmt: skip

    @property
    def note(self) -> str:
        """What is wrong, for the operator; empty if no other program was heard of for a while."""
        if len(self._foreign) < CONFIRMATIONS or self._monotonic() - self._foreign[0] > WINDOW_SECONDS:
            return ""
        return (
            "another program sends messages with this bot's token, so that people may be answered twice: end it, or "
            "give this bot a new token (discord.com/developers, page Bot, Reset Token)."
        )
