"""Tapes with canaries: what a program may be shown says `pine`, and nothing else may ever reach it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bubbot.features.memory.views import DailyNote, MemorySnapshot
from bubbot.features.memory.zone import build_version
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message, tool_call, tool_result
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch

GRANTED, ALSO_GRANTED, REFUSED, ARCHIVED = "telegram:1", "telegram:2", "telegram:9", "telegram:8"
CANARY = "canary"
"""The beginning of all words that no program may be shown."""
DATE = "2026-11-21T20:21:00+00:00"
ANN = {"id": "1", "name": "Ann"}


def granted_batches(workspace: str) -> list[Batch]:
    """Return tapes of two granted chats and of others, which quote and name each other in every way there is."""
    own, also, other = (session_tape(workspace, each) for each in (GRANTED, ALSO_GRANTED, REFUSED))
    copied: dict[str, Any] = {"sources": [[other, [[2, 2]]]]}
    entries = [
        _start(GRANTED),  # 1
        event("turn/start", {"attempt": 1, "session": GRANTED, "inbounds": []}, turn="a1b2c3d4"),
        message("user", "the pine is green", sender=ANN, turn="a1b2c3d4"),  # 3
        tool_call([_call("c1", "chat_read", "{}")], turn="a1b2c3d4"),
        tool_result([{"tool_call_id": "c1", "content": "canary-result"}], turn="a1b2c3d4", **copied),
        event(
            "loop.step",
            {
                "step": 1,
                "status": "ok",
                "model": "canary-free/model",
                "as_of": [[1, 5]],
                "shown": [[1, 5], [other, [[2, 2]]]],
                "foreign": {"people": [[own, 3], [other, 2]]},
                "request": "0" * 64,
            },
            turn="a1b2c3d4",
        ),
        message("assistant", "canary-answer: the oak elsewhere, and a pine", turn="a1b2c3d4", **copied),  # 7
        event("turn/end", {"status": "answered"}, turn="a1b2c3d4"),
        anchor("phase/two", {"summary": "canary-summary", "source_ids": [[other, 2]], "parents": [[other, 1]]}),  # 9
        anchor("phase/three", {"summary": "canary-of-own", "next_steps": ["canary-step"], "source_ids": [7]}),  # 10
        anchor(
            "phase/four",
            {"summary": "the pine stands", "next_steps": ["plant a pine"], "source_ids": [3], "phase": "x"},
        ),
        anchor(
            "topic/trip",
            {"title": "Trip", "summary": "canary-topic", "source_ids": [[other, 2]], "bound_to": REFUSED},
        ),
        message("user", "canary-deleted pine", sender=ANN),  # 13
        event("correction", {"corrects": 13, "hide": True}),
        message("assistant", "canary-subtask pine", fork="f1"),
        message("user", "canary-outside pine", context=False),
        event("command", {"name": "chat.read", "text": ",chat.read", "output": "canary-command pine"}),
        event("judge/label", {"entry": 3, "label": "canary-label pine"}),
        *_memory("the pine of memory", ("2026-11-20", "a pine note")),
        message("user", "older pine, corrected", sender=ANN),
        message("assistant", "the last pine"),
    ]
    also_entries = [
        _start(ALSO_GRANTED),
        message("user", "a pine in the second chat", sender=ANN),
        message("assistant", "canary-copy of a copy, pine", sources=[[own, [[7, 7]]]]),
        message("assistant", "a copy of a pine", sources=[[own, [[3, 3]]]]),
        anchor("phase/copy", {"summary": "canary-anchor-copy", "source_ids": [[own, 10]]}),
    ]
    refused = [
        _start(REFUSED),
        message("user", "canary-secret pine oak", sender={"id": "9", "name": "canary-name"}),
        anchor("topic/canary-trip", {"title": "canary title", "summary": "canary-other-summary"}),
        *_memory("canary-memory pine", ("2026-11-20", "canary-note")),
    ]
    zone = event("memory/kept", {"text": "canary-person pine"})
    return [
        Batch(other, _dated(refused)),
        Batch(own, _dated(entries)),
        Batch(also, _dated(also_entries)),
        Batch(f"{own}x", _dated([message("user", "canary-neighbour pine")])),
        Batch("bubbot/memory/telegram/1", _dated([zone])),
        Batch("bubbot/inbox/telegram", _dated([event("inbox/accepted", {"text": "canary-inbox pine"})])),
    ]


def _start(session: str) -> TapeEntry:
    return anchor("session/start", {"owner": "human"}, meta={"session": session})


def _call(number: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def _memory(long_term: str, note: tuple[str, str]) -> Sequence[TapeEntry]:
    return build_version(MemorySnapshot(1, long_term, DATE, (DailyNote(*note, DATE),)))


def _dated(entries: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
    return tuple([TapeEntry(each.kind, each.payload, each.meta, DATE, each.key) for each in entries])
