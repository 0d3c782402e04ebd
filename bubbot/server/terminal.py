"""The terminal of a chat whose process also serves other commands of the home."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from bubbot.errors import BubbotError
from bubbot.ports.channel import Channel, MessagePart, Outbound, Preview, Receipt, Receive, ShowsPreviews
from bubbot.server.remote import RemoteChannel


class SharedTerminal(RemoteChannel):
    """The adapter of `bubbot chat` and of the clients that connect to its process. See `RemoteChannel`.

    Attributes:
        local: the adapter of this process: the oldest client of its one session.
    """

    def __init__(self, local: Channel, session: str) -> None:
        super().__init__(local.name)
        self.local = local
        self._local_session = session
        self._copies: set[asyncio.Task[None]] = set()

    async def run(self, receive: Receive) -> None:
        """Receive what the clients and the person at this terminal send, until the end of its input."""
        self._receiver().set_result(receive)
        await self.local.run(receive)

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """See `Channel`."""
        return self.local.parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Show a part here if it belongs here and no client asked for it; else at the client, with a copy here."""
        is_here = self._session_of(part) == self._local_session
        if is_here and self._sender_of(part) is None:
            data = await self._read_file(part) if self._clients(self._local_session) else None
            for client in self._clients(self._local_session):
                client.copy(part, data)
            return await self.local.send(part)
        if is_here:
            task = asyncio.create_task(self._show_copy(part))
            self._copies.add(task)
            task.add_done_callback(self._copies.discard)
        return await super().send(part)

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`."""
        if isinstance(self.local, ShowsPreviews):
            self.local.preview(session, event)
        super().preview(session, event)

    async def _show_copy(self, part: MessagePart) -> None:
        with suppress(BubbotError):  # the client that asked has the part, and it is on the tape
            await self.local.send(part)
