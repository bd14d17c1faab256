"""Which files of settings does the doctor examine: an accelerate config, DeepSpeed files?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mgpu.snapshot import JobScript, Snapshot


def with_config(snapshot: Snapshot, path: Path, *, ask_loader: bool, python: str | None = None) -> Snapshot:
    """Add the file of --config: an accelerate config, or a DeepSpeed file. Raises MgpuError if it cannot be read."""
    from mgpu.config import ask_all, deepspeed_json, facts
    from mgpu.config.reading import contents

    file = deepspeed_json.recognized(contents(path), str(path))
    if file is not None:
        files = ask_all((), (file,), python=python)[1] if ask_loader else [file]
        return replace(snapshot, deepspeed_json=tuple(files))
    return replace(snapshot, config=facts(path, ask_loader=ask_loader, python=python))


def with_files_of_job(snapshot: Snapshot, job: JobScript) -> Snapshot:
    """Add the DeepSpeed files that the commands of a job script name, each once."""
    named: dict[str, bool] = {}  # whether only DeepSpeed itself reads it
    for one in job.deepspeed:
        if one.path:
            named[one.path] = named.get(one.path, True) and one.by_deepspeed
    if not named:
        return snapshot
    from mgpu.config import deepspeed_json

    read = [(deepspeed_json.read(Path(path)), alone) for path, alone in named.items()]
    files = [replace(file, by_deepspeed=alone, by_others=not alone) for file, alone in read if file]
    return replace(snapshot, deepspeed_json=(*(snapshot.deepspeed_json or ()), *files) or None)
