"""What does a config file say: its values, mgpu's own comments in it, the DeepSpeed file it names?

A file that cannot be made sense of becomes faults, never an exception.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.config.parsing import parse, unreadable
from mgpu.errors import USAGE, MgpuError, reason
from mgpu.job_formats import FORMATS, TITLES
from mgpu.snapshot import Config, ConfigFault, DeepSpeedFile, Mark, Model
from mgpu.structured_text import Malformed, json_of
from mgpu.text import visible

# fmt: off
__all__ = [
    "CPU_JOB", "LAUNCH_ADDS", "WRITTEN_BY", "digest", "for_engine", "job_sets", "launch_flags", "parse",
    "pinned", "read", "seal", "understand",
]
# fmt: on

LARGEST_BYTES = 1 << 20  # an accelerate config has a few dozen lines; a megabyte is some other file
SUFFIXES = (".yaml", ".yml", ".json")
_MOST_NAMES = 10_000  # of a folder that are looked at for the nearest
WRITTEN_BY = "# Written by mgpu"
_MODEL = (
    r"^# model \S{1,20}: ([\d,]{1,21}) parameters, (full|lora|qlora), (adamw|adam8bit|sgd|adafactor)"
    r"(?:, ([\d,]{1,21}) trained)?$"
)
LAUNCH_ADDS = "# mgpu launch adds:"
# A config without main_process_ip, main_process_port and machine_rank, because whoever starts it says them.
_FOR_ENGINE = rf"^# For ({'|'.join(TITLES.values())}): "
# The ranks of the engine's job run on the CPU: no key of the file says that without changing what accelerate does.
CPU_JOB = "# No NVIDIA GPU: the job sets ACCELERATE_USE_CPU=true, and the ranks run on the CPU."
# In place of LAUNCH_ADDS, where the job of an engine does the same by its environment.
_JOB_SETS = "# The job written with it sets:"
_THREADS, _PINNING = "--num_cpu_threads_per_process", "--enable_cpu_affinity"


def for_engine(name: str) -> str:
    """The comment that makes a config one for this engine."""
    one = FORMATS[name]
    return f"# For {one.title}: {one.starter} gives each machine its rank, the address of the first, and the port."


def job_sets(flags: tuple[str, ...]) -> str:
    """The comment that tells which variables the job of an engine has in place of the launcher's flags."""
    threads = [f"OMP_NUM_THREADS={flags[flags.index(_THREADS) + 1]}"] if _THREADS in flags else []
    pinning = [f"{name}={value}" for name, value in pinned(flags).items()]
    return " ".join([_JOB_SETS, *threads, *pinning])


def pinned(flags: tuple[str, ...]) -> dict[str, str]:
    """What tells the ranks to stay near their GPUs where no launcher's flag does."""
    return {"ACCELERATE_CPU_AFFINITY": "1"} if _PINNING in flags else {}


def seal(values: Mapping[str, Any], flags: tuple[str, ...] = ()) -> str:
    """The comment by which mgpu knows later that nobody has changed the values it wrote."""
    return f"# sealed {digest(values, flags)[:12]}"


def read(path: Path) -> Config:
    """The file as a Config without the loader's verdict. Raises MgpuError when there is nothing to read."""
    return understand(contents(path), str(path))


def contents(path: Path) -> bytes:
    """The bytes of a config file. Raises MgpuError."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise MgpuError(f"{path} is not an accelerate config: it is larger than 1 MiB", USAGE) from None
        words = error.strerror or reason(error)
        raise MgpuError(f"cannot read the config {path}: {words}{_instead(path, error)}", USAGE) from None


def _instead(path: Path, error: OSError) -> str:
    """What a message adds that a file is not there: the nearest name, or what a folder holds."""
    import difflib

    folder = path if error.errno == errno.EISDIR else path.parent
    try:
        names = sorted(p.name for p in itertools.islice(folder.iterdir(), _MOST_NAMES) if p.suffix in SUFFIXES)
    except (OSError, ValueError):
        return ""
    if folder is path:
        return f". It holds {', '.join(str(path / name) for name in names[:3])}" if names else ""
    near = difflib.get_close_matches(path.name, names, n=1) if isinstance(error, FileNotFoundError) else ()
    return f". Did you mean {visible(path.with_name(near[0]))}?" if near else ""


def understand(raw: bytes, name: str) -> Config:
    """The bytes of a file of this name as a Config."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Config(name, None, {}, {}, (_not_utf8(raw, error),))
    json_only = name.endswith(".json")
    begins = raw.startswith(codecs.BOM_UTF8)
    values, marks, scalars, faults = (
        unreadable("not JSON: the file begins with a byte order mark", Mark(1, 1), "bom")
        if json_only and begins
        else parse(text, json_only=json_only)
    )
    if begins and not json_only:
        faults = (ConfigFault("the file begins with a byte order mark", Mark(1, 1), kind="bom"), *faults)
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
        deepspeed_file=_deepspeed_file(values),
        model=_model(text),
        launch_flags=flags,
        engine=_engine(text),
        cpu_job=CPU_JOB in text.splitlines(),
    )


