"""Faults of exports, each of which a reader of the format refuses: eight for each format, planted into a real export."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Change = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: what is wrong.
        change: puts it into what the file holds: a document, or a list of rows.
        readers: the programs that refuse it, of those that the proof runs.
    """

    name: str
    change: Change
    readers: tuple[str, ...] = ()

    def plant(self, data: bytes, *, has_lines: bool) -> bytes:
        """Return a file with the fault."""
        value = [json.loads(line) for line in data.splitlines()] if has_lines else json.loads(data)
        self.change(value)
        if not has_lines:
            return json.dumps(value, ensure_ascii=False).encode()
        return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in value)


def _first(items: Sequence[Any], is_right: Callable[[Any], Any]) -> Any:
    return next(each for each in items if is_right(each))


def _step(document: Any, key: str) -> Any:
    return _first(document["steps"], lambda step: step.get(key) and not step.get("is_copied_context"))


def _user(document: Any) -> Any:
    return _first(document["steps"], lambda step: step["source"] == "user")


def _called(rows: Any, key: str) -> Any:
    """Return the messages of the first row with a call, under this key."""
    return _first(rows, lambda row: any(each.get("tool_calls") for each in row[key]))[key]


def _message(messages: Any, role: str) -> Any:
    return _first(messages, lambda each: each["role"] == role)


def _calling(messages: Any) -> Any:
    return _first(messages, lambda each: each.get("tool_calls"))


def _move_result(messages: Any) -> None:
    result = _message(messages, "tool")
    messages.remove(result)
    messages.append(result)


def _sample(document: Any) -> Any:
    return _first(document["samples"], lambda each: any(message.get("tool_calls") for message in each["messages"]))


def _interaction(document: Any) -> Any:
    return _first([*document["interactions"].values()], lambda each: each["reward"] is not None)


def _move_samples_first(document: Any) -> None:
    samples = document.pop("samples")
    rest = dict(document)
    document.clear()
    document.update({"version": rest.pop("version"), "samples": samples, **rest})


def _look_like_a_trace(rows: Any) -> None:
    for row in rows:
        row.update(id="1", source="chat", model="gpt", system_prompt="Be brief.", messages=row["prompt"])


BOTH = ("harbor", "atif")
INSPECT = ("inspect",)
LOADER = ("datasets",)


def _trl(answer: str) -> tuple[Fault, ...]:
    return (
        Fault("the columns of another program's trace", _look_like_a_trace, LOADER),
        Fault("an empty prompt", lambda rows: rows[0].update(prompt=[])),
        Fault("a prompt that is a text", lambda rows: rows[-1].update(prompt="Hello")),
        Fault("no content", lambda rows: rows[0]["prompt"][-1].update(content=None)),
        Fault("an unknown role", lambda rows: rows[0]["prompt"][0].update(role="developer")),
        Fault("the answer is missing", lambda rows: rows[0].pop(answer)),
        Fault("the prompt ends with a rule", lambda rows: rows[0]["prompt"].append({"role": "system", "content": "Be brief."})),
    )  # fmt: skip


