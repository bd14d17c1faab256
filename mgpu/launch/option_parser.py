"""Which Request is a plain command line? Read without typer, whose start takes longer than all of the gate.

Whatever is not plain (--help, an option that nobody knows, a value that is missing) is left to typer, which has the
words for it. A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgpu.launch.request import Request

_SWITCHES = {
    "--yes": "yes", "-y": "yes", "--dry-run": "dry_run", "-n": "dry_run", "--print-command": "print_command",
    "--module": "module", "-m": "module", "--exec": "exec_", "--detach": "detach", "--attach": "attach",
    "--status": "status", "--stop": "stop", "--watch": "watch", "--triage": "triage", "--slurm": "slurm",
    "--preflight": "preflight",
}  # fmt: skip


_TEXTS = {
    "--config": "config", "-c": "config", "--launcher": "launcher", "--unverified": "unverified", "--smoke": "smoke",
    "--gpus": "gpus", "--port": "port", "--log-dir": "log_dir", "--json-result": "json_result",
    "--partition": "partition", "--account": "account", "--qos": "qos", "--time": "time",
}  # fmt: skip


_NUMBERS: dict[str, tuple[str, type[int] | type[float]]] = {
    "--timeout": ("timeout_s", float), "--node-rank": ("node", int), "--nodes": ("nodes", int),
    "--gpus-per-node": ("gpus_per_node", int), "--spare": ("spare", int),
}  # fmt: skip


def alone(words: Sequence[str]) -> Request | None:
    """The Request of what stands behind `mgpu launch`; None where it takes a parser to tell."""
    given: dict[str, Any] = {}
    place = 0
    while place < len(words) and words[place].startswith("-"):
        option, equals, value = words[place].partition("=")
        place += 1
        if option == "--" and not equals:
            break
        if option in _SWITCHES and not equals:
            given[_SWITCHES[option]] = True
        elif option in ("--no-triage", "--no-preflight") and not equals:
            given[option.removeprefix("--no-")] = False
        elif option in (*_TEXTS, *_NUMBERS) and (not equals or option.startswith("--")):
            if not equals:
                if place == len(words):
                    return None
                value = words[place]
                place += 1
            if option in _TEXTS:
                given[_TEXTS[option]] = value
            elif value.isascii() and value.isdigit():
                name, kind = _NUMBERS[option]
                given[name] = kind(value)
            else:
                return None
        else:
            return None
    return Request(target=tuple(words[place:]), **given)
