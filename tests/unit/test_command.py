"""A command is one method: chat, shell and model say the same call in their own words."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import (
    Caller,
    Surface,
    command,
    find_spec,
    make_group,
    make_tool,
    make_tools,
)
from bubbot.errors import (
    AccessError,
    CommandError,
    CommandFailed,
    CommandRefused,
    ConfigError,
    ConfirmationNeeded,
    ToolFailed,
    ToolRetry,
    ValueInvalid,
)
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.shell_command import CommandContext, CommandFailure, CommandGroup, CommandResult
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from bubbot.tool import (
    ADMINISTERS,
    READS_OWN,
    ArgumentsInvalid,
    CallPlan,
    CommandHelp,
    HelpTopic,
    Tool,
    plan_call,
    validate_args,
)
from tests.doubles import NO_RUNNER, SteppingClock

SENTENCES = {
    "LampChange.on": "{room} is {colour}. {undo} ends it.",
    "LampChange.on@chat": "Light in {room}: {colour}! {undo} ends it.",
    "LampChange.off": "{room} is dark.",
    "LampRow": "{room} is {colour}",
    "LampRow@shell": "{room}  {colour}",
    "LampRow.none": "All is dark.",
    "LampRow.end": "Good night.",
    "no_lamp": "there is no lamp in {room}: {command} lists them",
    "room_unknown": "{room!r} is no room",
    "dark_asked": "Leave {room} in the dark?",
    "not_allowed": "{command} is for the {needed}, and you are {role}",
    "only_direct": "{command} works in a direct chat alone",
}


class LampArgs(Args, frozen=True):
    """A room, and a colour."""

    room: Annotated[str, Meta(description="the room", min_length=1)]
    colour: Annotated[Literal["red", "blue"], Meta(description="of the light")] = "red"


class LampRow(Struct, frozen=True):
    """A light.

    Attributes:
        room: where.
        colour: which.
    """

    room: str
    colour: str


class LampChange(LampRow, frozen=True):
    """A light after a change."""

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "on" if self.colour else "off"


class Lamps:
    """The lights of a house."""

    def __init__(self) -> None:
        self.lights: dict[str, str] = {}
        self.gate: asyncio.Event | None = None

    @command(
        "lamp light <room> [colour]",
        chat=("lamp.light", "light"),
        form="<room> in <colour>",
        example="kitchen blue",
        role=Role.ADMIN,
        effect=ADMINISTERS,
        for_model=True,
        undo="lamp dark",
        help=CommandHelp(HelpTopic.OTHER, "Light a room", (",light kitchen in blue",)),
    )
    async def light(self, caller: Caller, args: LampArgs) -> LampChange:
        """Light a room."""
        if args.room == "moon":
            raise ValueInvalid("room_unknown", room=args.room)
        if args.room == "cellar":
            raise CommandRefused("no_lamp", room=args.room)
        if args.room == "roof":
            raise CommandFailed("no_lamp", room=args.room)
        if self.gate is not None:
            await self.gate.wait()
        self.lights[args.room] = args.colour
        return LampChange(args.room, args.colour)

    async def _ask_dark(self, _caller: Caller, args: LampArgs) -> ConfirmationNeeded | None:
        return ConfirmationNeeded("dark_asked", room=args.room) if args.room in self.lights else None

    @command(
        "lamp dark <room>",
        chat=("lamp.dark",),
        form="<room>",
        role=Role.OWNER,
        effect=ADMINISTERS,
        ask=_ask_dark,
        is_direct=True,
    )
    async def dark(self, args: LampArgs) -> LampChange:
        """Leave a room in the dark."""
        self.lights.pop(args.room, None)
        return LampChange(args.room, "")

    @command("lamp list", chat=("lamp.list", "lamps"), effect=READS_OWN, rows="lamps")
    async def list_lamps(self) -> list[LampRow]:
        """List the lights."""
        return [LampRow(room, colour) for room, colour in self.lights.items()]

    @command("lamp count", effect=READS_OWN, in_shell=False, chat=("lamp.count",))
    async def count(self, caller: Caller) -> LampRow:
        """Count the lights."""
        return LampRow(caller.id, str(len(self.lights)))


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Texts:
    folder = tmp_path / "lamp_texts"
    folder.mkdir()
    (folder / "__init__.py").touch()
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    entries = [f'msgctxt "{name}"\nmsgid "{text}"\nmsgstr ""\n' for name, text in SENTENCES.items()]
    (folder / "lamps.pot").write_text("\n".join([head, *entries]))
    (folder / "de").mkdir()
    german = [f'msgctxt "{name}"\nmsgid "{text}"\nmsgstr "Deutsch: {text}"\n' for name, text in SENTENCES.items()]
    (folder / "de" / "lamps.po").write_text("\n".join([head, *german]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lamp_texts", raising=False)
    return Texts(package="lamp_texts")


@pytest.fixture
def lamps() -> Lamps:
    return Lamps()


def bare_turn(role: Role, texts: Texts) -> Turn:
    """Return a turn of one person in a direct chat; no command of the lamps looks at its tape."""
    unused: Any = None
    sent = AcceptedInbound(1, Inbound("test", "1", "1", Sender("1"), "", "2026-11-24T10:00:00Z", direct=True))
    return Turn(
        "t", "test:1", unused, Sender("1"), role, SteppingClock(), UTC, texts=texts, inbounds=[sent], runner=NO_RUNNER
    )


class Chat:
    """The tools of the lamps, and people who type them."""

    def __init__(self, lamps: Lamps, texts: Texts) -> None:
        self.tools = {tool.name: tool for tool in make_tools(Lamps, lambda: lamps)}
        self._texts = texts

    async def say(self, tool: str, *, role: Role = Role.OWNER, typed: bool = True, **values: Any) -> str:
        turn = bare_turn(role, self._texts)
        turn.runs_command = typed
        found: Tool = self.tools[tool]
        return str(await found.run(turn, found.validate(values)))


@pytest.fixture
def chat(lamps: Lamps, texts: Texts) -> Chat:
    return Chat(lamps, texts)


class Shell:
    """The group of the lamps, and somebody in a shell."""

    def __init__(self, lamps: Lamps, texts: Texts) -> None:
        async def open_lamps(_context: CommandContext) -> Lamps:
            return lamps

        self.group = make_group("lamp", Lamps, open_lamps, "Lights.")
        self._texts = texts

    async def run(self, name: str, *, asks: bool = False, **values: Any) -> CommandResult:
        found = self.group.find(name)
        assert found is not None
        context: Any = CommandContext(InMemoryStore(), "", SteppingClock(), str, texts=self._texts)
        run = found.question if asks else found.run
        assert run is not None
        return await run(context, found.args(**values))


@pytest.fixture
def shell(lamps: Lamps, texts: Texts) -> Shell:
    return Shell(lamps, texts)


class TestCalls:
    async def test_a_method_gets_what_it_names(self, lamps: Lamps) -> None:
        assert await lamps.light(Caller(), LampArgs("hall")) == LampChange("hall", "red")
        assert await lamps.list_lamps(Caller()) == [LampRow("hall", "red")]
        assert await lamps.count(Caller(id="test:7")) == LampRow("test:7", "1")

    @pytest.mark.parametrize(
        ("caller", "code"),
        [
            (Caller(role=Role.MEMBER), "not_allowed"),
            (Caller(role=Role.ADMIN), "not_allowed"),
            (Caller(is_direct=True, has_power=False), "only_direct"),
        ],
    )
    async def test_role_and_place_are_checked_in_the_call(self, lamps: Lamps, caller: Caller, code: str) -> None:
        with pytest.raises(CommandRefused) as caught:
            await lamps.dark(caller, LampArgs("hall"))
        assert caught.value.code == code

    async def test_a_question_comes_before_the_change(self, lamps: Lamps) -> None:
        await lamps.light(Caller(), LampArgs("hall"))
        with pytest.raises(ConfirmationNeeded):
            await lamps.dark(Caller(), LampArgs("hall"))
        assert lamps.lights
        await lamps.dark(Caller(has_confirmed=True), LampArgs("hall"))
        assert not lamps.lights

    async def test_what_changes_anything_is_done_though_its_caller_is_cancelled(self, lamps: Lamps) -> None:
        lamps.gate = asyncio.Event()
        task = asyncio.ensure_future(lamps.light(Caller(), LampArgs("hall")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        lamps.gate.set()
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        assert lamps.lights == {"hall": "red"}

    async def test_a_list_may_be_typed_with_an_item_on_each_line(self) -> None:
        class ListArgs(Args, frozen=True):
            """Two lists."""

            steps: Annotated[tuple[str, ...], "one a line"] = ()
            ids: tuple[int, ...] = ()

        assert validate_args("lamp", ListArgs, {"steps": "go, then\n rest\n", "ids": "1, 2"}) == ListArgs(
            ("go, then", "rest"), (1, 2)
        )

    def test_the_declaration_is_read_off_the_class(self) -> None:
        light = find_spec(Lamps, "lamp light")
        assert (light.shell_form, light.args, light.result, light.row) == (
            "<room> [colour]",
            LampArgs,
            LampChange,
            None,
        )
        assert find_spec(Lamps, "lamp list").row is LampRow
        with pytest.raises(KeyError, match="Lamps has no command 'lamp lamp'"):
            find_spec(Lamps, "lamp lamp")


class TestChat:
    async def test_the_sentence_is_that_of_the_type_and_the_call_that_undoes_is_rendered(self, chat: Chat) -> None:
        assert await chat.say("lamp.light", room="hall") == "Light in hall: red! ,lamp.dark hall ends it."
        assert await chat.say("lamp.list") == "hall is red"
        assert await chat.say("lamp.light", typed=False, room="hall") == "hall is red. ,lamp.dark hall ends it."

    async def test_a_list_of_nothing_has_a_sentence(self, chat: Chat) -> None:
        assert await chat.say("lamp.list") == "All is dark."

    async def test_people_read_their_language_and_models_english(self, lamps: Lamps, texts: Texts) -> None:
        german = Chat(lamps, texts.in_language("de"))
        assert await german.say("lamp.list") == "Deutsch: All is dark."
        assert await german.say("lamp.list", typed=False) == "All is dark."
        light = await german.say("lamp.light", typed=False, room="hall")
        assert light == "hall is red. ,lamp.dark hall ends it."

    async def test_commands_are_written_as_the_platform_has_them(self, lamps: Lamps, texts: Texts) -> None:
        slashes = Chat(lamps, texts.with_command_prefix("/"))
        assert await slashes.say("lamp.light", room="hall") == "Light in hall: red! /lamp_dark hall ends it."

    @pytest.mark.parametrize(
        ("room", "sentence"),
        [("cellar", "there is no lamp in cellar: ,light lists them"), ("moon", "'moon' is no room")],
    )
    async def test_a_refusal_is_said(self, chat: Chat, room: str, sentence: str) -> None:
        with pytest.raises(ToolRetry) as caught:
            await chat.say("lamp.light", room=room)
        assert str(caught.value) == sentence

    async def test_a_role_that_is_too_low_is_said(self, chat: Chat) -> None:
        with pytest.raises(ToolRetry, match=",light is for the admin, and you are member"):
            await chat.say("lamp.light", role=Role.MEMBER, room="hall")

    async def test_a_turn_without_the_messages_that_it_answers_is_not_direct(self, texts: Texts) -> None:
        turn = bare_turn(Role.OWNER, texts)
        assert [Caller.of_turn(turn).is_direct, Caller.of_turn(turn).has_power] == [True, True]
        turn.inbounds = []
        assert [Caller.of_turn(turn).is_direct, Caller.of_turn(turn).has_power] == [False, False]

    @pytest.mark.parametrize(("room", "signal"), [("cellar", ToolRetry), ("roof", ToolFailed)])
    async def test_a_plan_is_refused_as_its_command_is(
        self, lamps: Lamps, texts: Texts, room: str, signal: type[Exception]
    ) -> None:
        async def plan(turn: Turn, args: LampArgs) -> CallPlan:
            await lamps.light(Caller.of_turn(turn), args)
            return CallPlan(ADMINISTERS, "light")

        light = make_tool(find_spec(Lamps, "lamp light"), Lamps, lambda: lamps, plan=plan)
        turn, args = bare_turn(Role.OWNER, texts), light.validate({"room": room})
        for call in (light.run(turn, args), plan_call(turn, light, args)):
            with pytest.raises(signal, match=f"^there is no lamp in {room}: ,light lists them"):
                await call

    async def test_a_question_is_the_answer(self, chat: Chat, lamps: Lamps) -> None:
        await chat.say("lamp.light", room="hall")
        assert await chat.say("lamp.dark", room="hall") == "Leave hall in the dark?"
        assert lamps.lights

    def test_words_that_join_are_left_out(self, chat: Chat) -> None:
        light = chat.tools["lamp.light"]
        assert light.words == ("room", "colour")
        assert light.validate({"room": "hall", "colour": "in blue"}) == LampArgs("hall", "blue")

    def test_every_wrong_argument_is_told(self, chat: Chat) -> None:
        with pytest.raises(ArgumentsInvalid) as caught:
            chat.tools["lamp.light"].validate({"room": "", "colour": "green", "size": 3})
        assert str(caught.value) == (
            'lamp.light: room is empty; colour is "green", but must be red or blue; there is no size; it takes room, colour'
        )

    def test_the_tool_is_what_was_declared(self, chat: Chat) -> None:
        light = chat.tools["lamp.light"]
        assert (light.summary, light.commands, light.role, light.for_model) == (
            "Light a room.",
            ("light",),
            Role.ADMIN,
            True,
        )
        assert light.spec().parameters == {
            "properties": {
                "room": {"description": "the room", "type": "string"},
                "colour": {"description": "of the light", "enum": ["red", "blue"], "type": "string"},
            },
            "required": ["room"],
            "type": "object",
        }


class TestShell:
    async def test_it_has_its_own_sentence_and_undoes_in_its_own_words(self, shell: Shell) -> None:
        result = await shell.run("lamp light", room="the hall")
        assert result.text == "the hall is red. `bubbot lamp dark 'the hall'` ends it.\n"
        assert result.data == {"room": "the hall", "colour": "red"}

    async def test_a_list_is_a_table_and_an_object_for_programs(self, shell: Shell, lamps: Lamps) -> None:
        assert (await shell.run("lamp list")).text == "All is dark.\n"
        lamps.lights |= {"hall": "red", "a\x1b[2J": "blue"}
        result = await shell.run("lamp list")
        assert result.rows == (("hall", "red"), ("a\\x1b[2J", "blue"))
        assert result.text == "\nGood night.\n"
        assert result.data == {"lamps": [{"room": "hall", "colour": "red"}, {"room": "a\x1b[2J", "colour": "blue"}]}

    @pytest.mark.parametrize(("room", "kind"), [("cellar", AccessError), ("moon", ConfigError), ("roof", CommandError)])
    async def test_a_refusal_is_an_error_of_the_shell(self, shell: Shell, room: str, kind: type[Exception]) -> None:
        with pytest.raises(kind, match=room):
            await shell.run("lamp light", room=room)

    async def test_the_question_is_asked_by_the_shell(self, shell: Shell, lamps: Lamps) -> None:
        assert (await shell.run("lamp dark", asks=True, room="hall")).text == ""
        lamps.lights["hall"] = "red"
        assert (await shell.run("lamp dark", asks=True, room="hall")).text == "Leave hall in the dark?"
        assert (await shell.run("lamp dark", room="hall")).text == "hall is dark.\n"

    def test_the_command_is_what_was_declared(self, shell: Shell) -> None:
        assert [each.name for each in shell.group.commands] == ["lamp light", "lamp dark", "lamp list"]
        light, _, listed = shell.group.commands
        assert (light.help, light.example, light.writes, light.words) == (
            "light a room",
            "lamp light kitchen blue",
            True,
            ("room", "colour"),
        )
        assert (light.requires("room"), light.requires("colour")) == (True, False)
        assert (listed.writes, listed.is_answered_without_home, listed.rows) == (False, True, "lamps")


def test_a_caller_of_a_turn_is_its_person() -> None:
    turn = bare_turn(Role.ADMIN, Texts())
    turn.runs_command = True
    caller = Caller.of_turn(turn)
    assert (caller.role, caller.surface, caller.turn) == (Role.ADMIN, Surface.CHAT, turn)
    assert caller.id == f"{turn.session.partition(':')[0]}:{turn.sender.id}"


class PageArgs(Args, frozen=True):
    """A page, as a chat names it."""

    title: str


class FolderArgs(Args, frozen=True):
    """A page, as a shell names it."""

    folder: str
    title: str = "today"


class Page(Struct, frozen=True):
    """A page of a diary: what programs are told.

    Attributes:
        title: its title.
    """

    title: str


class WrittenPage(Page, frozen=True, kw_only=True):
    """A page with what people are told."""

    is_text: ClassVar = True
    text: str

    @property
    def exit_code(self) -> int:
        """Nothing is an exit code of its own."""
        return 0 if self.text else 1

    def describe(self, _caller: Caller) -> str:
        """Show the text."""
        return self.text


class Export(WrittenPage, frozen=True, kw_only=True):
    """A page for a file."""

    is_raw: ClassVar = True
    file: str | None = None


class Refusal(WrittenPage, frozen=True, kw_only=True):
    """Why there is no page."""

    is_error: ClassVar = True


class DayArgs(Args, frozen=True):
    """A page by its title or its day."""

    title: str = ""
    day: int = 0

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read a number as the day."""
        return {"day": values["title"]} if str(values.get("title", "")).isdigit() else values


