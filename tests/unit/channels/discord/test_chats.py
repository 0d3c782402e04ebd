"""The directory of channels, threads and roles, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.ports.channel import CommandInfo
from channels.discord.chats import ChatDirectory, DiscordChat, MemberRoles, parse_chat
from channels.discord.errors import DiscordApiError
from channels.discord.inbound import DiscordPlace

MAX_CACHED_MEMBERS = 2000
MAX_FETCHED_CHATS = 1000


GUILD = "9"
TEXT, FORUM_POST = (
    {"id": "10", "type": 0, "name": "general"},
    {"id": "11", "type": 11, "name": "post", "parent_id": "10"},
)


class _Api:
    """Answers with what it has at a path, and refuses the rest."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.paths: list[str] = []

    async def __call__(self, _method: str, path: str, *, json: Any = None) -> Any:
        self.paths.append(path if json is None else f"{path} {json}")
        if (answer := self.answers.get(path.rpartition("/")[2])) is None:
            raise DiscordApiError(403, 50001, "Missing Access")
        return answer


def directory(api: _Api | None = None, *commands: CommandInfo) -> ChatDirectory:
    chats = ChatDirectory(api or _Api(), lambda: commands)  # type: ignore[arg-type]
    chats.start_session({"id": "1", "username": "bubbot"})
    return chats


def cached(chats: ChatDirectory) -> list[str]:
    return [number for number in map(str, range(10, 20)) if chats.find_cached(number)]


def test_a_server_that_is_left_takes_its_channels_names_and_the_bots_roles_along() -> None:
    chats = directory()
    own = {"id": "5", "name": "bubbot", "tags": {"bot_id": "1"}}
    others = ["no role", {"id": "x"}, {"id": "6", "name": "crew"}, {"id": "7", "tags": {"bot_id": "2"}}]
    chats.update("GUILD_CREATE", {"id": GUILD, "channels": [TEXT], "threads": [FORUM_POST], "roles": [*others, own]})
    chats.update("GUILD_CREATE", {"id": "8", "channels": [{"id": "12", "type": 0}], "roles": [{**own, "id": "3"}]})
    assert chats.find_cached("11") == DiscordChat("11", 11, "post", GUILD, "10")
    assert (cached(chats), sorted(chats.bot_user.roles)) == (["10", "11", "12"], ["3", "5"])
    assert (chats.channel_names, chats.role_names) == (
        {"10": "general", "11": "post", "12": ""},
        {"5": "bubbot", "6": "crew", "7": "", "3": "bubbot"},
    )
    chats.update("GUILD_DELETE", {"id": GUILD, "unavailable": True})  # an outage: it will be back
    assert (cached(chats), sorted(chats.bot_user.roles)) == (["10", "11", "12"], ["3", "5"])
    chats.update("GUILD_DELETE", {"id": GUILD})
    assert (cached(chats), sorted(chats.bot_user.roles), chats.channel_names) == (["12"], ["3"], {"12": ""})


def test_a_role_that_comes_later_is_the_bots_if_it_is_tagged_so() -> None:
    chats = directory()
    chats.update("GUILD_ROLE_CREATE", {"guild_id": GUILD, "role": {"id": "5", "name": "b", "tags": {"bot_id": "1"}}})
    chats.update("GUILD_ROLE_UPDATE", {"guild_id": GUILD, "role": {"id": "6", "name": "crew", "tags": None}})
    assert (sorted(chats.bot_user.roles), chats.role_names) == (["5"], {"5": "b", "6": "crew"})


async def test_a_new_session_forgets_the_channels_of_the_one_before() -> None:
    chats = directory(None, CommandInfo("help", "Helps."))
    chats.update("GUILD_CREATE", {"id": GUILD, "channels": [TEXT], "roles": []})
    await chats.find_place("11", {})
    chats.start_session({"id": "2", "username": None})
    assert (cached(chats), chats.channel_names) == ([], {})
    assert (chats.bot_user.id, chats.bot_user.name, sorted(chats.bot_user.commands)) == ("2", "", ["help"])
    with pytest.raises(TypeError, match="READY names no user"):
        chats.start_session("nobody")


def test_channels_and_threads_come_change_and_go() -> None:
    chats = directory()
    chats.update("CHANNEL_CREATE", {**TEXT, "guild_id": GUILD})
    chats.update("CHANNEL_UPDATE", {**TEXT, "guild_id": GUILD, "name": "talk", "last_message_id": "77"})
    assert chats.find_cached("10") == DiscordChat("10", 0, "talk", GUILD, "", 77)
    chats.update("THREAD_LIST_SYNC", {"guild_id": GUILD, "threads": [FORUM_POST, {"id": "12"}, "no thread"]})
    chats.update("CHANNEL_PINS_UPDATE", ["no object"])
    assert (cached(chats), chats.channel_names) == (["10", "11"], {"10": "talk", "11": "post"})
    chats.update("CHANNEL_DELETE", {**TEXT, "guild_id": GUILD})
    assert (cached(chats), chats.channel_names) == (["11"], {"11": "post"})


