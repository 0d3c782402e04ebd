"""The foreign entries that a step shows its model, and the addresses that occur in them verbatim."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.ports.channel import Role
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import AddressQuote, EntryRef, Receiver, ShownEntries
from bubbot.runtime.tool_list import unwrap_call
from bubbot.runtime.turns import read_calls, read_results
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, objects_of, text_field
from bubbot.tape.handle import CORRECTION
from bubbot.tape.provenance import LEAST_ROLE, Source, find_foreign, least_role_of, pick_source, source_of

MAX_FOREIGN = 8
"""Entries to name of each provenance; more would add nothing."""


class ForeignWords(Struct, frozen=True):
    """The shown entries with foreign words, newest first.

    Attributes:
        world: entries with words from anywhere.
        people: entries with words of people who are not owners, with the least role among these.
    """

    world: tuple[EntryRef, ...] = ()
    people: tuple[tuple[EntryRef, Role], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.world or self.people)

    def as_json(self) -> JsonObject:
        """Build the step's record."""
        return {
            "world": [list(each) for each in self.world],
            "people": [list(each) for each, _ in self.people],
        }

    def add(self, tape: str, entries: Iterable[TapeEntry]) -> ForeignWords:
        """Add the foreign entries among these."""
        return self.add_found(tape, find_foreign(entries))

    def add_found(self, tape: str, found: Sequence[TapeEntry]) -> ForeignWords:
        world = _newest(pick_source(found, Source.WORLD))
        people = pick_source(found, Source.PEOPLE)
        named = [(entry, least_role_of(entry)) for entry in _newest(people)]
        if LEAST_ROLE not in [role for _, role in named]:  # an older entry may have a lesser role
            named += [(entry, LEAST_ROLE) for entry in people if least_role_of(entry) == LEAST_ROLE][-1:]
        pairs = [((tape, entry.id), parse_role(role)) for entry, role in named]
        return ForeignWords(_merge([(tape, entry.id) for entry in world], self.world), merge_people(pairs, self.people))

    def add_sources(self, sources: Iterable[tuple[EntryRef, Source]]) -> ForeignWords:
        """Add entries that the caller has judged; keep all, since some may be vouched for."""
        given = list(sources)
        world = [entry for entry, source in given if source is Source.WORLD]
        people = [(entry, parse_role(LEAST_ROLE)) for entry, source in given if source is Source.PEOPLE]
        return ForeignWords(tuple(dict.fromkeys([*self.world, *world])), tuple(dict([*self.people, *people]).items()))

    def without(self, tape: str, ids: Collection[int]) -> ForeignWords:
        """Remove entries of a tape."""
        gone = {(tape, each) for each in ids}
        world = tuple([each for each in self.world if each not in gone])
        return ForeignWords(world, tuple([each for each in self.people if each[0] not in gone]))

    def note_in(self, shown: ShownEntries) -> None:
        """Add the entries to those that a turn has seen."""
        shown.world = _merge(self.world, shown.world)
        shown.people = merge_people(self.people, shown.people)


def _newest(entries: Sequence[TapeEntry]) -> list[TapeEntry]:
    return sorted(entries, key=attrgetter("id"), reverse=True)[:MAX_FOREIGN]


def _merge(first: Iterable[EntryRef], second: Iterable[EntryRef]) -> tuple[EntryRef, ...]:
    return tuple(dict.fromkeys([*first, *second]))[:MAX_FOREIGN]


def merge_people(
    first: Sequence[tuple[EntryRef, Role]], second: Sequence[tuple[EntryRef, Role]]
) -> tuple[tuple[EntryRef, Role], ...]:
    """Join two lists of entries of people; keep at least one of each role."""
    both = dict([*second, *first])
    if len(both) <= MAX_FOREIGN and not (first and second):
        return tuple(both.items())
    ordered = list(dict.fromkeys([*(entry for entry, _ in first), *(entry for entry, _ in second)]))
    newest = {role: entry for entry in reversed(ordered) for role in (both[entry],)}
    kept = [*newest.values(), *ordered][: max(MAX_FOREIGN, len(newest))]
    return tuple((entry, both[entry]) for entry in ordered if entry in kept)


