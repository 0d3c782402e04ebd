"""The answer of an explanation: statements that cite entries, and the one function that checks them.

The form is small, so that a model can be held to it:

    The train leaves at 18:40. [#12]
    - Ann booked the hotel "Roma" for two nights. [#15, telegram:42 #7]

Every line is a statement and ends with the entries that it rests on. `UNKNOWN` alone says that the tape does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from bubbot.features.explain.claims import Evidence, read_claims, split_sentences
from bubbot.features.explain.reading import UNKNOWN
from bubbot.records import dataclass

MAX_STATEMENTS = 30
MAX_STATEMENT_CHARS = 600
MAX_CITATIONS = 8
MIN_SENTENCE_WORDS = 3
"""Shorter pieces, such as `Dr.`, are no sentences of their own."""

_LINE = re.compile(r"(?:[-*•]\s+|\d{1,2}[.)]\s+)?(?P<text>.+)\[(?P<cited>[^\[\]]+)\][.。]?")
_CITATION = re.compile(r"(?:(?P<tape>[^\s#,\[\]]{1,200})\s+)?#(?P<entry>[1-9]\d{0,11})")
_MENTION = re.compile(r"(?<![\w&])#(\d{1,12})\b")
_SHOWN = re.compile(r"#(\d{1,12}) ")
_QUOTED_FROM = re.compile(r"Quoted from ([^\s,]+), oldest first;")


class AnswerInvalid(Exception):
    """What a model wrote breaks the form, or a citation does not hold; the text says how."""


@dataclass(frozen=True, slots=True)
class Citation:
    """An entry that a statement cites. `tape`: empty for the tape that the question is about, else as the model was shown it."""

    entry: int
    tape: str = ""

    def __str__(self) -> str:
        return f"{self.tape} #{self.entry}" if self.tape else f"#{self.entry}"


@dataclass(frozen=True, slots=True)
class Statement:
    """A line of an answer: its words, and the entries that it rests on."""

    text: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class CitedEntry:
    """What there is of a cited entry.

    Attributes:
        evidence: what it says; None for one whose words are gone: erased, or deleted by who wrote it.
        is_granted: the chat of the question may read it.
        is_explanation: an explanation wrote it, with what its model said wrongly; it founds nothing.
    """

    evidence: Evidence | None = None
    is_granted: bool = True
    is_explanation: bool = False


def parse_answer(text: str) -> tuple[Statement, ...]:
    """Read the answer of a model; no statements mean that it found nothing.

    Raises:
        AnswerInvalid: it breaks the form.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if [line.rstrip(".") for line in lines] == [UNKNOWN]:
        return ()
    if not lines:
        raise AnswerInvalid("it is empty")
    if len(lines) > MAX_STATEMENTS:
        raise AnswerInvalid(f"it has {len(lines)} lines; {MAX_STATEMENTS} are allowed")
    return tuple(map(_parse_line, lines))


def _parse_line(line: str) -> Statement:
    match = _LINE.fullmatch(line)
    shown = _shorten(line)
    if match is None:
        raise AnswerInvalid(f"this line does not end with the entries that it rests on, such as [#12]: {shown}")
    if len(match["text"]) > MAX_STATEMENT_CHARS:
        raise AnswerInvalid(f"this line is longer than {MAX_STATEMENT_CHARS} characters: {shown}")
    citations = []
    for part in match["cited"].split(","):
        cited = _CITATION.fullmatch(part.strip())
        if cited is None:
            raise AnswerInvalid(f"[{_shorten(match['cited'])}] is no list of entries, such as [#12, #15]: {shown}")
        citations.append(Citation(int(cited["entry"]), cited["tape"] or ""))
    if len(citations) > MAX_CITATIONS:
        raise AnswerInvalid(f"this line cites {len(citations)} entries; {MAX_CITATIONS} are allowed: {shown}")
    statement = Statement(match["text"].strip(), tuple(dict.fromkeys(citations)))
    cited_ids = {citation.entry for citation in citations}
    if strange := [number for number in map(int, _MENTION.findall(statement.text)) if number not in cited_ids]:
        raise AnswerInvalid(f"#{strange[0]} is named in the words of this line and not cited at its end: {shown}")
    return statement


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


def check_statements(
    statements: Sequence[Statement], shown: Collection[Citation], entries: Mapping[Citation, CitedEntry]
) -> None:
    """Check every citation of an answer.

    Args:
        statements: the answer.
        shown: the entries that the model was shown in this explanation.
        entries: what there is of the cited entries; one that does not exist is not among them.

    Raises:
        AnswerInvalid: the first citation that does not hold.
    """
    for statement in statements:
        for citation in statement.citations:
            problem = _find_problem(citation, shown, entries)
            if problem:
                raise AnswerInvalid(f"{citation} {problem}: {_shorten(statement.text)}")
        _check_words(statement, [(each, entries[each].evidence) for each in statement.citations])


def _find_problem(citation: Citation, shown: Collection[Citation], entries: Mapping[Citation, CitedEntry]) -> str:
    entry = entries.get(citation)
    if entry is None:
        return "does not exist"
    if not entry.is_granted:
        return "may not be read from here"
    if citation not in shown:
        return "was not shown to you"
    if entry.is_explanation:
        return "belongs to an explanation, which founds nothing"
    return "has no words any more" if entry.evidence is None else ""


def _check_words(statement: Statement, cited: Sequence[tuple[Citation, Evidence | None]]) -> None:
    """Raise `AnswerInvalid` if the words of a statement are not those of the entries that it cites."""
    words = _MENTION.sub(" ", statement.text)
    claims = read_claims(words)
    evidence = Evidence()
    for citation, each in cited:
        own = each or Evidence()
        if not own.supports(claims):
            raise AnswerInvalid(f"{citation} says nothing of this: {_shorten(statement.text)}")
        evidence += own
    names = ", ".join(str(citation) for citation, _ in cited)
    if missing := evidence.find_missing(claims):
        raise AnswerInvalid(f"{missing} is not in {names}: {_shorten(statement.text)}")
    for sentence in split_sentences(words):
        if len(sentence.split()) >= MIN_SENTENCE_WORDS and not evidence.supports(read_claims(sentence)):
            raise AnswerInvalid(f"{names} says nothing of this: {_shorten(sentence)}")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:119]}…"
