"""What a reader of each format refuses, by its published schema and by the rules that a schema cannot say.

Nothing here is shared with the exporters. Each check raises `Refused`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jsonschema import Draft202012Validator

DATA = Path(__file__).parents[1] / "data" / "formats"
Messages = Sequence[Mapping[str, Any]]
AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
"""Fields that only the step of an agent may have."""
HEAD_KEYS = ("version", "status", "eval", "plan", "results", "stats", "samples")
"""The order in which Inspect reads the head of a log without its samples."""
TRACE_COLUMNS = ({"id", "source", "model", "system_prompt", "messages"}, {"type", "message"}, {"type", "payload"}, {"type", "id", "version", "cwd"})  # fmt: skip
"""Columns by which `datasets` takes rows for the trace of another program."""
INTERPRETED = frozenset(("tensor", "ndarray", "dataclass", "enum", "tokenizer", "processor", "pil_image", "torch_dtype"))  # fmt: skip
"""Values of `type` that AReaL takes for a thing of its own."""
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refused(Exception):
    """The file is not of the format."""


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise Refused(problem)


@cache
def _schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((DATA / f"{name}.json").read_text("utf-8")))


def _match(name: str, value: Any) -> None:
    for error in _schema(name).iter_errors(value):
        raise Refused(f"{error.json_path}: {error.message[:200]}")


def _read(data: bytes) -> Any:
    def refuse(name: str) -> None:
        raise Refused(f"{name} is no JSON")

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        _require(len({key for key, _ in found}) == len(found), "a key stands twice in an object")
        return dict(found)

    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse, object_pairs_hook=pairs)
    except ValueError as error:
        raise Refused(str(error)) from error


def _read_lines(data: bytes) -> list[dict[str, Any]]:
    _require(
        data.endswith(b"\n") and not data.startswith(b"\xef\xbb\xbf"), "not whole lines without a mark of their order"
    )
    rows = [_read(line) for line in data.removesuffix(b"\n").split(b"\n")]
    _require(all(isinstance(row, dict) for row in rows), "a line is no object")
    return rows


def check_atif(data: bytes) -> None:
    """Check a trajectory of version 1.8."""
    document = _read(data)
    _match("atif", document)
    _check_trajectory(document)
    embedded = [each.get("trajectory_id") for each in document.get("subagent_trajectories") or ()]
    _require(all(embedded) and len({*embedded}) == len(embedded), "an embedded trajectory has no id of its own")
    for each in document.get("subagent_trajectories") or ():
        _check_trajectory(each)
    referenced = {
        ref["trajectory_id"] for step in _all_steps(document) for ref in _references(step) if ref.get("trajectory_id")
    }
    _require(referenced <= {*embedded}, "a reference leads to no trajectory")
    _require({*embedded} <= referenced, "no step refers to an embedded trajectory")
    rewarded = [step["extra"]["reward"] for step in _all_steps(document) if "reward" in step.get("extra", {})]
    _require(all(isinstance(each, float) and math.isfinite(each) for each in rewarded), "a reward is no number")


def _all_steps(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from document["steps"]
    for each in document.get("subagent_trajectories") or ():
        yield from each["steps"]


def _results(step: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (step.get("observation") or {}).get("results", ())
    return found


def _references(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for result in _results(step):
        yield from result.get("subagent_trajectory_ref") or ()


def _check_trajectory(document: Mapping[str, Any]) -> None:
    _require("schema_version" in document, "no version")
    steps = document["steps"]
    _require(steps, "no steps")
    _require([step["step_id"] for step in steps] == [*range(1, len(steps) + 1)], "steps are not numbered 1, 2, 3")
    for step in steps:
        _check_step(step)
    totals = document.get("final_metrics") or {}
    _require(totals.get("total_steps", len(steps)) == len(steps), "the number of steps is another")
    if not document.get("subagent_trajectories"):
        written = sum((step.get("metrics") or {}).get("completion_tokens") or 0 for step in steps)
        _require(totals.get("total_completion_tokens", written) == written, "the tokens do not add up")


def _check_step(step: Mapping[str, Any]) -> None:
    place = f"step {step['step_id']}"
    if step["source"] != "agent":
        _require(not any(step.get(key) is not None for key in AGENT_ONLY), f"{place}: a field of agents alone")
    elif not step.get("is_copied_context"):
        _require(isinstance(step.get("llm_call_count"), int), f"{place}: calls of models are not counted")
    if step.get("llm_call_count") == 0:
        _require(not step.get("metrics") and not step.get("reasoning_content"), f"{place}: tokens without a model")
    if (date := step.get("timestamp")) is not None:
        try:
            datetime.fromisoformat(date.replace("Z", "+00:00"))
        except ValueError as error:
            raise Refused(f"{place}: {error}") from error
    calls = [call["tool_call_id"] for call in step.get("tool_calls") or ()]
    _require(len({*calls}) == len(calls), f"{place}: two calls of one id")
    answered = [each["source_call_id"] for each in _results(step) if each.get("source_call_id") is not None]
    _require({*answered} <= {*calls}, f"{place}: the result of no call")
    _require(len({*answered}) == len(answered), f"{place}: two results of one call")
    for ref in _references(step):
        _require(ref.get("trajectory_id") or ref.get("trajectory_path"), f"{place}: a reference to nothing")
    metrics = step.get("metrics") or {}
    counts = [metrics.get(key) or 0 for key in ("prompt_tokens", "completion_tokens", "cached_tokens")]
    _require(min(counts) >= 0 and counts[2] <= counts[0], f"{place}: impossible numbers of tokens")


def check_openai_chat(data: bytes) -> None:
    """Check lines for supervised fine-tuning."""
    for row in _read_lines(data):
        _match("openai-sft", row)
        messages, names = row["messages"], _tool_names(row.get("tools", ()))
        _check_order(messages, are_texts=True)
        trained = [each for each in messages if each["role"] == "assistant" and each.get("weight", 1) == 1]
        for call in (call for each in trained for call in each.get("tool_calls", ())):
            _require(
                call["function"]["name"] in names, f"{call['function']['name']} is learned, and could not be called"
            )
        _require(messages[-1]["role"] == "assistant", "nothing is answered")
        for each in messages:
            _require(each["role"] != "assistant" or each.get("content") or each.get("tool_calls"), "an empty answer")


def check_openai_preference(data: bytes) -> None:
    """Check lines of pairs."""
    for row in _read_lines(data):
        _match("openai-dpo", row)
        messages = row["input"]["messages"]
        _check_order(messages, are_texts=True)
        _require(messages[-1]["role"] in ("user", "tool"), "what is asked ends with an answer")
        (preferred,), (other,) = row["preferred_output"], row["non_preferred_output"]
        _require("weight" not in preferred | other, "a weight in a pair")
        _require(preferred["content"] and other["content"], "an empty answer")
        _require(preferred != other, "both answers are one")


def _tool_names(tools: Any) -> set[str]:
    names = [tool["function"]["name"] for tool in tools]
    _require(len({*names}) == len(names), "a tool stands twice")
    _require(all(_TOOL_NAME.fullmatch(name) for name in names), "a name that no tool may have")
    return {*names}


def _check_order(messages: Messages, *, are_texts: bool) -> None:
    """Check that results follow their calls, at once and all of them, and that answers alternate with others."""
    waiting: list[str] = []
    before = ""
    for place, message in enumerate(messages):
        role, is_last = message["role"], place == len(messages) - 1
        if role == "tool":
            _require(message.get("tool_call_id") in waiting, "a result without its call")
            waiting.remove(message["tool_call_id"])
        else:
            _require(not waiting, "a call without its result")
            _require(not role == before == "assistant", "two answers in a row")
            _require(role != "system" or not place, "a system message within")
        for call in message.get("tool_calls") or ():
            _require(call["id"] not in waiting, "two calls of one id")
            waiting.append(call["id"])
            arguments = call["function"]["arguments"]
            _require(isinstance(arguments, str) is are_texts, "arguments of the wrong type")
            _require(
                isinstance(_read(arguments.encode()) if are_texts else arguments, dict), "arguments that are no object"
            )
        if isinstance(content := message.get("content"), list):
            _require(
                role == "user" or not any(part["type"] == "image_url" for part in content),
                "an image that no person sent",
            )
        before = role
        _require(not is_last or role in ("assistant", "user", "tool"), "nothing is said")


def check_trl_sft(data: bytes) -> None:
    """Check lines of prompts and completions."""
    _check_rows(data, {"prompt": list, "completion": list, "tools": str, "reward": float}, ("completion",))


def check_trl_kto(data: bytes) -> None:
    """Check lines of completions that are good or bad."""
    _check_rows(data, {"prompt": list, "completion": list, "tools": str, "label": bool}, ("completion",))


def check_trl_preference(data: bytes) -> None:
    """Check lines of pairs."""
    for row in _check_rows(
        data, {"prompt": list, "chosen": list, "rejected": list, "tools": str}, ("chosen", "rejected")
    ):
        _require(row["chosen"] != row["rejected"], "both answers are one")


def _check_rows(data: bytes, columns: Mapping[str, type], answers: Sequence[str]) -> list[dict[str, Any]]:
    rows = _read_lines(data)
    for row in rows:
        _require(not any(found <= {*row} for found in TRACE_COLUMNS), "columns of the trace of another program")
        _require({*row} == {*columns}, f"the columns are {[*row]}")
        for name, kind in columns.items():
            _require(type(row[name]) is kind, f"{name} is of another type")
        tools = _read(row["tools"].encode())
        _require(isinstance(tools, list), "the tools are no list")
        _tool_names(tools)
        prompt = row["prompt"]
        _require(prompt and prompt[-1].get("role") in ("user", "tool"), "the prompt does not end with a question")
        for answer in answers:
            _require(row[answer], "nothing is answered")
            for message in [*prompt, *row[answer]]:
                _check_trl_message(message)
            _check_order([*prompt, *row[answer]], are_texts=False)
            _require(row[answer][-1]["role"] == "assistant", "the answer does not end with the assistant")
    return rows


def _check_trl_message(message: Any) -> None:
    _require(isinstance(message, dict), "a message is no object")
    keys = {
        "role",
        "content",
        *{"assistant": ("tool_calls",), "tool": ("tool_call_id", "name")}.get(message.get("role"), ()),
    }
    _require(message.get("role") in ("system", "user", "assistant", "tool"), "an unknown role")
    _require({*message} - {"name"} <= keys, f"a message has {[*message]}")
    _require(isinstance(message.get("content"), str), "a content is no text")
    _require(message["role"] != "tool" or {"tool_call_id", "name"} <= {*message}, "a result does not say of what")
    _require(message["role"] != "assistant" or message["content"] or message.get("tool_calls"), "an empty answer")
    for call in message.get("tool_calls", ()):
        _require({*call} == {"id", "type", "function"} and call["type"] == "function", "a call of another form")
        _require({*call["function"]} == {"name", "arguments"}, "a call of another form")


def check_inspect(data: bytes) -> None:
    """Check a log."""
    document = _read(data)
    _match("inspect", document)
    _require(tuple(key for key in document if key in HEAD_KEYS) == HEAD_KEYS, "the keys are not in their order")
    _require(document["version"] == 2, "another version")
    samples = document["samples"]
    _require(document["results"]["total_samples"] == len(samples), "the number of samples is another")
    _require(document["eval"]["dataset"]["samples"] == len(samples), "the number of samples is another")
    for date in (document["eval"]["created"], document["stats"]["started_at"], document["stats"]["completed_at"]):
        try:
            datetime.fromisoformat(date.replace("Z", "+00:00"))
        except ValueError as error:
            raise Refused(str(error)) from error
    ids = [(sample["id"], sample["epoch"]) for sample in samples]
    _require(len({*ids}) == len(ids), "two samples of one id")
    for sample in samples:
        _check_sample(sample)
    rewards = [sample["scores"]["reward"]["value"] for sample in samples if sample.get("scores")]
    for score in document["results"]["scores"]:
        mean = score["metrics"]["mean"]["value"]
        _require(abs(mean - sum(rewards) / len(rewards)) < 1e-9, "the mean is another")
    _require(bool(document["results"]["scores"]) == bool(rewards), "scores without rewards")


def _check_sample(sample: Mapping[str, Any]) -> None:
    messages = [
        {
            **each,
            "tool_calls": [
                {"id": call["id"], "function": {"arguments": call["arguments"]}} for call in each["tool_calls"]
            ],
        }
        if each.get("tool_calls")
        else each
        for each in sample["messages"]
    ]
    _check_order(messages, are_texts=False)
    ids = [each.get("id") for each in messages]
    _require(len({*ids}) == len(ids), "two messages of one id")
    output = sample["output"]
    _require(output["choices"][0]["message"] == sample["messages"][-1], "the output is not the last message")
    usage = output["usage"]
    _require(usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], "the tokens do not add up")


def check_areal(data: bytes) -> None:
    """Check interactions without tokens, as AReaL's first API exports them."""
    document = _read(data)
    _require(isinstance(document, dict) and {*document} == {"interactions"}, "no interactions")
    _require(isinstance(document["interactions"], dict) and document["interactions"], "no interactions")
    for key, record in document["interactions"].items():
        _require(isinstance(record, dict), "an interaction is no object")
        _require({*record} == {"messages", "output_message_list", "reward", "interaction_id"}, f"it has {[*record]}")
        _require(record["interaction_id"] == key, "its id is another")
        reward = record["reward"]
        _require(reward is None or (isinstance(reward, float) and math.isfinite(reward)), "its reward is no number")
        _require(isinstance(record["messages"], list) and record["messages"], "it shows nothing")
        outputs = record["output_message_list"]
        _require(isinstance(outputs, list) and len(outputs) == 1, "it has not one answer")
        _require(all(isinstance(each, dict) for each in (*record["messages"], *outputs)), "a message is no object")
        _require(outputs[0].get("role") == "assistant" and isinstance(outputs[0].get("content"), str), "no answer")
        _require(outputs[0]["content"] or outputs[0].get("tool_calls"), "an empty answer")
        _check_raw_order(record["messages"])
        _require(not _find_interpreted(record), "something that AReaL takes for a thing of its own")


def _check_raw_order(messages: Messages) -> None:
    """Check that results have calls; what a model was sent may have answers in a row, and arguments that are no object."""
    calls: set[str] = set()
    for message in messages:
        _require(message.get("role") in ("system", "user", "assistant", "tool"), "an unknown role")
        _require(isinstance(message.get("content"), str | list), "no content")
        calls |= {call["id"] for call in message.get("tool_calls") or ()}
        _require(message["role"] != "tool" or message.get("tool_call_id") in calls, "a result without its call")
        for call in message.get("tool_calls") or ():
            _require(isinstance(call["function"]["arguments"], str), "arguments of the wrong type")


def _find_interpreted(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("type") in INTERPRETED or any(map(_find_interpreted, value.values()))
    return isinstance(value, list) and any(map(_find_interpreted, value))


CHECKS: Mapping[str, Callable[[bytes], None]] = MappingProxyType(
    {
        "atif": check_atif,
        "openai-chat": check_openai_chat,
        "openai-preference": check_openai_preference,
        "trl-sft": check_trl_sft,
        "trl-preference": check_trl_preference,
        "trl-kto": check_trl_kto,
        "inspect": check_inspect,
        "areal": check_areal,
    }
)
"""The check of each format, by the name that people type."""
