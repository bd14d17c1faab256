"""Does a launch line of the user's own run unchanged under mgpu, watched and explained?

The launchers are real (torchrun, accelerate, deepspeed, Python), with two gloo ranks on the CPU. LLaMA-Factory and
axolotl are not installed: their console scripts here are stand-ins that start torchrun with the same words as the real
ones (LLaMA-Factory ff6d4d1 src/llamafactory/launcher.py; axolotl 067b021 src/axolotl/cli/utils/train.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu import errors
from tests import fake_nvml
from tests.conftest import Run, environment
from tests.scripts import SCRIPTS, kill_all, start, wait_for, write_config

# Fails at once, or joins a gloo group, checks it, writes what it was started with, and perhaps hangs.
TRAIN = """\
import json, os, sys, time
if "fails" in sys.argv[1:]:
    time.sleep(60 if os.environ["RANK"] != "1" else 0)
    raise ValueError("planted")
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.ones(1)
dist.all_reduce(total)
seen = {name: os.environ.get(name) for name in ("MASTER_PORT", "MGPU_RUN_ID", "WORLD_SIZE")}
words = [os.fsencode(word).hex() for word in sys.argv[1:]]
with open(f"rank{rank}.json", "w") as file:
    json.dump({"total": total.item(), "words": words, "env": seen}, file)
if sys.argv[1:] == ["hangs"] and rank == 1:
    time.sleep(1000)
dist.barrier()
dist.destroy_process_group()
"""
LLAMAFACTORY = """\
#!{python}
import os, subprocess, sys
command = sys.argv.pop(1)
env = dict(os.environ)
if command == "train" and os.getenv("FORCE_TORCHRUN", "0").lower() in ("true", "y", "1"):
    words = ("torchrun --nnodes 1 --node_rank 0 --nproc_per_node {{}} --master_addr 127.0.0.1 --master_port {{}} "
             "train.py {{}}").format(os.environ["NPROC_PER_NODE"], os.environ["MASTER_PORT"], " ".join(sys.argv[1:]))
    sys.exit(subprocess.run(words.split(), env=env, check=True).returncode)
