"""Previews: what running turns show, handed to the channels that can show it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from bubbot.ports.channel import Preview, ShowsPreviews, TurnStarted

log = logging.getLogger(__name__)


class PreviewSink:
    """Hands previews to the channel of their session. A channel that fails at one is spared the rest of that turn."""

    def __init__(self, channels: Mapping[str, ShowsPreviews]) -> None:
        self._channels = dict(channels)
        self._spared: set[str] = set()

    def __call__(self, session: str, event: Preview) -> None:
        """Shows the event, or logs why not; never raises."""
        channel = self._channels.get(session.partition(":")[0])
        if channel is None:
            return
        if isinstance(event, TurnStarted):
            self._spared.discard(session)
        if session in self._spared:
            return
        try:
            channel.preview(session, event)
        except Exception:  # the adapter is someone else's code, and what it shows must not cost a turn
            self._spared.add(session)
            log.warning("a preview failed", exc_info=True, extra={"action": "preview.failed", "session": session})
