"""The export of episodes: one pass over the slices, a file that gets its name when it is whole, and a receipt beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from msgspec import Struct, json

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeReader, EpisodeTurn, LeftOutTurn
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, FormatWriter
from bubbot.features.learn.rewards import Reward, TurnSpan, discount
from bubbot.log import REDACTED
from bubbot.new_files import create_file
from bubbot.ports.people import Purpose
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.tape.entry import canonical
from bubbot.tape.handle import TapeHandle, spans_of

RECEIPT_SUFFIX = ".receipt.json"


class ExportedSlice(Struct, frozen=True):
    """A slice that was exported.

    Attributes:
        first: its first entry, and `last` its last one.
        head: the newest entry of the tape at that time, and `hash` its hash in the chain.
        turns: turns that were written.
        steps: calls of models in them.
        rewarded: turns of them with a reward.
        left_out: how many turns, or parts of them, were not written, by the reason.
        entries: the first entries of those.
    """

    tape: str
    session: str
    first: int
    last: int
    head: int
    hash: str
    turns: int
    steps: int
    rewarded: int
    left_out: Mapping[str, int]
    entries: tuple[tuple[int, ...], ...] = ()


class ExportReceipt(Struct, frozen=True):
    """What was exported.

    Attributes:
        format: the format, in words.
        purpose: for what people had to allow it.
        version: that of bubbot.
        file: the name of the file.
        sha256: that of the file.
        bytes: its size.
        records: what is in it, in units of the format.
        is_complete: nothing was left out, and the format held everything.
        losses: what the format could not hold, counted by the reason.
        redactions: secrets that were replaced.
        slices: where it is from.
    """

    format: str
    purpose: Purpose
    version: str
    file: str
    sha256: str
    bytes: int
    records: int
    is_complete: bool
    losses: Mapping[str, int]
    redactions: int
    slices: tuple[ExportedSlice, ...]

    @property
    def why_partial(self) -> tuple[str, ...]:
        """Why it is not complete, each with its count."""
        reasons = Counter(self.losses)
        for each in self.slices:
            reasons.update(each.left_out)
        return tuple(f"{reason}: {count}" for reason, count in sorted(reasons.items()))


@dataclass(frozen=True, slots=True)
class Episode:
    """A slice that is to be exported.

    Attributes:
        head: the newest entry of its tape, and `hash` its hash in the chain, as the export found them.
        turns: its turns that have ended, in order.
        rewards: those of its turns, by their ids.
    """

    tape: TapeHandle
    reader: EpisodeReader
    first: int
    last: int
    head: int
    hash: str
    turns: Sequence[TurnSpan]
    rewards: Mapping[str, Sequence[Reward]]


@dataclass(slots=True)
class Exporter:
    """Writes episodes in a format.

    Attributes:
        version: that of bubbot.
        redact: replaces secrets in a text.
        factor: how much the reward of a later turn counts for an earlier one.
        on_progress: gets how many entries are done, and how many there are.
    """

    format: ExportFormat
    purpose: Purpose
    version: str
    redact: Callable[[str], str]
    factor: float = 0.0
    on_progress: OnProgress = ignore_progress
    _redactions: int = 0

    async def write(self, episodes: Sequence[Episode], path: Path, *, is_whole: bool = False) -> ExportReceipt:
        """Write the file and its receipt.

        Args:
            is_whole: refuse to write a file that is not complete.

        Raises:
            ConfigError: there is such a file, it cannot be written, or it would not be complete.
        """
        writer, digest, size = self.format.open(), sha256(), 0
        receipt_path = path.with_name(path.name + RECEIPT_SUFFIX)
        slices: list[ExportedSlice] = []
        with create_file(receipt_path) as write_receipt, create_file(path) as write_file:
            for episode in episodes:
                counts = _Counts()
                async for part in self._write_episode(writer, episode, counts):
                    data = self._redact(part)
                    digest.update(data)
                    size += len(data)
                    write_file(data)
                slices.append(counts.describe(episode))
            losses = dict(sorted(writer.losses.items()))
            receipt = ExportReceipt(
                format=self.format.title,
                purpose=self.purpose,
                version=self.version,
                file=path.name,
                sha256=digest.hexdigest(),
                bytes=size,
                records=writer.records,
                is_complete=not losses and not any(each.left_out for each in slices),
                losses=losses,
                redactions=self._redactions,
                slices=tuple(slices),
            )
            if not receipt.records:
                why = "; ".join(receipt.why_partial) or "no turn of a model"
                raise ConfigError(f"there is nothing to export ({why}): nothing was written")
            if is_whole and not receipt.is_complete:
                raise ConfigError(
                    f"{path} would not be complete ({'; '.join(receipt.why_partial)}): nothing was written"
                )
            write_receipt(json.encode(receipt) + b"\n")
        return receipt

    async def _write_episode(self, writer: FormatWriter, episode: Episode, counts: _Counts) -> AsyncIterator[bytes]:
        tape = episode.tape
        identifier = sha256(
            canonical({"tape": tape.name, "first": episode.first, "last": episode.last}).encode()
        ).hexdigest()[:16]
        returns = discount(episode.rewards, episode.turns, self.factor)
        for part in writer.begin(
            EpisodeHead(identifier, tape.name, tape.session, episode.first, episode.last, self.version, returns)
        ):
            yield part
        async for found in episode.reader.read(episode.first, episode.last, episode.rewards):
            if isinstance(found, LeftOutTurn):
                counts.left_out[found.reason] += 1
                counts.entries.append(found.entry)
                self.on_progress(found.entry - episode.first + 1, episode.last - episode.first + 1)
                continue
            before = writer.records
            for part in writer.write(found):
                yield part
            if writer.records > before:
                counts.add(found)
            self.on_progress(found.span[1] - episode.first + 1, episode.last - episode.first + 1)
        for part in writer.end():
            yield part

    def _redact(self, part: bytes) -> bytes:
        text = part.decode()
        redacted = self.redact(text)
        if redacted != text:
            self._redactions += redacted.count(REDACTED) - text.count(REDACTED)
        return redacted.encode()


@dataclass(slots=True)
class _Counts:
    """What came of an episode so far."""

    turns: int = 0
    steps: int = 0
    rewarded: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    entries: list[int] = field(default_factory=list[int])

    def add(self, turn: EpisodeTurn) -> None:
        self.turns += 1
        self.steps += len(turn.steps) + sum(len(each.steps) for each in turn.subtasks)
        self.rewarded += bool(turn.rewards)

    def describe(self, episode: Episode) -> ExportedSlice:
        return ExportedSlice(
            tape=episode.tape.name,
            session=episode.tape.session,
            first=episode.first,
            last=episode.last,
            head=episode.head,
            hash=episode.hash,
            turns=self.turns,
            steps=self.steps,
            rewarded=self.rewarded,
            left_out=dict(sorted(self.left_out.items())),
            entries=tuple(spans_of(sorted(set(self.entries)))),
        )
