"""A Markdown parser that loses nothing: CommonMark with tables, strikethrough, bare addresses, spoilers and simple tags.

Markdown-it drops some text: cells beyond a table's last column, unused definitions, blocks nested too deeply, signs of
sums and formulas. The rules here keep it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import cast

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType

from bubbot.ports.markdown.formulas import parse_formula, parse_formula_block
from bubbot.ports.markdown.marks import MarkState
from bubbot.ports.markdown.tags import parse_tag

MAX_NESTING_LEVELS = 40
"""Levels of nesting to parse; deeper text is shown as written. A list item has two."""
MAX_PARAGRAPH_CHARS = 10_000
"""The most characters of a paragraph to parse; a longer one is shown as written, since some take seconds."""
MAX_STEPS_PER_CHAR = 5
"""Parser steps allowed for each character of a paragraph; ordinary text takes one. Brackets that never close take
thousands, so such a paragraph is shown as written."""
_SCHEME = re.compile(r"(?:^|[^a-z0-9.+-])(https?)$", re.IGNORECASE)
_ADDRESS = re.compile(r"://[^\s<>\"`|\x00-\x20\u3000-\u303f\uff00-\uff0f\uff1a-\uff1f]+")
_SENTENCE_END = ".,;:!?'*_~"
_LANGUAGE = re.compile(r"[\w+#.\-]{1,32}")
_PLAIN_LINE = re.compile(r"[^\W\d_](?:[^\\`*_~\[\]<>&|:\x00-\x1f\x7f]|:(?!//))*(?<!\s)")
"""A line without any markup, like most answers in a chat. It is not worth 200 calls of the parser."""


def parse_tokens(source: str, *, inline: bool = True) -> list[Token]:
    """Parse a cleaned source into tokens; without `inline` only into blocks."""
    return (
        _plain_paragraph(source, inline=inline) if _PLAIN_LINE.fullmatch(source) else parse_any(source, inline=inline)
    )


def _plain_paragraph(line: str, *, inline: bool) -> list[Token]:
    """Return the parser's tokens for a line without markup."""
    return [
        Token("paragraph_open", "p", 1, map=[0, 1], block=True),
        Token(
            "inline", "", 0, map=[0, 1], level=1, content=line, block=True,
            children=[Token("text", "", 0, content=line)] if inline else [],
        ),
        Token("paragraph_close", "p", -1, block=True),
    ]  # fmt: skip


def parse_any(source: str, *, inline: bool) -> list[Token]:
    """Parse any cleaned source with the parser."""
    environment: dict[str, dict[str, dict[str, str]]] = {}
    parsed = _make_parser(inline=inline).parse(source, environment)
    definitions = {reference["href"] for reference in environment.get("references", {}).values()}
    if definitions and inline and (environment.get("duplicate_refs") or not definitions <= set(_addresses(parsed))):
        return _make_parser(inline=inline, references=False).parse(source)
    return parsed


def split_fence_info(info: str) -> tuple[str, str]:
    """Split the text after a fence into the language and the rest."""
    first, _, rest = info.strip().partition(" ")
    return (first, rest.strip()) if _LANGUAGE.fullmatch(first) else ("", info.strip())


def _addresses(parsed: list[Token]) -> Iterator[str]:
    for token in parsed:
        yield str(token.attrs.get("href") or token.attrs.get("src") or "")
        yield from _addresses(token.children or [])


