"""What the commands about skills take, and what they say."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.skills.document import MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS
from bubbot.folder_digest import PREFIX
from bubbot.formatting import clean_label, escape_markdown, fence, format_bytes
from bubbot.log import printable
from bubbot.shell_command import Argument
from bubbot.tape.provenance import Source

MAX_ABOUT_CHARS = 400
MAX_SHOWN_CHARS = 12_000
DIGITS_SHOWN = 32
"""Hex digits of a digest in a command that people copy: 128 bits, which nobody finds a second folder for."""
"""Characters of a text, and of a difference, that `show` shows."""


class SkillStatus(StrEnum):
    """Whether models may use a skill, and if not, why.

    `on`: they may. `new`: nobody accepted it. `changed`: its files are others than those that were accepted. `missing`: they are gone.
    `unusable`: the folder cannot be read as a skill.
    """

    ON = "on"
    NEW = "new"
    CHANGED = "changed"
    MISSING = "missing"
    UNUSABLE = "unusable"


def _find_path(text: str) -> str:
    """Return a folder that is typed in a shell as it is from everywhere."""
    return os.path.abspath(os.path.expanduser(text)) if text else ""  # noqa: PTH100, PTH111 - a user that there is not is no error of it


NameArg = Annotated[str, Meta(description="the name of the skill", min_length=1, max_length=MAX_NAME_CHARS)]
MineArg = Annotated[
    bool, Meta(description="you wrote it yourself: turns that read it stay as trusted as your own words")
]
AboutArg = Annotated[
    str,
    Meta(
        description="what models are told of it, in your own words, instead of what it says itself",
        max_length=MAX_ABOUT_CHARS,
    ),
    Argument(metavar="TEXT"),
]


class AddSkillArgs(Args, frozen=True):
    """A folder to copy."""

    folder: Annotated[
        str,
        Meta(description="the folder of the skill, with its SKILL.md", min_length=1, max_length=4_000),
        Argument(metavar="FOLDER", parse=_find_path),
    ]
    mine: MineArg = False
    about: AboutArg = ""


class AcceptSkillArgs(Args, frozen=True):
    """A skill to accept as it is now."""

    name: NameArg
    digest: Annotated[
        str,
        Meta(
            description="the digest that was shown, at least 32 digits of it: what is accepted is what you saw",
            pattern=r"^((sha256:)?[0-9a-f]{32,64})?\Z",
            extra={"form": "32 to 64 digits of a digest in hex"},
        ),
    ] = ""
    mine: MineArg = False
    about: AboutArg = ""


class SkillArgs(Args, frozen=True):
    """A skill."""

    name: NameArg


class CheckSkillArgs(Args, frozen=True):
    """What to check."""

    folder: Annotated[
        str,
        Meta(description="the folder of a skill (default: all skills in the trusted folders)", max_length=4_000),
        Argument(metavar="FOLDER", parse=_find_path),
    ] = ""


class SkillRow(Struct, frozen=True):
    """A skill, and whether models may use it.

    Attributes:
        name: of the skill.
        status: whether models may use it, and if not, why.
        description: what it says of itself.
        about: what the owner says of it instead; empty for nothing.
        source: whose words it is: `own`, `people` or `world`; empty if nobody accepted it.
        folder: where it stands.
        digest: the one over its files now; empty if they cannot be read.
        reason: more about why it is off; empty if there is nothing more.
    """

    name: str
    status: SkillStatus
    description: str = ""
    about: str = ""
    source: Source | None = None
    folder: str = ""
    digest: str = ""
    reason: str = ""

    def values(self, caller: Caller) -> dict[str, str]:
        """Return the values of its sentence."""
        texts = caller.result_texts
        told = _tell(clean_label(self.about or self.description or self.reason, 200), caller)
        return {"name": _tell(self.name, caller), "status": texts.say(f"skill_status_{self.status}"), "told": told}


class SkillChange(Struct, frozen=True):
    """A skill that models may use from now on.

    Attributes:
        name: of the skill.
        path: where it stands.
        digest: the one over its files.
        source: whose words it is.
        description: what it says of itself.
        warnings: what the specification does not allow, or advises against.
        changed: false if it was accepted as it is before.
    """

    name: str
    path: str
    digest: str
    source: Source
    description: str
    warnings: tuple[str, ...] = ()
    changed: bool = True

    def describe(self, caller: Caller) -> str:
        """Say it, with what is wrong with it."""
        say = caller.result_texts.say
        name = "SkillChange" if self.changed else "SkillChange.same"
        lines = [say(name, name=self.name, path=printable(self.path), digest=self.digest)]
        lines.append(say(f"skill_source_{self.source}"))
        if self.description:
            lines.append(say("skill_says", description=_tell(clean_label(self.description), caller)))
        return "\n".join([*lines, *(_tell(each, caller) for each in self.warnings)])


class SkillRemoval(Struct, frozen=True):
    """A skill that models may not use any more.

    Attributes:
        name: of the skill.
        path: where it stood, or stands still.
        was_deleted: its folder is gone: it stood in the home.
    """

    name: str
    path: str
    was_deleted: bool

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "deleted" if self.was_deleted else "kept"


class ShownFile(Struct, frozen=True):
    """A file of a skill.

    Attributes:
        name: below the folder.
        size: its bytes.
        change: `added`, `changed` or `missing` since the skill was accepted; empty if it is as it was.
    """

    name: str
    size: int
    change: str = ""


class SkillReport(Struct, frozen=True):
    """A skill, whole.

    Attributes:
        row: the skill, and whether models may use it.
        license: as it says.
        compatibility: what it needs, as it says.
        allowed_tools: the tools that it wishes to be allowed; a wish only.
        files: all files.
        warnings: what the specification does not allow, or advises against.
        difference: the lines that are different since it was accepted.
        body: its text.
    """

    is_text: ClassVar = True
    row: SkillRow
    license: str = ""
    compatibility: str = ""
    allowed_tools: str = ""
    files: tuple[ShownFile, ...] = ()
    warnings: tuple[str, ...] = ()
    difference: str = ""
    body: str = ""

    def describe(self, caller: Caller) -> str:
        """Say all of it."""
        say, row = caller.result_texts.say, self.row
        lines = [say("SkillReport", **row.values(caller), folder=printable(row.folder))]
        if row.reason:
            lines.append(_tell(row.reason, caller))
        if row.source is not None:
            lines.append(say(f"skill_source_{row.source}"))
        told = {
            "skill_description": row.description,
            "skill_license": self.license,
            "skill_compatibility": self.compatibility,
            "skill_about": row.about,
            "skill_wishes": self.allowed_tools,
        }
        lines += [say(name, value=_tell(clean_label(value), caller)) for name, value in told.items() if value]
        lines += [_tell(each, caller) for each in self.warnings]
        for file in self.files:
            change = f", {say(f'skill_file_{file.change}')}" if file.change else ""
            lines.append(f"  {_tell(file.name, caller)} ({format_bytes(file.size)}{change})")
        if self.difference:
            lines += ["", say("skill_difference"), _quote(self.difference, caller)]
        if self.body:
            lines += ["", _quote(self.body, caller)]
        if row.status in (SkillStatus.NEW, SkillStatus.CHANGED):
            lines += ["", say("skill_may_accept", command=_format_accept(caller, row))]
        return "\n".join(lines)


def _tell(text: str, caller: Caller) -> str:
    """Return words of a skill on one line, in which nothing hides, and in a chat nothing counts as Markdown."""
    return printable(text) if caller.turn is None else escape_markdown(text)


def _format_accept(caller: Caller, row: SkillRow) -> str:
    """Return the command that accepts what is shown, and nothing else that may be there by then."""
    what = f"{row.name} {row.digest.removeprefix(PREFIX)[:DIGITS_SHOWN]}"
    if caller.turn is None:
        return f"bubbot skills accept {what}"
    return f"{caller.texts.format_commands(',skills.accept')} {what}"


def _quote(text: str, caller: Caller) -> str:
    """Return a text as it is, up to its limit; in a chat within marks that it cannot close, so that none of it counts as Markdown."""
    shown = text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
    shown = "\n".join(printable(line, keep="\t") for line in shown.split("\n"))
    if caller.turn is None:
        return shown
    return fence(shown)


class CheckedSkill(Struct, frozen=True):
    """What is wrong with a skill.

    Attributes:
        folder: where it stands.
        problems: what the specification does not allow; none for a valid one.
        warnings: what it advises against, and what is read leniently.
    """

    folder: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class SkillCheck(Struct, frozen=True):
    """What is wrong with skills.

    Attributes:
        skills: those that were looked at.
    """

    is_text: ClassVar = True
    skills: tuple[CheckedSkill, ...]

    @property
    def exit_code(self) -> int:
        """1 if one is not valid."""
        return int(any(each.problems for each in self.skills))

    def describe(self, caller: Caller) -> str:
        """Say it for each."""
        say, lines = caller.result_texts.say, list[str]()
        for each in self.skills:
            name = "skill_invalid" if each.problems else "skill_valid"
            lines.append(say(name, folder=printable(each.folder)))
            lines += [f"  {printable(text)}" for text in (*each.problems, *each.warnings)]
        return "\n".join(lines) or say("SkillRow.none")


class FindSkillArgs(Args, frozen=True):
    """What to look for."""

    words: Annotated[str, Meta(description="words about the task; none: all skills", max_length=400)] = ""


class OpenSkillArgs(Args, frozen=True):
    """What to open."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    file: Annotated[str, Meta(description="default: its instructions", max_length=1_000)] = ""


class ProposeSkillArgs(Args, frozen=True):
    """A skill to write."""

    name: Annotated[
        str,
        Meta(description="small letters, digits and single hyphens", min_length=1, max_length=MAX_NAME_CHARS),
    ]
    description: Annotated[
        str,
        Meta(description="what it does, and when to use it", min_length=1, max_length=MAX_DESCRIPTION_CHARS),
    ]
    body: Annotated[str, Meta(description="the instructions, as Markdown", min_length=1, max_length=20_000)]
