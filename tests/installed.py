"""Packages that are installed as far as `importlib.metadata` sees."""

from __future__ import annotations

from pathlib import Path


def installed(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    """Puts a package into a folder of the import path."""
    made = folder / f"{name}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (made / "entry_points.txt").write_text(entry_points)
