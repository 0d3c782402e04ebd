"""Every format of a home in which everything has happened: accepted as it is, refused with any of eight faults, and true."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from bubbot.features.learn.commands import FormatName
from bubbot.features.learn.formats import FORMATS, atif, inspect
from bubbot.ports.model import ModelRequest
from tests.e2e import inside
from tests.learn.exports import has_lines
from tests.learn.faults import FAULTS, Fault
from tests.learn.home import CHAT, CHOSEN, HANGING, LONG, ODD, REJECTED, SUBTASK, LearnHome
from tests.learn.validators import CHECKS, Refused


def read(path: Path) -> Any:
    text = path.read_text("utf-8")
    return (
        [json.loads(line) for line in text.removesuffix("\n").split("\n")]
        if path.suffix == ".jsonl"
        else json.loads(text)
    )


def receipt(path: Path) -> Any:
    return json.loads(path.with_name(f"{path.name}.receipt.json").read_text("utf-8"))


def words(content: object) -> str:
    """The words of a content of any format, without images."""
    if isinstance(content, str):
        return content
    assert isinstance(content, list | tuple)
    return "\n".join(part["text"] for part in content if part["type"] == "text")


@pytest.mark.parametrize("form", CHECKS)
def test_readers_accept_what_is_exported(exports: dict[str, list[Path]], form: str) -> None:
    for path in exports[form]:
        CHECKS[form](path.read_bytes())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("form", "fault"), [pytest.param(form, fault, id=f"{form}: {fault.name}") for form in CHECKS for fault in FAULTS[form]])  # fmt: skip
def test_readers_refuse_what_is_wrong(exports: dict[str, list[Path]], form: str, fault: Fault) -> None:
    data = exports[form][0].read_bytes()
    with pytest.raises(Refused):
        CHECKS[form](fault.plant(data, has_lines=has_lines(form)))


@pytest.mark.parametrize("form", CHECKS)
def test_there_are_eight_faults_or_more(form: str) -> None:
    assert len({fault.name for fault in FAULTS[form]}) >= 8


@pytest.mark.parametrize("form", CHECKS)
def test_nothing_is_left_out_for_want_of_consent(exports: dict[str, list[Path]], form: str) -> None:
    for path in exports[form]:
        for part in receipt(path)["slices"]:
            assert not part["left_out"]
            assert part["turns"] >= 7 or form in ("openai-preference", "trl-preference", "trl-kto")  # not each turn
    assert "an image" in {*receipt(exports["atif"][0])["losses"]}


class TestTrajectory:
    """The trajectory, against what the models were sent."""

    @pytest.fixture
    def steps(self, exports: dict[str, list[Path]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = read(exports["atif"][0])["steps"]
        return found

    def test_what_a_step_was_shown_stands_before_it(self, home: LearnHome, exports: dict[str, list[Path]]) -> None:
        """Each step of a model, with all before it since the window moved, holds one request, message by message."""
        sent = [flatten(request) for request in home.requests]
        for path in exports["atif"]:
            document = read(path)
            for trajectory in [document, *document.get("subagent_trajectories", ())]:
                for shown in requests_of(trajectory):
                    assert shown in sent

    def test_every_answer_of_the_conversation_is_there_once(self, steps: list[dict[str, Any]]) -> None:
        entries = [step["extra"]["entry"] for step in steps if step["source"] == "agent" and "entry" in step.get("extra", {})]  # fmt: skip
        assert entries == sorted(set(entries))

    def test_what_was_said_before_a_turn_is_copied_and_what_is_asked_is_not(self, steps: list[dict[str, Any]]) -> None:
        def asked(text: str) -> list[bool]:
            found = [step for step in steps if step["source"] == "user" and text in step["message"]]
            return [step.get("is_copied_context", False) for step in found]

        assert asked("flight to Lisbon") == [False]
        assert asked("I like Rome") == [False]
        assert asked("Sum it up") == [False, True, True], "its window moves within the turn, twice"
        assert asked("like Rome, corrected?") == [False, True], "it is answered again"
        assert asked("] How do we go?") == [True, True], "only a branch was asked that"
        assert asked(HANGING) == [False], "the answer is asked for again after the kill"

    def test_calls_run_for_a_person_are_of_no_model(self, steps: list[dict[str, Any]]) -> None:
        (step,) = [each for each in steps if any(call["tool_call_id"].startswith("approved") for call in each.get("tool_calls", ()))]  # fmt: skip
        assert (step["llm_call_count"], step.get("is_copied_context")) == (0, None)
        assert [each["content"] for each in step["observation"]["results"]] == ["sent to bob"]

    def test_rewards_stand_at_the_end_of_the_turn_that_was_judged(self, steps: list[dict[str, Any]]) -> None:
        rewarded = {step["message"]: step["extra"]["reward"] for step in steps if "reward" in step.get("extra", {})}
        (chosen,) = [text for text in rewarded if text.startswith("Branch 2 is part of the conversation now")]
        assert rewarded == {
            "I noted the flight.": 1.0,
            "Two of them name a place.": -1.0,
            "None of them works.": -1.0,
            chosen: 0.5,
            "Trips, as the summary says.": -0.5,
        }

    def test_sub_tasks_stand_where_they_were_ordered(self, exports: dict[str, list[Path]]) -> None:
        document = read(exports["atif"][0])
        inner = {each["trajectory_id"]: each for each in document["subagent_trajectories"]}
        found: dict[str, list[str]] = {}
        for step in document["steps"]:
            for result in step.get("observation", {}).get("results", ()):
                for ref in result.get("subagent_trajectory_ref", ()):
                    steps = inner[ref["trajectory_id"]]["steps"]
                    asked = next(each["message"] for each in steps if each["source"] == "user" and "is_copied_context" not in each)  # fmt: skip
                    found.setdefault(step.get("tool_calls", [{}])[0].get("function_name", step["message"][:17]), []).append(f"{asked[19:]} {steps[-1]['message']}")  # fmt: skip
        assert found == {
            "agent_run": [f"{SUBTASK} Two notes name a place."],
            "Asked in branches": [f"How do we go? {REJECTED}", f"How do we go? {CHOSEN}"],
        }

    def test_a_long_result_is_cut_as_the_model_saw_it(self, steps: list[dict[str, Any]]) -> None:
        contents = [
            each.get("content", "") for step in steps for each in step.get("observation", {}).get("results", ())
        ]
        books = [content for content in contents if content.startswith("line 0")]
        assert len(books) == 3
        assert all("[cut: " in book and len(book) < len(LONG) / 4 for book in books)

    def test_failures_say_so(self, steps: list[dict[str, Any]]) -> None:
        assert [step["extra"]["error"] for step in steps if "error" in step.get("extra", {})] == ["scripted refused"]
        results = [each for step in steps for each in step.get("observation", {}).get("results", ())]
        assert sum(each.get("extra", {}).get("is_error", False) for each in results) == 4
        (call,) = [call for step in steps for call in step.get("tool_calls", ()) if "extra" in call]
        assert call["extra"] == {"arguments": "{oh"}

    def test_each_agent_of_a_group_is_named(self, exports: dict[str, list[Path]]) -> None:
        steps = read(exports["atif"][1])["steps"]
        assert [step["extra"].get("agent", "") for step in steps if step["source"] == "agent" and "entry" in step.get("extra", {})] == ["", "rosi", "", "rosi", "tom", "", "", ""]  # fmt: skip

    def test_a_message_that_joined_stands_between_the_steps_of_its_turn(self, exports: dict[str, list[Path]]) -> None:
        steps = read(exports["atif"][1])["steps"]
        place = next(number for number, step in enumerate(steps) if "And three?" in step["message"])
        assert [step.get("extra", {}).get("turn", "") for step in steps[place - 1 : place + 2]][::2] == [steps[place - 1]["extra"]["turn"]] * 2  # fmt: skip
        assert "is_copied_context" not in steps[place]


class TestRows:
    """The lines, against what the models were sent."""

    def test_a_prompt_is_what_was_shown(self, home: LearnHome, exports: dict[str, list[Path]]) -> None:
        shown = [flatten(request) for request in home.requests]
        for row in read(exports["trl-sft"][0]):
            assert pairs(row["prompt"]) in [merge(each) for each in shown]

    def test_both_forms_of_rows_say_the_same(self, exports: dict[str, list[Path]]) -> None:
        chats, rows = read(exports["openai-chat"][0]), read(exports["trl-sft"][0])
        whole = [pairs([*row["prompt"], *row["completion"]]) for row in rows]
        told = [pairs(chat["messages"]) for chat in chats]
        (cut,) = [each for each in whole if each not in told]
        assert [each for each in whole if each != cut] == told
        for chat in chats:
            row = rows[whole.index(pairs(chat["messages"]))]
            weights = [each.get("weight", 1) for each in chat["messages"] if each["role"] == "assistant"]
            before = sum(each["role"] == "assistant" for each in row["prompt"])
            assert not any(weights[:before]) or pairs(row["prompt"])[: len(cut)] == cut

    def test_what_a_person_said_meanwhile_ends_what_is_learned(self, exports: dict[str, list[Path]]) -> None:
        rows = read(exports["trl-sft"][0])
        assert {message["role"] for row in rows for message in row["completion"]} == {"assistant", "tool"}
        joined = next(row for row in rows if row["completion"][-1]["content"] == "Three.")
        assert joined["prompt"][-1]["content"].endswith("And three?")
        assert joined["prompt"][-3]["tool_calls"][0]["function"]["name"] == "slow_count"

    def test_what_could_not_be_called_is_not_learned(self, exports: dict[str, list[Path]]) -> None:
        rows = read(exports["openai-chat"][0])
        calling = [each for row in rows for each in row["messages"] if any(call["function"]["name"] == "no_such_tool" for call in each.get("tool_calls", ()))]  # fmt: skip
        assert calling
        assert {each["weight"] for each in calling} == {0}

    def test_arguments_that_are_no_json_stand_where_they_were_written(self, exports: dict[str, list[Path]]) -> None:
        row = next(row for row in read(exports["trl-sft"][0]) if row["completion"][-1]["content"].startswith("None of"))
        assert row["completion"][0]["tool_calls"][-1]["function"]["arguments"] == {"text": "{oh"}
        assert receipt(exports["trl-sft"][0])["losses"]["arguments that are no JSON object"] == 1
        samples = read(exports["inspect"][0])["samples"]
        calls = [call for sample in samples for each in sample["messages"] for call in each.get("tool_calls", ())]
        failed = [each for sample in samples for each in sample["messages"] if "error" in each]
        assert [each["function"] for each in failed][:3] == ["bell_ring", "no_such_tool", "book_read"]
        assert [call["parse_error"] for call in calls if "parse_error" in call] == ["these are no JSON object: {oh"]

    def test_the_chosen_branch_is_preferred(self, exports: dict[str, list[Path]]) -> None:
        (row,) = read(exports["openai-preference"][0])
        (pair,) = read(exports["trl-preference"][0])
        assert row["preferred_output"] == pair["chosen"] == [{"role": "assistant", "content": CHOSEN}]
        assert row["non_preferred_output"] == pair["rejected"] == [{"role": "assistant", "content": REJECTED}]
        assert pair["prompt"][-1]["content"].endswith("How do we go?")

    def test_labels_follow_rewards(self, exports: dict[str, list[Path]]) -> None:
        rows = read(exports["trl-kto"][0])
        assert [(row["completion"][-1]["content"], row["label"]) for row in rows] == [
            ("I noted the flight.", True),
            ("Two of them name a place.", False),
            ("None of them works.", False),
            ("Trips, as the summary says.", False),
        ]

    def test_odd_words_survive(self, exports: dict[str, list[Path]]) -> None:
        assert f"You wrote {ODD}" in [row["completion"][-1]["content"] for row in read(exports["trl-sft"][0])]

    def test_an_image_is_in_the_messages_of_its_person(self, exports: dict[str, list[Path]]) -> None:
        row = next(row for row in read(exports["openai-chat"][0]) if row["messages"][-1]["content"].startswith("A red"))
        parts = row["messages"][-2]["content"]
        assert [part["image_url"]["url"][:22] for part in parts if part["type"] == "image_url"] == [
            "data:image/png;base64,"
        ]

    def test_parallel_calls_stay_in_one_message(self, exports: dict[str, list[Path]]) -> None:
        row = next(row for row in read(exports["trl-sft"][0]) if row["completion"][-1]["content"].startswith("Two of"))
        calling, *results = row["completion"][:4]
        assert [call["function"]["name"] for call in calling["tool_calls"]] == [
            "memory_show",
            "tape_search",
            "book_read",
        ]
        assert [each["name"] for each in results] == ["memory_show", "tape_search", "book_read"]


def test_interactions_go_on_from_each_other(exports: dict[str, list[Path]]) -> None:
    """AReaL finds the parent of an interaction by its messages: those of a turn are found."""
    records = [*read(exports["areal"][0])["interactions"].values()]
    wholes = [[*each["messages"], *each["output_message_list"]] for each in records]
    followed = [record for number, record in enumerate(records) if any(record["messages"][: len(whole)] == whole for whole in wholes[:number])]  # fmt: skip
    assert len(followed) >= len(records) / 2


def flatten(request: ModelRequest) -> list[tuple[str, str]]:
    """A request as the steps of a trajectory hold it: results by their calls, images lost."""
    return [("system", request.system), *pairs(request.messages)]


def pairs(messages: Sequence[Any]) -> list[tuple[str, str]]:
    """The roles and the words of messages."""
    return [(each["role"], words(each["content"])) for each in messages]


def merge(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Messages with answers that follow each other in one, as rows have them."""
    merged: list[tuple[str, str]] = []
    for role, text in messages:
        if merged and role == merged[-1][0] == "assistant":
            merged[-1] = role, f"{merged[-1][1]}\n\n{text}".strip()
        else:
            merged.append((role, text))
    return merged


