"""The pages that people read first are in plain English: what they must not say, and what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

PAGES = [
    page
    for page in pages()
    if page.parent.name in ("concepts", "howto") or page in (ROOT / "README.md", ROOT / "docs" / "quickstart.md")
]
INSTEAD = {
    r"anew": "again",
    r"as ever": "leave it out",
    r"beside (a|the) (running )?(bot|daemon)": "while the bot is running",
    r"but for": "except",
    r"(can|cannot) bear|bears": "limits; tolerates",
    r"gives? up|given up": "stop retrying; abandon",
    r"just now": "currently",
    r"mends?|mended": "fix",
    r"of one's own|one's own": "your own",
    r"reckon\w*": "estimate",
    r"set where|where (it is|they are) (not set|left out|missing)": "if not set; by default",
    r"and its kin": "name them",
    r"what of it": "name the thing",
    r"where (there|none|nobody) (is|are|has)": "if",
    r"how it is": "its health",
    r"(are|is) told": "notify; the bot says",
    r"whoever": "name the person",
    r"is no (bot|chat|channel|live|backup|fallback)\b": "is not a",
}
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)


def findings(text: str) -> list[str]:
    """Return each phrase to avoid outside of code, with what to write."""
    prose = " ".join(_CODE.sub("", text).split())
    return [
        f"{found[0]}: {instead}"
        for phrase, instead in INSTEAD.items()
        for found in re.finditer(rf"\b({phrase})\b", prose, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert findings(page.read_text(encoding="utf-8")) == []


def test_a_phrase_is_found_over_a_line_break_and_not_in_code() -> None:
    assert findings("It works beside a\nrunning bot.") == ["beside a running bot: while the bot is running"]
    assert findings("`whoever`\n\n```text\nwhoever\n```\n") == []
