"""AReaL's own proxy, cache, client and agent worker judge what bubbot sends: `make areal` fetches them. Missing, that is a failure in the proof."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.docs.pages import ROOT
from tests.fakes.rl_proxy import ADMIN_KEY, RlProxy
from tests.learn.exports import export_all
from tests.learn.home import live
from tests.learn.recording import recorded_by, recorder_of, recording
from tests.trace.home import apart

MISSING = "AReaL is not there: make areal"
WAIT = 240.0
"""Seconds any wait may take: AReaL imports PyTorch."""
SCRIPT = ROOT / "tests" / "learn" / "areal_side.py"


def areal_folder() -> Path:
    """Return where `make areal` puts it: `$AREAL_FOLDER`, else a folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("AREAL_FOLDER") or Path(cache, "bubbot", "areal"))


@pytest.fixture
def areal_missing(request: pytest.FixtureRequest) -> None:
    """Skip without AReaL; fail in the proof."""
    if not (areal_folder() / ".installed").exists():
        (pytest.fail if request.config.getoption("--proof") else pytest.skip)(MISSING)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def start(home: Path, *arguments: str, **env: str) -> asyncio.subprocess.Process:
    """Start AReaL's side."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "LITELLM_LOCAL_MODEL_COST_MAP": "True", **env}
    return await asyncio.create_subprocess_exec(
        areal_folder() / "bin" / "python",
        SCRIPT,
        areal_folder() / "source",
        *arguments,
        env=variables,
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def serving(home: Path, *arguments: str, ready: str, **env: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Run a server of AReaL's side until the block ends."""
    process = await start(home, *arguments, **env)
    try:
        async with aiohttp.ClientSession() as http:
            async with asyncio.timeout(WAIT):
                while not await _is_up(http, ready):
                    assert process.returncode is None, "it ended"
                    await asyncio.sleep(0.2)
            yield http
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _is_up(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def export(home: Path, url: str, *wanted: tuple[str, str, float]) -> list[list[dict[str, Any]]]:
    """Export sessions with AReaL's client."""
    process = await start(home, "export", url, ADMIN_KEY)
    async with asyncio.timeout(WAIT):
        out, _ = await process.communicate("".join(f"{json.dumps(each)}\n" for each in wanted).encode())
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines() if line.startswith(b"[")]


@pytest.mark.proof
@pytest.mark.usefixtures("areal_missing")
@pytest.mark.parametrize("is_gateway", [False, True], ids=["server", "gateway"])
async def test_areal_records_chains_with_their_rewards_and_its_client_reads_them(
    tmp_path: Path, *, is_gateway: bool
) -> None:
    port, gateway_port = free_port(), free_port()
    worker = f"http://127.0.0.1:{port}"
    proxy = RlProxy(url=f"http://127.0.0.1:{gateway_port if is_gateway else port}")
    async with serving(
        tmp_path, "serve", str(port), str(gateway_port), ready=f"{worker if not is_gateway else proxy.url}/health"
    ) as http:
        while not await _is_up(http, f"{worker}/health"):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(0.1)
        async with recording(tmp_path / "home", recorded_by(proxy), is_run=False) as app:
            recorder = recorder_of(app)
            assert (await app.say("hello")).text == "the own model answers", "nobody granted capacity: 429"
            for _ in range(2):
                async with http.post(
                    f"{worker}/grant_capacity", headers={"authorization": f"Bearer {ADMIN_KEY}"}
                ) as response:
                    assert response.status == 200
            recorder.retry_at = 0.0
            assert (await app.say("use the tool")).text.startswith("answer")
            await app.say(",rate 5")
            assert (await app.say("and now?")).text.startswith("answer")
            await app.say(",rate 2")
            await recorder.look()
            await app.say(",new")
            await recorder.look()
            assert (await app.say("a new one")).text.startswith("answer")
            assert (await app.say("and one more")).text.startswith("answer")
            await app.say(",rate 4")
        async with http.get(f"{worker}/sessions") as response:
            first, second = await response.json()
        assert (first["calls"], first["leaves"], first["mismatches"], first["has_ended"]) == (3, 1, 0, True)
        assert first["rewards"] == [None, 1.0, -0.5]
        assert (second["calls"], second["leaves"], second["mismatches"], second["has_ended"]) == (2, 1, 0, True)
        assert second["rewards"] == [None, 0.5]
        wanted = ((first["id"], "individual", 0.0), (second["id"], "concat", 1.0))
        individual, concat = await export(tmp_path, worker, *wanted)
    assert [each["reward"] for each in individual] == [0.0, 1.0, -0.5]
    (leaf,) = concat
    assert (leaf["reward"], leaf["turns"]) == (0.5, 2), "one sequence of tokens, in which both answers are trained"
    assert 0 < leaf["trained"] < leaf["tokens"]


