"""Which programs may read which chats: each change is a fact, and the state follows from the facts alone."""

from __future__ import annotations

import subprocess
import sys
from itertools import count

import pytest

from bubbot.features.mcp.serve.facts import CLIENTS_TAPE
from bubbot.features.mcp.serve.service import MAX_SESSIONS, McpClients, digest_token
from bubbot.features.mcp.serve.state import CLIENTS_PROJECTION, ClientsState
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from tests.callers import by, refused, run
from tests.docs.pages import ROOT
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import whole

OWNER = by("terminal")


@pytest.fixture
def tape(memory_store: InMemoryStore) -> TapeService:
    return TapeService(memory_store, CLIENTS_TAPE, now=SteppingClock(), new_id=CountingIds("c"), session="")


@pytest.fixture
def clients(tape: TapeService) -> McpClients:
    tokens = count(1)
    return McpClients(tape, lambda: f"token-{next(tokens)}")


async def read(tape: TapeService) -> ClientsState:
    return await read_projection(CLIENTS_PROJECTION, tape)


async def test_a_grant_is_a_fact_for_each_chat(clients: McpClients, tape: TapeService) -> None:
    change = await run(clients.add_client, OWNER, "editor", "telegram:1, work telegram:1")
    assert (change.added, change.sessions, change.variant) == (("telegram:1", "stdin:work"),) * 2 + ("added",)
    assert (await read(tape)).sessions_of("editor") == ("telegram:1", "stdin:work")
    assert (await run(clients.add_client, OWNER, "editor", "telegram:1")).variant == "unchanged"
    assert await tape.head() == 2


async def test_some_chats_or_all_are_taken_back(clients: McpClients, tape: TapeService) -> None:
    await run(clients.add_client, OWNER, "editor", "telegram:1 telegram:2")
    await run(clients.make_token, OWNER, "editor")
    some = await run(clients.remove_client, OWNER, "editor", "telegram:1")
    assert (some.variant, some.sessions, some.removed) == ("revoked", ("telegram:2",), ("telegram:1",))
    assert (await read(tape)).find_client(digest_token("token-1")) == "editor"
    assert (await run(clients.remove_client, OWNER, "editor")).variant == "removed"
    state = await read(tape)
    assert (state.clients, state.find_client(digest_token("token-1"))) == ((), "")


async def test_a_token_is_stored_as_its_digest_and_ends_the_one_before(
    clients: McpClients, tape: TapeService, memory_store: InMemoryStore
) -> None:
    await run(clients.add_client, OWNER, "editor", "telegram:1")
    tokens = [(await run(clients.make_token, OWNER, "editor")).token for _ in range(2)]
    state = await read(tape)
    assert [state.find_client(digest_token(token)) for token in tokens] == ["", "editor"]
    stored = str(await whole(memory_store, CLIENTS_TAPE))
    assert not any(token in stored for token in tokens)
    assert state.find_client("") == ""


async def test_a_new_grant_does_not_bring_an_old_token_back(clients: McpClients, tape: TapeService) -> None:
    await run(clients.add_client, OWNER, "editor", "telegram:1")
    token = (await run(clients.make_token, OWNER, "editor")).token
    await run(clients.remove_client, OWNER, "editor")
    await run(clients.add_client, OWNER, "editor", "telegram:1")
    assert (await read(tape)).find_client(digest_token(token)) == ""


@pytest.mark.parametrize("session", ["bubbot/access", "bubbot/memory/workspace", "telegram:", "a\x00b"])
async def test_what_is_no_chat_is_never_granted(clients: McpClients, tape: TapeService, session: str) -> None:
    with refused():
        await run(clients.add_client, OWNER, "editor", f"telegram:1 {session}")
    assert await tape.head() == 0


async def test_what_cannot_be_done_is_told(clients: McpClients) -> None:
    with refused("name a chat that editor may read"):
        await run(clients.add_client, OWNER, "editor", " , ")
    with refused("no program editor may read a chat"):
        await run(clients.remove_client, OWNER, "editor")
    with refused("no program editor may read a chat"):
        await run(clients.make_token, OWNER, "editor")
    await run(clients.add_client, OWNER, "editor", "telegram:1")
    with refused("editor may not read telegram:2 anyway"):
        await run(clients.remove_client, OWNER, "editor", "telegram:1 telegram:2")
    with refused(f"editor may read {MAX_SESSIONS} chats at most"):
        await run(clients.add_client, OWNER, "editor", " ".join(f"telegram:{number}" for number in range(2, 150)))


async def test_the_state_is_the_same_from_a_checkpoint(
    clients: McpClients, tape: TapeService, memory_store: InMemoryStore
) -> None:
    for number in range(300):
        await run(clients.add_client, OWNER, "editor", f"telegram:{number % 7}")
        await run(clients.remove_client, OWNER, "editor", f"telegram:{number % 7}")
    await run(clients.add_client, OWNER, "editor", "telegram:3")
    names = [entry.name for entry in await whole(memory_store, CLIENTS_TAPE)]
    assert CLIENTS_PROJECTION.checkpoint_name in names
    assert (await read(tape)).sessions_of("editor") == ("telegram:3",)


def test_the_bot_never_imports_the_sdk() -> None:
    script = (
        "import sys; from importlib import import_module\n"
        "for name in ('feature', 'commands', 'service', 'forgetting', 'options', 'tools', 'reading'):\n"
        "    import_module(f'bubbot.features.mcp.serve.{name}')\n"
        "import bubbot.app.features, bubbot.app.mcp_serve\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types', 'starlette')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
