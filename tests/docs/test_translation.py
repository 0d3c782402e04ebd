"""The Chinese pages say what the English ones say: the same pages, headings, code and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.translation import FOLDER, chinese_page, english_pages, mark_of

_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMENT = re.compile(r"(^|\s{1,})#( .*)?$", re.MULTILINE)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")

PAGES = english_pages()


def test_both_languages_have_the_same_pages() -> None:
    found = {page.relative_to(ROOT) for page in (ROOT / FOLDER).rglob("*.md")}
    assert found == {chinese_page(page) for page in PAGES}


@pytest.mark.parametrize("english", PAGES, ids=str)
def test_a_page_follows_the_english_one_as_it_is_now(english: Path) -> None:
    chinese = chinese_page(english)
    first = _text(chinese).partition("\n")[0] + "\n"
    assert first == mark_of(english), (
        f"{english} has changed: bring {chinese} up to date, then python -m tests.docs.translation {chinese}"
    )


@pytest.mark.parametrize("english", PAGES, ids=str)
def test_a_page_has_the_headings_code_and_links_of_the_english_one(english: Path) -> None:
    chinese = chinese_page(english)
    here, there = _text(chinese), _text(english)
    assert _headings(here) == _headings(there)
    assert _code(chinese) == _code(english)
    assert _targets(chinese) == _targets(english)
    prose = _FENCED.sub("", here)
    assert len(_CHINESE.findall(prose)) > len(re.findall(r"[A-Za-z]{4,}", prose)), "it is mostly English"


@pytest.mark.parametrize("english", PAGES, ids=str)
def test_links_to_headings_of_chinese_pages_find_them(english: Path) -> None:
    chinese = chinese_page(english)
    for link in _LINK.findall(_FENCED.sub("", _text(chinese))):
        file, _, anchor = link.partition("#")
        target = (ROOT / chinese.parent / file).resolve().relative_to(ROOT) if file else chinese
        if anchor and "://" not in link and target.is_relative_to(FOLDER):
            assert f'<a id="{anchor}"></a>' in _text(target), f"{chinese}: {link}"


def _text(page: Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _headings(text: str) -> list[int]:
    return [len(level) for level in _HEADING.findall(_FENCED.sub("", text))]


def _code(page: Path) -> list[tuple[str, str]]:
    """The language and text of each fenced block, without comments, which are translated."""
    return [(block.language, _COMMENT.sub("", block.text)) for block in blocks(ROOT / page)]


def _targets(page: Path) -> list[str]:
    """Where the page's links lead, as English pages: addresses as they are, without anchors, which are headings."""
    found = []
    for link in _LINK.findall(_FENCED.sub("", _text(page))):
        if "://" in link or link.startswith("#"):
            found.append(link.partition("#")[0])
            continue
        target = (ROOT / page.parent / link.partition("#")[0]).resolve().relative_to(ROOT)
        found.append(_english(target).as_posix())
    return sorted(found)


def _english(target: Path) -> Path:
    if not target.is_relative_to(FOLDER):
        return target
    inside = target.relative_to(FOLDER)
    return inside if inside == Path("README.md") else Path("docs") / inside
