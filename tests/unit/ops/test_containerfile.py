"""The Containerfile, as far as it can be checked without building it."""

from __future__ import annotations

import json
import re

from bubbot.app.command_table import COMMANDS
from tests.docs.pages import ROOT

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
STEPS = [
    (word, rest)
    for word, _, rest in (line.partition(" ") for line in TEXT.splitlines() if line and not line.startswith("#"))
]
LAST = STEPS[max(place for place, (word, _) in enumerate(STEPS) if word == "FROM") :]
"""The steps of the image that is kept."""


def _values(word: str) -> list[str]:
    return [rest for step, rest in LAST if step == word]


def _exec(rest: str) -> list[str]:
    found: list[str] = json.loads(rest)
    return found


def _copied() -> list[str]:
    copies = [rest.split() for word, rest in STEPS if word == "COPY" and not rest.startswith("--from=")]
    return [source for words in copies for source in words[:-1]]


def test_nothing_runs_as_root_in_the_image() -> None:
    (user,) = _values("USER")
    assert all(int(number) >= 1000 for number in user.split(":"))
    after = LAST[LAST.index(("USER", user)) :]
    assert not {"RUN", "COPY", "ADD"} & {word for word, _ in after}
    assert not any("--chown" in rest for word, rest in LAST if word == "COPY"), "the program is not its own to change"


def test_what_it_keeps_is_in_one_volume_that_its_user_owns() -> None:
    (volume,) = _exec(_values("VOLUME")[0])
    assert f"BUBBOT_HOME={volume}" in _values("ENV")[0].split()
    made = _exec(_values("RUN")[0])
    assert made[made.index("-o") + 1] == made[made.index("-g") + 1] == _values("USER")[0].split(":")[0]
    assert made[-1] == volume


def test_it_gets_the_signal_itself_and_runs_the_daemon() -> None:
    assert _values("STOPSIGNAL") == ["SIGTERM"]
    # In exec form: a shell in between would keep the signal to itself.
    entry, command = _exec(_values("ENTRYPOINT")[0]), _exec(_values("CMD")[0])
    assert entry[0] == "python"
    assert entry[-2:] == ["-m", "bubbot"]
    assert command == ["run"]
    assert command[0] in COMMANDS
    assert all(rest.startswith("[") for word, rest in STEPS if word in ("RUN", "ENTRYPOINT", "CMD"))


def test_its_health_is_asked_of_bubbot() -> None:
    (check,) = _values("HEALTHCHECK")
    assert _exec(check.partition(" CMD ")[2])[:2] == ["bubbot", "status"]


def test_only_locked_packages_are_installed_and_from_nowhere_else() -> None:
    installs = [_exec(rest) for word, rest in STEPS if word == "RUN" and "pip" in rest]
    locked, own = installs
    assert {"--no-deps", "--require-hashes"} <= set(locked)
    assert locked[locked.index("-r") + 1] == "requirements/base.txt"
    assert {"--no-deps", "--no-build-isolation", "."} <= set(own)
    assert "://" not in TEXT


def test_what_is_copied_is_there_and_sent() -> None:
    sent = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(_copied()) == sorted(sent)
    assert [source for source in _copied() if not (ROOT / source).exists()] == []


def test_its_python_is_one_that_bubbot_runs_on_and_can_be_pinned() -> None:
    assert [rest for word, rest in STEPS if word == "FROM"] == ["${PYTHON} AS build", "${PYTHON}"]
    word, argument = STEPS[0]  # before the first FROM, so that both have it
    found = re.fullmatch(r"PYTHON=python:3\.(\d+)-slim", argument)
    assert word == "ARG"
    assert found
    assert int(found[1]) in (11, 12, 13)
