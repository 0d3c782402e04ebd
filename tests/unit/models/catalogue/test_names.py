"""Which names litellm takes, known without importing it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.models.catalogue.names import read_providers
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


@pytest.mark.parametrize("enumeration", [None, "class Other: ...\n", 'class LlmProviders(str, Enum):\n    A = "a"\n'])
def test_a_litellm_of_another_form_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enumeration: str | None
) -> None:
    package = tmp_path / "litellm"
    (package / "types").mkdir(parents=True)
    (package / "__init__.py").touch()
    if enumeration:
        (package / "types" / "utils.py").write_text(enumeration)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert read_providers() == frozenset()
