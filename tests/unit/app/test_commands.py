"""Commands of features in a bot: typed in a chat, given the bot's own services, or left out."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from bubbot import plugins
from bubbot.app.bot import Bot, open_app
from bubbot.app.commands import bind_context, find_command, typed_tools
from bubbot.app.installed import load_command_group
from bubbot.arguments.fields import Args
from bubbot.errors import AccessError, ConfigError
from bubbot.feature import Feature, FeatureFactory
from bubbot.features.schedule.store import ScheduleStore
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.shell_command import Argument, Command, CommandContext, CommandGroup, CommandResult, command
from bubbot.tape.entry import message
from bubbot.tape.query import TapeQuery
from bubbot.tool import validate_args

SETTINGS = Settings(model=ModelSettings(name="scripted"))


class NoteSettings(SettingsSection):
    """Settings of a package."""

    mark: str = "!"


class NoteArgs(Args, frozen=True):
    """A note, and where it goes."""

    text: Annotated[str, Argument("what to note")]
    session: Annotated[str | None, Argument("where")] = None


@command("note add", writes=True, typed=("note",), role=Role.MEMBER)
async def add(context: CommandContext, args: NoteArgs) -> CommandResult:
    """Write a note."""
    if args.text == "nothing":
        raise ConfigError("there is nothing to note")
    async with context.open_session(args.session, write=True, create=True) as tape:
        await tape.append([message("user", f"{args.text}{context.settings.mark}")])
    jobs = context.service(ScheduleStore)
    return CommandResult(f"Noted, beside {'no' if jobs is None else len(jobs.state.jobs)} jobs.\n")


@command("note drop", typed=("drop",))
async def drop(context: CommandContext, args: Args) -> CommandResult:
    """Drop a note."""
    return CommandResult("dropped")


NOTES = CommandGroup("note", (add, drop))


def said(text: str, number: int) -> Inbound:
    return Inbound("stdin", str(number), "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")


async def answers(home: Path, *lines: str) -> list[str]:
    async with open_app(SETTINGS, Home(home), channel_settings={"write": lambda _: None}) as app:
        return [(await app.ask(said(line, number))).text for number, line in enumerate(lines)]


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package offers the feature and its commands."""
    factory = FeatureFactory(
        "note", lambda _kernel, _settings: Feature(name="note", commands=NOTES.commands), NoteSettings
    )
    offered: dict[str, dict[str, Any]] = {"bubbot.features": {"note": factory}, "bubbot.commands": {"note": NOTES}}
    load, list_names = plugins.load_object, plugins.list_names
    monkeypatch.setattr("bubbot.plugins.list_names", lambda group: sorted(offered.get(group, ())) or list_names(group))
    monkeypatch.setattr(
        "bubbot.plugins.load_object",
        lambda group, name: offered[group][name] if group in offered else load(group, name),
    )


@pytest.mark.usefixtures("_installed")
async def test_a_typed_command_writes_to_the_fork_of_the_turn_with_settings_and_services(tmp_path: Path) -> None:
    async with open_app(SETTINGS, Home(tmp_path), channel_settings={"write": lambda _: None}) as app:
        assert (await app.ask(said(",remind in 5m: tea", 1))).text
        result = await app.ask(said(",note milk", 2))
        assert (result.status, result.text) == ("answered", "Noted, beside 1 jobs.")
        assert "milk!" in [entry.payload.get("content") for entry in result.merged_entries]


@pytest.mark.usefixtures("_installed")
async def test_what_a_typed_command_refuses_is_its_answer(tmp_path: Path) -> None:
    refused = await answers(tmp_path, ",note nothing", ",note milk session=other", ",note", ",drop")
    assert refused[:2] == [
        "there is nothing to note",
        "in a chat this command works on the chat itself; the shell reaches the others",
    ]
    assert "text is missing" in refused[2]
    assert refused[3] == "dropped", "the terminal is the owner"


@pytest.mark.usefixtures("_installed")
async def test_the_role_of_a_typed_command_is_that_of_the_declaration(tmp_path: Path) -> None:
    async with open_app(SETTINGS, Home(tmp_path), channel_settings={"write": lambda _: None}) as app:
        tools = typed_tools([Feature(name="note", commands=NOTES.commands)], base(app), SETTINGS)
    assert [(tool.name, tool.commands, tool.role, tool.for_model) for tool in tools] == [
        ("note.add", ("note",), Role.MEMBER, False),
        ("note.drop", ("drop",), Role.OWNER, False),
    ]


