"""What does an accelerate config file say, and does accelerate take it?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mgpu import probes
from mgpu.config.reading import read
from mgpu.snapshot import Config, LoaderVerdict

__all__ = ["LOADER", "facts", "read"]

# Imports accelerate and with it torch; a cold network file system takes tens of seconds.
LOADER = probes.Probe("loader", ("loader",), 60.0, in_training_python=True, file=Path(__file__).with_name("loader.py"))


def facts(path: Path, *, ask_loader: bool = True, python: str | None = None) -> Config:
    """The fact `config` for a file. Raises MgpuError when the file is not there or not readable."""
    config = read(path)
    if not ask_loader or any(fault.fatal for fault in config.faults):
        return config
    child = probes.run([replace(LOADER, arguments={"path": str(path.resolve())})], python=python)[0]
    found = child.found.get("loader")
    return replace(config, loader=LoaderVerdict(**found) if found else None)
