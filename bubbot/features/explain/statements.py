"""The answer of an explanation: what entries say, and the one function that checks it.

The form is small, so that a model can be held to it:

    #12 "It has to be direct, and not before 18:00."
    telegram:42 #7 "The fair begins on Friday."
    => So the evening train was the first that fits.

Each line is an entry and words that stand in it. At most one conclusion follows, in words of the model that nothing checks
and that people read as such. `UNKNOWN` alone says that the tape does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from bubbot.features.explain.reading import CONCLUSION, UNKNOWN
from bubbot.features.explain.sources import MAX_QUOTATION_CHARS, SourceText, find_quotation
from bubbot.texts import Texts

MAX_LINES = 30
MAX_CONCLUSION_CHARS = 400

_LINE = re.compile(
    r"(?:[-*•]\s+|\d{1,2}[.)]\s+)?\[?(?:(?P<tape>[^\s#,\[\]]{1,200})\s+)?#(?P<entry>[1-9]\d{0,11})(?!\d)\]?(?P<words>.+)"
)
_LOOKS_FOUNDED = re.compile(r"#\d|[\[\]\"“”„«»「」『』]")
"""What a conclusion may not hold: citations and quotations are for what was checked."""
_SHOWN = re.compile(r"#(\d{1,12}) ")
_QUOTED_FROM = re.compile(r"Quoted from ([^\s,]+), oldest first;")


class AnswerInvalid(Exception):
    """What a model wrote breaks the form, or a citation does not hold."""

    def __init__(self, sentence: str, words: str = "", **values: object) -> None:
        """Set what is wrong.

        Args:
            sentence: the name of the sentence that says it.
            words: those of the model that it is about; people do not read them.
            values: those of the sentence.
        """
        super().__init__(sentence)
        self.sentence, self.words, self.values = sentence, words, values

    def describe(self, texts: Texts) -> str:
        """Say what is wrong to people."""
        return texts.say(self.sentence, **self.values)

    def __str__(self) -> str:
        """Say what is wrong to the model."""
        problem = self.describe(Texts())
        return f"{problem}: {_shorten(self.words)}" if self.words else problem


class Citation(Struct, frozen=True):
    """An entry that a statement cites. `tape`: empty for the tape that the question is about, else as the model was shown it."""

    entry: int
    tape: str = ""

    def __str__(self) -> str:
        return f"{self.tape} #{self.entry}" if self.tape else f"#{self.entry}"


class Quotation(Struct, frozen=True):
    """A line of an answer: an entry, and words that are said to stand in it."""

    citation: Citation
    words: str


class Statement(Struct, frozen=True):
    """What people read of an entry.

    Attributes:
        citation: the entry.
        quote: the sentences of the entry.
        text: these, with who said them and when.
    """

    citation: Citation
    quote: str
    text: str


class CitedEntry(Struct, frozen=True):
    """What there is of a cited entry.

    Attributes:
        source: what it says and in whose words; empty for one whose words are gone: erased, or deleted by who wrote it.
        date: when it was written, as people read it.
        is_granted: the chat of the question may read it.
        is_explanation: an explanation wrote it, with what its model said wrongly; it founds nothing.
        newest: the id of the newest version of what it says; 0 for its own.
    """

    source: tuple[SourceText, ...] = ()
    date: str = ""
    is_granted: bool = True
    is_explanation: bool = False
    newest: int = 0


def parse_answer(text: str) -> tuple[tuple[Quotation, ...], str]:
    """Read the answer of a model: what it quotes, nothing if it found nothing, and its conclusion, which may be empty.

    Raises:
        AnswerInvalid: it breaks the form.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if [line.rstrip(".") for line in lines] == [UNKNOWN]:
        return (), ""
    if not lines:
        raise AnswerInvalid("explain_wrong_empty")
    if len(lines) > MAX_LINES:
        raise AnswerInvalid("explain_wrong_long", limit=MAX_LINES)
    conclusion = _parse_conclusion(lines.pop()) if lines[-1].startswith(CONCLUSION) and len(lines) > 1 else ""
    return tuple(map(_parse_line, lines)), conclusion


def _parse_conclusion(line: str) -> str:
    conclusion = line.removeprefix(CONCLUSION).strip()
    if not conclusion or len(conclusion) > MAX_CONCLUSION_CHARS or _LOOKS_FOUNDED.search(conclusion):
        raise AnswerInvalid("explain_wrong_conclusion", line, limit=MAX_CONCLUSION_CHARS)
    return conclusion


def _parse_line(line: str) -> Quotation:
    match = _LINE.fullmatch(line)
    if match is None:
        raise AnswerInvalid("explain_wrong_line", line)
    return Quotation(Citation(int(match["entry"]), match["tape"] or ""), match["words"])


def find_shown(results: Iterable[str]) -> frozenset[Citation]:
    """Find the entries that results of reading tools have shown.

    An entry stands at the beginning of a line, as `#12 …`. No words of people can: the tools indent and quote them. What
    quotes another tape says so in a line of its own before.
    """
    shown: set[Citation] = set()
    for result in results:
        tape = ""
        for line in result.split("\n"):
            if quoted := _QUOTED_FROM.match(line):
                tape = quoted[1]
            elif match := _SHOWN.match(line):
                shown.add(Citation(int(match[1]), tape))
    return frozenset(shown)


def check_quotations(
    quotations: Sequence[Quotation], shown: Collection[Citation], entries: Mapping[Citation, CitedEntry], texts: Texts
) -> tuple[Statement, ...]:
    """Check every quotation of an answer, and write what people read; what two lines quote is written once.

    Args:
        quotations: the answer.
        shown: the entries that the model was shown in this explanation.
        entries: what there is of the cited entries; one that does not exist is not among them.
        texts: the language of what people read.

    Raises:
        AnswerInvalid: the first quotation that does not hold.
    """
    return tuple(dict.fromkeys(_check(each, shown, entries.get(each.citation), texts) for each in quotations))


def _check(quotation: Quotation, shown: Collection[Citation], entry: CitedEntry | None, texts: Texts) -> Statement:
    cited, words = quotation.citation, quotation.words
    if entry is None:
        raise AnswerInvalid("explain_wrong_missing", words, entry=cited)
    if not entry.is_granted:
        raise AnswerInvalid("explain_wrong_granted", words, entry=cited)
    if cited not in shown:
        raise AnswerInvalid("explain_wrong_shown", words, entry=cited)
    if entry.is_explanation:
        raise AnswerInvalid("explain_wrong_source", words, entry=cited)
    if not entry.source:
        raise AnswerInvalid("explain_wrong_gone", words, entry=cited)
    if entry.newest:
        raise AnswerInvalid("explain_wrong_old", words, entry=cited, newest=entry.newest)
    for source in entry.source:
        if quote := find_quotation(words, source.text):
            if len(quote) > MAX_QUOTATION_CHARS:
                raise AnswerInvalid("explain_wrong_quotation", words, entry=cited, limit=MAX_QUOTATION_CHARS)
            text = texts.say("explain_statement", date=entry.date, lead=source.lead, quote=quote)
            return Statement(cited, quote, text)
    raise AnswerInvalid("explain_wrong_words", words, entry=cited)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:119]}…"
