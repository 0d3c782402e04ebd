"""What people show on messages: Discord tells each emoji that comes and goes, the port wants what somebody now shows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bubbot.ports.channel import Reaction, Sender, UnparsedUpdate
from channels.discord.content import Raw, number_of, text_of
from channels.discord.inbound import MessageScene, person, unparsed, whole_text

MAX_TRACKED_MESSAGES = 5000
"""Reactions of one person to one message that are kept; the one that was quiet longest is forgotten first."""
REACTION_ADD, REACTION_REMOVE = "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE"
CLEARED, EMOJI_CLEARED = "MESSAGE_REACTION_REMOVE_ALL", "MESSAGE_REACTION_REMOVE_EMOJI"
REACTIONS = frozenset({REACTION_ADD, REACTION_REMOVE, CLEARED, EMOJI_CLEARED})


class ReactionTracker:
    """Remembers what is shown. What was shown before we began is not known; it is then taken for nothing."""

    def __init__(self, remembered: int = MAX_TRACKED_MESSAGES) -> None:
        self._remembered = remembered
        self._shown: OrderedDict[tuple[str, str], tuple[Sender, tuple[str, ...]]] = OrderedDict()

    def read(
        self, scene: MessageScene, event: str, raw: Any, *, serial: str, now: str, roles: tuple[str, ...] = ()
    ) -> list[Reaction | UnparsedUpdate]:
        """What changed. `serial` names the event: Discord gives it no id; `roles` are those of who took back."""
        try:
            changes = list(self._changes(scene, event, whole_text(raw), roles))
        except Exception as error:  # noqa: BLE001 - as for messages
            reason = f"a reaction cannot be read ({type(error).__name__}: {str(error)[:200]})"
            return [unparsed(scene.channel, scene.where.chat, "r", raw, reason)]
        where = scene.where
        return [
            Reaction(
                scene.channel, f"r{serial}:{sender.id}", where.chat, message, sender, emojis, now, where.thread,
                where.space,
            )
            for message, sender, emojis in changes
        ]  # fmt: skip

    def _changes(
        self, scene: MessageScene, event: str, raw: Raw, roles: tuple[str, ...]
    ) -> Iterator[tuple[str, Sender, tuple[str, ...]]]:
        message = number_of(raw.get("message_id"))
        if event == CLEARED:
            yield from self._clear(message, lambda _: ())
        elif event == EMOJI_CLEARED:
            gone = _emoji(raw)
            yield from self._clear(message, lambda emojis: _without(emojis, gone))
        else:
            key = (message, number_of(raw.get("user_id")))
            if key[1] == scene.me.id:
                return
            known, emojis = self._shown.get(key, (Sender(key[1], roles=roles), ()))
            emojis = _without(emojis, _emoji(raw))
            if event == REACTION_ADD:
                known, emojis = _who(raw, key[1]), (*emojis, _emoji(raw))
            self._keep(key, known, emojis)
            yield message, known, emojis

    def _clear(
        self, message: str, left: Callable[[tuple[str, ...]], tuple[str, ...]]
    ) -> Iterator[tuple[str, Sender, tuple[str, ...]]]:
        for key, (sender, emojis) in list(self._shown.items()):
            if key[0] == message and left(emojis) != emojis:
                self._keep(key, sender, left(emojis))
                yield message, sender, left(emojis)

    def _keep(self, key: tuple[str, str], sender: Sender, emojis: tuple[str, ...]) -> None:
        if not emojis:
            self._shown.pop(key, None)
            return
        self._shown[key] = (sender, emojis)
        self._shown.move_to_end(key)
        while len(self._shown) > self._remembered:
            self._shown.popitem(last=False)


def who_took_back(space: str, event: str, raw: Any) -> str:
    """The id of the person who took back a reaction in a server: their roles are not told."""
    number = raw.get("user_id") if space and event == REACTION_REMOVE and isinstance(raw, dict) else None
    return number if isinstance(number, str) and number.isascii() and number.isdigit() else ""


def _who(raw: Raw, number: str) -> Sender:
    member = raw.get("member")
    if not isinstance(member, dict) or not isinstance(member.get("user"), dict):
        return Sender(number)
    return replace(person(member["user"], member), id=number)


def _emoji(raw: Raw) -> str:
    emoji = raw.get("emoji")
    if not isinstance(emoji, dict):
        raise TypeError("a reaction without an emoji")
    name, number = text_of(emoji.get("name")), emoji.get("id")
    if number is None:
        return name
    return f":{name}:" if name else f"custom:{number_of(number)}"


def _without(emojis: tuple[str, ...], gone: str) -> tuple[str, ...]:
    return tuple(one for one in emojis if one != gone)
