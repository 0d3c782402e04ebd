"""The memory of a session, from the shell."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.cli.commands import Shell
from bubbot.errors import ConfigError, EntryNotFound, UsageError
from bubbot.features.memory.arguments import (
    ForgetOwnerArgs,
    ImportFilesArgs,
    RestoreOwnerArgs,
    SaveOwnerArgs,
    ShowOwnerArgs,
    parse_entry_id,
)
from bubbot.features.memory.commands import COMMANDS as MEMORY_COMMANDS
from bubbot.features.memory.scopes import MemoryCommandOptions, SeparateAccounts
from bubbot.features.memory.settings import MemorySettings
from bubbot.shell_command import CommandContext
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock

COMMANDS = {command.action: command for command in MEMORY_COMMANDS.commands}


@pytest.mark.law("T8")
async def test_memory_is_shown_as_it_was_at_an_entry(chat: TapeService, store: TapeStore, ids: CountingIds) -> None:
    await chat.ensure_bootstrap_anchor()
    options = MemoryCommandOptions(MemorySettings(), lambda _: SeparateAccounts())
    context = CommandContext(store, "w", SteppingClock(), ids, settings=options)
    heads, show = [], COMMANDS["show"]
    for text in ("Likes tea.", "Likes coffee."):
        await COMMANDS["save"].run(context, SaveOwnerArgs(chat.name, content=text))
        heads.append(await chat.head())
    for as_of, word, versions in ((None, "coffee", [1, 2]), (heads[1], "coffee", [1, 2]), (heads[0], "tea", [1])):
        shown = await show.run(context, ShowOwnerArgs(chat.name, as_of=as_of))
        assert shown.data is not None
        assert (shown.data["memory"]["long_term"], [*shown.data["versions"]]) == (f"Likes {word}.", versions)
    # In the midst of the batch of a version that version is not sealed yet.
    shown = await show.run(context, ShowOwnerArgs(chat.name, as_of=heads[1] - 1))
    assert "Likes tea." in shown.text
    assert "Nothing is remembered" in (await show.run(context, ShowOwnerArgs(chat.name, as_of=1))).text
    with pytest.raises(ConfigError, match="--as-of 999: the newest entry"):
        await show.run(context, ShowOwnerArgs(chat.name, as_of=999))
    assert await chat.head() == heads[1]


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "9" * 30])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the number of an entry"):
        parse_entry_id(text)


@pytest.fixture
def context(store: TapeStore, ids: CountingIds) -> CommandContext:
    options = MemoryCommandOptions(MemorySettings(), lambda _: SeparateAccounts())
    return CommandContext(store, "w", SteppingClock(), ids, settings=options, texts=Texts("de"))


async def test_a_shell_is_answered_in_the_language_of_the_bot(chat: TapeService, context: CommandContext) -> None:
    await chat.ensure_bootstrap_anchor()
    save, show = COMMANDS["save"], COMMANDS["show"]
    first = await save.run(context, SaveOwnerArgs(chat.name, content="Mag Tee.\tIst in Bonn."))
    assert first.text == f"Das Gedächtnis von {chat.name} ist jetzt Version 1 (Eintrag 4), mit 0 Tagesnotizen.\n"
    assert save.question is not None
    asked = await save.question(context, SaveOwnerArgs(chat.name, content="Mag Kaffee."))
    assert asked.text == "Diese Zeilen gehen:\n- Mag Tee.\\tIst in Bonn.\nDas Gedächtnis ersetzen?"
    assert "Auf dem Band: Version 1." in (await show.run(context, ShowOwnerArgs(chat.name))).text
    with pytest.raises(EntryNotFound, match="es gibt keine Gedächtnisversion 9; dieses Band hat Version 1"):
        await COMMANDS["restore"].run(context, RestoreOwnerArgs(chat.name, version=9))
    with pytest.raises(ConfigError, match="nenne eine Sitzung"):
        await show.run(context, ShowOwnerArgs())
    with pytest.raises(ConfigError, match="Langzeitgedächtnis: Das wären 70000 Bytes"):
        await save.run(context, SaveOwnerArgs(chat.name, content="x" * 70_000))


async def test_the_text_of_people_is_printed_as_it_is(chat: TapeService, context: CommandContext) -> None:
    await chat.ensure_bootstrap_anchor()
    await COMMANDS["save"].run(
        context, SaveOwnerArgs(chat.name, content="A tab\there, a family \U0001f469\u200d\U0001f467.")
    )
    assert (
        "tab\there, a family \U0001f469\u200d" in (await COMMANDS["show"].run(context, ShowOwnerArgs(chat.name))).text
    )


@pytest.mark.parametrize(
    ("action", "args", "taken"),
    [
        ("save", SaveOwnerArgs("Tea.", workspace=True), SaveOwnerArgs(content="Tea.", workspace=True)),
        ("save", SaveOwnerArgs("work", content="Tea."), SaveOwnerArgs("work", content="Tea.")),
        ("forget", ForgetOwnerArgs("tea", user="test:1"), ForgetOwnerArgs(text="tea", user="test:1")),
        ("restore", RestoreOwnerArgs("3", workspace=True), RestoreOwnerArgs(version=3, workspace=True)),
    ],
)
def test_a_word_after_user_or_workspace_is_no_session(action: str, args: Any, taken: Any) -> None:
    prepare = COMMANDS[action].prepare
    assert prepare is not None
    assert prepare(args, Shell()) == taken


@pytest.mark.parametrize(
    ("action", "args", "reason"),
    [
        ("save", SaveOwnerArgs("work"), "the text is missing"),
        ("forget", ForgetOwnerArgs(workspace=True), "the text is missing"),
        ("restore", RestoreOwnerArgs("two", workspace=True), "'two' is not the number of a version"),
        ("import", ImportFilesArgs("work"), "the path is missing"),
    ],
)
def test_a_word_that_is_missing_or_wrong_is_an_error_of_usage(action: str, args: Any, reason: str) -> None:
    prepare = COMMANDS[action].prepare
    assert prepare is not None
    with pytest.raises(UsageError, match=f"{reason}; see `bubbot memory {action} --help`"):
        prepare(args, Shell())
