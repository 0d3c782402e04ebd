"""What happens to messages, whoever does it: they are posted, edited, deleted, reacted to."""

from __future__ import annotations

import mimetypes
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from tests.fakes.discordapi import events
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.world import (
    PUBLIC_THREAD,
    REPLY,
    STARTER,
    THREAD_CREATED,
    Channel,
    File,
    Message,
    User,
    World,
)

HAS_THREAD = 1 << 5
ALL: Json = {"parse": ["users", "roles", "everyone"], "replied_user": True}
"""What is mentioned where a message does not say it."""


def store_file(
    world: World,
    channel: Channel,
    name: str,
    content: bytes,
    mime: str = "",
    *,
    description: str | None = None,
    size: int | None = None,
) -> File:
    """Keeps a file. Without a type, or with the one for anything, the type follows from the name."""
    kept = re.sub(r"[^\w.\-]", "_", name.replace(" ", "_"), flags=re.ASCII).strip("_") or "unknown"
    if not mime or mime == "application/octet-stream":
        mime = mimetypes.guess_type(kept)[0] or "application/octet-stream"
    number = world.ids.next()
    url = f"{world.origin}/attachments/{channel.id}/{number}/{quote(kept)}?ex=7fffffff&is=67fffff0&hm={number:064x}&"
    width = height = None
    if content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) >= 24:
        width, height = struct.unpack(">II", content[16:24])
    file = File(number, kept, content, mime, len(content) if size is None else size, url, description, width, height)
    world.files[number] = file
    return file


def mark(world: World, one: Message, allowed: Json) -> None:
    """Finds who is mentioned, as far as it is allowed."""
    parse, text, channel = allowed.get("parse", []), one.content, one.channel
    one.mentions, one.mention_roles, one.mention_everyone = [], [], False
    for number in dict.fromkeys(int(found) for found in re.findall(r"<@!?(\d+)>", text)):
        if number in world.users and ("users" in parse or str(number) in map(str, allowed.get("users", []))):
            one.mentions.append(world.users[number])
    if channel.guild is not None:
        for number in dict.fromkeys(int(found) for found in re.findall(r"<@&(\d+)>", text)):
            if number in channel.guild.roles and (
                "roles" in parse or str(number) in map(str, allowed.get("roles", []))
            ):
                one.mention_roles.append(number)
        one.mention_everyone = "everyone" in parse and bool(re.search(r"@(everyone|here)\b", text))
    if one.kind == REPLY and one.reference is not None and allowed.get("replied_user"):
        answered = one.reference[0].messages.get(one.reference[1])
        if answered is not None and answered.author not in one.mentions and answered.author.id != one.author.id:
            one.mentions.append(answered.author)


def post(
    world: World,
    channel: Channel,
    author: User,
    content: str = "",
    *,
    allowed: Json | None = None,
    reply_to: Message | None = None,
    files: Iterable[File] = (),
    number: int | None = None,
    **more: Any,
) -> Message:
    """Puts a message into a channel and tells it. An archived thread opens again."""
    one = Message(number or world.ids.next(), channel, author, content, world.clock.stamp(), files=list(files), **more)
    if reply_to is not None:
        one.kind, one.reference = REPLY, (reply_to.channel, reply_to.id)
    mark(world, one, ALL if allowed is None else allowed)
    if channel.is_thread and channel.archived:
        set_thread(world, channel, archived=False)
    channel.messages[one.id] = one
    if not one.ephemeral:
        channel.last_message = one.id
    if channel.is_thread:
        channel.sent += 1
        join(world, channel, author)
    world.happened(channel, "message", author.name(), describe(world, one), one.id)
    if not one.ephemeral:
        events.message(world, "MESSAGE_CREATE", one)
    return one


def _labels(component: Json) -> Iterator[str]:
    """The words of a component and of those within it."""
    if words := component.get("label") or component.get("content"):
        yield words
    for inner in component.get("components") or []:
        yield from _labels(inner)


def describe(world: World, one: Message) -> str:
    """A message in one line for the transcript: ids of people, roles and channels become names."""

    def name(found: re.Match[str]) -> str:
        kind, number = found[1], int(found[2])
        if kind.startswith("@&"):
            roles = one.channel.guild.roles if one.channel.guild is not None else {}
            return f"@{roles[number].name}" if number in roles else found[0]
        if kind == "#":
            return f"#{world.channels[number].name}" if number in world.channels else found[0]
        return f"@{world.users[number].name()}" if number in world.users else found[0]

    parts = [re.sub(r"<(@&|@!|@|#)(\d+)>", name, one.content)] if one.content else []
    if one.kind == THREAD_CREATED:
        parts = [f"started the thread “{one.content}”"]
    parts += [f"[file {file.name}, {file.size} bytes]" for file in one.files]
    parts += [f"[embed: {embed.get('title') or embed.get('description') or ''}]" for embed in one.embeds]
    parts += [f"[sticker {sticker['name']}]" for sticker in one.stickers]
    parts += [f"[{' | '.join(_labels(row))}]" for row in one.components]
    if one.reference is not None:
        parts.insert(0, f"(to #{world.number(one.reference[1])})")
    if one.interaction is not None and "original_response_message_id" not in one.interaction:
        parts.insert(0, f"(/{one.interaction['name']} by {world.users[int(one.interaction['user']['id'])].name()})")
    if one.ephemeral and one.seen_by is not None:
        parts.insert(0, f"(only for {world.users[one.seen_by].name()})")
    return " ".join(parts)


