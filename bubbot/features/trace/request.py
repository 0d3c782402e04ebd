"""What a model was shown in one step, and what changed since the request before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, TypeVar

from msgspec import Struct

from bubbot.errors import BubbotError, EntryNotFound
from bubbot.features.trace.entries import content_texts, pretty_arguments
from bubbot.features.trace.words import Excerpt
from bubbot.ports.model import ModelRequest, ToolSpecs
from bubbot.runtime.compose import has_request, rebuild_sent
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.turns import read_call
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, objects_of, text_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery

MESSAGE_CHARS = 2000
"""Characters of a message among others."""
SYSTEM_CHARS = 6000
PAGE_MESSAGES = 100
"""Messages of one page of a request."""
MAX_STEPS_SEARCHED = 30
"""The steps before one among which that of the same conversation is looked for."""
MAX_COMPARED = 400
"""Messages, or lines, that are compared one by one; of more, the parts between equal ends are taken as replaced."""
SHOWN_LINES = 300
LINES_AROUND = 2
"""Equal lines that stand around changed ones."""
H = TypeVar("H", bytes, str)


class ShownMessage(Struct, frozen=True):
    """A message of a request.

    Attributes:
        number: its place, from 1.
        role: who speaks.
        words: its text.
        calls: the calls it has: name and arguments.
        answers: the id of the call that it answers; empty for none.
        is_new: the request before did not have it.
    """

    number: int
    role: str
    words: Excerpt
    calls: tuple[tuple[str, Excerpt], ...]
    answers: str
    is_new: bool = False


class ChangedLine(Struct, frozen=True):
    """A line of a difference; `kept` lines stand around the others."""

    sign: Literal["added", "removed", "kept", "skipped"]
    text: str


class RequestChange(Struct, frozen=True):
    """What changed since another request.

    Attributes:
        step: the entry of that step; 0: there was none.
        kept: messages that both have.
        added: the numbers of those that only this one has.
        removed: those that only the other one had.
        system: the lines of the system prompt that changed; empty if none did.
        tools_added: names of tools.
        tools_removed: names of tools.
        problem: why the other request could not be rebuilt; empty if it could.
    """

    step: int = 0
    kept: int = 0
    added: tuple[int, ...] = ()
    removed: tuple[ShownMessage, ...] = ()
    system: tuple[ChangedLine, ...] = ()
    tools_added: tuple[str, ...] = ()
    tools_removed: tuple[str, ...] = ()
    problem: str = ""


class ShownRequest(Struct, frozen=True):
    """What a model was shown.

    Attributes:
        system: the system prompt; None: the viewer may not see it, since it shows entries of other tapes.
        messages: of the page that is asked for.
        total: all messages.
        first: the number of the first message of the page.
        tools: the names of the tools it could call.
        parameters: of the call.
        is_equal: its digest is the recorded one; false without the system prompt.
        change: what changed.
        problem: why it could not be rebuilt; empty if it could.
    """

    system: Excerpt | None = None
    messages: tuple[ShownMessage, ...] = ()
    total: int = 0
    first: int = 1
    tools: tuple[str, ...] = ()
    parameters: str = ""
    is_equal: bool = False
    change: RequestChange = RequestChange()
    problem: str = ""


class RequestReader:
    """Rebuilds the requests of steps from the tape. It keeps none: what is erased has to be gone."""

    def __init__(self, strategies: ContextStrategies) -> None:
        self._strategies = strategies

    async def read(
        self, reader: TapeBoundary, tape: TapeHandle, step: TapeEntry, first: int | None = None
    ) -> ShownRequest:
        """Read what a step was shown, from the message `first` on; None: the newest messages.

        Raises:
            EntryNotFound: the entry is no step.
        """
        if step.name != STEP_EVENT:
            raise EntryNotFound(f"the entry {step.id} is not a step")
        try:
            data = step_data(step)
            request, is_equal = await self._rebuild(reader, tape, step)
        except BubbotError as error:  # an unknown strategy, a blob that is gone, or a request that was not kept
            return ShownRequest(problem=str(error))
        total = len(request.messages)
        start = max(total - PAGE_MESSAGES, 0) if first is None else min(max(first - 1, 0), max(total - 1, 0))
        change = await self._compare(reader, tape, step, request)
        added = set(change.added)
        return ShownRequest(
            Excerpt.of(request.system, SYSTEM_CHARS) if may_see_system(reader, data) else None,
            tuple(
                describe_message(number, message, is_new=number in added)
                for number, message in enumerate(request.messages[start : start + PAGE_MESSAGES], start + 1)
            ),
            total,
            start + 1,
            _tool_names(request),
            canonical(request.parameters) if request.parameters else "",
            is_equal,
            change,
        )

    async def read_part(self, reader: TapeBoundary, tape: TapeHandle, step: TapeEntry, part: str) -> str:
        """Return one part of a request whole: `system`, `tools`, or a message by its number. Raise `EntryNotFound`."""
        request, _ = await self._rebuild(reader, tape, step)
        if part == "system" and may_see_system(reader, step_data(step)):
            return request.system
        if part == "tools":
            return ToolSpecs.of(request.tools).encoded.decode()
        if part.isascii() and part.isdigit() and len(part) < 10 and 1 <= int(part) <= len(request.messages):
            return _message_text(request.messages[int(part) - 1])
        raise EntryNotFound(f"the request has no part {part!r}")

    async def _rebuild(self, reader: TapeBoundary, tape: TapeHandle, step: TapeEntry) -> tuple[ModelRequest, bool]:
        data = step_data(step)
        hides_prompt = not may_see_system(reader, data)
        rebuilt = await rebuild_sent(data, tape, strategies=self._strategies, hides_prompt=hides_prompt)
        return rebuilt.sent, rebuilt.is_equal

    async def _compare(
        self, reader: TapeBoundary, tape: TapeHandle, step: TapeEntry, request: ModelRequest
    ) -> RequestChange:
        before = await find_step_before(tape, step)
        if before is None:
            return RequestChange(added=tuple(range(1, len(request.messages) + 1)))
        try:
            other, _ = await self._rebuild(reader, tape, before)
        except BubbotError as error:
            return RequestChange(before.id, problem=str(error))
        kept, added, removed = compare_texts(_message_keys(other), _message_keys(request))
        may_see = may_see_system(reader, step_data(step)) and may_see_system(reader, step_data(before))
        old, new = _tool_names(other), _tool_names(request)
        return RequestChange(
            before.id,
            kept,
            tuple(added),
            tuple(describe_message(number, other.messages[number - 1]) for number in removed[:PAGE_MESSAGES]),
            tuple(compare_lines(other.system, request.system)) if may_see else (),
            tuple(name for name in new if name not in old),
            tuple(name for name in old if name not in new),
        )


def step_data(step: TapeEntry) -> JsonObject:
    """Return the data of a step. Raise `EntryNotFound` if its request is not on the tape."""
    if not has_request(step.data):
        raise EntryNotFound(f"the request of the step {step.id} was not kept")
    return step.data


def may_see_system(reader: TapeBoundary, step: JsonObject) -> bool:
    """Return true if the viewer may see every tape of which the system prompt of a step shows entries.

    The memory of people and of workspaces stands there, which no grant of a session covers.
    """
    if not isinstance(shown := step.get("shown", ()), Sequence):
        return reader.viewer.sees_all
    pairs = [each for each in shown if isinstance(each, Sequence) and each and isinstance(each[0], str)]
    return reader.viewer.sees_all or all(reader.may_read(pair[0]) for pair in pairs)


def may_open_blobs(reader: TapeBoundary, entry: TapeEntry) -> bool:
    """Return false for the blobs of requests, if a viewer sees some tapes only: `may_see_system` decides on these."""
    is_request = entry.kind == Kind.SYSTEM or entry.name == STEP_EVENT
    return not entry.erased and (reader.viewer.sees_all or not is_request)


async def find_step_before(tape: TapeHandle, step: TapeEntry) -> TapeEntry | None:
    """Find the step before one, of the same conversation: the turn's own, or that of the same sub-task."""
    query = TapeQuery(
        tape.name,
        IdRanges(((1, step.id - 1),)),
        kinds=(Kind.EVENT,),
        names=(STEP_EVENT,),
        newest=True,
        limit=MAX_STEPS_SEARCHED,
    )
    fork = step.meta.get("fork", "")
    is_purpose = "messages" in step_data(step)
    for entry in (await tape.fetch([query]))[0]:
        is_same = entry.meta.get("fork", "") == fork and ("messages" in entry.data) == is_purpose
        if is_same and has_request(entry.data):
            return entry
    return None


