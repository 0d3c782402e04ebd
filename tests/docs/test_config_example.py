"""The example configuration and the reference have every setting, with its default, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.models.scripted import create as create_scripted
from bubbot.ports.model import ModelOptions, ModelReply, ModelRequest
from bubbot.settings.channels import ChannelSettings, GuildSettings, split_channel_settings
from tests.docs.settings_pages import EXAMPLE, REFERENCE, all_settings, channel_adapters, write_example, write_reference
from tests.made_settings import make_settings

pytestmark = pytest.mark.usefixtures("no_settings_from_outside")
ADAPTERS = channel_adapters()
SETTINGS = {(setting.section, setting.key): setting for setting in all_settings()}


def uncommented() -> str:
    """The example with its settings switched on: they follow the # at once, and sentences do not."""
    return re.sub(r"^#(?=[a-z\[])", "", EXAMPLE.read_text(), flags=re.MULTILINE)


def in_example() -> dict[tuple[str, str], object]:
    found: dict[tuple[str, str], object] = {}
    for section, table in tomllib.loads(uncommented()).items():
        for name, value in table.items():
            if section in ("budget", "memory") and isinstance(value, dict):
                found[section, name] = {}
            elif section == "tools" and isinstance(value, dict):
                found |= {(f"{section}.{name}", key): inner for key, inner in value.items()}
            elif section == "agents" and isinstance(value, dict):
                found |= {(f"{section}.<name>", key): inner for key, inner in value.items()}
            elif section == "channels" and name in ADAPTERS:
                found |= {(f"channels.{name}", key): inner for key, inner in value.items()}
            elif section == "channels":
                guilds = value["guilds"]
                found |= {("channels.<name>", key): inner for key, inner in {**value, "guilds": {}}.items()}
                found |= {("channels.<name>.guilds.<id>", key): inner for key, inner in guilds["42"].items()}
            else:
                found[section, name] = value
        for name, value in table.items() if section in ("budget", "memory") else ():
            if isinstance(value, dict):
                [inner] = value.values()
                found |= {(f"{section}.{name}.<name>", key): one for key, one in inner.items()}
    return found


def test_the_pages_are_up_to_date() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert EXAMPLE.read_text(encoding="utf-8") == write_example(), "run python -m tests.docs.settings_pages"
    assert page == write_reference(page), "run python -m tests.docs.settings_pages"


def test_the_example_has_every_setting_and_no_other() -> None:
    assert list(in_example()) == list(SETTINGS)


def test_the_example_has_the_defaults() -> None:
    for place, value in in_example().items():
        if (default := SETTINGS[place].default) is not None:
            assert value == default, place


def test_what_has_no_default_says_so_in_the_example() -> None:
    text = EXAMPLE.read_text()
    for (section, key), setting in SETTINGS.items():
        if setting.default is None and "<" not in section:
            _, _, table = re.sub("^#(?=\\[)", "", text, flags=re.MULTILINE).partition(f"\n[{section}]\n")
            assert "Not set" in " ".join(table[: table.index(f"\n#{key} = ")].splitlines()[-2:]), key


def test_the_example_as_it_is_changes_nothing(tmp_path: Path) -> None:
    assert load(home=tmp_path, config=EXAMPLE) == make_settings()


def test_the_example_switched_on_loads(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(uncommented())
    settings = load(home=tmp_path)
    assert settings.bot.persona_file == tmp_path / "persona.md"
    assert set(settings.channels) == {"my-bot", *ADAPTERS}
    common = ChannelSettings(kind="telegram", guilds={"42": GuildSettings()})
    assert split_channel_settings("my-bot", settings.channels["my-bot"]) == (common, {})
    # The adapters take every value, also those shown where nothing is set.
    for name, token in (("telegram", "4242:SECRET-token_of-the-bot"), ("discord", "MTIzNDU2.AbCdEf.0123456789")):
        common, own = split_channel_settings(name, settings.channels[name])
        assert common == ChannelSettings(kind=name)
        assert ADAPTERS[name].settings.read(name, {**own, "token": token}) is not None


async def test_the_script_of_the_reference_plays(tmp_path: Path) -> None:
    [block] = re.findall(r"```json\n(.*?)```", REFERENCE.read_text(), re.DOTALL)
    (tmp_path / "script.json").write_text(block)
    model = create_scripted(ModelOptions("scripted", tmp_path, {"script": str(tmp_path / "script.json")}))

    async def reply(*said: tuple[str, str]) -> ModelReply:
        request = ModelRequest("system", tuple({"role": role, "content": text} for role, text in said))
        [found] = [event async for event in model.stream(request) if isinstance(event, ModelReply)]
        return found

    weather = ("user", "what was the weather?")
    assert [call.name for call in (await reply(weather)).calls] == ["tape_search"]
    assert (await reply(weather, ("assistant", ""))).text == "It was sunny."
    assert (await reply(("user", "hello"))).text == "You said: hello"


def test_the_blocks_of_the_reference_load(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", REFERENCE.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        (tmp_path / "config.toml").write_text(block)
        load(home=tmp_path)
