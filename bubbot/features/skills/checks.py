"""What the doctor finds of skills: which are off, and why."""

from __future__ import annotations

from bubbot.errors import ConfigError, StoreError, TapeCorrupt
from bubbot.features.skills.facts import SKILLS_TAPE
from bubbot.features.skills.settings import SkillsSettings
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command

_COMMANDS = {
    "new": "bubbot skills show {name}",
    "changed": "bubbot skills show {name}",
    "missing": "bubbot skills remove {name}",
    "unusable": "bubbot skills check {folder}",
}
_CAUSES = {
    "new": "The skill {name} is off: nobody accepted it.",
    "changed": "The skill {name} is off: its files are others than those that were accepted ({reason}).",
    "missing": "The skill {name} is off: {reason}.",
    "unusable": "The skill {name} is off: {reason}.",
}


async def check_skills(home: HomeReader) -> list[Finding]:
    """Report which skills are on, and why the others are off."""
    settings = home.settings
    if not isinstance(settings, SkillsSettings) or not settings.enabled:
        return []
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.features.skills.library import SkillLibrary
    from bubbot.features.skills.service import SkillService
    from bubbot.log import printable
    from bubbot.ports.checks import shell_quote

    try:
        library = SkillLibrary(home.home, settings.folders)
        async with home.open_tape(SKILLS_TAPE) as tape:
            rows = await SkillService(library, lambda _: tape, is_on=lambda: True).list_rows()
    except ConfigError as error:
        return [Finding("skills.folders", "problem", str(error), edit_command(home.config))]
    except (StoreError, TapeCorrupt):
        return []  # the check of the database reports it
    on = [row.name for row in rows if row.status == "on"]
    findings = [Finding("skills.ok", "ok", f"Models can use {len(on)} skills of {len(rows)}.")]
    for row in rows:
        if row.status == "on":
            continue
        cause = _CAUSES[row.status].format(name=printable(row.name), reason=printable(row.reason.rstrip(".")))
        fix = _COMMANDS[row.status].format(
            name=shell_quote(row.name), folder=shell_quote(library.own_root.parent / row.folder)
        )
        findings.append(Finding(f"skills.{row.status}", "warning", cause, fix))
    findings += [
        Finding(
            "skills.no_folder",
            "warning",
            f"[skills] folders has {root}, which is no folder here.",
            edit_command(home.config),
        )
        for root in library.roots[1:]
        if not root.is_dir()
    ]
    return findings


CHECKS = (Check("skills", check_skills),)