print("alone", sys.argv[1:])
"""
AXOLOTL = """\
#!{python}
import os, sys
after = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
command = ["torchrun", *after, "-m", "train", sys.argv[2]]
os.execvpe(command[0], command, os.environ)
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with scripts, the launchers and the stand-ins in `bin`. Nothing that runs here outlives it."""
    for path in SCRIPTS.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    tools = tmp_path / "bin"
    tools.mkdir()
    modules = {
        "torchrun": "torch.distributed.run",
        "accelerate": "accelerate.commands.accelerate_cli",
        "deepspeed": "deepspeed.launcher.runner",
    }
    scripts = {name: f"#!{sys.executable}\nfrom {module} import main\nmain()\n" for name, module in modules.items()} | {
        "llamafactory-cli": LLAMAFACTORY.format(python=sys.executable),
        "axolotl": AXOLOTL.format(python=sys.executable),
    }
    for name, text in scripts.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    yield tmp_path
    kill_all(tmp_path)


def path_of(here: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join((str(here / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))}


def of_rank(here: Path, rank: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((here / f"rank{rank}.json").read_text())
    return found


def both_ranks_met(here: Path) -> bool:
    return all(of_rank(here, rank)["total"] == 2 for rank in (0, 1))


# Real launchers


def test_torchrun(here: Path, mgpu: Run) -> None:
    words = ["a b", "it's", "x\ny", "$HOME", "--gpus", "é", ""]
    done = mgpu(
        "launch",
        "--json-result",
        "r.json",
        "--",
        "torchrun",
        "--nproc-per-node",
        "2",
        "train.py",
        *words,
        env=path_of(here),
    )
    assert done.returncode == 0, done.stderr
    assert both_ranks_met(here) and of_rank(here, 1)["words"] == [word.encode().hex() for word in words]
    assert "none; read from the command line" in done.stderr and "torchrun: 2 ranks here" in done.stderr
    assert "MGPU_RUN_ID" in done.stderr and "mgpu: finished, exit 0" in done.stderr
    result = json.loads((here / "r.json").read_text())
    assert result["command"][:3] == ["torchrun", "--nproc-per-node", "2"] and result["exit_code"] == 0
    assert {row["rank"] for row in result["ranks"]} == {0, 1}
    assert not (here / "accelerate.yaml").exists()


def test_a_rank_of_torchrun_that_fails(here: Path, mgpu: Run) -> None:
    line = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train.py", "fails")
    done = mgpu("launch", "--", *line, env=path_of(here))
    assert done.returncode == 1, done.stderr
    assert "First to fail" in done.stderr and "rank 1" in done.stderr and "ValueError: planted" in done.stderr
    assert "Rerun          mgpu launch -- python -m torch.distributed.run" in done.stderr


def test_a_hang_is_explained(here: Path, mgpu: Run) -> None:
    options = ("--hang-after", "3", "--on-hang", "stop")
    done = mgpu("launch", *options, "--", "torchrun", "--nproc-per-node=2", "train.py", "hangs", env=path_of(here))
    assert done.returncode == errors.TIMED_OUT, done.stderr
    assert "no progress for" in done.stderr and "rank 1" in done.stderr and "train.py:15" in done.stderr


def test_accelerate_with_a_verified_config(here: Path, mgpu: Run) -> None:
    write_config(here)
    line = ("accelerate", "launch", "--config_file", "accelerate.yaml", "train.py")
    env = {**path_of(here), "ACCELERATE_USE_CPU": "true"}
    refused = mgpu("launch", "--", *line, env=env)
    assert refused.returncode == errors.LAUNCH_REFUSED
    assert "mgpu smoke-test" in refused.stderr
    assert "mgpu launch --unverified allow -- accelerate launch --config_file" in refused.stderr
    tested = mgpu("smoke-test", "--level", "quick", "--log-dir", "logs")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    done = mgpu("launch", "--", *line, env=env)
    assert done.returncode == 0, done.stderr
    assert both_ranks_met(here) and "verified just now on this machine" in done.stderr
    other = mgpu("launch", "--", *line[:2], "--mixed_precision", "bf16", *line[2:], env=env)
    assert other.returncode == errors.LAUNCH_REFUSED
    assert "--mixed_precision in the command: to verify what runs" in other.stderr
    assert mgpu("launch", "--dry-run", "--unverified", "allow", "--", *line, env=env).returncode == 0


def test_deepspeed(here: Path, mgpu: Run) -> None:
    done = mgpu("launch", "--", "deepspeed", "--num_gpus", "2", "--master_port", free(), "train.py", env=path_of(here))
    assert done.returncode == 0, done.stdout + done.stderr
    assert both_ranks_met(here) and "deepspeed: 2 ranks here" in done.stderr


def free() -> str:
    from mgpu.launchers.port import free_port

    return str(free_port())


# One process, console scripts, modules


def test_python_is_one_process(here: Path, mgpu: Run) -> None:
    env = {**path_of(here), "REPORT": "report.json"}
    done = mgpu("launch", "--json-result", "r.json", "--", "python", "report.py", "x", env=env)
    assert done.returncode == 0, done.stderr
    assert "one process; precision and strategy set by the script" in done.stderr
    code = mgpu("launch", "--", "python", "-c", "import sys; sys.exit(7)", env=path_of(here))
    assert code.returncode == 7 and "mgpu: FAILED" in code.stderr
    module = mgpu("launch", "--", "python", "-m", "report", "-m", env=env)
    assert module.returncode == 0 and json.loads((here / "report.json").read_text())["arguments"] == ["-m"]


def test_a_command_that_starts_ranks_after_all(here: Path, mgpu: Run) -> None:
    (here / "bin" / "pkg-train").write_text("#!/bin/sh\nexec torchrun --nproc-per-node 2 train.py fails\n")
    (here / "bin" / "pkg-train").chmod(0o755)
    done = mgpu("launch", "--json-result", "r.json", "--", "pkg-train", env=path_of(here))
    assert done.returncode == 1 and "one process, or the ranks that it starts" in done.stderr
    result = json.loads((here / "r.json").read_text())
    assert {row["rank"] for row in result["ranks"]} == {0, 1} and result["first_failure"]["rank"] == 1


def test_the_ranks_of_a_second_node(here: Path, mgpu: Run) -> None:
    """A script of unknown kind is taken for the only rank until its ranks 2 and 3 are there."""
    (here / "run.sh").write_text("sleep 1.5\nRANK=2 sleep 2 &\nRANK=3 sleep 2 &\nwait\n")
    done = mgpu("launch", "--json-result", "r.json", "--", "bash", "run.sh", env=path_of(here))
    assert done.returncode == 0, done.stderr
    assert {row["rank"] for row in json.loads((here / "r.json").read_text())["ranks"]} == {2, 3}


def test_frameworks(here: Path, mgpu: Run) -> None:
    """Stand-ins: see above."""
    (here / "x.yaml").write_text("per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n")
    (here / "y.yml").write_text("micro_batch_size: 3\nbf16: auto\noutput_dir: out\n")
    env = {**path_of(here), "FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2", "MASTER_PORT": (port := free())}
    done = mgpu("launch", "--", "llamafactory-cli", "train", "x.yaml", "bf16=true", env=env)
    assert done.returncode == 0, done.stderr
    assert both_ranks_met(here) and of_rank(here, 0)["env"]["MASTER_PORT"] == port  # type: ignore[index]
    assert "read from the command line and x.yaml" in done.stderr and "bf16, 2 ranks here" in done.stderr
    assert "2 x 2 ranks x accumulate 4 = effective batch 16" in done.stderr
    line = ("axolotl", "train", "y.yml", "--launcher", "torchrun", "--", "--nproc_per_node=2")
    plan = mgpu("launch", "--dry-run", "--", *line, env=path_of(here))
    assert plan.returncode == 0 and "bf16 if the GPUs have it, 2 ranks here" in plan.stdout
    done = mgpu("launch", "--", *line, env=path_of(here))
    assert done.returncode == 0, done.stderr
    assert of_rank(here, 1)["words"] == [b"y.yml".hex()]
    alone = mgpu("launch", "--", "llamafactory-cli", "train", "x.yaml", env=path_of(here))
    assert alone.returncode == 0 and "alone" in alone.stdout and "one process" in alone.stderr


# mgpu's own options around the line


def test_detach_status_and_stop(here: Path, mgpu: Run) -> None:
    env = path_of(here)
    line = ("torchrun", "--nproc-per-node=2", "waits.py")
    done = mgpu("launch", "--detach", "--log-dir", "logs", "--", *line, env=env)
    assert done.returncode == 0, done.stderr
    run = done.stdout.strip()
    wait_for(lambda: all((here / f"ready.{rank}").exists() for rank in (0, 1)), 60)
    status = mgpu("launch", "--status", run)
    assert "torchrun --nproc-per-node=2 waits.py" in status.stdout and "2 of 2 ranks" in status.stdout, status.stdout
    assert "Config     none" in status.stdout
    why = mgpu("launch", "--why", run)
    assert "2 ranks" in why.stdout and "waits.py:" in why.stdout, why.stdout + why.stderr
    assert mgpu("launch", "--stop", run).returncode == 0
    assert json.loads((here / "logs" / "result.json").read_text())["signalled"] == "SIGTERM"


def test_timeout_exec_and_print_command(here: Path, mgpu: Run) -> None:
    env = path_of(here)
    assert mgpu("launch", "--timeout", "2", "--", "sleep", "60", env=env).returncode == errors.TIMED_OUT
    done = mgpu("launch", "--exec", "--", "python", "-c", "import os; print(sorted(os.environ))", env=env)
    assert done.returncode == 0 and "MGPU_RUN_ID" in done.stdout and "MGPU_RECORDER" not in done.stdout
    hostile = [os.fsdecode(b"\xff'\""), "x\ny", "$(touch pwned)"]
    raw = subprocess.run(
        [sys.executable, "-m", "mgpu", "launch", "--print-command", "--", "printf", "%s|", *hostile],
        cwd=here, env=environment(here / "home", env), capture_output=True, check=True,
    ).stdout  # fmt: skip
    again = subprocess.run(["sh", "-c", os.fsdecode(raw)], cwd=here, capture_output=True, check=True).stdout
    assert again == b"".join(os.fsencode(word) + b"|" for word in hostile) and not (here / "pwned").exists()


def test_ten_thousand_arguments_arrive(here: Path, mgpu: Run) -> None:
    many = [os.fsdecode(b"\xfe%d" % number) for number in range(10_000)]
    script = "import os, sys, zlib; print(len(sys.argv), zlib.crc32(b'|'.join(map(os.fsencode, sys.argv[1:]))))"
    done = mgpu("launch", "--", "python", "-c", script, *many, env=path_of(here))
    plain = subprocess.run([sys.executable, "-c", script, *many], capture_output=True, text=True, check=True)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr[-2000:]


def test_signals_reach_the_line(here: Path) -> None:
    runner = start("launch", "--", "python", "behaves.py", "saves", folder=here, env=path_of(here))
    wait_for(lambda: (here / "ready").exists(), 60)
    runner.send_signal(signal.SIGTERM)
    _, said = runner.communicate(timeout=60)
    assert (runner.returncode, (here / "saved").exists()) == (0, True), said


# Refusals


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--", "nowhere-train", "x"), errors.NOT_FOUND, "mgpu: command nowhere-train not found in PATH\n"),
        (("--gpus", "2", "--", "torchrun", "train.py"), errors.USAGE, "--gpus 2: the command after -- runs unchanged"),
        (("--", "mgpu", "launch", "x.py"), errors.USAGE, "the command is mgpu launch itself"),
        (("torchrun", "train.py"), errors.USAGE, "put -- before it:  mgpu launch -- torchrun train.py"),
        (("axolotl", "train", "y.yml"), errors.NOT_FOUND, "put -- before it:  mgpu launch -- axolotl train y.yml"),
        (("--", "accelerate", "launch", "--config_file", "no.yaml", "x.py"), 125, "config no.yaml not found"),
    ],
)
def test_refused_with_one_message(here: Path, mgpu: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = mgpu("launch", *arguments, env=path_of(here))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr and "runs/" not in done.stderr


def test_more_ranks_than_gpus(here: Path, mgpu: Run) -> None:
    library = fake_nvml.build(here / "nvml")
    four = fake_nvml.environment(library, fake_nvml.machine(here / "nvml", "a100_sxm_x4"))
    line = ("torchrun", "--nproc-per-node", "8", "train.py")
    done = mgpu("launch", "--", *line, env={**path_of(here), **four})
    assert done.returncode == errors.LAUNCH_REFUSED
    assert "8 ranks for 4 visible GPUs" in done.stderr and "Set --nproc-per-node to 4." in done.stderr
    assert not (here / "rank0.json").exists()


def test_a_port_that_is_taken(here: Path, mgpu: Run) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = ("torchrun", "--nproc-per-node=2", f"--master-port={port}", "train.py")
        done = mgpu("launch", "--", *line, env=path_of(here))
    assert done.returncode == errors.LAUNCH_REFUSED
    assert f"port {port} is in use" in done.stderr
    assert "mgpu launch -- torchrun --nproc-per-node=2 --master-port=" in done.stderr
    # The doctor would look at the default port.
    assert f"Check    mgpu launch --dry-run -- torchrun --nproc-per-node=2 --master-port={port}" in done.stderr
    assert "--port auto" not in done.stderr


def test_several_nodes_watch_their_own_ranks(here: Path, mgpu: Run) -> None:
    line = ("torchrun", "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--nproc-per-node=2", "train.py")
    done = mgpu("launch", "--dry-run", "--unverified", "allow", "--", *line, env=path_of(here))
    assert "2 ranks here, 2 nodes" in done.stdout and "mgpu watches the ranks of this node" in done.stdout
