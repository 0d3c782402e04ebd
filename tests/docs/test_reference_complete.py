"""The reference names everything there is: settings, commands, tools, exit codes, and all that is written onto tapes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from bubbot import errors
from bubbot.app.bot import Bot, open_app
from bubbot.app.command_table import COMMANDS
from bubbot.app.events import OWN_REFERENCES
from bubbot.app.strategies import SELECTORS
from bubbot.cli.main import EXIT_CODES
from bubbot.cli.tree import list_common_options
from bubbot.errors import BubbotError
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender, UnparsedUpdate
from bubbot.ports.model import ToolSpecs
from bubbot.runtime.context.tokens import estimate_size
from bubbot.runtime.tool_list import SCHEMA_TOKENS, ToolList
from bubbot.settings.loader import ModelSettings, Settings, ToolSettings
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.references import walk_fields
from bubbot.tool import Effect, Tool, Toolbox
from tests.all_tools import all_tools
from tests.command_line import own_params, walk
from tests.docs.names import Written, written
from tests.docs.pages import ROOT
from tests.docs.settings_pages import all_settings

REFERENCE = ROOT / "docs" / "reference"
FORMAT = (REFERENCE / "tape-format.md").read_text(encoding="utf-8")
PASSED_ON = {
    "bubbot/runtime/session.py:_fail_batch",  # the kind of the error that made a turn impossible
    "bubbot/runtime/session.py:_record_denial",  # the kind of the error that refused the turn
    "bubbot/runtime/session.py:_record_failure",  # the kind of the error that ended the turn
    "bubbot/tape/fact.py:to_entry",  # a name of its class
    "bubbot/runtime/preparation.py:_make_entry",  # `context/prepared`, or an event of a package
    "bubbot/runtime/handoffs.py:run_handoff",  # `auto_handoff/` and the name of a strategy
    "bubbot/gateway/inbox_views.py:change_entry",  # that of its class
    "bubbot/gateway/inbox_views.py:inbound_entry",  # that of a class
    "bubbot/tape/handle.py:append_event",
    "bubbot/tape/handle.py:handoff",
    "bubbot/tape/service.py:fork_tape",  # the kind of the error that ended the block
    "bubbot/features/conversation/tape.py:handoff",  # a name that people and models choose
    "bubbot/features/topics/commands.py:_leave",  # `topic-left/` and the name of a topic, which people choose
    "bubbot/features/topics/commands.py:take_up",  # `topic/` and that name
    "bubbot/ports/turn.py:write_handoffs",
    "bubbot/tape/projection.py:write_checkpoint",
    "bubbot/features/agents/service.py:_answer",  # the kind of the error that ended a sub-task
    "bubbot/features/tasks/attempts.py:_work",  # `dag.node/init`
    "bubbot/features/tasks/attempts.py:_end",  # `dag.node/fin`
    "bubbot/features/tasks/runs.py:begin",  # `task/init`
    "bubbot/features/tasks/runs.py:_ask",  # `dag.node/init`
    "bubbot/features/tasks/runs.py:_end_gate",  # `dag.node/fin`
    "bubbot/features/tasks/runs.py:_pass",  # `task/checkpoint`
    "bubbot/features/tasks/runs.py:_finish",  # `task/fin`
    "bubbot/features/explain/service.py:_run",  # the kind of the error that ended an explanation
    "bubbot/features/agents/service.py:_opening",  # the window of a sub-task, named after it
}
"""Places that write under a name they were given. A new one has to be looked at: is what it is given documented?"""


def _page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def _rows(text: str, name: str) -> str:
    """The rows of the tables of a page that begin with a cell that names this; empty where there is none."""
    rows = re.findall(r"^\| (.*?) \| (.*)$", text, re.MULTILINE)
    return "\n".join(rest for first, rest in rows if f"`{name}`" in first)


def _named(text: str, names: Collection[str]) -> list[str]:
    """Those of the names that are in none of the code spans of the text."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return sorted(
        name for name in names if not any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", span) for span in spans)
    )


