"""Which requests providers refuse, each rule with the page or the thread that shows it; and the rules of all of them at once.

A server of `tests.e2e.strict_server` enforces the rules of one provider, with its own words and status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from bubbot.tape.entry import JsonObject


def faults(messages: Sequence[JsonObject], *, first_assistant: bool = True) -> list[str]:
    """Every rule of the providers that these messages break."""
    found = []
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if not waiting or waiting.pop(0) != message["tool_call_id"]:
                found.append(f"{place}: a tool message that answers no call, or the wrong one")
            if not isinstance(message["content"], str):
                found.append(f"{place}: a result that is not text")
            continue
        if waiting:
            found.append(f"{place}: calls {waiting} have no result")
        calls = message.get("tool_calls", ())
        waiting = [call["id"] for call in calls]
        found += [f"{place}: {fault}" for fault in _said(message) + _called(calls, seen)]
    if waiting:
        found.append(f"at the end: calls {waiting} have no result")
    if messages and not first_assistant and messages[0]["role"] != "user":
        found.append("it begins with an assistant message")
    return found


def _said(message: JsonObject) -> list[str]:
    if message["role"] not in ("user", "assistant"):
        return [f"the role {message['role']}"]
    content = message["content"]
    if isinstance(content, str):
        blank = not content.strip() and "tool_calls" not in message
        return ["an empty message"] if blank else []
    if not isinstance(content, list) or not content:
        return ["content that is neither text nor parts"]
    return [
        f"the part {part}" for part in content if not isinstance(part.get("type"), str) or not part.get("text", "x")
    ]


def _called(calls: Sequence[JsonObject], seen: set[str]) -> list[str]:
    found = []
    for call in calls:
        if not call["id"] or call["id"] in seen:
            found.append(f"the call id {call['id']!r} twice, or empty")
        seen.add(call["id"])
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"]):
            found.append(f"the function name {call['function']['name']!r}")
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            found.append(f"arguments that are no object: {call['function']['arguments']!r}")
    return found


def alternation_faults(messages: Sequence[JsonObject]) -> list[str]:
    """Where two messages of one side follow each other; a call, its results and the answer after them are one side's."""
    roles = [message["role"] for message in messages]
    found = [
        f"{place}: two messages of the {role} in a row"
        for place, (role, after) in enumerate(pairwise(roles))
        if role == after != "tool"
    ]
    last = roles[-1] if roles else "nobody"
    return found if last in ("user", "tool") else [*found, f"the last message is of {last}"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a provider.

    `broken` returns the words of the refusal, as the provider writes them, or None; `source` is the page or the thread that
    shows them; `status` is that of the refusal; `extra` are further keys of its error.
    """

    name: str
    source: str
    broken: Callable[[JsonObject], str | None]
    status: int = 400
    extra: JsonObject = field(default_factory=dict)


Envelope: TypeAlias = Callable[[str, Rule], JsonObject | list[JsonObject]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a provider refuses, with how it writes an error and an id of a call (`#` is a digit that counts).

    `read` turns a body of the OpenAI protocol into that of the provider's own, whose rules these are. `thinks` is the form
    of the reasoning that it sends: none, a key of its own, with every answer, or parts of the content. `signs`: it signs the
    first call of each step.
    """

    provider: str
    rules: tuple[Rule, ...]
    envelope: Envelope
    call_id: str = "call_#"
    read: Callable[[JsonObject], JsonObject] = dict
    thinks: Literal["", "key", "always", "parts"] = ""
    signs: bool = False


def find_broken(dialect: Dialect, body: JsonObject) -> tuple[Rule, str] | None:
    """The first rule that a request breaks, with the words of the refusal."""
    return first_broken(dialect.rules, dialect.read(body))


def first_broken(rules: Sequence[Rule], body: JsonObject) -> tuple[Rule, str] | None:
    """The first of these rules that a body breaks, with the words of the refusal."""
    return next(((rule, words) for rule in rules if (words := rule.broken(body)) is not None), None)


THREADS = "https://github.com/"

# The OpenAI protocol.


def _each(body: JsonObject) -> Iterator[tuple[int, JsonObject]]:
    yield from enumerate(body["messages"])


def _each_id(body: JsonObject) -> Iterator[tuple[str, str]]:
    """Each id of a call, with its place."""
    for place, message in _each(body):
        for at, call in enumerate(message.get("tool_calls") or ()):
            yield f"messages[{place}].tool_calls[{at}].id", call["id"]
        if message["role"] == "tool":
            yield f"messages[{place}].tool_call_id", message["tool_call_id"]


def _long_id(body: JsonObject) -> str | None:
    for place, call_id in _each_id(body):
        if len(call_id) > 40:
            return (
                f"Invalid '{place}': string too long. Expected a string with maximum length 40, but got a string with "
                f"length {len(call_id)} instead."
            )
    return None


def _odd_name(body: JsonObject) -> str | None:
    names = [(f"messages[{place}].name", message["name"]) for place, message in _each(body) if "name" in message]
    names += [
        (f"messages[{place}].tool_calls[{at}].function.name", call["function"]["name"])
        for place, message in _each(body)
        for at, call in enumerate(message.get("tool_calls") or ())
    ]
    names += [(f"tools[{at}].function.name", tool["function"]["name"]) for at, tool in enumerate(body.get("tools", ()))]
    for place, name in names:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            return (
                f"Invalid '{place}': string does not match pattern. Expected a string that matches the pattern "
                "'^[a-zA-Z0-9_-]+$'."
            )
    return None


def _unanswered(ending: str) -> Callable[[JsonObject], str | None]:
    """Calls without results right after them, and results without calls; `ending` follows the first sentence."""

    def broken(body: JsonObject) -> str | None:
        waiting: list[str] = []
        for _, message in [*_each(body), (0, {"role": "end"})]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                sentence = "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                return f"{sentence} 'tool_call_id'. {ending.format(ids=', '.join(waiting))}"
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        return None

    return broken


def _key_refused(key: str, words: str) -> Callable[[JsonObject], str | None]:
    return lambda body: words if key in body else None


_OPENAI_KEYS = frozenset(
    [
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stream",
        "stream_options",
        "stop",
        "seed",
        "response_format",
        "reasoning_effort",
        "user",
        "metadata",
        "store",
        "n",
    ]
)


def _unknown_key(body: JsonObject) -> str | None:
    unknown = sorted(body.keys() - _OPENAI_KEYS)
    return f"Unknown parameter: '{unknown[0]}'." if unknown else None


def _has_image(message: JsonObject) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] == "image_url" for part in content)


