"""Servers of MCP that do wrong, and old ones, written by hand: `python -I -S hostile.py NAME [FILE]`. They import as little as they can."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

MEGABYTE = 1_000_000
OPEN_SCHEMA = {"type": "object", "properties": {}}
ASKED_SCHEMA = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "count": {"type": "integer", "default": 3}},
    "required": ["sure"],
}


def send(**message: Any) -> None:
    """Write a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


later: list[dict[str, Any]] = []
"""Messages that came while one with a certain id was waited for."""


def receive() -> Iterator[dict[str, Any]]:
    """Read messages to the end of the input."""
    while True:
        if later:
            yield later.pop(0)
        elif line := sys.stdin.readline():
            yield json.loads(line)
        else:
            return


def receive_answer(number: str) -> dict[str, Any]:
    """Wait for the answer to our request, and for nothing else."""
    while True:
        message: dict[str, Any] = json.loads(sys.stdin.readline())
        if message.get("id") == number and "method" not in message:
            return message
        later.append(message)


def tool(name: str, **more: Any) -> dict[str, Any]:
    """Describe a tool."""
    return {"name": name, "description": f"The tool {name}.", "inputSchema": OPEN_SCHEMA, **more}


def wait_for_call(*tools: dict[str, Any]) -> dict[str, Any]:
    """Answer as a server of 2025-11-25 to the first call, and return that."""
    for message in receive():
        if message["method"] == "tools/call":
            return message
        answer(message, tools)
    sys.exit()


def answer(message: dict[str, Any], tools: tuple[dict[str, Any], ...]) -> None:
    """Answer anything but a call."""
    if "id" not in message:
        return
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "old", "version": "7"}
        result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=message["id"], result=result)
    elif message["method"] == "tools/list":
        send(id=message["id"], result={"tools": list(tools or [tool("work")])})
    else:
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})


def say(call: dict[str, Any], text: str, **more: Any) -> None:
    """Answer a call with a text."""
    send(id=call["id"], result={"content": [{"type": "text", "text": text}], **more})


def work() -> None:
    """Answer every call with its metadata."""
    for message in receive():
        if message.get("method") == "tools/call":
            say(message, json.dumps(message["params"].get("_meta")))
        else:
            answer(message, ())


def mute() -> None:
    for _ in receive():
        pass


def deaf() -> None:
    """Never leave."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for message in receive():
        answer(message, ())
    while True:
        time.sleep(60)


def strict_old() -> None:
    """Leave if the first request is not the one that old servers know."""
    first = json.loads(sys.stdin.readline())
    if first["method"] != "initialize":
        sys.exit("expected initialize")
    answer(first, ())
    work()


def noisy() -> None:
    print("Starting …\nListening on stdio", flush=True)
    work()


def talkative() -> None:
    """Fill standard error with lines, and with one that has no end."""
    sys.stderr.write("a line\n" * 200_000 + "x" * MEGABYTE)
    sys.stderr.flush()
    work()


def long_line() -> None:
    call = wait_for_call()
    for _ in range(100):
        sys.stdout.write("{" + "x" * MEGABYTE)
    say(call, "never seen")


def long_text() -> None:
    call = wait_for_call()
    result = {"content": [{"type": "text", "text": "ä" * (3 * MEGABYTE // 2)}]}
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}, ensure_ascii=False), flush=True)
    mute()


def broken() -> None:
    wait_for_call()
    print('{"jsonrpc": "2.0", "id": 1, "result"', flush=True)
    mute()


def many_tools() -> None:
    wait_for_call(*(tool(f"tool_{number}") for number in range(10_000)))


def pages(cursors: Iterator[str]) -> None:
    for message in receive():
        if message["method"] == "tools/list":
            cursor = next(cursors)
            send(id=message["id"], result={"tools": [tool(f"tool_{time.monotonic_ns()}")], "nextCursor": cursor})
        else:
            answer(message, ())


def cyclic() -> None:
    pages(iter(["a", "b"] * 1000))


def endless() -> None:
    pages(map(str, range(1_000_000)))


def twice() -> None:
    wait_for_call(tool("same"), tool("same"))


def deep() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(90):
        schema = {"type": "object", "properties": {"a": schema}}
    wait_for_call(tool("deep", inputSchema=schema))


def dies() -> None:
    wait_for_call()
    sys.stderr.write("out of luck\n")
    os._exit(7)


def killed() -> None:
    wait_for_call()
    os.kill(os.getpid(), signal.SIGKILL)


def closes() -> None:
    """Close the output and stay."""
    wait_for_call()
    os.close(1)
    mute()


def liar() -> None:
    """Answer under other ids."""
    for message in receive():
        if message.get("method") == "tools/call":
            for number in (-1, "x", message["id"] + 1000, str(message["id"]) + "0"):
                send(id=number, result={"content": [{"type": "text", "text": "a lie"}]})
        else:
            answer(message, ())


def shapeless() -> None:
    """Answer with what is no result of a call."""
    send(id=wait_for_call()["id"], result={"content": "just a text"})
    work()


def flood() -> None:
    wait_for_call()
    while True:
        send(method="notifications/message", params={"level": "info", "data": "x"})


def slow_pattern() -> None:
    """Give an output schema that takes for ever to compare."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    call = wait_for_call(tool("work", outputSchema=schema))
    say(call, "done", structuredContent={"a": "a" * 60 + "!"})
    work()


def wants() -> None:
    """Ask for what is refused, and tell what was answered."""
    call = wait_for_call()
    told = []
    for number, method in enumerate(("sampling/createMessage", "roots/list", "nothing/known")):
        params = {"messages": [], "maxTokens": 1} if number == 0 else {}
        send(id=f"w{number}", method=method, params=params)
        told.append(receive_answer(f"w{number}").get("error", {}).get("code"))
    say(call, json.dumps(told))
    work()


def asks(count: int = 1) -> None:
    """Ask the person, before each call is answered, `count` questions one after another."""
    for message in receive():
        if message.get("method") != "tools/call":
            answer(message, ())
            continue
        told = []
        for number in range(count):
            params = {"message": f"Really {number}?", "requestedSchema": ASKED_SCHEMA}
            send(id=f"q{number}", method="elicitation/create", params=params)
            told.append(receive_answer(f"q{number}")["result"])
        say(message, json.dumps([os.getpid(), told]))


def asks_twice() -> None:
    asks(2)


def asks_much() -> None:
    """Ask with a form of 100 KB, and tell what was answered."""
    call = wait_for_call()
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 100_000}}}
    send(id="q", method="elicitation/create", params={"message": "Please", "requestedSchema": schema})
    say(call, json.dumps(receive_answer("q")))
    work()


def wants_url() -> None:
    """Refuse the first call until an address was opened."""
    url = {"mode": "url", "message": "Log in there.", "url": "https://login.example/x", "elicitationId": "1"}
    data = {"elicitations": [url]}
    send(id=wait_for_call()["id"], error={"code": -32042, "message": "open it", "data": data})
    work()


def family() -> None:
    """Start children, one of them in a session of its own."""
    sleeping = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleeping)
    try:
        subprocess.Popen(sleeping, start_new_session=True)
    except PermissionError:  # the sandbox has no sessions
        subprocess.Popen(sleeping)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work()
    while True:
        time.sleep(60)


SERVERS = {
    server.__name__: server
    for server in (
        work, mute, deaf, strict_old, noisy, talkative, long_line, long_text, broken, many_tools, cyclic, endless, twice, deep, dies,
        killed, closes, liar, shapeless, flood, slow_pattern, wants, asks, asks_twice, asks_much, wants_url, family,
    )
}  # fmt: skip

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
