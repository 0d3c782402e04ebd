"""The Discord server for tests beside an independent twin: discord.py holds the same conversation with both.

What differs is listed here with a reason, and the lists are exact. Where the official pages or the platform's answers
decide, our server follows them.
"""

from __future__ import annotations

import fnmatch
import io
import json
from typing import Any

import discord
from discord.http import Route

from tests.fakes.discord_sides import HEARD, Seen, Shapes, Side, ours, theirs
from tests.fakes.discordapi.errors import Json

PEOPLE = {"MESSAGE_DELETE", "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE", "TYPING_START"}


HERE = "/channels/{channel_id}"


async def _ask(side: Side, name: str, method: str, path: str, **named: Any) -> Any:
    """One request of the bot; the answer or the refusal is kept under a name."""
    try:
        answer = await side.client.http.request(Route(method, path, channel_id=side.channel), **named)
    except discord.HTTPException as error:
        side.seen.refusals[name] = (error.status, error.code)
        return None
    if answer:
        side.seen.answers[name] = json.loads(json.dumps(answer))
    return answer


async def _requests(side: Side, first: int) -> int:
    """The bot says things and asks for everything; the guild's id."""
    await _ask(side, "text", "POST", f"{HERE}/messages", json={"content": "hi", "tts": False})
    reply = {"content": "re", "tts": False, "message_reference": {"message_id": str(first), "type": 0}}
    sent = await _ask(side, "reply", "POST", f"{HERE}/messages", json=reply)
    await _ask(side, "edit", "PATCH", f"{HERE}/messages/{sent['id']}", json={"content": "re!"})
    await _ask(side, "react", "PUT", f"{HERE}/messages/{first}/reactions/%F0%9F%91%8D/@me")
    await _ask(side, "message", "GET", f"{HERE}/messages/{first}")
    await _ask(side, "history", "GET", f"{HERE}/messages", params={"limit": 2})
    channel = await side.client.fetch_channel(side.channel)
    assert isinstance(channel, discord.TextChannel)
    await channel.send(file=discord.File(io.BytesIO(b"abc"), "b.txt"))
    await _ask(side, "channel", "GET", HERE)
    await _ask(side, "direct", "GET", f"/channels/{side.direct}")
    await _ask(side, "guild", "GET", f"/guilds/{channel.guild.id}")
    thread = {"name": "side", "auto_archive_duration": 1440}
    await _ask(side, "thread", "POST", f"{HERE}/messages/{first}/threads", json=thread)
    return channel.guild.id


async def _mistakes(side: Side, first: int, guild: int) -> None:
    """The bot asks for what it should not."""
    nothing = {"content": "x", "message_reference": {"message_id": "77"}}
    wrong: list[tuple[str, str, str, Json]] = [
        ("too long", "POST", f"{HERE}/messages", {"json": {"content": "x" * 2001}}),
        ("empty", "POST", f"{HERE}/messages", {"json": {"content": ""}}),
        ("no channel", "GET", "/channels/77", {}),
        ("no message", "GET", f"{HERE}/messages/77", {}),
        ("not mine", "PATCH", f"{HERE}/messages/{first}", {"json": {"content": "x"}}),
        ("hidden", "POST", f"/channels/{side.hidden}/messages", {"json": {"content": "x"}}),
        ("no guild", "GET", "/guilds/77", {}),
        ("no member", "GET", f"/guilds/{guild}/members/77", {}),
        ("no emoji", "PUT", f"{HERE}/messages/{first}/reactions/nonsense/@me", {}),
        ("reply to nothing", "POST", f"{HERE}/messages", {"json": nothing}),
        ("no interaction", "POST", "/interactions/77/x/callback", {"json": {"type": 5}}),
        ("second thread", "POST", f"{HERE}/messages/{first}/threads", {"json": {"name": "side"}}),
        ("delete not mine", "DELETE", f"{HERE}/messages/{first}", {}),
    ]
    for name, method, path, named in wrong:
        await _ask(side, name, method, path, **named)


