"""The glossary: each of its words names something that is there, under the name the glossary gives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.pages import ROOT, read_source

GLOSSARY = ROOT / "docs" / "glossary.md"
_ROW = re.compile(r"^\| (?P<term>[^|]+) \| (?P<means>[^|]+) \| (?P<code>[^|]+) \|$", re.MULTILINE)


def _rows() -> Iterator[tuple[str, str]]:
    for row in _ROW.finditer(GLOSSARY.read_text(encoding="utf-8")):
        if row["term"] != "word" and not row["term"].startswith("--"):
            yield row["term"].strip(), row["code"]


def test_a_word_of_the_glossary_is_in_the_code() -> None:
    source = read_source()
    words = set(re.findall(r"\w+", source))
    for term, code in _rows():
        names = re.findall(r"`([^`]+)`", code)
        assert names, f"{term} has no name in code"
        others = [name for name in names if name not in words]
        missing = [name for name in others if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", source)]
        assert missing == [], f"{term}: not in the code"


def test_the_words_are_in_alphabetical_order_and_each_is_there_once() -> None:
    terms = [term for term, _ in _rows()]
    assert len(terms) >= 20
    assert terms == sorted(set(terms), key=str.casefold)
