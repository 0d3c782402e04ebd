"""A server of MCP without a library, which offers and says what `play.json` in its folder has: it is read anew for each request.

`play.json`: `name`, `instructions`, `tools` as the protocol has them, and `replies` by tool: the result of a call; with `asks` the
parameters of questions that come before it; with `error` an error of the protocol instead; with `dies` the last words of the
process. What is called it writes into `done`: the tool, its arguments as JSON, and the answers to its questions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PLAY, DONE = Path("play.json"), Path("done")
later: list[dict[str, Any]] = []
"""What came while an answer to a question was waited for."""


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def receive() -> dict[str, Any]:
    if later:
        return later.pop(0)
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: dict[str, Any] = json.loads(line)
    return message


def ask(number: str, params: dict[str, Any]) -> Any:
    """Ask a person, and wait for the answer."""
    send(id=number, method="elicitation/create", params=params)
    while True:
        message = json.loads(sys.stdin.readline() or sys.exit())
        if message.get("id") == number and "method" not in message:
            return message.get("result")
        later.append(message)


def call(message: dict[str, Any], play: dict[str, Any]) -> None:
    name, arguments = message["params"]["name"], message["params"].get("arguments", {})
    reply = dict(play["replies"].get(name, {"content": [{"type": "text", "text": "done"}]}))
    if "dies" in reply:
        print(reply["dies"], file=sys.stderr, flush=True)
        sys.exit(3)
    if "error" in reply:
        send(id=message["id"], error=reply["error"])
        return
    answers = []
    for place, params in enumerate(reply.pop("asks", ())):
        answers.append(ask(f"q{message['id']}-{place}", params))
        if (answers[-1] or {}).get("action") != "accept":
            send(id=message["id"], result={"content": [{"type": "text", "text": "then not"}]})
            return
    with DONE.open("a") as file:
        file.write(f"{name} {json.dumps(arguments)} {json.dumps(answers)}\n")
    send(id=message["id"], result=reply)


def main() -> None:
    while True:
        message = receive()
        play = json.loads(PLAY.read_text())
        if "id" not in message or "method" not in message:
            continue
        match message["method"]:
            case "initialize":
                info = {"name": play.get("name", "scripted"), "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                send(id=message["id"], result={**result, "instructions": play.get("instructions", "")})
            case "tools/list":
                send(id=message["id"], result={"tools": play["tools"]})
            case "tools/call":
                call(message, play)
            case _:
                send(id=message["id"], error={"code": -32601, "message": "unknown"})


if __name__ == "__main__":
    main()
