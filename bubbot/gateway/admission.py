"""Admission: decide only by numeric ids if an inbound may cause a turn."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from msgspec import Struct

from bubbot.identity import is_id
from bubbot.ports.access import Audience, ListedPeople, higher_role
from bubbot.ports.channel import BotAdded, Inbound, Role, Sender
from bubbot.tape.words import fold_text

CHATS_WATCHED = 1000
"""Chats whose bot turns the loop guard remembers; it forgets the chat that was quiet longest."""
STRANGER_REASON = "stranger"
"""The reason to ignore people who may not speak."""
ALBUMS_REMEMBERED = 100
"""Albums remembered as addressed to the bot; the parts of an album arrive within seconds."""
MINUTE_SECONDS = 60.0
MAX_COMBINING_MARKS = 16
"""Characters to search backwards for the letter below a pile of combining marks."""


class SpaceRules(Struct, frozen=True):
    """An operator's rules for one space, such as a Discord server; they apply only there.

    Attributes:
        open: everyone there may speak, as a member.
        admins: ids of people who are admins there.
        members: ids of people who are members there.
        roles: the platform's roles whose holders are members.
        admin_roles: the platform's roles whose holders are admins.
        respond_to_all: chats in which every message is for the bot.
        record_only: chats that are recorded even if a message is not for the bot.
        ignored: chats in which nothing is for the bot.
        trigger_names: names of the bot; if not empty, they replace those of the channel.
    """

    open: bool = False
    admins: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    admin_roles: frozenset[str] = frozenset()
    respond_to_all: frozenset[str] = frozenset()
    record_only: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    trigger_names: tuple[str, ...] = ()

    def role(self, sender: Sender) -> Role:
        """Return the role that these rules alone give the sender."""
        sender_roles = frozenset(sender.roles)
        if sender.id in self.admins or sender_roles & self.admin_roles:
            return Role.ADMIN
        return Role.MEMBER if self.open or sender.id in self.members or sender_roles & self.roles else Role.STRANGER


_NO_SPACE = SpaceRules()


class AdmissionSettings(Struct, frozen=True):
    """An operator's rules for one channel. People, bots and chats are named by numeric id.

    Attributes:
        owners: people who are owners.
        admins: people who are admins.
        members: people who may speak.
        groups: chats in which everyone may speak, as a member.
        respond_to_all: chats in which every message is for the bot.
        record_only: chats that are recorded even if a message is not for the bot.
        trigger_names: names of the bot in messages.
        pairing: offer a code to strangers.
        bots: other bots that may speak, as members.
        spaces: rules of single spaces, by the numeric id of the space.
        bot_depth: turns that bots may cause in a chat without a person's message in between.
        bot_rate: turns that bots may cause in a chat per minute.
    """

    owners: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    respond_to_all: frozenset[str] = frozenset()
    record_only: frozenset[str] = frozenset()
    trigger_names: tuple[str, ...] = ()
    pairing: bool = True
    bots: frozenset[str] = frozenset()
    spaces: Mapping[str, SpaceRules] = msgspec.field(default_factory=dict)
    bot_depth: int = 3
    bot_rate: int = 6

    @property
    def listed_people(self) -> ListedPeople:
        """The configured people and open groups, as `AccessService` takes them."""
        spaces = frozenset(space for space, rules in self.spaces.items() if rules.open)
        return ListedPeople(self.owners, self.admins, self.members, self.groups | spaces)


class Respond(Struct, frozen=True):
    """Run a turn in this role."""

    role: Role


class OfferPairing(Struct, frozen=True):
    """Offer a stranger in a direct chat a pairing code, if available, and run no turn."""


class RecordOnly(Struct, frozen=True):
    """Record the message with its sender's role, without a turn."""

    role: Role


class Ignore(Struct, frozen=True):
    """Run no turn, record and answer nothing; `reason` is a word for the log.

    `is_call`: a stranger wrote to the bot in a group.
    """

    reason: str
    is_call: bool = False


Decision: TypeAlias = Respond | OfferPairing | RecordOnly | Ignore
AudienceOf: TypeAlias = Callable[[str, str], Audience | None]
"""Return the audience that an owner chose for a group of a channel; None if undecided: `AccessService.audience`."""
RoleOf: TypeAlias = Callable[[str, str], Role]
"""Return the role for a channel and a numeric id: `AccessService.role`."""


