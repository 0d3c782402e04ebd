"""The limits of marks by stars, underscores and tildes: CommonMark's rules, extended for all scripts and for sums.

CommonMark distinguishes the two ends of a mark by spaces and punctuation. Scripts without spaces between words need
more: in `**重点：**可以` the second pair ends a mark. And a star between two numbers is not a mark: `2*3*4` is 24.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.utils import EnvType

_UNCASED = ("Lo", "Lm", "Mn", "Mc", "Me", "Cf")
"""Categories of letters without case and of their marks: scripts in which words or their parts touch."""
_QUOTES = ("Pi", "Pf")
_LOW_QUOTES = "„‚"
_NEIGHBOURS = 4
"""Characters of punctuation to search for the letter after them."""
_RUNS = re.compile(r"(?P<stars>\*+)|(?:\\.|[^*\\])+|\\", re.DOTALL)
_WORD = re.compile(r"\S*\*\S*")
_CLAUSE = re.compile(r"[^\s，。；：、！？,;!?]*\*[^\s，。；：、！？,;!?]*")
_EQUATION = re.compile("[=＝≈÷×]")
_LETTER = re.compile(r"[^\W\d_](?![^\W\d_])")
"""One letter alone, such as a variable."""


class MarkState(StateInline):
    """The state of a paragraph during parsing.

    Attributes:
        unclosed_tags: names of tags that are not closed before an end of the text.
    """

    def __init__(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> None:
        super().__init__(src, md, env, tokens)
        self.unclosed_tags: set[tuple[str, int]] = set()
        self._signs: frozenset[int] | None = None

    def parse_inside(self, start: int, end: int) -> None:
        """Parse the text from `start` to `end` as if nothing followed: no code, link or backslash in it goes beyond."""
        outside = self.src, self.posMax, self.cache, self.backticks, self.backticksScanned
        self.src, self.posMax, self.cache, self.backticks, self.backticksScanned = self.src[:end], end, {}, {}, False
        self.pos = start
        self.md.inline.tokenize(self)
        self.src, self.posMax, self.cache, self.backticks, self.backticksScanned = outside

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: FBT001, N802, N803 - the library's names
        scanned = super().scanDelims(start, canSplitWord)
        if self._signs is None:
            self._signs = frozenset(find_signs(self.src))
        if start in self._signs:
            return scanned._replace(can_open=False, can_close=False)
        end = start + scanned.length
        if (scanned.can_open and scanned.can_close) or not 0 < start < end < self.posMax:
            return scanned
        before, after = self.src[start - 1], self.src[end]
        if _is_space(before) or _is_space(after) or _is_punctuation(before) == _is_punctuation(after):
            return scanned
        mark, letter = (before, after) if _is_punctuation(before) else (after, before)
        outwards = (
            self.src[max(0, start - _NEIGHBOURS) : start][::-1] if mark == before else self.src[end:][:_NEIGHBOURS]
        )
        if not (_is_joined(letter) or _is_quote(mark) or _leads_to_joined(outwards)):
            return scanned
        # Punctuation beside a letter: this may begin a mark and end one, but no mark ends just after `（`.
        opens_only = mark == before and unicodedata.category(mark) == "Ps" and mark not in _LOW_QUOTES
        closes_only = mark == after and unicodedata.category(mark) == "Pe"
        return scanned._replace(can_open=not closes_only, can_close=not opens_only)


def _is_space(char: str) -> bool:
    return isWhiteSpace(ord(char))


def _is_punctuation(char: str) -> bool:
    return isMdAsciiPunct(ord(char)) or isPunctChar(char)


def _is_joined(char: str) -> bool:
    """Return true for a character of a script whose words touch: Chinese, Thai, Korean with its particles."""
    return unicodedata.category(char) in _UNCASED or unicodedata.east_asian_width(char) in "WF"


def _leads_to_joined(text: str) -> bool:
    """Return true if such a character stands in the leading punctuation of a text or directly after it."""
    for char in text:
        if _is_joined(char) or not _is_punctuation(char):
            return _is_joined(char)
    return False


def _is_quote(char: str) -> bool:
    return unicodedata.category(char) in _QUOTES or char in _LOW_QUOTES


def find_signs(text: str) -> Iterator[int]:
    """Find the runs of stars and tildes that are signs of a sum or a range; yield their starts.

    A star without spaces is a sign between two numbers, between a number and a letter, and between two letters with case:
    `2*3*4`, `5*x`, `width*height`, `(a+b)*c`. Two stars are one before a number (`x**2`) and between single letters
    (`a**b`), and a part of a word may be bold: `in**ter**esting`. A mark that begins or ends at the edge of a word is a
    mark: `*re*cord`, `Win**11**`. In scripts without case a star is a sign in a clause with an equals sign.
    """
    if "*" in text:
        pending = {1: False, 2: False}
        for word in _WORD.finditer(text):
            yield from _find_products(word[0], word.start(), pending)
        for clause in _CLAUSE.finditer(text):
            yield from _find_uncased_products(clause[0], clause.start())
    for match in re.finditer(r"(?<=\d)~~(?=\d)", text):
        yield match.start()


def _find_products(word: str, offset: int, pending: dict[int, bool]) -> Iterator[int]:
    """Find the signs in a word; `pending` is true, for one and for two stars, if a mark is open there."""
    runs = list(_RUNS.finditer(word))
    stars = [index for index, run in enumerate(runs) if run["stars"]]
    twos = sum(len(runs[index][0]) == 2 for index in stars)
    for index in stars:
        size = len(runs[index][0])
        left, right = _text(runs, index - 1), _text(runs, index + 1)
        if size < 3 and _joins(left, right):
            leads = _text(runs, index - 2) == runs[index][0] and not _ends_operand(_text(runs, index - 3))
            trails = _text(runs, index + 2) == runs[index][0] and not _begins_operand(_text(runs, index + 3))
            trails = trails and (leads or not pending[size])
            is_sign = (
                _is_product(left, right, leads=leads, trails=trails)
                if size == 1
                else _is_power(left, right, leads=leads, trails=trails, is_paired=twos % 2 == 0)
            )
            if is_sign:
                yield offset + runs[index].start()
                continue
        for number in (1, 2) if size > 2 else (size,):
            pending[number] = bool(right) if not (pending[number] and left) else False


def _text(runs: list[re.Match[str]], index: int) -> str:
    return runs[index][0] if 0 <= index < len(runs) else ""


def _joins(left: str, right: str) -> bool:
    """Return true if stars between two texts may be a sign: `2*3`, `x*y`, `)*z`."""
    return _ends_operand(left) and _begins_operand(right)


def _ends_operand(text: str) -> bool:
    return bool(text) and (_is_operand(text[-1]) or text[-1] in ")]}%!'′°")


def _begins_operand(text: str) -> bool:
    return bool(text) and _is_operand(text[0])


def _is_operand(char: str) -> bool:
    return _is_number(char) or char.lower() != char.upper()


def _is_number(char: str) -> bool:
    return unicodedata.category(char)[0] == "N"


def _is_product(left: str, right: str, *, leads: bool, trails: bool) -> bool:
    """Return true if one star between two operands is a sign: always beside a number; between letters only if it is no
    other end of a mark that begins (`leads`) or ends (`trails`) at the edge of the word.
    """
    return not (left[-1].isalpha() and right[0].isalpha()) or leads == trails


def _is_power(left: str, right: str, *, leads: bool, trails: bool, is_paired: bool) -> bool:
    """Return true if two stars between two operands are a sign: before a number, or between single letters."""
    is_number = _is_number(right[0])
    is_letter = _LETTER.match(right) and (not left[-1].isalpha() or _LETTER.fullmatch(left[-2:].lstrip("(")))
    if not is_number and not is_letter:
        return not is_paired  # in**ter**esting
    if trails and not leads:
        return False  # Win**11**
    return is_number or trails or not (leads and all(map(_is_number, left)))  # **5**x


def _find_uncased_products(clause: str, offset: int) -> Iterator[int]:
    """Find the signs between letters without case, or between one and a number: `长*宽*高`, `3个*5元=15元`."""
    stars = [match.start() for match in re.finditer(r"(?<![*\\])\*(?!\*)", clause)]
    is_equation = bool(_EQUATION.search(clause))
    for before, at, after in zip([-9, *stars], stars, [*stars[1:], -9], strict=False):
        left, right = clause[at - 1 : at], clause[at + 1 : at + 2]
        if not (left.isalnum() and right.isalnum()) or (_is_operand(left) and _is_operand(right)):
            continue
        has_number = _is_number(left) or _is_number(right)
        is_single = left.isalpha() and right.isalpha() and (at - before == 2 or after - at == 2)
        if is_equation or is_single or (has_number and len(stars) % 2):
            yield offset + at
