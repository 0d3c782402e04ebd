"""Which names litellm takes, known without importing it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.models.catalogue.names import check_fallbacks, check_model_name, read_providers
from bubbot.models.catalogue.sizes import find_size_list

pytestmark = pytest.mark.usefixtures("loaded_litellm")


def test_the_providers_are_those_litellm_knows() -> None:
    from bubbot.models.litellm.quiet import litellm

    known = {str(getattr(one, "value", one)) for one in litellm.provider_list}
    assert known <= read_providers()
    assert {"openai", "anthropic", "ollama", "veniceai"} <= read_providers()


def test_a_price_group_that_litellm_refuses_is_no_provider() -> None:
    from bubbot.models.litellm.quiet import litellm

    path = find_size_list()
    assert path
    listed = {str(one.get("litellm_provider")) for one in json.loads(path.read_bytes()).values()}
    for group in sorted(listed - read_providers()):
        with pytest.raises(litellm.exceptions.BadRequestError):
            litellm.get_llm_provider(f"{group}/m")


def test_they_are_read_without_importing_litellm() -> None:
    code = "import sys; from bubbot.models.catalogue import names as n; print(len(n.read_providers()), 'litellm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    count, imported = done.stdout.split()
    assert int(count) > 100
    assert imported == "False"


@pytest.mark.parametrize("name", ["openai/mine", "azure/our deployment", "ollama/../odd", "openrouter/a/b:free"])
def test_any_model_of_a_known_provider_is_possible(name: str) -> None:
    check_model_name(name, "[model] name")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../../etc/passwd", r"\[model\] name is '../../etc/passwd', and litellm knows no provider '..'"),
        ("opnai/gpt-4o", r"did you mean 'openai/gpt-4o'\?"),
        ("OpenAI/gpt-4o", r"did you mean 'openai/gpt-4o'\?"),
        ("lokal", r"one of local, scripted \(did you mean 'local'\?\)"),
        ("/x", "knows no provider ''"),
        ("openai/ ", "it has to be 'provider/model'"),
        ("openai/a\nb", "it has to be 'provider/model'"),
        ("zzz/x", "Among those it knows are anthropic, gemini"),
    ],
)
def test_a_name_that_nobody_has_is_refused_with_what_there_is(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_model_name(name, "[model] name", ["scripted", "local"])


@pytest.mark.parametrize("name", ["local", "nobody/x", ""])
def test_a_fallback_has_to_be_a_model_of_a_provider(name: str) -> None:
    check_fallbacks(["openai/x", "anthropic/y"])
    with pytest.raises(ConfigError, match=rf"\[model\] fallback is '{name}'"):
        check_fallbacks(["openai/x", name])


@pytest.mark.parametrize("enumeration", [None, "class Other: ...\n", 'class LlmProviders(str, Enum):\n    A = "a"\n'])
def test_a_litellm_of_another_form_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enumeration: str | None
) -> None:
    monkeypatch.setattr("bubbot.models.catalogue.names._litellm_folder", lambda: tmp_path)
    if enumeration:
        (tmp_path / "types").mkdir()
        (tmp_path / "types" / "utils.py").write_text(enumeration)
    assert read_providers() == frozenset()
    check_model_name("nobody/x", "[model] name")