FAULTS: Mapping[str, tuple[Fault, ...]] = MappingProxyType(
    {
        "atif": (
            Fault("a number of a step twice", lambda doc: doc["steps"][2].update(step_id=2), BOTH),
            Fault("an unknown field", lambda doc: doc["steps"][0].update(reward=1.0), BOTH),
            Fault("the result of no call", lambda doc: _step(doc, "tool_calls")["observation"]["results"][0].update(source_call_id="none"), BOTH),
            Fault("a field of agents alone", lambda doc: _user(doc).update(model_name="gpt"), BOTH),
            Fault("tokens without a model", lambda doc: _step(doc, "metrics").update(llm_call_count=0), BOTH),
            Fault("a time that is none", lambda doc: _step(doc, "timestamp").update(timestamp="yesterday"), BOTH),
            Fault("arguments as a text", lambda doc: _step(doc, "tool_calls")["tool_calls"][0].update(arguments="{}"), BOTH),
            Fault("a sub-task without an id", lambda doc: doc["subagent_trajectories"][0].pop("trajectory_id"), BOTH),
            Fault("no agent", lambda doc: doc.pop("agent"), BOTH),
        ),
        "openai-chat": (
            Fault("a reward", lambda rows: rows[0].update(reward=1.0)),
            Fault("an unknown role", lambda rows: rows[0]["messages"][0].update(role="developer")),
            Fault("the result of no call", lambda rows: _message(_called(rows, "messages"), "tool").update(tool_call_id="none")),
            Fault("a result that is late", lambda rows: _move_result(_called(rows, "messages"))),
            Fault("two answers in a row", lambda rows: rows[0]["messages"].append({"role": "assistant", "content": "Once more."})),
            Fault("arguments as an object", lambda rows: _calling(_called(rows, "messages"))["tool_calls"][0]["function"].update(arguments={})),
            Fault("arguments that are no JSON", lambda rows: _calling(_called(rows, "messages"))["tool_calls"][0]["function"].update(arguments="{oh")),
            Fault("half a weight", lambda rows: _message(rows[0]["messages"], "assistant").update(weight=0.5)),
            Fault("no messages", lambda rows: rows[0].pop("messages")),
        ),
        "openai-preference": (
            Fault("the names of an earlier version", lambda rows: rows[0].update(preferred_completion=rows[0].pop("preferred_output"))),
            Fault("a weight", lambda rows: rows[0]["preferred_output"][0].update(weight=1)),
            Fault("two answers", lambda rows: rows[0]["preferred_output"].append({"role": "assistant", "content": "Once more."})),
            Fault("no answer", lambda rows: rows[0].update(non_preferred_output=[])),
            Fault("the same answer twice", lambda rows: rows[0].update(non_preferred_output=rows[0]["preferred_output"])),
            Fault("what is asked ends with an answer", lambda rows: rows[0]["input"]["messages"].append({"role": "assistant", "content": "Yes."})),
            Fault("the messages stand elsewhere", lambda rows: rows[0].update(messages=rows[0].pop("input")["messages"])),
            Fault("an answer of a person", lambda rows: rows[0]["preferred_output"][0].update(role="user")),
        ),
        "trl-sft": (
            *_trl("completion"),
            Fault("arguments as a text", lambda rows: _calling(_called(rows, "completion"))["tool_calls"][0]["function"].update(arguments="{}")),
            Fault("the result of no call", lambda rows: _message(_called(rows, "completion"), "tool").update(tool_call_id="none")),
        ),
        "trl-kto": (
            *_trl("completion"),
            Fault("no label", lambda rows: rows[0].update(label=None)),
            Fault("a label that is a number", lambda rows: rows[0].update(label=1)),
        ),
        "trl-preference": (
            *_trl("rejected"),
            Fault("tools that are a list", lambda rows: rows[0].update(tools=json.loads(rows[0]["tools"]))),
            Fault("the same answer twice", lambda rows: rows[0].update(rejected=rows[0]["chosen"])),
        ),
        "inspect": (
            Fault("a version to come", lambda doc: doc.update(version=3), INSPECT),
            Fault("no date", lambda doc: doc["eval"].pop("created"), INSPECT),
            Fault("the samples first", _move_samples_first, INSPECT),
            Fault("an unknown role", lambda doc: doc["samples"][0]["messages"][0].update(role="developer"), INSPECT),
            Fault("no content", lambda doc: doc["samples"][0]["messages"][-1].update(content=None), INSPECT),
            Fault("arguments as a text", lambda doc: _calling(_sample(doc)["messages"])["tool_calls"][0].update(arguments="{}"), INSPECT),
            Fault("a sample without an id", lambda doc: doc["samples"][0].pop("id"), INSPECT),
            Fault("an unknown reason to stop", lambda doc: doc["samples"][0]["output"]["choices"][0].update(stop_reason="end"), INSPECT),
            Fault("no score", lambda doc: _first(doc["samples"], lambda each: each.get("scores"))["scores"]["reward"].update(value=None), INSPECT),
        ),
        "areal": (
            Fault("another id", lambda doc: _interaction(doc).update(interaction_id="none")),
            Fault("no messages", lambda doc: _interaction(doc).update(messages=None)),
            Fault("no answer", lambda doc: _interaction(doc).update(output_message_list=None)),
            Fault("no field for the answer", lambda doc: _interaction(doc).pop("output_message_list")),
            Fault("no field for the reward", lambda doc: _interaction(doc).pop("reward")),
            Fault("a reward in words", lambda doc: _interaction(doc).update(reward="good")),
            Fault("what becomes an object of a class", lambda doc: _interaction(doc)["messages"].append({"role": "user", "content": [{"type": "dataclass"}]})),
            Fault("no interactions", lambda doc: doc.update(trajectories=doc.pop("interactions"))),
        ),
    }
)  # fmt: skip
"""The faults of each format, by the name that people type."""
