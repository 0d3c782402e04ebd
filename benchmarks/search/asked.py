"""Queries by class, each made from a passage that should be found."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bubbot.tape.query import fold_text
from bubbot.tape.words import is_run, strip_accents, tokens

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
    """A query, and the place of the passage that it should find; None where it should find nothing."""

    text: str
    place: int | None


@dataclass(frozen=True, slots=True)
class Words:
    """What the queries are made from: the passages, and in how many of them each word is."""

    passages: Sequence[str]
    counts: Counter[str]

    @classmethod
    def of(cls, passages: Sequence[str]) -> Words:
        counts: Counter[str] = Counter()
        for text in passages:
            counts.update(tokens(fold_text(text)).keys())
        return cls(passages, counts)

    def spelt(self, text: str, least: int) -> list[str]:
        """The words of a passage that are of letters a to z, in order."""
        return [word for word in tokens(fold_text(text)) if len(word) >= least and _WORD.fullmatch(word)]


Maker = Callable[[Words, str, random.Random], str | None]


def asked(words: Words, maker: Maker, number: int, seed: int) -> list[Asked]:
    """So many queries of a class; fewer where passages do not give them."""
    chance = random.Random(seed)
    found: list[Asked] = []
    places = iter(_places(len(words.passages), chance))
    for place in places:
        text = maker(words, words.passages[place], chance)
        if text:
            found.append(Asked(text, place))
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


def misspelt(count: int, edits: int, least: int) -> Maker:
    """Words of a passage, each with so many mistakes; the rarest is rare enough."""

    def make(words: Words, text: str, chance: random.Random) -> str | None:
        known = words.spelt(text, least)
        rare = [word for word in known if words.counts[word] <= RARE]
        others = [word for word in known if word not in rare[:1]]
        if not rare or len(others) < count - 1:
            return None
        chosen = [rare[0], *chance.sample(others, count - 1)]
        typed = [damaged(word, edits, chance) for word in sorted(chosen, key=known.index)]
        return None if any(one in chosen for one in typed) else " ".join(typed)

    return make


def in_other_order(words: Words, text: str, chance: random.Random) -> str | None:
    """Three words as they are, not in their order."""
    known = words.spelt(text, 4)
    rare = [word for word in known if words.counts[word] <= RARE]
    if not rare or len(known) < 4:
        return None
    chosen = [rare[0], *chance.sample([word for word in known if word != rare[0]], 2)]
    return " ".join(sorted(chosen, key=known.index, reverse=True))


def phrase(words: Words, text: str, chance: random.Random) -> str | None:
    """Two words that follow each other."""
    folded = fold_text(text)
    pairs = [found.group() for found in re.finditer(r"(?<!\w)[a-z]{3,} [a-z]{4,}(?!\w)", folded)]
    rare = [one for one in pairs if min(words.counts[word] for word in one.split()) <= RARE]
    return chance.choice(rare) if rare else None


def fragment(words: Words, text: str, chance: random.Random) -> str | None:
    """Four to six letters within a word, and not at its beginning."""
    rare = [word for word in words.spelt(text, 8) if words.counts[word] <= RARE]
    if not rare:
        return None
    word, size = chance.choice(rare), chance.randint(4, 6)
    at = chance.randint(1, len(word) - size)
    return word[at : at + size]


def identifier(words: Words, text: str, chance: random.Random) -> str | None:
    """A part of a name in a program, from the middle of one of its words to the middle of another."""
    names = [found.group() for found in _NAME.finditer(text) if len(found.group()) >= 10]
    if not names:
        return None
    name = chance.choice(names)
    return name[1 : len(name) - 1].casefold()


def characters(count: int, *, wrong: bool = False) -> Maker:
    """So many Chinese or Japanese characters that follow each other; `wrong`: one of them is another."""

    def make(words: Words, text: str, chance: random.Random) -> str | None:
        runs = [run for run in _CJK.findall(fold_text(text)) if len(run) >= count]
        if not runs:
            return None
        run: str = chance.choice(runs)
        at = chance.randint(0, len(run) - count)
        found = run[at : at + count]
        if not wrong:
            return found
        place = chance.randrange(count)
        return found[:place] + ("龘" if found[place] != "龘" else "一") + found[place + 1 :]

    return make


def without_accents(words: Words, text: str, chance: random.Random) -> str | None:
    """A word with accents, typed without them."""
    known = [
        word for word in tokens(fold_text(text)) if not is_run(word) and strip_accents(word).isascii() != word.isascii()
    ]
    rare = [word for word in known if len(word) >= 4 and words.counts[word] <= RARE and word.isalpha()]
    return strip_accents(chance.choice(rare)) if rare else None


def with_accents(words: Words, text: str, chance: random.Random) -> str | None:
    """A word without accents, typed with two."""
    rare = [
        word for word in words.spelt(text, 6) if words.counts[word] <= RARE and len(re.findall("[aeou]", word)) >= 2
    ]
    if not rare:
        return None
    return re.sub(
        "[aeou]", lambda found: {"a": "á", "e": "é", "o": "ö", "u": "ü"}[found.group()], chance.choice(rare), count=2
    )


def nowhere(words: Words, number: int, count: int, seed: int) -> list[Asked]:
    """Words that look like words and are on no passage."""
    chance = random.Random(seed)
    found: list[Asked] = []
    while len(found) < number:
        made = ["".join(chance.choices(_SYLLABLES, k=chance.randint(3, 5))) for _ in range(count)]
        if not any(word in words.counts for word in made):
            found.append(Asked(" ".join(made), None))
    return found


def held_out(words: Words, number: int, count: int, seed: int) -> tuple[list[Asked], set[int]]:
    """Real words, and the places of the passages that have to be left out for them to be nowhere."""
    chance = random.Random(seed)
    rare = sorted(
        word for word, times in words.counts.items() if times <= 3 and len(word) >= 6 and _WORD.fullmatch(word)
    )
    chosen = set(chance.sample(rare, min(number * count, len(rare))))
    places = {place for place, text in enumerate(words.passages) if not chosen.isdisjoint(tokens(fold_text(text)))}
    ordered = sorted(chosen)
    chance.shuffle(ordered)
    asked_for = [Asked(" ".join(ordered[at : at + count]), None) for at in range(0, len(ordered) - count + 1, count)]
    return asked_for, places


CLASSES: dict[str, Maker] = {
    "phrase of two words": phrase,
    "fragment within a word": fragment,
    "part of an identifier": identifier,
    "2 Chinese characters": characters(2),
    "4 Chinese characters": characters(4),
    "6 Chinese characters, 1 wrong": characters(6, wrong=True),
    "3 words in another order": in_other_order,
    "1 word, 1 edit": misspelt(1, 1, 5),
    "2 words, 1 edit each": misspelt(2, 1, 5),
    "3 words, 1 edit each": misspelt(3, 1, 5),
    "1 word, 2 edits": misspelt(1, 2, 8),
    "2 words, 2 edits each": misspelt(2, 2, 8),
    "accents left out": without_accents,
    "accents added": with_accents,
}
"""What is asked, by name; exact ones first."""
