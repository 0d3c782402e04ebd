"""Regular expressions that others write, searched in texts that a model chooses: none takes long."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

SEARCH_SECONDS = 0.1
"""The longest that one search takes; the event loop waits for it."""
MAX_SEARCH_PARTS = 100_000
"""The parts of an expression, with those that it repeats counted as often; each costs memory when it is compiled."""
MAX_EXPRESSION_CHARS = 10_000
"""The longest expression."""
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]|\{(?P<least>\d*+)(?:,(?P<most>\d*+))?\}|(?P<open>\()|(?P<close>\))|.", re.DOTALL
)


@lru_cache(maxsize=512)
def compile_search(expression: str) -> Callable[[str], bool]:
    """Build the search for a regular expression anywhere in a text. Raise `ValueError`, a sentence, if it is none.

    The search raises `TimeoutError` if it takes longer than `SEARCH_SECONDS`.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        message = f"has {len(expression)} characters, and may have {MAX_EXPRESSION_CHARS}"
        raise ValueError(f"the regular expression {expression[:40]!r}… {message}: shorten it")
    import regex  # type: ignore[import-untyped]  # loaded only where an expression is searched

    try:
        re.compile(expression)  # what it takes is documented; the library that can stop takes more
        if (count := _count_parts(expression)) > MAX_SEARCH_PARTS:
            reason = f"its repetitions make {count} parts, and there may be {MAX_SEARCH_PARTS}"
            raise ValueError(f"{_shorten(expression)} is too large: {reason}; repeat less")
        compiled = regex.compile(expression)
    except RecursionError:
        raise ValueError(f"{_shorten(expression)} is nested too deep: use fewer parentheses") from None
    except (re.error, regex.error, OverflowError) as error:
        raise ValueError(f"{_shorten(expression)} is not a regular expression: {error}") from error

    def search(text: str) -> bool:
        return compiled.search(text, timeout=SEARCH_SECONDS) is not None

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
