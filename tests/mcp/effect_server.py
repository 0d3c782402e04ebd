"""A server of MCP that acts on the service of `tests.fakes.effect_server`, whose address is its argument. It needs no library."""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

TEXT, KEY = {"type": "string"}, {"type": "string", "description": "given by the caller"}
ACT = {"type": "object", "properties": {"text": TEXT, "key": KEY}, "required": ["text"], "additionalProperties": False}
TOOLS = [
    *(
        {"name": f"act_{kind}", "description": f"Act ({kind}).", "inputSchema": ACT}
        for kind in ("key", "probe", "never")
    ),
    {
        "name": "was_done",
        "description": "Say whether a call happened.",
        "inputSchema": {"type": "object", "properties": {"key": KEY}, "required": ["key"]},
    },
]


def call(address: str, name: str, arguments: dict[str, Any]) -> str:
    if name == "was_done":
        try:
            urlopen(f"{address}?{urlencode({'key': arguments['key']})}").close()
        except HTTPError:
            return ""
        return f"had done {arguments['key']}"
    body = {"kind": name.removeprefix("act_"), "text": arguments["text"], "key": arguments.get("key", "")}
    urlopen(Request(address, json.dumps(body).encode(), method="POST")).close()
    return f"did {arguments['text']}"


def main() -> None:
    address = sys.argv[1]
    for line in sys.stdin:
        request = json.loads(line)
        result: dict[str, Any] | None = None
        match request.get("method"):
            case "initialize":
                info = {"name": "effects", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": TOOLS}
            case "tools/call":
                text = call(address, request["params"]["name"], request["params"].get("arguments", {}))
                result = {"content": [{"type": "text", "text": text}]}
        if "id" not in request:
            continue
        answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