@dataclass
class _BotTraffic:
    """The turns that bots caused in a chat.

    Attributes:
        depth: turns since a person last spoke.
        turns: their times, newest last.
    """

    depth: int = 0
    turns: deque[float] = field(default_factory=deque)


class AdmissionPolicy:
    """Decides for one channel.

    Decisions are pure except for the loop guard, which counts the turns that bots cause, and for albums, whose first
    message decides for the rest: call `decide` once for each message, in order of arrival.

    Attributes:
        current_chat: returns the current id of a chat.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        role_of: RoleOf,
        monotonic: Callable[[], float],
        audience_of: AudienceOf = lambda _channel, _group: None,
    ) -> None:
        self._settings = settings
        self._audience_of = audience_of
        self._listed = settings.listed_people
        self._role_of = role_of
        self._monotonic = monotonic
        self._names = _fold_names(settings.trigger_names)
        self._names_of = {
            space: _fold_names(rules.trigger_names) for space, rules in settings.spaces.items() if rules.trigger_names
        }
        self.current_chat: Callable[[str], str] = lambda chat: chat
        self._bots: OrderedDict[str, _BotTraffic] = OrderedDict()
        self._albums: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def decide(self, inbound: Inbound) -> Decision:
        """Decide what to do with a message."""
        if not is_id(inbound.sender.id):
            return Ignore("no numeric id")
        if self._is_listed(inbound.chat, self._space(inbound).ignored) or self.audience(inbound) == "nobody":
            return Ignore("ignored")
        if inbound.sender.bot:
            return self._decide_bot(inbound)
        role = self._role(inbound)
        if role is Role.STRANGER:
            if inbound.direct and self._settings.pairing:
                return OfferPairing()
            return Ignore(STRANGER_REASON, is_call=not inbound.direct and self._is_addressed(inbound))
        self._reset_bot_depth(inbound.chat)
        return Respond(role) if self._is_for_bot(inbound) else self._decide_unaddressed(inbound, role)

    def role(self, inbound: Inbound) -> Role:
        """Return the role of a message's sender, even if the message is not for the bot; strangers may not speak.

        Use it for an edit, or an inbound that was accepted earlier. It counts nothing.
        """
        if not is_id(inbound.sender.id):
            return Role.STRANGER
        if inbound.sender.bot:
            return Role.MEMBER if inbound.sender.id in self._settings.bots else Role.STRANGER
        return self._role(inbound)

    def _role(self, inbound: Inbound) -> Role:
        listed = self._listed.role(inbound.sender.id)
        if listed is Role.OWNER:  # the highest role, and a turn asks five times
            return listed
        role = higher_role(listed, self._role_of(inbound.channel, inbound.sender.id))
        if inbound.direct:
            return role
        role = higher_role(role, self._space(inbound).role(inbound.sender))
        return higher_role(role, Role.MEMBER) if self.is_open(inbound) else role

    def _space(self, inbound: Inbound) -> SpaceRules:
        return self._settings.spaces.get(inbound.space, _NO_SPACE)

    def is_open(self, event: Inbound | BotAdded) -> bool:
        """Return true if everyone in the group of an event may speak, regardless of the rules of its space."""
        return self._is_listed(event.chat, self._settings.groups) or self.audience(event) == "everybody"

    def audience(self, event: Inbound | BotAdded) -> Audience | None:
        """Return the audience that an owner chose for the chat of an event, or else for its space."""
        if isinstance(event, Inbound) and event.direct:
            return None
        for group in dict.fromkeys((event.chat, self.current_chat(event.chat), event.space)):
            if group and (audience := self._audience_of(event.channel, group)) is not None:
                return audience
        return None

    def _is_addressed(self, inbound: Inbound) -> bool:
        return inbound.direct or inbound.addressed or bool(inbound.agents) or self._is_called(inbound)

    def _is_for_bot(self, inbound: Inbound) -> bool:
        respond_to_all = self._settings.respond_to_all | self._space(inbound).respond_to_all
        is_for_bot = self._is_addressed(inbound) or self._is_listed(inbound.chat, respond_to_all)
        if not inbound.group:
            return is_for_bot
        album = (inbound.chat, inbound.sender.id, inbound.group)  # only its first picture names the bot
        if is_for_bot:
            self._albums[album] = None
            while len(self._albums) > ALBUMS_REMEMBERED:
                self._albums.popitem(last=False)
        return album in self._albums

    def _is_listed(self, chat: str, ids: frozenset[str]) -> bool:
        """Return true if the list has the id with which the chat's session began, or its current id."""
        return bool(ids) and (chat in ids or self.current_chat(chat) in ids)

    def _is_called(self, inbound: Inbound) -> bool:
        names = self._names_of.get(inbound.space, self._names)
        folded = fold_text(inbound.text) if names else ""
        return any(is_called(name, folded) for name in names)

    def _decide_unaddressed(self, inbound: Inbound, role: Role) -> Decision:
        is_recorded = self._is_listed(inbound.chat, self._settings.record_only | self._space(inbound).record_only)
        return RecordOnly(role) if is_recorded else Ignore("not addressed")

    def _decide_bot(self, inbound: Inbound) -> Decision:
        """Decide about a bot. A listed one is a member, even if granted more: nobody is responsible for its words."""
        if inbound.sender.id not in self._settings.bots:
            return Ignore("bot")
        if not self._is_for_bot(inbound):
            return self._decide_unaddressed(inbound, Role.MEMBER)
        return Respond(Role.MEMBER) if self._bot_may_cause_turn(inbound.chat) else Ignore("loop")

    def _reset_bot_depth(self, chat: str) -> None:
        if chat in self._bots:
            self._bots[chat].depth = 0

    def _bot_may_cause_turn(self, chat: str) -> bool:
        now = self._monotonic()
        traffic = self._bots.setdefault(chat, _BotTraffic())
        self._bots.move_to_end(chat)
        while len(self._bots) > CHATS_WATCHED:
            self._bots.popitem(last=False)
        while traffic.turns and now - traffic.turns[0] >= MINUTE_SECONDS:
            traffic.turns.popleft()
        if traffic.depth >= self._settings.bot_depth or len(traffic.turns) >= self._settings.bot_rate:
            return False
        traffic.depth += 1
        traffic.turns.append(now)
        return True


