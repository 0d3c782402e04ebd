"""The settings of the pages: each TOML snippet can be appended to the file of `init`, and each `config set` line writes one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bubbot.app.settings import load_with_missing_secrets
from bubbot.home import Home
from bubbot.ops.configuration import ConfigEditor
from bubbot.ops.onboarding.existing import NEW_FILE
from tests.docs.pages import ROOT, Block, blocks, pages

ANSWERED = """\
[bot]
name = "Rosi"
timezone = "Europe/Berlin"

[model]
name = "openai/gpt-4o-mini"

[channels.telegram]
token_file = "secrets/telegram-token"

[channels.discord]
token_file = "secrets/discord-token"
"""
"""What `init` adds to a new file if every question has an answer."""
REFERENCE = ROOT / "docs" / "reference" / "config.md"
"""Shows what the table of a model may hold; it is no page that says what to do."""
SECRETS = {
    "channels.telegram.token": "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw-",
    "channels.telegram.webhook_secret": "q7Zx_0123456789",
    "channels.discord.token": "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE.abcdefghijklmnopqrstuvwxyz0123456789AB",
}
SNIPPETS = [block for page in pages() for block in blocks(page) if block.language == "toml"]
COMMANDS = {
    page: found
    for page in pages()
    if (found := re.findall(r"^bubbot config set (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE))
}


@pytest.mark.parametrize("block", SNIPPETS, ids=str)
def test_a_snippet_can_be_appended_to_the_file_of_init(block: Block, tmp_path: Path) -> None:
    answered = "" if block.page == REFERENCE else ANSWERED
    (tmp_path / "config.toml").write_text(f"{NEW_FILE}\n{answered}\n{block.text}", encoding="utf-8")
    load_with_missing_secrets(home=tmp_path)


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_config_set_lines_of_a_page_write_what_they_say(page: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.ensure()
    home.config.write_text(f"{NEW_FILE}\n{ANSWERED}", encoding="utf-8")
    (home.path / "secrets").mkdir(mode=0o700)
    for name in ("telegram", "discord"):
        (home.path / "secrets" / f"{name}-token").write_text(SECRETS[f"channels.{name}.token"], encoding="utf-8")
    for line in COMMANDS[page]:
        key, *rest = [word for word in shlex.split(line, comments=True) if word != "--"]
        (value,) = rest
        if value == "-":
            _edit(home).set_secret(key, SECRETS[key])
        else:
            _edit(home).set(key, value)
        assert _edit(home).read(key).origin == "file"


def _edit(home: Home) -> ConfigEditor:
    return ConfigEditor(home, None, now=lambda: "20261128T000000Z", new_id=lambda: "1")
