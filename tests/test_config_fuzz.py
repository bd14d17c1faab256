"""The reader and the checks of configs on thousands of broken files: findings, no exception, and never for long."""

from __future__ import annotations

import os
import random
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.config import reading
from mgpu.engine import selections
from mgpu.report.document import check_json
from mgpu.snapshot import Config, Snapshot
from mgpu.validate import run
from tests.checks.facts import facts

NUMBER = int(os.environ.get("MGPU_FUZZ_FILES", "4000"))
SEED = int(os.environ.get("MGPU_FUZZ_SEED", "20261121"))
LONGEST_S = 5.0  # for one file, on a machine that does other things as well
CHECKS = engine.checks_of(selections.CONFIG)
MACHINES = (Snapshot(**facts()), Snapshot(**facts(gpus=(), links=())), Snapshot())
FOLDER = Path(__file__).with_name("bad_configs")
SEEDS = [path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in (".yaml", ".json") and path.is_file()]
KEYS = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "num_machines",
    "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "dynamo_backend", "fp16",
    "deepspeed_config", "fsdp_config", "parallelism_config", "megatron_lm_config", "mpirun_config", "fp8_config",
    "dynamo_config", "zero_stage", "deepspeed_config_file", "fsdp_version", "fsdp_reshard_after_forward",
    "fsdp_transformer_layer_cls_to_wrap", "fsdp_auto_wrap_policy", "deepspeed_multinode_launcher", "tpu_env",
    "gradient_accumulation_steps", "parallelism_config_tp_size", "megatron_lm_tp_degree", "override_linear_precision",
    "ipex_config", "multi_gpu", "max_restarts", "bf16", "<<", "=", "~", "null", "1", "1.5", "no", "2024-01-01", "", " ",
    "[a, b]", "{a: b}", "\"\\ud800\"", "\U0001f600", "a.b", "fsdp_config.fsdp_version", "...",
)  # fmt: skip
VALUES = (
    "", "~", "null", "true", "no", "NO", "off", "0", "-1", "010", "1:30", "1_000", "0x7fffffffffffffff", "0b1", "2.5",
    ".inf", "-.inf", ".nan", "1e999", "1.0e+999", "9" * 400, "9" * 5000, "0x" + "f" * 5000, "1" + "0" * 100,
    "2024-01-01", "2024-13-45", "2024-01-01T25:00:00Z", "'", '"', "''", "'2'", "[", "]", "{", "}", "[]", "{}",
    "[[[]]]", "[1, [2, {a: b}]]", "{a: {b: {c: 1}}}", "&a", "*a", "&a [*a]", "!!int x", "!!float ''",
    "!!python/object:os.system x", "!!binary x", "!!set {a, b}", "!!omap [a: 1]", "!!timestamp x", "!!null x",
    "!!bool 3", "!!map [a]", "!!seq {a: b}", "!!str 5", "|", ">\n  text", "|9\n x", "MULTI_GPU", "FSDP", "DEEPSPEED",
    "MEGATRON_LM", "multi_gpu", "'NO'", "XLA", "bf16", "0,1", "0-3", "all", "10.0.0.1", "10.0.0.1:29500", "[::1]",
    "${X}", "$(x)", "cpu", "nvme", "auto", "Ada\x00", "x" * 3000, "\u2028", "\u00a0", "\ufeff", "\x85", "%", "@", "`",
    "# c", "a: b", "- a", "? a", ": a", "---", "...", "<<<<<<< HEAD", "\t", "²", "\"\\ud83d\\ude00\"", "\"\\ud800\"",
    "{{ x }}", "{% if x %}", "${{ secrets.X }}", "0777777777777777777777777", "1:1:1:1",
)  # fmt: skip


def mutated(dice: random.Random) -> bytes:
    """A seed with some bytes, lines, keys or values changed."""
    raw = dice.choice(SEEDS) if dice.random() < 0.8 else "\n".join(made_up(dice)).encode("utf-8", "replace")
    for _ in range(dice.randint(1, 4)):
        raw = dice.choice(MUTATIONS)(raw, dice)
    return raw