def _openai_error(words: str, rule: Rule) -> JsonObject:
    return {"error": {"message": words, "type": "invalid_request_error", "param": None, "code": None, **rule.extra}}


_OPENAI_RULES = (
    Rule("known_keys", f"{THREADS}QuantumNous/new-api/issues/418", _unknown_key, extra={"code": "unknown_parameter"}),
    Rule(
        "ids_of_40", f"{THREADS}vercel/ai/issues/5171", _long_id, extra={"code": "string_above_max_length"}
    ),
    Rule("names", f"{THREADS}jekalmin/extended_openai_conversation/issues/251", _odd_name, extra={"code": "invalid_value"}),
    Rule(
        "calls_answered", f"{THREADS}evalstate/fast-agent/issues/314",
        _unanswered("The following tool_call_ids did not have response messages: {ids}"),
    ),
)  # fmt: skip
OPENAI = Dialect("openai", _OPENAI_RULES, _openai_error, "call_Zr8mQ2vN4kT6wX1yB3cD#")
OPENAI_REASONING = replace(
    OPENAI,
    rules=(
        *_OPENAI_RULES,
        Rule(
            "newer_limit", f"{THREADS}teilomillet/gollm/issues/33",
            _key_refused(
                "max_tokens",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            ),
            extra={"param": "max_tokens", "code": "unsupported_parameter"},
        ),
    ),
)  # fmt: skip


