"""Notices to the owner from outside any turn, in the direct chat in which an owner wrote last."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.requests import WriteNotice
from bubbot.ports.channel import Outbound, Role
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts


class OwnerChat:
    """Notifies an owner. `tape` records the facts about notices; `texts` are the bot's own sentences."""

    def __init__(self, channel_runtimes: Mapping[str, ChannelRuntime], tape: str, texts: Texts) -> None:
        self._channel_runtimes = channel_runtimes
        self._tape = tape
        self._texts = texts

    async def __call__(self, key: str, write: Callable[[Texts], str], fact: TapeEntry) -> bool:
        """Call `notify` with a fact on `tape`."""
        return await self.notify(self._tape, key, lambda texts: (write(texts), None), fact)

    async def notify(self, tape: str, key: str, write: WriteNotice, fact: TapeEntry) -> bool:
        """Store a notice and its fact in one transaction and send it; return false if no owner has a direct chat.

        `write` returns the notice and its buttons in the owner's language.
        """
        for channel_runtime in self._channel_runtimes.values():
            access = channel_runtime.policy.access
            if access is None:
                continue
            name = channel_runtime.channel.name
            owners = frozenset(person for person in access.list_people(name) if access.role(name, person) is Role.OWNER)
            inbound = await channel_runtime.inbox.find_direct_message(owners) if owners else None
            if inbound is None:
                continue
            text, buttons = write(await channel_runtime.find_texts(self._texts, inbound.sender.id))
            # People choose their own names and those of groups, so an address in a name must not be fetched.
            notice = Outbound(name, inbound.chat, text, inbound.thread, buttons=buttons, has_no_link_previews=True)
            parts = tuple(channel_runtime.link.split(notice))
            message = await channel_runtime.outbox.enqueue(inbound.session, key, parts, {tape: [fact]})
            await channel_runtime.deliver(message)
            return True
        return False