def made_up(dice: random.Random, depth: int = 0) -> Iterator[str]:
    """Lines of keys that accelerate knows, with values that it may not."""
    for _ in range(dice.randint(1, 8)):
        blanks = " " * (2 * depth)
        if depth < 3 and dice.random() < 0.2:
            yield f"{blanks}{dice.choice(KEYS)}:"
            yield from made_up(dice, depth + 1)
        else:
            yield f"{blanks}{dice.choice(KEYS)}: {dice.choice(VALUES)}"


def flip(raw: bytes, dice: random.Random) -> bytes:
    """A byte."""
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + bytes([dice.randrange(256)]) + raw[at + dice.randint(0, 1) :]


def cut(raw: bytes, dice: random.Random) -> bytes:
    """A piece, out."""
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + raw[at + dice.randint(1, 40) :]


def double(raw: bytes, dice: random.Random) -> bytes:
    """A line, twice."""
    lines = raw.split(b"\n")
    at = dice.randrange(len(lines))
    return b"\n".join([*lines[: at + 1], *lines[at : dice.randint(at, len(lines))]])


def indent(raw: bytes, dice: random.Random) -> bytes:
    """A line, elsewhere."""
    lines = raw.split(b"\n")
    at = dice.randrange(len(lines))
    lines[at] = dice.choice([b" ", b"\t", b"  ", b"- ", b"? ", b"&a ", b"*a ", b"<<: ", b"# ", b"!!x "]) + lines[at]
    return b"\n".join(lines)


def value(raw: bytes, dice: random.Random) -> bytes:
    """A line, with another value."""
    lines = raw.split(b"\n")
    at = dice.randrange(len(lines))
    lines[at] = lines[at].partition(b":")[0] + b": " + dice.choice(VALUES).encode("utf-8", "replace")
    return b"\n".join(lines)


def key(raw: bytes, dice: random.Random) -> bytes:
    """A line, with another key."""
    lines = raw.split(b"\n")
    at = dice.randrange(len(lines))
    lines[at] = dice.choice(KEYS).encode("utf-8", "replace") + b":" + lines[at].partition(b":")[2]
    return b"\n".join(lines)


def insert(raw: bytes, dice: random.Random) -> bytes:
    """Anything, anywhere."""
    at = dice.randrange(len(raw) + 1)
    anything: str = dice.choice([*VALUES, *string.punctuation])
    return raw[:at] + anything.encode("utf-8", "replace") + raw[at:]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, cut, double, indent, value, key, insert)


def judged(config: Config, machine: Snapshot) -> list[engine.Outcome]:
    """Every check of configs, and its answer as the JSON has it."""
    outcomes = engine.run(CHECKS, run.with_config(machine, config))
    for outcome in outcomes:
        assert outcome.status != "crash", outcome.answer
        if outcome.problem:
            check_json(outcome)
            outcome.problem.title.encode("utf-8")
    return list(outcomes)