# DeepSeek.


def _thoughtless(body: JsonObject) -> str | None:
    for _, message in _each(body):
        if message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str):
            return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return None


def _image_variant(body: JsonObject) -> str | None:
    for place, message in _each(body):
        if _has_image(message):
            return (
                f"Failed to deserialize the JSON body into the target type: messages[{place}]: unknown variant `image_url`, "
                "expected `text` at line 1 column 679289"
            )
    return None


_DEEPSEEK_CODE = {"code": "invalid_request_error"}
DEEPSEEK = Dialect(
    "deepseek",
    (
        Rule("text_only", f"{THREADS}rikkahub/rikkahub/issues/1433", _image_variant, extra=_DEEPSEEK_CODE),
        # Also https://api-docs.deepseek.com/guides/thinking_mode, and crush#2754: an empty one has to come back, too.
        Rule("reasoning_back", f"{THREADS}earendil-works/pi/issues/3636", _thoughtless, extra=_DEEPSEEK_CODE),
        Rule(
            "calls_answered", f"{THREADS}langgenius/dify/issues/32222",
            _unanswered("(insufficient tool messages following tool_calls message)"), extra=_DEEPSEEK_CODE,
        ),
    ),
    _openai_error, "call_00_xSIdz4wWAB2kaiuS#", thinks="always",
)  # fmt: skip


# Mistral.


def _mistral_id(body: JsonObject) -> str | None:
    for _, call_id in _each_id(body):
        if not re.fullmatch("[a-zA-Z0-9]{9}", call_id):
            return f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
    return None


def _mistral_order(body: JsonObject) -> str | None:
    roles = [message["role"] for _, message in _each(body)]
    for (place, message), role in zip(list(_each(body))[:-1], roles[1:], strict=True):
        before = message["role"]
        if role == "user" and before == "tool":
            return f"Unexpected role '{role}' after role '{before}'"
        if role == "tool" and before != "tool" and not body["messages"][place].get("tool_calls"):
            return f"Unexpected role '{role}' after role '{before}'"
    return None


def _mistral_last(body: JsonObject) -> str | None:
    if body["messages"][-1]["role"] != "assistant":
        return None
    return "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"


def _mistral_empty(body: JsonObject) -> str | None:
    for _, message in _each(body):
        if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
            return "Assistant message must have either content or tool_calls, but not none."
    return None


def _mistral_count(body: JsonObject) -> str | None:
    return "Not the same number of function calls and responses" if _unanswered("{ids}")(body) else None


_MISTRAL_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
}


def _mistral_extra(body: JsonObject) -> str | None:
    extra: list[list[Any]] = [
        ["body", key] for key in body if key in ("max_completion_tokens", "reasoning_content", "store", "user")
    ]
    extra += [
        ["body", "messages", place, message["role"], key]
        for place, message in _each(body)
        for key in message
        if key not in _MISTRAL_KEYS[message["role"]]
    ]
    found = [{"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted"} for place in extra]
    return json.dumps({"detail": found}) if found else None


def _mistral_error(words: str, rule: Rule) -> JsonObject:
    message = json.loads(words) if rule.status == 422 else words
    return {
        "object": "error",
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": None,
        **rule.extra,
    }


