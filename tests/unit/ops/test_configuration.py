"""One setting at a time: what is read, what is written, and what is refused with the file as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.configuration import ConfigEditor

SECRET = "canary-of-a-key"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("BUBBOT_MODEL__NAME", raising=False)
    return Home(tmp_path / "home")


def editor(home: Home) -> ConfigEditor:
    return ConfigEditor(home, None, now=lambda: "T", new_id=lambda: "id")


def lines(home: Home) -> list[str]:
    return [line for line in home.config.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(
    ("name", "typed", "line"),
    [
        ("bot.name", "Rosi", 'name = "Rosi"'),
        ("bot.name", "5", 'name = "5"'),
        ("bot.name", '"Rosi the second"', 'name = "Rosi the second"'),
        ("tools.shell.enabled", "true", "enabled = true"),
        ("tools.shell.enabled", "yes", "enabled = true"),
        ("tools.files.roots", '["/srv/a", "/srv/b"]', 'roots = ["/srv/a", "/srv/b"]'),
        ("trace.port", "8766", "port = 8766"),
        ("channels.telegram.groups", "-1001, -1002", "groups = [-1001, -1002]"),
        ("channels.telegram.groups", "[-1001]", "groups = [-1001]"),
        ("channels.discord.guilds.42.open", "true", "open = true"),
        ("bot.persona_file", "persona.md", 'persona_file = "persona.md"'),
    ],
)
def test_a_typed_value_is_written_as_its_type_is(home: Home, name: str, typed: str, line: str) -> None:
    home.ensure()
    (home.path / "persona.md").write_text("Friendly.")
    editor(home).set(name, typed)
    assert line in lines(home)
    assert editor(home).read(name).origin == "file"
    load(home=home.path)


@pytest.mark.parametrize(
    ("name", "typed", "reason"),
    [
        ("bot", "x", "write SECTION.KEY"),
        ("bot.", "x", "write SECTION.KEY"),
        ("bot.nmae", "x", "did you mean 'name'"),
        ("bto.name", "x", "did you mean 'bot'"),
        ("telegram.token_file", "x", "write [channels.telegram]"),
        ("lottery.day", "3", "belongs to no installed feature"),
        ("trace.port", "abc", "must be a whole number from 0 to 65535"),
        ("server.port", "9391", "set [server] token_file"),
        ("bot.timezone", "Berlin", "the nearest is 'Europe/Berlin'"),
        ("bot.persona_file", "none.md", "cannot be read"),
        ("model.api_key", SECRET, "`bubbot config set model.api_key -`"),
        ("channels.telegram.token", SECRET, "`bubbot config set channels.telegram.token -`"),
    ],
)
def test_what_does_not_load_is_refused_and_the_file_stays(home: Home, name: str, typed: str, reason: str) -> None:
    editor(home).set("bot.language", "zh")
    before = {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as refusal:
        editor(home).set(name, typed)
    assert reason in str(refusal.value)
    assert SECRET not in str(refusal.value)
    assert {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()} == before


def test_the_other_lines_and_comments_stay(home: Home) -> None:
    home.ensure()
    home.config.write_text('# mine\n[bot]\nname = "A"  # the old one\n\n[model]\nname = "scripted"\n')
    editor(home).set("bot.language", "zh")
    editor(home).unset("bot.name")
    assert home.config.read_text().startswith("# mine\n[bot]\n")
    assert lines(home) == ["[bot]", 'language = "zh"', "[model]", 'name = "scripted"']
    assert [path.name for path in home.path.iterdir() if path.suffix == ".bak"] == []


def test_unset_takes_the_default_back(home: Home) -> None:
    editor(home).set("bot.name", "Rosi")
    editor(home).unset("bot.name")
    assert (editor(home).read("bot.name").value, editor(home).read("bot.name").origin) == ("bubbot", "default")
    with pytest.raises(ConfigError, match="does not set"):
        editor(home).unset("bot.name")


def test_a_secret_goes_to_a_file_of_its_own_and_is_never_shown(home: Home) -> None:
    editor(home).set_secret("model.api_key", SECRET)
    assert 'api_key_file = "secrets/model-api-key"' in lines(home)
    assert (home.path / "secrets" / "model-api-key").stat().st_mode & 0o077 == 0
    assert load(home=home.path).model.api_key is not None
    assert editor(home).read("model.api_key").value == "[secret]"
    assert SECRET not in str(editor(home).list_values(all_settings=True))


def test_the_list_has_what_differs_with_its_origin(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    editor(home).set("channels.telegram.groups", "-1001")
    monkeypatch.setenv("BUBBOT_BOT__NAME", "Rosi")
    values = {value.key: (value.value, value.origin) for value in editor(home).list_values()}
    assert values == {"bot.name": ("Rosi", "environment"), "channels.telegram.groups": (["-1001"], "file")}
    assert editor(home).find_override("bot.name") == "BUBBOT_BOT__NAME"
    assert len(editor(home).list_values(all_settings=True)) > 100


def test_a_whole_file_is_checked_and_the_old_one_kept(home: Home) -> None:
    editor(home).set("bot.name", "Rosi")
    for text in ("[bot\n", "[bot]\nnmae = 1\n"):
        with pytest.raises(ConfigError, match="othing was changed"):
            editor(home).replace(text)
    (backup,) = editor(home).replace('[bot]\nname = "Ada"\n')
    assert 'name = "Rosi"' in backup.read_text()
    assert lines(home) == ["[bot]", 'name = "Ada"']
