"""Previews: pass the progress of running turns to the channels that can show it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from bubbot.ports.channel import Preview, ShowsPreviews, TurnStarted

log = logging.getLogger(__name__)


class PreviewSink:
    """Passes previews to the channel of their session. If a channel fails, it gets no more previews of that turn."""

    def __init__(self, channels: Mapping[str, ShowsPreviews]) -> None:
        self._channels = dict(channels)
        self._failed: set[str] = set()

    def __call__(self, session: str, event: Preview) -> None:
        """Show the preview; log a failure instead of raising it."""
        if not self._channels:  # an answer comes in many pieces
            return
        channel = self._channels.get(session.partition(":")[0])
        if channel is None:
            return
        if isinstance(event, TurnStarted):
            self._failed.discard(session)
        if session in self._failed:
            return
        try:
            channel.preview(session, event)
        except Exception:  # the adapter may be third-party code, and a preview must not cost a turn
            self._failed.add(session)
            log.warning("preview failed", exc_info=True, extra={"action": "preview.failed", "session": session})
