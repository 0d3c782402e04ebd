"""Builds what is released into a folder: the wheel, the sdist, `constraints.txt` with the locked versions, `requirements.txt`
with their hashes, `install.sh`.

Usage: python requirements/dist.py [FOLDER]. The interpreter needs the locked setuptools (`make dist` sees to that). Two
builds of one commit give the same bytes: only files that git knows go in, with one date (SOURCE_DATE_EPOCH, by default
that of the commit), one owner and two modes.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"


def main() -> None:
    """Build everything."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    date = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        _copy_tracked_files(source)
        wheel = _build_wheel(source, target, date)
        _write_sdist(source, target, wheel, date)
    constraints = _write_constraints(ROOT / "requirements" / "base.txt")
    (target / "constraints.txt").write_text(constraints, encoding="utf-8")
    shutil.copy(ROOT / "requirements" / "base.txt", target / "requirements.txt")
    shutil.copy(ROOT / "install.sh", target)
    for file in sorted(target.iterdir()):
        print(f"{file.stat().st_size:>9}  {file.name}")  # noqa: T201


def _copy_tracked_files(folder: Path) -> None:
    for name in filter(None, _git("ls-files", "-z").split("\0")):
        if (ROOT / name).is_file():  # not if it was deleted and not committed yet
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())  # links are followed: not every system can unpack them
            copy.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)


def _build_wheel(source: Path, target: Path, date: int) -> Path:
    copy = source.with_name("wheel")  # building leaves files behind
    shutil.copytree(source, copy)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(date), "PYTHONHASHSEED": "0"}
    os.umask(0o022)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, target],
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return next(target.glob("*.whl"))


def _write_sdist(source: Path, target: Path, wheel: Path, date: int) -> None:
    """Write the tracked files, and the wheel's metadata as `PKG-INFO`."""
    name = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as archive:
        (source / "PKG-INFO").write_bytes(archive.read(f"{name}.dist-info/METADATA"))
    (source / "PKG-INFO").chmod(0o644)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"{name}/{file.relative_to(source).as_posix()}")
            entry.size, entry.mode, entry.mtime = file.stat().st_size, file.stat().st_mode & 0o777, date
            with file.open("rb") as content:
                archive.addfile(entry, content)
    with (target / f"{name}.tar.gz").open("wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=date) as zipped:
        zipped.write(packed.getvalue())


def _write_constraints(lock: Path) -> str:
    """Return the pins of a lock file without its hashes, which constraints cannot have beside a wheel without one."""
    pins = re.findall(r"^([\w.-]+==[^\\\n]+?) *\\?$", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return "# The versions that bubbot was tested with; for uv tool install -c, pip install -c.\n" + "".join(
        f"{pin}\n" for pin in pins
    )


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
