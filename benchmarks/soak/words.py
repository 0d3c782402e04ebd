"""What people say in a soak and what they have to hear: every text can be told from every other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

SAID = re.compile(r"message (\d+)\.(\d+)\b")
ANSWERED = "answer to <{text}>"
"""What the scripted model answers; `{text}` is the message."""
HANDOFF = r"message \d+\.\d*9:"
"""Every tenth message; there the model opens a new window, so that windows do not grow without end."""


def script(**more: object) -> Mapping[str, Any]:
    """That of a model that says what it was asked; `more` is for each of its steps."""
    call = {"name": "tape_handoff", "arguments": {"name": "phase/next", "summary": "The garden and the fence."}}
    answer = {"text": ANSWERED, **more}
    return {"rules": [{"when": HANDOFF, "steps": [{"calls": [call], **more}, answer]}], "default": [answer]}


def message(chat: int, number: int) -> str:
    """The message with this number in a chat; both from 0."""
    return f"message {chat}.{number}: how do things stand with the garden, and is there news of the fence?"


def answer(chat: int, number: int) -> str:
    """The whole answer to it."""
    return ANSWERED.replace("{text}", message(chat, number))


def named(text: str) -> list[tuple[int, int]]:
    """The messages that a text names, as (chat, number)."""
    return [(int(chat), int(number)) for chat, number in SAID.findall(text)]


def faults(place: str, chat: int, said: int, heard: Sequence[str]) -> list[str]:
    """What is wrong in a chat where `said` messages were said and the bot has written `heard`, in this order.

    Each message needs its own answer: one, whole, at its place.
    """
    if list(heard) == [answer(chat, number) for number in range(said)]:
        return []
    found, where = [], f"{place} chat {chat}"
    numbers = [_number(chat, said, text) for text in heard]
    found += [
        f"{where}: {text[:80]!r} is no answer to a message of it"
        for text, number in zip(heard, numbers, strict=True)
        if number is None
    ]
    known = [number for number in numbers if number is not None]
    found += _counted(where, said, known)
    first = list(dict.fromkeys(known))
    found += [
        f"{where}: the answer to message {later} stands before that to message {earlier}"
        for later, earlier in pairwise(first)
        if earlier < later
    ]
    return found


def faults_of_joined(place: str, chat: int, said: int, heard: Sequence[str]) -> list[str]:
    """The same where one answer may be to several messages: each is named once, in their order."""
    pairs = [pair for text in heard for pair in named(text)]
    where = f"{place} chat {chat}"
    found = [f"{where}: an answer names message {number} of chat {other}" for other, number in pairs if other != chat]
    known = [number for other, number in pairs if other == chat]
    found += _counted(where, said, known)
    if not found and known != sorted(known):
        found.append(f"{where}: the answers come in the order {known}")
    return found


OUTAGE_NOTICE = "No answer comes from "


def is_failure(text: str) -> bool:
    """Return true if the bot says that it could not answer: only such sentences name a trace."""
    return "(trace " in text


def faults_of_failing(place: str, chat: int, said: int, heard: Sequence[str]) -> list[str]:
    """The same if the model fails now and then: each message has its answer, or one sentence that says so.

    Beside these, the owner of a bot whose model refuses calls is told of that.
    """
    where, heard = f"{place} chat {chat}", [text for text in heard if not text.startswith(OUTAGE_NOTICE)]
    if len(heard) != said:
        return [f"{where}: {said} messages have {len(heard)} answers"]
    return [
        f"{where}: {text[:80]!r} is no answer to message {number}"
        for number, text in enumerate(heard)
        if text != answer(chat, number) and not (is_failure(text) and not named(text))
    ]


def _number(chat: int, said: int, text: str) -> int | None:
    """The message that a text is the whole answer to."""
    own = (number for one, number in named(text) if one == chat and number < said)
    return next((number for number in own if text == answer(chat, number)), None)


def _counted(where: str, said: int, known: Iterable[int]) -> list[str]:
    times = Counter(known)
    missing = [f"{where}: message {number} has no answer" for number in range(said) if not times[number]]
    doubled = [f"{where}: message {number} has {count} answers" for number, count in times.items() if count > 1]
    return missing + doubled
