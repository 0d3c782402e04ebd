"""The parameters of a request, read as the real server reads them: everything becomes text, then is interpreted.

Unknown parameters are ignored. A number that is none counts as its default, and numbers are cut to their range. What
is a JSON object or array has to be one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.botapi.errors import Json, bad


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came with the request."""

    name: str
    mime: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Params:
    """What one request brought."""

    values: dict[str, str] = field(default_factory=dict)
    files: dict[str, Upload] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def flag(self, name: str) -> bool:
        return self.text(name).lower() in ("true", "yes", "1")

    def number(self, name: str, default: int = 0, low: int = -(2**63), high: int = 2**63 - 1) -> int:
        """An integer within its range; anything else is the default."""
        found = re.match(r"-?\d+", self.text(name).strip())
        return min(max(int(found[0]), low), high) if found else default

    def decoded(self, name: str, kind: type, sentence: str) -> Any:
        """A JSON value of a kind, None where the parameter is absent; refused with the sentence otherwise."""
        if not self.text(name):
            return None
        try:
            value = json.loads(self.text(name))
        except ValueError as error:
            raise bad(sentence) from error
        if not isinstance(value, kind):
            raise bad(sentence)
        return value


async def read(request: web.Request) -> Params:
    """The query and the body. A body of another content type is not looked at, as on the real server."""
    values = dict(request.query)
    files: dict[str, Upload] = {}
    if request.content_type == "application/json":
        values.update(_from_json(await request.read()))
    elif request.content_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
        for name, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                with value.file as opened:
                    files[name] = Upload(value.filename, value.content_type, opened.read())
            else:
                values[name] = value if isinstance(value, str) else bytes(value).decode()
    return Params(values, files)


def _from_json(body: bytes) -> dict[str, str]:
    if not body:
        return {}
    try:
        given: Json = json.loads(body)
    except ValueError as error:
        raise bad("can't parse JSON") from error
    if not isinstance(given, dict):
        raise bad("expected an Object in the body")
    texts = {}
    for name, value in given.items():
        if value is not None:
            texts[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return texts