@pytest.mark.parametrize("setting", all_settings(), ids=lambda one: f"{one.section}.{one.key}")
def test_a_setting_is_in_the_reference_with_its_type_and_default(setting: Any) -> None:
    _, _, section = _page("config.md").partition(f"\n## [{setting.section}]\n")
    table = section.partition("\n## ")[0]
    row = _rows(table, setting.key)
    shown = "not set" if setting.default is None else f"`{json.dumps(setting.default, ensure_ascii=False)}`"
    assert row.startswith(f"{setting.type} | {shown} |")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_the_shell_is_in_the_reference_with_all_it_takes(name: str) -> None:
    _, heading, section = _page("commands.md").partition(f"\n### bubbot {name}\n")
    assert heading
    assert _named(section.partition("\n### ")[0].partition("\n## ")[0], list(_words(name))) == []


def test_every_selector_is_explained() -> None:
    assert _named((ROOT / "docs" / "concepts" / "tape.md").read_text(encoding="utf-8"), ("auto", *SELECTORS)) == []


def test_the_options_of_every_command_are_in_the_reference() -> None:
    words = ["-h", "--help", *(word for option in list_common_options() for word in option.opts)]
    assert {"--home", "--config"} <= set(words)
    assert _named(_page("commands.md"), words) == []


def _words(name: str) -> Iterator[str]:
    """Everything that is typed: options, arguments, subcommands and what those take."""
    for path, command in walk(name):
        yield from path.split()[1:]
        for param in own_params(command):
            word = param.metavar if param.metavar and param.metavar.isupper() else param.name
            yield from param.opts if isinstance(param, click.Option) else [str(word)]


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_a_tool_is_in_the_reference_with_its_arguments_and_commands(tool: Tool) -> None:
    row = _rows(_page("tools.md"), tool.name)
    assert row
    assert row.split("|")[0].strip() == str(tool.effect)
    assert _named(row, list(tool.fields)) == []
    typed = [] if tool.is_reserved else [f",{name}" for name in tool.commands] or [f",{tool.name}"]
    assert _named(_page("commands.md"), typed) == []


WORST = ["mcp.answer"]
"""The tools whose calls do what nobody knows: they are declared as if they were not."""


def test_every_tool_declares_its_effect() -> None:
    assert [tool.name for tool in all_tools() if tool.effect == Effect()] == WORST


def test_the_everyday_tools_stand_in_the_list_of_a_request() -> None:
    """With everything switched on. One that is not rare and does not fit needs fewer words, or another is to be rare."""
    tools = all_tools()
    listed = ToolList(Toolbox(tools)).specs()
    assert estimate_size(ToolSpecs.of(listed).encoded) <= SCHEMA_TOKENS
    everyday = {each.provider_name for each in tools if each.for_model and not (each.is_rare or each.is_reserved)}
    assert everyday - {spec.name for spec in listed} == set()


def test_the_reference_of_tools_names_no_otherall_tools() -> None:
    named = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", _page("tools.md"), re.MULTILINE)
    assert sorted(named) == sorted(tool.name for tool in all_tools())


def test_the_exit_codes_are_in_the_reference() -> None:
    page = _page("exit-codes.md")
    assert [kind.__name__ for kind in EXIT_CODES if f"`{kind.__name__}`" not in page] == []
    main: Any = import_module("bubbot.cli.main")
    codes = (
        main.EXIT_OK,
        main.EXIT_FAILED,
        main.EXIT_USAGE,
        main.EXIT_LOCKED,
        main.EXIT_DATABASE,
        main.EXIT_DAMAGED,
        main.EXIT_REFUSED,
        main.EXIT_INTERRUPTED,
    )
    assert [code for code in codes if f"\n| {code} |" not in page] == []


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_of_entry_is_in_the_reference(kind: Kind) -> None:
    assert _rows(FORMAT.partition("## Kinds")[2].partition("\n## ")[0], kind)


