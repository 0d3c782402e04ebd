"""The programs that formats of exports are for read those of a rich home: `make formats` installs them. Missing, that is a failure in the proof."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.learn.exports import export_all, has_lines
from tests.learn.faults import BOTH, FAULTS, INSPECT, LOADER
from tests.learn.home import CHOSEN, live
from tests.trace.home import apart

READERS = {"atif": BOTH, "inspect": INSPECT, "trl-sft": LOADER, "trl-kto": LOADER, "trl-preference": LOADER}
"""The readers of each format that has some."""
MISSING = "the readers of exports are not installed: make formats"
WAIT = 300.0


def formats_folder() -> Path:
    """Return where `make formats` installs them: `$FORMATS_FOLDER`, else a folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FORMATS_FOLDER") or Path(cache, "bubbot", "formats"))


@pytest.fixture
def readers_missing(request: pytest.FixtureRequest) -> None:
    """Skip without the readers; fail in the proof."""
    if not (formats_folder() / ".installed").exists():
        (pytest.fail if request.config.getoption("--proof") else pytest.skip)(MISSING)


def ask(home: Path, questions: Sequence[tuple[str, Path]]) -> list[str]:
    """Return what readers say against files, each empty if they accept it."""
    python, script = formats_folder() / "bin" / "python", ROOT / "tests" / "learn" / "readers.py"
    lines = "".join(f"{json.dumps([reader, str(path)])}\n" for reader, path in questions)
    variables = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(
        [python, script], input=lines.encode(), capture_output=True, timeout=WAIT, check=False, env=variables, cwd=home
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.proof
@pytest.mark.usefixtures("readers_missing")
def test_readers_accept_the_exports_of_a_rich_home_and_refuse_faults(tmp_path: Path) -> None:
    home = apart(live(tmp_path / "home"))
    exports = export_all(home, tmp_path)
    right = [(reader, path) for form, readers in READERS.items() for reader in readers for path in exports[form]]
    wrong: list[tuple[str, Path]] = []
    for form in READERS:
        for number, fault in enumerate(FAULTS[form]):
            path = exports[form][0].with_stem(f"{form}-fault{number}")
            path.write_bytes(fault.plant(exports[form][0].read_bytes(), has_lines=has_lines(form)))
            wrong += [(reader, path) for reader in fault.readers]
    answers = ask(tmp_path, [*right, *wrong])
    assert len(answers) == len(right) + len(wrong)
    assert {question: problem for question, problem in zip(right, answers, strict=False) if problem} == {}
    assert [question for question, problem in zip(wrong, answers[len(right) :], strict=True) if not problem] == []
    assert len([path for reader, path in wrong if reader == "harbor"]) >= 8
    assert len([path for reader, path in wrong if reader == "inspect"]) >= 8


def trainers_folder() -> Path:
    """Return the environment with TRL, which `make loop` installs: `$LOOP_FOLDER`, else a folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LOOP_FOLDER") or Path(cache, "bubbot", "loop"))


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.skipif(not (trainers_folder() / ".installed").exists(), reason="TRL is not installed: see LOOP_FOLDER")
def test_trainers_of_trl_prepare_the_rows_of_a_rich_home(tmp_path: Path) -> None:
    home = apart(live(tmp_path / "home"))
    exports = export_all(home, tmp_path)
    forms = {"sft": "trl-sft", "dpo": "trl-preference", "kto": "trl-kto"}
    lines = "".join(f"{json.dumps([name, str(exports[form][0])])}\n" for name, form in forms.items())
    done = subprocess.run(
        [trainers_folder() / "bin" / "python", ROOT / "tests" / "learn" / "trainers.py"],
        input=lines.encode(),
        capture_output=True,
        timeout=900,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answers = dict(zip(forms, map(json.loads, done.stdout.splitlines()), strict=True))
    for name, form in forms.items():
        rows = len(exports[form][0].read_bytes().splitlines())
        assert (answers[name]["rows"], answers[name]["prepared"]) == (rows, rows)
    assert {name: answer["taught"] for name, answer in answers.items()} == {
        "sft": "I noted the flight.<|end|>",
        "dpo": f"{CHOSEN}<|end|>",
        "kto": "I noted the flight.<|end|>",
    }
