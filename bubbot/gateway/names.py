"""Names of chats and people, to show instead of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from bubbot.errors import TapeCorrupt
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, text_field
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts

if TYPE_CHECKING:  # commands that print names load no boundary
    from bubbot.tape.boundary import TapeBoundary

ACCESS_TAPE = "bubbot/access"
RECEIVED = "inbox/received"
GROUP_CALLED, GROUP_DECIDED = "inbox/called", "access/group"
"""The facts that may have the title of a group: a notice about it and an owner's decision."""
MAX_FACTS_READ = 500
"""Newest messages of each channel to search for names."""
MAX_SPEAKERS = 3
"""Names of people in the name of a group."""
MAX_NAME_CHARS = 40
PLATFORMS: Mapping[str, str] = MappingProxyType({"telegram": "Telegram", "discord": "Discord"})


Value = TypeVar("Value")


class EntryFetcher(Protocol):
    """An object that answers queries: a tape, a store, or a boundary in front of one."""

    async def fetch(self, queries: Sequence[TapeQuery], /) -> list[tuple[TapeEntry, ...]]: ...


class NameBook(Struct, frozen=True):
    """Names by ids, from the newest messages.

    Attributes:
        chats: by session; chats of the terminal have their chosen names.
        people: by account, such as `telegram:42`. A name that two people share includes the id.
    """

    chats: Mapping[str, str]
    people: Mapping[str, str]

    @classmethod
    async def read(cls, reader: TapeBoundary, texts: Texts, session: str = "") -> NameBook:
        """Read the names that a viewer may see: an auditor must not read inboxes and sees ids.

        Args:
            session: read only the channel of this session; empty for all channels.
        """
        if not reader.viewer.sees_all:
            return NO_NAMES
        if session:
            return await cls.find(reader, texts, [session])
        names = [tape.name for tape in await reader.tapes()]
        return await cls.find(
            reader, texts, [name.removeprefix(INBOX_PREFIX) for name in names if name.startswith(INBOX_PREFIX)]
        )

    @classmethod
    async def find(cls, reader: EntryFetcher, texts: Texts, sessions: Iterable[str]) -> NameBook:
        """Read the names on the channels of these sessions or accounts. The caller must check who may see them."""
        channels = sorted({session.partition(":")[0] for session in sessions} - {"", TERMINAL_CHANNEL})
        if not channels:
            return NO_NAMES
        inboxes = [f"{INBOX_PREFIX}{channel}" for channel in channels]
        # Newest facts come first. A title is rare and must not be missed behind messages.
        places = [
            (ACCESS_TAPE, GROUP_DECIDED),
            *((name, fact) for fact in (GROUP_CALLED, RECEIVED) for name in inboxes),
        ]
        answers = await fetch_readable(
            reader,
            [
                TapeQuery(tape, kinds=(Kind.EVENT,), names=(fact,), newest=True, limit=MAX_FACTS_READ)
                for tape, fact in places
            ],
        )
        return cls.of((fact for facts in answers for fact in facts if not fact.erased), texts)

    @classmethod
    def of(cls, facts: Iterable[TapeEntry], texts: Texts) -> NameBook:
        """Make the book from facts; the first fact about a chat or a person counts."""
        titles: dict[tuple[str, str], str] = {}
        people: dict[str, str] = {}
        chats: dict[str, JsonObject] = {}
        speakers: dict[str, dict[str, None]] = {}
        for fact in facts:
            data = fact.data
            channel, session = text_field(data, "channel"), text_field(data, "session")
            if fact.name != RECEIVED:
                if title := _clean(text_field(data, "title")):
                    titles.setdefault((channel, text_field(data, "group") or text_field(data, "chat")), title)
                continue
            sender = data.get("sender")
            if session and isinstance(sender, Mapping) and (name := _clean(text_field(sender, "name"))):
                account = f"{channel}:{text_field(sender, 'id')}"
                people.setdefault(account, name)
                chats.setdefault(session, data)
                speakers.setdefault(session, {})[account] = None
        uses = Counter((account.partition(":")[0], name) for account, name in people.items())
        shown = {
            account: name if uses[account.partition(":")[0], name] == 1 else f"{name} ({account.partition(':')[2]})"
            for account, name in people.items()
        }

        def describe(session: str, data: JsonObject) -> str:
            channel, chat, space, thread = (text_field(data, key) for key in ("channel", "chat", "space", "thread"))
            names = [shown[account] for account in speakers[session]]
            title = titles.get((channel, chat)) or titles.get((channel, space))
            if not title:
                title = texts.say("list_comma").join([*names[:MAX_SPEAKERS], *(["…"] if names[MAX_SPEAKERS:] else [])])
            sentence = "trace_chat_direct" if data.get("direct") is True else "trace_chat_group"
            name = texts.say(sentence, name=title, channel=PLATFORMS.get(channel, channel))
            return texts.say("trace_chat_thread", name=name, thread=thread) if thread else name

        described = {session: describe(session, data) for session, data in chats.items()}
        for session, data in chats.items():  # a whole chat gets the name of its threads without their own part
            place = ":".join(session.split(":", 2)[:2])
            described.setdefault(place, describe(session, {**data, "thread": ""}))
        same = Counter(described.values())
        named = {session: f"{name} ({session})" if same[name] > 1 else name for session, name in described.items()}
        return cls(named, shown)

    def find_owner(self, scope: str, name: str) -> str:
        """Return the name of the owner of a budget: a chat, a person, or something else."""
        return {"chat": self.find_chat, "user": self.find_person}.get(scope, str)(name)

    def find_chat(self, session: str) -> str:
        """Return the name of a chat, or its session."""
        return self.chats.get(session, session)

    def find_person(self, account: str) -> str:
        """Return the name of a person, or the account."""
        return self.people.get(account, account)

    def name_chats(self, by_session: Mapping[str, Value]) -> dict[str, Value]:
        """Replace sessions by the names of their chats, in the same order."""
        return {self.find_chat(session): value for session, value in by_session.items()}

    def name_people(self, by_account: Mapping[str, Value]) -> dict[str, Value]:
        """Replace accounts by the names of their people, in the same order."""
        channels = {account.partition(":")[0] for account in by_account}
        names = {account: self.find_person(account) for account in by_account}
        twice = Counter(names.values()) if len(channels) > 1 else Counter[str]()
        return {
            f"{name} ({account})" if twice[name] > 1 else name: by_account[account] for account, name in names.items()
        }


NO_NAMES = NameBook(MappingProxyType({}), MappingProxyType({}))


async def name_chat(reader: EntryFetcher, texts: Texts, session: str) -> str:
    """Return the name of one chat, or its session."""
    return (await NameBook.find(reader, texts, [session])).find_chat(session)


async def fetch_readable(reader: EntryFetcher, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
    """Answer queries; one that meets a damaged entry finds nothing: the page of its tape reports the damage."""
    try:
        return await reader.fetch(queries)
    except TapeCorrupt:
        if len(queries) == 1:
            return [()]
    return [found for query in queries for found in await fetch_readable(reader, [query])]


def _clean(name: str) -> str:
    return " ".join(name.split())[:MAX_NAME_CHARS]
