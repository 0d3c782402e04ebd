"""Reactions: Discord reports each emoji added or removed; the port wants all that a person currently shows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from bubbot.formatting import clean_json
from bubbot.ports.channel import Reaction, Sender, UnparsedUpdate
from channels.discord.content import require_id
from channels.discord.inbound import MessageScene, read_sender, unparsed_update
from channels.platform.json_values import Raw, require_text

MAX_TRACKED_REACTIONS = 5000
"""Tracked pairs of message and person; the one without changes for longest is forgotten first."""
REACTION_ADD, REACTION_REMOVE = "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE"
REACTION_REMOVE_ALL, REACTION_REMOVE_EMOJI = "MESSAGE_REACTION_REMOVE_ALL", "MESSAGE_REACTION_REMOVE_EMOJI"
REACTION_EVENTS = frozenset({REACTION_ADD, REACTION_REMOVE, REACTION_REMOVE_ALL, REACTION_REMOVE_EMOJI})


class ReactionTracker:
    """The current reactions of people to messages. Those from before the start are unknown and count as none."""

    def __init__(self, max_tracked: int = MAX_TRACKED_REACTIONS) -> None:
        self._max_tracked = max_tracked
        self._reactions: OrderedDict[tuple[str, str], tuple[Sender, tuple[str, ...]]] = OrderedDict()

    def read(
        self, scene: MessageScene, event: str, raw: Any, *, serial: str, now: str, roles: tuple[str, ...] = ()
    ) -> list[Reaction | UnparsedUpdate]:
        """Read an event and return the changed reactions.

        Args:
            event: one of `REACTION_EVENTS`.
            raw: the event's JSON.
            serial: names the event, since Discord gives it no id.
            roles: the roles of the person who removed a reaction.
        """
        try:
            changes = list(self._changes(scene, event, clean_json(raw), roles))
        except Exception as error:  # noqa: BLE001 - unreadable input is kept, as for messages
            reason = f"a reaction cannot be read ({type(error).__name__}: {str(error)[:200]})"
            return [unparsed_update(scene.channel, scene.place.chat, "r", raw, reason)]
        place = scene.place
        return [
            Reaction(
                scene.channel, f"r{serial}:{sender.id}", place.chat, message, sender, emojis, now, place.thread,
                place.space,
            )
            for message, sender, emojis in changes
        ]  # fmt: skip

    def _changes(
        self, scene: MessageScene, event: str, raw: Raw, roles: tuple[str, ...]
    ) -> Iterator[tuple[str, Sender, tuple[str, ...]]]:
        message = require_id(raw.get("message_id"))
        if event == REACTION_REMOVE_ALL:
            yield from self._clear(message, lambda _: ())
        elif event == REACTION_REMOVE_EMOJI:
            emoji = _emoji(raw)
            yield from self._clear(message, lambda emojis: _without(emojis, emoji))
        else:
            key = (message, require_id(raw.get("user_id")))
            if key[1] == scene.bot_user.id:
                return
            sender, emojis = self._reactions.get(key, (Sender(key[1], roles=roles), ()))
            emojis = _without(emojis, _emoji(raw))
            if event == REACTION_ADD:
                sender, emojis = _read_sender(raw, key[1]), (*emojis, _emoji(raw))
            self._keep(key, sender, emojis)
            yield message, sender, emojis

    def _clear(
        self, message: str, reduce: Callable[[tuple[str, ...]], tuple[str, ...]]
    ) -> Iterator[tuple[str, Sender, tuple[str, ...]]]:
        for key, (sender, emojis) in list(self._reactions.items()):
            if key[0] == message and reduce(emojis) != emojis:
                self._keep(key, sender, reduce(emojis))
                yield message, sender, reduce(emojis)

    def _keep(self, key: tuple[str, str], sender: Sender, emojis: tuple[str, ...]) -> None:
        if not emojis:
            self._reactions.pop(key, None)
            return
        self._reactions[key] = (sender, emojis)
        self._reactions.move_to_end(key)
        while len(self._reactions) > self._max_tracked:
            self._reactions.popitem(last=False)


def remover_id(space: str, event: str, raw: Any) -> str:
    """Return the id of the person who removed a reaction in a server, since the event lacks their roles; else empty."""
    number = raw.get("user_id") if space and event == REACTION_REMOVE and isinstance(raw, dict) else None
    return number if isinstance(number, str) and number.isascii() and number.isdigit() else ""


def _read_sender(raw: Raw, number: str) -> Sender:
    member = raw.get("member")
    if not isinstance(member, dict) or not isinstance(member.get("user"), dict):
        return Sender(number)
    return structs.replace(read_sender(member["user"], member), id=number)


def _emoji(raw: Raw) -> str:
    emoji = raw.get("emoji")
    if not isinstance(emoji, dict):
        raise TypeError("a reaction without an emoji")
    name, number = require_text(emoji.get("name")), emoji.get("id")
    if number is None:
        return name
    return f":{name}:" if name else f"custom:{require_id(number)}"


def _without(emojis: tuple[str, ...], removed: str) -> tuple[str, ...]:
    return tuple(emoji for emoji in emojis if emoji != removed)
