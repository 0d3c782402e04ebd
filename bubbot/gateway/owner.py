"""Telling the owner something that no turn said: in the direct chat where an owner wrote last."""

from __future__ import annotations

from collections.abc import Mapping

from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.ports.channel import Outbound, Role
from bubbot.tape.entry import TapeEntry


class OwnerChat:
    """Knows where owners are reached. `tape` is the one that keeps the fact that they were told."""

    def __init__(self, lines: Mapping[str, ChannelRuntime], tape: str) -> None:
        self._lines = lines
        self._tape = tape

    async def __call__(self, key: str, text: str, fact: TapeEntry) -> bool:
        """See `NotifyOwner`."""
        for line in self._lines.values():
            access = line.rules.access
            if access is None:
                continue
            name = line.channel.name
            owners = frozenset(one for one in access.people(name) if access.role(name, one) is Role.OWNER)
            inbound = await line.inbox.direct(owners) if owners else None
            if inbound is None:
                continue
            parts = tuple(line.link.parts(Outbound(name, inbound.chat, text, inbound.thread)))
            intent = await line.outbox.say(inbound.session, key, parts, {self._tape: [fact]})
            await line.deliver(intent)
            return True
        return False
