"""Fits each request to its model: by what the provider declares, then by what refusals taught. No I/O.

The rules themselves are in `bubbot.runtime.request_rules`; `tests/provider_rules.py` has those of the providers with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from bubbot.errors import ModelRefused
from bubbot.models.messages import build_messages, provider_of
from bubbot.ports.model import KnowsLessons, Lesson, ModelRequest, RequestFit
from bubbot.runtime.request_rules import RULE_ORDER, apply_rule, is_known
from bubbot.tape.entry import JsonObject

DECLARED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "anthropic": ("ids:word@1",),
        "azure": ("ids:openai@1",),
        "bedrock": ("ids:word@1",),
        "deepseek": ("reasoning@1", "plain_text@1"),
        "gemini": ("equal_calls@1",),
        "hosted_vllm": ("first_user@1",),
        "mistral": ("answer_results@1", "ids:mistral@1", "no_reasoning@1"),
        "openai": ("ids:openai@1",),
        "vertex_ai": ("equal_calls@1",),
        "xai": ("no_names@1",),
    }
)
"""What providers are known to want, by the first part of a model's name."""
_HOSTS: Mapping[str, str] = MappingProxyType(
    {"api.deepseek.com": "deepseek", "api.mistral.ai": "mistral", "api.anthropic.com": "anthropic", "api.x.ai": "xai"}
)
"""Providers that are called as `openai/…` at their address."""
_FINAL_STATUSES = frozenset({401, 402, 403, 407, 429})
"""Statuses that say nothing about the form of a request."""
_NO = (
    r"(not|n't|un)[ -]?(support|permit|allow|recogni[sz]|know|expect|available|accept|enabled)|no(t| longer) (a )?(valid|support)"
    r"|invalid|extra|unexpected|disallow|forbid|deprecat|does not exist"
)
"""How servers say that they do not take something; a regular expression, like those below."""
_IMAGE = r"(images?|image_url|vision|multi-?modal(ity)?)\b"
_TOOLS = r"(tools?|tool[ _-]?(calls?|calling|use|choice)|functions?|function[ _-]?(calls?|calling))\b"


_ONE_TEXT = r"(sequence|array|list).{0,20}expected (a )?str|expected (a )?str\w*.{0,60}\b(array|list|sequence)\b|can only concatenate str"
"""How servers say that they take a content as one text only."""


class _Sign(NamedTuple):
    """A sign in the words of a refusal that a rule may help. `never`: words that speak against it."""

    rule: str
    words: re.Pattern[str]
    never: re.Pattern[str] | None = None


def _sign(rule: str, *words: str, never: str = "") -> _Sign:
    flags = re.IGNORECASE | re.DOTALL
    return _Sign(rule, re.compile("|".join(words), flags), re.compile(never, flags) if never else None)


