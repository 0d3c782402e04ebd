"""A bot that is offered newer weights, with a scripted model for each name, and the work that a daemon does beside its turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbot.app.bot import Bot
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights.feature import WeightsFeature
from bubbot.tape.entry import JsonObject
from bubbot.tape.query import TapeQuery
from tests.evals import EvalBench, eval_bench, script

OLD, NEW, NEWER = "scripted", "openai/second", "openai/third"
"""The configured model, and two that are offered."""
DIGEST = f"sha256:{'ab' * 32}"
EVAL = """
[setups.plain]
[cases.capital]
message = "capital"
expect = "Paris"
[cases.river]
message = "river"
expect = "Seine"
[[judges]]
kind = "exact"
"""
WRONG, RIGHT = script(capital="Rome", river="Seine"), script(capital="Paris", river="Seine")


def find_weights_feature(bot: Bot) -> WeightsFeature:
    """Return the feature of a bot."""
    (found,) = [each for each in bot.features.lasting if each.name == "learn.weights"]
    run: Any = found.lifecycle.background["exports and newer weights"]
    feature: WeightsFeature = run.__self__
    return feature


@dataclass
class WeightsBench(EvalBench):
    """The bot."""

    @property
    def feature(self) -> WeightsFeature:
        """The feature, whose background work a test does step by step."""
        return find_weights_feature(self.bot)

    async def act(self) -> None:
        """Do what the work beside the turns does at a look."""
        await self.feature.try_to_act()

    async def learned(self, name: str) -> list[JsonObject]:
        """The data of the facts of this name."""
        found = (await self.bot.store.fetch([TapeQuery(LEARN_TAPE)]))[0]
        return [entry.data for entry in found if entry.name == name]

    async def switches(self, chat: str = "default") -> list[JsonObject]:
        """The switches of a chat."""
        entries = (await self.bot.store.fetch([TapeQuery(self.bot.tape(f"stdin:{chat}").name)]))[0]
        return [entry.data for entry in entries if entry.name == "model/switched"]

    async def steps(self, chat: str = "default") -> list[JsonObject]:
        """The calls of models in a chat."""
        entries = (await self.bot.store.fetch([TapeQuery(self.bot.tape(f"stdin:{chat}").name)]))[0]
        return [entry.data for entry in entries if entry.name == "loop.step"]

    async def rate(self, number: int, chat: str = "default") -> None:
        """Say something and rate the answer, so often."""
        for each in range(number):
            await self.say(f"say {each}", chat)
            await self.say(",rate 5", chat)


@asynccontextmanager
async def weights_bench(
    home: Path,
    *sections: Any,
    scripts: Mapping[str, Mapping[str, Any]] | None = None,
    toml: str = EVAL,
    **learn: Any,
) -> AsyncIterator[WeightsBench]:
    """Open a bot with the evaluation `try`; `learn` are keys of `[learn]`."""
    own = {OLD: WRONG, NEW: RIGHT, NEWER: RIGHT}
    async with eval_bench(home, LearnSettings(**learn), *sections, scripts={**own, **(scripts or {})}) as bench:
        bench.write(toml)
        yield WeightsBench(bench.home, bench.bot, bench.models)


def write_weights(folder: Path, files: Sequence[tuple[str, bytes]] = (("model.safetensors", b"w" * 100),)) -> Path:
    """Write the files of a model into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files:
        (folder / name).write_bytes(content)
    return folder
