"""Admission: whether an inbound may cause a turn. Decided by numeric ids alone."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bubbot.access import ListedPeople, higher
from bubbot.identity import is_id
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.tape.query import fold_text

CHATS_WATCHED = 1000
"""Chats of which the loop guard remembers what bots did; the one that was quiet longest is forgotten first."""
ALBUMS_REMEMBERED = 100
"""Albums of which is known that they are for the bot; the parts of one come within seconds."""
MINUTE_SECONDS = 60.0
MARKS = 16
"""Characters looked at to find the letter below a pile of marks."""


@dataclass(frozen=True, slots=True)
class SpaceRules:
    """What an operator decides about a space, such as a Discord server: it counts there and nowhere else.

    `open`: everybody there may speak, as a member. `roles` and `admin_roles`: the platform's own roles whose people are
    members or admins. `ignored`: chats in which nothing is for the bot. `called`: in place of the channel's names.
    """

    open: bool = False
    admins: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    admin_roles: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    listen: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    called: tuple[str, ...] = ()

    def role(self, sender: Sender) -> Role:
        """What somebody may do here by this alone."""
        held = frozenset(sender.roles)
        if sender.id in self.admins or held & self.admin_roles:
            return Role.ADMIN
        return Role.MEMBER if self.open or sender.id in self.members or held & self.roles else Role.STRANGER


_NO_SPACE = SpaceRules()


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """What an operator decides about a channel. People, bots and chats are named by numeric id.

    `groups`: chats whose people may all speak, as members. `always`: chats in which every message is for the bot.
    `listen`: chats of which messages that are not for the bot are recorded. `called`: names by which the bot can be
    addressed. `pairing`: whether strangers get a code. `bots`: other bots that may speak, as members.
    `spaces` by numeric id. `bot_depth`: turns that bots may cause in a chat without a person's message between them; `bot_rate`: in a minute.
    """

    owners: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    listen: frozenset[str] = frozenset()
    called: tuple[str, ...] = ()
    pairing: bool = True
    bots: frozenset[str] = frozenset()
    spaces: Mapping[str, SpaceRules] = field(default_factory=dict)
    bot_depth: int = 3
    bot_rate: int = 6

    @property
    def listed(self) -> ListedPeople:
        """The people, as `AccessService` takes them."""
        return ListedPeople(self.owners, self.admins, self.members)


@dataclass(frozen=True, slots=True)
class Respond:
    """A turn, in this role."""

    role: Role


@dataclass(frozen=True, slots=True)
class OfferPairing:
    """A stranger in a direct chat: a pairing code, where there is one to give, and no turn."""


@dataclass(frozen=True, slots=True)
class RecordOnly:
    """Recorded without a turn. `role` is that of the sender."""

    role: Role


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing: no turn, no record, no answer. `reason` is a word for the log."""

    reason: str


Decision: TypeAlias = Respond | OfferPairing | RecordOnly | Ignore
RoleOf: TypeAlias = Callable[[str, str], Role]
"""The role by channel and numeric id: `AccessService.role`."""


@dataclass
class _BotTraffic:
    """What bots did in a chat: turns since a person last spoke, and when turns were, newest last."""

    depth: int = 0
    turns: deque[float] = field(default_factory=deque)


