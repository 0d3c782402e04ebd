"""Doctor findings of secrets. Each fault is planted, and no finding shows a value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from bubbot.home import Home
from bubbot.models.catalogue.keys import PROVIDER_KEY_VARIABLES
from bubbot.ports.checks import Finding
from tests.planting import examine, found, plants, table

CANARY = "canary-7f3a91"
RIGHT = "12345678:" + "a" * 35


pytestmark = pytest.mark.usefixtures("no_plugins", "no_systemd")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return Home(path)


def told(findings: Iterable[Finding]) -> dict[str, Finding]:
    """The same as `found`, without a value of a secret in it."""
    made = found(findings)
    assert CANARY not in repr(made)
    return made


def of_files(home: Home) -> dict[str, Finding]:
    return told(examine(home, "secret.ok", "secret.file_"))


class TestFiles:
    @plants("secret.ok", "secret.file_open", "secret.file_empty", "secret.file_missing")
    def test_one_that_is_missing_empty_or_open(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        home.config.write_text('[model]\napi_key_file = "key"\n[bot]\npersona_file = "persona.md"\n')
        file = home.path / "key"
        missing = of_files(home)["secret.file_missing"]
        assert (missing.level, missing.fix) == ("problem", f"install -m 600 /dev/stdin {file}")
        file.write_text(" \n")
        assert of_files(home)["secret.file_empty"].fix == missing.fix
        file.write_text(CANARY)
        file.chmod(0o640)
        finding = of_files(home)["secret.file_open"]
        assert (finding.level, finding.fix) == ("warning", f"chmod 600 {file}")
        with monkeypatch.context() as inside:
            inside.setattr("bubbot.ops.doctor.secrets.MOUNTED_SECRETS_PATH", home.path)
            assert list(of_files(home)) == ["secret.ok"]
        file.chmod(0o600)
        assert list(of_files(home)) == ["secret.ok"]

    @plants("secret.file_unreadable")
    def test_one_of_somebody_else(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        home.config.write_text('[channels.telegram]\ntoken_file = "token"\n')
        (home.path / "token").write_text(CANARY)
        monkeypatch.setattr("os.access", lambda *_: False)
        assert of_files(home)["secret.file_unreadable"].fix.startswith("sudo chown")

    def test_those_that_variables_name_are_looked_at_too(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__TOKEN_FILE", str(home.path / "none"))
        monkeypatch.setenv("BUBBOT_BOT__PERSONA_FILE", str(home.path / "other"))
        assert list(of_files(home)) == ["secret.file_missing"]

    def test_the_settings_say_no_more_than_that(self, home: Home) -> None:
        """One fault is one finding: the settings do not load for it, and that is not told again."""
        home.config.write_text('[model]\napi_key_file = "key"\n')
        missing = found(examine(home))
        assert missing["secret.file_missing"].level == "problem"
        assert "config.invalid" not in missing
        (home.path / "key").write_text("")
        empty = found(examine(home))
        assert {one for one in empty if one.startswith(("secret", "config"))} == {"secret.file_empty", "config.ok"}
        home.config.write_text('[model]\napi_key_file = "key"\nnmae = "x"\n')
        assert "config.invalid" in found(examine(home))

    @plants("secret.credentials")
    def test_a_folder_of_credentials_that_is_not_there(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(home.path / "none"))
        both = found(examine(home))
        assert both["secret.credentials"].fix == "unset CREDENTIALS_DIRECTORY"
        assert "config.invalid" not in both

    def test_settings_that_cannot_be_read_name_no_file(self, home: Home) -> None:
        home.config.write_text("[")
        assert not of_files(home)
        home.config.write_text('[model]\napi_key_file = "~nobody-at-all/x"\n')
        assert list(of_files(home)) == ["secret.file_missing"]


class TestKeys:
    @plants("secret.in_config")
    def test_secrets_in_the_settings_are_named_and_not_shown(self, home: Home) -> None:
        home.config.write_text(f'[model]\napi_key = "{CANARY}"\n[channels.telegram]\ntoken = "{RIGHT}"\n')
        finding = told(examine(home))["secret.in_config"]
        assert "(model.api_key, channels.telegram.token)" in finding.cause
        assert finding.level == "ok"

    @plants("secret.no_key")
    def test_a_provider_without_its_key(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in {name for names in PROVIDER_KEY_VARIABLES.values() for name in names}:
            monkeypatch.delenv(name, raising=False)

        def keyless(**model: object) -> bool:
            home.config.write_text(f"[model]\n{table(**model)}")
            return "secret.no_key" in told(examine(home))

        assert keyless(name="openai/gpt-4o")
        assert keyless(name="scripted", fallback=["anthropic/claude"])
        assert not keyless(name="openai/gpt-4o", api_key=CANARY)
        assert not keyless(name="openai/gpt-4o", api_base="http://127.0.0.1:1/v1")
        # Key and address go to models of the configured provider only.
        assert keyless(name="openai/gpt-4o", api_key=CANARY, fallback=["anthropic/claude"])
        for name in ("ollama/llama3", "bedrock/x", "local", "scripted", ""):
            assert not keyless(name=name)
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        assert not keyless(name="openai/gpt-4o")

    def test_a_missing_key_of_another_provider_does_not_belong_into_the_settings(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        home.config.write_text('[model]\nname = "openai/gpt-4o"\nfallback = ["anthropic/claude"]\n')
        own, other = [one.cause for one in examine(home, "secret.no_key")]
        assert "openai/gpt-4o needs a key, and neither [model] api_key nor OPENAI_API_KEY is set here." in own
        assert "anthropic/claude needs a key" in other
        assert "[model] api_key is only for the provider in [model] name" in other

    def test_the_variables_are_those_litellm_reads(self) -> None:
        spec = find_spec("litellm")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        folder = Path(spec.submodule_search_locations[0])
        sources = [
            "utils.py", "main.py", "litellm_core_utils/get_llm_provider_logic.py", "llms/cohere/common_utils.py",
            "llms/openrouter/common_utils.py", "llms/fireworks_ai/chat/transformation.py",
        ]  # fmt: skip
        text = "".join((folder / name).read_text(encoding="utf-8") for name in sources if (folder / name).is_file())
        for provider, names in PROVIDER_KEY_VARIABLES.items():
            assert f'"{provider}"' in text
            for name in names:
                assert re.search(rf'"{name}"', text), name

    @plants("secret.odd_token")
    def test_a_token_that_seems_to_be_cut(self, home: Home) -> None:
        for token, odd in (("12345678:" + CANARY, True), (RIGHT, False), ("no token at all", False), ("", False)):
            home.config.write_text(f"[channels.work]\n{table(kind='telegram', token=token)}")
            assert ("secret.odd_token" in told(examine(home))) is odd
