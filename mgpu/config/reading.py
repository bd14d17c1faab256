"""What does a config file contain: values, mgpu's own comments, and the DeepSpeed file it names?

Errors in a file become faults, never exceptions.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.config import deepspeed_json
from mgpu.config.parsing import parse, unreadable
from mgpu.errors import USAGE, MgpuError, reason
from mgpu.job_formats import FORMATS, TITLES
from mgpu.snapshot import Config, ConfigFault, DeepSpeedFile, Mark, Model
from mgpu.structured_text import Malformed, json_of
from mgpu.text import visible

# fmt: off
__all__ = [
    "CPU_JOB",
    "LAUNCH_ADDS",
    "WRITTEN_BY",
    "digest",
    "for_engine",
    "job_sets",
    "launch_flags",
    "parse",
    "parse_config",
    "pinning_variables",
    "read",
    "seal",
]
# fmt: on

LARGEST_BYTES = 1 << 20  # an accelerate config has a few dozen lines; a megabyte is a different file
SUFFIXES = (".yaml", ".yml", ".json")
_MOST_FOLDERS = 4  # above a config, in which a launch may be started
_MOST_NAMES = 10_000  # of a folder, searched for similar names
WRITTEN_BY = "# Written by mgpu"
_MODEL = (
    r"^# model \S{1,20}: ([\d,]{1,21}) parameters, (full|lora|qlora), (adamw|adam8bit|sgd|adafactor)"
    r"(?:, ([\d,]{1,21}) trained)?$"
)
LAUNCH_ADDS = "# mgpu launch adds:"
# A config without main_process_ip, main_process_port and machine_rank, because the engine sets them.
_FOR_ENGINE = rf"^# For ({'|'.join(TITLES.values())}): "
# The engine's job runs its ranks on the CPU. A key for this would change what accelerate does.
CPU_JOB = "# No NVIDIA GPU: the job sets ACCELERATE_USE_CPU=true, and the ranks run on the CPU."
# Of a config for one of several machines with different numbers of ranks: accelerate has no key for that.
_RANKS_OF_MACHINES = r"^# ranks on each machine: (\d{1,4}(?: \d{1,4})*)$"
# Replaces LAUNCH_ADDS if the engine's job sets the same with environment variables.
_JOB_SETS = "# The job written with it sets:"
_THREADS, _PINNING = "--num_cpu_threads_per_process", "--enable_cpu_affinity"


def ranks_of_machines(numbers: Sequence[int]) -> str:
    """Return the comment with the number of ranks on each machine, in the order of their ranks."""
    return f"# ranks on each machine: {' '.join(map(str, numbers))}"


def for_engine(name: str) -> str:
    """Return the comment that marks a config as written for this engine."""
    one = FORMATS[name]
    return f"# For {one.title}: {one.starter} sets rank, main address and port on each node."


def job_sets(flags: tuple[str, ...]) -> str:
    """Return the comment with the variables that the engine's job sets instead of the launcher's flags."""
    threads = [f"OMP_NUM_THREADS={flags[flags.index(_THREADS) + 1]}"] if _THREADS in flags else []
    pinning = [f"{name}={value}" for name, value in pinning_variables(flags).items()]
    return " ".join([_JOB_SETS, *threads, *pinning])


def pinning_variables(flags: tuple[str, ...]) -> dict[str, str]:
    """Return the variables that bind ranks to CPUs near their GPUs, without a launcher flag."""
    return {"ACCELERATE_CPU_AFFINITY": "1"} if _PINNING in flags else {}


def seal(values: Mapping[str, Any], flags: tuple[str, ...] = ()) -> str:
    """Return the comment from which mgpu can later detect changes to the values it wrote."""
    return f"# sealed {digest(values, flags)[:12]}"


def read(path: Path, base: Path | None = None) -> Config:
    """Return a file as Config, without the loader's verdict. Raises MgpuError if it cannot be read.

    Also for a DeepSpeed file, which is not an accelerate config.
    """
    raw = contents(path)
    deepspeed_json.refuse(raw, path)
    return parse_config(raw, str(path), base)


def contents(path: Path) -> bytes:
    """Return the bytes of a config file. Raises MgpuError if it cannot be read."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise MgpuError(f"{path} is not an accelerate config: it is larger than 1 MiB", USAGE) from None
        words = error.strerror or reason(error)
        raise MgpuError(f"cannot read the config {path}: {words}{_file_hint(path, error)}", USAGE) from None


