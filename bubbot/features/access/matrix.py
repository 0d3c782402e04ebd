"""Who may do what in which chat, as the code decides it: each cell is a question to what decides about messages, pages and readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bubbot.features.access.results import AccessRight
from bubbot.features.access.state import AccountKey
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings, Respond, SpaceRules
from bubbot.ports.access import NO_LISTED_PEOPLE, KnowsPeople, ListedPeople, MayRead
from bubbot.ports.channel import TERMINAL_CHANNEL, Inbound, Role, Sender
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.tape.boundary import OWNER, Viewer
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.query import TapeQuery

RECEIVED = "inbox/received"
MAX_MESSAGES_READ = 2_000
"""Newest messages of each channel among which its chats are found."""


@dataclass
class KnownChat:
    """A chat in which somebody wrote, or that a grant names.

    Attributes:
        session: its id.
        space: the space that it is part of; empty for none.
        is_direct: it has one person only.
        people: the ids of people who wrote there.
    """

    session: str
    space: str = ""
    is_direct: bool = False
    people: set[str] = field(default_factory=set)

    @property
    def channel(self) -> str:
        return self.session.partition(":")[0]


def queries_of_chats(channels: Iterable[str]) -> list[TapeQuery]:
    """Return the queries for the chats of channels."""
    return [
        TapeQuery(
            f"{INBOX_PREFIX}{channel}", kinds=(Kind.EVENT,), names=(RECEIVED,), newest=True, limit=MAX_MESSAGES_READ
        )
        for channel in channels
        if channel != TERMINAL_CHANNEL
    ]


def find_chats(messages: Iterable[TapeEntry], named: Iterable[str]) -> Mapping[str, KnownChat]:
    """Find chats in messages, newest first, and add those that grants name."""
    chats: dict[str, KnownChat] = {}
    for entry in messages:
        data = entry.data
        if entry.erased or not (session := text_field(data, "session")):
            continue
        new = KnownChat(session, text_field(data, "space"), data.get("direct") is True)
        sender = data.get("sender")
        chats.setdefault(session, new).people.add(text_field(sender, "id") if isinstance(sender, Mapping) else "")
    for session in named:
        chats.setdefault(session, KnownChat(session))
    return dict(sorted(chats.items()))


class AccessMatrix:
    """Asks for each person and each chat what the bot would ask."""

    def __init__(
        self,
        access: KnowsPeople,
        configured: Mapping[str, ListedPeople],
        chats: Mapping[str, KnownChat],
        *,
        may_read: MayRead,
        audited_sessions: Callable[[AccountKey], frozenset[str]],
    ) -> None:
        """Set who is asked.

        Args:
            access: knows roles and groups, as for the gate.
            configured: the lists of the configuration, by channel.
            chats: by session.
            may_read: knows which chat may read which.
            audited_sessions: returns what an auditor may see.
        """
        self._access, self._configured, self._chats = access, configured, chats
        self._may_read, self._audited_sessions = may_read, audited_sessions
        self._policies: dict[str, AdmissionPolicy] = {}

    def list_rights(self, people: Mapping[AccountKey, str]) -> Iterator[AccessRight]:
        """Yield the rights of people, by account with a name, in chats where they have any."""
        for account, name in people.items():
            spoken = {session for session, chat in self._chats.items() if self._may_speak(account, chat)}
            viewer = self._viewer(account)
            role = self._access.role(*account)
            for session in self._chats:
                through = tuple(sorted(reader for reader in spoken if self._may_read(reader, session)))
                is_here = session in spoken
                right = AccessRight(
                    person=":".join(filter(None, account)),
                    name=name,
                    role=role.value,
                    session=session,
                    read=is_here or bool(through),
                    write=is_here,
                    # What a chat remembers is shown to whoever speaks in it; an owner may ask for that of any chat.
                    memory=is_here or role is Role.OWNER,
                    audit=viewer.may_see(session),
                    through=through,
                )
                if right.rights:
                    yield right

    def _viewer(self, account: AccountKey) -> Viewer:
        """Return what the trace page takes somebody for."""
        if self._access.role(*account).at_least(Role.OWNER):
            return OWNER
        return Viewer("", self._audited_sessions(account))

    def _may_speak(self, account: AccountKey, chat: KnownChat) -> bool:
        """Ask the gate about a message of this person in this chat that is addressed to the bot."""
        channel, number = account
        if channel != chat.channel or (chat.is_direct and number not in chat.people):
            return False
        _, place, thread = (*chat.session.split(":", 2), "")[:3]
        message = Inbound(
            channel,
            "",
            place,
            Sender(number, ""),
            "",
            "",
            thread=thread,
            direct=chat.is_direct,
            addressed=True,
            space=chat.space,
        )
        return isinstance(self._policy(channel).decide(message), Respond)

    def _policy(self, channel: str) -> AdmissionPolicy:
        if channel not in self._policies:
            listed = self._configured.get(channel, NO_LISTED_PEOPLE)
            settings = AdmissionSettings(
                listed.owners,
                listed.admins,
                listed.members,
                listed.groups,
                pairing=False,
                spaces={space: SpaceRules(open=True) for space in listed.groups},
            )
            self._policies[channel] = AdmissionPolicy(settings, self._access.role, lambda: 0.0, self._access.audience)
        return self._policies[channel]
