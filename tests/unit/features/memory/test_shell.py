"""The memory of a session, from the shell."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from bubbot.app.commands import bind_context
from bubbot.errors import ConfigError, EntryNotFound, UsageError
from bubbot.features.access.service import AccessService
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import message
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import TapeStore
from tests.callers import ask_shell, by, read_shell, run, run_shell
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.made_settings import make_settings


@pytest.mark.law("T8")
async def test_memory_is_shown_as_it_was_at_an_entry(chat: TapeService, store: TapeStore, ids: CountingIds) -> None:
    await chat.ensure_bootstrap_anchor()
    context = bind_context(CommandContext(store, "w", SteppingClock(), ids), "memory show", make_settings())
    heads = []
    for text in ("Likes tea.", "Likes coffee."):
        await run_shell("memory save", context, chat.name, content=text)
        heads.append(await chat.head())
    for as_of, word, versions in ((None, "coffee", [1, 2]), (heads[1], "coffee", [1, 2]), (heads[0], "tea", [1])):
        shown = await run_shell("memory show", context, chat.name, as_of=as_of)
        assert shown.data is not None
        assert (shown.data["memory"]["long_term"], [*shown.data["versions"]]) == (f"Likes {word}.", versions)
    # In the midst of the batch of a version that version is not sealed yet.
    shown = await run_shell("memory show", context, chat.name, as_of=heads[1] - 1)
    assert "Likes tea." in shown.text
    assert "Nothing is remembered" in (await run_shell("memory show", context, chat.name, as_of=1)).text
    with pytest.raises(ConfigError, match="--as-of 999: the newest entry"):
        await run_shell("memory show", context, chat.name, as_of=999)
    assert await chat.head() == heads[1]


@pytest.fixture
def context(store: TapeStore, ids: CountingIds) -> CommandContext:
    settings = make_settings(bot={"language": "de"})
    return bind_context(CommandContext(store, "w", SteppingClock(), ids), "memory show", settings)


async def test_a_shell_is_answered_in_the_language_of_the_bot(chat: TapeService, context: CommandContext) -> None:
    await chat.ensure_bootstrap_anchor()
    first = await run_shell("memory save", context, chat.name, content="Mag Tee.\tIst in Bonn.")
    assert first.text == f"Das Gedächtnis von {chat.name} ist jetzt Version 1 (Eintrag 4), mit 0 Tagesnotizen.\n"
    asked = await ask_shell("memory save", context, chat.name, content="Mag Kaffee.")
    assert asked.text == "Diese Zeilen gehen:\n- Mag Tee.\\tIst in Bonn.\nDas Gedächtnis ersetzen?"
    assert "Auf dem Band: Version 1." in (await run_shell("memory show", context, chat.name)).text
    with pytest.raises(EntryNotFound, match="es gibt keine Gedächtnisversion 9; dieses Band hat Version 1"):
        await run_shell("memory restore", context, chat.name, version=9)
    with pytest.raises(ConfigError, match="nenne eine Sitzung"):
        await run_shell("memory show", context)
    with pytest.raises(ConfigError, match="Langzeitgedächtnis: Das wären 70000 Bytes"):
        await run_shell("memory save", context, chat.name, content="x" * 70_000)


async def test_the_text_of_people_is_printed_as_it_is(chat: TapeService, context: CommandContext) -> None:
    await chat.ensure_bootstrap_anchor()
    await run_shell("memory save", context, chat.name, content="A tab\there, a family \U0001f469\u200d\U0001f467.")
    assert "tab\there, a family \U0001f469\u200d" in (await run_shell("memory show", context, chat.name)).text


@pytest.mark.parametrize(
    ("action", "args", "taken"),
    [
        ("save", {"session": "Tea.", "workspace": True}, {"content": "Tea.", "workspace": True}),
        ("save", {"session": "work", "content": "Tea."}, {"session": "work", "content": "Tea."}),
        ("forget", {"session": "tea", "user": "test:1"}, {"text": "tea", "user": "test:1"}),
        ("restore", {"session": "3", "workspace": True}, {"version": 3, "workspace": True}),
    ],
)
def test_a_word_after_user_or_workspace_is_no_session(action: str, args: dict[str, Any], taken: dict[str, Any]) -> None:
    read = read_shell(f"memory {action}", **args)
    assert {name: value for name, value in structs.asdict(read).items() if value} == taken


@pytest.mark.parametrize(
    ("action", "args", "reason"),
    [
        ("save", {"session": "work"}, "the text is missing"),
        ("forget", {"workspace": True}, "the text is missing"),
        ("restore", {"session": "two", "workspace": True}, "'two' is not the number of a version"),
        ("import", {"session": "work"}, "the path is missing"),
    ],
)
def test_a_word_that_is_missing_or_wrong_is_an_error_of_usage(action: str, args: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"{reason}; see `bubbot memory {action} --help`"):
        read_shell(f"memory {action}", **args)


async def test_why_names_the_view_of_a_session_and_what_each_node_brings(store: TapeStore, ids: CountingIds) -> None:
    views = {"family": {"nodes": ["zone chat", "zone user", "zone workspace", "tape telegram:42"]}}
    settings = make_settings(memory={"view": "family", "views": views})
    context = bind_context(CommandContext(store, "w", SteppingClock(), ids), "memory why", settings)
    home, other = [context.open_tape(session_tape("w", name), name) for name in ("telegram:1", "telegram:42")]
    for tape in (home, other):
        await tape.ensure_bootstrap_anchor()
    await run_shell("memory save", context, home.name, content="Likes tea.")
    said = (await other.append([message("user", "the code is 4711", sender={"id": "7", "name": "Bob"})]))[0]
    refused = await run_shell("memory why", context, home.name)
    assert "Memory view: family, as the settings say." in refused.text
    assert "nothing: this chat may not read telegram:42" in refused.text
    assert "nothing: this person's own memory is not shown here" in refused.text
    access = AccessService(context.open_tape("bubbot/access"), now=SteppingClock(), random=CountingSalt())
    await run(access.grant_reading, by("terminal"), "telegram:42", "telegram:1")
    shown = await run_shell("memory why", context, home.name)
    assert f"  #{said.id}, " in shown.text
    assert "Bob (#7)" in shown.text
    assert shown.data is not None
    nodes = {node["node"]: node for node in shown.data["nodes"]}
    assert [entry["entry"] for entry in nodes["tape telegram:42"]["brought"]] == [said.id]
    assert nodes["zone chat"]["brought"][0]["part"] == "long_term"
    assert "4711" not in str(shown.data)
    assert shown.data["tokens"] == sum(node["tokens"] for node in nodes.values()) > 0


async def test_why_without_a_view_tells_the_zones(chat: TapeService, store: TapeStore, ids: CountingIds) -> None:
    await chat.ensure_bootstrap_anchor()
    context = bind_context(CommandContext(store, "w", SteppingClock(), ids), "memory why", make_settings())
    await run_shell("memory save", context, chat.name, content="Likes tea.")
    shown = await run_shell("memory why", context, chat.name)
    assert shown.text.startswith("Memory view: zones, as the settings say.\nOf memory the model is shown 10 characters")
    assert shown.data is not None
    assert (shown.data["view"], shown.data["origin"]) == ("zones", "configured")
