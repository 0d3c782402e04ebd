"""The digest of weights: one for all files of a folder, computed as `sha256sum` does it, without holding a file in memory."""

from __future__ import annotations

import os
from hashlib import file_digest
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.features.learn.weights.facts import WeightFile, WeightsOffered
from bubbot.folder_digest import PREFIX, join_digests

SUFFIXES = (".safetensors", ".gguf", ".bin")
"""What files of weights end with; of the first that a folder has, all files count."""


def list_weights(folder: Path) -> tuple[WeightFile, ...]:
    """Return the files of weights in a folder, sorted by the bytes of their names; none if it has none, or is none."""
    try:
        found = {entry.name: entry.stat() for entry in os.scandir(folder) if entry.is_file()}
    except (OSError, ValueError):  # no name of a folder has a zero byte
        return ()
    names = next((chosen for suffix in SUFFIXES if (chosen := [name for name in found if name.endswith(suffix)])), [])
    return tuple(
        WeightFile(name, found[name].st_size, found[name].st_mtime_ns) for name in sorted(names, key=os.fsencode)
    )


def digest_weights(folder: Path) -> tuple[str, tuple[WeightFile, ...]]:
    """Return the digest of the weights in a folder, and its files.

    It is that of the lines `HASH  NAME` of all files, as `sha256sum *.safetensors | sha256sum` computes it.

    Raises:
        ConfigError: there are none, one cannot be read or has an odd name, or one was changed meanwhile.
    """
    files = list_weights(folder)
    if not files:
        raise ConfigError(
            f"{folder} has no weights: name a folder with files that end with {', '.join(SUFFIXES)}, or their digest as {PREFIX}HEX"
        )
    digests = list[tuple[str, str]]()
    for file in files:
        try:
            with (folder / file.name).open("rb") as opened:
                digests.append((file.name, file_digest(opened, "sha256").hexdigest()))
        except OSError as error:
            raise ConfigError(f"{folder / file.name} cannot be read ({error.strerror}): make it readable") from error
    digest = join_digests(folder, digests)
    if list_weights(folder) != files:
        raise ConfigError(f"{folder} was changed while its weights were read: try again when they are whole")
    return digest, files


def is_unchanged(offer: WeightsOffered) -> bool:
    """Return true if the folder of an offer still has the files whose digest it names, by their sizes and times."""
    return bool(offer.folder) and list_weights(Path(offer.folder)) == offer.files
