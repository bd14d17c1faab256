"""A server of the Model Context Protocol with mgpu's read-only commands as tools, over stdin and stdout.

Each tool runs one command of mgpu in a process of its own, and returns the document that `--json` prints. None of them
writes a file of the user or starts a run. Needs `mgpu-doctor[mcp]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from mgpu.errors import reason
from mgpu.process import child_process

_TIMEOUT_S = 300.0


def doctor(quick: bool = False, demo: str = "") -> dict[str, Any]:
    """Examine this machine: driver, GPUs, links, PyTorch, NCCL, limits. `demo`: a shipped one instead."""
    return _answer("doctor", "--json", *(["--quick"] if quick else []), *(["--demo", _path(demo)] if demo else []))


def script(path: str) -> dict[str, Any]:
    """Find mistakes in a training or job script that matter on several GPUs. The script is not run."""
    return _answer("doctor", "--json", "--script", _path(path))


def log(paths: list[str]) -> dict[str, Any]:
    """Explain the logs of a failed run: the cause, the rank that failed first, how to fix it."""
    return _answer("doctor", "--json", "--log", *map(_path, paths))


def validate(paths: list[str], target: str = "") -> dict[str, Any]:
    """Check accelerate configs. `target`: the machine that trains, such as 8xH100-80GB; else this one."""
    there = ["--target", _path(target)] if target else []
    return _answer("configure", "--json", *there, "--validate", *map(_path, paths))


def plan(params: str, target: str = "") -> dict[str, Any]:
    """Batch, steps, speed-up and memory on 1, 2, 4 ... GPUs for a model size such as 8B. Writes nothing."""
    there = ["--target", _path(target)] if target else []
    return _answer("configure", "--plan", "--json", "--params", _path(params), *there)


def explain(check: str) -> dict[str, Any]:
    """Return the documentation of one check, by the id that a finding has."""
    return _answer("doctor", "--explain", _path(check), text=True)


def runs() -> dict[str, Any]:
    """List the runs that mgpu launched in this folder, with their state."""
    return _answer("launch", "--status", "--json-result", "-")


TOOLS = (doctor, script, log, validate, plan, explain, runs)


def _path(value: str) -> str:
    """Return a value of a tool. Raises ValueError for one that the command line would read as an option."""
    if value.startswith("-"):
        raise ValueError(f"{value!r} must not start with a hyphen")
    return value


def _answer(*words: str, text: bool = False) -> dict[str, Any]:
    """Run a command of mgpu and return its document, or its text; an error has the message and the exit code."""
    try:
        done = child_process.run([sys.executable, "-m", "mgpu", *words], _TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": reason(error)}
    out, err = (stream.decode("utf-8", "replace").strip() for stream in (done.stdout, done.stderr))
    if text and done.returncode == 0:
        return {"text": out}
    try:
        found = json.loads(out)
    except ValueError:
        return {"error": err or out, "exit_code": done.returncode}
    return found if isinstance(found, dict) else {"result": found}


def main() -> int:
    """Serve until stdin is closed, and return the exit code."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        print("mgpu: the MCP server needs the package mcp 2: pip install 'mgpu-doctor[mcp]'", file=sys.stderr)
        return 3
    server = MCPServer("mgpu")
    for tool in TOOLS:
        server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False))(tool)
    server.run("stdio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
