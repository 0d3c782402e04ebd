"""A model that says what a script says: for tests, documentation and examples.

The script is a JSON file:

    {"rules": [{"when": "weather", "steps": [{"calls": [{"name": "tape_search", "arguments": {"query": "sun"}}]},
                                             {"text": "It was sunny."}]}],
     "default": [{"text": "You said: {text}"}]}

The rule is the first whose `when` (a regular expression) is found in the last user message; the step is the
number of assistant messages after it, the last step standing for all later ones. So the answer depends on the
request alone, and a restarted process goes on where it was. Further keys of a step: `error` (`overflow`,
`rate_limited`, `refused`, `unavailable`), `delay` before the answer and `pace` before each of its words, in
seconds, `finish`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
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
"""What stands before a message: its time, who wrote it in a group, what it replies to."""
_DEFAULT = [{"text": "You said: {text}"}]


class ScriptedModel:
    """See `Model`. `requests` are those it was asked, oldest first, for tests to look at; none where it does not `keep`
    them: a daemon would grow by each."""

    def __init__(
        self,
        script: Mapping[str, Any] | None = None,
        *,
        name: str = "scripted",
        traits: ModelTraits | None = None,
        keep: bool = True,
    ) -> None:
        script = script or {}
        rules = script.get("rules", ())
        self._rules = [(re.compile(rule["when"], re.IGNORECASE), _steps(rule["steps"])) for rule in rules]
        self._default = _steps(script.get("default", _DEFAULT))
        self._name = name
        self._traits = traits or ModelTraits()
        self.requests: list[ModelRequest] = []
        self._keep = keep
        self._asked = 0

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
        self._asked += 1
        number = self._asked
        if self._keep:
            self.requests.append(request)
        asked, said = _asked(request)
        steps = next((steps for when, steps in self._rules if when.search(asked)), self._default)
        step = steps[min(said, len(steps) - 1)]
        if step.get("delay"):
            await asyncio.sleep(step["delay"])
        if "error" in step:
            raise _ERRORS[step["error"]](step.get("message", f"scripted {step['error']}"))
        text = step.get("text", "").replace("{text}", asked)
        for word in re.findall(r"\S+\s*|\s+", text):
            if step.get("pace"):
                await asyncio.sleep(step["pace"])
            yield TextDelta(word)
        calls = tuple(
            ToolCall(call.get("id", f"call_{number}_{place}"), call["name"], _arguments(call))
            for place, call in enumerate(step.get("calls", ()))
        )
        finish = step.get("finish", "tool_calls" if calls else "stop")
        usage = Usage(len(request.as_bytes()) // 4, len(text) // 4)
        yield ModelReply(text, calls, finish, usage, self._name)

    async def aclose(self) -> None:
        """See `Model.aclose`."""


def _steps(given: Any) -> Sequence[Mapping[str, Any]]:
    """The steps of a rule. Raises `ValueError` where there are none, or an error that no model has."""
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(step, Mapping) for step in given):
        raise ValueError(f"steps are {given!r}; they have to be a list of objects, one at least")
    unknown = [step["error"] for step in given if step.get("error", "overflow") not in _ERRORS]
    if unknown:
        raise ValueError(f"error is {unknown[0]!r}; it has to be one of {', '.join(_ERRORS)}")
    return given


def _asked(request: ModelRequest) -> tuple[str, int]:
    """The last user message without its time, and how many assistant messages came after it."""
    said = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            content = message["content"]
            return _HEAD.sub("", _plain(content)), said
        said += message["role"] == "assistant"
    return "", said


def _plain(content: Any) -> str:
    """The text of a message; of one in parts, that of its text parts."""
    if isinstance(content, str):
        return content
    texts = [str(part.get("text", "")) for part in content if part.get("type") == "text"]
    if len(texts) > 1 and _HEAD.fullmatch(f"{texts[0]} "):
        texts[:2] = [" ".join(texts[:2])]
    return "\n".join(texts)


def _arguments(call: Mapping[str, Any]) -> str:
    given = call.get("arguments", {})
    return given if isinstance(given, str) else json.dumps(given)


def create(options: ModelOptions) -> ScriptedModel:
    """The factory of the entry point; the setting `script` names the file. Raises `ConfigError`."""
    path = options.settings.get("script")
    if not path:
        return ScriptedModel(name=options.name, keep=False)
    try:
        script = json.loads(Path(str(path)).read_text(encoding="utf-8"))
        if not isinstance(script, dict):
            raise TypeError("it has to hold one JSON object")
        return ScriptedModel(script, name=options.name, keep=False)
    except (OSError, ValueError, KeyError, TypeError, re.error) as error:
        raise ConfigError(f"[model] script {path} cannot be used: {error}; see docs/reference/config.md") from error
