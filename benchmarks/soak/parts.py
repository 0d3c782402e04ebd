"""The parts of a soak: the load beside the bare runtime, the slow model, joined messages, a provider that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.soak import words
from benchmarks.soak.measure import MB, Busy, Sample, Watch, quantiles, trend
from benchmarks.soak.process import START, Process, started

SAMPLED = 0.5
"""Seconds between two samples of the daemon."""
WARM = 0.5
"""The part of the messages after which the daemon is warm."""
REST = 1.0
"""Seconds after the last answer until the daemon is taken to be at rest."""
FAULTS_KEPT = 100
UNLIMITED: Mapping[str, Any] = {"messages_per_minute": 0, "messages_per_hour": 0, "bytes_per_day": 0}
"""One person says more here than a person may by default."""
SCRIPTED: Mapping[str, Any] = {"name": "scripted", "script": "script.json"}
GROWTH = 10.0
"""Megabytes that a daemon may grow after warm-up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything. `messages`: of one chat in one round; `growth`: megabytes; `minutes` that the daemon is
    tended, `every` so many seconds."""

    platforms: Sequence[str]
    chats: int = 200
    messages: int = 12
    rounds: int = 4
    ahead: int = 4
    slow_chats: int = 50
    slow_messages: int = 12
    slow_seconds: float = 1.0
    joined_chats: int = 20
    provider_chats: int = 40
    provider_messages: int = 10
    provider_seconds: float = 0.2
    growth: float = GROWTH
    memory: bool = False
    minutes: float = 0.0
    every: float = 60.0

    def shared(self, chats: int) -> Mapping[str, int]:
        """The chats of each platform."""
        each, more = divmod(chats, len(self.platforms))
        return {name: each + (place < more) for place, name in enumerate(self.platforms)}


@dataclass
class Bench:
    """A daemon and the people it talks with."""

    daemon: Process
    people: Mapping[str, Process]

    async def talk(
        self, messages: int, ahead: int, spread: float = 0.0, chats: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Let every chat on every platform talk, or only `chats` of each.

        Return seconds from the first message to the last answer, how long each waited, and the rate of the middle half
        of the answers, when nothing starts or ends. `spread`: see `people`.
        """
        question: dict[str, Any] = {"messages": messages, "ahead": ahead, "spread": spread}
        if chats is not None:
            question["chats"] = list(chats)
        replies = await asyncio.gather(*(one.ask(question) for one in self.people.values()))
        ends = sorted(end for one in replies for end in one["ends"])
        middle = ends[len(ends) // 4 : len(ends) * 3 // 4 + 1]
        return {
            "seconds": ends[-1] - min(one["begun"] for one in replies),
            "middle": (len(middle) - 1) / max(middle[-1] - middle[0], 0.001),
            "waits": [wait for one in replies for wait in one["waits"]],
        }

    async def faults(self) -> list[str]:
        """What is wrong in any chat; and a daemon that does not end well."""
        found = [fault for one in self.people.values() for fault in await one.ask({"faults": True})]
        if code := await self.daemon.end():
            found.append(f"the daemon ended with the exit code {code}")
        return found[:FAULTS_KEPT]


@asynccontextmanager
async def bench(
    given: Plan,
    folder: Path,
    chats: int,
    *,
    script: Mapping[str, Any],
    keys: Mapping[str, Any],
    how: Sequence[str] = (),
    model: Mapping[str, Any] = SCRIPTED,
) -> AsyncIterator[Bench]:
    """A daemon with a channel for each platform. `keys` are those of every channel; `how`: see `people` and `bot`."""
    async with AsyncExitStack() as stack:
        people, tables = dict[str, Process](), dict[str, Mapping[str, Any]]()
        for name, share in given.shared(chats).items():
            start = started(name, folder, "benchmarks.soak.people", [name, str(share), *how])
            people[name] = await stack.enter_async_context(start)
            tables[name] = {**UNLIMITED, **await people[name].said("table", START), **keys}
        configured(folder / "home", script, tables, model)
        more = ["memory"] if given.memory else []
        start = started("daemon", folder, "benchmarks.soak.bot", [str(folder / "home"), *how, *more])
        daemon = await stack.enter_async_context(start)
        await daemon.said("running", START)
        yield Bench(daemon, people)


def configured(
    home: Path,
    script: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    model: Mapping[str, Any] = SCRIPTED,
) -> None:
    """Writes a home's `config.toml`, by default with the scripted model."""
    home.mkdir(parents=True)
    (home / "script.json").write_text(json.dumps(script))
    lines = ["[model]", *(f"{key} = {json.dumps(value)}" for key, value in model.items())]
    for name, table in tables.items():
        lines += [f"[channels.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (home / "config.toml").write_text("\n".join(lines) + "\n")


async def load(given: Plan, folder: Path) -> dict[str, Any]:
    """The daemon and the bare runtime, in turn."""
    folder = folder / "load"
    folder.mkdir()
    bare = folder / "bare"
    configured(bare, words.script(), {})
    async with bench(given, folder, given.chats, script=words.script(), keys={"debounce": 0}) as daemon:
        start = started("runtime", folder, "benchmarks.soak.direct", [str(bare), str(given.chats)])
        async with start as runtime:
            await runtime.said("running", START)
            made = await _rounds(given, daemon, runtime)
        made["faults"] = await daemon.faults()
    return made


async def _rounds(given: Plan, daemon: Bench, runtime: Process) -> dict[str, Any]:
    rounds, waits, count = [], [], given.chats * given.messages
    await daemon.talk(1, 1)  # until then it may still be connecting
    await runtime.ask({"messages": 1, "ahead": 1})
    await asyncio.sleep(REST)
    watch = Watch(daemon.daemon, list(daemon.people.values()))
    looking = asyncio.create_task(watch.go_on(SAMPLED))
    try:
        for number in range(given.rounds):
            watch.loaded = True
            await daemon.daemon.ask({"figures": True})  # from here on
            with Busy([daemon.daemon, *daemon.people.values()]) as busy:
                talked = await daemon.talk(given.messages, given.ahead)
            watch.look()
            watch.loaded = False
            inside = await daemon.daemon.ask({"figures": True})
            with Busy([runtime]) as direct:
                bare = await runtime.ask({"messages": given.messages, "ahead": given.ahead})
            await asyncio.sleep(REST)
            watch.look()
            waits += talked["waits"]
            rounds.append(
                {
                    "daemon_rate": count / talked["seconds"],
                    "runtime_rate": count / (bare["end"] - bare["begun"]),
                    "daemon_ms": 1000 * busy.took[daemon.daemon.name] / count,
                    "runtime_ms": 1000 * direct.took[runtime.name] / count,
                    "busy": {name: took / busy.wall for name, took in busy.took.items()},
                    "lag": inside["lag"],
                    "rest": _state(watch.samples[-1]),
                    **{key: value for key, value in inside.items() if key != "lag"},
                }
            )
            _progress(f"round {number + 1} of {given.rounds}", rounds[-1])
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
    return {"messages": count * given.rounds, "rounds": rounds, "waits": quantiles(waits), **_growth(watch, given)}


def _growth(watch: Watch, given: Plan) -> dict[str, Any]:
    """How memory and files went while people talked."""
    loaded, warm = [one for one in watch.samples if one.loaded], int(WARM * given.chats * given.messages * given.rounds)
    memory = trend([(one.answered, one.look.memory / MB) for one in loaded], warm)
    files = trend([(one.answered, float(one.look.files)) for one in loaded], warm)
    connections = trend([(one.answered, float(one.look.connections)) for one in loaded], warm)
    went = {"memory": asdict(memory), "files": asdict(files), "connections": asdict(connections)}
    return {**went, "samples": [_state(one) for one in watch.samples]}


def _state(sample: Sample) -> dict[str, float]:
    return {
        "answered": sample.answered,
        "memory": round(sample.look.memory / MB, 2),
        "files": sample.look.files,
        "connections": sample.look.connections,
    }


async def slow(given: Plan, folder: Path) -> dict[str, Any]:
    """Turns a second where the model takes its time."""
    folder = folder / "slow"
    folder.mkdir()
    script = {"default": [{"text": words.ANSWERED, "delay": given.slow_seconds}]}
    async with bench(given, folder, given.slow_chats, script=script, keys={"debounce": 0}) as daemon:
        await daemon.talk(1, 1)  # until then it may still be connecting
        await daemon.daemon.ask({"figures": True})
        with Busy([daemon.daemon]) as busy:
            talked = await daemon.talk(given.slow_messages, 2, given.slow_seconds)
        inside = await daemon.daemon.ask({"figures": True})
        return {
            "chats": given.slow_chats,
            "rate": talked["middle"],
            "ideal": given.slow_chats / given.slow_seconds,
            "busy": busy.took[daemon.daemon.name] / busy.wall,
            "lag": inside["lag"],
            "faults": await daemon.faults(),
        }


async def joined(given: Plan, folder: Path) -> dict[str, Any]:
    """Messages that come so fast that some are answered together."""
    folder = folder / "joined"
    folder.mkdir()
    keys, messages = {"debounce": 0.05}, 30
    async with bench(given, folder, given.joined_chats, script={}, keys=keys, how=["joined"]) as daemon:
        talked = await daemon.talk(messages, 10)
        return {"messages": len(talked["waits"]), "faults": await daemon.faults()}


async def provider(given: Plan, folder: Path) -> dict[str, Any]:
    """A model over HTTP that refuses, cuts and hangs: every message is answered, or told that it is not, once."""
    folder = folder / "provider"
    folder.mkdir()
    start = started("provider", folder, "benchmarks.soak.provider", [str(given.provider_seconds)])
    async with start as server:
        model = {
            "name": "openai/soak",
            "api_base": await server.said("address", START),
            "api_key": "soak",
            "retries": 2,
            "retry_wait": 0.1,
            "first_token_timeout": 4.0,
        }
        how = ["failing"]
        keys = {"debounce": 0}
        async with bench(given, folder, given.provider_chats, script={}, keys=keys, how=how, model=model) as daemon:
            await daemon.talk(1, 1)  # the library that translates is loaded
            await daemon.daemon.ask({"figures": True})
            with Busy([daemon.daemon]) as busy:
                talked = await daemon.talk(given.provider_messages, 1)
            inside = await daemon.daemon.ask({"figures": True})
            count = given.provider_chats * given.provider_messages
            return {
                "messages": count,
                "rate": count / talked["seconds"],
                "ms": 1000 * busy.took[daemon.daemon.name] / count,
                "memory": daemon.daemon.look().memory / MB,
                "asked": await server.ask({"counts": True}),
                "lag": inside["lag"],
                "faults": await daemon.faults(),
            }


def _progress(what: str, figures: Mapping[str, Any]) -> None:
    print(f"{what}: {figures['daemon_rate']:.0f}/s, without channels {figures['runtime_rate']:.0f}/s", flush=True)
