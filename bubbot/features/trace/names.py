"""What people call chats and each other, as the page shows them instead of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType

from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.records import dataclass
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts

RECEIVED = "inbox/received"
MAX_FACTS_READ = 500
"""The newest messages of each channel among which names are looked for."""
MAX_SPEAKERS = 3
"""Names of people by which a group is called."""
MAX_NAME_CHARS = 40
PLATFORMS: Mapping[str, str] = MappingProxyType({"telegram": "Telegram", "discord": "Discord"})


@dataclass(frozen=True, slots=True)
class NameBook:
    """Names by ids, as the newest messages have them.

    Attributes:
        chats: by session; chats of the terminal have the names that were chosen for them.
        people: by account, such as `telegram:42`. A name that two people have stands with the id.
    """

    chats: Mapping[str, str]
    people: Mapping[str, str]

    @classmethod
    async def read(cls, reader: TapeBoundary, texts: Texts, session: str = "") -> NameBook:
        """Read the names that a viewer may see: an auditor may not read inboxes, and is shown ids.

        Args:
            reader: the tapes of the viewer.
            texts: the language.
            session: a session whose channel is enough; empty for the names of all channels.
        """
        if not reader.viewer.sees_all:
            return NO_NAMES
        inboxes = [f"{INBOX_PREFIX}{session.partition(':')[0]}"] if session else map(attrgetter("name"), await reader.tapes())
        queries = [
            TapeQuery(name, kinds=(Kind.EVENT,), names=(RECEIVED,), newest=True, limit=MAX_FACTS_READ)
            for name in inboxes
            if name.startswith(INBOX_PREFIX) and name != f"{INBOX_PREFIX}{TERMINAL_CHANNEL}"
        ]
        answers = await reader.fetch(queries)
        return cls.of((fact for facts in answers for fact in facts if not fact.erased), texts)

    @classmethod
    def of(cls, facts: Iterable[TapeEntry], texts: Texts) -> NameBook:
        """Make the book from messages, newest first."""
        people: dict[str, str] = {}
        direct: dict[str, str] = {}
        groups: dict[str, dict[str, None]] = {}
        for fact in facts:
            data, sender = fact.data, fact.data.get("sender")
            sender = sender if isinstance(sender, Mapping) else {}
            session, name = text_field(data, "session"), " ".join(text_field(sender, "name").split())[:MAX_NAME_CHARS]
            if not session or not name:
                continue
            account = f"{text_field(data, 'channel')}:{text_field(sender, 'id')}"
            people.setdefault(account, name)
            if data.get("direct") is True:
                direct.setdefault(session, account)
            else:
                groups.setdefault(session, {})[account] = None
        uses = Counter((account.partition(":")[0], name) for account, name in people.items())
        shown = {
            account: name if uses[account.partition(":")[0], name] == 1 else f"{name} ({account.partition(':')[2]})"
            for account, name in people.items()
        }
        chats = {
            session: texts.say("trace_chat_direct", name=shown[account], channel=_platform(session))
            for session, account in direct.items()
        }
        for session, accounts in groups.items():
            if session not in chats:
                names = [shown[account] for account in accounts]
                more = ["…"] if len(names) > MAX_SPEAKERS else []
                speakers = texts.say("list_comma").join([*names[:MAX_SPEAKERS], *more])
                chats[session] = texts.say("trace_chat_group", name=speakers, channel=_platform(session))
        return cls(chats, shown)

    def find_chat(self, session: str) -> str:
        """Return the name of a chat; its session if it has none."""
        return self.chats.get(session, session)

    def find_person(self, account: str) -> str:
        """Return the name of a person; the account if it has none."""
        return self.people.get(account, account)


NO_NAMES = NameBook(MappingProxyType({}), MappingProxyType({}))


def _platform(session: str) -> str:
    channel = session.partition(":")[0]
    return PLATFORMS.get(channel, channel)
