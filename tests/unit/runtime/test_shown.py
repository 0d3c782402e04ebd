"""What a step names of the foreign words that it shows."""

from __future__ import annotations

import pytest

from bubbot.runtime.shown import ForeignWords
from bubbot.tape.provenance import Source

MAX_FOREIGN = 8


@pytest.mark.parametrize("source", [Source.WORLD, Source.PEOPLE])
def test_an_entry_beyond_those_that_are_named_still_counts_if_all_of_them_are_vouched_for(source: Source) -> None:
    entries = [(("chat", number), source) for number in range(1, MAX_FOREIGN + 2)]
    words = ForeignWords().add_sources(entries)
    assert words.without("chat", range(1, MAX_FOREIGN + 1))
    assert not words.without("chat", range(1, MAX_FOREIGN + 2))
