"""The commands about skills in a shell."""

from __future__ import annotations

from bubbot.command import make_group
from bubbot.features.skills.library import SkillLibrary
from bubbot.features.skills.service import SkillService
from bubbot.features.skills.settings import SkillsSettings
from bubbot.shell_command import CommandContext


async def open_service(context: CommandContext) -> SkillService:
    """Return the running bot's own service, or one over the tapes of the home."""
    if (running := context.service(SkillService)) is not None:
        return running
    section: SkillsSettings = context.settings
    assert context.home is not None
    library = SkillLibrary(context.home, section.folders)
    return SkillService(lambda: library, context.open_tape, is_on=lambda: section.enabled)


COMMANDS = make_group(
    "skills",
    SkillService,
    open_service,
    "Let models use Agent Skills: folders with instructions, a SKILL.md and further files. `[skills] enabled` switches them on; a skill "
    "counts once you accepted it, as its files were then.",
    help_line="add, accept, show and remove skills",
)
