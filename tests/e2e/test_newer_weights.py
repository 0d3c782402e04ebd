"""The whole walk with a real daemon, real commands and models over HTTP: rated turns, an export, an offer, an evaluation, new weights, and back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from tests.e2e import bot
from tests.e2e.provider_server import Answer, Asked, refusal, serving_apart
from tests.e2e.test_control import daemon, entries, until
from tests.evals import write_eval
from tests.weights import EVAL, write_weights

ANSWERS = {"first": {"capital": "Rome", "river": "Seine"}, "second": {"capital": "Paris", "river": "Seine"}}
ENV = {"BUBBOT_MODEL__NAME": ""}


@dataclass
class Models:
    """A server of two models; `is_down` are those that cannot be reached."""

    address: str = ""
    requests: list[Asked] = field(default_factory=list[Asked])
    is_down: set[str] = field(default_factory=set[str])

    def answer(self, asked: Asked) -> Answer:
        """Answer as the named model does."""
        name = asked.body["model"].rpartition("/")[2]
        if name in self.is_down:
            return refusal(503, {"error": {"message": "it is not loaded"}})
        said = str(asked.body["messages"][-1]["content"])
        text = next((text for word, text in ANSWERS[name].items() if word in said), "Yes.")
        choices = ({"delta": {"content": text}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"})
        chunks = [{"id": "r", "object": "chat.completion.chunk", "model": name, "choices": [each]} for each in choices]
        return Answer((*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n"))


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short name, as the path of a socket needs it."""
    path = Path(tempfile.mkdtemp())
    yield path
    rmtree(path)


@dataclass
class Walk:
    """The home, and what is typed beside its daemon."""

    home: Path

    def run(self, *words: str) -> str:
        """Run a command; return what it prints."""
        done = bot.run(self.home, *words, env=ENV)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.decode()

    def say(self, text: str) -> str:
        """Say something in a chat."""
        return self.run("ask", "--session", "talk", text)

    def learned(self, name: str) -> list[dict[str, Any]]:
        """The facts of this name."""
        found = [each["payload"] for each in entries(self.home, "bubbot/learn")]
        return [each["data"] for each in found if each.get("name") == name]

    def why(self) -> str:
        """The weights of the last answer."""
        found = json.loads(self.run("why", "--json", "talk"))
        weights: str = found["steps"][-1]["weights"]
        return weights


def test_rated_turns_make_an_export_and_what_passes_answers_from_the_next_window_on(
    tmp_path: Path, sockets: Path
) -> None:
    home, models = tmp_path / "home", Models()
    folder = write_weights(tmp_path / "second")
    with serving_apart(models):
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(
            f'[model]\nname = "openai/first"\napi_base = "{models.address}/v1"\napi_key = "k"\n'
            '[learn]\nafter = 2\nevaluation = "try"\n'
        )
        write_eval(home, EVAL)
        walk = Walk(home)
        with daemon(home, sockets, **ENV) as process:
            assert walk.say("capital") == "Rome\n"
            walk.say(",rate 1")
            assert "1 of 2 rewarded turns; 1 more until the next export" in walk.run("learn", "status")
            walk.say("river")
            walk.say(",rate 5")
            until(lambda: bool(walk.learned("learn/ready")))
            (ready,) = walk.learned("learn/ready")
            path = home / ready["file"]
            assert sha256(path.read_bytes()).hexdigest() == ready["sha256"]
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            assert [(row["completion"][-1]["content"], row["reward"]) for row in rows] == [
                ("Rome", -1.0),
                ("Seine", 1.0),
            ]

            walk.run("eval", "run", "try")
            offered = json.loads(walk.run("learn", "offer", "openai/second", "--weights", str(folder), "--json"))
            models.is_down.add("second")
            bot.run(home, "eval", "run", "try", "--model", "openai/second", env=ENV)
            assert "did not pass try (" in walk.run("learn", "status")
            walk.say(",new")
            assert walk.say("capital") == "Rome\n"
            assert walk.why() == ""
            models.is_down.clear()
            walk.run("eval", "run", "try", "--model", "openai/second")
            until(lambda: bool(walk.learned("learn/accepted")))
            assert walk.say("capital") == "Rome\n"
            process.kill()
        with daemon(home, sockets, **ENV):
            walk.say(",new")
            said = walk.say("capital")
            digest = offered["weights"]
            assert said == f"From here on openai/second answers, with newer weights ({digest}).\n\nParis\n"
            assert walk.why() == digest
            assert f"weights {digest}" in walk.say(",why")
            assert "answered by openai/first from their next message on" in walk.run("learn", "back")
        with daemon(home, sockets, **ENV):
            assert (
                walk.say("capital") == "The newer weights were taken back: from here on openai/first answers.\n\nRome\n"
            )
            assert walk.why() == ""
    assert len(walk.learned("learn/ready")) == len(walk.learned("learn/accepted")) == 1
