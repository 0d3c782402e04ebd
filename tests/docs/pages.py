"""The documentation as tests see it: pages, fenced blocks, links, and the files under version control."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNABLE = "<!-- runnable -->"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `runnable`: the marker stands before it. `output`: the ```text block that follows at once."""

    page: Path
    line: int
    language: str
    text: str
    runnable: bool
    output: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def read_source() -> str:
    """Read all that bubbot is made of, as one text."""
    files = (file for folder in ("bubbot", "channels") for file in (ROOT / folder).rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    made = []
    for place, match in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        follows = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        output = after[2] if after is not None and follows else None
        runnable = text[: match.start()].rstrip().endswith(RUNNABLE)
        made.append(Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2], runnable, output))
    return made


def reference() -> str:
    """The text of all of `docs/reference`."""
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md")))


def tracked() -> list[Path]:
    """The files under version control and those that are about to be; outside of git, all that are not hidden."""
    if not (ROOT / ".git").exists():
        visible = (path for path in ROOT.rglob("*") if not any(part[0] == "." for part in path.relative_to(ROOT).parts))
        return sorted(path for path in visible if path.is_file() and path.suffix != ".pyc")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    named = {ROOT / name for name in listed.stdout.split("\0") if name}
    environments = {marker.parent for marker in ROOT.glob("*/pyvenv.cfg")}  # under a name git does not ignore
    return sorted(path for path in named if path.is_file() and environments.isdisjoint(path.parents))
