"""Where settings come from: files that cannot be read, and every way to give a secret."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from tests.config_files import CANARY, refused, written


class TestUnreadableFiles:
    @pytest.mark.parametrize(
        ("text", "place", "fix"),
        [
            ("[bot]\nname = bubbot\n", "line 2, column 8", "put a text in quotes"),
            ("[trace]\nport = 1\n[server]\nopenai = True", "line 4, column 10", "write true in small letters"),
            ("[model]\ntags = ['True', False]", "line 2, column 17", "write false in small letters"),
            ("[bot]\nname = Truely\n", "line 2, column 8", "put a text in quotes"),
            ("[bot]\nname bubbot\n", "line 2, column 6", "write a setting as key = value"),
            ("[bot]\nname = 'a\n", "line 3, column end", "close the quotes"),
            ("[bot]\nname = 'a'\nname = 'b'\n", "line 3, column 11", "keep one"),
            ("[bot]\n[bot]\n", "line 2, column 5", "keep one"),
            ("[bot\nname = 'a'\n", "line 1, column 5", "close the bracket"),
            ("[bot]\nname = 'a' b\n", "line 2, column 12", "one setting a line"),
            ('[model]\nscript = "C:\\quiet"\n', "line 2", "single quotes"),
            ("[bot]\nname = [1,", "line 2, column end", "end a list with ]"),
            ("[bot]\nname =", "line 2, column end", "in quotes"),
            ('[bot]\nname = """x\n', "line 3, column end", "close the quotes"),
        ],
    )
    def test_syntax_is_told_with_its_place_and_a_fix(self, tmp_path: Path, text: str, place: str, fix: str) -> None:
        told = refused(tmp_path, text)
        assert told.startswith(f"{tmp_path / 'config.toml'}, {place}")
        assert re.search(r": this is not TOML \(.+\): ", told)
        assert fix in told

    def test_the_line_that_is_not_utf8_is_named(self, tmp_path: Path) -> None:
        assert "config.toml, line 2 is not UTF-8 text" in refused(tmp_path, b'[bot]\nname = "caf\xe9"\n')
        assert "line 1 is not UTF-8 text" in refused(tmp_path, '[bot]\nname = "x"\n'.encode("utf-16"))

    def test_nul_bytes_are_refused(self, tmp_path: Path) -> None:
        assert "line 1: a NUL byte is not text" in refused(tmp_path, b"\x00" * 1000)

    def test_a_file_that_is_too_large_is_refused_unread(self, tmp_path: Path) -> None:
        with (tmp_path / "config.toml").open("wb") as file:
            file.truncate(10 * 2**30)  # sparse: ten gigabytes that take no room
        assert "is larger than 1000000 bytes" in refused(tmp_path)

    def test_deep_nesting_and_long_numbers_are_refused(self, tmp_path: Path) -> None:
        assert "nested too deeply" in refused(tmp_path, "x = " + "[" * 200_000)
        assert "thousands of digits" in refused(tmp_path, "[model]\nmax_steps = " + "9" * 100_000)

    def test_not_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").mkdir()
        assert "is not a regular file" in refused(tmp_path)

    def test_a_broken_link(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").symlink_to("gone")
        assert "cannot be read (No such file or directory)" in refused(tmp_path)

    def test_a_pipe_does_not_hang(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "config.toml")
        assert "is not a regular file" in refused(tmp_path)

    def test_a_named_file_must_exist(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"gone.toml cannot be read \(No such file or directory\): check"):
            load(home=tmp_path, config=tmp_path / "gone.toml")


class TestSecrets:
    @pytest.fixture
    def key(self, tmp_path: Path) -> Path:
        path = tmp_path / "key"
        path.write_text(f"  {CANARY}\n")
        return path

    @pytest.fixture
    def credentials(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "credentials"
        folder.mkdir()
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
        return folder

    def api_key(self, home: Path) -> str | None:
        secret = load(home=home).model.api_key
        return secret.get_secret_value() if secret else None

    @pytest.mark.usefixtures("key")
    def test_from_a_file(self, tmp_path: Path) -> None:
        written(tmp_path, '[model]\napi_key_file = "key"\n[channels.telegram]\ntoken_file = "key"\n')
        settings = load(home=tmp_path)
        assert self.api_key(tmp_path) == CANARY
        assert settings.channels["telegram"] == {"kind": "telegram", "token": CANARY}
        assert CANARY not in repr(settings)
        assert CANARY not in str(settings.model)

    def test_from_a_file_named_in_the_environment(
        self, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BUBBOT_MODEL__API_KEY_FILE", str(key))
        written(tmp_path, '[model]\napi_key = "weaker"\n')
        assert self.api_key(tmp_path) == CANARY

    def test_the_environment_overrides_credentials_and_these_the_file(
        self, tmp_path: Path, credentials: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written(tmp_path, '[model]\napi_key = "from the file"\n')
        assert self.api_key(tmp_path) == "from the file"
        (credentials / "model.api_key").write_text("from systemd\n")
        assert self.api_key(tmp_path) == "from systemd"
        monkeypatch.setenv("BUBBOT_MODEL__API_KEY", "from the environment")
        assert self.api_key(tmp_path) == "from the environment"

    def test_a_file_that_something_overrides_need_not_exist(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written(tmp_path, '[model]\napi_key_file = "gone"\n')
        monkeypatch.setenv("BUBBOT_MODEL__API_KEY", CANARY)
        assert self.api_key(tmp_path) == CANARY

    def test_credentials_of_channels_and_of_others(
        self, tmp_path: Path, credentials: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (credentials / "channels.telegram.token").write_text(CANARY)
        (credentials / "channels.telegram.owners").write_text("no secret")
        (credentials / "somebody-elses").write_text("x")
        monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__MODE", "polling")
        assert load(home=tmp_path).channels == {"telegram": {"kind": "telegram", "token": CANARY, "mode": "polling"}}

    def test_a_secret_file_that_cannot_be_used_is_refused_with_the_reason(self, tmp_path: Path) -> None:
        (tmp_path / "empty").write_text("\n")
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        (tmp_path / "huge").write_text("x" * 70_000)
        for name, reason in {
            "gone": "No such file",
            "empty": "is empty",
            "binary": "not UTF-8",
            "huge": "larger than 64000 bytes",
            "/dev/zero": "not a regular file",
            ".": "not a regular file",
        }.items():
            told = refused(tmp_path, f'[model]\napi_key_file = "{name}"\n')
            assert "config.toml: [model] api_key_file: " in told
            assert reason in told
        assert "embedded null" in refused(tmp_path, '[model]\napi_key_file = "a\\u0000b"\n')
        assert "[model] api_key_file is 5, but must be a path." in refused(tmp_path, "[model]\napi_key_file = 5\n")

    @pytest.mark.usefixtures("key")
    def test_two_in_one_place(self, tmp_path: Path) -> None:
        told = refused(tmp_path, f'[model]\napi_key = "{CANARY}"\napi_key_file = "key"\n')
        assert "[model] api_key_file and api_key are both set" in told
        assert CANARY not in told

    def test_a_missing_folder_of_credentials(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "gone"))
        assert "CREDENTIALS_DIRECTORY" in refused(tmp_path)

    @pytest.mark.parametrize(
        "text",
        [
            f'[model]\napi_kye = "{CANARY}"\n',
            f'[modle]\napi_key = "{CANARY}"\n',
            f'[model]\napi_key = ["{CANARY}"]\n',
            f'model = "{CANARY}"\n',
            f'channels = "{CANARY}"\n',
            f'[channels]\ntoken = "{CANARY}"\n',
            f'[model]\napi_base = "ftp://me:{CANARY}@host"\n',
            f'[model]\napi_base = "http://me:{CANARY}@host:x"\n',
            f'[model]\napi_key = "{CANARY}\n',
            f'[channels.telegram]\nkind = 5\ntoken = "{CANARY}"\n',
        ],
    )
    def test_are_never_shown(self, tmp_path: Path, text: str) -> None:
        assert CANARY not in refused(tmp_path, text)

    def test_the_password_of_an_address_is_one(self, tmp_path: Path) -> None:
        written(tmp_path, f'[model]\napi_base = "https://me:{CANARY}@host/v1"\n')
        assert load(home=tmp_path).secrets() == (CANARY,)