def _fold_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(folded for name in names if (folded := fold_text(name).strip()))


def is_called(name: str, text: str) -> bool:
    """Return true if `text` contains `name` as a separate word; pass both through `fold_text` first.

    A word ends where letters, digits and marks end, or where the script changes between one with spaces between words
    and one without. In Chinese, Hiragana, Thai and similar scripts a name may stand anywhere; in Korean particles
    follow a name directly; a name in Katakana must not be part of a longer run of Katakana.
    """
    start = text.find(name)
    while name and start >= 0:
        end = start + len(name)
        before, after = _last_script(text[max(0, start - MAX_COMBINING_MARKS) : start]), _next_script(text, end)
        if _is_word_boundary(before, _first_script(name)) and _is_word_boundary(_last_script(name), after):
            return True
        start = text.find(name, start + 1)
    return False


_UNSPACED_SCRIPTS = frozenset({"CJK", "HIRAGANA", "BOPOMOFO", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"})
"""Scripts without spaces between words, by the first word of their characters' names."""


def _is_word_boundary(left: str, right: str) -> bool:
    """Return true if a word can end between two characters of these scripts."""
    return left != right or left in ("", "free")


def _last_script(text: str) -> str:
    """Return the script of the last letter or digit without its marks; empty if the text ends in neither."""
    for char in reversed(text):
        if not unicodedata.category(char).startswith("M"):
            return _script_of(char)
    return ""


def _first_script(text: str) -> str:
    return _script_of(text[0])


def _next_script(text: str, end: int) -> str:
    """Return the following script; a mark belongs to the letter before it, so the word continues."""
    if end >= len(text):
        return ""
    if unicodedata.category(text[end]).startswith("M"):
        return _last_script(text[max(0, end - MAX_COMBINING_MARKS) : end])
    return _script_of(text[end])


def _script_of(char: str) -> str:
    if not (char.isalnum() or char == "_"):
        return ""
    script = unicodedata.name(char, "").partition(" ")[0]
    return "free" if script in _UNSPACED_SCRIPTS else "katakana" if script.startswith("KATAKANA") else "spaced"