@cache
def _make_parser(*, inline: bool, references: bool = True) -> MarkdownIt:
    """Make a parser, once per kind: that takes longer than parsing a message. A parser keeps nothing of a text."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 2 * MAX_NESTING_LEVELS}).enable(
        ["table", "strikethrough"]
    )
    parser.inline = BoundedInline(parser.inline)
    parser.block.ruler.before("table", "deep", _parse_deep)
    parser.block.ruler.at("table", _parse_table, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before("table", "formula", parse_formula_block, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("escape", "address", _parse_address)
    parser.inline.ruler.before("escape", "spoiler", _parse_spoiler)
    parser.inline.ruler.before("escape", "formula", parse_formula)
    parser.inline.ruler.before("autolink", "tag", parse_tag)
    parser.inline.add_terminator_char("|")
    parser.inline.add_terminator_char("$")
    parser.core.ruler.at("inline", _parse_paragraphs)
    if not references:
        parser.disable("reference")
    if not inline:
        # Definitions count as text here: the source is cut, not rendered.
        parser.disable(["reference", "inline"])
    return parser


class ParserStepLimit(Exception):
    """A paragraph took more steps than allowed."""


class BoundedInline(ParserInline):
    """A parser of paragraphs with another parser's rules and a limit of steps that grows with the text.

    A step is one look ahead for the end of a link, or a character of a description that is parsed separately.

    Attributes:
        steps_taken: steps taken in this paragraph.
    """

    def __init__(self, other: ParserInline) -> None:
        super().__init__()
        self.ruler, self.ruler2 = other.ruler, other.ruler2
        self.steps_taken = 0
        self._limit = 0

    def parse_paragraph(self, token: Token, state: StateCore) -> None:
        """Fill in the children of a paragraph; only its plain text if it is too long or too slow."""
        self.steps_taken, self._limit = 0, MAX_STEPS_PER_CHAR * (len(token.content) + 1)
        children: list[Token] = []
        try:
            if len(token.content) > MAX_PARAGRAPH_CHARS:
                raise ParserStepLimit
            self.parse(token.content, state.md, state.env, children)
        except ParserStepLimit:
            children = [Token("text", "", 0, content=token.content)]
        token.children = children

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        """See `ParserInline`: the library also calls it for descriptions of images, and for nested ones."""
        self._count_steps(len(src))
        state = MarkState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens

    def skipToken(self, state: StateInline) -> None:  # noqa: N802 - the name is the library's
        self._count_steps(1)
        super().skipToken(state)

    def _count_steps(self, steps: int) -> None:
        self.steps_taken += steps
        if self.steps_taken > self._limit:
            raise ParserStepLimit


def _parse_paragraphs(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline":
            cast("BoundedInline", state.md.inline).parse_paragraph(token, state)


def _parse_deep(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 (a rule's signature)
    if state.level < MAX_NESTING_LEVELS:
        return False
    if not silent:
        token = state.push("paragraph_open", "p", 1)
        token.map = [start, end]
        token = state.push("inline", "", 0)
        token.map = [start, end]
        token.content = state.getLines(start, end, state.blkIndent, keepLastLF=False).strip()
        token.children = []
        state.push("paragraph_close", "p", -1)
        state.line = end
    return True


def _parse_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Parse a table; join the cells of a row beyond the head's last column to its last cell.

    `meta["source"]` of its first token has the lines without the list or quote around them.
    """
    before = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    table_tokens = state.tokens[before:] if not silent else []
    columns = sum(token.type == "th_open" for token in table_tokens)
    last: Token | None = None
    for token in table_tokens:
        if token.type == "table_open":
            token.meta = {"source": state.getLines(start, state.line, state.blkIndent, keepLastLF=True)}
        elif token.type == "inline":
            last = token
        elif token.type == "tr_close" and last is not None and last.map is not None:
            row = state.getLines(last.map[0], last.map[0] + 1, 0, keepLastLF=False).strip(" \t\r\n")
            surplus = [cell.strip() for cell in _split_cells(row)[columns:]]
            last.content = " | ".join([last.content, *filter(None, surplus)])
    return True


def _split_cells(row: str) -> list[str]:
    cells = escapedSplit(row)
    start = 1 if cells[0] == "" else 0
    return cells[start : -1 if len(cells) > start and cells[-1] == "" else None]


def _parse_address(state: StateInline, silent: bool) -> bool:  # noqa: FBT001
    """Parse a bare address in the text. Punctuation that ends a sentence is not part of it."""
    if state.src[state.pos] != ":" or state.linkLevel > 0:
        return False
    scheme, match = _SCHEME.search(state.pending[-16:]), _ADDRESS.match(state.src, state.pos, state.posMax)
    if scheme is None or match is None:
        return False
    rest = match[0].rstrip(_SENTENCE_END)
    while rest.endswith((")", "]")) and rest.count("(") + rest.count("[") < rest.count(")") + rest.count("]"):
        rest = rest[:-1].rstrip(_SENTENCE_END)
    if len(rest) <= len("://"):
        return False
    if not silent:
        address = scheme[1] + rest
        state.pending = state.pending[: -len(scheme[1])]
        state.push("link_open", "a", 1).attrs = {"href": address}
        state.push("text", "", 0).content = address
        state.push("link_close", "a", -1)
    state.pos += len(rest)
    return True


def _parse_spoiler(state: StateInline, silent: bool) -> bool:  # noqa: FBT001
    """Parse `||hidden||` if it is a separate word; `a || b` and `a||b` are not spoilers."""
    start = state.pos + 2
    if not state.src.startswith("||", state.pos) or (state.pos and state.src[state.pos - 1].isalnum()):
        return False
    end = state.src.find("||", start, state.posMax)
    if end <= start or state.src[start].isspace() or state.src[end - 1].isspace():
        return False
    if state.src[end + 2 : end + 3].isalnum() or "|" in state.src[start:end]:
        return False
    if not silent:
        state.push("spoiler_open", "", 1)
        cast("MarkState", state).parse_inside(start, end)
        state.push("spoiler_close", "", -1)
    state.pos = end + 2
    return True
