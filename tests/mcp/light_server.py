"""A small server of MCP without a library, which starts at once: `hello` answers, `wait` never does, `pid` says its process id.

With the argument `stubborn` it ignores the end of its input and SIGTERM, and leaves a process, in a session of its own if it may.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

TOOLS = [
    {"name": name, "description": f"{name}.", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("hello", "wait", "pid")
]


def answer(request: dict[str, object]) -> dict[str, object] | None:
    match request.get("method"):
        case "initialize":
            info = {"name": "light", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            params = request["params"]
            assert isinstance(params, dict)
            if params["name"] == "wait":
                return None
            return {"content": [{"type": "text", "text": "hello" if params["name"] == "hello" else str(os.getpid())}]}
        case "ping":
            return {}
    return None


def main() -> None:
    is_stubborn = "stubborn" in sys.argv
    if is_stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for is_apart in (True, False):  # some sandboxes refuse sessions
            try:
                subprocess.Popen(["/bin/sleep", "1000"], start_new_session=is_apart, stdin=subprocess.DEVNULL)
                break
            except PermissionError:
                continue
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request)
        if result is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
        elif request.get("method") not in ("tools/call",):
            error = {"code": -32601, "message": "unknown"}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
    while is_stubborn:
        time.sleep(1)


if __name__ == "__main__":
    main()