def edit(world: World, one: Message, *, allowed: Json | None = None, **changes: Any) -> None:
    """Changes what is given and tells it."""
    for name, value in changes.items():
        setattr(one, name, value)
    one.edited = world.clock.stamp()
    mark(world, one, ALL if allowed is None else allowed)
    world.happened(one.channel, "edit", one.author.name(), describe(world, one), one.id)
    if not one.ephemeral:
        events.message(world, "MESSAGE_UPDATE", one)


def update(world: World, one: Message) -> None:
    """Tells a change that is no edit: an embed came, a thread began. The time of the last edit stays."""
    events.message(world, "MESSAGE_UPDATE", one)


def delete(world: World, channel: Channel, numbers: list[int], *, bulk: bool = False) -> None:
    """Takes messages away and tells it."""
    shown = [number for number in numbers if not channel.messages[number].ephemeral]
    for number in numbers:
        one = channel.messages.pop(number)
        channel.deleted.add(number)
        world.happened(channel, "delete", one.author.name(), describe(world, one), number)
    if shown:
        events.deleted(world, channel, shown, bulk=bulk)


def react(world: World, one: Message, user: User, emoji: str) -> None:
    """Adds a reaction; a second time it changes nothing."""
    users = one.reactions.setdefault(emoji, [])
    if user.id in users:
        return
    users.append(user.id)
    world.happened(one.channel, "reaction", user.name(), f"added {emoji}", one.id)
    events.reaction(world, one, user, emoji, added=True)


def unreact(world: World, one: Message, user: User, emoji: str) -> bool:
    """Takes a reaction back; whether it was there."""
    users = one.reactions.get(emoji, [])
    if user.id not in users:
        return False
    users.remove(user.id)
    world.happened(one.channel, "reaction", user.name(), f"took back {emoji}", one.id)
    events.reaction(world, one, user, emoji, added=False)
    return True


def typing(world: World, channel: Channel, user: User) -> None:
    """Somebody types."""
    world.happened(channel, "typing", user.name(), "is typing")
    events.typing(world, channel, user)


def join(world: World, thread: Channel, user: User) -> bool:
    """Somebody becomes a member of a thread; whether they were none."""
    if user.id in thread.joined:
        return False
    thread.joined[user.id] = world.clock.stamp()
    return True


def open_thread(
    world: World, parent: Channel, owner: User, name: str, *, starter: Message | None = None, kind: int = PUBLIC_THREAD
) -> Channel:
    """A thread, from a message (it has the message's id) or by itself."""
    number = starter.id if starter is not None else world.ids.next()
    thread = world.add_channel(kind, name, guild=parent.guild, parent=parent, owner=owner, id=number)
    join(world, thread, owner)
    events.channel(world, "CREATE", thread, newly_created=True)
    if starter is not None:
        starter.thread = thread
        starter.flags |= HAS_THREAD
        update(world, starter)
        first = Message(world.ids.next(), thread, starter.author, "", world.clock.stamp(), kind=STARTER)
        first.reference = (parent, starter.id)
        thread.messages[first.id] = first
        thread.last_message = first.id
        events.message(world, "MESSAGE_CREATE", first)
        world.happened(thread, "service", owner.name(), f"opened this thread on #{world.number(starter.id)}")
    else:
        world.happened(thread, "service", owner.name(), "opened this thread")
    return thread


def announce_thread(world: World, thread: Channel, owner: User) -> None:
    """The line in the parent channel for a thread that no message began."""
    assert thread.parent is not None
    post(world, thread.parent, owner, thread.name, kind=THREAD_CREATED, reference=(thread, thread.id))


def open_post(
    world: World, forum: Channel, owner: User, title: str, content: str, **more: Any
) -> tuple[Channel, Message]:
    """A post of a forum: a thread whose first message has the thread's id."""
    thread = open_thread(world, forum, owner, title)
    forum.last_message = thread.id
    return thread, post(world, thread, owner, content, number=thread.id, **more)


def set_thread(world: World, thread: Channel, **changes: Any) -> None:
    """Archives, opens, locks or renames."""
    if "archived" in changes and changes["archived"] != thread.archived:
        thread.archived_at = world.clock.stamp()
    for name, value in changes.items():
        setattr(thread, name, value)
    words = ", ".join(f"{name} {value}" for name, value in changes.items())
    world.happened(thread, "service", "the thread", f"is now {words}")
    events.channel(world, "UPDATE", thread)


def remove_channel(world: World, channel: Channel) -> None:
    """A channel goes, with its threads."""
    assert channel.guild is not None
    for thread in [one for one in channel.guild.channels.values() if one.parent is channel]:
        remove_channel(world, thread)
    events.channel(world, "DELETE", channel)
    channel.gone = True
    del channel.guild.channels[channel.id]
    world.happened(channel, "service", channel.name, "was deleted")
