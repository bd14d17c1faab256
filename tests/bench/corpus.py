"""Does the validator find what is wrong with real config files, and leave the good ones alone?

    python -m tests.bench.corpus FOLDER [--loader] [--all]

FOLDER holds `*.yaml`, and `index.jsonl` with one object a file: file, verdict (accepted, refused, …), error (the words
of accelerate), flags, unknown_nested and accepted_but_silently_wrong. Each file is judged alone, without any machine.
It exits with 1 unless

* every refused file has an error at the key that accelerate's words name, or a warning with the option that it leaves
  to the command line,
* every file that is accepted and silently wrong has a finding at each key of which the index says so,
* no file that is accepted and clean has an error.

`--loader` asks the installed accelerate as well, and holds its verdict against ours: that needs no index, and shows
every file with an error of ours that it accepts. `--all` prints every finding.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu import engine
from mgpu.config import ask_all, read
from mgpu.engine import Outcome, selections
from mgpu.snapshot import Config, Snapshot

# Not of the file itself: whether another file lies where it says is a question of the place it is used in.
ELSEWHERE = frozenset({"config_deepspeed_file_missing"})

# What the index says, as a pattern, and the keys of which one has to bear a finding. {0} is what the pattern holds.
SAID = (
    (r"gpu_ids count != num_processes", ("gpu_ids",)),
    (r"gpu_ids not a string", ("gpu_ids",)),
    (r"deepspeed_config_file \+ conflicting keys", ("deepspeed_config.", "mixed_precision")),
    (r"multi-node DeepSpeed pdsh: no hostfile", ("deepspeed_config", "num_machines")),
    (r"value never applied by accelerate [\d.]+: (\w+)", ("{0}",)),
    (r"FSDP2 with FSDP1-only keys", ("fsdp_config.",)),
    (r"stale \w+ section", ("fsdp_config", "deepspeed_config", "megatron_lm_config")),
    (r"use_cpu: true", ("use_cpu",)),
    (r"distributed_type NO with num_processes", ("distributed_type",)),
    (r"shell variable", ("main_process_ip", "main_process_port", "machine_rank")),
)
# accelerate's words where it is not the file that is refused: no GPU here, a library or another file is missing.
NOT_THE_FILE = (
    "no available devices|Cuda is not available|existing deepspeed config|not available on this machine|"
    "not installed|mpirun|No module|No package metadata"
)
ADDRESS = ("num_machines", "main_process_ip")  # no main_process_ip; DeepSpeed's own launchers need none


def judged(config: Config) -> list[Outcome]:
    """The problems of a file, by the checks that need no machine."""
    asked = [check for check in engine.checks_of(selections.CONFIG) if check.facts == ("config",)]
    outcomes = engine.run(asked, Snapshot(config=config))
    return [o for o in outcomes if (o.problem or o.status == "crash") and o.check.id not in ELSEWHERE]


def errors(found: Sequence[Outcome]) -> list[Outcome]:
    """Those for which a launch is refused. What accelerate itself says is not ours."""
    return [o for o in found if o.status in ("fail", "crash") and o.check.id != "config_refused_by_accelerate"]


def stopping(found: Sequence[Outcome]) -> list[Outcome]:
    """The errors, and what only the command line can give."""
    return [*errors(found), *(o for o in found if o.problem and "command_line" in o.check.tags)]


def told(config: Config, outcome: Outcome) -> str:
    """A finding in one line."""
    place = outcome.problem.place if outcome.problem else None
    where = f"{place.line or '-'}:{place.column or '-'}" if place else "-"
    title = outcome.problem.title if outcome.problem else str(outcome.answer)
    return f"{Path(config.path).name}:{where} {outcome.status} {outcome.check.id}: {title}"


def blamed(config: Config, words: str) -> list[str]:
    """The keys that accelerate's words name, as a person would: the true one where they mislead."""
    if config.values.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return ["compute_environment"]
    if unknown := re.search(r"unknown keys \((\[.*?\])\)", words):
        return list(ast.literal_eval(unknown[1]))
    if "--num_processes" in words:
        return ["num_processes"]
    if "'split'" in words or "GPU ids" in words:
        return ["gpu_ids"]
    return []