def _file_hint(path: Path, error: OSError) -> str:
    """Return a hint for a file that does not exist: a similar name, or the files in a folder."""
    import difflib

    folder = path if error.errno == errno.EISDIR else path.parent
    try:
        names = sorted(p.name for p in itertools.islice(folder.iterdir(), _MOST_NAMES) if p.suffix in SUFFIXES)
    except (OSError, ValueError):
        return ""
    if folder is path:
        return f". It contains {', '.join(str(path / name) for name in names[:3])}" if names else ""
    near = difflib.get_close_matches(path.name, names, n=1) if isinstance(error, FileNotFoundError) else ()
    return f". Did you mean {visible(path.with_name(near[0]))}?" if near else ""


def parse_config(raw: bytes, name: str, base: Path | None = None) -> Config:
    """Return a Config parsed from the bytes of a file with this name; `base`: where the launch is started."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Config(name, None, {}, {}, (_not_utf8(raw, error),))
    json_only = name.endswith(".json")
    begins = raw.startswith(codecs.BOM_UTF8)
    values, marks, scalars, faults = (
        unreadable("not JSON: the file starts with a byte order mark", Mark(1, 1), "bom")
        if json_only and begins
        else parse(text, json_only=json_only)
    )
    if begins and not json_only:
        faults = (ConfigFault("the file starts with a byte order mark", Mark(1, 1), kind="bom"), *faults)
    batch = re.search(r"^# batch per (?:GPU|rank) (\d{1,9}) x [^\n]*?(?:accumulate (\d{1,9}) )?=", text, re.MULTILINE)
    dataset = re.search(r"^# dataset ([\d,]{1,20}) samples", text, re.MULTILINE)
    flags = launch_flags(text)
    return Config(
        path=name,
        sha256=digest(values, flags) if values else None,
        values=values,
        marks=marks,
        faults=faults,
        written_by_mgpu=text.startswith(WRITTEN_BY) and bool(values) and seal(values, flags) in text.splitlines(),
        batch_per_gpu=int(batch.group(1)) if batch else None,
        accumulate=int(batch.group(2) or 1) if batch else None,
        dataset_size=int(dataset.group(1).replace(",", "") or 0) or None if dataset else None,
        scalars=scalars,
        deepspeed_file=_deepspeed_file(values, name, base),
        model=_model(text),
        launch_flags=flags,
        engine=_engine(text),
        cpu_job=CPU_JOB in text.splitlines(),
        ranks_of_machines=_each_machine(text, values.get("num_machines")),
    )


def _each_machine(text: str, machines: Any) -> tuple[int, ...]:
    """Return the ranks on each machine from the comment; empty without one, or if it is not for so many machines."""
    found = re.search(_RANKS_OF_MACHINES, text, re.MULTILINE)
    numbers = tuple(map(int, found[1].split())) if found else ()
    return numbers if len(numbers) == machines and all(numbers) else ()


def _engine(text: str) -> str:
    """Return the engine from the comment `# For Slurm: ...`; "" without one."""
    found = re.search(_FOR_ENGINE, text, re.MULTILINE)
    return next(name for name, title in TITLES.items() if title == found[1]) if found else ""


def _model(text: str) -> Model | None:
    """Return the model from the comment `# model 8.03B: 8,030,000,000 parameters, full, adamw`."""
    found = re.search(_MODEL, text, re.MULTILINE)
    if found is None:
        return None
    params, trainable = (int((number or "0").replace(",", "")) for number in found.group(1, 4))
    if not params or trainable > params:
        return None
    return Model(params, found.group(2), found.group(3), trainable or None)


def _not_utf8(raw: bytes, error: UnicodeDecodeError) -> ConfigFault:
    """Return a fault with the invalid byte, or with the file's encoding if its start shows it."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or raw[1:2] == b"\0":
        return ConfigFault("not UTF-8: the file is UTF-16", Mark(1, 1), fatal=True, kind="utf16")
    start = raw.rfind(b"\n", 0, error.start) + 1
    mark = Mark(raw.count(b"\n", 0, error.start) + 1, error.start - start + 1)
    return ConfigFault(f"not UTF-8: byte 0x{raw[error.start]:02x}", mark, fatal=True, kind="encoding")