def describe_message(number: int, message: JsonObject, *, is_new: bool = False) -> ShownMessage:
    """Describe a message of a request."""
    calls = tuple(
        (call.name, Excerpt.of(pretty_arguments(call.arguments), MESSAGE_CHARS))
        for call in map(read_call, objects_of(message.get("tool_calls")))
    )
    words = Excerpt.of("\n".join(_content_lines(message)), MESSAGE_CHARS)
    return ShownMessage(number, text_field(message, "role"), words, calls, text_field(message, "tool_call_id"), is_new)


def _content_lines(message: JsonObject) -> Iterator[str]:
    for label, text in content_texts(message.get("content")):
        yield f"[{label}] {text}" if label else text


def _message_text(message: JsonObject) -> str:
    lines = [*_content_lines(message)]
    calls = map(read_call, objects_of(message.get("tool_calls")))
    lines += [f"{call.name} {pretty_arguments(call.arguments)}" for call in calls]
    return "\n".join(lines)


def _tool_names(request: ModelRequest) -> tuple[str, ...]:
    return tuple(tool.name for tool in request.tools)


def _message_keys(request: ModelRequest) -> Sequence[bytes]:
    """Return a text for each message, equal for equal messages."""
    return request.texts or [canonical(message).encode() for message in request.messages]


