"""Every wrong input has a clear answer: the rows of bad_inputs.toml and bad_settings.toml, run by the real command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import forked
from tests.e2e.bot import environment, opened, run, sentence

DATA = Path(__file__).parents[1] / "data"
SETTINGS: dict[str, dict[str, Any]] = tomllib.loads((DATA / "bad_settings.toml").read_text())
ROWS: dict[str, dict[str, Any]] = {**tomllib.loads((DATA / "bad_inputs.toml").read_text()), **SETTINGS}
CONFIGS: Mapping[str, bytes] = {
    "text": b"[model\nname = 1\n",
    "latin-1": b'[model]\nname = "caf\xe9"\n',
    "NUL": b'[model]\nname = "a\0b"\n',
    "BOM": b'\xef\xbb\xbf[model]\nname = "scripted"\n',
    "10 MB": b"# tea\n" * 1_700_000,
    "unknown key": b'[model]\nnmae = "scripted"\n',
    "unknown section": b'[modle]\nname = "scripted"\n',
    "wrong type": b'[model]\nmax_steps = "many"\n',
    "huge number": b"[model]\nmax_steps = " + b"9" * 5000 + b"\n",
    "list for a section": b'model = ["scripted"]\n',
    "unknown kind": b'[channels.x]\nkind = "telefax"\n',
    "list for a token": b'[channels.telegram]\ntoken = ["a"]\n',
    "token with a space": b'[channels.telegram]\ntoken = "123456789:AAAA BBBB"\n',
    "one token twice": b'[channels.a]\nkind = "telegram"\ntoken = "1:abc"\n[channels.b]\nkind = "telegram"\ntoken = "1:abc"\n',
    "telegram": b'[channels.telegram]\ntoken = "123456789:AAAABBBBCCCC"\n',
}
"""The files `config.toml` of homes, by the words in `home`."""
BYTE = re.compile(r"\\x([0-9a-f]{2})")
MASKED = ((re.compile(r"\d{8}T\d{6}Z"), "{time}"), (re.compile(r"\.partial-\d+"), ".partial-{pid}"))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one turn, and files to import."""
    home = tmp_path_factory.mktemp("used") / "home"
    assert run(home, "ask", "tea please").returncode == 0
    assert run(home, "tape", "export", "default", str(home / "good.jsonl")).returncode == 0
    (home / "note.txt").write_text("a note\n")
    (home / "empty").touch()
    return home


def put_home(home: Path, kind: str, used: Path) -> None:
    """Make the home of a row."""
    if kind in ("used", "telegram"):
        shutil.copytree(used, home, ignore=shutil.ignore_patterns("*.sock", "lock"))
    elif kind == "a file":
        home.write_text("a note\n")
    elif kind != "missing":
        home.mkdir()
    if kind in CONFIGS:
        (home / "config.toml").write_bytes(CONFIGS[kind])
    elif kind == "folder as config":
        (home / "config.toml").mkdir()
    elif kind == "text as database":
        (home / "bubbot.db").write_text("this is text, not a database\n" * 100)
    elif kind == "folder as database":
        (home / "bubbot.db").mkdir()


def to_bytes(text: str) -> bytes:
    r"""Encode a text of the table, in which `\xff` is a byte."""
    return BYTE.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), text).encode("utf-8", "surrogateescape")


def run_row(row: Mapping[str, Any], folder: Path, used: Path) -> tuple[int, str, str]:
    """Run the command of a row; return its exit code and what it printed, without the names of folders."""
    home = folder / "home"
    put_home(home, row.get("home", "new"), used)
    if "config" in row:
        (home / "config.toml").write_text(row["config"])
    words = shlex.split(
        row["typed"].replace("{home}", str(home)).replace("{x1000}", "x" * 1000).replace("{9s}", "9" * 400)
    )
    env = environment(home, **row.get("env", {}))
    env = {name: value.replace("{home}", str(home)) for name, value in env.items() if value != "(not set)"}
    with Path("/dev/full").open("wb") as full:
        outputs = {"a full disk": full.fileno(), "closed": None}
        done = forked.run(
            forked.BOT,
            [os.fsdecode(to_bytes(word)) for word in words[1:]],
            to_bytes(row.get("stdin", "")),
            env=env,
            cwd=folder,
            stdout=outputs.get(row.get("output", ""), subprocess.PIPE),
        )
    return done.returncode, _mask(done.stdout, home), _mask(done.stderr, home)


