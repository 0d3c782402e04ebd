"""A model that answers from a script: for tests, documentation and examples.

The script is a JSON file:

    {"rules": [{"when": "weather", "steps": [{"calls": [{"name": "tape_search", "arguments": {"query": "sun"}}]},
                                             {"text": "It was sunny."}]}],
     "default": [{"text": "You said: {text}"}]}

The first rule whose `when` (a regular expression) matches the last user message applies. Its step is the number of
assistant messages after that message; the last step also serves all later ones. So the answer depends on the request
alone, and a restarted process continues where it stopped. Further keys of a step: `error` (`overflow`, `rate_limited`,
`refused`, `unavailable`), `delay` before the answer and `pace` before each of its words, in seconds, `finish`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bubbot.errors import (
    ConfigError,
    ModelError,
    ModelOverflow,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
)
from bubbot.formatting import show_value
from bubbot.ports.model import (
    ModelEvent,
    ModelOptions,
    ModelReply,
    ModelRequest,
    ModelTraits,
    TextDelta,
    ToolCall,
    Usage,
)

_ERRORS: Mapping[str, type[ModelError]] = {
    "overflow": ModelOverflow,
    "rate_limited": ModelRateLimited,
    "refused": ModelRefused,
    "unavailable": ModelUnavailable,
}
_HEAD = re.compile(
    r"^(\[\d{4}-\d\d-\d\d \d\d:\d\d\] )?([^\n\[]{0,64} \(#-?\d+\): )?(\[in reply to [^\n]*?: \"(?:[^\"\\]|\\.)*\"\] )?"
)
"""The head of a message: its time, its sender in a group, the message it replies to."""
MAX_SECONDS = 86_400
"""The longest wait of a step."""
_DEFAULT = [{"text": "You said: {text}"}]


class ScriptedModel:
    """A `Model` that answers from a script.

    `requests` holds the requests it has received, oldest first, for tests. It stays empty without `keep_requests`: a daemon would
    grow by each.
    """

    def __init__(
        self,
        script: Mapping[str, Any] | None = None,
        *,
        name: str = "scripted",
        traits: ModelTraits | None = None,
        keep_requests: bool = True,
    ) -> None:
        script = script or {}
        rules = script.get("rules", ())
        self._rules = [(re.compile(rule["when"], re.IGNORECASE), _check_steps(rule["steps"])) for rule in rules]
        self._default = _check_steps(script.get("default", _DEFAULT))
        self._name = name
        self._traits = traits or ModelTraits()
        self.requests: list[ModelRequest] = []
        self._keep = keep_requests
        self._request_count = 0

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self._request_count += 1
        number = self._request_count
        if self._keep:
            self.requests.append(request)
        prompt, answer_count = _last_prompt(request)
        steps = next((steps for when, steps in self._rules if when.search(prompt)), self._default)
        step = steps[min(answer_count, len(steps) - 1)]
        if step.get("delay"):
            await asyncio.sleep(step["delay"])
        if "error" in step:
            raise _ERRORS[step["error"]](step.get("message", f"scripted {step['error']}"))
        text = step.get("text", "").replace("{text}", prompt)
        if pace := step.get("pace"):
            for word in re.findall(r"\S+\s*|\s+", text):
                await asyncio.sleep(pace)
                yield TextDelta(word)
        elif text:  # in one piece, as the client of a provider passes on what came together
            yield TextDelta(text)
        calls = tuple(
            ToolCall(call.get("id", f"call_{number}_{index}"), call["name"], _arguments(call))
            for index, call in enumerate(step.get("calls", ()))
        )
        finish = step.get("finish", "tool_calls" if calls else "stop")
        usage = Usage(len(request.as_bytes()) // 4, len(text) // 4)
        yield ModelReply(text, calls, finish, usage, self._name)

    async def aclose(self) -> None:
        """See `Model.aclose`."""


def _check_steps(steps: Any) -> Sequence[Mapping[str, Any]]:
    """Return the steps of a rule. Raise `ValueError` if there are none, or if one cannot be played."""
    if not isinstance(steps, (list, tuple)) or not steps or not all(isinstance(step, Mapping) for step in steps):
        raise ValueError(f"steps are {steps!r}; they have to be a list of objects, one at least")
    unknown = [step["error"] for step in steps if step.get("error", "overflow") not in _ERRORS]
    if unknown:
        raise ValueError(f"error is {unknown[0]!r}; it has to be one of {', '.join(_ERRORS)}")
    for step in steps:
        for key, is_right, form in _FORMS:
            if key in step and not is_right(step[key]):
                raise ValueError(f"{key} is {show_value(step[key])}; it has to be {form}")
    return steps


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= MAX_SECONDS


def _is_calls(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in value
    )


_FORMS: Sequence[tuple[str, Callable[[Any], bool], str]] = (
    ("text", lambda value: isinstance(value, str), "a text"),
    ("calls", _is_calls, "a list of objects with a name"),
    ("delay", _is_duration, f"seconds from 0 to {MAX_SECONDS}"),
    ("pace", _is_duration, f"seconds from 0 to {MAX_SECONDS}"),
)
"""What the values of a step have to be."""


def _last_prompt(request: ModelRequest) -> tuple[str, int]:
    """Return the last user message without its head, and the number of assistant messages after it."""
    answer_count = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            content = message["content"]
            return _HEAD.sub("", _plain_text(content)), answer_count
        answer_count += message["role"] == "assistant"
    return "", answer_count


def _plain_text(content: Any) -> str:
    """Return the text of a message; if it has parts, that of its text parts."""
    if isinstance(content, str):
        return content
    texts = [str(part.get("text", "")) for part in content if part.get("type") == "text"]
    if len(texts) > 1 and _HEAD.fullmatch(f"{texts[0]} "):
        texts[:2] = [" ".join(texts[:2])]
    return "\n".join(texts)


def _arguments(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def create(options: ModelOptions) -> ScriptedModel:
    """Create the model from the file that the setting `script` names, or from the script itself; the entry point.

    Raises:
        ConfigError: it cannot be used.
    """
    path = options.settings.get("script")
    if not path:
        return ScriptedModel(name=options.name, keep_requests=False)
    try:
        script = path if isinstance(path, dict) else json.loads(Path(str(path)).read_text(encoding="utf-8"))
        if not isinstance(script, dict):
            raise TypeError("it has to hold one JSON object")
        return ScriptedModel(script, name=options.name, keep_requests=False)
    except (OSError, ValueError, KeyError, TypeError, re.error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        name = "" if isinstance(path, dict) else f" {path}"
        raise ConfigError(f"[model] script{name} cannot be used ({reason}); see docs/reference/config.md") from error