@pytest.fixture(scope="module")
def names() -> Written:
    """What the source writes; reading it takes a second, which only the worker that needs it spends."""
    return written(ROOT, ("bubbot", "channels"))


def test_a_name_that_the_source_writes_is_in_the_reference_with_its_data(names: Written) -> None:
    for name, data in names.names.items():
        row = _rows(FORMAT, name) or next((line for line in FORMAT.split("\n\n") if f"`{name}`" in line), "")
        assert row, f"docs/reference/tape-format.md does not say what {name} is"
        assert _named(row, data) == [], name


def test_every_other_place_only_passes_a_name_on(names: Written) -> None:
    assert names.open == PASSED_ON
    assert {"loop.step", "tape/erased", "memory/open"} <= names.names.keys()


def test_every_kind_of_error_is_in_the_reference(names: Written) -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BubbotError)]
    assert _named(FORMAT.partition("## Errors")[2], {*names.errors, *(one.kind for one in classes)}) == []


SCRIPT = {
    "rules": [
        {
            "when": "colour",
            "steps": [{"calls": [{"name": "memory_daily", "arguments": {"content": "x"}}]}, {"text": "a"}],
        },
        {"when": "long", "steps": [{"error": "overflow"}]},
        {"when": "silence", "steps": [{"text": "[SILENT]"}]},
    ]
}
SAID = [
    "hello", "which colour", "so long", "silence", ",memory.save tea", ",new", ",resume session/start",
    ",remind in 5m: tea", ",schedule.chat quiet=22:00-07:00", ",correct 3 hi", ",retry", ",handoff phase/x words", ",nonsense", ",why yes", ",reset archive", ",reset erase", "hello again",
]  # fmt: skip


async def test_what_a_bot_really_writes_is_in_the_reference(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    settings = Settings(model=ModelSettings(name="scripted", script=script), tools=ToolSettings(result_limit=100))
    async with open_app(settings, Home(tmp_path / "home"), channel_settings={"write": lambda _: None}) as app:
        for number, text in enumerate(SAID):
            await app.ask(Inbound("stdin", str(number), "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z"))
        await app.gate.receive(UnparsedUpdate("stdin", "broken", "default", b"\xff", "no text"))
        entries = [entry for tape in await app.store.tapes() for entry in await _whole(app, tape.name)]

    assert {entry.kind for entry in entries} == set(Kind)
    missing = {f"{entry.name or entry.kind}: {name}" for entry in entries for name in _undocumented(entry)}
    assert missing == set()
    undeclared = {
        f"{entry.name}: {name}"
        for entry in entries
        if entry.kind == Kind.EVENT and not entry.erased
        for name in entry.payload["data"]
        if name not in _declared(entry.name or "")
    }
    assert undeclared == set()


async def _whole(app: Bot, tape: str) -> tuple[TapeEntry, ...]:
    return (await app.store.fetch([TapeQuery(tape)]))[0]


def _declared(event: str) -> set[str]:
    """The fields of an event, by its payload model."""
    return {path for path, _ in walk_fields(OWN_REFERENCES.events[event])}


def _undocumented(entry: TapeEntry) -> list[str]:
    """What an entry holds that its row, and the one of its kind, do not name."""
    if entry.erased:
        return []
    found = _named(FORMAT.partition("## Meta")[2].partition("\n## ")[0], list(entry.meta))
    found += _named(_rows(FORMAT, entry.kind), list(entry.payload))
    row = _rows(FORMAT, entry.name or "") or _rows(FORMAT, "memory/open")
    if entry.name and not entry.name.startswith("phase/"):
        held = entry.payload.get("data", entry.payload.get("state"))
        if entry.name == "tape/erased":  # the names below it are those of tapes
            held = {**held, "covers": None}
        # What stands in a handoff's state is described with the anchors.
        found += _named(row, set(held) if entry.name == "handoff" else set(_keys(held)))
    return found


def _keys(value: Any) -> Iterator[str]:
    """The keys of an object and of the objects in it."""
    if isinstance(value, Mapping):
        yield from value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ():
        yield from _keys(inner)
