"""`bubbot init` with the real command over a pipe, against the platforms' servers on loopback."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.e2e import bot
from tests.e2e.bot import sentence
from tests.fakes.botapi.server import Server as Telegram
from tests.fakes.discordapi.server import Server as Discord

NOWHERE = {"BUBBOT_CHANNELS__TELEGRAM__BASE_URL": "http://127.0.0.1:9"}
SMALL = ("sh", "-c", 'ulimit -f 4; exec "$0" "$@"')
"""No file may become larger than 2 KiB, or 4 where a shell counts so: the disk is full, as it were."""
WRONG = "7777:" + "w" * 35


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram(limits=None) as server:
        yield server


def at(server: Telegram) -> dict[str, str]:
    return {"BUBBOT_CHANNELS__TELEGRAM__BASE_URL": server.base_url}


def init(
    home: Path,
    *options: str,
    lines: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[bytes]:
    return bot.run(home, "init", *options, lines=lines, env={"BUBBOT_MODEL__NAME": "", **(env or {})}, before=before)


def fine(home: Path, *options: str, lines: Sequence[str] = (), env: Mapping[str, str] | None = None) -> str:
    """What it printed; fails where it does not end well."""
    done = init(home, *options, lines=lines, env=env)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return done.stdout.decode()


def refused(home: Path, *options: str, code: int = 2, **how: object) -> str:
    """The sentence with which it ended."""
    done = init(home, *options, **how)  # type: ignore[arg-type]
    assert done.returncode == code, done.stdout.decode()
    return sentence(done)


def configured(home: Path, text: str) -> None:
    home.mkdir()
    (home / "config.toml").write_text(text)


def there(path: Path) -> bool:
    return path.exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def settings_in(home: Path) -> list[str]:
    """The lines of the configuration that are no comments."""
    return [line for line in (home / "config.toml").read_text().splitlines() if line and not line.startswith("#")]


class TestByQuestions:
    async def test_a_new_home_is_set_up_and_asked_again_nothing_changes(self, home: Path, telegram: Telegram) -> None:
        token = telegram.bot.token
        lines = ["Ada's bot", "zh", "Berlin", "europe/berlin", "1", f"Bot <{token}>", "@ada", "", ""]
        told = await asyncio.to_thread(
            fine, home, "--model", "scripted", lines=[*lines[:4], *lines[5:]], env=at(telegram)
        )
        assert "您是不是要 Europe/Berlin" in told
        assert f"这是 @bubbot_bot（ID {telegram.bot.user.id}）。" in told  # its language is known by now
        assert "anybody can take a username" in told
        assert "在 Telegram 上给 @bubbot_bot 发任意一条消息。如果您还不是它的所有者，它会回复一个代码。" in told
        assert "access approve CODE --role owner" in told
        assert token not in told
        wanted = ['name = "Ada\'s bot"', 'language = "zh"', 'timezone = "Europe/Berlin"', 'name = "scripted"']
        assert [line for line in settings_in(home) if line in wanted] == wanted
        assert 'token_file = "secrets/telegram-token"' in settings_in(home)
        assert (home / "secrets" / "telegram-token").read_text() == f"{token}\n"
        assert token not in (home / "config.toml").read_text()
        for path, mode in (("", 0o700), ("config.toml", 0o600), ("secrets", 0o700), ("secrets/telegram-token", 0o600)):
            assert stat.S_IMODE((home / path).stat().st_mode) == mode, path
        before = contents(home)
        told = await asyncio.to_thread(fine, home, lines=[""] * 7, env=at(telegram))
        assert "没有变化" in told
        assert "@bubbot_bot" in told
        assert contents(home) == before

    async def test_a_refused_token_is_asked_for_again(self, home: Path, telegram: Telegram) -> None:
        lines = ["", "", "", "4", WRONG, "12345 67", "nonsense", telegram.bot.token, "42", ""]
        told = await asyncio.to_thread(
            fine, home, "--model", "scripted", lines=[*lines[:3], *lines[4:]], env=at(telegram)
        )
        assert "token was refused by Telegram" in told
        assert "contains a space" in told
        assert "is not a bot's token" in told
        assert WRONG not in told
        assert "owners = [42]" in settings_in(home)
        assert "on Telegram: it answers." in told

    async def test_a_token_that_is_there_and_refused_can_be_left_as_it_is(self, home: Path, telegram: Telegram) -> None:
        text = f'[channels.telegram]\ntoken = "{WRONG}"\n'
        configured(home, text)
        lines = ["", "", "", "", "", ""]
        told = await asyncio.to_thread(fine, home, "--model", "", lines=lines, env=at(telegram))
        assert "token was refused by Telegram" in told
        assert "Enter leaves the one there is" in told
        assert "Nothing has changed" in told
        assert (home / "config.toml").read_text() == text

    def test_a_platform_that_is_not_reached_can_be_tried_again_or_kept_unverified(self, home: Path) -> None:
        lines = ["", "", "", WRONG, "2", WRONG, "1", "", ""]
        told = fine(home, "--model", "scripted", lines=lines, env=NOWHERE)
        assert told.count("cannot be reached") == 2
        assert "Kept UNVERIFIED" in told
        assert "send any message to your bot" in told

    async def test_discord_says_who_the_bot_is_and_what_is_to_be_switched_on(self, home: Path) -> None:
        async with Discord() as server:
            env = {"BUBBOT_CHANNELS__DISCORD__REST_URL": server.rest_url}
            lines = ["", "", "", "", f"Bot {server.bot.token}", "42"]
            told = await asyncio.to_thread(fine, home, "--model", "scripted", lines=lines, env=env)
        assert f"This is {server.bot.user.username} (id {server.bot.user.id})." in told
        assert {"[channels.discord]", "owners = [42]"} <= {*settings_in(home)}
        assert (home / "secrets" / "discord-token").read_text().strip() == server.bot.token

    async def test_an_end_of_the_input_at_any_question_leaves_everything_as_it_was(
        self, home: Path, telegram: Telegram
    ) -> None:
        lines = ["Bob", "en", "UTC", telegram.bot.token, "42", ""]
        for given in (0, 2, 3, 4, 5):
            done = await asyncio.to_thread(init, home, "--model", "scripted", lines=lines[:given], env=at(telegram))
            assert done.returncode == 1
            assert done.stdout.decode().rstrip().endswith("nothing was changed. --yes asks nothing.")
            assert not there(home)

    def test_models_of_providers_and_of_ollama_are_set(self, home: Path) -> None:
        nobody = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "http://127.0.0.1:9"}
        fine(home, lines=["", "", "", "openai", "sk-\\\"'é", "no", "openai/gpt-4o-mini", "", ""], env=nobody)
        assert {'name = "openai/gpt-4o-mini"', 'api_key_file = "secrets/model-api-key"'} <= {*settings_in(home)}
        assert (home / "secrets" / "model-api-key").read_text() == "sk-\\\"'é\n"
        fine(home, lines=["", "", "", "other", "ollama", "http://10.0.0.1:11434/", "no", "qwen3", "", ""])
        assert {'name = "ollama_chat/qwen3"', 'api_base = "http://10.0.0.1:11434"'} <= {*settings_in(home)}


class TestByOptions:
    async def test_nothing_is_asked_and_tokens_come_from_files_or_the_input(
        self, home: Path, telegram: Telegram
    ) -> None:
        options = ["--yes", "--name", "Bob", "--timezone", "Asia/Tokyo", "--language", "zh", "--model", "openai/gpt-4o"]
        key = home.parent / "key"
        key.write_text("sk-1234567890\n")
        options += [
            "--api-key-file",
            str(key),
            "--telegram-token",
            "-",
            "--owner",
            "telegram:42",
            "--owner",
            "telegram:43",
        ]
        told = await asyncio.to_thread(fine, home, *options, lines=[telegram.bot.token], env=at(telegram))
        assert "@bubbot_bot" in told
        assert {'name = "Bob"', "owners = [42, 43]", 'name = "openai/gpt-4o"'} <= {*settings_in(home)}
        assert (home / "secrets" / "model-api-key").read_text() == "sk-1234567890\n"
        before = contents(home)
        token = home.parent / "token"
        token.write_text(telegram.bot.token)
        again = ["--yes", "--telegram-token-file", str(token), "--owner", "telegram:42"]
        assert "没有变化" in await asyncio.to_thread(fine, home, *again, env=at(telegram))
        assert contents(home) == before

    def test_a_model_whose_key_is_missing_is_told_by_init_and_ask_at_once(self, home: Path) -> None:
        told = "openai/gpt-5 needs a key, and neither [model] api_key nor OPENAI_API_KEY is set here."
        env = {"BUBBOT_MODEL__NAME": "openai/gpt-5"}
        assert told in fine(home, "--yes", "--model", "openai/gpt-5", env=env)
        done = bot.run(home, "ask", "hello", env=env)
        assert done.returncode == 1
        assert done.stdout == b""
        assert f"bubbot: {told}" in done.stderr.decode()
        assert "model.retry" not in done.stderr.decode()
        key = home.parent / "key"
        key.write_text("sk-1234567890\n")
        assert "needs a key" not in fine(home, "--yes", "--api-key-file", str(key), env=env)

    async def test_a_token_of_the_environment_is_asked_about_and_not_written(
        self, home: Path, telegram: Telegram
    ) -> None:
        env = {**at(telegram), "BUBBOT_CHANNELS__TELEGRAM__TOKEN": telegram.bot.token}
        assert "@bubbot_bot" in await asyncio.to_thread(fine, home, "--yes", "--owner", "telegram:42", env=env)
        assert settings_in(home)[-2:] == ["[channels.telegram]", "owners = [42]"]
        assert not there(home / "secrets")
        # Where an option gives it, too, it is meant to be kept.
        options = ["--yes", "--telegram-token", "-"]
        await asyncio.to_thread(fine, home, *options, lines=[telegram.bot.token], env=env)
        assert there(home / "secrets" / "telegram-token")

    async def test_a_refused_token_ends_it_and_nothing_is_written(self, home: Path, telegram: Telegram) -> None:
        told = await asyncio.to_thread(
            refused, home, "--yes", "--telegram-token", "-", code=6, lines=[WRONG], env=at(telegram)
        )
        assert "was refused by Telegram" in told
        assert not there(home)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--telegram-token", WRONG], "other users of this machine can read"),
            (["--owner", "telegram:@ada"], "anybody can take a username"),
            (["--owner", "ada"], "such as telegram:42"),
            (["--timezone", "Europe/Berln"], "did you mean Europe/Berlin"),
            (["--model", "fidibus"], "provider/model"),
            (["--name", "a\nb"], "of one line"),
            (["--telegram-token-file", "nowhere"], "cannot be read"),
        ],
    )
    def test_a_wrong_option_is_named_and_nothing_is_written(self, home: Path, options: list[str], said: str) -> None:
        done = init(home, "--yes", *options)
        assert done.returncode == 2
        assert said in done.stderr.decode()
        assert WRONG not in done.stderr.decode()
        assert not there(home)


class TestWhatIsThere:
    def test_a_token_in_the_file_moves_out_of_it_when_it_is_replaced(self, home: Path) -> None:
        home.mkdir()
        old = f'# mine\n[channels.work]\nkind = "telegram"\ntoken = "{WRONG}" # old\nowners = [1]\n'
        (home / "config.toml").write_text(old)
        env = {"BUBBOT_CHANNELS__WORK__BASE_URL": "http://127.0.0.1:9"}
        told = fine(home, "--yes", "--telegram-token", "-", lines=["4242:" + "n" * 35], env=env)
        assert settings_in(home) == [
            "[channels.work]",
            'kind = "telegram"',
            "owners = [1]",
            'token_file = "secrets/work-token"',
        ]
        [backup] = home.glob("config.toml.*.bak")
        assert f"What was there before: {backup}\n" in told
        assert backup.read_text() == old
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        fine(home, "--yes", "--telegram-token", "-", lines=["4242:" + "m" * 35], env=env)
        [backup] = (home / "secrets").glob("work-token.*.bak")
        assert backup.read_text() == "4242:" + "n" * 35 + "\n"

    def test_values_are_changed_in_the_form_they_have(self, home: Path) -> None:
        home.mkdir()
        old = f"\ufeffbot.name = 'Ada' # I\r\nchannels.telegram.token = '{WRONG}'\r\n# end\r\n"
        (home / "config.toml").write_bytes(old.encode())
        fine(home, "--yes", "--name", "Bob", "--telegram-token", "-", lines=["4242:" + "n" * 35], env=NOWHERE)
        new = old.replace("'Ada'", '"Bob"').replace(f"token = '{WRONG}'", 'token_file = "secrets/telegram-token"')
        assert (home / "config.toml").read_bytes().decode() == new

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (b"[bot]\nnaem = 'x'\n", "naem is not a setting; did you mean 'name'"),
            (b"[bott]\n", "[bott] is not a section"),
            (b"[bot\n", "this is not TOML"),
            (b"[bot]\nname = '\xff'\n", "is not UTF-8"),
            (
                b"[channels.telegram]\ntoken = '7777:wwwwwwwwww'\nmoode = 'x'\n",
                "moode is not a key of a Telegram channel",
            ),
        ],
    )
    def test_a_file_that_is_not_understood_is_named_and_stays(self, home: Path, text: bytes, said: str) -> None:
        home.mkdir()
        (home / "config.toml").write_bytes(text)
        assert said in refused(home, "--yes", "--name", "Bob", env=NOWHERE)
        assert contents(home) == {"config.toml": text}

    @pytest.mark.proof
    def test_a_full_disk_leaves_everything_as_it_was(self, home: Path) -> None:
        home.mkdir()
        large = "".join(f"# {number}\n" for number in range(2000))
        (home / "config.toml").write_text(f"[bot]\n{large}")
        (home / "secrets").mkdir()
        (home / "secrets" / "telegram-token").write_text("old\n")
        before = contents(home)
        done = init(home, "--yes", "--name", "Bob", "--telegram-token", "-", lines=[WRONG], env=NOWHERE, before=SMALL)
        assert done.returncode == 2
        assert "nothing was changed" in sentence(done)
        assert contents(home) == before

    def test_homes_and_files_that_cannot_be_used_are_named_before_anything_is_asked(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("x")
        assert f"{file} is a file, not a folder" in refused(file)
        if Path("/proc/version").exists():  # refuses root, too
            assert "The home /proc/no/such cannot be used" in refused(tmp_path, "--home", "/proc/no/such")
        folder = tmp_path / "home"
        (folder / "config.toml").mkdir(parents=True)
        assert "is not a regular file" in refused(folder)
        (folder / "config.toml").rmdir()
        (folder / "config.toml").symlink_to(tmp_path / "elsewhere")
        assert "is a link" in refused(folder)
        (folder / "config.toml").unlink()
        assert contents(folder) == {}

    def test_the_process_that_has_the_home_is_told_of(self, home: Path) -> None:
        home.mkdir()
        (home / "daemon.lock").write_text('{"pid": 4242, "address": null}')
        assert "process 4242" in fine(home, "--yes")


class TestService:
    def test_it_is_not_offered_where_systemd_does_not_answer_and_asking_for_it_says_so_first(self, home: Path) -> None:
        path = {"PATH": str(home.parent)}
        assert "systemd does not manage" in refused(home, "--yes", "--service", "user", env=path)
        assert not there(home)
        told = fine(home, "--model", "scripted", lines=[""] * 5, env=path)
        assert "Run it as a service" not in told
        assert "bubbot chat" in told

    def test_a_service_that_is_asked_for_is_installed_and_started_for_this_home(self, home: Path) -> None:
        path = {
            "PATH": str(_systemctl(home.parent)),
            "HOME": str(home.parent),
            "XDG_CONFIG_HOME": str(home.parent / "xdg"),
        }
        done = init(home, "--yes", "--service", "user", "--name", "Bob", env=path)
        assert done.returncode == 0, done.stderr
        told = done.stdout.decode()
        assert "enable --now bubbot.service" in told
        assert "bubbot run" not in told
        unit = (home.parent / "xdg" / "systemd" / "user" / "bubbot.service").read_text()
        assert f"--home {home}" in unit
        ran = (home.parent / "ran").read_text().splitlines()
        assert ran[-2:] == ["--user daemon-reload", "--user enable --now bubbot.service"]


def _systemctl(folder: Path) -> Path:
    """A folder with a `systemctl` that takes everything and writes down what it was asked."""
    made = folder / "bin"
    made.mkdir()
    (made / "systemctl").write_text(f'#!/bin/sh\necho "$*" >> {folder}/ran\necho Version=255\n')
    (made / "systemctl").chmod(0o755)
    return made
