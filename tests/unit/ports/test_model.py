"""A request's bytes: the canonical JSON of the whole, however it is put together."""

from __future__ import annotations

import json
from types import MappingProxyType

from bubbot.ports.model import ModelRequest, ToolSpec

TOOLS = (
    ToolSpec("tape_search", 'Searches "everything".', {"type": "object", "properties": {"q": {"type": "string"}}}),
    ToolSpec("garten_gießen", "浇花", MappingProxyType({"type": "object", "b": (1, None, True), "a": 0.5})),
)
MESSAGES = ({"role": "user", "content": "é 你好\n"}, MappingProxyType({"role": "assistant", "content": "yes"}))


def test_the_bytes_of_a_request_are_its_canonical_json() -> None:
    request = ModelRequest("Be brief.", MESSAGES, TOOLS, {"top_p": 1.0, "seed": 7})
    body = {
        "messages": [{"role": "system", "content": "Be brief."}, *(dict(one) for one in MESSAGES)],
        "parameters": {"seed": 7, "top_p": 1.0},
        "tools": [tool.as_json() for tool in TOOLS],
    }
    wanted = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert request.as_bytes().decode() == wanted


def test_a_request_without_tools_has_an_empty_list_of_them() -> None:
    assert json.loads(ModelRequest("", ()).as_bytes())["tools"] == []


def test_equal_tools_are_equal_whatever_they_were_made_of() -> None:
    assert ToolSpec("f", "does", {"a": 1}) == ToolSpec("f", "does", MappingProxyType({"a": 1}))
