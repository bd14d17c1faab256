"""What does an accelerate config file contain, and does accelerate accept it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import probes
from mgpu.config.reading import read
from mgpu.snapshot import Config, LoaderVerdict

__all__ = ["LOADER", "ask", "facts", "read"]

# Imports accelerate and with it torch; a cold network file system takes tens of seconds.
LOADER = probes.Probe("loader", ("loader",), 60.0, in_training_python=True, file=Path(__file__).with_name("loader.py"))


_MORE_S = 2.0  # for each additional file, which takes 0.05 s


def facts(path: Path, *, ask_loader: bool = True, python: str | None = None, base: Path | None = None) -> Config:
    """Return the fact `config` for a file. Raises MgpuError if the file does not exist or cannot be read.

    `base`: the folder where the launch is started; None: the current one.
    """
    config = read(path, base)
    return ask([config], python=python)[0] if ask_loader else config


def _is_safe(config: Config) -> bool:
    """Whether mgpu could read the DeepSpeed file that accelerate would read, even if it is not JSON.

    Otherwise it may be a device or a file of gigabytes, which accelerate would read to its end.
    """
    file = config.deepspeed_file
    return file is None or not file.fault or file.fault.startswith("not JSON")


def ask(configs: Sequence[Config], *, python: str | None = None) -> list[Config]:
    """Return the configs with accelerate's verdict, if available; accelerate is imported once for all of them."""
    readable = [config for config in configs if not any(fault.fatal for fault in config.faults) and _is_safe(config)]
    if not readable:
        return list(configs)
    paths = [str(Path(config.path).resolve()) for config in readable]
    deadline = LOADER.deadline_s + _MORE_S * len(paths)
    child = probes.run([replace(LOADER, arguments={"paths": paths}, deadline_s=deadline)], python=python)[0]
    results = dict(zip(paths, child.found.get("loader") or (), strict=False))
    verdicts = {
        path: LoaderVerdict(**{**verdict, "options": tuple(verdict.get("options", ()))})
        for path, verdict in results.items()
    }
    return [replace(config, loader=verdicts.get(str(Path(config.path).resolve()))) for config in configs]