@pytest.mark.parametrize("part", range(10))
def test_broken_files_give_findings(part: int) -> None:
    dice = random.Random(SEED + part)
    spoilt = 0
    for number in range(NUMBER // 10):
        raw = mutated(dice)
        config = reading.parse_config(raw, f"f{number}.{'json' if number % 9 == 0 else 'yaml'}")
        try:
            found = judged(config, MACHINES[number % len(MACHINES)])
        except Exception as error:
            raise AssertionError(f"seed {SEED + part}, file {number}: {raw!r}") from error
        fatal = any(fault.fatal for fault in config.faults)
        assert fatal == any(o.check.id == "config_unreadable" and o.status == "fail" for o in found)
        assert not fatal or (config.values == {} and config.sha256 is None)
        spoilt += fatal
    assert 0.1 < spoilt / (NUMBER // 10) < 0.9, "the mutations are too tame, or too wild, to test anything"


def bomb(levels: int, width: int, form: str) -> str:
    """Aliases of aliases: width ** levels values in a few lines."""
    return "a0: &a0 x\n" + "".join(
        f"a{n}: &a{n} {form.replace('@', ', '.join([f'*a{n - 1}'] * width))}\n" for n in range(1, levels)
    )


HARD: dict[str, bytes] = {
    "billion laughs": bomb(30, 10, "[@]").encode(),
    "laughing keys": bomb(30, 2, "{a: [@]}").encode(),
    "merged laughs": ("a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))).encode(),
    "merges of merges": ("a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}\n" for n in range(1, 200))).encode(),
    "contains itself": b"a: &a {b: *a}\n",
    "many anchors": "".join(f"a{n}: &a{n} 1\n" for n in range(30_000)).encode(),
    "deep brackets": b"[" * 500_000,
    "deep braces": b"{a: " * 100_000,
    "deep mapping": "".join(" " * n + "a:\n" for n in range(1000)).encode(),
    "deep list": b"- " * 100_000,
    "many keys": "".join(f"key{n}: {n}\n" for n in range(70_000)).encode(),
    "same key": b"debug: true\n" * 80_000,
    "long value": b"a: " + b"x" * ((1 << 20) - 8),
    "long quoted": b'a: "' + b"x " * ((1 << 19) - 8) + b'"',
    "long key": b"k" * ((1 << 20) - 8) + b": 1",
    "long comment": b"# " + b"x" * ((1 << 20) - 8),
    "long number": b"num_processes: " + b"9" * ((1 << 20) - 32),
    "long octal": b"num_processes: 0" + b"7" * ((1 << 20) - 32),
    "long base 60": b"num_processes: 1" + b":10" * 300_000,
    "blank lines": b"\n" * ((1 << 20) - 8),
    "long list": b"gpu_ids: [" + b"0," * 500_000 + b"]",
    "commas": b"gpu_ids: '" + b"0," * 500_000 + b"'",
    "escapes": b'a: "' + rb"\ud800" * 100_000 + b'"',
    "colons": b"a" + b": " * 300_000,
    "not numbers": b"num_processes: .nan\nnum_machines: .inf\nmachine_rank: -.inf\nmain_process_port: 1.0e+999\n",
    "zeros": bytes(1 << 20),
    "high bytes": b"\xff" * (1 << 20),
}  # fmt: skip


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_no_text_takes_long(name: str, suffix: str) -> None:
    """CPU seconds of this process: what else the machine does is not counted."""
    began = time.process_time()
    judged(reading.parse_config(HARD[name][: 1 << 20], f"a.{suffix}"), MACHINES[0])
    assert time.process_time() - began < LONGEST_S


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_bytes(HARD["billion laughs"])
    program = (
        "import resource, sys; from pathlib import Path; from mgpu.config import read\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "config = read(Path(sys.argv[1])); assert config.faults[0].fatal\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bomb.yaml")]
    grown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(grown.stdout) < 64 << 10  # KiB


def test_an_endless_file_is_not_read_to_its_end() -> None:
    from mgpu.errors import MgpuError

    with pytest.raises(MgpuError, match="it is a device"):
        reading.read(Path("/dev/zero"))


WRITER = """
import sys
from pathlib import Path
from mgpu import files
path, texts = Path(sys.argv[1]), [("%d " % n) * 20000 + "end" for n in range(2)]
print("ready", flush=True)
n = 0
while True:
    files.write(path, texts[n % 2])
    n += 1
"""


def test_a_process_killed_while_it_writes_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    whole: tuple[Any, ...] = tuple((f"{n} ") * 20000 + "end" for n in range(2))
    path.write_text(whole[0])
    path.chmod(0o640)
    dice = random.Random(SEED)
    for _ in range(40):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(dice.uniform(0, 0.03))
            writer.send_signal(signal.SIGKILL)
        assert path.read_text() in whole
        assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.glob(".accelerate.yaml.*.tmp")), "no kill hit a write in its middle"
