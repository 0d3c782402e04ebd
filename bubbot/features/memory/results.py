"""What the commands of memory return: the contract of `--json`, and what chats and shells are told of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct

from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.views import MemorySnapshot, format_memory_page, recall
from bubbot.features.memory.zone import format_versions
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.command import Caller

ADVISED_MAX_BYTES = 4096
SHOWN_CHARS = 2_000
"""Characters of a long-term memory that `memory.show` prints; `memory.recall` prints all."""


class MemoryResult(Struct, frozen=True):
    """What a session remembers.

    Attributes:
        session: the session, as it was named; `user CHANNEL:ID` or `workspace` for other memory.
        memory: the newest version.
        versions: the numbers of the versions on the tape, in ascending order.
    """

    is_text: ClassVar = True
    session: str
    memory: MemorySnapshot
    versions: tuple[int, ...]


class MemoryShown(MemoryResult, frozen=True, kw_only=True):
    """A memory as it is shown.

    Attributes:
        scope: whose it is.
        reference: the words that name it in a shell.
        settings: the settings of memory.
        further: the other memories that are shown with it.
    """

    scope: Scope
    reference: str
    settings: MemorySettings
    further: tuple[MemoryShown, ...] = ()

    def describe(self, caller: Caller) -> str:
        """Write the whole memory for a shell, an overview of each for a chat."""
        texts = caller.texts
        if caller.turn is not None:
            return "\n".join(
                [*(each.write_overview(texts) for each in (self, *self.further)), texts.say("memory_recall")]
            )
        text = format_memory_page(self.memory)
        if self.versions:
            versions = format_versions(self.versions, texts)
            text += "\n" + texts.say("memory_versions@shell", versions=versions, reference=self.reference)
        return text.removesuffix("\n")

    def write_overview(self, texts: Texts) -> str:
        """Say how much it holds, and which versions there are."""
        memory = self.memory
        lines = [texts.say("memory_shown", cited=cite(self.scope, memory, texts))]
        lines += [texts.say("memory_long_term", size=describe_size(memory.long_term, texts))]
        text = memory.long_term.strip()
        lines += [text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"] if text else []
        dates = ", ".join(note.date for note in memory.dailies)
        notes = "\n".join(note.content for note in memory.dailies)
        days = texts.say("days", count=len(memory.dailies))
        days = texts.say("days_listed", days=days, listed=dates) if dates else days
        lines += [texts.say("memory_notes", days=days, size=describe_size(notes, texts))]
        kept = texts.say("memory_kept", count=self.settings.retention_days)
        lines += [texts.say("memory_reach", count=self.settings.recent_days, kept=kept)]
        if self.versions:
            versions = format_versions(self.versions, texts)
            lines += [texts.say("memory_versions", versions=versions, scope=scope_option(self.scope))]
        return "\n".join(lines)


class MemoryChange(Struct, frozen=True):
    """A change of what a session remembers.

    Attributes:
        session: the session, as it was named; `user CHANNEL:ID` or `workspace` for other memory.
        changed: false if nothing changed.
        memory: the version that counts now.
        previous: the number of the version before; 0 if there was none.
        removed: lines that are no longer there.
        left_out: names of files that are not memory, of an import.
    """

    is_text: ClassVar = True
    session: str
    changed: bool
    memory: MemorySnapshot
    previous: int
    removed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class MemoryChanged(MemoryChange, frozen=True, kw_only=True):
    """A change with what is told of it.

    Attributes:
        deed: what was done.
        scope: whose memory it is.
        reference: the words that name it in a shell.
        before: what was remembered before.
        lost: the lines that went.
        notes: further sentences, which the command adds.
        day: the day of the note that was added to.
        number: the version that was brought back.
        text: what was to be forgotten.
    """

    deed: Literal["remembered", "saved", "noted", "forgot", "restored", "cleared", "imported"]
    scope: Scope
    reference: str
    before: MemorySnapshot
    lost: tuple[str, ...] = ()
    notes: str = ""
    day: str = ""
    number: int = 0
    text: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if there was nothing to forget."""
        return 1 if self.deed == "forgot" and not self.lost else 0

    def describe(self, caller: Caller) -> str:
        """Say what has changed, and how to take it back."""
        if caller.turn is None:
            return self._describe_in_shell(caller.texts)
        texts = caller.texts
        cited, version = cite(self.scope, self.memory, texts), name_version(self.scope, self.memory, texts)
        way_back = undo_hint(self.scope, self.before, texts)
        if self.deed == "forgot" and not self.lost:
            return texts.say("forgot_nothing", text=repr(self.text), cited=cited) + self.notes
        if self.deed == "forgot":
            lines = bullet_list(self.lost)
            return texts.say("forgot", count=len(self.lost), version=version, lines=lines, way_back=way_back)
        if self.deed == "noted":
            answer = texts.say("note_added", day=self.day, version=version) + self.notes
            content = next((note.content for note in self.memory.dailies if note.date == self.day), "")
            return answer + _advise("note_large", content, texts)
        if self.deed == "cleared" and not self.changed:
            return texts.say("cleared_already", cited=cited)
        if self.deed == "cleared":
            what = describe_content(self.before, texts)
            return texts.say("cleared", version=version, what=what, way_back=way_back)
        if self.deed == "restored":
            if not self.changed:
                return texts.say("restored_same", number=self.number, cited=cited)
            return texts.say("restored", number=self.number, version=version, way_back=way_back)
        if self.deed == "remembered":
            return texts.say("memory_saved", version=version)
        if not self.changed:
            return texts.say("memory_same", cited=cited)
        answer = texts.say("memory_saved", version=version)
        if self.lost:
            answer += texts.say("memory_lost", lines=bullet_list(self.lost))
            answer += texts.say("memory_lost_hint", way_back=way_back)
        return answer + _advise("memory_large", self.memory.long_term, texts)

    def _describe_in_shell(self, texts: Texts) -> str:
        memory, before = self.memory, self.before
        if self.deed == "forgot" and not self.lost:
            return texts.say("forgot_nothing@shell", text=repr(self.text))
        if not self.changed:
            return texts.say("memory_same@shell", number=memory.version, entry=memory.seal_id) + self.notes
        notes = texts.say("daily_notes", count=len(memory.dailies))
        lines = [
            texts.say("memory_changed", owner=self.session, number=memory.version, entry=memory.seal_id, notes=notes)
        ]
        if self.removed:
            lines += [texts.say("memory_gone"), bullet_list(self.removed)]
        if before.version and not before.is_empty:
            lines.append(texts.say("way_back@shell", reference=self.reference, number=before.version))
        if self.deed == "forgot":
            lines.append(texts.say("forgot_remains"))
        return "\n".join(lines) + self.notes


