"""Slash commands: what Discord is offered, and what their use says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bubbot.arguments.fields import Args
from bubbot.ports.channel import CommandInfo, Sender
from bubbot.ports.turn import Turn
from bubbot.runtime.router import parse_command
from bubbot.texts import Texts
from bubbot.tool import Toolbox, tool
from channels.discord.slash_commands import build_commands, read_interaction, read_press
from tests.fakes.discordapi.commands import check

ID = "1308437837414629376"
USER = {"id": "42", "username": "ann", "global_name": "Ann"}


class NoteArgs(Args, frozen=True):
    """Texts in two places."""

    title: str
    text: str = ""


@tool("note", form="<title> [text]")
async def note(turn: Turn, args: NoteArgs) -> str:
    """Adds a note."""
    return args.title


BOX = Toolbox([note])


def used(name: str = "note", options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = [{"type": 3, "name": key, "value": value} for key, value in (options or {}).items()]
    return {
        "id": ID, "type": 2, "token": "SECRET", "application_id": "7", "channel_id": "11",
        "channel": {"id": "11", "type": 0, "parent_id": "10"}, "guild_id": "9", "data": {"type": 1, "name": name, "options": given},
        "member": {"user": USER, "nick": "Annie", "roles": ["5"]}, **more,
    }  # fmt: skip


def test_commands_for_menus_are_offered() -> None:
    infos = [
        CommandInfo("zebra", "Looks\nfor a zebra.", ("where", "_odd", "Loud"), in_menu=True),
        CommandInfo("context", "For developers."),
        CommandInfo("memory.save", "Saves.", in_menu=True, translations={"en": "Saves.", "zh": "保存", "de": "Merkt."}),
        CommandInfo("status", "x" * 200, in_menu=True),
        CommandInfo("help", "", (), in_menu=True),
    ]
    made = build_commands(infos)
    check(made)
    assert [one["name"] for one in made] == ["zebra", "memory_save", "status", "help"]
    assert [one["description"] for one in made] == ["Looks for a zebra.", "Saves.", "x" * 99 + "…", "help"]
    assert made[1]["description_localizations"] == {"de": "Merkt.", "zh-CN": "保存", "zh-TW": "保存"}
    assert made[0]["options"] == [
        {"type": 3, "name": "where", "description": "where", "required": False},
        {"type": 3, "name": "_odd", "description": "_odd", "required": False},
    ]
    assert all(one["contexts"] == [0, 1] and one["integration_types"] == [0] for one in made)


def test_no_more_are_offered_than_people_read() -> None:
    arguments = tuple(f"a{one}" for one in range(40))
    made = build_commands([CommandInfo(f"c{number}", "x", arguments, in_menu=True) for number in range(120)])
    check(made)
    assert [one["name"] for one in made] == [f"c{number}" for number in range(24)]


@given(
    st.lists(
        st.builds(
            CommandInfo,
            st.text(max_size=40),
            st.text(max_size=150),
            st.tuples(st.text(max_size=40)),
            in_menu=st.just(True),
        )
    )
)
def test_whatever_the_tools_are_called_discord_takes_the_list(infos: list[CommandInfo]) -> None:
    check(build_commands(infos))


def test_the_use_of_a_command_says_what_one_would_type() -> None:
    found = read_interaction("discord", "1", used(options={"title": "hello", "text": "two words"}))
    assert found is not None
    assert found.text == ',note title="hello" text="two words"'
    assert (found.external_id, found.message, found.time) == (f"i{ID}", ID, "2024-11-19T14:24:50.039000+00:00")
    assert (found.session, found.space, found.direct, found.addressed) == ("discord:11", "9", False, True)
    assert found.sender == Sender("42", "Annie", roles=("5",))
    assert "SECRET" not in repr(found)


def test_who_uses_a_command_or_presses_a_button_tells_their_language() -> None:
    told = read_interaction("discord", "1", used(locale="de"))
    assert told is not None
    assert told.sender.language == "de"
    data = {"component_type": 2, "custom_id": "b"}
    press = read_press("discord", used(locale="zh-CN") | {"type": 3, "data": data, "message": {"id": "77"}})
    assert press is not None
    assert press.sender.language == "zh-cn"
    other = read_interaction("discord", "1", used(locale=["de"]))
    assert other is not None
    assert other.sender.language == ""


def test_a_thread_is_a_part_of_its_channel_and_a_direct_chat_has_no_space() -> None:
    thread = read_interaction("discord", "1", used(channel={"id": "11", "type": 11, "parent_id": "10"}))
    assert thread is not None
    assert thread.session == "discord:10:11"
    raw = used(channel={"id": "11", "type": 1}, user=USER)
    del raw["guild_id"], raw["member"]
    direct = read_interaction("discord", "1", raw)
    assert direct is not None
    assert (direct.session, direct.direct, direct.space, direct.sender) == ("discord:11", True, "", Sender("42", "Ann"))
    assert direct.text == ",note"


@given(st.text(), st.text())
@example('"', 'text="a" title="b"')
@example('say "hi"\nthere ""', '"whole"')
@example("", " ")
@example("C:\\new", ",stop")
def test_any_value_arrives_as_it_was_given(title: str, text: str) -> None:
    found = read_interaction("discord", "1", used(options={"title": title, "text": text}))
    assert found is not None
    _, args = parse_command(found.text, BOX, Texts())
    assert isinstance(args, NoteArgs)
    assert (args.title, args.text) == (title, text)


@pytest.mark.parametrize(
    "raw",
    [
        used(type=1), used(type=3), used(data={"type": 2, "name": "menu"}), used(id="x"), used(id=5), used(data=[]),
        used(member={"user": None}), used(channel_id=None, channel=None), used(data={"type": 1, "name": "a", "options": [1]}),
        used(id="9" * 300), {}, [], None, "x", used(member={"user": USER | {"id": "1"}}),
    ],
)  # fmt: skip
def test_what_is_no_use_of_a_command_says_nothing(raw: Any) -> None:
    assert read_interaction("discord", "1", raw) is None


def test_a_name_is_one_that_people_can_type() -> None:
    found = read_interaction("discord", "1", used("help"))
    assert found is not None
    assert re.fullmatch(r",[a-z]+", found.text)
