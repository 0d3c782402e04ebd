"""A real Phoenix reads the traces of a real bot: `make phoenix` installs it. Missing, that is a failure in the proof."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from bubbot.features.otel import names
from bubbot.features.otel.annotations import RESERVED_NAME
from bubbot.features.otel.content import Exposure
from bubbot.features.otel.encoding import encode_turn
from bubbot.features.otel.spans import TurnSpans
from bubbot.tape.query import TapeQuery
from tests.e2e.phoenix import (
    CHROMIUM,
    PICTURE_SIZE,
    draw_trace,
    phoenix_folder,
    phoenix_is_installed,
    running_phoenix,
    shown,
)
from tests.traced import say, written

SENT = ("name", "annotator_kind", "identifier", "result", "metadata")
MISSING = "Phoenix is not installed: make phoenix"


@pytest.fixture
def phoenix_missing(request: pytest.FixtureRequest) -> None:
    """Skip without Phoenix; fail in the proof."""
    if not phoenix_is_installed():
        (pytest.fail if request.config.getoption("--proof") else pytest.skip)(MISSING)


@pytest.mark.usefixtures("phoenix_missing")
def test_the_names_of_openinference_are_those_that_phoenix_reads() -> None:
    (file,) = phoenix_folder().glob("lib/python*/site-packages/openinference/semconv/trace/__init__.py")
    known = {node.value for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant)}
    ours = {str(name) for name in names.Name if not name.startswith(("bubbot.", "gen_ai.", "error."))}
    assert ours - known == set()
    assert {names.AGENT_KIND, names.STEP_KIND, names.TOOL_KIND} <= known


@pytest.mark.proof
@pytest.mark.usefixtures("phoenix_missing")
async def test_phoenix_shows_a_turn_with_its_steps_calls_and_messages(tmp_path: Path) -> None:
    async with (
        running_phoenix(tmp_path) as phoenix,
        shown(tmp_path / "home", phoenix, content="redacted") as (bot, turn),
    ):
        await say(bot, "refuse this")
        await written(bot, "otel/exported", 2)
        count = 22
        spans = await phoenix.spans(count)
        # A kill between its answer and our checkpoint sends the same spans again: it knows them by their ids.
        tape = bot.tape("stdin:default")
        (entries,) = await bot.store.fetch([TapeQuery(tape.name)])
        of_turn = [entry for entry in entries if entry.meta.get("turn") == turn]
        again = TurnSpans(of_turn, Exposure("off", str, b"")).build()
        body, kind = encode_turn(again, "bubbot", "1"), {"content-type": "application/x-protobuf"}
        async with phoenix.session.post(f"{phoenix.url}/v1/traces", data=body, headers=kind) as answer:
            assert answer.status == 200
        await say(bot, "one more")
        after = await phoenix.spans(count + 3)
        assert len({span["context"]["span_id"] for span in after}) == len(after) == count + 3
        sessions = await phoenix.get("projects/default/sessions")

    by_id = {span["context"]["span_id"]: span for span in spans}
    assert len(by_id) == count
    ours = [span for span in spans if span["context"]["trace_id"] == turn]
    assert Counter(span["span_kind"] for span in ours) == {"AGENT": 2, "CHAIN": 5, "LLM": 5, "TOOL": 4}
    (root,) = [span for span in ours if not span["parent_id"]]
    assert root["attributes"]["input.value"] == "Which of my notes are about the trip?"
    assert root["attributes"]["output.value"].startswith("Two of them")
    messages = {key: value for key, value in root["attributes"].items() if key.startswith("llm.input_messages.")}
    assert messages["llm.input_messages.0.message.content"] == "Which of my notes are about the trip?"
    assert messages["llm.input_messages.1.message.tool_calls.1.tool_call.function.name"] == "tape_search"
    (agent,) = [span for span in ours if span["name"] == "invoke_agent counter"]
    above = [by_id[agent["parent_id"]]]
    while above[-1]["parent_id"]:
        above.append(by_id[above[-1]["parent_id"]])
    assert [span["name"] for span in above] == ["execute_tool agent_run", "step 2", "invoke_agent bubbot"]
    model = next(span for span in ours if span["span_kind"] == "LLM")["attributes"]
    assert model["llm.input_messages.0.message.role"] == "system"
    assert len(model["llm.input_messages.0.message.content"]) > 1_000
    asked = "Remember: the flight to Lisbon leaves on Friday."
    said = [value for key, value in model.items() if re.fullmatch(r"llm.input_messages.\d+.message.content", key)]
    assert any(asked in text for text in said), "what was said in the turn before"
    tools = [json.loads(value) for key, value in model.items() if re.fullmatch(r"llm.tools.\d+.tool.json_schema", key)]
    assert "tape_search" in [tool["function"]["name"] for tool in tools]
    assert all(tool["function"]["parameters"]["type"] == "object" for tool in tools)
    assert model["llm.token_count.prompt"] > 100
    assert model["llm.model_name"] == "scripted"
    failed = [span for span in spans if span["status_code"] == "ERROR"]
    assert {span["span_kind"] for span in failed} == {"AGENT", "CHAIN", "LLM"}
    (session,) = sessions
    assert session["session_id"] == root["attributes"]["session.id"] != "stdin:default"


@pytest.mark.proof
@pytest.mark.usefixtures("phoenix_missing")
async def test_phoenix_shows_judgements_as_annotations_and_the_newest_counts(tmp_path: Path) -> None:
    async with (
        running_phoenix(tmp_path) as phoenix,
        shown(tmp_path / "home", phoenix, content="redacted") as (bot, turn),
    ):
        spans = await phoenix.spans(10)
        (root,) = [span for span in spans if span["context"]["trace_id"] == turn and not span["parent_id"]]
        address = f"projects/default/span_annotations?span_ids={root['context']['span_id']}"
        await say(bot, ",rate 2 Ann (81450002) has another hotel.")
        await written(bot, "otel/annotated")
        (first,) = await phoenix.get(address)
        await say(bot, ",rate 5")
        await written(bot, "otel/annotated", 2)
        found = {each["identifier"]: each for each in await phoenix.get(address)}
        # What is sent twice changes nothing; a name that Phoenix keeps for itself is refused there.
        body = {"data": [{**{name: first[name] for name in SENT}, "span_id": root["context"]["span_id"]}]}
        async with phoenix.session.post(f"{phoenix.url}/v1/span_annotations?sync=true", json=body) as answer:
            assert answer.status == 200
        assert len(await phoenix.get(address)) == 2
        body["data"][0]["name"] = RESERVED_NAME
        async with phoenix.session.post(f"{phoenix.url}/v1/span_annotations?sync=true", json=body) as answer:
            assert answer.status == 400
        body["data"][0] |= {"name": "quality", "span_id": "ab" * 8}
        async with phoenix.session.post(f"{phoenix.url}/v1/span_annotations?sync=true", json=body) as answer:
            assert (answer.status, b"ab" * 8 in await answer.read()) == (404, True)
        async with phoenix.session.post(f"{phoenix.url}/v1/span_annotations?sync=true", json={"data": []}) as answer:
            assert (answer.status, await answer.json()) == (200, {"data": []})
    assert (first["name"], first["annotator_kind"], first["result"]["score"]) == ("quality", "HUMAN", 2.0)
    assert "81450002" not in first["result"]["explanation"]
    assert len(found) == 2
    old, (new,) = found[first["identifier"]], [each for name, each in found.items() if name != first["identifier"]]
    assert new["result"]["score"] == 5.0
    assert (old["result"]["score"], old["metadata"]["superseded_by"]) == (None, new["identifier"])


@pytest.mark.proof
@pytest.mark.usefixtures("phoenix_missing")
async def test_the_picture_of_the_documentation_can_be_drawn(tmp_path: Path) -> None:
    from PIL import Image

    assert CHROMIUM.exists(), "apt install chromium"
    async with running_phoenix(tmp_path) as phoenix, shown(tmp_path / "home", phoenix, content="redacted") as (_, turn):
        await phoenix.spans(10)
        await draw_trace(phoenix, turn, tmp_path / "phoenix.png")
    with Image.open(tmp_path / "phoenix.png") as picture:
        assert picture.size == PICTURE_SIZE
        colors = picture.convert("RGB").getcolors(100_000)
    assert colors is not None
    assert len(colors) > 30, "a page that did not load is of one color"
    await asyncio.sleep(0)