def parse_role(name: str) -> Role:
    """Return the role with this name; the least of those who may speak if it is unknown."""
    return _BY_NAME[name] if name in _BY_NAME else Role.MEMBER  # noqa: SIM401 - without a call


_BY_NAME: Mapping[str, Role] = MappingProxyType({str(role): role for role in Role})


# ------------------------------------------------------------------ addresses

QuotesAddresses: TypeAlias = Callable[[str], bool]
"""Return true for the name of a tool whose results are web pages: the model saw the addresses in them."""

_BEFORE = re.compile(r"[\s\"'`<>(\[{|,;:=*_~\u00ab]|[^\x00-\x7f]")
"""The characters that may precede an address; after others it is part of a longer one."""
_END = re.compile(
    r"[\s<>\"`\uff0c\u3002\u3001\uff1b\uff1a\uff01\uff1f\uff09\u3011\u300d\u300f\u300b\u201d\u2019\u00bb\u2026]|\]\("
)
"""The characters that end an address."""
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_OPENING: Mapping[str, str] = MappingProxyType({")": "(", "]": "[", "}": "{"})
_NO_WORD = re.compile(r"[\W_]+")
MAX_TOKEN_CHARS = 2_100
"""The most characters of an address, and how far before it a longer one that contains it may begin."""


def list_addresses(text: str) -> frozenset[str]:
    """List the addresses that occur in a text verbatim, not as parts of longer ones.

    Nothing is normalised. Only one address counts at each start: without closing punctuation of the sentence and the
    marks and brackets around it. So the size of the set is the number of choices.
    """
    found = (read_address(text, match.start(), match.end()) for match in _SCHEME.finditer(text))
    return frozenset(address for address in found if address)


def read_address(text: str, start: int, host: int) -> str:
    """Return the address that begins at `start`; empty if it is part of a longer one or has no host."""
    before = text[max(start - MAX_TOKEN_CHARS, 0) : start]
    if before and not _BEFORE.fullmatch(before[-1]):
        return ""
    token = re.split(r"[\s<>\"`]", before)[-1]
    is_link = token.endswith("](")
    if "://" in token and not is_link:  # the label of a Markdown link may itself be an address
        return ""
    end = found.start() if (found := _END.search(text, host, start + MAX_TOKEN_CHARS)) else len(text)
    address = text[start : min(end, start + MAX_TOKEN_CHARS)]
    if is_link and (closed := _find_closing(address)) >= 0:
        address = address[:closed]
    elif before[-1:] + text[end : end + 1] not in ("<>", '""'):
        address = _strip_behind(address, before)
    return address if len(address) > host - start else ""


def _find_closing(address: str) -> int:
    """Return the position of the first closing bracket that the address does not open; -1 without one."""
    depth = 0
    for place, char in enumerate(address):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            return place
    return -1


def _strip_behind(address: str, before: str) -> str:
    """Strip the sentence's punctuation after an address; a mark that opens before it also closes after it."""
    while address:
        last = address[-1]
        if last in "*_~" and before.endswith(last):
            before = before[:-1]
        elif not (last in ".,;:!?'|" or (last in _OPENING and address.count(last) > address.count(_OPENING[last]))):
            break
        address = address[:-1]
    return address


# ------------------------------------------------------------------ words of a query