class AdmissionPolicy:
    """Decides for one channel. `monotonic` gives seconds; `where` says which chat a chat is now.

    Deciding is pure but for the loop guard, which counts the turns that bots cause, and for albums, whose first message
    speaks for the rest: ask once for each message, in the order they came.
    """

    def __init__(self, settings: AdmissionSettings, role_of: RoleOf, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._role_of = role_of
        self._monotonic = monotonic
        self._names = _folded(settings.called)
        self._names_of = {space: _folded(one.called) for space, one in settings.spaces.items() if one.called}
        self.where: Callable[[str], str] = lambda chat: chat
        self._bots: OrderedDict[str, _BotTraffic] = OrderedDict()
        self._albums: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def decide(self, inbound: Inbound) -> Decision:
        """What becomes of a message."""
        if not is_id(inbound.sender.id):
            return Ignore("no numeric id")
        if self._is_listed(inbound.chat, self._space(inbound).ignored):
            return Ignore("ignored")
        if inbound.sender.bot:
            return self._of_bot(inbound)
        role = self._role(inbound)
        if role is Role.STRANGER:
            return OfferPairing() if inbound.direct and self._settings.pairing else Ignore("stranger")
        self._person_spoke(inbound.chat)
        return Respond(role) if self._is_meant(inbound) else self._unaddressed(inbound, role)

    def role(self, inbound: Inbound) -> Role:
        """The role in which a message is spoken, whether or not it is for the bot; `stranger`: it may not speak.

        For what is no message: an edit, or an inbound that was accepted earlier. Counts nothing.
        """
        if not is_id(inbound.sender.id):
            return Role.STRANGER
        if inbound.sender.bot:
            return Role.MEMBER if inbound.sender.id in self._settings.bots else Role.STRANGER
        return self._role(inbound)

    def _role(self, inbound: Inbound) -> Role:
        own = self._role_of(inbound.channel, inbound.sender.id)
        role = higher(self._settings.listed.role(inbound.sender.id), own)
        if inbound.direct:
            return role
        role = higher(role, self._space(inbound).role(inbound.sender))
        return higher(role, Role.MEMBER) if self._is_listed(inbound.chat, self._settings.groups) else role

    def _space(self, inbound: Inbound) -> SpaceRules:
        return self._settings.spaces.get(inbound.space, _NO_SPACE)

    def _is_meant(self, inbound: Inbound) -> bool:
        meant = (
            inbound.direct
            or inbound.addressed
            or self._is_listed(inbound.chat, self._settings.always | self._space(inbound).always)
            or self._is_called(inbound)
        )
        if not inbound.group:
            return meant
        album = (inbound.chat, inbound.sender.id, inbound.group)  # only its first picture names the bot
        if meant:
            self._albums[album] = None
            while len(self._albums) > ALBUMS_REMEMBERED:
                self._albums.popitem(last=False)
        return album in self._albums

    def _is_listed(self, chat: str, listed: frozenset[str]) -> bool:
        """Whether a list has the chat, by the id its session began with or by the one it has now."""
        return chat in listed or self.where(chat) in listed

    def _is_called(self, inbound: Inbound) -> bool:
        names = self._names_of.get(inbound.space, self._names)
        folded = fold_text(inbound.text) if names else ""
        return any(is_called(name, folded) for name in names)

    def _unaddressed(self, inbound: Inbound, role: Role) -> Decision:
        listens = self._is_listed(inbound.chat, self._settings.listen | self._space(inbound).listen)
        return RecordOnly(role) if listens else Ignore("not addressed")

    def _of_bot(self, inbound: Inbound) -> Decision:
        """A bot that is listed speaks as a member, whatever else it was granted: nobody answers for what it says."""
        if inbound.sender.id not in self._settings.bots:
            return Ignore("bot")
        if not self._is_meant(inbound):
            return self._unaddressed(inbound, Role.MEMBER)
        return Respond(Role.MEMBER) if self._bot_may_cause_turn(inbound.chat) else Ignore("loop")

    def _person_spoke(self, chat: str) -> None:
        if chat in self._bots:
            self._bots[chat].depth = 0

    def _bot_may_cause_turn(self, chat: str) -> bool:
        now = self._monotonic()
        seen = self._bots.setdefault(chat, _BotTraffic())
        self._bots.move_to_end(chat)
        while len(self._bots) > CHATS_WATCHED:
            self._bots.popitem(last=False)
        while seen.turns and now - seen.turns[0] >= MINUTE_SECONDS:
            seen.turns.popleft()
        if seen.depth >= self._settings.bot_depth or len(seen.turns) >= self._settings.bot_rate:
            return False
        seen.depth += 1
        seen.turns.append(now)
        return True


def _folded(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for one in names if (name := fold_text(one).strip()))


def is_called(name: str, text: str) -> bool:
    """Whether a name stands in a text as a word of its own; both as `fold_text` gives them.

    A word ends where letters, digits and marks end, or where the script changes between those that put spaces
    between words, and those that do not. Within Chinese, Hiragana, Thai and the like a name may stand anywhere;
    Korean puts its particles right after a name; a name in Katakana is not part of a longer run of Katakana.
    """
    start = text.find(name)
    while name and start >= 0:
        end = start + len(name)
        before, after = _script(text[max(0, start - MARKS) : start]), _after(text, end)
        if _apart(before, _first(name)) and _apart(_script(name), after):
            return True
        start = text.find(name, start + 1)
    return False


_FREE = frozenset({"CJK", "HIRAGANA", "BOPOMOFO", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"})
"""Scripts, by the first word of their characters' names, in which words follow each other without a space."""


def _apart(left: str, right: str) -> bool:
    """Whether a word can end between two characters of these scripts."""
    return left != right or left in ("", "free")


def _script(text: str) -> str:
    """The script of the last letter or digit of a text, past the marks on it; empty where it ends in none."""
    for char in reversed(text):
        if not unicodedata.category(char).startswith("M"):
            return _of(char)
    return ""


def _first(text: str) -> str:
    return _of(text[0])


def _after(text: str, end: int) -> str:
    """The script of what follows; a mark belongs to the letter before it, so the word goes on."""
    if end >= len(text):
        return ""
    if unicodedata.category(text[end]).startswith("M"):
        return _script(text[max(0, end - MARKS) : end])
    return _of(text[end])


def _of(char: str) -> str:
    if not (char.isalnum() or char == "_"):
        return ""
    script = unicodedata.name(char, "").partition(" ")[0]
    return "free" if script in _FREE else "katakana" if script.startswith("KATAKANA") else "spaced"
