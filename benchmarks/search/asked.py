"""Queries by class, each made from a passage that should be found."""

from __future__ import annotations

import random
import re
import string
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from bubbot.tape.spelling import find_alike
from bubbot.tape.words import fold_text, is_run, stem, strip_accents, tokens

FIRST = 20
"""Hits that are shown."""
RARE = 15
"""In how many passages the rarest word of a query is at most: else twenty others may be newer."""
_WORD = re.compile(r"[a-z]+")
_NAME = re.compile(r"[a-z]{2,}_[a-z]{2,}(?:_[a-z]{2,})*|[a-z]{2,}(?:[A-Z][a-z]{2,})+")
_CJK = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff]+")
_SYLLABLES = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "qi",
    "ro",
    "su",
    "ta",
    "ve",
    "wi",
    "xo",
    "zu",
    "bri",
    "klo",
    "dra",
    "fle",
    "gno",
    "sku",
    "tri",
    "vle",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, the place of the passage that it should find (None where it should find nothing), and what was meant.

    `meant` has the pieces of the folded passage that the query stands for.
    """

    text: str
    place: int | None
    meant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """What the queries are made from: the passages, and the places of each word."""

    passages: Sequence[str]
    places: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, passages: Sequence[str]) -> Words:
        places: dict[str, array[int]] = {}
        for place, text in enumerate(passages):
            for word in tokens(fold_text(text)):
                places.setdefault(word, array("I")).append(place)
        return cls(passages, places)

    def count(self, word: str) -> int:
        """The number of passages with the word."""
        return len(self.places.get(word, ()))

    def spelt(self, text: str, least: int) -> list[str]:
        """The words of a passage that are of letters a to z, in order."""
        return [word for word in tokens(fold_text(text)) if len(word) >= least and _WORD.fullmatch(word)]

    def is_found(self, one: Asked, places: Collection[int], exact: int) -> bool:
        """Whether the passages at these places, of which so many hold the query as it is typed, are a good answer.

        The passage it was made from is among them; or all hold the query as it is typed; or one of them holds what was
        meant, and more passages than are shown are as close to what was typed, so that nobody can tell which was meant.
        """
        if one.place in places or exact == FIRST:
            return True
        return any(holds(self.passages[place], one.meant) for place in places) and self.is_ambiguous(one)

    def is_ambiguous(self, one: Asked) -> bool:
        """Whether more passages than are shown are as close to the query as the one it was made from, or closer."""
        if all(word in self.places for word in one.meant):
            meant = set.intersection(*(set(self.places[word]) for word in one.meant))
            if len(meant) > FIRST:  # most are, and this takes no comparison with all words
                return True
        totals = reduce(_sum, map(self._mistakes, tokens(fold_text(one.text))))
        most = totals.get(one.place if one.place is not None else -1, -1.0)
        return sum(total <= most for total in totals.values()) > FIRST

    def _mistakes(self, word: str) -> dict[int, float]:
        """The passages that have a word like this one, with the mistakes of the closest."""
        found: dict[int, float] = {}
        alike = find_alike(word, self.places)
        for near in sorted(alike, key=lambda token: -alike[token].mistakes):
            found.update(dict.fromkeys(self.places[near], alike[near].mistakes))
        return found


def _sum(some: dict[int, float], others: dict[int, float]) -> dict[int, float]:
    return {place: one + others[place] for place, one in some.items() if place in others}


def holds(text: str, meant: Sequence[str]) -> bool:
    """Whether a text has every piece."""
    folded = fold_text(text)
    return all(piece in folded for piece in meant)


Maker = Callable[[Words, str, random.Random], tuple[str, Sequence[str]] | None]
"""Makes a query from a passage: the text, and the pieces of the passage that were meant."""


def asked(words: Words, maker: Maker, number: int, seed: int) -> list[Asked]:
    """So many queries of a class; fewer where passages do not give them."""
    chance = random.Random(seed)
    found: list[Asked] = []
    places = iter(_places(len(words.passages), chance))
    for place in places:
        if made := maker(words, words.passages[place], chance):
            found.append(Asked(made[0], place, tuple(made[1])))
        if len(found) == number:
            break
    return found


def _places(number: int, chance: random.Random) -> Iterator[int]:
    for _ in range(min(number * 4, 400_000)):
        yield chance.randrange(number)


def damaged(word: str, edits: int, chance: random.Random) -> str:
    """The word with so many mistakes in different places: a letter left out, added, changed, or two swapped."""
    places = sorted(chance.sample(range(len(word) - 1), edits), reverse=True)
    if edits == 2 and places[0] - places[1] < 2:
        return damaged(word, edits, chance)
    for at in places:
        letter = chance.choice(string.ascii_lowercase)
        word = chance.choice(
            [
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at:],
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            ]
        )
    return word


def _rare(words: Words, known: Sequence[str]) -> list[str]:
    """Those that are in few passages; where none is, as in a small vocabulary, the one in the fewest."""
    return [word for word in known if words.count(word) <= RARE] or sorted(known, key=words.count)[:1]


def misspelt(count: int, edits: int, least: int) -> Maker:
    """Words of a passage, each with so many mistakes; the rarest is rare enough where any is."""

    def make(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
        known = words.spelt(text, least)
        rare = _rare(words, known)
        others = [word for word in known if word not in rare[:1]]
        if not rare or len(others) < count - 1:
            return None
        chosen = sorted([rare[0], *chance.sample(others, count - 1)], key=known.index)
        typed = [damaged(word, edits, chance) for word in chosen]
        return None if any(one in words.places for one in typed) else (" ".join(typed), chosen)

    return make


def in_other_order(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """Three words as they are, not in their order."""
    known = words.spelt(text, 4)
    if len(known) < 4:
        return None
    rare = _rare(words, known)[0]
    chosen = [rare, *chance.sample([word for word in known if word != rare], 2)]
    return " ".join(sorted(chosen, key=known.index, reverse=True)), chosen


def other_endings(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """Two words of a passage with endings that it does not have."""
    known = [word for word in words.spelt(text, 4) if stem(f"{word}s") == stem(word)]
    rare = [word for word in _rare(words, known) if f"{word}s" not in text.lower()]
    others = [word for word in known if word not in rare[:1] and f"{word}s" not in text.lower()]
    if not rare or not others:
        return None
    chosen = sorted([rare[0], chance.choice(others)], key=known.index)
    return " ".join(f"{word}s" for word in chosen), chosen


def phrase(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """Two words that follow each other."""
    folded = fold_text(text)
    pairs = [found.group() for found in re.finditer(r"(?<!\w)[a-z]{3,} [a-z]{4,}(?!\w)", folded)]
    rare = [one for one in pairs if min(map(words.count, one.split())) <= RARE] or pairs
    return _with_meaning(chance.choice(rare)) if rare else None


def fragment(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """Four to six letters within a word, and not at its beginning."""
    rare = _rare(words, words.spelt(text, 8))
    if not rare:
        return None
    word, size = chance.choice(rare), chance.randint(4, 6)
    at = chance.randint(1, len(word) - size)
    return _with_meaning(word[at : at + size])


def identifier(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """A part of a name in a program, from the middle of one of its words to the middle of another."""
    names = [found.group() for found in _NAME.finditer(text) if len(found.group()) >= 10]
    if not names:
        return None
    name = chance.choice(names)
    return _with_meaning(name[1 : len(name) - 1].casefold())


def _with_meaning(text: str) -> tuple[str, Sequence[str]]:
    return text, (text,)


def characters(count: int, *, wrong: bool = False) -> Maker:
    """So many Chinese or Japanese characters that follow each other; `wrong`: one of them is another."""

    def make(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
        runs = [run for run in _CJK.findall(fold_text(text)) if len(run) >= count]
        if not runs:
            return None
        run: str = chance.choice(runs)
        at = chance.randint(0, len(run) - count)
        found = run[at : at + count]
        if not wrong:
            return _with_meaning(found)
        place = chance.randrange(count)
        return found[:place] + ("龘" if found[place] != "龘" else "一") + found[place + 1 :], (found,)

    return make


def without_accents(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """A word with accents, typed without them."""
    known = [
        word for word in tokens(fold_text(text)) if not is_run(word) and strip_accents(word).isascii() != word.isascii()
    ]
    rare = _rare(words, [word for word in known if len(word) >= 4 and word.isalpha()])
    if not rare:
        return None
    word = chance.choice(rare)
    return strip_accents(word), (word,)


def with_accents(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """A word without accents, typed with two."""
    rare = _rare(words, [word for word in words.spelt(text, 6) if len(re.findall("[aeou]", word)) >= 2])
    if not rare:
        return None
    word = chance.choice(rare)
    accents = {"a": "á", "e": "é", "o": "ö", "u": "ü"}
    return re.sub("[aeou]", lambda found: accents[found.group()], word, count=2), (word,)


def long_word(edits: int) -> Maker:
    """A word of more than 20 letters, with so many mistakes."""

    def make(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
        known = words.spelt(text, 21)
        return (damaged(word := chance.choice(known), edits, chance), [word]) if known else None

    return make


def one_word(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """A word as it is."""
    known = words.spelt(text, 3)
    return _with_meaning(chance.choice(known)) if known else None


def frequent_word(words: Words, text: str, chance: random.Random) -> tuple[str, Sequence[str]] | None:
    """The word of the passage that is in the most passages."""
    known = words.spelt(text, 3)
    return _with_meaning(max(known, key=words.count)) if known else None


def nowhere(words: Words, number: int, count: int, seed: int) -> list[Asked]:
    """Words that look like words and are on no passage."""
    chance = random.Random(seed)
    found: list[Asked] = []
    while len(found) < number:
        made = ["".join(chance.choices(_SYLLABLES, k=chance.randint(3, 5))) for _ in range(count)]
        if not any(word in words.places for word in made):
            found.append(Asked(" ".join(made), None))
    return found


CLASSES: dict[str, Maker] = {
    "a word": one_word,
    "a frequent word": frequent_word,
    "phrase of two words": phrase,
    "fragment within a word": fragment,
    "part of an identifier": identifier,
    "2 Chinese characters": characters(2),
    "4 Chinese characters": characters(4),
    "6 Chinese characters, 1 wrong": characters(6, wrong=True),
    "3 words in another order": in_other_order,
    "2 words with other endings": other_endings,
    "1 word, 1 edit": misspelt(1, 1, 5),
    "2 words, 1 edit each": misspelt(2, 1, 5),
    "3 words, 1 edit each": misspelt(3, 1, 5),
    "1 word, 2 edits": misspelt(1, 2, 8),
    "2 words, 2 edits each": misspelt(2, 2, 8),
    "1 word of more than 20 letters, 1 edit": long_word(1),
    "1 word of more than 20 letters, 2 edits": long_word(2),
    "accents left out": without_accents,
    "accents added": with_accents,
}
"""What is asked, by name; exact ones first."""
