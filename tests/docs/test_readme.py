"""The README and every other page: what is marked as runnable runs and prints what the page shows; links lead somewhere.

A block is marked by `<!-- runnable -->` on the line before it. A ```sh block runs in a shell, a ```python block in
an interpreter, those of one page one after another in the same empty folder, with a home of its own and the model
`scripted`. The README's `bubbot` is the installed command; that of other pages is a fork, which starts sooner, but with
`--proof`. A ```text block that follows at once is its output, in which `…` stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages
from tests.e2e import forked

README = ROOT / "README.md"
FIRST_READ = (README, ROOT / "docs" / "quickstart.md")
RUN = {page: run for page in pages() if (run := [block for block in blocks(page) if block.runnable])}
COMMANDS = {"sh": ["sh", "-eu"], "python": [sys.executable, "-W", "error"]}
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def _environment(folder: Path) -> dict[str, str]:
    (folder / "home").mkdir()
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "BUBBOT_HOME": str(folder / "home"),
        "BUBBOT_MODEL__NAME": "scripted",
    }


def _run(block: Block, folder: Path, environment: dict[str, str]) -> None:
    file = folder / f"block_{block.line}"
    file.write_text(block.text, encoding="utf-8")
    ran = subprocess.run(
        [*COMMANDS[block.language], file],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, f"{block} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
    if block.output is not None:
        pattern = ".*".join(re.escape(part) for part in block.output.split("…"))
        assert re.fullmatch(pattern, ran.stdout, re.DOTALL), f"{block} printed\n{ran.stdout}\nnot\n{block.output}"


@pytest.mark.parametrize(
    "page",
    # A translated page has the blocks of the English one: test_translation.py.
    [page if page in FIRST_READ else pytest.param(page, marks=pytest.mark.proof) for page in RUN],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_runs_as_it_is_written(page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = _environment(tmp_path)
    if page != README and forked.ANEW not in os.environ:
        commands = tmp_path_factory.mktemp("commands")
        forked.put_command(commands)
        environment["PATH"] = f"{commands}{os.pathsep}{environment['PATH']}"
    for block in RUN[page]:
        _run(block, tmp_path, environment)


def test_the_readme_and_the_first_steps_have_something_to_run() -> None:
    assert {README, ROOT / "docs" / "quickstart.md"} <= RUN.keys()
    assert any(block.output for block in RUN[README])


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_documentation_lead_somewhere(page: Path) -> None:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in _LINK.findall(text) if "://" not in link]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = {README}, [README]
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            found = sorted(target.glob("*.md")) if target.is_dir() else [target]
            fresh = [one for one in found if one.suffix == ".md" and one.exists() and one not in reached]
            reached.update(fresh)
            waiting += fresh
    assert [str(page.relative_to(ROOT)) for page in pages() if page not in reached] == []


def test_the_plain_lines_of_the_readme_are_those_of_the_makefile() -> None:
    readme, makefile = README.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in ("--no-deps", "--require-hashes", "--no-build-isolation", "requirements/local.txt"):
        assert words in readme
        assert words in makefile
    named = re.findall(r"`?make ([a-z-]+)", readme)
    assert [target for target in named if f"\n{target}:" not in makefile] == []


def test_every_decision_is_a_numbered_page_of_three_parts() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [page.name[:4] for page in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for page in decisions:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]} ")
        assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Choice", "What we gave up"], page.name


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 220