_MISTRAL_ORDER = {"type": "invalid_request_message_order", "code": "3230"}
MISTRAL = Dialect(
    "mistral",
    (
        # Also mistral-go#2 for `name` of a user, and editor-code-assistant/eca#231 for `max_completion_tokens`.
        Rule("known_keys", f"{THREADS}charmbracelet/crush/issues/1590", _mistral_extra, 422),
        Rule(
            "ids_of_9", f"{THREADS}editor-code-assistant/eca/issues/233", _mistral_id,
            extra={"type": "invalid_function_call", "code": "3280"},
        ),
        Rule("order", f"{THREADS}onyx-dot-app/onyx/issues/6458", _mistral_order, extra=_MISTRAL_ORDER),
        Rule("last", f"{THREADS}crewAIInc/crewAI/issues/2194", _mistral_last),
        Rule("no_empty", f"{THREADS}OpenHands/OpenHands/issues/8685", _mistral_empty),
        Rule("calls_answered", f"{THREADS}charmbracelet/crush/issues/279", _mistral_count, extra=_MISTRAL_ORDER),
    ),
    _mistral_error, "Xy4dEf77#", thinks="parts",
)  # fmt: skip


# Anthropic: its own protocol, in which a proxy writes what it is sent in OpenAI's.

Block: TypeAlias = dict[str, Any]
THINKING_BLOCKS = ("thinking", "redacted_thinking")


def blocks_of(content: Any) -> list[Block]:
    """The blocks of a message's content."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _anthropic_blocks(body: JsonObject) -> Iterator[tuple[str, Block]]:
    for place, message in _each(body):
        for at, block in enumerate(blocks_of(message["content"])):
            yield f"messages.{place}.content.{at}", block


def _anthropic_first(body: JsonObject) -> str | None:
    if body["messages"] and body["messages"][0]["role"] == "user":
        return None
    return "messages: first message must use the `user` role"


def _anthropic_last(body: JsonObject) -> str | None:
    if body["messages"][-1]["role"] == "user":
        return None
    return "This model does not support assistant message prefill. The conversation must end with a user message."


def _anthropic_empty(body: JsonObject) -> str | None:
    for place, message in _each(body):
        if not blocks_of(message["content"]):
            return f"messages.{place}: all messages must have non-empty content except for the optional final assistant message"
    if any(block["type"] == "text" and not block["text"] for _, block in _anthropic_blocks(body)):
        return "messages: text content blocks must be non-empty"
    return None


def _anthropic_blank(body: JsonObject) -> str | None:
    if any(block["type"] == "text" and not block["text"].strip() for _, block in _anthropic_blocks(body)):
        return "messages: text content blocks must contain non-whitespace text"
    return None


def _anthropic_ids(body: JsonObject) -> str | None:
    for place, block in _anthropic_blocks(body):
        key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
        if key and not re.fullmatch("[a-zA-Z0-9_-]+", block[key]):
            return f"{place}.{block['type']}.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'"
    return None


def _anthropic_pairs(body: JsonObject) -> str | None:
    asked: list[str] = []
    for place, message in [*_each(body), (len(body["messages"]), {"content": ()})]:
        blocks = blocks_of(message["content"])
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        missing = [call for call in asked if call not in given]
        # All results of a message come first: what follows a text is not right after its call.
        if missing or any(block["type"] != "tool_result" for block in blocks[: len(given)]):
            return (
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing or asked)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        if strange := [call for call in given if call not in asked]:
            return (
                f"messages.{place}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {strange[0]}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(asked)) != len(asked):
            return f"messages.{place}: `tool_use` ids must be unique"
    return None


def thinks_first(body: JsonObject) -> str | None:
    """Results of a call whose thinking was left out, for a model that thinks.

    See https://github.com/deepset-ai/haystack-core-integrations/issues/2146.
    """
    messages = body["messages"]
    if messages[-1]["role"] != "user" or blocks_of(messages[-1]["content"])[0]["type"] != "tool_result":
        return None
    found = blocks_of(messages[-2]["content"])[0]["type"]
    if found in THINKING_BLOCKS:
        return None
    return (
        f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When "
        "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
        "`tool_use` and `tool_result` blocks)."
    )


ANTHROPIC_RULES = (
    Rule("first_user", "https://docs.anthropic.com/en/api/messages", _anthropic_first),
    Rule("no_empty", f"{THREADS}anthropics/claude-code/issues/59812", _anthropic_empty),
    Rule("no_blank", f"{THREADS}anthropics/claude-code/issues/23369", _anthropic_blank),
    Rule("ids_of_words", f"{THREADS}HKUDS/nanobot/pull/4356", _anthropic_ids),
    # Also claude-code#13460 for results without calls.
    Rule("calls_answered", f"{THREADS}anthropics/claude-code/issues/7929", _anthropic_pairs),
    Rule("no_prefill", f"{THREADS}agenticloops-ai/agentic-ai-engineering/issues/43", _anthropic_last),
)


def _as_anthropic(body: JsonObject) -> JsonObject:
    """What a proxy makes of a request in OpenAI's protocol: each text a block, neighbours of one side joined."""
    messages: list[dict[str, Any]] = []
    for _, message in _each(body):
        if message["role"] == "system":
            continue
        content = message.get("content")
        if message["role"] == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
        else:
            blocks = [*blocks_of(content)]
        blocks += [
            {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}}
            for call in message.get("tool_calls") or ()
        ]
        role = "assistant" if message["role"] == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return {"messages": messages}


