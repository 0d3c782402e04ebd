"""An erasure reaches every copy of a chat's words: looked for in the bytes of every file of the home."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e import inside

SAID, ANSWERED, ELSE = (f"zqcanary{name}x".encode() for name in ("said", "answered", "else"))
"""Canaries: in a message that an explanation quotes, in its answer, and in the answer of another model."""
ENV = {"BUBBOT_MODEL__NAME": "scripted"}


def write_script(path: Path, answer: bytes) -> Path:
    """The model answers with a canary; an explanation quotes the chat, and says a canary of its own once refused."""
    rules = [
        {
            "when": "Why the train|cannot be used",
            "steps": [
                {"calls": [{"name": "tape_search", "arguments": {"query": "train"}}]},
                {"text": f'#3 "the train {SAID.decode()}"'},
            ],
        },
    ]
    path.write_text(json.dumps({"rules": rules, "default": [{"text": answer.decode()}]}), encoding="utf-8")
    return path


def files_with(home: Path, word: bytes) -> list[str]:
    """The files of a home that hold these bytes."""
    return sorted(
        str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and word in path.read_bytes()
    )


def test_no_file_of_the_home_keeps_a_word_of_an_erased_chat(tmp_path: Path) -> None:
    home, env = tmp_path / "home", dict(ENV)

    def run(*arguments: str, code: int = 0, home: Path = home) -> str:
        done = inside.run(home, *arguments, env=env)
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.decode()

    def used(home: Path = home) -> tuple[int, ...]:
        total = json.loads(run("usage", "--json", home=home))["total"]
        return tuple(total[name] for name in ("calls", "input_tokens", "output_tokens"))

    env["BUBBOT_MODEL__SCRIPT"] = str(write_script(tmp_path / "first.json", ANSWERED))
    run("ask", "--session", "trip", f"I take the train {SAID.decode()}.")
    run("explain", "trip", "Why the train?")
    tapes = json.loads(run("tape", "list", "--json"))["tapes"]
    (tape,) = [each["name"] for each in tapes if each["session"] == "stdin:trip"]
    run("explain", tape, "Why the train?")  # asked in the session `explain`
    env["BUBBOT_MODEL__SCRIPT"] = str(write_script(tmp_path / "second.json", ELSE))
    env["BUBBOT_BOT__NAME"] = "Robin"
    assert "prompt" in run("replay", "trip", code=1)
    shown = json.loads(run("replay", "trip", "--model", "scripted", "--json"))
    assert SAID.decode() in str(shown)
    assert ELSE.decode() in str(shown)
    (home / "exports").mkdir()
    run("tape", "export", "trip", str(home / "exports" / "trip.jsonl"))
    run("tape", "verify")
    run("backup", str(tmp_path / "backup"))
    before = used()
    for word in (SAID, ANSWERED, ELSE):
        assert {"bubbot.db", "bubbot.db-wal"} & set(files_with(home, word))
    asked = run("ask", "--session", "trip", ",reset erase")
    assert "stdin:explain: " in asked, "another chat has copies, and is named first"
    assert "copies=keep" in asked
    assert used() == before
    run("ask", "--session", "trip", ",reset erase copies=keep")
    for word in (ANSWERED, ELSE):
        assert set(files_with(home, word)) <= {"exports/trip.jsonl"}, "in a copy that the erasure has to reach"
    run("ask", "--session", "explain", ",reset erase")  # what another chat has read is its own: the docs say so
    for word in (SAID, ANSWERED, ELSE):
        assert set(files_with(home, word)) <= {"exports/trip.jsonl"}
    assert used() == before
    run("tape", "verify")
    run("restore", str(tmp_path / "backup"), home=tmp_path / "restored")
    assert used(tmp_path / "restored") == before
    assert "bubbot.db" in files_with(tmp_path / "restored", ELSE)