class Diary:
    """Pages that chats and shells name in different ways."""

    @command("diary read [folder]", chat=("diary.read",), form="<title>", effect=READS_OWN)
    async def read(self, args: PageArgs | FolderArgs) -> Page:
        """Read a page."""
        folder = args.folder if isinstance(args, FolderArgs) else "chat"
        return WrittenPage(args.title, text=f"{folder}\t{args.title}" if args.title != "empty" else "")

    @command("diary burn <folder>", effect=READS_OWN, progress=("Burning {folder}", "pages"))
    async def burn(self, args: FolderArgs) -> Page:
        """Refuse to burn a folder."""
        return Refusal(args.title, text=f"{args.folder} stays")

    @command("diary export <folder>", effect=READS_OWN)
    async def export(self, args: FolderArgs) -> Page:
        """Write a page to a file."""
        return Export(args.title, text="\u200d", file=f"{args.folder}.md")


class TestTwoKindsOfArguments:
    @pytest.fixture
    def group(self) -> CommandGroup:
        async def open_diary(_context: CommandContext) -> Diary:
            return Diary()

        return make_group("diary", Diary, open_diary, "Pages.")

    async def run(self, group: CommandGroup, name: str, **values: str) -> CommandResult:
        found, context = group.find(name), CommandContext(InMemoryStore(), "", SteppingClock(), str)
        assert found is not None
        return await found.run(context, found.args(**values))

    async def test_each_surface_has_its_own(self, group: CommandGroup, texts: Texts) -> None:
        (tool,) = make_tools(Diary, Diary)
        assert [*tool.fields] == ["title"]
        assert await tool.run(bare_turn(Role.OWNER, texts), tool.validate({"title": "x"})) == "chat\tx"
        assert [*group.commands[0].fields] == ["folder", "title"]
        assert (await self.run(group, "diary read", folder="old")).text == "old\ttoday\n"

    async def test_programs_get_the_declared_fields_and_the_code_of_the_result(self, group: CommandGroup) -> None:
        result = await self.run(group, "diary read", folder="old", title="empty")
        assert (result.data, result.code, result.text) == ({"title": "empty"}, 1, "")

    async def test_a_result_may_say_why_nothing_was_done(self, group: CommandGroup) -> None:
        result = await self.run(group, "diary burn", folder="old")
        assert isinstance(result, CommandFailure)
        assert (result.text, result.data) == ("old stays\n", {"title": "today"})

    def test_a_command_declares_the_progress_of_long_work(self, group: CommandGroup) -> None:
        assert [each.progress for each in group.commands] == [None, ("Burning {folder}", "pages"), None]

    def test_the_look_of_a_word_may_say_which_field_it_is_for(self) -> None:
        assert validate_args("diary", DayArgs, {"title": "7"}) == DayArgs(day=7)
        assert validate_args("diary", DayArgs, {"title": "june"}) == DayArgs("june")

    async def test_a_result_may_be_written_to_a_file_as_it_is(self, group: CommandGroup) -> None:
        result = await self.run(group, "diary export", folder="old")
        assert (result.text, result.raw, result.file, result.code) == (
            "\u200d\n",
            True,
            "old.md",
            0,
        )
