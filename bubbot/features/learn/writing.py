"""The export of episodes: one pass over the slices, a file that gets its name when it is whole, and a receipt beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec import Struct, json
from msgspec.structs import replace

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeReader, EpisodeTurn, LeftOutTurn
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, FormatWriter
from bubbot.features.learn.rewards import Reward, discount
from bubbot.log import REDACTED
from bubbot.new_files import create_file
from bubbot.ports.people import Purpose
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.runtime.turn_spans import TurnSpan
from bubbot.tape.entry import EMPTY_OBJECT, canonical
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
        records: what is in the file of it, in units of the format.
        turn_ids: SHA-256 of the ids of all turns that had ended in it, one a line: a tape that has them still is the same one.
        left_out: how many turns, or parts of them, were not written, by the reason.
        entries: the first entries of turns that were not written.
        parts: the first entries of turns of which a sub-task was not written.
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
    records: int
    turn_ids: str
    left_out: Mapping[str, int]
    entries: tuple[tuple[int, ...], ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()


class ExportSource(Struct, frozen=True):
    """The exported file that an export was made of.

    Attributes:
        format: its format, in words.
        sha256: that of the file.
    """

    file: str
    format: str
    sha256: str


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
        source: the exported file that it was made of; None if it was made of the tapes.
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
    source: ExportSource | None = None

    @property
    def why_partial(self) -> tuple[str, ...]:
        """Why it is not complete, each with its count."""
        reasons = Counter(self.losses)
        for each in self.slices:
            reasons.update(each.left_out)
        return tuple(f"{reason}: {count}" for reason, count in sorted(reasons.items()))


class Episode(Struct, frozen=True):
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

    @property
    def origin(self) -> ExportedSlice:
        """Where it is from, before anything is written."""
        tape, ids = self.tape, hash_turns(self.turns)
        return ExportedSlice(
            tape.name, tape.session, self.first, self.last, self.head, self.hash, 0, 0, 0, 0, ids, dict[str, int]()
        )

    def returns(self, factor: float, /) -> Mapping[str, float]:
        """Return the reward of each turn by its id; a later turn counts `factor` for the one before."""
        return discount(self.rewards, self.turns, factor)

    def read(self) -> AsyncIterator[EpisodeTurn | LeftOutTurn]:
        """Yield its turns in their order."""
        return self.reader.read(self.first, self.last, self.rewards)


class ExportedEpisode(Protocol):
    """What an exporter writes: a slice of a tape, or what an earlier export has of one."""

    @property
    def origin(self) -> ExportedSlice:
        """Where it is from, with what an earlier export left out."""
        ...

    def returns(self, factor: float, /) -> Mapping[str, float]:
        """Return the reward of each turn by its id, as far as its turns were read."""
        ...

    def read(self) -> AsyncIterator[EpisodeTurn | LeftOutTurn]:
        """Yield its turns in their order."""
        ...


def hash_turns(turns: Iterable[TurnSpan]) -> str:
    """Return the `turn_ids` of a slice with these turns; see `ExportedSlice`."""
    return sha256("".join(f"{turn.id}\n" for turn in turns).encode()).hexdigest()


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

    async def write(
        self,
        episodes: Sequence[ExportedEpisode],
        path: Path,
        *,
        is_whole: bool = False,
        source: ExportSource | None = None,
        known_losses: Mapping[str, int] = EMPTY_OBJECT,
    ) -> ExportReceipt:
        """Write the file and its receipt. The receipt gets its name first: a file that has its name is whole, and has its receipt.

        Args:
            source: the exported file that the episodes are read from, and `known_losses` what that could not hold.
            is_whole: refuse to write a file that is not complete.

        Raises:
            ConfigError: there is such a file, it cannot be written, or it would not be complete.
        """
        receipt_path, has_receipt = path.with_name(path.name + RECEIPT_SUFFIX), False
        try:
            with create_file(path) as write_file:
                with create_file(receipt_path) as write_receipt, closing(self.format.open()) as writer:
                    receipt = await self._write_file(episodes, writer, write_file, path.name)
                    receipt = replace(
                        receipt,
                        losses=dict(sorted((Counter(receipt.losses) | Counter(known_losses)).items())),
                        is_complete=receipt.is_complete and not known_losses,
                        source=source,
                    )
                    if not receipt.records:
                        why = "; ".join(receipt.why_partial) or "no turn of a model"
                        raise ConfigError(f"there is nothing to export ({why}): nothing was written")
                    if is_whole and not receipt.is_complete:
                        why = "; ".join(receipt.why_partial)
                        raise ConfigError(f"{path} would not be complete ({why}): nothing was written")
                    write_receipt(json.encode(receipt) + b"\n")
                has_receipt = True
        except BaseException:
            if has_receipt:
                receipt_path.unlink(missing_ok=True)
            raise
        return receipt

    async def _write_file(
        self,
        episodes: Sequence[ExportedEpisode],
        writer: FormatWriter,
        write_file: Callable[[bytes], object],
        name: str,
    ) -> ExportReceipt:
        digest, size, slices = sha256(), 0, list[ExportedSlice]()
        for episode in episodes:
            counts, before = _Counts(), writer.records
            async for part in self._write_episode(writer, episode, counts):
                data = self._redact(part)
                digest.update(data)
                size += len(data)
                write_file(data)
            slices.append(counts.describe(episode.origin, writer.records - before))
        return ExportReceipt(
            format=self.format.title,
            purpose=self.purpose,
            version=self.version,
            file=name,
            sha256=digest.hexdigest(),
            bytes=size,
            records=writer.records,
            is_complete=not writer.losses and not any(each.left_out for each in slices),
            losses=dict(sorted(writer.losses.items())),
            redactions=self._redactions,
            slices=tuple(slices),
        )

    async def _write_episode(
        self, writer: FormatWriter, episode: ExportedEpisode, counts: _Counts
    ) -> AsyncIterator[bytes]:
        origin, returns = episode.origin, episode.returns(self.factor)
        first, last = origin.first, origin.last
        identifier = sha256(canonical({"tape": origin.tape, "first": first, "last": last}).encode()).hexdigest()[:16]
        head = EpisodeHead(identifier, origin.tape, origin.session, first, last, self.version, returns)
        for part in writer.begin(head):
            yield part
        async for found in episode.read():
            if isinstance(found, LeftOutTurn):
                counts.left_out[found.reason] += 1
                (counts.parts if found.part else counts.entries).append(found.entry)
                self.on_progress(found.entry - first + 1, last - first + 1)
                continue
            before = writer.records
            for part in writer.write(found):
                yield part
            if writer.records > before:
                counts.add(found, is_rewarded=found.record.id in returns)
            self.on_progress(found.span[1] - first + 1, last - first + 1)
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
    parts: list[int] = field(default_factory=list[int])

    def add(self, turn: EpisodeTurn, *, is_rewarded: bool) -> None:
        self.turns += 1
        self.steps += len(turn.steps) + sum(len(each.steps) for each in turn.subtasks)
        self.rewarded += is_rewarded

    def describe(self, origin: ExportedSlice, records: int) -> ExportedSlice:
        return replace(
            origin,
            turns=self.turns,
            steps=self.steps,
            rewarded=self.rewarded,
            records=records,
            left_out=dict(sorted((self.left_out + Counter(origin.left_out)).items())),
            entries=(*origin.entries, *spans_of(self.entries)),
            parts=(*origin.parts, *spans_of(self.parts)),
        )
