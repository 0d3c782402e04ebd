"""A bot that evaluates, with scripted models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.features.judge.evals.compare import EvalComparison, compare
from bubbot.features.judge.evals.facts import EVALS_TAPE, EvalCaseEnded
from bubbot.features.judge.evals.report import EvalReport, find_evaluation, read_report
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import Model
from bubbot.settings.loader import BotSettings, ModelSettings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from tests.made_settings import make_settings

_NUMBERS = count(1)


@dataclass
class EvalBench:
    """The bot, and what its models were asked by name."""

    home: Path
    bot: Bot
    models: dict[str, ScriptedModel] = field(default_factory=dict)

    async def say(self, text: str, chat: str = "default", person: str = "0") -> str:
        """Say something at the terminal."""
        number = next(_NUMBERS)
        sender = Sender(person, "owner" if person == "0" else "Eve")
        return (await self.bot.ask(Inbound("stdin", f"e{number}", chat, sender, text, "2026-11-21T20:21:00Z"))).text

    async def run(self, name: str = "try", arguments: str = "") -> EvalReport:
        """Run an evaluation, and return its report."""
        text = await self.say(f",eval.run {name} {arguments}", "eval")
        known = await find_evaluation(self.bot.store.fetch, name)
        assert known.started.id in text, text
        return await read_report(self.bot.store.fetch, known)

    async def compare(self, before: str, after: str) -> EvalComparison:
        """Compare two setups."""
        return await compare(self.bot.store.fetch, before, after)

    async def facts(self, name: str = "") -> list[TapeEntry]:
        """The facts of evaluations."""
        found = (await self.bot.store.fetch([TapeQuery(EVALS_TAPE)]))[0]
        return [entry for entry in found if name in ("", entry.name)]

    async def results(self) -> list[EvalCaseEnded]:
        """The results of all evaluations, in the order of the tape."""
        return [EvalCaseEnded.of(entry) for entry in await self.facts("eval/case")]

    def write(self, toml: str, name: str = "try", **scripts: Any) -> None:
        """Write an evaluation into the home, with its scripts."""
        write_eval(self.home, toml, name, **scripts)


def write_eval(home: Path, toml: str, name: str = "try", **scripts: Any) -> None:
    """Write an evaluation into a home, with its scripts by name."""
    folder = home / "evals"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(toml, encoding="utf-8")
    for script, value in scripts.items():
        (folder / f"{script}.json").write_text(json.dumps(value), encoding="utf-8")


def script(**answers: str | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make a script that answers messages with these words."""
    steps = {when: [{"text": text}] if isinstance(text, str) else list(text) for when, text in answers.items()}
    return {"rules": [{"when": when, "steps": each} for when, each in steps.items()]}


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    """Make a step that calls a tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


@asynccontextmanager
async def eval_bench(
    home: Path,
    *sections: Any,
    scripts: Mapping[str, Mapping[str, Any]] | None = None,
    bot: BotSettings = BotSettings.model_construct(),  # noqa: B008 - frozen
    **wrappers: Any,
) -> AsyncIterator[EvalBench]:
    """Open a bot. `scripts` are those of its own models, by name."""
    made: dict[str, ScriptedModel] = {}

    def choose(model: Model) -> Model:
        return made.setdefault(model.name, ScriptedModel((scripts or {}).get(model.name), name=model.name))

    settings = make_settings(*sections, model=ModelSettings(name="scripted"), bot=bot)
    ports = PortWrappers(model=choose, **wrappers)
    async with open_app(settings, Home(home), channel_settings={"write": lambda _: None}, wrappers=ports) as opened:
        yield EvalBench(home, opened, made)
