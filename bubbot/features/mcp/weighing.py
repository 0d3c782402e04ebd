"""What the arguments of a call tell its server: the texts, and how many bits the choice of everything else may carry.

In a tainted turn a call that only reads runs without a yes while it reveals almost nothing: see `MAX_BITS` of approvals. Its texts are
weighed by what people said and pages showed (`ShownTexts.weigh_query`). The rest is counted here: numbers, booleans, choices of a list,
which arguments are present, and how the words are split among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class SentWords(Struct, frozen=True):
    """What a call sends.

    Attributes:
        text: its texts, in their order.
        bits: what the choice of its other values may carry.
    """

    text: str
    bits: float


def weigh_arguments(schema: Mapping[str, Any], values: Mapping[str, Any]) -> SentWords:
    """Weigh the arguments of a call by the schema of its tool."""
    texts = list[str]()
    bits = _weigh(schema, values, texts)
    return SentWords(" ".join(texts), bits + _weigh_places(texts))


def _weigh_places(texts: Sequence[str]) -> float:
    """Return the bits of where one text ends and the next begins: the words are looked for as if they were one."""
    words = sum(text.count(" ") + 1 for text in texts)
    return math.log2(math.comb(words - 1, len(texts) - 1)) if texts else 0.0


def _weigh(schema: object, value: object, texts: list[str]) -> float:
    """Return the bits of a value, and append its texts. The codes are uniquely decodable, so that no sum is too small."""
    rules = schema if isinstance(schema, Mapping) else {}
    choices = rules.get("enum")
    if isinstance(choices, list | tuple) and value in choices:
        return math.log2(len(choices))
    if value is None or isinstance(value, bool):
        return 1.0
    if isinstance(value, int):
        return 2 * math.floor(math.log2(abs(value) + 1)) + 2.0  # Elias' gamma, and the sign
    if isinstance(value, Mapping):
        return _weigh_object(rules, value, texts)
    if isinstance(value, list | tuple):
        inner = rules.get("items")
        return sum(1.0 + _weigh(inner, each, texts) for each in value)
    texts.append(str(value))
    return 0.0


def _weigh_object(rules: Mapping[str, Any], value: Mapping[str, Any], texts: list[str]) -> float:
    found, required = rules.get("properties"), rules.get("required") or ()
    properties = found if isinstance(found, Mapping) else {}
    optional = [name for name in properties if name not in required]
    bits = 0.0
    for name, each in value.items():
        if name not in properties:
            texts.append(str(name))  # a name that the model composed
        elif name in optional:
            bits += math.log2(len(optional) + 1)
        bits += _weigh(properties.get(name), each, texts)
    return bits
