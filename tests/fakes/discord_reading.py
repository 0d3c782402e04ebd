"""How Discord reads the inside of a line: the rules that its clients are known to have, for tests of what we write."""

from __future__ import annotations

import re
from collections.abc import Iterator

Read = list[tuple[str, frozenset[str]]]
"""Characters with their looks."""

_ESCAPE = re.compile(r"\\([^0-9A-Za-z\s])")
_URL = re.compile(r"https?://[^\s<]+[^<.,:;\"'\]\s]")
_AUTOLINK = re.compile(r"<(https?://[^ >]+)>")
_LINK = re.compile(r"\[((?:\\.|[^\[\]\\])+)\]\((https?://[^\s)]+)\)")
_CODE = re.compile(r"(`+)([\s\S]*?[^`])\1(?!`)")
_EM = re.compile(
    r"(?a:\b)_((?:__|\\[\s\S]|[^\\_])+?)_(?a:\b)|\*(?=\S)((?:\*\*|\\[\s\S]|\s+(?:\\[\s\S]|[^\s*\\]|\*\*)|[^\s*\\])+?)\*(?!\*)"
)
_PAIRS = {
    "bold": re.compile(r"\*\*((?:\\[\s\S]|[^\\])+?)\*\*(?!\*)"),
    "underline": re.compile(r"__((?:\\[\s\S]|[^\\])+?)__(?!_)"),
    "strike": re.compile(r"~~([\s\S]+?)~~(?!_)"),
    "spoiler": re.compile(r"\|\|([\s\S]+?)\|\|"),
}


def read(text: str, looks: frozenset[str] = frozenset()) -> Read:
    """The characters that people see of a line. Of emphasis in several ways the longest is taken."""
    return list(_read(text, looks))


def _read(text: str, looks: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    while text:
        # The rules see what is left, not what stands before it.
        if found := _ESCAPE.match(text):
            yield found[1], looks
        elif found := _AUTOLINK.match(text) or _URL.match(text):
            yield from ((char, looks | {"link"}) for char in (found[1] if found.re is _AUTOLINK else found[0]))
        elif found := _LINK.match(text):
            yield from read(found[1], looks | {"link"})
        elif found := _CODE.match(text):
            content = re.sub(r"^ (?= *`)|(` *) $", r"\1", found[2])
            yield from ((char, looks | {"code"}) for char in content)
        elif best := _emphasis(text):
            found, look = best
            yield from read(found[1] or found[found.lastindex or 1], looks | {look})
        else:
            yield text[0], looks
            text = text[1:]
            continue
        text = text[found.end() :]


def _emphasis(text: str) -> tuple[re.Match[str], str] | None:
    found = [(match, look) for look, rule in _PAIRS.items() if (match := rule.match(text))]
    if em := _EM.match(text):
        found.insert(0, (em, "italic"))
    return max(found, key=lambda one: one[0].end(), default=None)
