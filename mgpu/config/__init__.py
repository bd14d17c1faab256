"""What does an accelerate config contain, does accelerate accept it, and does DeepSpeed accept a DeepSpeed file?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpu import probes
from mgpu.config.reading import read
from mgpu.process import scratch
from mgpu.snapshot import Config, DeepSpeedJson, DeepSpeedRefusal, DeepSpeedVerdict, LoaderVerdict

__all__ = ["LOADER", "ask_all", "facts", "read"]

# Imports accelerate and with it torch; a cold network file system takes tens of seconds.
LOADER = probes.Probe("loader", ("loader",), 60.0, in_training_python=True, file=Path(__file__).with_name("loader.py"))
_DEEPSPEED = replace(
    LOADER,
    name="deepspeed_loader",
    facts=("deepspeed_loader",),
    file=Path(__file__).with_name("deepspeed_loader.py"),
)


_MORE_S = 2.0  # for each additional file, which takes 0.05 s


def facts(path: Path, *, ask_loader: bool = True, python: str | None = None, base: Path | None = None) -> Config:
    """Return the fact `config` for a file. Raises MgpuError if the file does not exist or cannot be read.

    `base`: the folder where the launch is started; None: the current one.
    """
    config = read(path, base)
    return ask_all((config,), (), python=python)[0][0] if ask_loader else config


def _is_safe(config: Config) -> bool:
    """Whether mgpu could read the DeepSpeed file that accelerate would read, even if it is not JSON.

    Otherwise it may be a device or a file of gigabytes, which accelerate would read to its end.
    """
    file = config.deepspeed_file
    return file is None or not file.fault or file.fault.startswith("not JSON")


def ask_all(
    configs: Sequence[Config], files: Sequence[DeepSpeedJson], *, python: str | None = None
) -> tuple[list[Config], list[DeepSpeedJson]]:
    """Return the configs with accelerate's verdict, and DeepSpeed's on the files that they name and on `files`.

    One child process imports torch, accelerate and DeepSpeed once for all of them. A verdict is None if it is not
    available.
    """
    readable = [config for config in configs if not any(fault.fatal for fault in config.faults) and _is_safe(config)]
    paths = [str(Path(config.path).resolve()) for config in readable]
    named = [config.deepspeed_file.values for config in readable if config.deepspeed_file]
    values = [*named, *(file.values for file in files)]
    texts = list(dict.fromkeys(json.dumps(one) for one in values if one))
    if not paths and not texts:
        return list(configs), list(files)
    found = _found(paths, texts, python)
    accepted = {path: _of_accelerate(one) for path, one in zip(paths, found.get("loader") or (), strict=False)}
    loaded = {text: _of_deepspeed(one) for text, one in zip(texts, found.get("deepspeed_loader") or (), strict=False)}

    def judged(config: Config) -> Config:
        file = config.deepspeed_file
        known = replace(file, loader=loaded.get(json.dumps(file.values))) if file else None
        return replace(config, loader=accepted.get(str(Path(config.path).resolve())), deepspeed_file=known)

    return list(map(judged, configs)), [replace(file, loader=loaded.get(json.dumps(file.values))) for file in files]


def _found(paths: Sequence[str], texts: Sequence[str], python: str | None) -> Mapping[str, Any]:
    """Return what the loaders found in the files with these paths, and in DeepSpeed files with these texts."""
    deadline = LOADER.deadline_s + _MORE_S * (len(paths) + len(texts))
    wanted = [replace(LOADER, arguments={"paths": list(paths)})] if paths else []
    with contextlib.ExitStack() as stack:
        if texts:
            with contextlib.suppress(OSError):  # no temporary folder: DeepSpeed is not asked
                path = stack.enter_context(scratch.folder()) / "values.json"
                path.write_text(f"[{', '.join(texts)}]", encoding="utf-8")
                wanted.append(replace(_DEEPSPEED, arguments={"path": str(path)}))
        if not wanted:
            return {}
        child = replace(wanted[0], deadline_s=deadline, then=tuple(wanted[1:]))
        return probes.run([child], python=python)[0].found


def _of_accelerate(verdict: Mapping[str, Any]) -> LoaderVerdict:
    return LoaderVerdict(**{**verdict, "options": tuple(verdict.get("options", ()))})


def _of_deepspeed(verdict: Mapping[str, Any] | None) -> DeepSpeedVerdict | None:
    if verdict is None:
        return None
    return DeepSpeedVerdict(verdict["deepspeed"], tuple(DeepSpeedRefusal(**one) for one in verdict["refusals"]))
