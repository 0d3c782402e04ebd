"""Exported files that are exported again, in the same format or in another one: their receipts, their people, and their turns.

A file was made for a purpose, and is used for no other. Its receipt stands beside it, and says which file it is of. People may have
taken back their consent since, or a part of a chat may be erased: so the tapes that it is from are asked again, and must be there.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest
from io import BufferedReader
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct, field

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeReader, EpisodeTurn, LeftOutTurn
from bubbot.features.learn.formats import FORMATS
from bubbot.features.learn.formats.reader import ReadTurn
from bubbot.features.learn.formats.writer import ExportFormat
from bubbot.features.learn.writing import RECEIPT_SUFFIX, ExportedSlice, ExportReceipt, ExportSource, hash_turns
from bubbot.runtime.turn_spans import TurnSpan

MAX_RECEIPT_BYTES = 64 * 2**20
"""More than any receipt has: one of a million turns that were left out, each by itself, has a fourth of it."""


class ExportedFile(Struct, frozen=True):
    """An exported file with its receipt.

    Attributes:
        file: the file, open at its beginning.
    """

    path: Path
    receipt: ExportReceipt
    format: ExportFormat
    file: BufferedReader

    @property
    def source(self) -> ExportSource:
        """What a receipt says of it."""
        return ExportSource(self.path.name, self.receipt.format, self.receipt.sha256)

    def episodes(self) -> list[FileEpisode]:
        """Return what it has of each slice; they are read one after another."""
        turns, (*parts, last) = self.format.read(self.file), self.receipt.slices
        return [*(FileEpisode(part, islice(turns, part.records)) for part in parts), FileEpisode(last, turns)]


class FileEpisode(Struct, frozen=True):
    """What a file has of a slice. It is read once."""

    origin: ExportedSlice
    turns: Iterator[ReadTurn]
    rewards: dict[str, float] = field(default_factory=dict[str, float])

    def returns(self, _factor: float, /) -> Mapping[str, float]:
        """See `ExportedEpisode`. Rewards are what they were when the file was written."""
        return self.rewards

    async def read(self) -> AsyncIterator[EpisodeTurn | LeftOutTurn]:
        """See `ExportedEpisode`."""
        for turn, reward in self.turns:
            if reward is not None:
                self.rewards[turn.record.id] = reward
            yield turn


@contextmanager
def open_export(path: Path) -> Iterator[ExportedFile]:
    """Open an exported file that is the one of its receipt. Raise `ConfigError` if there is none, or another one."""
    try:
        with open_plain(path) as file:
            receipt = _read_receipt(path)
            size, digest = os.fstat(file.fileno()).st_size, ""
            if size == receipt.bytes:  # nobody reads what is of another size anyway
                digest = file_digest(file, "sha256").hexdigest()
            if digest != receipt.sha256:
                raise ConfigError(f"{path} is not the file of its receipt: it was changed since it was exported")
            chosen = next((each for each in FORMATS if each.title == receipt.format), None)
            if chosen is None:
                raise ConfigError(f"{path}: its receipt names the unknown format {receipt.format!r}")
            if not receipt.slices or (chosen.is_single and len(receipt.slices) > 1):
                raise ConfigError(f"{path}: its receipt names {len(receipt.slices)} slices, which is impossible")
            if any(not 0 <= part.records <= sys.maxsize for part in receipt.slices):
                raise ConfigError(
                    f"{path}: its receipt names a slice of more records than there can be, or of fewer than none"
                )
            file.seek(0)
            yield ExportedFile(path, receipt, chosen, file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): name a file that bubbot export wrote") from error
    except RecursionError as error:  # what is read and written here has no limit of its own
        raise ConfigError(f"{path} is nested too deeply: name a file that bubbot export wrote") from error


def open_plain(path: Path) -> BufferedReader:
    """Open a file to read. Raise `OSError` for a pipe or a device: one may never answer, another never end."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no file")
    return file


def _read_receipt(path: Path) -> ExportReceipt:
    receipt_path = path.with_name(path.name + RECEIPT_SUFFIX)
    try:
        with open_plain(receipt_path) as file:
            data = file.read(MAX_RECEIPT_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{receipt_path} cannot be read ({error.strerror}): a file is exported again only with its receipt beside it"
        ) from error
    try:
        if len(data) > MAX_RECEIPT_BYTES:
            raise ConfigError(f"{receipt_path} is too large for a receipt")
        return msgspec.json.decode(data, type=ExportReceipt)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{receipt_path} is no receipt of bubbot export ({error})") from error


async def require_allowed(path: Path, part: ExportedSlice, turns: list[TurnSpan], reader: EpisodeReader) -> None:
    """Refuse a file if turns of one of its slices may not be exported now, though they were when it was written.

    Args:
        turns: those that end in the slice now.

    Raises:
        ConfigError: they may not, or the tape is not the one that was exported.
    """
    if hash_turns(turns) != part.turn_ids:
        raise ConfigError(
            f"{path}: {part.session or part.tape} has other turns now than those that were exported: export it from its chat again"
        )
    left_out = sorted(part.entries)
    async for found in reader.judge(part.first, part.last):
        if found.reason != "open" and not any(low <= found.entry <= high for low, high in left_out):
            raise ConfigError(
                f"{path} has a turn that may not be exported any more ({found.reason}, entry {found.entry} of "
                f"{part.session or part.tape}): export it from its chat again"
            )
