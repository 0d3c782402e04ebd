"""What litellm alone has: how it loads, and when it is not loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.ports.model import ModelOptions, ModelReply, ModelRequest
from tests.e2e.bot import environment
from tests.e2e.model_paths import make_model, model_path  # noqa: F401 - a fixture among them
from tests.e2e.openai_server import says, serving

ROOT = Path(__file__).parents[2]
STALL = 1.0
"""Seconds; the goal is 0.25, and this machine may be busy with other things. The figure is printed."""


@pytest.mark.proof  # in every run test_lazy has a load that goes on beside the loop; this measures the real one
def test_loading_stops_the_event_loop_only_briefly() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.e2e.litellm_child"],
        capture_output=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    facts = json.loads(done.stdout)
    print(facts)
    assert not facts["loaded_before"]
    assert (facts["first_text"], facts["second_text"]) == ("hello there", "hello there")
    assert max(facts["first_stall"], facts["second_stall"]) < STALL


WITHOUT = [["--help"], ["tape", "list"], ["ask", ",help"], ["ask", ",context"]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arguments", WITHOUT, ids=" ".join)
def test_what_asks_no_model_never_loads_litellm(tmp_path: Path, arguments: list[str]) -> None:
    program = (
        "import sys\nfrom bubbot.cli.main import main\ntry: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "assert not {'litellm', 'openai', 'httpx', 'xllamacpp'} & sys.modules.keys()\nsys.exit(code)"
    )
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, timeout=30, check=False, cwd=ROOT,
        env=environment(home, BUBBOT_MODEL__NAME="openai/test"),
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode()


# Warnings of pydantic about litellm's own code: not ours to mend.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.usefixtures("model_path")
async def test_a_fallback_at_its_own_provider_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the settings belongs to the first model; a fallback of OpenAI sits at OpenAI."""
    settings = {
        "api_base": "http://127.0.0.1:1",
        "fallback": ["openai/gpt-4o"],
        "key_provider": "ollama_chat",
        "retries": 0,
    }
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-1")
    async with serving(says("hello")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address)
        model = make_model(ModelOptions("ollama_chat/x", Path("unused"), settings))
        events = [event async for event in model.stream(ModelRequest("", ({"role": "user", "content": "hi"},)))]
        await model.aclose()
    reply = events[-1]
    assert isinstance(reply, ModelReply)
    assert reply.model == "openai/gpt-4o"
    assert reply.usage.cost
    assert reply.usage.cost > 0