@pytest.mark.proof
@pytest.mark.usefixtures("areal_missing")
async def test_areals_worker_runs_bubbot_against_areals_proxy(tmp_path: Path) -> None:
    port, gateway_port, worker_port = free_port(), free_port(), free_port()
    server, worker = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{worker_port}"
    bot = tmp_path / "bot"
    bot.mkdir()
    (bot / "config.toml").write_text('[model]\nname = "scripted"\n')
    folders = [str(ROOT), str(Path(msgspec.__file__).parents[1])]
    async with (
        serving(tmp_path, "serve", str(port), str(gateway_port), ready=f"{server}/health") as http,
        serving(tmp_path, "work", str(worker_port), *folders, ready=f"{worker}/health", BUBBOT_HOME=str(bot)),
    ):
        admin = {"authorization": f"Bearer {ADMIN_KEY}"}
        async with http.post(f"{server}/grant_capacity", headers=admin):
            pass
        async with http.post(f"{server}/rl/start_session", headers=admin, json={"task_id": "t"}) as response:
            session = await response.json()
        inference = {"base_url": server, "api_key": session["api_key"], "model": "default"}
        history: list[dict[str, Any]] = []
        for text in ("use the tool", "well done"):
            body = {
                "message": text,
                "session_key": "s",
                "run_id": "r",
                "history": history,
                "metadata": {"areal_inference": inference},
            }
            async with http.post(f"{worker}/run", json=body) as response:
                answer = await response.json()
                assert response.status == 200, answer
            history += [{"role": "user", "content": text}, {"role": "assistant", "content": answer["summary"]}]
            kinds = [event["type"] for event in answer["events"]]
            assert kinds == (["tool_call", "tool_result", "delta"] if text == "use the tool" else ["delta"])
            assert answer["summary"].startswith("answer")
        async with http.get(f"{server}/sessions") as response:
            (found,) = await response.json()
        assert found["calls"] == 3
        async with http.post(f"{worker}/run", json={"message": " "}) as response:
            assert response.status == 500
            assert "message is empty" in (await response.json())["error"]["message"]
    assert sorted(path.name for path in bot.iterdir()) == ["config.toml"]


@pytest.mark.proof
@pytest.mark.usefixtures("areal_missing")
async def test_areal_reads_an_export_and_writes_the_same(tmp_path: Path) -> None:
    paths = (await asyncio.to_thread(lambda: export_all(apart(live(tmp_path / "home")), tmp_path)))["areal"]
    process = await start(tmp_path, "read", *map(str, paths))
    async with asyncio.timeout(WAIT):
        out, _ = await process.communicate()
    assert process.returncode == 0
    answers = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
    written = [json.loads(path.read_bytes())["interactions"] for path in paths]
    assert [each["rewards"] for each in answers] == [
        {name: one["reward"] for name, one in interactions.items()} for interactions in written
    ]
    assert [each["is_same"] for each in answers] == [True] * len(paths)
    assert any(reward for each in answers for reward in each["rewards"].values())