def anthropic_error(words: str, rule: Rule) -> JsonObject:
    """An error in Anthropic's form."""
    return {"type": "error", "error": {"type": "invalid_request_error", "message": words}, "request_id": "req_1"}


ANTHROPIC = Dialect("anthropic", ANTHROPIC_RULES, anthropic_error, "toolu_01A09q90qw90lq917835lq#")
# An empty text becomes an empty block there: NousResearch/hermes-agent/pull/11929.
ANTHROPIC_PROXY = replace(ANTHROPIC, envelope=_openai_error, read=_as_anthropic)


# Gemini: its own protocol, in which Google's other address writes what it is sent in OpenAI's.

Part: TypeAlias = dict[str, Any]


def part_field(part: Part, name: str) -> Any:
    """A field in either of the spellings that JSON of protocol buffers may have."""
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
    return part.get(name) or part.get(snake) or {}


def _named(content: JsonObject, kind: str) -> list[str]:
    return [found["name"] for part in content["parts"] if (found := part_field(part, kind))]


def _gemini_first(body: JsonObject) -> str | None:
    if body["contents"] and body["contents"][0]["role"] == "user":
        return None
    return "Please ensure that the first content is of the role user."


def _gemini_parts(body: JsonObject) -> str | None:
    for place, content in enumerate(body["contents"]):
        if not content["parts"]:
            return f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty.\n"
        for at, part in enumerate(content["parts"]):
            if not any(
                part_field(part, name)
                for name in ("text", "functionCall", "functionResponse", "inlineData", "fileData")
            ):
                words = "required oneof field 'data' must have one initialized field"
                return f"* GenerateContentRequest.contents[{place}].parts[{at}].data: {words}\n"
    return None


def _gemini_turns(body: JsonObject) -> str | None:
    waiting: list[str] = []
    for place, content in enumerate(body["contents"]):
        given = _named(content, "functionResponse")
        if given and not waiting:
            return "Please ensure that function response turn comes immediately after a function call turn."
        if len(given) != len(waiting):
            return (
                "Please ensure that the number of function response parts is equal to the number of function call parts of "
                "the function call turn."
            )
        waiting = _named(content, "functionCall")
        if waiting and (place == 0 or body["contents"][place - 1]["role"] == "model"):
            return "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
    return None


def _gemini_last(body: JsonObject) -> str | None:
    if body["contents"][-1]["role"] != "model":
        return None
    return "Please ensure that multiturn requests end with a user turn or a function response turn."


