"""What is wrong with the arguments of a command, in words for people."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bubbot.arguments.fields import ArgumentField, ArgumentProblem
from bubbot.texts import Texts

MAX_VALUE_CHARS = 60
"""Characters of a wrong value that are repeated."""
_SENTENCES: Mapping[str, tuple[str, str]] = {
    "literal_error": ("argument_choice", "expected"),
    "int_parsing": ("argument_whole", ""),
    "float_parsing": ("argument_number", ""),
    "bool_parsing": ("argument_yes_no", ""),
    "greater_than_equal": ("argument_least", "ge"),
    "greater_than": ("argument_more", "gt"),
    "less_than_equal": ("argument_most", "le"),
    "less_than": ("argument_less", "lt"),
    "string_type": ("argument_text", ""),
    "string_too_short": ("argument_empty", "min_length"),
    "string_too_long": ("argument_long", "max_length"),
    "string_pattern_mismatch": ("argument_choice", "form"),
    "too_short": ("argument_empty", "min_length"),
    "too_long": ("argument_many", "max_length"),
}
"""The sentence for each type of error, and the key of its limit."""


def describe_argument(problem: ArgumentProblem, tool: str, fields: Mapping[str, ArgumentField], texts: Texts) -> str:
    """Say what is wrong with an argument, without a library's words.

    Args:
        problem: what is wrong.
        tool: the name of the tool or command, by which the catalogues know what its arguments mean.
        fields: its arguments.
        texts: the sentences.
    """
    name, typed = problem.name, str(problem.value)
    value = typed if len(typed) <= MAX_VALUE_CHARS else f"{typed[:MAX_VALUE_CHARS]}…"
    if problem.kind == "missing":
        if meaning := fields[name].description:
            return texts.say("argument_missing", name=name, meaning=texts.meaning(tool, name, meaning))
        return texts.say("argument_missing_plain", name=name)
    if problem.kind == "extra_forbidden":
        return texts.say("argument_unknown", name=name)
    if problem.kind not in _SENTENCES:  # our own validators say what is wrong themselves
        return problem.reason or texts.say("argument_wrong", name=name, value=value)
    sentence, key = _SENTENCES[problem.kind]
    limit = str(problem.limits.get(key, ""))
    if key == "form":
        limit = texts.meaning(tool, f"{name}.form", limit)
    if key == "expected":
        # An empty text among them means the default; nobody types it.
        *choices, last = filter(None, re.findall(r"'([^']*)'", limit))
        limit = texts.say("or").join([texts.say("list_comma").join(choices), last] if choices else [last])
    return texts.say(sentence, name=name, value=value, limit=limit)
