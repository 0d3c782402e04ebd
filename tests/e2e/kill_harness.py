"""Plays the platform for a bot that is killed: delivers again what was not accepted, and then counts."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar

from bubbot.app.tapes import open_tapes
from bubbot.errors import StoreUnavailable
from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from bubbot.home import Home
from bubbot.ports.store import require_chain
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.texts import Texts
from tests.e2e import forked
from tests.e2e.bot import environment

SESSION = "stdin:default"
GAVE_UP = re.compile(re.escape(Texts().say("gave_up")) + r" \(trace [0-9a-f]{8}\)")
KILLED = -9

SCRIPT = {
    "rules": [
        {
            "when": "tool",
            "steps": [
                {"calls": [{"name": "probe_touch"}, {"name": "memory_save", "arguments": {"content": "kept"}}]},
                {"text": "answer to <{text}>"},
            ],
        }
    ],
    "default": [{"text": "answer to <{text}>"}],
}


@dataclass
class Bench:
    """A home, the messages people sent, and everything the processes printed. `features`: `none` for the kernel alone;
    `CHILD` is the function that runs the process."""

    CHILD: ClassVar[str] = "tests.e2e.kill_child:run"
    home: Path
    features: str = ""
    printed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "script.json").write_text(json.dumps(SCRIPT))

    def start(self, point: str = "", broken: str = "") -> tuple[forked.Child, BinaryIO]:
        """A bot that ends itself at the point, and its standard input; what it prints goes to a file, so that a kill
        loses nothing of it."""
        arguments = [str(self.home), str(self.home / "script.json"), point, broken, self.features]
        given, ours = os.pipe()
        try:
            with (self.home / "printed").open("ab") as out, (self.home / "errors").open("ab") as errors:
                streams = (given, out.fileno(), errors.fileno())
                child = forked.start(self.CHILD, arguments, env=environment(self.home), cwd=self.home, streams=streams)
        finally:
            os.close(given)
        return child, os.fdopen(ours, "wb")

    def run(self, messages: Sequence[str], point: str = "", broken: str = "") -> int:
        """Sends the messages and waits for the end; the exit code (-9: killed)."""
        child, given = self.start(point, broken)
        with suppress(BrokenPipeError), given:
            given.write("".join(f"{message}\n" for message in messages).encode())
        try:
            return child.wait(timeout=300)
        finally:
            child.close()

    def missing(self, messages: Sequence[str]) -> list[str]:
        """The messages the bot has not accepted: what a platform delivers again."""
        if not Home(self.home).database.exists():
            return list(messages)
        accepted = {entry.payload["data"]["text"] for entry in self.entries(inbox_tape("stdin"), "inbox/received")}
        return [message for message in messages if message not in accepted]

    def entries(self, tape: str, name: str = "") -> list[TapeEntry]:
        """What a tape holds, read beside everybody else."""
        return [entry for entry in asyncio.run(entries_of(self.home, tape)) if not name or entry.name == name]

    def faults(self, messages: Sequence[str]) -> list[str]:
        """What is lost, doubled or damaged; empty where the promises were kept."""
        given_up = self.given_up()
        kept = [message for message in messages if message not in given_up]
        return [*self._people(kept, given_up), *self._facts(messages, given_up), *asyncio.run(damage(self.home))]

    def given_up(self) -> set[str]:
        """The messages that were interrupted twice and so end, by design, with an honest failure."""
        facts = self.entries(inbox_tape("stdin"))
        cut_off = Counter(
            inbound
            for entry in facts
            if entry.name == "inbox/interrupted"
            for inbound in entry.payload["data"]["inbounds"]
        )
        return {
            entry.payload["data"]["text"]
            for entry in facts
            if entry.name == "inbox/received" and cut_off[entry.id] == 2
        }

    def _people(self, messages: Sequence[str], given_up: Collection[str]) -> list[str]:
        """What people saw: each answer once, or more often where a receipt says that it may repeat."""
        printed = Counter((self.home / "printed").read_text().splitlines())
        resumed = sum(
            "resumed" in entry.payload["data"] for entry in self.entries(outbox_tape("stdin"), "outbox/receipt")
        )
        faults = [f"{message}: no answer was printed" for message in messages if not printed[f"answer to <{message}>"]]
        doubled = sum(max(printed[f"answer to <{message}>"] - 1, 0) for message in messages)
        told = sum(count for line, count in printed.items() if GAVE_UP.fullmatch(line))
        doubled += told - len(given_up)
        faults += [
            f"{message}: answered after it was given up" for message in given_up if printed[f"answer to <{message}>"]
        ]
        faults += [f"{len(given_up)} given up, {told} told"] if doubled < 0 else []
        if doubled > resumed:
            faults.append(f"{doubled} answers were printed again, {resumed} receipts say so")
        return faults

    def _facts(self, messages: Sequence[str], given_up: Collection[str]) -> list[str]:
        """What the tapes say: accepted once, done once, one message, one answer, one intent, one receipt."""
        inbox, outbox = inbox_tape("stdin"), outbox_tape("stdin")
        received = self.entries(inbox, "inbox/received")
        ended = Counter(
            inbound for entry in self.entries(inbox, "inbox/done") for inbound in entry.payload["data"]["inbounds"]
        )
        said = [
            entry for entry in self.entries(asyncio.run(default_session_tape(self.home))) if entry.kind == "message"
        ]
        spoken = Counter((entry.payload["role"], entry.payload["content"]) for entry in said)
        faults = [f"inbound {entry.id} is done {ended[entry.id]} times" for entry in received if ended[entry.id] != 1]
        for message in messages:
            counts = {
                "accepted": sum(entry.payload["data"]["text"] == message for entry in received),
                "on the tape": spoken["user", message],
                "answered": spoken["assistant", f"answer to <{message}>"],
            }
            wanted = {"accepted": 1, "on the tape": 1, "answered": 0 if message in given_up else 1}
            faults += [f"{message}: {what} {count} times" for what, count in counts.items() if count != wanted[what]]
        intents, receipts = self.entries(outbox, "outbox/intent"), self.entries(outbox, "outbox/receipt")
        if not len(intents) == len(receipts) == len(messages):
            faults.append(f"{len(messages)} messages, {len(intents)} intents, {len(receipts)} receipts")
        return faults


async def default_session_tape(home: Path) -> str:
    async with open_tapes(Home(home)) as (_, workspace):
        return session_tape(workspace, SESSION)


async def entries_of(home: Path, tape: str) -> list[TapeEntry]:
    """What a tape holds, read beside everybody else; nothing if the bot was killed before it made its tables."""
    try:
        store = await open_readonly(Home(home).database)
    except StoreUnavailable:
        return []
    try:
        return list((await store.fetch([TapeQuery(tape)]))[0])
    finally:
        await store.aclose()


async def damage(home: Path) -> list[str]:
    """What verify finds, and forks that are open still."""
    async with open_tapes(Home(home)) as (store, _):
        audit = await require_chain(store).audit()
        forks = await store.forks()
    faults = [f"{one.tape} #{one.id} {one.problem}: {one.detail}" for one in audit.findings]
    return faults + [f"fork {one.id} is open still" for one in forks]