def digest(values: Mapping[str, Any], flags: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of parsed values and launcher flags; comments, order and quoting do not matter."""
    whole = [values, flags] if flags else values
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def launch_flags(text: str) -> tuple[str, ...]:
    """Return the flags from the comment `# mgpu launch adds: …` or `# The job written with it sets: …`.

    Ignores flags that mgpu does not write, because a comment in a foreign file must not control the launcher.
    """
    found = re.search(rf"^(?:{re.escape(LAUNCH_ADDS)}|{re.escape(_JOB_SETS)}) (.*)$", text, re.MULTILINE)
    comment = found.group(1) if found else ""
    words = comment.replace("OMP_NUM_THREADS=", f"{_THREADS} ").replace("ACCELERATE_CPU_AFFINITY=1", _PINNING).split()
    flags: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == _PINNING:
            flags.append(word)
        elif word == _THREADS and re.fullmatch(r"[1-9][0-9]{0,3}", following):
            flags += [word, following]
    return tuple(flags)


def _deepspeed_file(values: Mapping[str, Any], config: str, base: Path | None) -> DeepSpeedFile | None:
    """Return the DeepSpeed file that a config names, relative to where the launch is started, as in accelerate.

    `base`: that folder; None: not known, probably the current one.
    """
    section = values.get("deepspeed_config")
    name = section.get("deepspeed_config_file") if isinstance(section, dict) else None
    if not isinstance(name, str) or name in ("", "none"):
        return None
    start = _start(name, config) if base is None else None
    there = start is None
    try:
        found = json_of(file_reading.read((base or Path(start or "")) / name, most=LARGEST_BYTES))
    except FileNotFoundError:
        return _missing_file(name, config, base or Path())
    except OSError as error:
        return DeepSpeedFile(name, there, fault=error.strerror or reason(error), start=start)
    except Malformed as error:
        where = f" (line {error.line}, column {error.column})" if error.line else ""
        return DeepSpeedFile(name, there, fault=f"{error}{where}", start=start)
    if not isinstance(found, dict):
        return DeepSpeedFile(name, there, fault="not a JSON object", start=start)
    return DeepSpeedFile(name, there, found, start=start)


def _start(name: str, config: str) -> str | None:
    """Return the folder above the config that has a DeepSpeed file at this path, if the current folder does not."""
    if os.path.isabs(name) or os.path.lexists(name):
        return None
    folders = Path(config).parents[:_MOST_FOLDERS]
    return next((str(folder) for folder in folders if os.path.isfile(folder / name)), None)


def _missing_file(name: str, config: str, base: Path) -> DeepSpeedFile:
    """Return a DeepSpeed file that does not exist here, with one of the same name and last folders, if there is one."""
    parts = Path(name).parts
    places = [base.joinpath(*parts[start:]) for start in range(1, len(parts))]
    found = (str(one) for one in (*places, Path(config).parent / parts[-1]) if os.path.isfile(one))
    elsewhere = os.path.isabs(name) and not os.path.isdir(os.path.join(*parts[: min(3, len(parts) - 1)]))
    return DeepSpeedFile(name, exists=False, elsewhere=elsewhere, similar=next(found, None))


DEFAULT_CONFIG = "accelerate.yaml"
