"""The pages that are generated from the models of the settings: the example configuration, the tables of the reference.

`python -m tests.docs.settings_pages` writes both files again; `test_config_example.py` checks that they are up to date.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from bubbot import plugins
from bubbot.app.own_features import settings_schema
from bubbot.app.settings import describe_settings
from bubbot.ops.onboarding.edit import format_toml
from bubbot.ports.channel import Channel, ChannelAdapter
from bubbot.ports.settings import AdapterSettings
from bubbot.settings.sections import describe_table
from tests.docs.pages import ROOT

EXAMPLE = ROOT / "config.example.toml"
REFERENCE = ROOT / "docs" / "reference" / "config.md"

_INTRODUCTION = """\
Every setting of bubbot with its default. Copy this file to the home folder as config.toml and take the # away from the \
lines you change. The home is $BUBBOT_HOME, else $XDG_DATA_HOME/bubbot, else ~/.local/share/bubbot.

The environment overrides this file: BUBBOT_MODEL__NAME is [model] name. Secrets need not stand here: \
docs/reference/config.md explains api_key_file and systemd credentials. `bubbot init` writes a short file by questions, and \
`bubbot config set KEY VALUE` changes one setting. Paths count from the folder of this file."""
_HEADERS = {
    "memory.views.<name>": "memory.views.family",
    "budget.channels.<name>": "budget.channels.telegram",
    "budget.chats.<name>": 'budget.chats."telegram:-1001"',
    "budget.users.<name>": "budget.users.each",
    "budget.jobs.<name>": "budget.jobs.each",
    "budget.models.<name>": 'budget.models."openai/gpt-4o"',
    "agents.<name>": "agents.rosi",
    "channels.<name>": "channels.my-bot",
    "channels.<name>.guilds.<id>": "channels.my-bot.guilds.42",
}
"""The header of a table that people name, in the example."""
_ABOUT = {
    "agents.<name>": "An agent that answers beside the bot itself, under its own name; a table for each.",
    "channels.<name>": "A section for each channel, under a name you choose; these are the keys that every channel has.",
}


def channel_adapters() -> dict[str, ChannelAdapter[AdapterSettings, Channel]]:
    """Return the adapters that declare their settings, by name."""
    adapters = {name: plugins.load("bubbot.channels", name) for name in plugins.list_names("bubbot.channels")}
    return {name: adapter for name, adapter in adapters.items() if isinstance(adapter, ChannelAdapter)}


def all_settings() -> list[Any]:
    """Return the settings of the core and those of the adapters, in the order of the pages."""
    settings = list(describe_settings())
    for name, adapter in channel_adapters().items():
        settings += describe_table(f"channels.{name}", adapter.settings)
    return settings


def write_example() -> str:
    """Return the text of `config.example.toml`."""
    settings = all_settings()
    tables = {(setting.section, setting.key): setting.description for setting in settings if setting.default == {}}
    lines = list(_comment(_INTRODUCTION))
    for section, keys in groupby(settings, lambda setting: setting.section):
        core = settings_schema().sections.get(section)
        parent, _, key = re.sub(r"\.<\w+>$", "", section).rpartition(".")
        if core is not None:
            about = re.sub(r"^`.*?`: ", "", " ".join((core.__doc__ or "").split()))
            about = about[0].upper() + about[1:]
        elif (parent, key) in tables:
            about = tables[parent, key]
        elif section in _ABOUT:
            about = _ABOUT[section]
        else:
            about = f'Further keys of the adapter `{key}`, here or in any section with kind = "{key}".'
        lines += ["", *_comment(about), f"{'' if core else '#'}[{_HEADERS.get(section, section)}]"]
        lines += [line for setting in keys if setting.default != {} for line in _example_lines(setting)]
    return "\n".join(lines) + "\n"


def _example_lines(setting: Any) -> Iterator[str]:
    text = setting.description
    if setting.type.startswith("one of"):
        text += f" {setting.type.capitalize()}."
    if setting.type == "secret text":
        text += f" Not\xa0set; better placed in a file of its own, which {setting.key}_file names."
    elif setting.default is None:
        text += " Not\xa0set."
    yield from _comment(text)
    yield f"#{setting.key} = {format_toml(setting.example)}"


def _comment(text: str) -> Iterator[str]:
    for paragraph in text.split("\n"):
        for line in textwrap.wrap(paragraph, 116, break_long_words=False, break_on_hyphens=False) or [""]:
            yield f"# {line}".rstrip().replace("\xa0", " ")


def write_reference(page: str) -> str:
    """Return the page of the reference with new tables; everything between them stays."""
    for section, settings in groupby(all_settings(), lambda setting: setting.section):
        table = "| key | type | default | what it is |\n|---|---|---|---|\n" + "".join(map(_row, settings))
        found = re.search(rf"\n## \[{re.escape(section)}\]\n(?:(?!## ).*\n)*?((?:\|.*\n)+)", page)
        assert found, f"{REFERENCE.name} has no table for [{section}]"
        page = page[: found.start(1)] + table + page[found.end(1) :]
    return page


def _row(setting: Any) -> str:
    default = "not set" if setting.default is None else f"`{json.dumps(setting.default, ensure_ascii=False)}`"
    return f"| `{setting.key}` | {setting.type} | {default} | {setting.description} |\n"


if __name__ == "__main__":
    EXAMPLE.write_text(write_example(), encoding="utf-8")
    REFERENCE.write_text(write_reference(REFERENCE.read_text(encoding="utf-8")), encoding="utf-8")