_SIGNS: tuple[_Sign, ...] = (
    _sign(
        "reasoning@1",
        r"reasoning_content.{0,80}(must be|missing|required|passed back)",
        r"missing.{0,30}reasoning_content",
    ),
    _sign("no_reasoning@1", rf"reasoning_content.{{0,80}}({_NO})", rf"({_NO}).{{0,60}}reasoning_content"),
    _sign(
        "no_images@1",
        rf"{_IMAGE}.{{0,80}}({_NO})",
        rf"({_NO}|unknown variant|missing|at most 0|not a).{{0,60}}{_IMAGE}",
        r"support image|content.{0,40}(must be|expected|valid).{0,20}str|unsupported content part",
        _ONE_TEXT,
    ),
    _sign(
        "no_tools@1",
        rf"{_TOOLS}.{{0,60}}({_NO})",
        rf"({_NO}).{{0,40}}{_TOOLS}",
        r"support tool use|enable-auto-tool-choice|only user,? (and )?assistant",
        # A place within the calls or the tools is named: something is wrong with that one.
        never=r"schema|tool_call_id|tool_use_id|role .?tool|must be (a response|followed)|tool_result|(tool_calls|tools)[\[.]\d",
    ),
    _sign("alternate@1", r"alternat|consecutive (user|assistant)|same role in a row"),
    _sign("answer_results@1", r"role.{0,10}user.{0,20}after.{0,10}role.{0,5}tool"),
    _sign(
        "no_system@1",
        rf"system.{{0,4}}(role|message|prompt|instruction)s?.{{0,40}}({_NO})",
        rf"({_NO}).{{0,30}}(role.{{0,8}}system|(system|developer) (role|message|instruction))",
        r"only user,? (and )?assistant",
    ),
    _sign("first_user@1", r"(first|start|begin).{0,40}user"),
    _sign("ids:mistral@1", r"a-z, A-Z, 0-9, with a length of 9"),
    _sign("ids:word@1", r"\bid\b.{0,80}(pattern|match|characters|invalid)"),
    _sign("ids:openai@1", r"too long.{0,80}\b40\b|\bid\b.{0,80}(too long|maximum)"),
    _sign("no_names@1", rf"\bname\b.{{0,60}}({_NO})", rf"({_NO}).{{0,60}}\bname\b"),
    _sign(
        "no_empty_text@1",
        r"(text|content).{0,60}(non-?(empty|whitespace)|not be (empty|blank)|minimum length|at least 1 char|too short)",
        r"empty.{0,30}(content|text)",
    ),
    _sign("some_text@1", r"content.{0,80}(null|none\b|nil\b|required|missing|nonetype)"),
    _sign(
        "plain_text@1",
        r"content.{0,60}(must be|should be|expected|valid).{0,20}str",
        _ONE_TEXT,
    ),
)
"""The first of them counts whose rule would change the request that was refused."""
_RENAMED: Mapping[str, str] = MappingProxyType(
    {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
)
"""Parameters with two names; which of them a server takes, it alone knows."""


def limit_output(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter for the most tokens of an answer, if `[model]` has a limit."""
    return {"max_tokens": settings["max_tokens"]} if settings.get("max_tokens") else {}


class ModelFit:
    """Fits the requests of one model."""

    def __init__(
        self,
        name: str,
        lessons: KnowsLessons | None = None,
        *,
        server: str = "",
        rules: Sequence[str] = (),
        parameters: JsonObject | None = None,
    ) -> None:
        """Set the model.

        Args:
            name: the model, `provider/model`.
            server: host and port of the configured address; empty for the provider's usual one.
            rules: of the model, in addition to those of its provider.
            parameters: defaults for requests that do not set them.
        """
        self._parameters = parameters or {}
        self._name = name
        self._provider = provider_of(name)
        self._lessons = lessons
        self._server = server
        self._declared = DECLARED.get(_HOSTS.get(self._server.partition(":")[0], self._provider), ())
        if self._server and self._provider == "openai" and self._server.partition(":")[0] not in _HOSTS:
            self._declared = ()  # any server may borrow the name of OpenAI
        self._declared += tuple(rules)

    def fit(self, request: ModelRequest) -> tuple[ModelRequest, RequestFit | None]:
        """Return the request to send, with all parameters, and the changes; None if nothing was changed."""
        if self._parameters:
            request = replace(request, parameters={**self._parameters, **request.parameters})
        applied: list[tuple[str, tuple[str, int] | None]] = []
        for rule, fact in self._rules():
            fitted = apply_rule(rule, request)
            if fitted is not request:
                request = fitted
                applied.append((rule, fact))
        if not applied:
            return request, None
        return request, RequestFit(tuple(applied), request.parameters, request.digest())

    def list_messages(self, request: ModelRequest) -> list[JsonObject]:
        """Return the chat messages that are sent for a request, system prompt first."""
        fitted, _ = self.fit(request)
        return [*build_messages(fitted, self._name, self._server)]

    def read_refusal(self, error: ModelRefused, request: ModelRequest) -> Lesson | None:
        """Return the lesson of a refusal; None if no rule would help.

        Args:
            request: the refused request, as it was sent.
        """
        words = error.words or str(error)
        if error.status in _FINAL_STATUSES:
            return None
        rules = self._find_rules(words, request)
        # A rule that was applied already changes nothing more.
        helpful = (rule for rule in rules if apply_rule(rule, request) is not request)
        return next((Lesson(self._name, self._server, rule) for rule in helpful), None)

    def _rules(self) -> Sequence[tuple[str, tuple[str, int] | None]]:
        """Return the rules in force in order of application, each with the fact that taught it."""
        # Others are about sizes, or from a newer version of bubbot.
        found = self._lessons.find(self._name, self._server) if self._lessons else ()
        lessons = [each for each in found if is_known(each.rule)]
        if not lessons:
            return [(rule, None) for rule in self._declared]
        rules: dict[str, tuple[str, int] | None] = dict.fromkeys(self._declared)
        rules |= {lesson.rule: lesson.fact for lesson in lessons if lesson.rule not in rules}
        return sorted(rules.items(), key=lambda item: _order(item[0]))

    def _find_rules(self, words: str, request: ModelRequest) -> Iterator[str]:
        """Yield the rules that the words of a refusal speak for, the likeliest first."""
        for name in request.parameters:
            if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", words):
                other = _RENAMED.get(name)
                if other is not None and re.search(rf"(?<!\w){other}(?!\w)", words):
                    yield f"rename:{name}:{other}@1"
                yield f"without:{name}@1"
        for sign in _SIGNS:
            if sign.words.search(words) and not (sign.never and sign.never.search(words)):
                yield sign.rule


def _order(rule: str) -> int:
    return RULE_ORDER.index(re.split("[:@]", rule, maxsplit=1)[0])
