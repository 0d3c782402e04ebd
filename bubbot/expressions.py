"""Regular expressions that others write, searched in texts that a model chooses: none takes long."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

SEARCH_SECONDS = 0.1
"""The longest that one search takes; the event loop waits for it."""
MAX_EXPRESSION_CHARS = 10_000
"""The longest expression."""
MAX_PARTS = 100_000
"""The parts of an expression, with those that it repeats counted as often; each costs memory when it is compiled."""
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]|\{(?P<least>\d*+)(?:,(?P<most>\d*+))?\}|(?P<open>\()|(?P<close>\))|.", re.DOTALL
)


class Search(Protocol):
    """Looks for a regular expression in a text."""

    def __call__(self, text: str, seconds: float = SEARCH_SECONDS) -> str | None:
        """Return what was found, also an empty text, or None. Raise `TimeoutError` if it takes longer."""


@lru_cache(maxsize=512)
def compile_search(expression: str, *, ignore_case: bool = False, whole: bool = False) -> Search:
    """Build the search for a regular expression in a text. Raise `ValueError`, a sentence, if it is none.

    Args:
        ignore_case: capital and small letters are the same.
        whole: the whole text has to match, not a part of it.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        reason = f"has {len(expression)} characters, and may have {MAX_EXPRESSION_CHARS}: shorten it"
        raise ValueError(f"the regular expression {_shorten(expression)} {reason}")
    import regex  # loaded only where an expression is searched

    flags = re.IGNORECASE if ignore_case else 0
    try:
        re.compile(expression, flags)  # what it takes is documented; the library that can stop takes more
        if (count := _count_parts(expression)) > MAX_PARTS:
            reason = f"its repetitions make {count} parts, and there may be {MAX_PARTS}"
            raise ValueError(f"{_shorten(expression)} is too large: {reason}; repeat less")
        compiled = regex.compile(expression, regex.IGNORECASE if ignore_case else 0)
    except RecursionError:
        raise ValueError(f"{_shorten(expression)} is nested too deep: use fewer parentheses") from None
    except (re.error, regex.error, OverflowError) as error:
        raise ValueError(f"{_shorten(expression)} is not a regular expression: {error}") from error
    find = compiled.fullmatch if whole else compiled.search

    def search(text: str, seconds: float = SEARCH_SECONDS) -> str | None:
        found = find(text, timeout=max(seconds, 0.0))
        return found and str(found[0])

    return search


def _count_parts(expression: str) -> int:
    """Return how many parts an expression has once its repetitions are written out; parentheses are balanced."""
    counts, last = [0], 0
    for part in _PART.finditer(expression):
        if part["open"]:
            counts.append(0)
            continue
        if part["close"] and len(counts) > 1:
            last = counts.pop() + 1
        elif part["least"] or part["most"]:
            last *= max(int(part["most"] or part["least"]) - 1, 0)
        else:
            last = 1
        counts[-1] += last
    return sum(counts)


def _shorten(expression: str) -> str:
    return repr(expression) if len(expression) <= 100 else f"{expression[:100]!r}…"
