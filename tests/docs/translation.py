"""The Chinese pages beside the English ones they follow.

`python -m tests.docs.translation` lists the pages that are missing or whose English has changed since;
`python -m tests.docs.translation PAGE...` writes the digest of the English into translated pages, after somebody has
brought them up to date.
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from pathlib import Path

from tests.docs.pages import ROOT

TRANSLATED = ("README.md", "docs/quickstart.md", "docs/concepts/*.md", "docs/howto/*.md", "docs/reference/python.md")
FOLDER = Path("docs/zh")
_MARK = re.compile(r"<!-- follows (\S+) ([0-9a-f]{16}) -->\n")


def english_pages() -> list[Path]:
    """List the pages that exist in both languages, relative to the checkout."""
    return sorted(page.relative_to(ROOT) for pattern in TRANSLATED for page in ROOT.glob(pattern))


def chinese_page(english: Path) -> Path:
    """Give the Chinese page of an English one: `docs/zh` has the folders of `docs`, and the README."""
    return FOLDER / (english.relative_to("docs") if english.parts[0] == "docs" else english)


def mark_of(english: Path) -> str:
    """Give the line that a Chinese page begins with: the page it follows, and the digest of that page's bytes."""
    digest = sha256((ROOT / english).read_bytes()).hexdigest()[:16]
    return f"<!-- follows {english.as_posix()} {digest} -->\n"


def main(*pages: str) -> int:
    """Stamp these Chinese pages, or list what is out of date; 1 if there is something."""
    of_chinese = {chinese_page(page).as_posix(): page for page in english_pages()}
    for name in pages:
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(mark_of(of_chinese[name]) + _MARK.sub("", text, count=1), encoding="utf-8")
    late = [name for name, page in of_chinese.items() if not _follows(ROOT / name, page)]
    print(*late, sep="\n")
    return bool(late)


def _follows(chinese: Path, english: Path) -> bool:
    return chinese.exists() and chinese.read_text(encoding="utf-8").startswith(mark_of(english))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
