"""Agents: what one of them may look up in its chat."""

from __future__ import annotations

import pytest

from bubbot.ports.agents import NO_MEMORY, Agent
from bubbot.tape import entry as make
from bubbot.tape.entry import TapeEntry

FORK = {"fork": "a/b"}


@pytest.mark.parametrize(
    "written",
    [
        make.message("user", "Look it up in the memory.", **FORK),
        make.message("assistant", "Anna likes green tea.", origin="agent:task", **FORK),
        make.tool_call([], origin="agent:nemo", **FORK),
        make.tool_call([]),
    ],
)
def test_an_agent_with_a_memory_of_its_own_reads_neither_sub_tasks_nor_calls_of_others(written: TapeEntry) -> None:
    assert not Agent("nemo", memory=NO_MEMORY).may_read(written)
    assert Agent("rosi").may_read(written)


def test_an_agent_with_a_memory_of_its_own_reads_what_is_said_and_its_own_calls() -> None:
    agent = Agent("nemo", memory=NO_MEMORY)
    assert agent.may_read(make.message("assistant", "Hello."))
    assert agent.may_read(make.tool_call([], origin="agent:nemo"))
