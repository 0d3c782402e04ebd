"""What models do with skills: find one, open it, and propose a new one. People may type the first two as well."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from bubbot.command import Caller, Surface, command, make_tools
from bubbot.errors import CommandFailed, CommandRefused, ConfigError, ValueInvalid
from bubbot.features.skills.catalogue import FIND_TOOL, OPEN_TOOL
from bubbot.features.skills.document import SKILL_FILE, SkillDocument, is_skill_name, read_document, write_document
from bubbot.features.skills.facts import SkillFile, SkillInstalled
from bubbot.features.skills.folder import SkillFolder, decode_text, read_file
from bubbot.features.skills.results import FindSkillArgs, OpenSkillArgs, ProposeSkillArgs
from bubbot.features.skills.service import SkillService
from bubbot.folder_digest import join_digests
from bubbot.formatting import clean, clean_label, format_bytes, replace_controls
from bubbot.log import printable
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.tape.entry import message
from bubbot.tape.provenance import Source, most_foreign, note_source, stamp_of
from bubbot.tool import ADMINISTERS, CallPlan, CommandHelp, Effect, EffectKind, HelpTopic, Tool

READS_SKILLS = Effect(EffectKind.READ, Source.PEOPLE, has_network=False)
"""The tool answers with words of a skill; whose they are, it says of each call."""
PROPOSE_TOOL = "skill.propose"
MAX_FOUND = 20
MAX_TOLD_CHARS = 600
"""Characters of what a skill says of itself, where it is found."""
_WORD = re.compile(r"[^\W_]+")


class OpenedSkill(Struct, frozen=True):
    """A file of a skill.

    Attributes:
        name: of the skill.
        file: the file.
        text: what it says.
        source: whose words it is.
        files: further files of the skill, with their bytes.
        folder: where the skill stands, if its programs can run here; else empty.
    """

    name: str
    file: str
    text: str
    source: Source
    files: tuple[SkillFile, ...] = ()
    folder: str = ""

    def describe(self, caller: Caller) -> str:
        """Show it below a line about its source, indented: none of its lines can look like that line."""
        say = caller.result_texts.say
        lines = [f"[{say(f'OpenedSkill.{self.source}', name=self.name, file=_in_brackets(self.file))}]"]
        lines.append(_indent(self.text))
        if self.files:
            names = ", ".join(f"{printable(file.name)} ({format_bytes(file.size)})" for file in self.files)
            lines.append(f"[{say('skill_further_files', files=_in_brackets(names))}]")
            name = "skill_can_run" if self.folder else "skill_cannot_run"
            lines.append(f"[{say(name, folder=_in_brackets(self.folder))}]")
        return "\n".join(lines)


class FoundSkill(Struct, frozen=True):
    """A skill that may be opened.

    Attributes:
        name: of the skill.
        told: what it says of itself, or its owner.
    """

    name: str
    told: str


class FoundSkills(Struct, frozen=True):
    """Skills that may be opened.

    Attributes:
        skills: the best ones first.
        total: how many there are in all.
    """

    skills: tuple[FoundSkill, ...]
    total: int

    def describe(self, caller: Caller) -> str:
        """List them below a line about their source."""
        say = caller.result_texts.say
        if not self.skills:
            return say("FoundSkills.none", count=self.total)
        lines = [f"[{say('FoundSkills', shown=len(self.skills), total=self.total)}]"]
        return "\n".join([*lines, *(f"  {each.name}: {each.told}" for each in self.skills)])


class ProposedSkill(Struct, frozen=True):
    """A skill that a model wrote, and a person allowed.

    Attributes:
        name: of the skill.
        folder: where it stands.
        digest: the one over its files.
    """

    name: str
    folder: str
    digest: str


class SkillTools:
    """Skills, for models and for people in chats."""

    def __init__(self, service: SkillService, can_run: Callable[[Turn], bool]) -> None:
        """Build them. `can_run` returns true if the model of a turn may run programs in a sandbox."""
        self._service = service
        self._can_run = can_run

    @command(
        "skill find",
        chat=(FIND_TOOL,),
        in_shell=False,
        effect=READS_SKILLS,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Skills for a task", (",skill.find invoices",)),
    )
    async def find(self, args: FindSkillArgs) -> FoundSkills:
        """Find skills by words about a task, with what they are for."""
        usable = await self._service.list_usable()
        facts = [fact for _, fact in usable.values()]
        found = _rank(facts, args.words) if args.words.strip() else facts
        shown = found[:MAX_FOUND]
        note_source(most_foreign(*(Source.OWN if fact.about else fact.source for fact in shown)))
        return FoundSkills(tuple([FoundSkill(fact.name, _tell(fact)) for fact in shown]), len(facts))

    @command(
        "skill open",
        chat=(OPEN_TOOL, "skill"),
        in_shell=False,
        form="<name> [file]",
        effect=READS_SKILLS,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Put a skill before the bot", (",skill pdf-forms",)),
    )
    async def open(self, caller: Caller, args: OpenSkillArgs) -> OpenedSkill:
        """Open the instructions of a skill, or another of its files."""
        usable = await self._service.list_usable()
        if args.name not in usable:
            raise await self._refuse(args.name)
        folder, fact = usable[args.name]
        note_source(fact.source)
        name = args.file.strip() or SKILL_FILE
        file = next((each for each in fact.files if each.name == name), None)
        if file is None:
            raise ValueInvalid("skill_no_file", file=name, name=fact.name)
        content = await asyncio.to_thread(_read_exactly, folder, file)
        text = decode_text(content)
        if text is None:
            raise CommandRefused("skill_not_text", file=name, size=format_bytes(file.size))
        opened, turn = OpenedSkill(fact.name, name, text, fact.source), caller.required_turn
        if name == SKILL_FILE:
            others = tuple(each for each in fact.files if each.name != SKILL_FILE)
            path = str(folder.path) if self._can_run(turn) else ""
            opened = OpenedSkill(fact.name, name, folder.document.body or text, fact.source, others, path)
        if turn.runs_command:  # no model is shown what commands answer
            shown = opened.describe(replace(caller, surface=Surface.MODEL, turn=None, texts=caller.texts.english))
            await turn.tape.append([message("user", shown, origin="system", **stamp_of(fact.source))])
        return opened

    @command(
        "skill propose",
        chat=(PROPOSE_TOOL,),
        in_shell=False,
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        for_model=True,
        help=CommandHelp(
            HelpTopic.OTHER,
            "Write a new skill",
            (',skill.propose name=greet description="Greet guests" body="Say their name."',),
        ),
    )
    async def propose(self, caller: Caller, args: ProposeSkillArgs) -> ProposedSkill:
        """Write down as a skill how a task was done, for the next time. The owner is shown the whole text, and has to say yes."""
        turn, folder = caller.required_turn, _make_folder(args)
        if await self._check_proposal(args):  # an attempt that was cut off has written it
            return ProposedSkill(args.name, str(self._service.library.own_root / args.name), folder.digest)
        try:
            path = await asyncio.to_thread(self._service.library.copy, folder, args.name)
            whole = await asyncio.to_thread(self._service.library.read, path)
        except ConfigError as error:
            raise CommandFailed("skill_not_written", reason=str(error)) from error
        source = most_foreign(turn.tape.source, turn.shown.source)
        await self._service.install(whole, source=source, by=caller.place, session=turn.session, turn=turn.root.id)
        return ProposedSkill(args.name, str(path), whole.digest)

    async def plan_propose(self, _turn: Turn, args: ProposeSkillArgs) -> CallPlan:
        """Show the whole text, and where it would stand."""
        await self._check_proposal(args)
        path = self._service.library.own_root / args.name / SKILL_FILE
        return CallPlan(ADMINISTERS, f"{path}\n\n{write_document(args.name, args.description, args.body)}")

    async def _check_proposal(self, args: ProposeSkillArgs) -> bool:
        """Return true if exactly this skill is accepted already. Raise `CommandRefused` if it cannot be written like that."""
        if not is_skill_name(args.name):
            raise ValueInvalid("skill_name_wrong", name=args.name)
        problems = [str(each) for each in _read_proposal(args).problems if not each.is_warning]
        if problems or not args.body.strip():
            raise CommandRefused("skill_text_wrong", problems=" ".join(problems) or "body")
        known = (await self._service.catch_up()).installed.find(args.name)
        digests = {known.fact.digest} if known else set[str]()
        if (path := await asyncio.to_thread(self._service.library.find, args.name)) is not None:
            digests.add(await asyncio.to_thread(self._find_digest, path))
        if digests - {_make_folder(args).digest}:
            raise ValueInvalid("skill_exists", name=args.name)
        return known is not None and path is not None

    def _find_digest(self, path: Path) -> str:
        try:
            return self._service.library.look(path).digest
        except ConfigError:
            return ""

    async def _refuse(self, name: str) -> CommandRefused:
        """Return why a skill cannot be opened."""
        state = await self._service.catch_up()
        if name not in state.installed:
            return ValueInvalid("skill_not_here", name=name)
        return CommandRefused("skill_is_off", name=name)


def _read_exactly(folder: SkillFolder, file: SkillFile) -> bytes:
    """Read a file that has the accepted digest. Raise `CommandRefused` if it has another one now."""
    try:
        content = read_file(folder.path, file.name)
    except ConfigError as error:
        raise CommandRefused("skill_is_off", name=folder.path.name) from error
    if sha256(content).hexdigest() != file.sha256:
        raise CommandRefused("skill_is_off", name=folder.path.name)
    return content


def _read_proposal(args: ProposeSkillArgs) -> SkillDocument:
    text = write_document(args.name, args.description, args.body)
    return read_document(text.encode(errors="replace"), args.name)


def _make_folder(args: ProposeSkillArgs) -> SkillFolder:
    """Make the folder of a proposed skill, which stands nowhere yet."""
    content = write_document(args.name, args.description, args.body).encode()
    file = SkillFile(SKILL_FILE, len(content), sha256(content).hexdigest())
    path = Path(args.name)
    digest = join_digests(path, [(file.name, file.sha256)])
    return SkillFolder(
        path, _read_proposal(args), (file,), digest, {SKILL_FILE: content}, frozenset(), (), is_settled=False
    )


def skill_tools(service: SkillService, can_run: Callable[[Turn], bool]) -> list[Tool]:
    """Build the tools; see `SkillTools`."""
    commands = SkillTools(service, can_run)
    return make_tools(
        SkillTools,
        lambda: commands,
        skill_find={"is_rare": True},
        skill_propose={"plan": commands.plan_propose, "is_rare": True},
    )


def _tell(fact: SkillInstalled) -> str:
    told = escape_tags(clean_label(fact.about or fact.description))
    return told if len(told) <= MAX_TOLD_CHARS else f"{told[: MAX_TOLD_CHARS - 1]}…"


def _rank(facts: Sequence[SkillInstalled], words: str) -> list[SkillInstalled]:
    """Return the skills that have any of the words, those that have most first; a word in the name counts twice."""
    wanted = {word for word in _WORD.findall(words.casefold()) if len(word) > 1} or {words.strip().casefold()}

    def score(fact: SkillInstalled) -> int:
        name, told = fact.name.casefold(), f"{fact.about} {fact.description}".casefold()
        return sum(2 * (word in name) + (word in told) for word in wanted)

    scored = sorted(facts, key=score, reverse=True)
    return [fact for fact in scored if score(fact)]


def _indent(text: str) -> str:
    plain = escape_tags(replace_controls(clean(text)))
    return "\n".join(f"  {line}" if line else "" for line in plain.split("\n"))


def _in_brackets(text: str) -> str:
    return clean_label(text)
