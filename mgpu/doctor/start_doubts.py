"""Which command starts a script's ranks so that they train together, if the plain one may not? When is none certain?"""

from __future__ import annotations

import re

from mgpu.command_line import Command, shell
from mgpu.snapshot import Script, ScriptCall

_TRAINER = re.compile(r"lightning\.(?:[\w.]+\.)?(?:Trainer|Fabric)(?:\.from_argparse_args)?")
_CLI = re.compile(r"lightning\.(?:[\w.]+\.)?LightningCLI")
_ALL = frozenset({"-1", "'-1'", "'auto'", "[-1]"})
_WRITTEN = re.compile(r"[\d\[\]\s,'\"-]+|'auto'|\"auto\"|None")  # a number or list of GPUs, no variable
_PORT = "os.environ['MASTER_PORT']"
_ADDRESS = "os.environ['MASTER_ADDR']"
_HERE = ("'localhost'", "'127.0.0.1'")
_LOCAL_RANK = frozenset({"--local_rank", "--local-rank"})


def start_command(script: Script) -> Command | str:
    """Return the command of a script that needs more than a launcher: another one, or a port; empty if it does not."""
    if script.speaks == "deepspeed" and _needs_local_rank(script):
        return shell("mgpu launch -- deepspeed {:path}", script.path)
    port = _own_port(script)
    return shell("mgpu launch --port {:number} {:path}", int(port), script.path) if port else ""


def doubt(script: Script) -> str:
    """Return why no command certainly makes the ranks train together; empty if nothing shows a doubt."""
    if script.speaks == "lightning":
        return _devices(script)
    if script.speaks == "ddp" and _own_port(script):
        addresses = {one.value for one in script.sets if one.target == _ADDRESS and one.reached}
        if other := sorted(addresses - set(_HERE)):
            return f"the script sets MASTER_ADDR to {other[0]}, and a launcher's store may not listen there"
    return ""


def _devices(script: Script) -> str:
    """Return why Lightning may use fewer devices than a launcher starts ranks: each of them would train alone."""
    own = {one.name for one in script.classes if any(map(_CLI.fullmatch, one.bases))}
    for call in (one for one in script.calls if one.reached):
        if _CLI.fullmatch(call.name) or call.name.rpartition(".")[2] in own:
            return _reason(call, "LightningCLI reads the number of devices from its config or --trainer.devices")
        if not _TRAINER.fullmatch(call.name):
            continue
        if call.name.endswith(".from_argparse_args"):
            return _reason(call, "its Trainer gets the number of devices from an option (--devices, --gpus)")
        given = next(((key, call.keywords[key]) for key in ("devices", "gpus") if key in call.keywords), None)
        if given and not _WRITTEN.fullmatch(given[1]) and not _is_all(script, given[1]):
            return _reason(call, f"its Trainer gets {given[0]} from an option or a config")
    return ""


def _reason(call: ScriptCall, what: str) -> str:
    place = f"{call.file} line {call.line}" if call.file else f"line {call.line}"
    return f"{what} ({place}), and with 1 each rank of a launcher trains alone. Set it to the number of GPUs"


def _is_all(script: Script, value: str) -> bool:
    """Whether a value is all GPUs, or an option whose default is that."""
    if re.search(r"device_count|WORLD_SIZE|num_gpus\(\)", value):
        return True
    last = value.rpartition(".")[2].replace("_", "-")
    options = [one for one in script.options if f"--{last}" in {name.replace("_", "-") for name in one.names}]
    return any((one.default or "") in _ALL for one in options)


def _needs_local_rank(script: Script) -> bool:
    """Whether an option that only the deepspeed launcher passes decides how a rank starts, and nothing else does."""
    options = [one for one in script.options if _LOCAL_RANK & set(one.names)]
    if not options or script.spawns_ranks:
        return False
    texts = [one.default or "" for one in options] + [one.value for one in script.sets]
    texts += [text for call in script.calls for text in (*call.arguments, *call.keywords.values(), call.name)]
    if any("LOCAL_RANK" in text for text in texts):
        return False
    decides = re.compile(r"\blocal_rank\s*(?:==|!=|>=|>|<)\s*-?\d")
    reached = [call for call in script.calls if call.reached]
    return any(decides.search(text) for call in reached for text in (*call.conditions, *call.guarded_by))


def _own_port(script: Script) -> str:
    """Return the port at which the script makes its ranks meet, instead of the launcher's."""
    if script.speaks != "ddp" or script.spawns_ranks or any(one.target == "os.environ['RANK']" for one in script.sets):
        return ""
    for one in script.sets:
        port = one.value.strip("'\"")
        unless = any(word in condition for condition in one.conditions for word in ("MASTER", "environ", "RANK"))
        if one.reached and one.target == _PORT and re.fullmatch(r"[1-9]\d{2,4}", port) and not unless:
            return "" if {"single", "some"} & set(one.guards) else port
    return ""
