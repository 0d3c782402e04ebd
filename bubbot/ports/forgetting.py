"""A person who is to be forgotten, and how a feature keeps on its tapes what has to stay without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from functools import cache
from typing import TypeAlias

from msgspec import Struct

from bubbot.tape.entry import TapeEntry

PEOPLE_TAPE = "bubbot/people"
"""The system's tape about people: who is to be forgotten, by the entries that name them."""
MIN_SEARCHED_DIGITS = 7
"""The least digits of an id that is looked for without its channel: a shorter number may be any number."""
MIN_SEARCHED_NAME = 3
"""The least characters of a name that is looked for in texts."""


class ForgottenPerson(Struct, frozen=True):
    """A person who is to be forgotten.

    Attributes:
        accounts: the linked accounts, as channel and id.
        chats: the sessions of the direct chats, without threads.
        names: the names that platforms showed.
    """

    accounts: tuple[tuple[str, str], ...]
    chats: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def has_account(self, channel: str, number: str) -> bool:
        """Return true if an account is one of theirs; an empty channel is any."""
        return any(number == each[1] and channel in ("", each[0]) for each in self.accounts)

    def has_chat(self, session: str) -> bool:
        """Return true if a session is a direct chat of theirs, or a thread of one."""
        return ":".join(session.split(":", 2)[:2]) in self.chats

    def is_identified_in(self, text: str) -> bool:
        """Return true if a text holds an account or a direct chat of theirs."""
        words, pattern = _identity(self.accounts, self.chats)
        # Most texts hold none of them, and a search for an expression takes long.
        return any(word in text for word in words) and pattern.search(text) is not None

    def is_named_in(self, text: str) -> bool:
        """Return true if a text holds one of their names as a word, in any case."""
        words, pattern = _names(self.names)
        if text.isascii():
            lower = text.lower()
            if not any(word in lower for word in words):
                return False
        return bool(words) and pattern.search(text) is not None


@cache
def _identity(accounts: tuple[tuple[str, str], ...], chats: tuple[str, ...]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the texts that identify somebody, and an expression for one of them as a whole."""
    whole = dict.fromkeys([*(":".join(account) for account in accounts), *chats])
    numbers = dict.fromkeys(number for _, number in accounts if len(number.lstrip("-")) >= MIN_SEARCHED_DIGITS)
    words = [rf"(?<![\w:-]){re.escape(text)}(?!\w)" for text in whole]
    words += [rf"(?<![0-9]){re.escape(number)}(?![0-9])" for number in numbers]
    return (*whole, *numbers), re.compile("|".join(words))


@cache
def _names(names: tuple[str, ...]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the names in lower case, and an expression for one of them as a word, in any case."""
    long = [name for name in names if len(name) >= MIN_SEARCHED_NAME]
    words = [rf"(?<!\w){re.escape(name)}(?!\w)" for name in long]
    return tuple(name.lower() for name in long), re.compile("|".join(words), re.IGNORECASE)


class Restatement(Struct, frozen=True):
    """What a tape needs beyond the erasure of the entries that name a person.

    Attributes:
        erased: further entries to erase.
        added: entries to append, which say again without the person what has to stay.
        words: texts of the person that are found here; copies of them go, too.
    """

    erased: frozenset[int] = frozenset()
    added: tuple[TapeEntry, ...] = ()
    words: tuple[str, ...] = ()


RestateTape: TypeAlias = Callable[[str, Sequence[TapeEntry], ForgottenPerson, Set[int]], Restatement]
"""Say what a tape needs: its name, its entries that are not erased yet, the person, and the ids that will be erased.

Of the tape of a chat it is asked only if something is erased there.
"""
