"""Packages that are installed as far as `importlib.metadata` sees."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest


def installed(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    """Puts a package into a folder of the import path."""
    made = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (made / "entry_points.txt").write_text(entry_points)


def install_feature(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, source: str, *, package: str = ""
) -> None:
    """Installs a package with one module, whose FACTORY is the feature `name`, into this process.

    The module has another name in each folder: one that was imported before stays loaded.
    """
    package = package or f"{name}_package"
    module = f"{package}_{sha256(str(folder).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    installed(folder, package, "1.0", f"[bubbot.features]\n{name} = {module}:FACTORY\n")
    monkeypatch.syspath_prepend(folder)
