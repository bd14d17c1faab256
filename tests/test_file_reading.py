"""Every command on files that are not what it expects: one clear message, soon, in little memory, never a traceback."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from mgpu.snapshot import Snapshot, to_json
from tests import hostile_files
from tests.checks.facts import facts
from tests.conftest import ROOT, Forked, Forks, environment

ALL = os.environ.get("MGPU_HOSTILE") == "all"  # every reader with every file: some minutes
MOST_MEMORY = 400 << 10  # KiB, the interpreter and the imports of all commands included
MOST_SECONDS = 15.0  # of the CPU, for one file
MOST_SAID = 20_000  # characters on stdout and stderr: texts of files are clipped
CONFIG = "distributed_type: MULTI_CPU\nuse_cpu: true\nnum_machines: 1\nnum_processes: 2\n"


Mgpu = Callable[..., Forked]


@pytest.fixture
def mgpu(forks: Forks, tmp_path: Path) -> Mgpu:
    """Run a command line in a fork with limits, in tmp_path."""
    home = tmp_path / "home"
    home.mkdir()

    def run(*argv: str, variables: Mapping[str, str] | None = None, stdin: str | None = os.devnull) -> Forked:
        env = environment(home, variables)
        return forks.run(argv, cwd=tmp_path, env=env, stdin=stdin, limited=True)

    return run


def calm(done: Forked, codes: Sequence[int] = (2,)) -> None:
    """Soon, in little memory, with one of these codes and few words."""
    said = done.stdout + done.stderr
    for word in ("Traceback (most", "a bug in mgpu", "crashed", "Exception ignored", "RecursionError", "MemoryError",
                 "sys.set_int_max_str_digits"):  # fmt: skip
        assert word not in said, said[:3000]
    assert done.code in codes, (done.code, said[:3000])
    assert done.seconds < MOST_SECONDS
    assert done.memory < MOST_MEMORY, f"{done.memory >> 10} MiB"
    assert len(said) < MOST_SAID, said[:3000]
    assert max(map(len, said.split("\n"))) < 5000, said[:3000]


# ---- who opens files

KERNEL = "a file of the kernel: /proc, /sys or a control group"
ALLOWED = {
    "file_reading.read_own": "the reader itself",
    "file_reading.open_part": "the reader itself",
    "file_reading.open_checked": "the reader itself",
    "engine.__init__.is_our_source_tree": "mgpu's own pyproject.toml",
    "engine.plugins._has_group": "metadata of installed packages, as importlib.metadata reads it",
    "engine.catalogue.main": "mgpu's own README.md, whose counts it writes",
    "cli.completion.script": "mgpu's own, of its package",
    "one_file.build._files": "the installed packages and mgpu's own sources, copied",
    "one_file.build.archive": "mgpu's own",
    "config.deepspeed_loader.probe": "a file that mgpu has just written: what it read of a DeepSpeed file",
    "config.loader._open_options": "in the training run's Python: what mgpu and accelerate have just read",
    "launch.exchange_watch._look_for_torch": "/proc",
    "recorder.inject._mgpu_recorder.peak_bytes": "in a rank, which imports nothing else of mgpu: /proc",
    # In a rank that has failed: what its own failed line read. A thread looks, which the rank does not wait for long.
    "recorder.inject._mgpu_read_files._content": "a regular file of a bounded size",
    "recorder.inject._mgpu_read_files._facts": "the start of a regular file",
    "recorder.inject._mgpu_kept_files._copy_content": "in a rank: a regular file that its script is about to change",
    "rehearse.put_back._put_file_back": "the copy of such a file, and this file",
    "launch.run_outcome._names": "/proc",
    "launchers.choice._shell_script": "through readers.training_script.python_source",
    "process.processes.environment": "/proc",
    "launch.report._ends_its_line": "the log that this launch has just written",
    "smoke.ranks.context._queued_s": "/proc",
    "launch.detached._started_run": "a pipe from its own child",
    "recorder.inject._mgpu_rehearsal._text_of": "in a rank, which imports nothing of mgpu: what another rank wrote",
    "smoke.ranks.rank_plan.read": "in a rank, which imports nothing else of mgpu: what the runner wrote for it",
    "smoke.ranks.full_checkpoint.expected_digest": "in a rank: what another rank wrote a moment before",
    **dict.fromkeys(
        (
            "launch.run_outcome._meminfo", "launch.run_outcome.available",
            "launch.run_outcome.__init__", "launch.run_outcome._tightest", "launch.detached.what_ends_it",
            "process.processes.thread_s",
            "process.processes.stat_fields", "process.processes.status_of", "process.processes._children",
            "process.processes.runnable_s", "process.processes.thread_name",
            "process.processes.kernel_wait_of", "process.processes.processes_of_run",
            "process.boot.boot_id", "doctor.repair._in_use", "doctor.repair._compiling",
            "process.leftover_files._nobodys",
            "process.leftover_files.killed_for_memory", "process.leftover_files._mapped_files",
            "process.leftover_files._counters",
            "smoke.ranks.addresses._address_of", "smoke.ranks.identity._numa_node",
        ),
        KERNEL,
    ),
}  # fmt: skip
OPENING = frozenset({"read_text", "read_bytes"})


def opens(call: ast.Call) -> bool:
    """Whether a call opens a file for reading other than through mgpu.file_reading."""
    function = call.func
    if getattr(function, "id", getattr(function, "attr", "")) not in ("open", "load", *OPENING):
        return False
    words = [ast.unparse(one) for one in [*call.args, *(k.value for k in call.keywords)]]
    if isinstance(function, ast.Name):
        writes = any(word.strip("'\"")[:1] in ("w", "a", "x") and len(word) <= 5 for word in words[1:])
        checked = words[0].startswith(("file_reading.", "open_checked", "handle", "os.devnull")) if words else False
        return function.id == "open" and not writes and not checked
    if not isinstance(function, ast.Attribute):
        return False
    of = ast.unparse(function.value)
    if function.attr in OPENING:
        return True
    if function.attr == "open" and of in ("gzip", "bz2", "lzma", "io", "codecs", "tarfile", "zipfile"):
        return True
    if function.attr == "open" and of == "os":
        flags = " ".join(words)
        return not any(flag in flags for flag in ("O_WRONLY", "O_RDWR", "O_DIRECTORY", "devnull", "_FLAGS", "flags"))
    if function.attr == "open":
        return not any(word in ("'w'", "'wb'", "'a'", "'ab'", "'x'") for word in words)
    return function.attr == "load" and of in ("json", "tomllib", "yaml", "pickle") and words[:1] != ["sys.stdin"]


def opened_otherwise() -> dict[str, list[str]]:
    """Module and function -> its calls that open a file. The probes are left out: they run alone in children, have
    their own small reader, and read /proc and /sys."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "mgpu").rglob("*.py")):
        if path.parent.name == "probes" and path.stem not in ("script", "job_script"):
            continue
        module = ".".join(path.relative_to(ROOT / "mgpu").with_suffix("").parts)
        tree = ast.parse(path.read_text("utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and opens(call):
                around = [f.name for f in functions if f.lineno <= call.lineno <= (f.end_lineno or 0)]
                found.setdefault(f"{module}.{around[-1] if around else ''}", []).append(ast.unparse(call)[:80])
    return found


def test_no_function_opens_a_file_in_another_way() -> None:
    found = opened_otherwise()
    assert {name: calls for name, calls in found.items() if name not in ALLOWED} == {}
    assert ALLOWED.keys() - found.keys() == set(), "these open nothing any more"


@pytest.mark.parametrize(
    "code",
    ["open('a')", "open(p, 'rb')", "p.open()", "p.open('rb')", "p.read_text('utf-8')", "p.read_bytes()", "gzip.open(p)",
     "os.open(p, os.O_RDONLY)", "json.load(file)", "yaml.load(file)"],
)  # fmt: skip
def test_that_every_way_is_seen(code: str) -> None:
    (call,) = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    assert opens(call)


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
        ("configure", "-o", "{}", "--target", "2xA100-80GB", "--yes", "--offline"),
        "b.yaml",
        hostile_files.YAML,
        (1, 2, 5),
    ),
    "smoke-test -c": Reader(("smoke-test", "-c", "{}"), "a.yaml", {}),
    "smoke-test --show": Reader(("smoke-test", "--show", "--log-dir", "r"), "r/smoke.json", hostile_files.JSON),
    "smoke-test --baseline": Reader(("smoke-test", "--cpu", "2", "--baseline", "{}", "--level", "quick"), "b.json", {}),
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


def pairs_of_types() -> Iterator[tuple[str, str]]:
    """Every reader with one type, which differs from reader to reader; with all under MGPU_HOSTILE=all."""
    kinds = list(hostile_files.TYPES)
    for number, name in enumerate(READERS):
        chosen = kinds if ALL else [kinds[number % len(kinds)]]
        yield from ((name, kind) for kind in chosen)


def pairs_of_texts() -> Iterator[tuple[str, str]]:
    """Every text with one of the readers of its format, and every reader with one text; with all under
    MGPU_HOSTILE=all."""
    for name, reader in READERS.items():
        same = [other for other, one in READERS.items() if one.texts is reader.texts]
        for number, text in enumerate(reader.texts):
            if ALL or number % len(same) == same.index(name):
                yield name, text


@pytest.mark.parametrize(("name", "kind"), list(pairs_of_types()))
def test_what_is_no_regular_file_or_has_no_end(name: str, kind: str, mgpu: Mgpu, tmp_path: Path) -> None:
    reader = READERS[name]
    place, argv = arranged(reader, tmp_path)
    hostile_files.TYPES[kind](place)
    calm(mgpu(*argv), reader.codes)


@pytest.mark.parametrize(("name", "text"), list(pairs_of_texts()))
def test_what_is_too_deep_too_long_or_too_many(name: str, text: str, mgpu: Mgpu, tmp_path: Path) -> None:
    reader = READERS[name]
    place, argv = arranged(reader, tmp_path)
    place.write_text(reader.texts[text], "utf-8", "surrogatepass")
    calm(mgpu(*argv), reader.codes_of_texts)


def test_a_packed_log_that_unpacks_to_gigabytes(mgpu: Mgpu, tmp_path: Path) -> None:
    hostile_files.bomb(tmp_path / "run.log.gz", b"epoch 1 loss 0.5\n")
    done = mgpu("doctor", "--log", "run.log.gz")
    calm(done)
    assert "run.log.gz decompresses to more than 128 MiB" in done.stderr
    assert "zcat run.log.gz | tail -c 100M | mgpu doctor --log -" in done.stderr


def test_a_log_that_packs_well_is_read_whole(mgpu: Mgpu, tmp_path: Path) -> None:
    hostile_files.bomb(tmp_path / "run.log.gz", b"epoch 1 loss 0.5\n", 64 << 20)
    calm(mgpu("doctor", "--log", "run.log.gz"), (3,))


SAFETENSORS = {
    "400,000 extents": {"a": {"dtype": "F32", "shape": [1] * 400_000, "data_offsets": [0, 4]}},
    "an extent of 4,000 digits": '{"a": {"dtype": "F32", "shape": [1' + "0" * 4000 + '], "data_offsets": [0, 4]}}',
    "an extent of 300 digits": '{"a": {"dtype": "F32", "shape": [1' + "0" * 299 + '], "data_offsets": [0, 4]}}',
    "a product of 4,000 digits": {"a": {"dtype": "F32", "shape": [10**18] * 60, "data_offsets": [0, 4]}},
    "no whole number": {"a": {"dtype": "F32", "shape": [1e30, True, "10"], "data_offsets": [0, 4]}},
    "a negative one": {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
    "infinite": '{"a": {"dtype": "F32", "shape": [Infinity, NaN, 1e999], "data_offsets": [0, 4]}}',
    "a list": "[]",
    "deep": "[" * 100_000,
    "a name of 50,000 characters": {hostile_files.LONG: {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}},
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_a_header_of_weights(name: str, mgpu: Mgpu, tmp_path: Path) -> None:
    header = SAFETENSORS[name]
    raw = (header if isinstance(header, str) else json.dumps(header)).encode()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"1234")
    done = mgpu("configure", "--model", "model", *ON)
    calm(done)
    assert "--params 8.03B" in done.stderr


def test_stdin_that_is_closed_or_has_no_end(mgpu: Mgpu) -> None:
    for argv in (("configure", "--validate", "-", "--no-loader"), ("configure", "--answers", "-", *ON)):
        calm(mgpu(*argv, stdin=None))
        calm(mgpu(*argv, stdin="/dev/zero"))
    calm(mgpu("doctor", "--log", "-", stdin=None))
    calm(mgpu("doctor", "--log", "-", stdin="/dev/zero"))


def test_long_names_and_identifiers_in_a_saved_machine(mgpu: Mgpu, tmp_path: Path) -> None:
    """A UUID of more digits than a hash has, an index of 30 digits, a name of 50,000 characters."""
    for uuid in ("GPU-" + "a" * 80, "a" * 64 + "-" + "b" * 64, "MIG-" + "0" * 4000, "GPU-" + "1234abcd-" * 40):
        machine = json.loads(PLAIN["plain.json"])
        machine["gpus"][0]["uuid"] = uuid
        (tmp_path / "m.json").write_text(json.dumps(machine))
        calm(mgpu("doctor", "--from", "m.json", "--save", "n.json"), (0, 1))
        calm(mgpu("doctor", "--from", "n.json", "--compare", "m.json"), (0, 1))
    for wrong in ({"name": hostile_files.LONG}, {"index": 10**30}, {"index": -(10**30)}):
        changed = [machine["gpus"][0] | wrong, *machine["gpus"][1:]]
        (tmp_path / "m.json").write_text(json.dumps(machine | {"gpus": changed}))
        calm(mgpu("doctor", "--from", "m.json"))


def test_environment_files_of_other_types(mgpu: Mgpu, tmp_path: Path) -> None:
    """The files that NCCL's variables name, and accelerate's default config, may be links to anything."""
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "default_config.yaml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/zero", str(tmp_path / "pipe")):
        variables = {"NCCL_CONF_FILE": name, "NCCL_TOPO_FILE": name, "HF_HOME": str(tmp_path)}
        done = mgpu("doctor", "--quick", "--json", variables=variables)
        assert done.code in (0, 1, 4), done.stderr
        assert done.memory < MOST_MEMORY
        gaps = json.loads(done.stdout)["gaps"]
        assert not [gap for gap in gaps.values() if gap["kind"] in ("timed_out", "crashed")], gaps


def test_accelerate_does_not_read_what_mgpu_has_refused(mgpu: Mgpu, tmp_path: Path) -> None:
    """Its loader would read a DeepSpeed file that is a link to /dev/zero until the memory is full."""
    (tmp_path / "ds.json").symlink_to("/dev/zero")
    (tmp_path / "a.yaml").write_text(PLAIN["deepspeed.yaml"])
    done = mgpu("configure", "--validate", "a.yaml")
    calm(done, (1,))
    assert "ds.json cannot be read: it is a device" in done.stdout
