"""Each TOML snippet of the documentation can be appended to the file of a new home as it stands, and loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bubbot.app.extensions import EXTENSIONS
from bubbot.ops.onboarding.existing import NEW_FILE
from bubbot.settings.loader import load_with_missing_secrets
from tests.docs.pages import pages

SNIPPETS = [
    (page, snippet)
    for page in pages()
    for snippet in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("page", "snippet"), SNIPPETS, ids=lambda part: part.stem if isinstance(part, Path) else "")
def test_a_snippet_can_be_appended_to_the_file_of_init(page: Path, snippet: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"{NEW_FILE}\n{snippet}", encoding="utf-8")
    load_with_missing_secrets(home=tmp_path, extensions=EXTENSIONS)
