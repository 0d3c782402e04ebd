"""Passages of real text: documentation, programs and translations that are on the machine; no two are the same."""

from __future__ import annotations

import gettext
import gzip
import random
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SIZE = 200
"""Bytes of a passage, about."""
CJK_PART = 0.03
"""The part of passages in Chinese or Japanese, where there are so many."""
_SUFFIXES = frozenset({".md", ".txt", ".rst", ".py", ".html", ".pyi", ".gz", ".pod", ".tex", ".js", ".c", ".h"})
_LARGEST = 4_000_000
_CJK = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]{2,}")
_TAGS = re.compile(r"<[^>]{1,200}>")


def passages(number: int, seed: int) -> list[str]:
    """So many passages, the same for the same machine and seed; fewer where it has no more text."""
    chance = random.Random(seed)
    foreign = list(_packed(_translations(), 90))
    chance.shuffle(foreign)
    foreign = list(dict.fromkeys(foreign))[: int(number * CJK_PART)]
    seen: set[int] = set()
    found: list[str] = []
    wanted = number - len(foreign)
    for path in _files(chance):
        for text in _packed(iter(_TAGS.sub(" ", _read(path)).splitlines()), SIZE):
            mark = hash_of(text)
            if mark not in seen and _is_said(text):
                seen.add(mark)
                found.append(text)
        if len(found) >= wanted:
            break
    del found[wanted:]
    found += foreign
    chance.shuffle(found)
    return found


def hash_of(text: str) -> int:
    """The same for passages that differ in digits, case and spaces alone: tables repeat themselves."""
    return hash(re.sub(r"[\W\d_]+", "", text).casefold())


def _is_said(text: str) -> bool:
    """Whether it is words and not numbers or lines."""
    letters = sum(map(str.isalpha, text))
    return letters > 0.5 * len(text) and text.count(" ") >= 5


def _files(chance: random.Random) -> list[Path]:
    folders = [Path("/usr/share/doc"), Path("/usr/share/perl"), Path("/usr/include"), Path("/usr/lib/python3")]
    folders += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    folders += [Path(sys.base_prefix) / "lib"]
    found = {path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.suffix in _SUFFIXES}
    ordered = sorted(found)
    chance.shuffle(ordered)
    return ordered


def _read(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return ""
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, ValueError, EOFError):
        return ""


def _translations() -> Iterator[str]:
    """The Chinese and Japanese sentences of the programs that are installed."""
    root = Path("/usr/share/locale")
    for language in ("zh_CN", "ja", "zh_TW"):
        for path in sorted((root / language).glob("LC_MESSAGES/*.mo")) if root.is_dir() else ():
            try:
                with path.open("rb") as file:
                    catalog = gettext.GNUTranslations(file)
            except (OSError, ValueError):
                continue
            known = vars(catalog)["_catalog"]
            yield from (
                text for text in known.values() if isinstance(text, str) and _CJK.search(text) and "\n" not in text
            )


def _packed(lines: Iterator[str], size: int) -> Iterator[str]:
    """Lines joined until they are long enough."""
    parts: list[str] = []
    length = 0
    for line in lines:
        cleaned = " ".join(line.split())
        if not cleaned:
            continue
        parts.append(cleaned[: 2 * size])
        length += len(cleaned)
        if length >= size * 0.8:
            yield " ".join(parts)[: 2 * size]
            parts, length = [], 0
