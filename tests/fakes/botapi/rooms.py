"""The people's side of a chat: what they write, send, change and do. Every method returns the message that came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.botapi import messages
from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.hearing import tell
from tests.fakes.botapi.messages import FOLDERS, poll_options, post, said
from tests.fakes.botapi.text import check, find, in_order, units, words_of
from tests.fakes.botapi.world import Chat, Press, User, World
from tests.fakes.platform import rooms

Link = tuple[str, str]
"""Words in the text, and where they lead."""


@dataclass(frozen=True, slots=True)
class Room(rooms.Room[User]):
    """A chat in the hands of its people. `by` may be left out in a private chat, and in a channel."""

    world: World
    chat: Chat

    @property
    def id(self) -> int:
        return self.chat.id

    @property
    def key(self) -> tuple[int, int]:
        return self.world.key(self.chat)

    def _by(self, by: User | None) -> User | None:
        if by is None and self.chat.kind in ("group", "supergroup"):
            raise ValueError("name who speaks: in a group `by` cannot be left out")
        return by or self.chat.person

    def send(
        self,
        content: Json,
        by: User | None = None,
        *,
        reply_to: Json | int | None = None,
        quote: str | None = None,
        thread: int | None = None,
    ) -> Json:
        """Any content. `reply_to` is a message or its id, `quote` words of it, `thread` a topic's id."""
        answered = self.message(reply_to if isinstance(reply_to, int) else reply_to["message_id"]) if reply_to else None
        quoted = None
        if quote is not None and answered is not None:
            whole = words_of(answered)
            quoted = {"text": quote, "position": units(whole[: whole.index(quote)]), "is_manual": True}
        speaker = self._by(by)
        message = post(self.world, self.chat, speaker, content, reply_to=answered, quote=quoted, thread=thread)
        said(self.world, self.chat, message)
        tell(self.world, self.chat, message)
        return message

    def say(
        self,
        text: str,
        by: User | None = None,
        *,
        mentions: dict[str, User] | None = None,
        links: Sequence[Link] = (),
        entities: Sequence[Json] = (),
        **how: Any,
    ) -> Json:
        """A text. Commands, @names and addresses are found; `mentions` and `links` mark words of it."""
        marked = _marked(text, entities, mentions or {}, links)
        return self.send({"text": text, **({"entities": marked} if marked else {})}, by, **how)

    def file(
        self,
        kind: str,
        content: bytes,
        by: User | None = None,
        *,
        name: str = "",
        mime: str = "",
        size: int | None = None,
        caption: str = "",
        album: str | None = None,
        **how: Any,
    ) -> Json:
        """A photo, document, voice, audio, video, animation, video_note or sticker; `size` may be claimed."""
        file = self.world.add_file(FOLDERS[kind], content, name=name, mime=mime, size=size)
        shown: Json = {kind: messages.media(self.world, kind, file)}
        if kind == "animation":
            shown["document"] = {**shown[kind]}
        if album is not None:
            shown["media_group_id"] = album
        if caption:
            marked = find(caption)
            shown |= {"caption": caption, **({"caption_entities": marked} if marked else {})}
        return self.send(shown, by, **how)

    def photo(self, content: bytes = b"\xff\xd8\xffphoto", by: User | None = None, **how: Any) -> Json:
        return self.file("photo", content, by, **how)

    def document(self, content: bytes, name: str, by: User | None = None, **how: Any) -> Json:
        return self.file("document", content, by, name=name, **how)

    def voice(self, content: bytes = b"OggSvoice", by: User | None = None, **how: Any) -> Json:
        return self.file("voice", content, by, **how)

    def album(self, contents: Sequence[bytes], by: User | None = None, *, caption: str = "", **how: Any) -> list[Json]:
        """Photos that belong together: a message each, the caption at the first."""
        group = str(13_000_000_000_000_000 + next(self.world.numbers))
        captions = [caption, *[""] * (len(contents) - 1)]
        return [
            self.photo(one, by, caption=said_with, album=group, **how)
            for one, said_with in zip(contents, captions, strict=True)
        ]

    def location(self, latitude: float, longitude: float, by: User | None = None, **how: Any) -> Json:
        return self.send({"location": {"latitude": latitude, "longitude": longitude}}, by, **how)

    def contact(self, phone: str, first_name: str, by: User | None = None, **how: Any) -> Json:
        return self.send({"contact": {"phone_number": phone, "first_name": first_name}}, by, **how)

    def poll(self, question: str, options: Sequence[str], by: User | None = None, **how: Any) -> Json:
        poll: Json = {"id": str(5_000_000_000 + next(self.world.numbers)), "question": question}
        poll |= {"options": poll_options(options), "total_voter_count": 0, "is_closed": False, "is_anonymous": True}
        poll |= {"type": "regular", "allows_multiple_answers": False, "allows_revoting": True, "members_only": False}
        return self.send({"poll": poll}, by, **how)

    def edit(self, message: Json | int, text: str) -> Json:
        """Changes the text, or the caption, of a message that somebody sent."""
        old = self.message(message if isinstance(message, int) else message["message_id"])
        field = "text" if "text" in old else "caption"
        marked_as = "entities" if field == "text" else "caption_entities"
        kept = {key: value for key, value in old.items() if key != marked_as}
        new = {**kept, "edit_date": self.world.clock.seconds(), field: text}
        if marked := find(text):
            new[marked_as] = marked
        self.chat.messages[new["message_id"]] = new
        self.world.happened(self.chat, "edit", messages.speaker(new), messages.described(new), new["message_id"])
        tell(self.world, self.chat, new, edited=True)
        return new

    def delete(self, message: Json | int) -> None:
        """Takes a message away. The platform tells no bot of it."""
        number = message if isinstance(message, int) else message["message_id"]
        gone = self.chat.messages.pop(number)
        self.world.happened(self.chat, "delete", messages.speaker(gone), messages.described(gone), number)

    def react(self, message: Json | int, emoji: str | None, by: User | None = None) -> None:
        """Sets or takes back a reaction. Only bots that ask for it hear of it, in groups only admins."""
        person = self._by(by)
        if person is None:
            raise ValueError("name who reacts: in a channel reactions are anonymous and only counted")
        number = message if isinstance(message, int) else message["message_id"]
        new = [{"type": "emoji", "emoji": emoji}] if emoji else []
        old = self.chat.reactions.get((number, person.id), [])
        self.chat.reactions[number, person.id] = new
        update = {"chat": self.chat.json(), "message_id": number, "user": person.json()}
        update |= {"date": self.world.clock.seconds(), "old_reaction": old, "new_reaction": new}
        for bot in self.world.bots_in(self.chat):
            if self.chat.kind == "private" or self.chat.is_admin(bot.user.id):
                bot.queue.push("message_reaction", update)
        self.world.happened(self.chat, "reaction", person.name(), emoji or "took the reaction back", number)

    def press(self, message: Json | int, data: str, by: User | None = None) -> str:
        """Presses a button under a bot's message; returns the id of the callback query."""
        number = message if isinstance(message, int) else message["message_id"]
        under, person = self.message(number), self._by(by)
        buttons = [one for row in under.get("reply_markup", {}).get("inline_keyboard", []) for one in row]
        if person is None or data not in [one.get("callback_data") for one in buttons]:
            raise ValueError(f"message {number} has no button with the data {data!r}")
        query = str(4_000_000_000_000_000_000 + next(self.world.numbers))
        self.world.callbacks[query] = Press(self.world.clock.now(), self.chat, person)
        label = next(one["text"] for one in buttons if one.get("callback_data") == data)
        self.world.happened(self.chat, "service", person.name(), f"pressed “{label}” on #{number}")
        shown = {"id": query, "from": person.json(), "message": under, "chat_instance": str(self.chat.id), "data": data}
        for bot in self.world.bots_in(self.chat):
            if under.get("from", {}).get("id") == bot.user.id:
                bot.queue.push("callback_query", shown)
        return query

    def message(self, number: int) -> Json:
        """A message that stands in the chat now; `KeyError` if there is none."""
        return self.chat.messages[number]

    def write(self, text: str) -> None:
        self.say(text)

    def text_of(self, message: int) -> str:
        return words_of(self.chat.messages.get(message, {}))

    def texts(self, by: User | None = None) -> list[str]:
        """The texts and captions that stand in the chat now, of one sender or of all."""
        chosen = [one for one in self.chat.messages.values() if by is None or one.get("from", {}).get("id") == by.id]
        return [words_of(one) for one in chosen]


def _marked(text: str, entities: Sequence[Json], mentions: dict[str, User], links: Sequence[Link]) -> list[Json]:
    given = [*entities]
    marks: list[tuple[str, Json]] = [
        (words, {"type": "text_mention", "user": user.json()}) for words, user in mentions.items()
    ]
    marks += [(words, {"type": "text_link", "url": url}) for words, url in links]
    for words, rest in marks:
        given.append({"offset": units(text[: text.index(words)]), "length": units(words), **rest})
    return find(text, in_order(check(text, given)))