def requests_of(trajectory: Any) -> list[list[tuple[str, str]]]:
    """What each step of a model was shown, by the steps before it."""
    found: list[list[tuple[str, str]]] = []
    system, shown = "", list[tuple[str, str]]()
    for step in trajectory["steps"]:
        extra = step.get("extra", {})
        if "context_management" in extra:
            system, shown = "", []
        elif step["source"] == "system":
            system = step["message"]
        elif "command" in extra or (step["source"] == "user" and step["message"].startswith(",")):
            continue
        else:
            if step.get("llm_call_count"):
                found.append([("system", system), *shown])
            if step.get("llm_call_count") and not step["message"] and not step.get("tool_calls"):
                continue
            shown.append(("assistant" if step["source"] == "agent" else "user", step["message"]))
            shown += [("tool", each["content"]) for each in step.get("observation", {}).get("results", ()) if each.get("source_call_id")]  # fmt: skip
    return found


@pytest.mark.parametrize("form", ["atif", "inspect"])
def test_what_waits_on_the_disk_for_the_end_comes_whole(
    home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr({"atif": atif, "inspect": inspect}[form], "SPOOLED_BYTES", 1)
    done = inside.run(home.path, "export", form, CHAT, "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.json").read_bytes() == exports[form][0].read_bytes()


def test_each_format_can_be_asked_for_by_its_name() -> None:
    assert [each.name for each in FORMATS] == [*get_args(FormatName)]
