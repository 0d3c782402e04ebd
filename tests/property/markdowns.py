"""Generated Markdown: documents whose words are known, and anything that looks like Markdown or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

MARKUP = ["**", "*", "_", "`", "```", "~~~", "~~", "||", "|", "[", "](", ")", "![", "> ", "# ", "- ", "- [x] ", "1. "]
MARKUP += [
    "<br>",
    "<i>",
    "</i>",
    "</b>",
    "<u>",
    "</u>",
    "<code>",
    "</code>",
    "<sub>",
    "</sub>",
    "\\(",
    "\\)",
    "$",
    "$$",
    "：",
    "（",
    "”",
]
MARKUP += [
    "\n",
    "\n\n",
    "    ",
    "---\n",
    "|--|--|\n",
    "\\",
    "&amp;",
    "<b>",
    "https://a.example/b_c",
    "[a]: b\n",
    "\t",
    " ",
]
PEOPLE = [
    "👩‍👩‍👧‍👦",
    "🇩🇪",
    "👍🏽",
    "e\u0301",
    "สวัสดี",
    "汉字。",
    "שלום",
    "نعم",
    "क्षि",
    "1️⃣",
    "\U0001f600",
    "word.",
    "two",
]

noise = st.lists(
    st.sampled_from(MARKUP)
    | st.sampled_from(PEOPLE)
    | st.text(st.characters(exclude_categories=()), max_size=6)
    | st.sampled_from(["\0", "\ud800", "\udc00", "\ud83d\ude00", "\r", "\r\n", "\u2028", "\u200b"]),
    max_size=40,
).map("".join)
"""Any text, with half a surrogate pair and NUL in it, and much that looks like markup."""


@dataclass
class Document:
    """Markdown, and the words in it that people have to see, in order. `tables` have others besides."""

    source: str = ""
    words: list[str] = field(default_factory=list)


class _Writer:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.words: list[str] = []

    def word(self) -> str:
        self.words.append(f"{self.draw(st.sampled_from(['w', '字', 'ש', 'é', '🎈', '👩‍👧']))}{len(self.words)}z")
        return self.words[-1]

    def inline(self) -> str:
        return " ".join(self._piece() for _ in range(self.draw(st.integers(1, 6))))

    def _piece(self) -> str:
        match self.draw(st.integers(0, 16)):
            case 0:
                return f"**{self.word()} *{self.word()}* `{self.word()}`**"
            case 1:
                return f"[{self.word()} **{self.word()}**](https://e.example/{len(self.words)})"
            case 2:
                return f"~~{self.word()}~~ ||{self.word()}||"
            case 3:
                return f"`{self.word()}` ![{self.word()}](https://e.example/i.png)"
            case 4:
                return f"*{self.word()}*. {self.word()}!"
            case 5:
                return f"字**「{self.word()}」**字**{self.word()}：**字"
            case 6:
                return f"2*3*{self.word()} \\({self.word()}_1*x*y\\) ${self.word()}$"
            case 7:
                return f"<b>{self.word()} <i>{self.word()}</i></b><br>{self.word()} <u>{self.word()}</u>"
            case 8:
                return f"<code>{self.word()}</code> x<sup>2</sup>{self.word()} <s>{self.word()} &amp; <b>"
            case _:
                return self.word()

    def blocks(self, depth: int) -> Iterator[str]:
        for _ in range(self.draw(st.integers(1, 4))):
            yield self.block(depth)
            yield ""

    def block(self, depth: int) -> str:
        match self.draw(st.integers(0, 7 if depth else 4)):
            case 0:
                return f"{'#' * self.draw(st.integers(1, 6))} {self.inline()}"
            case 1:
                return self.fence()
            case 2:
                return self.table()
            case 5:
                return _led("> ", "> ", "\n".join(self.blocks(depth - 1)).rstrip())
            case 6:
                return _led("- ", "  ", "\n".join(self.blocks(depth - 1)).rstrip())
            case 7:
                return _led("12. ", "    ", "\n".join(self.blocks(depth - 1)).rstrip())
            case _:
                return "\n".join(self.inline() for _ in range(self.draw(st.integers(1, 3))))

    def fence(self) -> str:
        marker = self.draw(st.sampled_from(["```", "~~~", "````", "~~~~~"]))
        lines = ["  " * (number % 3) + self.word() for number in range(self.draw(st.integers(0, 12)))]
        return "\n".join([marker + self.draw(st.sampled_from(["", "python", " c++"])), *lines, marker])

    def table(self) -> str:
        columns = self.draw(st.integers(1, 4))
        head = "| " + " | ".join(self.word() for _ in range(columns)) + " |"
        rows = [
            "| " + " | ".join(self._piece() for _ in range(columns)) + " |" for _ in range(self.draw(st.integers(0, 3)))
        ]
        return "\n".join([head.replace("||", ""), "|" + "---|" * columns, *(row.replace("||", "") for row in rows)])


def _led(first: str, then: str, text: str) -> str:
    return "\n".join((then if number else first) + line for number, line in enumerate(text.split("\n")))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    writer = _Writer(draw)
    source = "\n".join(writer.blocks(2))
    return Document(source, writer.words)
