"""What stands on the tapes of the benchmarks: turns of eight entries, about 2.6 kB of JSON, the same in every run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any

from bubbot.tape import entry as make
from bubbot.tape.anchor import MEMORY_OPEN, MEMORY_SEAL, SESSION_START, anchor
from bubbot.tape.entry import TapeEntry, encode

DATE = "2026-11-21T20:21:00.000000+00:00"
TURNS_A_WINDOW = 10
"""Turns between two anchors that open a window."""
WINDOW = 50
"""Entries of the window of which context is built."""
TOOLS = "look it up"
"""What a message says for which the model calls two tools before it answers."""

_SYLLABLES = ("ka", "ne", "ro", "til", "mor", "se", "vu", "lan", "dri", "po", "gar", "fen", "qui", "sa", "thol", "by")
_SIGNS = "花园篱笆天气早上下午朋友电话火车时间地方东西问题工作学校老师学生"


@cache
def _vocabulary() -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The words, and the sums of their weights."""
    known = tuple(map(_word, range(20_000)))
    return known, tuple(accumulate(1 / (rank + 3) for rank in range(len(known))))


def _word(number: int) -> str:
    """Different numbers give different words."""
    parts, left = [], number
    for _ in range(4):
        parts.append(_SYLLABLES[left % len(_SYLLABLES)])
        left //= len(_SYLLABLES)
    return "".join(parts[: 2 + number % 3] if number < 256 else parts)


class Words:
    """Texts out of 20,000 words, of which few are frequent and most are rare, as in a language."""

    def __init__(self, seed: int = 7) -> None:
        self._random = Random(seed)
        self.known, self._weights = _vocabulary()

    def text(self, words: int) -> str:
        """So many words."""
        return " ".join(self._random.choices(self.known, cum_weights=self._weights, k=words))

    def signs(self, count: int) -> str:
        """So many Chinese characters."""
        return "".join(self._random.choices(_SIGNS, k=count))

    def turn(self, number: int) -> list[TapeEntry]:
        """The eight entries of a turn."""
        meta = {"turn": f"{number:032x}", "origin": "human"}
        said = self.signs(24) if number % 16 == 3 else self.text(28)
        calls = [self._call(number, place, meta) for place in (1, 2)]
        usage = {"input_tokens": 1850, "output_tokens": 96, "cached_tokens": 0, "cost": None}
        step = {"step": 3, "model": "scripted", "head": 8 * number, "status": "ok", "usage": usage, "finish": "stop"}
        return [
            TapeEntry("message", {"role": "user", "content": said}, {**meta, "sender": {"id": "1", "name": "Ann"}}, DATE),
            TapeEntry("event", {"name": "turn/start", "data": {"inbox": "bubbot/inbox/direct", "ids": [number]}}, meta, DATE),
            *[entry for pair in calls for entry in pair],
            TapeEntry("message", {"role": "assistant", "content": self.text(40)}, {**meta, "model": "scripted"}, DATE),
            TapeEntry("event", {"name": "loop.step", "data": {**step, "request": f"{number:064x}"}}, meta, DATE),
        ]  # fmt: skip

    def _call(self, number: int, place: int, meta: Mapping[str, Any]) -> tuple[TapeEntry, TapeEntry]:
        name, call = "memory_recall", f"call_{number}_{place}"
        asked = {
            "id": call,
            "type": "function",
            "function": {"name": name, "arguments": f'{{"query":"{self.text(2)}"}}'},
        }
        return (
            TapeEntry("tool_call", {"calls": [asked]}, meta, DATE),
            TapeEntry("tool_result", {"results": [{"tool_call_id": call, "content": self.text(36)}]}, meta, DATE),
        )


def tape(entries: int, words: Words) -> Iterator[TapeEntry]:
    """A whole tape: its beginning with the only memory there is, then turns, and a new window every tenth one."""
    yield from (entry for entry, _ in zip(_endless(words), range(entries), strict=False))


def _endless(words: Words) -> Iterator[TapeEntry]:
    yield anchor(SESSION_START, {"owner": "human"}).with_meta({}, DATE)
    yield anchor(MEMORY_OPEN, {"version": 1}, window=False).with_meta({}, DATE)
    yield make.event("memory.long_term", {"content": words.text(60), "updated_at": DATE}).with_meta({}, DATE)
    yield anchor(MEMORY_SEAL, {"version": 1}, window=False).with_meta({}, DATE)
    number = 0
    while True:
        number += 1
        yield from words.turn(number)
        if number % TURNS_A_WINDOW == 0:
            yield anchor("phase/next", {"summary": words.text(12)}).with_meta({}, DATE)


def line(entry: TapeEntry) -> bytes:
    """An entry as a line of JSON."""
    data = {"id": entry.id, "kind": entry.kind, "payload": entry.payload, "meta": entry.meta, "date": entry.date}
    return f"{encode(data)}\n".encode()


def script() -> Mapping[str, Any]:
    """That of a model which answers at once, and calls two tools first where it is asked to."""
    calls = [
        {"calls": [{"name": "memory_recall", "arguments": {"query": "garden"}}]},
        {"calls": [{"name": "tape_info", "arguments": {}}]},
    ]
    answer = {"text": "Things stand well with the garden, and the fence will be mended by the end of the week."}
    return {"rules": [{"when": TOOLS, "steps": [*calls, answer]}], "default": [answer]}


def size_of(turn: list[TapeEntry]) -> int:
    """Bytes of JSON."""
    return sum(len(json.dumps(json.loads(line(entry)), ensure_ascii=False).encode()) for entry in turn)
