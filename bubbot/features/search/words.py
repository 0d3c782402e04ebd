"""Which entries hold each of some words: what evidence for a message is chosen by."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import datetime

from bubbot.features.search.view import BOOKKEEPING_EVENTS, SearchView
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers, read_together

WordsSteps = Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, slots=True)
class WordsView:
    """The newest entries that hold each word, as it is written; if none does, in another spelling.

    A search of its own for each word would read the same things again for each: here all words are read in a few steps.

    Attributes:
        words: what to look for.
        kinds: of the entries.
        until: the newest date.
        limit: entries of each word at most.
    """

    words: tuple[str, ...]
    kinds: tuple[str, ...]
    until: datetime | None
    limit: int

    def steps(self, tape: str) -> WordsSteps:
        """Return the ids for each word, newest first; see `StepwiseView.steps`."""
        newest = TapeQuery(tape, kinds=self.kinds, until=self.until, newest=True, limit=self.limit)
        events, *answers = yield (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(CORRECTION,)),
            *[replace(newest, searchable_text=word) for word in self.words],
        )
        hidden = Corrections.of(events).hidden
        found = [
            tuple([entry.id for entry in answer if entry.id not in hidden and entry.name not in BOOKKEEPING_EVENTS])
            for answer in answers
        ]
        missing = [place for place, answer in enumerate(answers) if not answer]
        searches = [SearchView(self.words[place], self.kinds, until=self.until, limit=self.limit) for place in missing]
        results = yield from read_together([search.steps(tape) for search in searches])
        for place, result in zip(missing, results, strict=True):
            found[place] = tuple([hit.id for hit in result.hits])
        return tuple(found)
