"""Every command on files that are not what it expects: one clear message, soon, in little memory, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mgpu.snapshot import Snapshot, to_json
from tests import hostile_files
from tests.checks.facts import facts
from tests.conftest import ROOT, environment

MOST_MEMORY = 400 << 10  # KiB, the interpreter and the imports of all commands included
MOST_SECONDS = 15.0  # of the CPU, for one file
MOST_SAID = 20_000  # characters on stdout and stderr: texts of files are clipped
CONFIG = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nuse_cpu: true\nnum_machines: 1\nnum_processes: 2\n"


@dataclass(frozen=True)
class Done:
    """How a command line ended."""

    code: int | str
    stdout: str
    stderr: str
    seconds: float
    memory: int


Mgpu = Callable[..., Done]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """One interpreter with mgpu imported, which forks for every command line."""
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, str(ROOT / "tests" / "scripts" / "reads_files.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(home), cwd=home
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def mgpu(server: subprocess.Popen[str], tmp_path: Path) -> Mgpu:
    """Run a command line in a fork with limits, in tmp_path."""

    def run(*argv: str, variables: Mapping[str, str] | None = None, stdin: str | None = os.devnull) -> Done:
        said = tmp_path / ".stdout", tmp_path / ".stderr"
        order = {"argv": argv, "folder": str(tmp_path), "variables": dict(variables or {}), "stdin": stdin,
                 "stdout": str(said[0]), "stderr": str(said[1])}  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        ended: dict[str, Any] = json.loads(server.stdout.readline())
        texts = [path.read_text("utf-8", "replace") for path in said]
        return Done(ended["code"], *texts, ended["seconds"], ended["memory"])

    return run


def calm(done: Done, codes: Sequence[int] = (2,)) -> None:
    """Soon, in little memory, with one of these codes and few words."""
    said = done.stdout + done.stderr
    for word in ("Traceback (most", "a bug in mgpu", "crashed", "Exception ignored", "RecursionError", "MemoryError",
                 "sys.set_int_max_str_digits"):  # fmt: skip
        assert word not in said, said[:3000]
    assert done.code in codes, (done.code, said[:3000])
    assert done.seconds < MOST_SECONDS
    assert done.memory < MOST_MEMORY, f"{done.memory >> 10} MiB"
    assert len(said) < MOST_SAID, said[:3000]
    assert max(map(len, said.split("\n"))) < 2000, said[:3000]


class Reader(NamedTuple):
    """A command line that reads a file: `{}` is its name."""

    argv: tuple[str, ...]
    name: str  # that the file must have
    texts: Mapping[str, str]
    codes: tuple[int, ...] = (2,)  # for a file that is none
    codes_of_texts: tuple[int, ...] = (0, 1, 2, 3, 5)


ON = ("--target", "2xA100-80GB", "--yes", "--dry-run", "--offline")
READERS: dict[str, Reader] = {
    "doctor --script": Reader(("doctor", "--script", "{}"), "train.py", hostile_files.PYTHON),
    "doctor --script job": Reader(("doctor", "--script", "{}"), "job.sbatch", hostile_files.SHELL),
    "doctor --log": Reader(("doctor", "--log", "{}"), "run.log", hostile_files.LOG),
    "doctor --log .gz": Reader(("doctor", "--log", "{}"), "run.log.gz", {"no gzip": "abc"}),
    "doctor --config": Reader(
        ("doctor", "--script", "plain.py", "--config", "{}"), "a.yaml", hostile_files.YAML
    ),
    "doctor --config json": Reader(
        ("doctor", "--script", "plain.py", "--config", "{}"), "a.json", hostile_files.JSON
    ),
    "deepspeed": Reader(
        ("doctor", "--script", "plain.py", "--config", "deepspeed.yaml"), "ds.json", hostile_files.JSON, (0, 1)
    ),
    "doctor --from": Reader(("doctor", "--from", "{}"), "m.json", hostile_files.JSON),
    "doctor --compare": Reader(("doctor", "--from", "plain.json", "--compare", "{}"), "m.json", hostile_files.JSON),
    "doctor --compare-nodes": Reader(
        ("doctor", "--compare-nodes", "nodes", "--compare-nodes", "{}"), "m.json", hostile_files.JSON, (0, 1, 2, 3)
    ),
    "doctor --compare-nodes preflight": Reader(
        ("doctor", "--compare-nodes", "nodes"), "nodes/preflight.json", hostile_files.JSON, (0, 1, 2, 3)
    ),
    "configure --validate": Reader(
        ("configure", "--validate", "{}", "--no-loader"), "a.yaml", hostile_files.YAML, (2,)
    ),
    "configure --validate --fix": Reader(
        ("configure", "--validate", "{}", "--no-loader", "--fix"), "a.yaml", hostile_files.YAML, (2,)
    ),
    "configure --show-origin": Reader(
        ("configure", "--show-origin", "{}"), "a.yaml", hostile_files.YAML, (2,)
    ),
    "configure --edit": Reader(("configure", "--edit", "{}", *ON), "a.yaml", hostile_files.YAML),
    "configure --answers toml": Reader(("configure", "--answers", "{}", *ON), "a.toml", hostile_files.TOML),
    "configure --answers yaml": Reader(("configure", "--answers", "{}", *ON), "a.yaml", hostile_files.YAML),
    "configure --answers json": Reader(("configure", "--answers", "{}", *ON), "a.json", hostile_files.JSON),
    "configure --from": Reader(("configure", "--from", "{}", "--yes", "--dry-run"), "m.json", hostile_files.JSON),
    "configure --model config": Reader(
        ("configure", "--model", "model", *ON), "model/config.json", hostile_files.JSON
    ),
    "configure --model index": Reader(
        ("configure", "--model", "model", *ON), "model/model.safetensors.index.json", hostile_files.JSON
    ),
    "configure --model weights": Reader(
        ("configure", "--model", "model", *ON), "model/model.safetensors", {"no header": "abc"}
    ),
    "configure over a file": Reader(
        ("configure", "-o", "{}", "--target", "2xA100-80GB", "--yes", "--diff", "--offline"), "b.yaml",
        hostile_files.YAML, (1, 2, 5)
    ),
    "smoke-test -c": Reader(("smoke-test", "-c", "{}"), "a.yaml", {}),
    "smoke-test --show": Reader(("smoke-test", "--show", "--log-dir", "r"), "r/smoke.json", hostile_files.JSON),
    "smoke-test --baseline": Reader(
        ("smoke-test", "-c", "plain.yaml", "--baseline", "{}", "--level", "quick"), "b.json", {}
    ),
    "launch -c": Reader(("launch", "-c", "{}", "--yes", "plain.py"), "a.yaml", {}, (2, 125)),
    "launch -c json": Reader(("launch", "-c", "{}", "--yes", "plain.py"), "a.json",
        {name: hostile_files.JSON[name] for name in ("deep lists", "digits", "long key")}, (2, 125), (2, 125)),
    "mgpu": Reader((), "accelerate.yaml", {"aliases": hostile_files.YAML["aliases"]}, (0,)),
}  # fmt: skip
PLAIN = {
    "plain.py": "import torch\nprint(1)\n",
    "plain.yaml": CONFIG,
    "plain.json": json.dumps(to_json(Snapshot(**facts()))),
    "deepspeed.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n",
}


def arranged(reader: Reader, folder: Path) -> tuple[Path, list[str]]:
    """The other files of a command line, the place of the file itself, and the words."""
    for name, text in PLAIN.items():
        (folder / name).write_text(text)
    place = folder / reader.name
    place.parent.mkdir(exist_ok=True)
    if "nodes" in reader.argv:
        (folder / "nodes").mkdir(exist_ok=True)
        for name in ("n1.json", "n2.json"):
            (folder / "nodes" / name).write_text(PLAIN["plain.json"])
    return place, [word.replace("{}", reader.name) for word in reader.argv]


@pytest.mark.parametrize("kind", hostile_files.TYPES)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_or_has_no_end(name: str, kind: str, mgpu: Mgpu, tmp_path: Path) -> None:
    reader = READERS[name]
    place, argv = arranged(reader, tmp_path)
    hostile_files.TYPES[kind](place)
    calm(mgpu(*argv), reader.codes)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, reader in READERS.items() for text in reader.texts])
def test_what_is_too_deep_too_long_or_too_many(name: str, text: str, mgpu: Mgpu, tmp_path: Path) -> None:
    reader = READERS[name]
    place, argv = arranged(reader, tmp_path)
    place.write_text(reader.texts[text], "utf-8", "surrogatepass")
    calm(mgpu(*argv), reader.codes_of_texts)
