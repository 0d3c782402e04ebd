"""Who may see which canary now: the privacy law as a small model that knows what people did, and nothing of the bot."""

from __future__ import annotations

import re
from base64 import b64decode
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

Account: TypeAlias = tuple[str, str]
CANARY = re.compile(r"zq\d{5}x")
"""A word that is written once, in one place. Whoever shows it elsewhere needs a reason that is a fact."""
SECRET = re.compile(r"zs\d{5}x")
"""A word that a sub-task makes up for itself."""


_IMAGE = re.compile(r"base64,([A-Za-z0-9+/]+=*)")


def canaries(text: object) -> set[str]:
    """Return the canaries in a text, or in the text of anything else; in the bytes of images, too."""
    words = str(text)
    images = [b64decode(image).decode(errors="replace") for image in _IMAGE.findall(words)]
    return {word for each in (words, *images) for word in CANARY.findall(each)}


@dataclass(frozen=True)
class Place:
    """A chat or a thread.

    Attributes:
        person: the account that a direct chat is with; None for a group.
        is_owner: it is an owner's direct chat.
        speakers: who writes in a group.
    """

    channel: str
    chat: str
    thread: str = ""
    person: str | None = None
    is_owner: bool = False
    speakers: tuple[str, ...] = ()

    def has(self, channel: str, person: str) -> bool:
        """Return true if an account is one of its people."""
        return channel == self.channel and (person == self.person or person in self.speakers)

    @property
    def session(self) -> str:
        return ":".join(part for part in (self.channel, self.chat, self.thread) if part)

    @property
    def chat_session(self) -> str:
        """The chat that a thread belongs to."""
        return f"{self.channel}:{self.chat}"


@dataclass
class Oracle:
    """What people wrote and granted, and who may therefore see what.

    Attributes:
        places: all chats and threads, by session.
        present: by session, what was written there and what got there for a good reason: what its tape may hold.
        shown: by session, what its model was shown and may therefore repeat, such as memory in the prompt.
        said: by session, what people and the bot said there in messages: what a grant covers.
        repeated: by session, what the bot said there.
        kept: by account, what its person keeps as own memory.
        shared: what everybody who may speak shares.
        linked: the accounts of each person who has several; the first one keeps what is new.
        jobs: what is in jobs and on cards, which owners see in their direct chats.
        readings: which session (first) may be read from which other one.
        audits: who may look at which session on the trace page.
        secrets: by session, what its sub-tasks made up and its people or model have read on the tape since.
    """

    places: dict[str, Place]
    present: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    shown: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    said: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    repeated: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    kept: defaultdict[Account, set[str]] = field(default_factory=lambda: defaultdict(set))
    shared: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    linked: list[tuple[Account, ...]] = field(default_factory=list)
    readings: set[tuple[str, str]] = field(default_factory=set)
    audits: set[tuple[str, str]] = field(default_factory=set)
    secrets: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _guests: set[str] = field(default_factory=set)

    def visible(self, session: str, *, elsewhere: bool = False) -> set[str]:
        """Return what may be shown in a session now; `elsewhere`: for an answer that goes to another chat."""
        place = self.places[session]
        seen = self.present[session] | self.shared
        sources = [source for source, reader in self.readings if reader == session]
        if place.thread:
            sources.append(place.chat_session)  # whoever reads a thread can read its chat
        for source in sources:
            seen |= self.said[source]
        if not elsewhere:
            seen |= self.shown[session]
        if place.person is not None and not elsewhere:
            seen |= self.own_memory((place.channel, place.person))
        return seen | self.jobs if place.is_owner else seen

    def audited(self, person: str) -> set[str]:
        """Return what somebody may see on the trace page: the tapes that were granted, or all that there is."""
        if any(place.is_owner and place.session == person for place in self.places.values()):
            return set().union(*self.present.values(), self.shared, self.jobs, *self.kept.values())
        return self.audited_alone(person)

    def audited_alone(self, person: str) -> set[str]:
        """Return what somebody may see of the tapes that were granted, though it is an owner."""
        return set().union(*(self.present[session] for auditor, session in self.audits if auditor == person))

    def person(self, account: Account) -> tuple[Account, ...]:
        """Return all accounts of a person."""
        return next((accounts for accounts in self.linked if account in accounts), (account,))

    def own_memory(self, account: Account) -> set[str]:
        """Return what a person keeps."""
        return set().union(*(self.kept[each] for each in self.person(account)))

    def of_person(self, account: Account) -> set[str]:
        """Return what somebody may be given about themselves: what is in the chats that they are in, and what they keep."""
        accounts = self.person(account)
        chats = [place for place in self.places.values() if any(place.has(*each) for each in accounts)]
        return set().union(self.own_memory(account), *(self.present[place.session] for place in chats))

    def keep(self, session: str, scope: str, text: str) -> None:
        """Somebody keeps a text; what is kept in a group, or by a member for everybody, is kept nowhere."""
        place = self.places[session]
        if place.person is None:
            return
        if scope == "user":
            self.kept[self.person((place.channel, place.person))[0]] |= canaries(text)
        elif scope == "workspace" and place.is_owner:
            self.shared |= canaries(text)

    def admit(self, channel: str, person: str) -> None:
        """Somebody may speak from now on, who perhaps was a stranger."""
        place = Place(channel, person, person=person)
        if place.session not in self.places:
            self.places[place.session] = place
            self._guests.add(place.session)

    def send_away(self, channel: str, person: str) -> None:
        """Somebody is a stranger again, whom nothing but an owner's yes let in."""
        session = f"{channel}:{person}"
        if session in self._guests:
            self._guests.discard(session)
            del self.places[session]

    def link(self, first: Account, second: Account) -> None:
        """Two accounts belong to one person from now on."""
        joined = tuple(dict.fromkeys([*self.person(first), *self.person(second)]))
        self.linked = [*(accounts for accounts in self.linked if not set(accounts) & set(joined)), joined]

    def unlink(self, account: Account) -> None:
        """An account is a person of its own again."""
        left = [tuple(each for each in accounts if each != account) for accounts in self.linked]
        self.linked = [accounts for accounts in left if len(accounts) > 1]