def _mask(output: bytes, home: Path) -> str:
    text = output.decode().replace(str(home), "{home}").replace(str(home.parent), "{folder}")
    for pattern, name in MASKED:
        text = pattern.sub(name, text)
    return text


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ROWS)
def test_the_answer_is_that_of_the_table(name: str, tmp_path: Path, used: Path) -> None:
    row = ROWS[name]
    assert run_row(row, tmp_path, used) == (row["code"], row.get("stdout", ""), row.get("stderr", ""))


OTHERS_WORDS = re.compile(
    r"Traceback|\[Errno|\w(?:Error|Exception)\b|<class |\bNone\b|argument --|invalid (?:choice|int)|unrecognized|expected one"
    r"|should not have happened"
)
"""What Python, argparse and other libraries would say, and no person needs."""


@pytest.mark.parametrize("name", ROWS)
def test_the_answer_is_short_and_in_our_words(name: str) -> None:
    row = ROWS[name]
    text = row.get("stderr", "")
    if "--json" in shlex.split(row["typed"]):
        error = json.loads(text)["error"]
        assert error["exit_code"] == row["code"]
        text = f"bubbot: {error['message']}\n"
    assert not OTHERS_WORDS.search(text + row.get("stdout", ""))
    assert text.count("\n") <= 2
    assert all(line.startswith("bubbot: ") and line.count(", ") < 8 for line in text.splitlines())
    assert text or row["stdout"]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_answer_to_a_wrong_setting_names_it_and_what_it_must_be(name: str) -> None:
    answer = SETTINGS[name]["stderr"]
    assert re.search(r"\[[\w.-]+\]|BUBBOT_|line \d|names no setting", answer), "the setting, or its place"
    assert "datetime" not in answer
    assert re.search(
        r"must be|did you mean|write |set |keep |put |close |check |lists |type |use |name |Write |`openssl", answer
    ), "the fix"


def test_a_standard_input_that_is_closed_reads_as_an_empty_one(home: Path) -> None:
    for arguments in (["ask", "hello"], ["chat"]):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = (None, out.fileno(), err.fileno())
            child = forked.start(forked.BOT, arguments, env=environment(home), cwd=home.parent, streams=streams)
            assert child.wait(60) == 0
            out.seek(0)
            err.seek(0)
            assert (out.read(), err.read()) == (b"You said: hello\n" * ("ask" in arguments), b"")


@pytest.mark.proof
def test_another_locale_takes_any_script(home: Path) -> None:
    """A locale without Chinese: Python then reads arguments as ASCII, and cannot print what it read."""
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run(home, "ask", "--session", "茶", "你好".encode(), env=env).returncode == 0
    done = run(home, "tape", "show", "水", env=env)
    assert done.returncode == 1
    assert "there is no tape" in sentence(done)
    (question,) = [
        json.loads(line)["payload"]["content"]
        for line in run(home, "tape", "show", "茶", "--json").stdout.splitlines()
        if json.loads(line)["kind"] == "message" and json.loads(line)["payload"]["role"] == "user"
    ]
    assert question == "你好"


@pytest.mark.proof
def test_four_questions_at_once_are_all_answered(home: Path) -> None:
    assert run(home, "ask", "zero").returncode == 0
    with (
        opened(home, "ask", "one") as one,
        opened(home, "ask", "two") as two,
        opened(home, "ask", "three") as three,
        opened(home, "ask", "four") as four,
    ):
        for question in (one, two, three, four):
            question.stdin.close()
        answers = [
            (question.stdout.read(), question.stderr.read(), question.process.wait(forked.WAIT))
            for question in (one, two, three, four)
        ]
    words = ("one", "two", "three", "four")
    assert [(out, code) for out, _, code in answers] == [(f"You said: {word}\n".encode(), 0) for word in words]
    assert all(not err or (b"waiting for it" in err and err.count(b"\n") == 1) for _, err, _ in answers), answers
