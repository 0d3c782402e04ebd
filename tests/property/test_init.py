"""Whatever `bubbot init` takes as an answer, the configuration it writes loads, and says the same."""

from __future__ import annotations

import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits, apply_edits, new_secrets
from bubbot.ops.onboarding.existing import read_existing
from bubbot.ops.onboarding.write import write
from bubbot.settings.loader import Settings

pytestmark = pytest.mark.usefixtures("no_settings_from_outside")
ODD = st.text(st.characters(codec="utf-8") | st.sampled_from("\"'\\#[]{}=\n\r\t\x00\x7f\u2028\ufeff小é "), max_size=70)
TABLES = st.sampled_from([("channels", "telegram"), ("channels", "discord"), ("channels", "work-bot")])
OWNERS = st.lists(st.integers(1, 10**19), max_size=3, unique=True)
BEFORE = st.sampled_from(
    [None, "", '[bot]\nname = "x" # y\n\n[channels.telegram]\ntoken = "old" # mine\n', "#[bot]\r\n[log]\r\n"]
)


@contextmanager
def home_with(text: str | None) -> Iterator[Home]:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        if text is not None:
            home.path.mkdir()
            home.config.write_bytes(text.encode())
        yield home


def accepted(check: object, text: str) -> str | None:
    """The answer as it was taken; None where it was refused."""
    try:
        return check(text)  # type: ignore[operator,no-any-return]
    except ConfigError:
        return None


def put(home: Home, changes: PendingEdits) -> tuple[Any, Settings]:
    def check(path: Path) -> None:
        load(home=home.path, config=path)

    present = read_existing(home, None)
    text, secrets = apply_edits(present, changes, home), new_secrets(changes, home)
    if text != present.text or secrets:
        write(home, present, text, secrets, stamp="T", check=check)
    return present, load(home=home.path)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


@given(
    name=ODD, zone=st.sampled_from(sorted(available_timezones())), token=ODD, table=TABLES, owners=OWNERS, before=BEFORE
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_taken_is_what_loads(
    name: str, zone: str, token: str, table: tuple[str, str], owners: list[int], before: str | None
) -> None:
    changes = PendingEdits()
    if called := accepted(answers.parse_bot_name, name):
        changes.set_value(("bot",), "name", called)
    changes.set_value(("bot",), "timezone", answers.parse_zone(zone))
    if owners:
        changes.set_value(table, "owners", owners)
    if kept := accepted(answers.parse_token, token):
        changes.set_secret(table, "token", kept)
    with home_with(before) as home:
        present, loaded = put(home, changes)
        assert loaded.bot.timezone == zone
        assert loaded.bot.name == (called or present.settings.bot.name)
        got = loaded.channels.get(table[1], {})
        assert got.get("owners", []) == owners
        if kept:
            assert got["token"] == kept
            assert "token" not in tomllib.loads(home.config.read_bytes().decode())["channels"][table[1]]
        changed = home.config.read_bytes()
        kept_before = [] if before is None or changed == before.encode() else [before.encode()]
        backups = sorted(home.path.glob("*.bak"))
        assert [path.read_bytes() for path in backups] == kept_before
        if before is None or kept_before:
            assert modes(home.path) == {0o600}
        # The same answers again: nothing is written.
        put(home, changes)
        assert home.config.read_bytes() == changed
        assert sorted(home.path.rglob("*.bak")) == backups


@given(text=ODD)
def test_a_secret_of_several_lines_is_never_taken(text: str) -> None:
    kept = accepted(answers.parse_secret, text)
    assert kept is None or (kept == text.strip() and kept.isprintable() and len(kept.split()) == 1)