def compare_texts(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[int, list[int], list[int]]:
    """Compare two lists: how many stayed, and the numbers of those added and removed, each from 1."""
    kept, added, removed = 0, list[int](), list[int]()
    for tag, low, high, start, end in _opcodes(old, new):
        if tag == "equal":
            kept += high - low
        else:
            removed += range(low + 1, high + 1)
            added += range(start + 1, end + 1)
    return kept, added, removed


def compare_lines(old: str, new: str) -> Iterator[ChangedLine]:
    """Compare two texts line by line; nothing if they are equal."""
    if old == new:
        return
    before, after = old.split("\n"), new.split("\n")
    left = SHOWN_LINES
    for tag, low, high, start, end in _opcodes(before, after):
        if tag == "equal":
            lines = before[low:high]
            is_first, is_last = low == 0, high == len(before)
            head = [] if is_first else lines[:LINES_AROUND]
            rest = lines[len(head) :]
            tail = [] if is_last else rest[-LINES_AROUND:]
            yield from (ChangedLine("kept", line) for line in head)
            if skipped := len(rest) - len(tail):
                yield ChangedLine("skipped", str(skipped))
            yield from (ChangedLine("kept", line) for line in tail)
            continue
        for line in [
            *(ChangedLine("removed", line) for line in before[low:high]),
            *(ChangedLine("added", line) for line in after[start:end]),
        ]:
            if left == 0:
                yield ChangedLine("skipped", "")
                return
            left -= 1
            yield line


def _opcodes(old: Sequence[H], new: Sequence[H]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the operations that make one list of another, equal ends first: most requests extend each other."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head:
        yield "equal", 0, head, 0, head
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(middle_old) + len(middle_new) > MAX_COMPARED:
        yield "replace", head, len(old) - tail, head, len(new) - tail
    else:
        for tag, low, high, start, end in SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_opcodes():
            yield tag, low + head, high + head, start + head, end + head
    if tail:
        yield "equal", len(old) - tail, len(old), len(new) - tail, len(new)