async def _converse(side: Side) -> Seen:
    """The conversation: people talk, the bot answers, asks for everything and makes every mistake."""
    first = await side.say(f"hello <@{side.client.user.id if side.client.user else 0}>")
    second = await side.say("look", reply_to=first, file=True)
    await side.say("psst", direct=True)
    await side.edit(second, "look again")
    await side.react(first, "👍")
    await side.typing()
    guild = await _requests(side, first)
    await _mistakes(side, first, guild)
    await side.slash("hi")
    await side.slash("later")
    await side.delete(second)
    return side.seen


async def _both() -> tuple[Seen, Seen]:
    found = []
    for run in (ours, theirs):
        async with run() as side:
            found.append(await _converse(side))
    return found[0], found[1]


def _table(seen: Seen) -> dict[str, str]:
    shapes = Shapes()
    for name, answer in seen.answers.items():
        shapes.add([answer], f"answer {name}")
    for name, payloads in seen.payloads.items():
        for payload in payloads:
            shapes.add(payload, name)
    return shapes.table()


def _told(seen: Seen, name: str) -> list[tuple[Any, ...]]:
    """What the messages of the gateway say, without ids."""
    return [
        (
            one["type"],
            one["content"].partition("<@")[0],
            one["flags"],
            len(one["mentions"]),
            len(one["attachments"]),
            "referenced_message" in one,
            "guild_id" in one,
        )
        for one in seen.payloads[name]
    ]


REFUSALS: dict[str, tuple[tuple[int, int], tuple[int, int] | None, str]] = {
    "empty": ((400, 50006), (400, 50035), "the platform has a code of its own for a message of nothing"),
    "no member": ((404, 10013), (404, 10007), "the account does not exist; 10007 is for one that is not in the guild"),
    "reply to nothing": ((400, 50035), None, "fail_if_not_exists is true unless it is given; the twin sends"),
    "no emoji": ((404, 10014), None, "the twin takes any text for an emoji"),
    "second thread": ((400, 160004), None, "a message begins one thread at most"),
    "delete not mine": ((403, 50013), None, "the twin's bot may do everything"),
}
"""Refusals that differ: ours, theirs, the reason."""

FIELDS = {
    "user.avatar_decoration_data": "sent by the platform, null for nothing",
    "user.primary_guild": "sent by the platform, null for nothing",
    "user.bot": "the platform leaves it out for people",
    "user.global_name": "null where none was chosen, as for bots",
    "user.locale": "of the own account only",
    "user.member": "in the mentions of gateway messages",
    "user.mfa_enabled": "of the own account only",
    "user.system": "the platform leaves it out where false",
    "user.verified": "of the own account only",
    "member.banner": "sent by the platform, null for nothing",
    "*.nonce": "only where one was given, not null",
    "*.reactions*": "only where there are some; the twin sends an empty list, and no counts of bursts",
    "*.sticker_items": "only where there are some",
    "*.message_reference.fail_if_not_exists": "a wish of the request, not a part of the message",
    "*.message_reference.guild_id": "sent by the platform for guilds",
    "*.message_reference.type": "0 also where the request leaves it out",
    "*.webhook_id": "answers to interactions come from the webhook of the application",
    "*.application_id": "answers to interactions name the application",
    "*.interaction_metadata*": "further answers have it too, with the id of the first",
    "*.position": "of messages in threads",
    "*.channel_type": "sent by the platform with messages of the gateway",
    "*.member": "sent by the platform with messages of the gateway, also updates; the bot's own in threads",
    "*.attachments[[][]].content_scan_version": "sent by the platform",
    "*.attachments[[][]].description": "only where one was given, not null",
    "MESSAGE_UPDATE.edited_timestamp": "null where a thread began at the message, which is no edit",
    "*.thread": "a message says which thread began at it, and is updated then",
    "message.guild_id": "messages of REST are without it",
    "MESSAGE_REACTION_ADD.message_author_id": "sent by the platform",
    "THREAD_CREATE.member.*": "the bot's own membership, where it opened the thread",
    "thread.member*": "the bot's own membership, where it opened the thread",
    "*.thread_metadata.invitable": "of private threads only",
    "thread.last_message_id": "the first message of the thread came before the answer was asked for",
    "channel.*": "fields of a channel that the twin leaves out, and overwrites that only its channel has",
    "INTERACTION_CREATE.guild*": "sent by the platform",
    "INTERACTION_CREATE.authorizing_integration_owners*": "the guild in which the application is installed",
    "INTERACTION_CREATE.entitlement_sku_ids": "sent by the platform",
    "guild.*": "the twin answers with the object of the gateway, with channels and members, and leaves out others",
    "answer reply to nothing*": "refused by us, see the refusals",
    "answer second thread*": "refused by us, see the refusals",
}
"""Fields whose presence or type differs, by pattern, with the reason."""


