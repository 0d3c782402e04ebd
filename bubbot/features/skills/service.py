"""Skills: the one writer of their facts, what may be used of them now, and the commands of owners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, ConfigError, EntryNotFound, ValueInvalid
from bubbot.features.skills.document import is_skill_name
from bubbot.features.skills.facts import SKILLS_TAPE, SkillInstalled, SkillRemoved
from bubbot.features.skills.folder import SkillFolder, compare_files, decode_text, read_folder
from bubbot.features.skills.library import SkillLibrary
from bubbot.features.skills.results import (
    AcceptSkillArgs,
    AddSkillArgs,
    CheckedSkill,
    CheckSkillArgs,
    ShownFile,
    SkillArgs,
    SkillChange,
    SkillCheck,
    SkillRemoval,
    SkillReport,
    SkillRow,
    SkillStatus,
)
from bubbot.features.skills.state import SKILLS_PROJECTION, SkillsState
from bubbot.folder_digest import PREFIX
from bubbot.ports.channel import Role
from bubbot.tape.fact import Cited
from bubbot.tape.fork import MergeResult
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.provenance import Source, stamp_of
from bubbot.tape.service import TapeService
from bubbot.tool import ADMINISTERS, READS_STORED, CommandHelp, HelpTopic

log = logging.getLogger(__name__)

MAX_DIFFERENCE_LINES = 2_000
"""Lines of the longest text that is compared; a longer one is only reported as changed."""


class SkillService:
    """The skills of a home. Changes are durable when they return."""

    def __init__(
        self,
        find_library: Callable[[], SkillLibrary],
        open_tape: Callable[[str], TapeService],
        *,
        is_on: Callable[[], bool],
        projections: ProjectionRunner | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            find_library: returns the folders of skills under the settings in force.
            is_on: returns true if skills are switched on.
        """
        self._find_library = find_library
        self._tape = open_tape(SKILLS_TAPE)
        projections = projections or ProjectionRunner()
        self._projected = projections.project(SKILLS_PROJECTION, self._tape)
        self._lock = projections.lock(self._tape.name)
        self._is_on = is_on
        self._reported: dict[str, str] = {}

    @property
    def library(self) -> SkillLibrary:
        """The folders of skills under the settings in force."""
        return self._find_library()

    async def catch_up(self) -> SkillsState:
        """Read what was appended since, and return what holds now."""
        return await self._projected.catch_up()

    async def apply_merge(self, merged: MergeResult) -> None:
        """Forget a fact that was erased with the chat in which its skill was proposed."""
        if merged.has_erased:
            await self._projected.load()

    async def list_usable(self) -> Mapping[str, tuple[SkillFolder, SkillInstalled]]:
        """Return the skills that models may use now, by name, as their files are now."""
        state = await self.catch_up()
        return await asyncio.to_thread(self._list_usable, [cited.fact for cited in state.installed])

    def _list_usable(self, facts: Sequence[SkillInstalled]) -> Mapping[str, tuple[SkillFolder, SkillInstalled]]:
        found: dict[str, tuple[SkillFolder, SkillInstalled]] = {}
        for fact in sorted(facts, key=lambda each: each.name):
            status, reason, folder = self._judge(fact)
            if folder is not None and status is SkillStatus.ON:
                found[fact.name] = folder, fact
                self._reported.pop(fact.name, None)
            elif self._reported.get(fact.name) != reason:
                log.warning("a skill is off: %s", status, extra={"action": "skills.off", "skill": fact.name})
                self._reported[fact.name] = reason
        return found

    def _judge(self, fact: SkillInstalled) -> tuple[SkillStatus, str, SkillFolder | None]:
        """Return whether an accepted skill may be used now, more about why not, and its folder if that can be read. It blocks."""
        path = self.library.locate(fact)
        if not self.library.is_trusted(path):
            return SkillStatus.MISSING, f"{path.parent} is not in [skills] folders any more", None
        if not path.is_symlink() and not path.exists():
            return SkillStatus.MISSING, f"{path} is gone", None
        try:
            folder = self.library.look(path)
        except ConfigError as error:
            return SkillStatus.UNUSABLE, str(error), None
        if folder.digest != fact.digest:
            different = ", ".join(f"{name} {change}" for change, name in compare_files(fact.files, folder.files)[:10])
            return SkillStatus.CHANGED, different, folder
        return SkillStatus.ON, "", folder

    async def list_rows(self) -> list[SkillRow]:
        """List all skills, accepted or not, by name. Raise `ConfigError`."""
        state = await self.catch_up()
        facts = {cited.fact.name: cited.fact for cited in state.installed}
        return await asyncio.to_thread(self._list_rows, facts)

    def _list_rows(self, facts: Mapping[str, SkillInstalled]) -> list[SkillRow]:
        paths = self.library.find_all()
        return [self._make_row(name, facts.get(name), paths.get(name))[0] for name in sorted({*facts, *paths})]

    def _make_row(
        self, name: str, fact: SkillInstalled | None, path: Path | None
    ) -> tuple[SkillRow, SkillFolder | None]:
        """Make the row of a skill, and return its folder if that can be read. It blocks."""
        if fact is not None:
            status, reason, folder = self._judge(fact)
            described = fact.description if folder is None else folder.document.description
            digest = folder.digest if folder else ""
            return SkillRow(name, status, described, fact.about, fact.source, fact.folder, digest, reason), folder
        assert path is not None
        where = self.library.name_folder(path)
        try:
            folder = self.library.look(path)
        except ConfigError as error:
            return SkillRow(name, SkillStatus.UNUSABLE, folder=where, reason=str(error)), None
        return SkillRow(name, SkillStatus.NEW, folder.document.description, folder=where, digest=folder.digest), folder

    async def install(
        self,
        folder: SkillFolder,
        *,
        source: Source,
        by: str,
        about: str = "",
        session: str = "",
        turn: str = "",
    ) -> bool:
        """Let models use a skill in a trusted folder, as it was read; return false if they may already, on these terms.

        Args:
            folder: with the contents of its files.
            source: whose words it is.
            by: where it was accepted.
            about: what models are told of it instead of what it says.
            session: the chat in which a model proposed it.
            turn: the turn in which it did.
        """
        document, texts = folder.document, list[str]()
        for content in folder.contents.values():
            if decode_text(content) is not None:
                texts.append(await self._tape.put_blob(content))
        fact = SkillInstalled(
            folder.path.name,
            self.library.name_folder(folder.path),
            folder.digest,
            folder.files,
            tuple(dict.fromkeys(texts)),
            document.description,
            about,
            source,
            by,
            session,
            turn,
        )
        async with self._lock:
            state = await self.catch_up()
            known = state.installed.find(fact.name)
            if known is not None and _terms(known.fact) == _terms(fact):
                return False
            await self._projected.append(fact.to_entry(**stamp_of(source)))
        log.info("skill accepted", extra={"action": "skills.installed", "skill": fact.name})
        return True

    # Commands

    @command(
        "skills add <folder>",
        example="./pdf-forms --mine",
        role=Role.OWNER,
        effect=ADMINISTERS,
    )
    async def add(self, caller: Caller, args: AddSkillArgs) -> SkillChange:
        """Copy the folder of a skill into the home, and let models use it. Look at its files before: what it says, models read."""
        self._require_on()
        folder = await asyncio.to_thread(read_folder, Path(args.folder))
        name = folder.document.name if is_skill_name(folder.document.name) else folder.path.name
        if not is_skill_name(name):
            raise ValueInvalid("skill_name_wrong", name=name)
        path = await asyncio.to_thread(self.library.copy, folder, name)
        return await self._accept(caller, path, mine=args.mine, about=args.about)

    @command(
        "skills list",
        chat=("skills.list", "skills"),
        role=Role.OWNER,
        effect=READS_STORED,
        is_direct=True,
        rows="skills",
        help=CommandHelp(HelpTopic.ADMIN, "The skills, and which are on", (",skills",)),
    )
    async def list_skills(self) -> list[SkillRow]:
        """List the skills in the trusted folders: which models may use, and why the others are off."""
        self._require_on()
        return await self.list_rows()

    @command(
        "skills show <name>",
        chat=("skills.show",),
        form="<name>",
        example="pdf-forms",
        role=Role.OWNER,
        effect=READS_STORED,
        is_direct=True,
        help=CommandHelp(HelpTopic.ADMIN, "A skill, and what changed", (",skills.show pdf-forms",)),
    )
    async def show(self, args: SkillArgs) -> SkillReport:
        """Show a skill whole: what it says and wishes, its files, and what is different since it was accepted."""
        self._require_on()
        fact, path = await self._find(args.name)
        return await self._report(args.name, fact, path)

    @command(
        "skills check [folder]",
        example="./pdf-forms",
        role=Role.OWNER,
        effect=READS_STORED,
    )
    async def check(self, args: CheckSkillArgs) -> SkillCheck:
        """Find what the specification of skills does not allow in a folder, or in all trusted folders."""
        if not args.folder:
            self._require_on()
        return await asyncio.to_thread(self._check, args.folder)

    @command(
        "skills accept <name> [digest]",
        chat=("skills.accept",),
        form="<name> [digest]",
        example="pdf-forms",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        undo="skills remove",
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Let models use a skill as it is now",
            (",skills.accept pdf-forms", ",skills.accept pdf-forms mine=true"),
        ),
    )
    async def accept(self, caller: Caller, args: AcceptSkillArgs) -> SkillChange:
        """Let models use a skill as its files are now, or as they were shown if you give the digest. If one of them changes, the skill is off until you accept it again."""
        self._require_on()
        fact, path = await self._find(args.name)
        found = self.library.locate(fact) if fact is not None else path
        assert found is not None
        return await self._accept(caller, found, mine=args.mine, about=args.about, digest=args.digest)

    @command(
        "skills remove <name>",
        chat=("skills.remove",),
        form="<name>",
        example="pdf-forms",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        help=CommandHelp(HelpTopic.ADMIN, "Take a skill away", (",skills.remove pdf-forms",)),
    )
    async def remove(self, caller: Caller, args: SkillArgs) -> SkillRemoval:
        """Take a skill away from models, and delete its folder if that stands in the home."""
        self._require_on()
        fact, path = await self._find(args.name)
        folder = self.library.locate(fact) if fact is not None else path
        assert folder is not None
        async with self._lock:
            if fact is not None:  # first: a folder that a killed process leaves is off
                await self._projected.append(SkillRemoved(args.name, caller.place))
                log.info("skill removed", extra={"action": "skills.removed", "skill": args.name})
            was_deleted = await asyncio.to_thread(self.library.remove, folder)
        return SkillRemoval(args.name, self.library.name_folder(folder), was_deleted)

    def _require_on(self) -> None:
        if not self._is_on():
            raise CommandRefused("skills_off")

    async def _find(self, name: str) -> tuple[SkillInstalled | None, Path | None]:
        """Return the fact about a skill, and its folder, at least one of both. Raise `ValueInvalid` if there is none."""
        state = await self.catch_up()
        cited: Cited[SkillInstalled] | None = state.installed.find(name)
        path = await asyncio.to_thread(self.library.find, name)
        if cited is None and path is None:
            raise ValueInvalid("skill_unknown", name=name)
        return (cited.fact if cited else None), path

    async def _accept(self, caller: Caller, path: Path, *, mine: bool, about: str, digest: str = "") -> SkillChange:
        if not self.library.is_trusted(path):
            raise ConfigError(
                f"{path.parent} is not in [skills] folders: add it there, or copy the skill (bubbot skills add {path})"
            )
        folder = await asyncio.to_thread(self.library.read, path)
        if not folder.digest.removeprefix(PREFIX).startswith(digest.removeprefix(PREFIX)):
            raise CommandRefused("skill_other_digest", name=path.name, given=digest)
        source = Source.OWN if mine else Source.WORLD
        is_new = await self.install(folder, source=source, by=caller.place, about=" ".join(about.split()))
        document = folder.document
        return SkillChange(
            path.name,
            str(path),
            folder.digest,
            source,
            document.description,
            tuple(map(str, document.problems)),
            changed=is_new,
        )

    async def _report(self, name: str, fact: SkillInstalled | None, path: Path | None) -> SkillReport:
        row, folder = await asyncio.to_thread(self._make_row, name, fact, path)
        if folder is None:
            return SkillReport(row)
        whole = await asyncio.to_thread(self.library.read, folder.path)
        changes = {} if fact is None else {file: change for change, file in compare_files(fact.files, whole.files)}
        files = [ShownFile(file.name, file.size, changes.get(file.name, "")) for file in whole.files]
        files += (
            [ShownFile(file.name, file.size, "missing") for file in fact.files if file.name not in whole.contents]
            if fact
            else []
        )
        document = whole.document
        return SkillReport(
            row,
            document.license,
            document.compatibility,
            document.allowed_tools,
            tuple(sorted(files, key=lambda each: each.name)),
            tuple(map(str, document.problems)),
            "" if fact is None else await self._find_difference(fact, whole, changes),
            document.body,
        )

    async def _find_difference(self, fact: SkillInstalled, folder: SkillFolder, changes: Mapping[str, str]) -> str:
        """Return the lines of texts that are different since a skill was accepted."""
        digests, lines = {file.name: file.sha256 for file in fact.files}, list[str]()
        for name in sorted(changes):
            before = await self._read_kept(fact, digests[name]) if name in digests else ""
            after = decode_text(folder.contents[name]) if name in folder.contents else ""
            if before is None or after is None:
                continue  # no text; that it changed stands beside its name
            old, new = before.splitlines(), after.splitlines()
            if max(len(old), len(new)) <= MAX_DIFFERENCE_LINES:
                lines += unified_diff(old, new, f"accepted/{name}", f"now/{name}", lineterm="")
        return "\n".join(lines)

    async def _read_kept(self, fact: SkillInstalled, digest: str) -> str | None:
        """Return the text of an accepted file; None if it is not kept."""
        if digest not in fact.texts:
            return None
        try:
            return decode_text(await self._tape.get_blob(digest))
        except EntryNotFound:
            return None

    def _check(self, folder: str) -> SkillCheck:
        paths = [Path(folder)] if folder else self.library.find_all().values()
        return SkillCheck(tuple([_check_folder(path) for path in paths]))


def _check_folder(path: Path) -> CheckedSkill:
    try:
        found = read_folder(path).document.problems
    except ConfigError as error:
        return CheckedSkill(str(path), (str(error),))
    return CheckedSkill(
        str(path),
        tuple(str(each) for each in found if not each.is_warning),
        tuple(str(each) for each in found if each.is_warning),
    )


def _terms(fact: SkillInstalled) -> tuple[object, ...]:
    """Return what was accepted, and on which terms."""
    return fact.digest, fact.folder, fact.about, fact.source
