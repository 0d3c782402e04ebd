"""The export of `[learn] after`: a file, its receipt and a fact, each once, wherever the process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path

from msgspec import DecodeError, json

from bubbot import __version__
from bubbot.errors import ConfigError
from bubbot.features.learn.files import MAX_RECEIPT_BYTES, open_plain
from bubbot.features.learn.weights.facts import ExportReady
from bubbot.features.learn.weights.turns import RewardedTurns
from bubbot.features.learn.writing import RECEIPT_SUFFIX, Episode, Exporter, ExportReceipt
from bubbot.log import redact
from bubbot.new_files import UNFINISHED
from bubbot.tape.fact import Cited
from bubbot.tape.handle import spans_of


def name_export(number: int, form: str) -> str:
    """Return the name of the file of an export: always the same, so that a start after a kill finds it."""
    return f"learn-{number:04}-{form}.jsonl"


async def write_export(
    turns: RewardedTurns, folder: str, home: Path, number: int, exports: Sequence[Cited[ExportReady]]
) -> ExportReady:
    """Write the export with this number, or take the whole one that a killed process left; return its fact.

    Args:
        turns: those of the last look are exported.
        folder: as the settings have it.
        home: that of the bot.
        number: of the export.
        exports: those before.

    Raises:
        ConfigError: it cannot be written, or there is another file with its name.
    """
    episodes = await turns.build_episodes(exports)
    path = _find_path(home, folder, name_export(number, turns.format.name))
    try:
        receipt = await asyncio.to_thread(_take_receipt, path, episodes, turns.format.title)
        if receipt is None:
            await asyncio.to_thread(path.parent.mkdir, mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # no name of a file has a zero byte
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"[learn] folder: {path.parent} cannot be used ({reason}): name another folder") from error
    if receipt is None:
        exporter = Exporter(turns.format, "training", __version__, redact, turns.section.discount)
        receipt = await exporter.write(episodes, path)
    name = path.relative_to(home) if path.is_relative_to(home) else path
    written = [each for each in receipt.slices if each.turns]
    by_tape = {
        tape: [each for each in written if each.tape == tape] for tape in sorted({each.tape for each in written})
    }
    return ExportReady(
        number=number,
        file=str(name),
        sha256=receipt.sha256,
        format=turns.format.name,
        turns=sum(each.turns for each in written),
        heads={tape: (slices[0].head, slices[0].hash) for tape, slices in by_tape.items()},
        exported={
            tape: tuple(spans_of([number for each in slices for number in range(each.first, each.last + 1)]))
            for tape, slices in by_tape.items()
        },
    )


def _find_path(home: Path, folder: str, name: str) -> Path:
    try:
        return home / Path(folder).expanduser() / name
    except RuntimeError as error:  # a user that there is not
        raise ConfigError(f"[learn] folder: {folder} cannot be found ({error}): name another folder") from error


def _take_receipt(path: Path, episodes: Sequence[Episode], title: str) -> ExportReceipt | None:
    """Return the receipt of a whole export that a killed process left; None if it has to be written.

    A receipt gets its name before its file: one whose file is unfinished still is removed with it.

    Raises:
        ConfigError: there is a file with its name that such a process did not write.
    """
    receipt_path = path.with_name(path.name + RECEIPT_SUFFIX)
    if not path.exists() and not receipt_path.exists():
        return None
    if not path.exists() and path.with_name(path.name + UNFINISHED).exists():
        for each in (
            receipt_path,
            receipt_path.with_name(receipt_path.name + UNFINISHED),
        ):  # it may have both names still
            each.unlink(missing_ok=True)
        return None
    wrong = ConfigError(
        f"{path} or its receipt is there already, and is not the export that is due: move both elsewhere, and it is written"
    )
    try:
        with open_plain(receipt_path) as file:
            receipt = json.decode(file.read(MAX_RECEIPT_BYTES), type=ExportReceipt)
        with open_plain(path) as file:
            digest = file_digest(file, "sha256").hexdigest()
    except (OSError, DecodeError) as error:
        raise wrong from error
    due = {(each.tape.name, each.first, each.last) for each in episodes}
    is_due = {(each.tape, each.first, each.last) for each in receipt.slices} <= due
    if digest != receipt.sha256 or receipt.format != title or not is_due:
        raise wrong
    for each in (path, receipt_path):  # they may have both names still
        each.with_name(each.name + UNFINISHED).unlink(missing_ok=True)
    return receipt