async def test_the_same_conversation_has_the_same_shape_with_an_independent_twin() -> None:
    ours, theirs = await _both()
    assert ours.told == theirs.told == ["you said hi", "more", "now", "more"]
    mine, other = _table(ours), _table(theirs)
    different = {name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name)}
    listed = {pattern: fnmatch.filter(different, pattern) for pattern in FIELDS}
    assert sorted(different - {name for names in listed.values() for name in names}) == []
    assert [pattern for pattern, names in listed.items() if not names] == []


async def test_the_same_mistakes_are_refused_alike_by_an_independent_twin() -> None:
    ours, theirs = await _both()
    names = ours.refusals.keys() | theirs.refusals.keys()
    found = {name: (ours.refusals.get(name), theirs.refusals.get(name)) for name in names}
    expected = {name: (mine, other) for name, (mine, other, _) in REFUSALS.items()}
    assert {name: both for name, both in found.items() if both[0] != both[1]} == expected
    assert len(found) == 13


async def test_an_independent_twin_tells_the_same_messages() -> None:
    ours, theirs = await _both()
    created, other = _told(ours, "MESSAGE_CREATE"), _told(theirs, "MESSAGE_CREATE")
    # Theirs announces a thread that a message began, where the platform only opens it (21 is its first message), mentions
    # the author of an answered message also in an answer to oneself, carries out two of the mistakes, and gives
    # further answers the type of first ones.
    assert created == [
        (0, "hello ", 0, 1, 0, False, True),
        (19, "look", 0, 0, 1, True, True),
        (0, "psst", 0, 0, 0, False, False),
        (0, "hi", 0, 0, 0, False, True),
        (19, "re", 0, 1, 0, True, True),
        (0, "", 0, 0, 1, False, True),
        (21, "", 0, 0, 0, True, True),
        (20, "you said hi", 0, 0, 0, False, True),
        (19, "more", 0, 0, 0, True, True),
        (20, "", 128, 0, 0, False, True),
        (19, "more", 0, 0, 0, True, True),
    ]
    changed = {1: (19, "look", 0, 1, 1, True, True), 8: (20, "more", 0, 0, 0, False, True)}
    changed |= {6: (18, "side", 0, 0, 0, True, True), 10: changed[8]}
    expected = [changed.get(place, one) for place, one in enumerate(created)]
    mistakes = [(19, "x", 0, 0, 0, False, True), changed[6]]
    assert other == [*expected[:7], *mistakes, *expected[7:]]
    counts = {name: (len(ours.payloads[name]), len(theirs.payloads[name])) for name in HEARD if name in PEOPLE}
    assert counts == {
        "MESSAGE_DELETE": (1, 2),  # its bot may delete what is not its own
        "MESSAGE_REACTION_ADD": (2, 3),  # it takes any text for an emoji
        "MESSAGE_REACTION_REMOVE": (1, 1),
        "TYPING_START": (1, 1),
    }