@pytest.mark.usefixtures("_installed")
async def test_one_whose_name_another_tool_has_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clash = Command(name="note again", run=add.run, args=NoteArgs, typed=("new",))
    async with open_app(SETTINGS, Home(tmp_path), channel_settings={"write": lambda _: None}) as app:
        taken = [replace(feature, commands=()) for feature in app.features.lasting if feature.tools]
        name = taken[0].tools[0].name
        same = Command(name="note same", run=add.run, args=NoteArgs, typed=(name,))
        with caplog.at_level(logging.WARNING):
            tools = typed_tools([*taken, Feature(name="note", commands=(same, clash, clash))], base(app), SETTINGS)
    assert [tool.name for tool in tools if tool.name.startswith("note")] == ["note.again"]
    assert f"command left out: 'note same', since another one answers to ,{name}" in caplog.text


def base(app: Bot) -> CommandContext:
    return app.turn_services.command_context


@pytest.mark.usefixtures("_installed")
async def test_a_shell_writes_to_any_session_but_not_to_archives_and_tapes_of_the_system(tmp_path: Path) -> None:
    async with open_app(SETTINGS, Home(tmp_path), channel_settings={"write": lambda _: None}) as app:
        context = bind_context(base(app), "note add", SETTINGS)
        assert find_command("note add") is add
        assert (await add.run(context, NoteArgs(text="milk", session="work"))).text == "Noted, beside 0 jobs.\n"
        tape = app.tape("stdin:work")
        [entries] = await app.store.fetch([TapeQuery(tape.name, kinds=("message",))])
        assert [entry.payload["content"] for entry in entries] == ["milk!"]
        archive = await tape.reset()
        with pytest.raises(ConfigError, match="is an archive; its content can be read and no longer changed"):
            await add.run(context, NoteArgs(text="milk", session=archive))
        await app.ask(said("hello", 1))
        system = next(each.name for each in await app.store.tapes() if each.name.startswith("bubbot/"))
        with pytest.raises(ConfigError, match="belongs to the system and is never opened by commands"):
            await add.run(context, NoteArgs(text="milk", session=system))
        with pytest.raises(ConfigError, match="is not a session"):
            await add.run(context, NoteArgs(text="milk", session=":"))
        with pytest.raises(ConfigError, match=r"the session x{20}… has a name of 201 characters: use 200 at most"):
            await add.run(context, NoteArgs(text="milk", session="x" * 201))


async def test_a_change_of_the_shell_is_one_of_the_running_bots_own_service(tmp_path: Path) -> None:
    async with open_app(SETTINGS, Home(tmp_path), channel_settings={"write": lambda _: None}) as app:
        plan = find_command("schedule add")
        assert plan is not None
        args = validate_args(plan.name, plan.args, {"session": "stdin:default", "when": "every 1h", "text": "tea"})
        result = await plan.run(bind_context(base(app), plan.name, SETTINGS), args)
        assert app.schedule_store is not None
        [job] = app.schedule_store.state.jobs.values()
    assert (job.job.text, "is not running" in result.text) == ("tea", True)  # a chat fires no jobs


@pytest.mark.parametrize(
    ("name", "offered", "reason"),
    [
        ("memory", NOTES, "has a name that bubbot uses itself"),
        ("note", NOTES.commands, "is tuple, not a CommandGroup"),
        ("other", NOTES, "has commands with another first word"),
        ("note", CommandGroup("note", (Command(name="memory save", run=add.run),)), "with another first word"),
    ],
)
def test_commands_that_cannot_be_used_are_refused(
    name: str, offered: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.plugins.load_object", lambda _group, _name: offered)
    with pytest.raises(ConfigError, match=f"The plugin '{name}' of bubbot.commands .*{reason}"):
        load_command_group(name)


def test_a_function_without_help_or_arguments_makes_no_command() -> None:
    async def run(context: CommandContext, args: Args) -> CommandResult:
        raise AccessError("no")

    with pytest.raises(ConfigError, match="the command run needs a docstring"):
        command("note run")(run)