_LETTER_SCRIPTS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""Letters of scripts without spaces between words: each counts as a word."""
_AROUND = re.compile(r"^\W+|\W+$")


def list_words(text: str) -> frozenset[str]:
    """List the words of a text verbatim, with and without the punctuation around them."""
    chunks = text.split()
    return frozenset([*chunks, *(_AROUND.sub("", chunk) for chunk in chunks), *_LETTER_SCRIPTS.findall(text)]) - {""}


def _list_forms(text: str) -> list[frozenset[str]]:
    """List the words of a text in order, each with the spellings that `list_words` has."""
    chunks = text.split()
    forms = [frozenset({chunk, _AROUND.sub("", chunk)}) - {""} for chunk in chunks]
    return [one for form, chunk in zip(forms, chunks, strict=True) for one in (form, *_letter_forms(chunk))]


def _letter_forms(chunk: str) -> list[frozenset[str]]:
    return [frozenset({letter}) for letter in _LETTER_SCRIPTS.findall(chunk)]


def _split_query(query: str) -> list[str]:
    """Split a query into words; in an unspaced script each letter is one."""
    return [word for chunk in query.split(" ") for word in _split_chunk(chunk)]


def _split_chunk(chunk: str) -> list[str]:
    letters = _LETTER_SCRIPTS.findall(chunk)
    return letters if letters and len(letters) == len(chunk) else [chunk]


class ShownTexts(Struct, frozen=True):
    """The shown entries of a tape, oldest first, to search for addresses.

    Attributes:
        quotes_addresses: returns true for web tools.
        answered: the ids of the answered messages.
    """

    tape: str = ""
    entries: Sequence[TapeEntry] = ()
    quotes_addresses: QuotesAddresses = lambda _tool: False
    answered: Collection[int] = ()

    def find_quote(self, address: str) -> AddressQuote | None:
        """Return the newest entry in which an address occurs that no model wrote; None without one.

        Texts of people and web pages count, unless the model wrote the address in any spelling before the page was
        read: the page may just repeat it.
        """
        folded, found, is_composed, is_asked = _fold(address), None, False, False
        choices = {address}
        for entry, texts, is_page in self._read_texts():
            is_composed = is_composed or any(folded in _fold(text) for text in _model_texts(entry))
            addresses = _addresses_of(entry, texts)
            is_answered = self._is_answered(entry)
            if not is_answered:
                choices |= addresses
            if address in addresses and not (is_page and is_composed):
                found, is_asked = entry.id, is_asked or is_answered
        return None if found is None else AddressQuote((self.tape, found), len(choices), is_asked)

    def stands(self, address: str) -> bool:
        """Return true if an address occurs in a text of a person or a tool and no model wrote it before."""
        folded, is_composed = _fold(address), False
        for entry in self.entries:
            if entry.erased:
                continue
            if any(address in list_addresses(text) for text in _people_texts(entry)):
                return True
            is_composed = is_composed or any(folded in _fold(text) for text in _model_texts(entry))
            results = () if is_composed else read_results(entry)
            if any(address in list_addresses(text_field(result, "content")) for result in results):
                return True
        return False

    def weigh_query(self, query: str, earlier: int = 0, receiver: Receiver | None = None) -> float | None:
        """Return how many bits the choice of a query's words reveals; None if a word occurs nowhere.

        A word of a page, or of the receiver's own results, costs the logarithm of the number of such words. Results of
        other tools do not count as occurrences: their words may be private, however few bits choose one. Words of the answered
        message are free in the first query, and cost bits in further ones or out of order. All must be spelled as they occur,
        or the whole query in lower case with single spaces.

        Args:
            query: words separated by spaces.
            earlier: the number of queries since the message.
            receiver: who gets the query, if it wrote some of what was shown.
        """
        own, world = list[frozenset[str]](), set[str]()
        for entry, texts, _ in self._read_texts(receiver):
            for text in texts:
                if self._is_answered(entry):
                    own += _list_forms(text)
                else:
                    world |= list_words(text)
        spellings: list[tuple[Sequence[frozenset[str]], set[str]]] = [(own, world)]
        if query == query.lower():
            lowered = [frozenset(map(str.lower, forms)) for forms in own]
            spellings.append((lowered, {word.lower() for word in world}))
        words = _split_query(query)
        weights = (_weigh_words(words, said, shown, is_first=not earlier) for said, shown in spellings)
        return min((weight for weight in weights if weight is not None), default=None)

    def _is_answered(self, entry: TapeEntry) -> bool:
        """Return true for an answered message that has only a person's own words."""
        return entry.id in self.answered and source_of(entry) is not Source.WORLD

    def _read_texts(self, receiver: Receiver | None = None) -> Iterator[tuple[TapeEntry, Sequence[str], bool]]:
        """Yield each entry with its texts that no model wrote, and true if these are web pages, or words of the receiver."""
        calls: dict[str, ToolCall] = {}
        for entry in self.entries:
            if entry.erased:
                continue
            if entry.kind == Kind.TOOL_CALL:
                calls |= {call.id: call for call in read_calls(entry)}
            pages = list(self._page_texts(entry, calls, receiver))
            yield entry, pages or list(_people_texts(entry)), bool(pages)

    def _page_texts(self, entry: TapeEntry, calls: Mapping[str, ToolCall], receiver: Receiver | None) -> Iterator[str]:
        own = receiver.tools if receiver is not None and entry.date >= receiver.since else frozenset()
        for result in read_results(entry):
            call, content = calls.get(text_field(result, "tool_call_id")), text_field(result, "content")
            if call is None or result.get("is_error"):
                continue
            if self.quotes_addresses(call.name) or (own and unwrap_call(call).name in own):
                yield content