def _unsigned(body: JsonObject) -> str | None:
    """A step of the current turn whose first call has no signature: older turns are not looked at."""
    contents = body["contents"]
    said = [place for place, content in enumerate(contents) if any(part.get("text") for part in content["parts"])]
    begins = max([place for place in said if contents[place]["role"] == "user"], default=0)
    for place, content in enumerate(contents[begins:], begins):
        calls = [part for part in content["parts"] if part_field(part, "functionCall")]
        if calls and not part_field(calls[0], "thoughtSignature"):
            return (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
                "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
                f"call `default_api:{_named(content, 'functionCall')[0]}` , position {place}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
    return None


GEMINI_RULES = (
    Rule("first_user", f"{THREADS}google-gemini/gemini-cli/issues/11814", _gemini_first),
    # Also router-for-me/CLIProxyAPI#1292 for an empty text.
    Rule("no_empty", f"{THREADS}langchain-ai/langchain-google/issues/691", _gemini_parts),
    Rule("order", f"{THREADS}google-gemini/gemini-cli/issues/26486", _gemini_turns),
    Rule("last", f"{THREADS}crewAIInc/crewAI/pull/6973", _gemini_last),
)
# Which calls are looked at: spring-projects/spring-ai/pull/4977. The first of parallel ones: googleapis/js-genai#1275.
GEMINI_SIGNING_RULES = (*GEMINI_RULES, Rule("signatures", f"{THREADS}nanbingxyz/5ire/issues/405", _unsigned))


def _as_gemini(body: JsonObject) -> JsonObject:
    """What Google makes of a request in OpenAI's protocol."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for _, message in _each(body):
        if message["role"] == "system":
            continue
        if message["role"] == "tool":
            name = names.get(message["tool_call_id"], "unknown")
            part = {"functionResponse": {"name": name, "response": {"result": message["content"]}}}
            if contents and _named(contents[-1], "functionResponse"):
                contents[-1]["parts"].append(part)
            else:
                contents.append({"role": "user", "parts": [part]})
            continue
        parts: list[Part] = [
            {"text": block["text"]} if block["type"] == "text" else {"inlineData": block}
            for block in blocks_of(message.get("content"))
            if block.get("text", "x")
        ]
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
            signature = call.get("extra_content", {}).get("google", {}).get("thought_signature")
            parts.append({"functionCall": {"name": names[call["id"]]}, "thoughtSignature": signature})
        contents.append({"role": "model" if message["role"] == "assistant" else "user", "parts": parts})
    return {"contents": contents}


def gemini_error(words: str, rule: Rule) -> JsonObject:
    """An error in Google's form."""
    return {"error": {"code": rule.status, "message": words, "status": "INVALID_ARGUMENT"}}


GEMINI = Dialect("gemini", GEMINI_RULES, gemini_error, "function-call-1084560#")
# Its errors come in a list: Gitlawb/openclaude#67.
GEMINI_COMPATIBLE = replace(GEMINI, envelope=lambda words, rule: [gemini_error(words, rule)], read=_as_gemini)
GEMINI_3 = replace(GEMINI, rules=GEMINI_SIGNING_RULES, signs=True)
GEMINI_3_COMPATIBLE = replace(GEMINI_COMPATIBLE, rules=GEMINI_SIGNING_RULES, signs=True)


# Servers of one's own.


def _plain_alternation(body: JsonObject) -> str | None:
    """Gemma's template: two sides in turns, and no third."""
    roles = [message["role"] for _, message in _each(body)]
    if roles[0] == "system":
        del roles[0]
    if all((role == "user") == (place % 2 == 0) for place, role in enumerate(roles)):
        return None
    return "Conversation roles must alternate user/assistant/user/assistant/..."


def _tools_alternation(body: JsonObject) -> str | None:
    """Devstral's template: two sides in turns; calls and their results do not count."""
    roles = [
        message["role"]
        for _, message in _each(body)
        if message["role"] in ("user", "assistant") and not message.get("tool_calls")
    ]
    if all((role == "user") == (place % 2 == 0) for place, role in enumerate(roles)):
        return None
    return (
        "\n------------\nWhile executing CallExpression at line 189, column 32 in source:\n...== 0) %}↵            {{- "
        "raise_exception('After the optional system message, con...\nError: Jinja Exception: After the optional system message, "
        "conversation roles must alternate user and assistant roles except for tool calls and results."
    )


def _no_system(body: JsonObject) -> str | None:
    return "System role not supported" if body["messages"][0]["role"] == "system" else None


def _any_image(words: str) -> Callable[[JsonObject], str | None]:
    return lambda body: (
        words if any(_has_image(message) or message.get("images") for _, message in _each(body)) else None
    )


def _any_tools(words: str) -> Callable[[JsonObject], str | None]:
    return lambda body: words if body.get("tools") else None


def _vllm_error(words: str, rule: Rule) -> JsonObject:
    return {"object": "error", "message": words, "type": "BadRequestError", "param": None, "code": rule.status}


def _older_vllm(body: JsonObject) -> str | None:
    if "stream_options" not in body:
        return None
    return (
        "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted', 'input': "
        "{'include_usage': True}}]"
    )


def _llama_error(words: str, rule: Rule) -> JsonObject:
    return {"error": {"code": rule.status, "message": words, "type": "server_error"}}


def _ollama_error(words: str, rule: Rule) -> JsonObject:
    return {"error": {"message": words, "type": "api_error", "param": None, "code": None}}


LLAMA_CPP = Dialect(
    "local", (Rule("alternation", f"{THREADS}ggml-org/llama.cpp/issues/19851", _tools_alternation, 500),),
    _llama_error, "b7f3Qk9XzT2mLw8vYp5Rc1NdHs6JgAe#", thinks="key",
)  # fmt: skip
LLAMA_CPP_TEXT = replace(
    LLAMA_CPP,
    rules=(
        Rule(
            "no_images", f"{THREADS}ggml-org/llama.cpp/issues/13566",
            _any_image("image input is not supported by this server"), 500,
        ),
    ),
)  # fmt: skip
VLLM_GEMMA = Dialect(
    "local",
    (
        Rule(
            "no_tools", f"{THREADS}langchain4j/langchain4j/issues/3475",
            _any_tools('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        ),
        Rule("no_system", f"{THREADS}vllm-project/vllm/pull/2964", _no_system),
        Rule("alternation", f"{THREADS}kubeai-project/kubeai/issues/499", _plain_alternation),
    ),
    _vllm_error, thinks="key",
)  # fmt: skip
VLLM_OLD = Dialect(
    "local", (Rule("no_stream_options", f"{THREADS}modelscope/ms-agent/issues/489", _older_vllm),), _vllm_error,
    "chatcmpl-tool-8d2b0e0c5e7f4d0e9f0a6c0f9d1b2a3#", thinks="key",
)  # fmt: skip
OLLAMA = Dialect(
    "local",
    (
        Rule(
            "no_tools", f"{THREADS}louisho5/picobot/issues/6",
            _any_tools("registry.ollama.ai/library/gemma3:4b does not support tools"),
        ),
        Rule(
            "no_images", f"{THREADS}ollama/ollama/issues/17301",
            _any_image("this model does not support image input (ref: b8bd630e-4a39-4b57-82af-9158ee9d5703)"),
        ),
    ),
    _ollama_error,
)  # fmt: skip
TOOLS_OLLAMA = replace(OLLAMA, rules=OLLAMA.rules[1:])


def _expects_text(body: JsonObject) -> str | None:
    for place, message in _each(body):
        if isinstance(message.get("content"), list):
            words = f"messages[{place}]: invalid type: sequence, expected a string at line 1 column 3301"
            return f"Failed to deserialize the JSON body into the target type: {words}"
    return None


# Also nextcloud/integration_openai#236 for other words of the same.
PLAIN = Dialect(
    "local",
    (Rule("plain_text", f"{THREADS}agentscope-ai/QwenPaw/issues/1022", _expects_text),),
    _openai_error,
)
# A gateway that calls its model by the name of one that sees: NousResearch/hermes-webui#2297.
TEXT_ONLY = replace(DEEPSEEK, provider="local", rules=DEEPSEEK.rules[:1], thinks="")
