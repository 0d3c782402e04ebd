"""Sources: what an entry says and in whose words, and the sentences of it that a quotation stands in.

Nothing here understands a sentence. A model names an entry and words of it; if they stand there, people read the whole
sentences of the entry, and whose they are by the tape. So no negation, number or speaker can get lost on the way.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise

from msgspec import Struct

from bubbot.features.explain.reading import read_content
from bubbot.formatting import clean_label
from bubbot.ports.agents import writer_of
from bubbot.ports.model import ToolCall
from bubbot.runtime.context.quoting import clean_name
from bubbot.runtime.context.selectors import OWN_PART_KEY, format_sender, text_of
from bubbot.runtime.turns import read_calls, read_results
from bubbot.tape.entry import Kind, TapeEntry, encode, objects_of
from bubbot.tape.handle import CORRECTION
from bubbot.tape.provenance import Source, most_foreign, source_of, source_of_role
from bubbot.texts import Texts

MAX_WHOLE_CHARS = 300
"""A text of this length is quoted whole."""
MAX_QUOTATION_CHARS = 600
"""Longer sentences are not read by people."""
MAX_CALL_CHARS = 120
"""Characters of a call that names the source of a result."""
_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+\s++|(?<![。！？…])[。！？…]++[\"”’」』）]*+\s*+|(?<!\s)[^\S\n]*+\n\s*+|(?<=,)(?=\")"
)
"""What may end a sentence, a line, or a field of JSON."""
_NO_END = re.compile(r"(?:\b(?:[a-z]|dr|mr|ms|st|no|nr|vs|mrs|etc|prof)\.|\d\.|[:：,，、])\s*+", re.IGNORECASE)
"""An abbreviation, an ordinal, or a line that the next one belongs to."""
_JSON = re.compile(r"\s*+\w*+\(?[{\[]")
_JSON_ESCAPE = re.compile(r"\\(?:[nrt]|u[0-9a-f]{4})")
_CITATION = re.compile(r"[\[［](?=\W{0,9}[#＃])")
"""What begins what looks like a citation, also with blanks or signs that nobody sees in it."""
_SHOWN_AS = str.maketrans(
    {**dict.fromkeys("“”„‟〝〞〟❝❞＂", '"'), **dict.fromkeys("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")}
)  # fmt: skip
"""Only the program writes the marks around a quotation."""


class SourceText(Struct, frozen=True):
    """A text of an entry.

    Attributes:
        lead: whose words it is, as people read it before the quotation.
        text: the words.
    """

    lead: str
    text: str


def read_source(entry: TapeEntry, calls: Mapping[str, ToolCall], texts: Texts) -> tuple[SourceText, ...]:
    """Read what an entry says.

    Args:
        calls: those whose results it may hold, by their ids.
        texts: the language in which people read whose words it is.
    """
    return tuple(_read_texts(entry, calls, texts))


def _read_texts(entry: TapeEntry, calls: Mapping[str, ToolCall], texts: Texts) -> Iterator[SourceText]:
    payload, by_bot = entry.payload, _lead_of_bot(entry, texts)
    match entry.kind:
        case Kind.MESSAGE if payload.get("role") in ("user", "assistant"):
            lead = _lead_of_message(entry, texts)
            content = payload.get("content")
            if isinstance(content, str):
                yield SourceText(lead, content)
            for part in objects_of(content):
                yield SourceText(by_bot if part.get(OWN_PART_KEY) else lead, text_of((part,), encode))
        case Kind.TOOL_CALL:
            yield SourceText(by_bot, text_of(payload.get("content")))
            for call in read_calls(entry):
                yield SourceText(texts.say("explain_by_call"), f"{call.name}({call.arguments})")
        case Kind.TOOL_RESULT:
            for result in read_results(entry):
                content = result.get("content", "")
                text = content if isinstance(content, str) else encode({"content": content})
                yield SourceText(_lead_of_result(calls.get(str(result.get("tool_call_id", ""))), texts), text)
        case Kind.EVENT if entry.name == CORRECTION:
            lead = texts.say(
                "explain_by_correction", author=_author_of(entry, texts), entry=entry.data.get("corrects", 0)
            )
            yield SourceText(lead, str(entry.data.get("content", "")))
        case Kind.ANCHOR:
            lead = texts.say("explain_by_anchor", name=clean_label(entry.name or "", MAX_CALL_CHARS))
            yield SourceText(lead, encode(payload.get("state") or {}))
        case kind:
            lead = texts.say("explain_by_record", name=clean_label(entry.name or str(kind), MAX_CALL_CHARS))
            yield SourceText(lead, encode(read_content(entry)))


def _lead_of_bot(entry: TapeEntry, texts: Texts) -> str:
    writer = writer_of(entry)
    return texts.say("explain_by_agent", agent=clean_name(writer)) if writer else texts.say("explain_by_bot")


def _lead_of_message(entry: TapeEntry, texts: Texts) -> str:
    if entry.payload.get("role") == "assistant":
        return _lead_of_bot(entry, texts)
    origin = entry.meta.get("origin", "human")
    if origin != "human":
        return texts.say("explain_by_program", origin=clean_name(str(origin)))
    author, sender = _author_of(entry, texts), entry.meta.get("sender")
    role = sender.get("role") if isinstance(sender, Mapping) else None
    own = source_of_role(role) if isinstance(role, str) else Source.PEOPLE
    if most_foreign(own, source_of(entry)) is own:
        return texts.say("explain_by_person", author=author)
    return texts.say("explain_by_sender", author=author)  # forwarded, or with files


def _author_of(entry: TapeEntry, texts: Texts) -> str:
    sender = entry.meta.get("sender")
    return _show(format_sender(sender)) if isinstance(sender, Mapping) else texts.say("read_by_person")


def _lead_of_result(call: ToolCall | None, texts: Texts) -> str:
    if call is None:
        return texts.say("explain_by_some_tool")
    return texts.say("explain_by_tool", call=_show(clean_label(f"{call.name}({call.arguments})", MAX_CALL_CHARS)))


def find_quotation(words: str, text: str) -> str:
    """Find words in a text; return its whole sentences around them, as people read them. Empty if it does not have them.

    Punctuation, case, width and blanks make no difference: what is returned is the text itself. A short text is returned
    whole, of a longer one the sentences before and after as well, so that what answers or denies stands beside it.
    """
    pieces = _split(text)
    folded = [_fold(piece) for piece in pieces]
    wanted = _fold(words)
    place = "".join(folded).find(wanted) if wanted else -1
    if place < 0:
        return ""
    if len(text.strip()) <= MAX_WHOLE_CHARS:
        return _show(text)
    ends = list(accumulate(map(len, folded)))
    first, last = bisect_right(ends, place), bisect_left(ends, place + len(wanted))
    quotation = ""
    for neighbours in (1, 0):
        low, high = max(0, first - neighbours), min(len(pieces), last + 1 + neighbours)
        quotation = f"{'… ' if low else ''}{_show(''.join(pieces[low:high]))}{' …' if high < len(pieces) else ''}"
        if len(quotation) <= MAX_QUOTATION_CHARS:
            break
    return quotation


def _split(text: str) -> list[str]:
    """Split a text into sentences, lines and fields of JSON; together they are the text. In doubt a sentence goes on."""
    is_json = _JSON.match(text) is not None
    places = [0]
    for end in _END.finditer(text):
        following = text[end.end() : end.end() + 1]
        begin = max(places[-1], end.start() - 5)
        goes_on = following.islower() or any(
            each.end() == end.end() for each in _NO_END.finditer(text, begin, end.end())
        )
        if is_json if not end[0] else not goes_on:
            places.append(end.end())
    return [text[low:high] for low, high in pairwise([*places, len(text)]) if low < high]


def _fold(text: str) -> str:
    """Return the letters, digits and symbols of a text."""
    plain = unicodedata.normalize("NFKC", _JSON_ESCAPE.sub(" ", text)).casefold()
    return "".join(char for char in plain if unicodedata.category(char)[0] not in "CPZ")


def _show(text: str) -> str:
    """Write words on one line, without what could end a quotation or look like a citation."""
    return _CITATION.sub("(", " ".join(text.translate(_SHOWN_AS).split()))
