"""`bubbot explain` and `bubbot replay` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e import inside

WANTED = "Which train? Not later, and not before 18:00."
ANSWER = "Your train to Rome is LH410, at 18:40."
SCRIPT = {
    "rules": [
        {
            "when": "late train",
            "steps": [
                {"calls": [{"name": "tape_search", "arguments": {"query": "train"}}]},
                {
                    "text": '#3 "not before 18:00"\n#7 "LH410, at 18:40"\n=> So an earlier train was out of the question.'
                },
            ],
        },
        {"when": "lie|cannot be used", "steps": [{"text": '#7 "LH411, at 18:40"'}]},
        {"when": "hotel", "steps": [{"text": "UNKNOWN"}]},
    ],
    "default": [{"text": ANSWER}],
}
READ = [
    f"owner (#0) wrote: “{WANTED}” [#3]",
    f"the bot wrote: “{ANSWER}” [#7]",
    "and nobody checked it: So an earlier train was out of the question.",
]
"""What people read, after the dates."""


def test_a_person_asks_what_happened_and_replays_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, script = tmp_path / "home", tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    env = {"BUBBOT_MODEL__NAME": "scripted", "BUBBOT_MODEL__SCRIPT": str(script)}

    def run(*arguments: str) -> tuple[int, str, str]:
        done = inside.run(home, *arguments, env=env)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    assert run("explain", "default", "Why the late train?")[0] == 4  # there is no home yet
    assert run("replay", "default")[0] == 4
    assert not home.exists()
    run("ask", "--session", "trip", WANTED)
    code, out, err = run("explain", "trp", "Why the late train?")
    assert (code, out, err) == (1, "", "bubbot: there is no chat stdin:trp; bubbot tape list shows all tapes\n")
    code, out, _ = run("explain", "trip", 'Why the late train, chat="x"?')
    assert (code, [line.partition(", ")[2] for line in out.splitlines()]) == (0, READ)
    report = json.loads(run("explain", "trip", "Why the late train?", "--json")[1])
    assert report["status"] == "founded"
    assert [each["cites"][0]["entry"] for each in report["statements"]] == [3, 7]
    assert [each["quote"] for each in report["statements"]] == [WANTED, ANSWER]
    assert report["conclusion"] == "So an earlier train was out of the question."
    code, out, _ = run("explain", "trip", "Tell a lie.")
    assert (code, out.partition(". ")[0]) == (
        1,
        "I found no answer whose sources hold, so I give none: #7 was not shown to the model",
    )
    assert run("explain", "trip", "Which hotel?")[:2] == (
        1,
        "The record of this chat does not tell. Entries read: none.\n",
    )
    code, out, err = run("explain", "telegram:42", "Why?")
    assert (code, out, err) == (1, "", "bubbot: there is no tape telegram:42; bubbot tape list shows all tapes\n")
    code, out, err = run("explain", "telegram:42", "Why?", "--json")
    assert (code, json.loads(out)["status"], json.loads(out)["statements"], err) == (1, "failed", [], "")
    assert run("explain", "trip", " ")[0] == 2
    assert run("explain", "trip", "x" * 2_001)[0] == 2
    code, out, _ = run("replay", "trip", "--from", "1", "--to", "9")
    assert code == 0
    assert out.startswith("Requests built again: 1; different today: 0.\n")
    code, out, err = run("replay", "telegram:42")
    assert (code, out, err) == (1, "", "bubbot: there is no tape telegram:42; bubbot tape list shows all tapes\n")
    code, out, _ = run("replay", "trip", "--to", "9", "-m", "scripted")
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
