"""What several forks did, of which each went on with the one before: none of it happens again."""

from __future__ import annotations

from bubbot.arguments.fields import Args
from bubbot.ports.turn import Turn
from bubbot.runtime.effects import AttemptRecord, read_fork_record
from bubbot.tape.entry import TapeEntry, tool_call, tool_result
from bubbot.tape.events import EffectBegin
from bubbot.tape.service import TapeService
from bubbot.tool import Tool, tool


class SendArgs(Args, frozen=True):
    """What is sent."""

    text: str


@tool("post.send")
async def post_send(turn: Turn, args: SendArgs) -> str:
    """Send something."""
    return "sent"


def call(fork: str) -> TapeEntry:
    """A call that a fork makes."""
    function = {"name": "post_send", "arguments": '{"text": "x"}'}
    return tool_call([{"id": "c1", "type": "function", "function": function}], outside=["c1"], fork=fork)


def begin(fork: str) -> TapeEntry:
    """The begin of that call."""
    return EffectBegin("c1", "post.send", "d", "never").to_entry(fork=fork)


def result(fork: str, content: str) -> TapeEntry:
    """The result of that call."""
    return tool_result([{"tool_call_id": "c1", "content": content}], fork=fork)


async def read(tape: TapeService, *entries: TapeEntry, forks: tuple[str, ...] = ("f1", "f2")) -> AttemptRecord:
    """Read the record of forks that wrote these entries, for a fork that goes on."""
    await tape.append(entries)
    return await read_fork_record(tape, forks, 1, "f3")


def may_have_used(record: AttemptRecord) -> bool:
    """Whether the record knows that the tool may have acted outside."""
    used: Tool = post_send
    return record.has_used(used)


async def test_a_call_without_a_begin_did_not_run(tape: TapeService) -> None:
    assert not may_have_used(await read(tape, call("f1"), forks=("f1",)))


async def test_a_begin_is_not_forgotten_when_the_next_fork_is_cut_off_before_it_has_an_answer(
    tape: TapeService,
) -> None:
    assert may_have_used(await read(tape, call("f1"), begin("f1"), call("f2")))


async def test_a_begin_is_not_forgotten_when_the_next_fork_answers_the_call_from_its_record(tape: TapeService) -> None:
    assert may_have_used(await read(tape, call("f1"), begin("f1"), call("f2"), result("f2", "outcome unknown")))


async def test_what_another_fork_did_does_not_count(tape: TapeService) -> None:
    assert not may_have_used(await read(tape, call("other"), begin("other"), result("other", "sent"), call("f1")))