def _addresses_of(entry: TapeEntry, texts: Sequence[str]) -> frozenset[str]:
    """Return the addresses in the texts of an entry; cached on the entry."""
    if _CACHED not in entry.cache:
        entry.cache[_CACHED] = frozenset[str]().union(*map(list_addresses, texts))
    addresses: frozenset[str] = entry.cache[_CACHED]
    return addresses


_CACHED = "addresses"


def _weigh_words(
    words: Sequence[str], said: Sequence[frozenset[str]], shown: Set[str], *, is_first: bool
) -> float | None:
    """Return how many bits the choice of words reveals; None if one was neither said nor shown.

    Args:
        words: in order.
        said: the spellings of each word of the message, in order.
        shown: the words of shown pages.
        is_first: this is the first query since the message.
    """
    own = frozenset[str]().union(*said)
    named, others = [word for word in words if word in own], shown - own
    if not all(word in own or word in others for word in words):
        return None
    of_others = (len(words) - len(named)) * math.log2(len(others) + 1) + math.log2(math.comb(len(words), len(named)))
    left = iter(said)
    if all(any(word in forms for forms in left) for word in named):  # in the order of the message
        return of_others + (0.0 if is_first else min(float(len(said)), len(named) * math.log2(len(own) + 1)))
    if is_first:
        return of_others + math.log2(math.factorial(len(named)))
    return of_others + len(named) * math.log2(len(own) + 1)


def _fold(text: str) -> str:
    """Reduce a text to its letters and digits, which all spellings share."""
    return _NO_WORD.sub("", text.casefold())


def _people_texts(entry: TapeEntry) -> Iterator[str]:
    """Yield the texts that a person wrote, quoted or attached, except quotes of the bot: a model wrote those."""
    if entry.kind == Kind.EVENT and entry.name == CORRECTION and "turn" not in entry.meta:
        yield text_field(entry.data, "content")
    if entry.kind != Kind.MESSAGE or entry.payload.get("role") != "user" or entry.meta.get("origin") != "human":
        return
    content = entry.payload.get("content")
    if isinstance(content, str):
        yield content
    for part in objects_of(content):
        if isinstance(text := part.get("text"), str):
            yield text
    quote = entry.meta.get("quote")
    if isinstance(quote, Mapping) and not quote.get("own") and isinstance(text := quote.get("text"), str):
        yield text


def _model_texts(entry: TapeEntry) -> Iterator[str]:
    """Yield texts that a model wrote or may have written, such as the prompt of a sub-task or a job."""
    if entry.kind == Kind.TOOL_CALL:
        yield str(entry.payload.get("content") or "")
        for call in read_calls(entry):
            yield call.arguments
            yield from _read_strings(call.arguments)
    elif entry.kind == Kind.ANCHOR:
        yield from _walk_strings(entry.payload.get("state"))
    elif entry.kind == Kind.MESSAGE and entry.meta.get("origin") != "human":
        content = entry.payload.get("content")
        yield content if isinstance(content, str) else ""
        for part in objects_of(content):
            yield str(part.get("text", ""))


def _read_strings(arguments: str) -> Iterator[str]:
    """Yield the decoded texts in arguments: JSON can spell a text in several ways."""
    try:
        yield from _walk_strings(json.loads(arguments))
    except (ValueError, RecursionError):
        return


def _walk_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _walk_strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk_strings(item)