def test_an_archived_thread_is_one_of_those_that_are_fetched_and_leaves_with_no_server() -> None:
    chats = directory()
    chats.update("THREAD_CREATE", {**FORUM_POST, "guild_id": GUILD, "thread_metadata": {"archived": False}})
    assert chats.channel_names == {"11": "post"}
    chats.update("THREAD_UPDATE", {**FORUM_POST, "guild_id": GUILD, "thread_metadata": {"archived": True}})
    assert (cached(chats), chats.channel_names) == (["11"], {})
    chats.update("GUILD_DELETE", {"id": GUILD})
    assert cached(chats) == ["11"]
    chats.update("THREAD_DELETE", {"id": "11", "guild_id": GUILD})
    assert cached(chats) == []


async def test_the_place_of_an_event_without_a_server_is_a_direct_message_without_a_request() -> None:
    api = _Api()
    chats = directory(api)
    assert await chats.find_place("10", {"channel_id": "10"}) == DiscordPlace("10", is_direct=True)
    assert await chats.find_place("10") == DiscordPlace("10", is_direct=True)
    assert api.paths == []


async def test_an_unknown_channel_of_a_server_is_fetched_once() -> None:
    api = _Api(**{"11": {**FORUM_POST, "guild_id": GUILD}, "12": TEXT})
    chats = directory(api)
    event = {"guild_id": GUILD}
    for _ in range(2):
        assert await chats.find_place("11", event) == DiscordPlace("10", "11", GUILD, title="post")
        assert await chats.find_place("13", event) == DiscordPlace("13", space=GUILD)  # may not be viewed
        assert await chats.find_place("14") == DiscordPlace("14")  # nothing is known of it: it is asked for again
    assert api.paths == ["/channels/11", "/channels/13", "/channels/14", "/channels/14"]
    with pytest.raises(DiscordApiError):
        await chats.fetch("12")  # the answer is another channel
    assert chats.find_cached("12") is None


async def test_the_direct_chat_with_a_person_is_opened_and_remembered() -> None:
    api = _Api(channels={"id": "10", "type": 1, "last_message_id": "5"})
    chats = directory(api)
    opened = await chats.open_direct_chat("42")
    assert opened == DiscordChat("10", 1, last_message_id=5)
    assert (chats.find_cached("10"), api.paths) == (opened, ["/users/@me/channels {'recipient_id': '42'}"])
    assert await directory(_Api(channels={"id": "10"})).open_direct_chat("42") is None


async def test_of_fetched_channels_the_ones_used_longest_ago_are_forgotten() -> None:
    chats = directory(_Api(**{"3": {"id": "3", "type": 1}}))
    chats.update("CHANNEL_CREATE", {"id": "1", "type": 0, "guild_id": GUILD})
    for number in range(1, MAX_FETCHED_CHATS + 2):
        await chats.find_place(str(number), {})
    assert chats.find_cached("2")
    await chats.find_place("5000", {})
    await chats.fetch("3")
    await chats.find_place("5001", {})
    found = [bool(chats.find_cached(number)) for number in ("1", "2", "3", "4", "5000", "5001")]
    assert found == [True, False, True, False, True, True]


@pytest.mark.parametrize(
    ("raw", "chat"),
    [
        ({"id": "1", "type": 0, "parent_id": "2"}, DiscordChat("1", 0, guild="8")),  # its category is no parent
        ({"id": "1", "type": 12, "parent_id": "2", "guild_id": "3"}, DiscordChat("1", 12, guild="3", parent="2")),
        ({"id": "1", "type": 0, "name": 5, "last_message_id": None}, DiscordChat("1", 0, guild="8")),
        ({"id": "1", "type": 11, "parent_id": "two"}, DiscordChat("1", 11, guild="8")),
        ({"id": "1", "type": "0"}, None),
        ({"id": "one", "type": 0}, None),
        (["1"], None),
    ],
)
def test_a_channel_is_read_from_json(raw: object, chat: DiscordChat | None) -> None:
    assert parse_chat(raw, "8") == chat


class TestMemberRoles:
    async def test_roles_are_asked_for_again_when_they_are_too_old(self) -> None:
        now = 1000.0
        api = _Api(**{"42": {"roles": ["5", "x", 6]}})
        members = MemberRoles(api, lambda: now, 300.0)  # type: ignore[arg-type]
        assert await members.fetch_roles(GUILD, "42") == ("5",)
        now = 1300.0
        assert await members.fetch_roles(GUILD, "42") == ("5",)
        assert api.paths == ["/guilds/9/members/42"]
        api.answers.clear()
        now = 1300.5
        assert await members.fetch_roles(GUILD, "42") == ()  # left the server
        assert len(api.paths) == 2

    async def test_an_event_says_them_and_those_heard_of_longest_ago_are_forgotten(self) -> None:
        api = _Api(**{"2": {"roles": ["7"]}})
        members = MemberRoles(api, lambda: 0.0, 300.0)  # type: ignore[arg-type]
        for number in range(1, MAX_CACHED_MEMBERS + 1):
            members.update(GUILD, str(number), {"roles": ["5"]})
        members.update(GUILD, "1", {"roles": ["6"]})
        members.update(GUILD, "0", "no member")
        assert [await members.fetch_roles(GUILD, number) for number in ("1", "3", "0")] == [("6",), ("5",), ()]
        assert api.paths == []
        assert await members.fetch_roles(GUILD, "2") == ("7",)
