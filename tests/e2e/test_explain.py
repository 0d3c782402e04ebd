"""`bubbot explain` and `bubbot replay` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e import inside

SCRIPT = {
    "rules": [
        {
            "when": "late train",
            "steps": [
                {"calls": [{"name": "tape_search", "arguments": {"query": "train"}}]},
                {"text": 'You wrote: "not before 18:00". [#3]\nThe answer named train LH410 at 18:40. [#7]'},
            ],
        },
        {"when": "lie|cannot be used", "steps": [{"text": "The answer named train LH411. [#7]"}]},
        {"when": "hotel", "steps": [{"text": "UNKNOWN"}]},
    ],
    "default": [{"text": "Your train to Rome is LH410, at 18:40."}],
}


def test_a_person_asks_what_happened_and_replays_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, script = tmp_path / "home", tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    env = {"BUBBOT_MODEL__NAME": "scripted", "BUBBOT_MODEL__SCRIPT": str(script)}

    def run(*arguments: str) -> tuple[int, str, str]:
        done = inside.run(home, *arguments, env=env)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    assert run("explain", "default", "Why the late train?")[0] == 4  # there is no home yet
    run("ask", "--session", "trip", "Which train? Not later, and not before 18:00.")
    code, out, err = run("explain", "trp", "Why the late train?")
    assert (code, out, err) == (1, "", "bubbot: there is no chat stdin:trp; bubbot tape list shows all tapes\n")
    code, out, _ = run("explain", "trip", 'Why the late train, chat="x"?')
    assert (code, out) == (0, 'You wrote: "not before 18:00". [#3]\nThe answer named train LH410 at 18:40. [#7]\n')
    report = json.loads(run("explain", "trip", "Why the late train?", "--json")[1])
    assert report["status"] == "founded"
    assert [each["cites"][0]["entry"] for each in report["statements"]] == [3, 7]
    code, out, _ = run("explain", "trip", "Tell a lie.")
    assert (code, out.partition(",")[0]) == (1, "I found no answer whose sources hold")
    assert run("explain", "trip", "Which hotel?")[:2] == (
        1,
        "The record of this chat does not tell. Entries read: none.\n",
    )
    code, out, err = run("explain", "telegram:42", "Why?")
    assert (code, out, err) == (1, "", "bubbot: there is no tape telegram:42; bubbot tape list shows all tapes\n")
    assert run("explain", "trip", " ")[0] == 2
    code, out, _ = run("replay", "trip", "--from", "1", "--to", "9")
    assert code == 0
    assert out.startswith("Requests built again: 1; different today: 0.\n")
    code, out, _ = run("replay", "trip", "--to", "9", "--model", "scripted")
    assert code == 0
    assert out.count("LH410") == 2
    env["BUBBOT_BOT__NAME"] = "Robin"
    code, out, _ = run("replay", "trip", "--to", "9")
    assert code == 1
    assert out.splitlines()[1] == "#8: prompt"
    with monkeypatch.context() as patched:
        patched.setattr("bubbot.cli.progress.LINE_SECONDS", 0.01)
        assert "Replaying trip" in run("replay", "trip", "--to", "9")[2]  # which is no terminal
    assert run("replay", "trip", "--from", "9", "--to", "2")[0] == 2
    assert run("replay", "trip", "--from", "x")[0] == 2
    assert run("tape", "verify")[0] == 0
