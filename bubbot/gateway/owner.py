"""Owners: notices to them from outside any turn, in the direct chat in which one wrote last, and their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.inbox_views import RECEIVED
from bubbot.gateway.presses import escape_label
from bubbot.gateway.requests import WriteNotice
from bubbot.ports.channel import Inbound, Outbound, Role
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.texts import Texts

MAX_FACTS_READ = 500
"""Newest messages of a channel, or of a shard of it, to search for the names of owners."""


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
        inbound = await self.find()
        if inbound is None:
            return False
        channel_runtime = self._channel_runtimes[inbound.channel]
        text, buttons = write(await channel_runtime.find_texts(self._texts, inbound.sender.id))
        # People choose their own names and those of groups, so an address in a name must not be fetched.
        notice = Outbound(
            inbound.channel, inbound.chat, text, inbound.thread, buttons=buttons, has_no_link_previews=True
        )
        parts = tuple(channel_runtime.link.split(notice))
        message = await channel_runtime.outbox.enqueue(inbound.session, key, parts, {tape: [fact]})
        await channel_runtime.deliver(message)
        return True

    async def find(self) -> Inbound | None:
        """Return the newest message of an owner in a direct chat, on the first channel that has one; None without one."""
        for name, channel_runtime in self._channel_runtimes.items():
            access = channel_runtime.policy.access
            people = access.list_people(name) if access else ()
            owners = frozenset(person for person in people if access and access.role(name, person) is Role.OWNER)
            inbound = await channel_runtime.inbox.find_direct_message(owners) if owners else None
            if inbound is not None:
                return inbound
        return None


class OwnerNames:
    """Finds the names of those who decide about the chats of a channel, as far as somebody may know them."""

    def __init__(self, list_owners: Callable[[str], Collection[str]], open_tape: Callable[[str], TapeService]) -> None:
        """Take what lists the numeric ids of the owners on a channel, and what opens tapes of the system."""
        self._list_owners, self._open_tape = list_owners, open_tape

    async def find(self, channel: str, sessions: Collection[str] | None = None) -> tuple[str, ...]:
        """Return the names of the owners who wrote lately, as Markdown, escaped, since people choose their names.

        Args:
            sessions: the chats of whoever asks: owners who wrote elsewhere only are not named; None: all are.
        """
        owners, names, found = self._list_owners(channel), dict[str, str](), list[TapeEntry]()
        for tape in self._open_tape(f"{INBOX_PREFIX}{channel}").shards() if owners else ():
            query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(RECEIVED,), newest=True, limit=MAX_FACTS_READ)
            found += [entry for entry in (await tape.fetch([query]))[0] if not entry.erased]
        for entry in sorted(found, key=lambda entry: entry.date):
            sender = entry.data.get("sender")
            if not isinstance(sender, Mapping) or (number := text_field(sender, "id")) not in owners:
                continue
            if sessions is None or text_field(entry.data, "session") in sessions:
                names[number] = escape_label(text_field(sender, "name")) or number  # the newest name stays
        return tuple(sorted(names.values()))