class MemoryPage(Struct, frozen=True):
    """Everything remembered as a Markdown page.

    Attributes:
        memory: what is remembered.
        file: the new file to write it to; None: standard output.
    """

    is_text: ClassVar = True
    is_raw: ClassVar = True
    memory: MemorySnapshot
    file: str | None = None

    def describe(self, _caller: Caller) -> str:
        """Write the page."""
        return format_memory_page(self.memory).removesuffix("\n")


class MemoryErased(Struct, frozen=True):
    """Memory that was erased.

    Attributes:
        owner: `user CHANNEL:ID` or `workspace`.
        entries: how many entries lost their content.
    """

    owner: str
    entries: int

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if nothing was erased."""
        return 0 if self.entries else 1

    def describe(self, caller: Caller) -> str:
        """Say what was erased."""
        owner = name_owner(self.owner.removeprefix("user ") if self.owner != "workspace" else None, caller.texts)
        text = caller.texts.say("memory_erased", owner=owner, count=self.entries)
        return f"{text} {caller.texts.say('memory_erased_chats')}" if self.entries else text


def name_owner(user: str | None, texts: Texts) -> str:
    """Name the person with an account, or the workspace without one, within a sentence."""
    return texts.say("owner_workspace") if user is None else texts.say("owner_user", account=user)


class MemoryRecalled(Struct, frozen=True):
    """What a memory has about a query.

    Attributes:
        scope: whose memory it is.
        memory: what it holds.
        today: the date in the chat's time zone.
        days: how many days of notes were looked through.
        query: what was looked for; everything if it is empty.
    """

    scope: Scope
    memory: MemorySnapshot
    today: date
    days: int
    query: str

    @property
    def since(self) -> date:
        """The first day that was looked through."""
        return self.today - timedelta(days=self.days)

    def find(self) -> list[tuple[str, str]]:
        """Return what was found, with its day."""
        return recall(self.memory, since=self.since, query=self.query)

    def describe(self, caller: Caller) -> str:
        """Write the passages. A model reads English."""
        texts = caller.turn.result_texts if caller.turn else caller.texts
        cited, memory, since = cite(self.scope, self.memory, texts), self.memory, self.since
        if memory.is_empty:
            return texts.say("recall_empty", cited=cited)
        if passages := self.find():
            answer = texts.say("recall_found", cited=cited, since=since)
            for day, text in passages:
                title = texts.say("recall_note", day=day) if day else texts.say("recall_long_term")
                answer += f"\n\n{title}\n{text}"
        else:
            condition = texts.say("recall_condition", query=self.query) if self.query.strip() else ""
            answer = texts.say("recall_nothing", condition=condition, cited=cited, since=since)
        if older := sum(note.date < since.isoformat() for note in memory.dailies):
            oldest = (self.today - date.fromisoformat(memory.dailies[0].date)).days
            answer += texts.say("recall_older", days=texts.say("days", count=older), oldest=oldest)
        return answer


class MemoriesRecalled(Struct, frozen=True):
    """What several memories have about a query.

    Attributes:
        found: by memory.
    """

    found: tuple[MemoryRecalled, ...]

    def describe(self, caller: Caller) -> str:
        """Write the passages of each memory. Without an answer it is worth a line only if it is the only one."""
        shown = self.found
        if len(shown) > 1:
            shown = tuple(each for each in shown if each.find()) or shown[:1]
        return "\n\n".join(each.describe(caller) for each in shown)


def _advise(sentence: str, text: str, texts: Texts) -> str:
    """Advise to shorten a text that takes much of every prompt."""
    size = len(text.encode())
    return texts.say(sentence, size=size, advised=ADVISED_MAX_BYTES) if size > ADVISED_MAX_BYTES else ""


def name_zone(scope: Scope, texts: Texts) -> str:
    """Name a memory within a sentence."""
    return texts.say(f"zone_{scope}")


def cite(scope: Scope, memory: MemorySnapshot, texts: Texts) -> str:
    """Name the version and its entry, for use in brackets."""
    if scope is not Scope.CHAT:
        zone = name_zone(scope, texts)
        return texts.say("cited_zone", zone=zone, number=memory.version) if memory.seal_id else zone
    if not memory.seal_id:
        return texts.say("no_version")
    if not memory.version:
        return texts.say("cited_entry", entry=memory.seal_id)
    return texts.say("cited_version", number=memory.version, entry=memory.seal_id)


def name_version(scope: Scope, memory: MemorySnapshot, texts: Texts) -> str:
    """Name a new version, for use in a sentence; that of a shared memory gets its number when the turn is merged."""
    if scope is not Scope.CHAT:
        return texts.say("new_zone_version", zone=name_zone(scope, texts))
    return texts.say("new_version", number=memory.version, entry=memory.seal_id)


def undo_hint(scope: Scope, before: MemorySnapshot, texts: Texts) -> str:
    """Say how to undo, as the end of a sentence; return an empty text if there is nothing to bring back."""
    if before.is_empty or not before.version:
        return ""
    return texts.say("way_back", number=before.version, scope=scope_option(scope))


def scope_option(scope: Scope) -> str:
    """Write the option of a command that names a scope; nothing for the usual one."""
    return "" if scope is Scope.CHAT else f" scope={scope}"


def bullet_list(lines: Sequence[str]) -> str:
    """Write lines as a list."""
    return "\n".join(f"- {line.strip()}" for line in lines)


def describe_content(memory: MemorySnapshot, texts: Texts) -> str:
    """Say how much a memory holds."""
    days = texts.say("days", count=len(memory.dailies))
    return texts.say("memory_holds", size=describe_size(memory.long_term, texts), days=days)


def describe_size(text: str, texts: Texts) -> str:
    """Say how long a text is."""
    if not text:
        return texts.say("nothing")
    return texts.say("bytes", count=len(text.encode()), lines=texts.say("lines", count=len(text.splitlines())))
