"""Folders of skills, and a bot that may use them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bubbot.features.skills.facts import SKILLS_TAPE
from bubbot.features.skills.results import SkillChange
from bubbot.features.skills.service import SkillService
from bubbot.features.skills.settings import SkillsSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelRequest
from bubbot.ports.settings import SettingsSection
from bubbot.tape.entry import JsonObject
from bubbot.tape.query import TapeQuery
from tests.approving import ApprovalBench, approving
from tests.callers import by, run
from tests.e2e import inside

TEXT = "# How\n\nAsk for the form, then fill it in."
PLAIN = "Fill in PDF forms. Use when somebody sends a form."


def write_skill(
    root: Path,
    name: str = "pdf-forms",
    description: str = PLAIN,
    body: str = TEXT,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write the folder of a skill below a root, and return it."""
    folder = root / name
    for path, text in {
        "SKILL.md": f"---\nname: {name}\ndescription: {description}\n---\n{body}\n",
        **(files or {}),
    }.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def shell(home: Path, *words: str | Path) -> str:
    """Run `bubbot skills …` while no bot runs, and return what it said."""
    done = inside.run(home, "skills", *map(str, words))
    return (done.stdout + done.stderr).decode()


def switch_on(home: Path, *folders: Path) -> None:
    """Switch skills on for a shell."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ", ".join(f'"{folder}"' for folder in folders)
    (home / "config.toml").write_text(f'[skills]\nenabled = true\nfolders = [{names}]\n[model]\nname = "scripted"\n')


class SkillBench(ApprovalBench):
    """A bot with skills."""

    home: Path
    model: ScriptedModel

    async def skill_facts(self, name: str = "skills/installed") -> list[JsonObject]:
        """The data of the facts of this name that are not erased."""
        entries = (await self.app.store.fetch([TapeQuery(SKILLS_TAPE)]))[0]
        return [entry.data for entry in entries if entry.name == name and not entry.erased]

    @property
    def service(self) -> SkillService:
        """The service of the running bot."""
        (feature,) = [each for each in self.app.features.lasting if each.name == "skills"]
        service: Any = feature.services[0]
        found: SkillService = service
        return found

    async def add(self, folder: Path, *, mine: bool = False, about: str = "") -> SkillChange:
        """Add a skill as an owner does in a shell."""
        return await run(self.service.add, by("terminal"), str(folder), mine=mine, about=about)

    @property
    def systems(self) -> list[str]:
        """The system prompts of all requests."""
        return [request.system for request in self.model.requests]


@asynccontextmanager
async def skill_bench(
    home: Path,
    model: ScriptedModel,
    *,
    folders: Sequence[Path] = (),
    sections: Sequence[SettingsSection] = (),
    **options: Any,
) -> AsyncIterator[SkillBench]:
    """Open a bot with skills; its home has `skills`."""
    section = SkillsSettings(enabled=True, folders=[str(folder) for folder in folders])
    async with approving(home, model, sections=[section, *sections], **options) as bench:
        made = SkillBench(bench.app, bench.channel, bench.done)
        made.home, made.model = home, model
        yield made


def find_catalogue(request: ModelRequest) -> str:
    """The catalogue in a request; empty if it has none."""
    return request.system.partition("<skills>")[2].partition("</skills>")[0]
