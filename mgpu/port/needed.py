"""Does a script train alone, so that a port would let it train on several GPUs?"""

from __future__ import annotations

from pathlib import Path

from mgpu import engine
from mgpu.command_line import shell
from mgpu.engine import selections
from mgpu.errors import MgpuError
from mgpu.readers.training_script import read as training_script_read
from mgpu.snapshot import Snapshot


def port_command(path: Path) -> str:
    """Return the command that ports a script; "" if it trains together already, or if that is not known."""
    if not path.is_file():
        return ""
    try:
        script = training_script_read.read(path)
        found = engine.judge(Snapshot(script=script), selections.SCRIPT)
    except MgpuError:
        return ""
    if not script.has_own_backward or not any(one.problem and "portable" in one.check.tags for one in found):
        return ""
    return shell("mgpu doctor --script {:path} --fix", str(path))