def missed(config: Config, row: Mapping[str, Any], found: Sequence[Outcome]) -> Iterator[str]:
    """What the index says of a file and the findings do not."""
    at = [(place.key or "", place.line) for o in found if o.problem and (place := o.problem.place)]
    if row["verdict"] == "refused":
        problems = [o.problem for o in stopping(found) if o.problem]
        named = [(p.place.key or "", p.place.line) for p in problems if p.place is not None]
        if not named:
            yield "refused, and no error"
        for key in blamed(config, row["error"] or "") if named else ():
            mark = config.marks.get(key)
            if not any(line == (mark.line if mark else 1) for _, line in named):  # a missing key stands at the top
                yield f"refused, and no error at {key}"
    elif row["accepted_but_silently_wrong"]:
        for key in row["unknown_nested"]:
            if not any(line == config.marks[key].line for _, line in at if key in config.marks):
                yield f"no finding at {key}"
        for flag in row["flags"]:
            for keys in wanted(config, flag):
                if not any(key == k or (k.endswith(".") and key.startswith(k)) or key.startswith(f"{k}.")
                           for key, _ in at for k in keys):  # fmt: skip
                    yield f"no finding for: {flag}"
    elif row["verdict"] == "accepted":
        for outcome in errors(found):
            yield f"clean, and {told(config, outcome)}"


def wanted(config: Config, flag: str) -> Iterator[tuple[str, ...]]:
    """The keys of which one has to bear a finding, where the flag asks for one."""
    for pattern, keys in SAID:
        if match := re.search(pattern, flag):
            yield tuple(key.format(*match.groups()) for key in keys)
    section = config.values.get("deepspeed_config")
    of_its_own = isinstance(section, dict) and section.get("deepspeed_multinode_launcher", "pdsh") != "standard"
    if "multi-node: no main_process_ip" in flag and not (config.distributed_type == "DEEPSPEED" and of_its_own):
        yield ADDRESS


def main() -> None:
    """Print what was found, and what was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--loader", action="store_true")
    parser.add_argument("--all", action="store_true")
    wish = parser.parse_args()
    index = wish.folder / "index.jsonl"
    lines = index.read_text("utf-8").splitlines() if index.is_file() else []
    rows = {row["file"]: row for row in map(json.loads, lines)}
    files = sorted(path for path in wish.folder.iterdir() if path.suffix in (".yaml", ".yml", ".json"))
    configs = ask_all([read(path) for path in files], ())[0] if wish.loader else [read(path) for path in files]
    bad: list[str] = []
    number: Counter[str] = Counter()
    for path, config in zip(files, configs, strict=True):
        # An accelerate that takes a file ends some questions; the file alone is to be judged.
        found = judged(read(path))
        row = rows.get(path.name)
        kind = "unlisted" if row is None else row["verdict"]
        kind = "silently wrong" if row and row["accepted_but_silently_wrong"] else kind
        number[kind] += 1
        number["with an error"] += bool(errors(found))
        if wish.all:
            print("\n".join([f"{path.name} [{kind}]", *(f"  {told(config, o)}" for o in found)]))
        bad += [f"{path.name}: {what}" for what in (missed(config, row, found) if row else ())]
        bad += [f"{path.name}: the check crashed: {o.check.id}" for o in found if o.status == "crash"]
        refused = config.loader is not None and not re.search(NOT_THE_FILE, config.loader.error or "-")
        if refused and config.loader and not config.loader.accepted and not errors(found):
            bad.append(f"{path.name}: accelerate refuses it, and we do not: {config.loader.error}")
        if config.loader is not None and config.loader.accepted and errors(found):
            print(*(f"accelerate accepts  {told(config, o)}" for o in errors(found)), sep="\n")
    print(f"\n{len(files)} files: " + ", ".join(f"{n} {kind}" for kind, n in sorted(number.items())))
    print("\n".join(bad) or "all of it as it should be")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
