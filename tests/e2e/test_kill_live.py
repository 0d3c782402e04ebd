"""The daemon is killed, and its platforms lose answers, while it shows what it writes: no piece of an answer stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.e2e.hurried import BOT
from tests.e2e.kill_harness import KILLED
from tests.e2e.kill_talk import AT_ONCE, Figures, killed_while_showing, kills_of_live_answers
from tests.e2e.on_discord import COUNTED, configured, connected, texts
from tests.e2e.platforms import POST, Platform
from tests.e2e.test_kill_discord import both, discord
from tests.e2e.test_kill_telegram import POINTS, telegram
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Drop, Fault, Html

Platforms = Callable[[], AbstractAsyncContextManager[Sequence[Platform]]]

SHORT = (
    "send:after#1",  # sent, its id not recorded: the piece that used to stay
    "append-outbox:after#2",
    "edit:after#1",
)
SHOWING = (
    "append-outbox:before#1",  # nothing is recorded yet
    "append-outbox:after#1",  # recorded, not sent
    "send:before#1",
    "append-outbox:before#2",
    "edit:before#1",
    *SHORT,
)


async def killed_at_all(
    home: Path, points: Sequence[str], platforms: Platforms, debounce: float
) -> tuple[list[str], dict[str, Figures]]:
    """The points that were never reached, and the figures by point and platform."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, point: str) -> tuple[str, int | None, dict[str, Figures]]:
        async with limit, platforms() as made:
            return (point, *await killed_while_showing(home / f"home{number}", made, point, debounce=debounce))

    found = await asyncio.gather(*(one(number, point) for number, point in enumerate(points)))
    missed = [point for point, code, _ in found if code != KILLED]
    return missed, {f"{point} {name}": one for point, _, by_name in found for name, one in by_name.items()}


def faulty(found: dict[str, Figures]) -> dict[str, Figures]:
    """Those in which something was lost or doubled, or a piece stayed."""
    return {name: one for name, one in found.items() if one.faults() != (0, 0, [])}


async def test_a_kill_while_an_answer_is_shown_leaves_no_piece_on_discord(tmp_path: Path) -> None:
    missed, found = await killed_at_all(tmp_path, SHORT, discord, 0.0)
    assert (missed, faulty(found)) == ([], {})
    assert sum(one.bare for one in found.values()) == 0


async def test_a_kill_while_an_answer_is_shown_leaves_at_most_a_bare_start_on_telegram(tmp_path: Path) -> None:
    missed, found = await killed_at_all(tmp_path, SHORT, telegram, 0.0)
    assert (missed, faulty(found)) == ([], {})
    assert {name for name, one in found.items() if one.bare} == {"send:after#1 telegram"}


@pytest.mark.proof
async def test_the_figures_see_a_bot_that_looks_for_nothing(tmp_path: Path) -> None:
    async with discord() as platforms:
        code, found = await killed_while_showing(tmp_path / "home", platforms, "send:after#1", broken="no-find")
    assert (code, [len(one.pieces) for one in found.values()]) == (KILLED, [1])


@pytest.mark.proof
async def test_kills_at_random_instants_leave_no_piece_of_an_answer(tmp_path: Path) -> None:
    async with both() as platforms:
        found = await kills_of_live_answers(tmp_path / "home", platforms, seed=7, lives=2, chats=1, debounce=1)
    assert faulty(found) == {}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as found:
        yield found


@pytest.mark.parametrize("fault", [Drop("after"), Html(502, effect="after")])
async def test_a_first_message_of_which_nobody_heard_becomes_the_answer(
    server: Server, tmp_path: Path, fault: Fault
) -> None:
    ada = server.user("Ada")
    room = server.dm(ada)
    configured(tmp_path / "home", server, owners=[ada.id], edit_interval=0.2)
    async with connected(tmp_path / "home", server, target=BOT):
        server.fail(POST, fault)
        room.say(ada, "count slowly")
        await server.until(lambda: texts(server, room)[-1:] == [COUNTED], 60)
    assert texts(server, room) == [COUNTED]


async def test_a_server_that_is_away_in_mid_answer_leaves_no_piece(server: Server, tmp_path: Path) -> None:
    ada = server.user("Ada")
    room = server.dm(ada)
    configured(tmp_path / "home", server, owners=[ada.id], edit_interval=0.2)
    async with connected(tmp_path / "home", server, target=BOT):
        server.fail(POST, Drop("after"))
        room.say(ada, "count slowly")
        await server.until(lambda: texts(server, room), 60)
        server.fail("*", Html(503), times=1_000_000)
        await server.until(lambda: sum(call.status == 503 for call in server.log) > 5, 60)
        server.faults.clear()
        await server.until(lambda: texts(server, room)[-1:] == [COUNTED], 40)
    assert texts(server, room) == [COUNTED]


@pytest.mark.proof
@pytest.mark.parametrize("debounce", [0, 1])
@pytest.mark.parametrize("platforms", [discord, telegram])
async def test_a_kill_at_any_point_of_a_batch_that_is_shown_leaves_no_piece(
    tmp_path: Path, platforms: Platforms, debounce: int
) -> None:
    points = [
        *SHOWING,
        *(point for point in POINTS if not point.startswith(("send", "append-outbox", "merge:after#2"))),
    ]
    missed, found = await killed_at_all(tmp_path, points, platforms, debounce)
    assert (missed, faulty(found)) == ([], {})
    assert {name for name, one in found.items() if one.split} == set()


@pytest.mark.proof
@pytest.mark.parametrize("debounce", [0, 1])
@pytest.mark.parametrize("seed", range(200, 205))
async def test_three_hundred_kills_leave_no_piece_on_either_platform(
    tmp_path: Path, seed: int, debounce: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with both() as platforms:
        found = await kills_of_live_answers(
            tmp_path / "home", platforms, seed=seed, lives=30, chats=2, debounce=debounce
        )
    with capsys.disabled():
        print(f"\nseed {seed}, debounce {debounce}: {found}")
    assert faulty(found) == {}
    assert {name: one.split for name, one in found.items()} == dict.fromkeys(found, 0)