def _engine(text: str) -> str:
    """What the comment `# For Slurm: ...` says; "" without one."""
    found = re.search(_FOR_ENGINE, text, re.MULTILINE)
    return next(name for name, title in TITLES.items() if title == found[1]) if found else ""


def _model(text: str) -> Model | None:
    """What the comment `# model 8.03B: 8,030,000,000 parameters, full, adamw` says."""
    found = re.search(_MODEL, text, re.MULTILINE)
    if found is None:
        return None
    params, trainable = (int((number or "0").replace(",", "")) for number in found.group(1, 4))
    if not params or trainable > params:
        return None
    return Model(params, found.group(2), found.group(3), trainable or None)


def _not_utf8(raw: bytes, error: UnicodeDecodeError) -> ConfigFault:
    """Which byte, and what the file is instead where its beginning tells."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or raw[1:2] == b"\0":
        return ConfigFault("not UTF-8: the file is UTF-16", Mark(1, 1), fatal=True, kind="utf16")
    start = raw.rfind(b"\n", 0, error.start) + 1
    mark = Mark(raw.count(b"\n", 0, error.start) + 1, error.start - start + 1)
    return ConfigFault(f"not UTF-8: byte 0x{raw[error.start]:02x}", mark, fatal=True, kind="encoding")


def digest(values: Mapping[str, Any], flags: tuple[str, ...] = ()) -> str:
    """SHA-256 of the parsed values and the launcher's flags, so that comments, order and quoting do not count."""
    whole = [values, flags] if flags else values
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def launch_flags(text: str) -> tuple[str, ...]:
    """What the comment `# mgpu launch adds: …` asks for, or `# The job written with it sets: …` in its place. Flags
    that are not ours count for nothing: a comment in a file from somewhere must not steer the launcher."""
    found = re.search(rf"^(?:{re.escape(LAUNCH_ADDS)}|{re.escape(_JOB_SETS)}) (.*)$", text, re.MULTILINE)
    told = found.group(1) if found else ""
    words = told.replace("OMP_NUM_THREADS=", f"{_THREADS} ").replace("ACCELERATE_CPU_AFFINITY=1", _PINNING).split()
    flags: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == _PINNING:
            flags.append(word)
        elif word == _THREADS and re.fullmatch(r"[1-9][0-9]{0,3}", following):
            flags += [word, following]
    return tuple(flags)


def _deepspeed_file(values: Mapping[str, Any]) -> DeepSpeedFile | None:
    """The DeepSpeed file a config names, looked up from the current folder, as accelerate does."""
    section = values.get("deepspeed_config")
    name = section.get("deepspeed_config_file") if isinstance(section, dict) else None
    if not isinstance(name, str) or name in ("", "none"):
        return None
    path = Path(name)
    try:
        found = json_of(file_reading.read(path, most=LARGEST_BYTES))
    except FileNotFoundError:
        return DeepSpeedFile(name, exists=False)
    except OSError as error:
        return DeepSpeedFile(name, True, fault=error.strerror or reason(error))
    except Malformed as error:
        where = f" (line {error.line}, column {error.column})" if error.line else ""
        return DeepSpeedFile(name, True, fault=f"{error}{where}")
    if not isinstance(found, dict):
        return DeepSpeedFile(name, True, fault="not a JSON object")
    return DeepSpeedFile(name, True, found)


DEFAULT_CONFIG = "accelerate.yaml"
