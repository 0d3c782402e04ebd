"""The facts on the tape of skills. They hold no name of a person: who accepted a skill is on the tape of that chat."""

from __future__ import annotations

from msgspec import Struct

from bubbot.tape.fact import Fact
from bubbot.tape.provenance import Source
from bubbot.tape.references import BlobDigest, SessionId

SKILLS_TAPE = "bubbot/skills"
"""The tape of the deployment with what is known of skills."""


class SkillFile(Struct, frozen=True):
    """A file of a skill: its name below the folder, its bytes, and its digest in hex."""

    name: str
    size: int
    sha256: str


class SkillInstalled(Fact):
    """An owner lets models use a skill, as its files are now. A later one of the same name takes its place.

    Attributes:
        name: of the skill.
        folder: where it stands; inside the home from there.
        digest: the one over all files, as `sha256sum FILE... | sha256sum` computes it.
        files: all files.
        texts: the digests of those that are kept with this tape, so that a change can be shown.
        description: what it says of itself.
        about: what the owner says of it instead; empty for nothing.
        source: whose words it is made of.
        by: where it was accepted: `terminal`, or a channel.
        session: the chat in which a model proposed it; empty if none did.
        turn: the turn that wrote it there.
    """

    EVENTS = ("skills/installed",)
    name: str
    folder: str
    digest: str
    files: tuple[SkillFile, ...]
    texts: tuple[BlobDigest, ...]
    description: str
    about: str
    source: Source
    by: str
    session: SessionId = ""
    turn: str = ""

    @property
    def subject(self) -> str:
        """The skill."""
        return self.name


class SkillRemoved(Fact):
    """An owner takes a skill away from models.

    Attributes:
        name: of the skill.
        by: where it was removed, as when it was accepted.
    """

    EVENTS = ("skills/removed",)
    name: str
    by: str

    @property
    def subject(self) -> str:
        """The skill."""
        return self.name


FACTS: tuple[type[Fact], ...] = (SkillInstalled, SkillRemoved)
SESSION_EVENTS = SkillInstalled.EVENTS
