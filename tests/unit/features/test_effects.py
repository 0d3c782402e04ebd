"""What tools declare: one that only reads leaves the tape as it is."""

from __future__ import annotations

import pytest

from bubbot.features.agents.settings import AgentsSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.handle import TapeHandle
from bubbot.tool import EffectKind, Tool
from tests.turns import Options, calls, running, toolbox


async def read_own(turn: Turn, _source: str) -> TapeHandle:
    """Every chat may read itself here."""
    return turn.tape


OPTIONS = Options(agents=AgentsSettings(), read_session=read_own)
ARGUMENTS = {"tape.search": "query=hello", "result.read": "", "memory.recall": "hello", "chat.read": "test:home"}
READING = [
    tool
    for tool in toolbox(ScriptedModel(), OPTIONS)
    if tool.effect.kind is EffectKind.READ and tool.name != "session.quit"
]


@pytest.mark.parametrize("tool", READING, ids=lambda tool: tool.name)
async def test_a_command_that_only_reads_writes_nothing_but_that_it_ran(
    memory_store: InMemoryStore, tool: Tool
) -> None:
    async with running(memory_store, ScriptedModel(), OPTIONS) as bench:
        await bench.say("hello")
        before = len(await bench.entries())
        if tool.name == "result.read":
            handle = await bench.tape().put_blob(b"a long text")
            await bench.say(f",result.read {handle}")
        else:
            await bench.say(f",{tool.name} {ARGUMENTS.get(tool.name, '')}".strip())
        (command,) = await bench.events("command")
        assert command["status"] == "ok", command["output"]
        written = [entry.name for entry in (await bench.entries())[before:]]
    assert written == ["turn/start", "command", "turn/end"]


@pytest.mark.parametrize("tool", [tool for tool in READING if tool.for_model], ids=lambda tool: tool.name)
async def test_a_call_that_only_reads_writes_nothing_but_its_result(memory_store: InMemoryStore, tool: Tool) -> None:
    if tool.name == "result.read":
        arguments = {"handle": "0" * 64}
    else:
        arguments = {"query": "hello"} if tool.name == "tape.search" else {}
    script = {"rules": [{"when": "go", "steps": [calls(tool.provider_name, **arguments), {"text": "done"}]}]}
    async with running(memory_store, ScriptedModel(script), OPTIONS) as bench:
        await bench.say("hello")
        before = len(await bench.entries())
        await bench.say("go")
        written = [entry.name or str(entry.kind) for entry in (await bench.entries())[before:]]
    expected = ["turn/start", "message", "tool_call", "loop.step", "tool_result", "message", "loop.step", "turn/end"]
    assert [name for name in written if name != "system"] == expected
