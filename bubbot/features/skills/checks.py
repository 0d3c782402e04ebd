"""What the doctor finds of skills: which are off, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbot.errors import ConfigError, StoreError, TapeCorrupt
from bubbot.features.skills.settings import SkillsSettings
from bubbot.log import printable
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command, shell_quote

if TYPE_CHECKING:
    from bubbot.features.skills.results import SkillRow


async def check_folders(home: HomeReader) -> list[Finding]:
    """Report folders of the settings in which no skill can stand."""
    settings = home.settings
    if not isinstance(settings, SkillsSettings) or not settings.enabled:
        return []
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.features.skills.library import SkillLibrary

    try:
        library = SkillLibrary(home.home, settings.folders)
    except ConfigError as error:
        return [Finding("skills.folders", "problem", str(error), edit_command(home.config))]
    return [
        Finding(
            "skills.no_folder",
            "warning",
            f"[skills] folders has {printable(str(root))}, which is no folder here.",
            edit_command(home.config),
        )
        for root in library.roots[1:]
        if not root.is_dir()
    ]


async def check_skills(home: HomeReader) -> list[Finding]:
    """Report which skills are on, and why the others are off."""
    settings = home.settings
    if not isinstance(settings, SkillsSettings) or not settings.enabled:
        return []
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.features.skills.facts import SKILLS_TAPE
    from bubbot.features.skills.library import SkillLibrary
    from bubbot.features.skills.service import SkillService

    try:
        library = SkillLibrary(home.home, settings.folders)
        async with home.open_tape(SKILLS_TAPE) as tape:
            rows = await SkillService(lambda: library, lambda _: tape, is_on=lambda: True).list_rows()
    except (ConfigError, StoreError, TapeCorrupt):
        return []  # the checks of the folders and of the database report it
    on = [row.name for row in rows if row.status == "on"]
    findings = [Finding("skills.ok", "ok", f"Models can use {len(on)} skills of {len(rows)}.")]
    return [*findings, *(_describe(row, home) for row in rows if row.status != "on")]


def _describe(row: SkillRow, home: HomeReader) -> Finding:
    name, reason = shell_quote(row.name), printable(row.reason.rstrip("."))
    off = f"The skill {printable(row.name)} is off"
    match row.status:
        case "new":
            return Finding("skills.new", "warning", f"{off}: nobody accepted it.", f"bubbot skills show {name}")
        case "changed":
            cause = f"{off}: its files are others than those that were accepted ({reason})."
            return Finding("skills.changed", "warning", cause, f"bubbot skills show {name}")
        case "missing":
            return Finding("skills.missing", "warning", f"{off}: {reason}.", f"bubbot skills remove {name}")
    folder = shell_quote(home.home / row.folder)
    return Finding("skills.unusable", "warning", f"{off}: {reason}.", f"bubbot skills check {folder}")


CHECKS = (Check("the folders of skills", check_folders), Check("skills", check_skills, reads_tapes=True))
