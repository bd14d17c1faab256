"""Is a launch refused for exactly what has changed since it was verified, and started unasked when nothing has?

The machine is a described one with four GPUs; torch, accelerate and its launcher are stand-ins in a folder that comes
first, since real ones for CUDA cannot be had everywhere. The stamp is written by what writes it after a smoke test.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mgpu import errors
from tests import fake_nvml
from tests.conftest import Run, environment, need
from tests.scripts import write_config
from tests.terminal import DOWN, ENTER, Terminal

CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 4
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: NO_WRAP
"""
NCCL_C = "int ncclGetVersion(int *version) { *version = %d; return 0; }\n"
# What the launch would hand over to: it tells what it was started with.
LAUNCHER = """\
import json, os, sys
keep = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "ACCELERATE_MIXED_PRECISION", "EXTRA")
told = {name: os.environ.get(name) for name in keep}
print(json.dumps({"module": __package__, "arguments": sys.argv[1:], "env": told}))
"""
STAMP = """\
from pathlib import Path
from mgpu.config import facts
from mgpu.launch import preflight
from mgpu.launchers import stamp
from mgpu.smoke.ranks import STAGES
stamp.write(preflight.gather_facts(facts(Path("accelerate.yaml"), ask_loader=False), ()), STAGES, {})
"""


@dataclass
class Machine:
    """A folder with a config, a script, and a described machine around it."""

    folder: Path
    library: Path
    made: Path  # where libraries are compiled
    mgpu: Run
    lines: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def site(self) -> Path:
        """First on the path of every Python."""
        return self.folder / "site"

    def environment(self) -> dict[str, str]:
        """What every process of the test runs with."""
        described = fake_nvml.machine(self.folder / "described", "a100_sxm_x4", *self.lines)
        paths = {"LD_LIBRARY_PATH": f"{self.library}:{self.folder / 'nccl'}", "FAKE_NVML": str(described)}
        first = environment(self.folder / "home")["PYTHONPATH"]
        return {**paths, "PYTHONPATH": f"{self.site}:{first}", **self.env}

    def versions(self, torch: str = "2.9.1+cu130", accelerate: str = "1.15.0") -> None:
        """Install these, as far as a look at files goes."""
        shutil.rmtree(self.site, ignore_errors=True)
        for package in ("torch/distributed/run", "accelerate/commands/launch"):
            path = self.site / f"{package}.py"
            path.parent.mkdir(parents=True)
            path.write_text(LAUNCHER)
            for folder in list(path.parents)[: package.count("/")]:
                (folder / "__init__.py").touch()
        (self.site / "torch" / "version.py").write_text(f"__version__ = '{torch}'\ncuda = '13.0'\n")
        for name, version in (("torch", torch), ("accelerate", accelerate)):
            info = self.site / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")

    def install_nccl(self, version: int) -> None:
        """Another library under the same name."""
        made = self.made / f"{version}.so"
        if not made.exists():
            source = self.made / f"{version}.c"
            source.write_text(NCCL_C % version)
            subprocess.run([need("cc"), "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
        (self.folder / "nccl").mkdir(exist_ok=True)
        shutil.copy(made, self.folder / "nccl" / "libnccl.so.2")

    def config(self, old: str, new: str) -> None:
        """Change the file."""
        path = self.folder / "accelerate.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def verify(self) -> None:
        """The stamp that a passed smoke test would leave."""
        env = environment(self.folder / "home", self.environment())
        subprocess.run([sys.executable, "-c", STAMP], cwd=self.folder, env=env, check=True, timeout=60)

    def launch(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`mgpu launch ARGUMENTS` there."""
        return self.mgpu("launch", *arguments, env=self.environment(), cwd=self.folder)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One place for the machines of all tests, since a stamp knows the paths of libraries."""
    return tmp_path_factory.mktemp("gate")


@pytest.fixture
def bare(places: Path, library: Path, mgpu: Run) -> Machine:
    """The machine, and nothing is verified."""
    folder = places / "here"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_config(folder, CONFIG)
    (folder / "train.py").write_text("from accelerate import Accelerator\naccelerator = Accelerator()\n")
    machine = Machine(folder, library, places, mgpu)
    machine.versions()
    machine.install_nccl(22907)
    return machine


@pytest.fixture
def machine(bare: Machine, places: Path) -> Machine:
    """The machine, and the config is verified."""
    kept = places / "stamp"
    if not kept.exists():
        bare.verify()
        shutil.copytree(bare.folder / ".mgpu", kept)
    shutil.copytree(kept, bare.folder / ".mgpu", dirs_exist_ok=True)
    return bare


def differences(said: str) -> list[str]:
    """What is told to have changed, a line each."""
    head, _, rest = said.partition("NOT verified: changed since the test\n")
    assert not head.partition("accelerate.yaml")[0].strip().removeprefix("Config"), said
    return [re.sub("  +", "  ", line.strip()) for line in rest.partition("\n\n")[0].splitlines()]


NEW_GPU = "GPU-77d58a30-e71b-4386-b9f4-06a7d1e85b92"
Change = Callable[[Machine], object]


def _driver_and_config(machine: Machine) -> None:
    machine.lines.append("driver.version = 575.57.08")
    machine.config("bf16", "'no'")


CHANGES: Mapping[str, tuple[Change, list[str]]] = {
    "driver": (lambda m: m.lines.append("driver.version = 575.57.08"), ["driver  580.95.05 -> 575.57.08"]),
    "gpu": (lambda m: m.lines.append(f"2.uuid = {NEW_GPU}"), ["GPU 2  GPU-2cd58a30.. -> GPU-77d58a30.."]),
    "nccl": (lambda m: m.install_nccl(22803), ["nccl  2.29.7 -> 2.28.3"]),
    "torch": (lambda m: m.versions(torch="2.9.0+cu130"), ["torch  2.9.1+cu130 -> 2.9.0+cu130"]),
    "accelerate": (lambda m: m.versions(accelerate="1.14.0"), ["accelerate  1.15.0 -> 1.14.0"]),
    "config": (lambda m: m.config("bf16", "'no'"), ["mixed_precision  bf16 -> no"]),
    "config, nested": (
        lambda m: m.config("fsdp_version: 2\n", "fsdp_version: 2\n  fsdp_offload_params: true\n"),
        ["fsdp_config.fsdp_offload_params  not set -> true"],
    ),
    "environment": (
        lambda m: m.env.update(NCCL_P2P_DISABLE="1", NCCL_DEBUG="INFO", NOT_RELEVANT="1"),
        ["NCCL_P2P_DISABLE  not set -> 1"],
    ),
    "library path": (
        lambda m: m.env.update(LD_LIBRARY_PATH=m.environment()["LD_LIBRARY_PATH"] + ":/opt/other"),
        ["LD_LIBRARY_PATH  without /opt/other -> with it"],
    ),
    "order of the devices": (
        lambda m: m.env.update(CUDA_VISIBLE_DEVICES="1,0,2,3"),
        ["CUDA_VISIBLE_DEVICES  not set -> 1,0,2,3"],
    ),
    "several": (
        _driver_and_config,
        ["mixed_precision  bf16 -> no", "driver  580.95.05 -> 575.57.08"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_refused_with_exactly_the_difference(machine: Machine, name: str) -> None:
    change, wanted = CHANGES[name]
    change(machine)
    done = machine.launch("train.py")
    assert (done.returncode, done.stdout) == (errors.LAUNCH_REFUSED, ""), done.stderr
    assert differences(done.stderr) == wanted
    assert "NOT STARTED" in done.stderr and "mgpu smoke-test" in done.stderr
    assert not (machine.folder / ".mgpu/runs").exists()


def test_a_refusal_fits_the_screen(machine: Machine) -> None:
    """Apart from commands, which are never wrapped, because they are to be pasted."""
    (machine.folder / "a-folder-with-a-long-name").mkdir()
    config = machine.folder / "a-folder-with-a-long-name" / "the-config-of-the-last-experiment.yaml"
    (machine.folder / "accelerate.yaml").rename(config)
    machine.env["LD_LIBRARY_PATH"] = "/opt/a-library-with-a-long-path:/opt/another-library-with-a-long-path"
    for more in ((), ("--gpus", "2")):
        done = machine.launch("--config", str(config.relative_to(machine.folder)), *more, "train.py")
        assert done.returncode == errors.LAUNCH_REFUSED and "NOT STARTED" in done.stderr
        long = [line for line in done.stderr.splitlines() if len(line) > 80 and not line.startswith("  mgpu ")]
        assert not long, done.stderr


def test_unchanged_it_starts_without_a_question(machine: Machine) -> None:
    """Comments, order and quotes are no change, nor is a variable that only makes NCCL talk."""
    lines = (machine.folder / "accelerate.yaml").read_text().splitlines()
    shuffled = ["# a word", *lines[5:], *reversed(lines[:5])]
    (machine.folder / "accelerate.yaml").write_text("\n".join(shuffled).replace("bf16", '"bf16"  # fast') + "\n")
    machine.env["NCCL_DEBUG"] = "INFO"
    done = machine.launch("train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["arguments"][:2] == ["--config_file", "accelerate.yaml"]
    assert told["arguments"][-3:] == ["train.py", "--lr", "1"]
    assert re.search(
        r"^Config +accelerate\.yaml +verified (just now|\d+ min ago) on this machine$", done.stderr, re.MULTILINE
    )


def test_what_cannot_be_told_is_not_verified(machine: Machine) -> None:
    (machine.folder / "nccl" / "libnccl.so.2").write_text("no library")
    done = machine.launch("train.py")
    assert done.returncode == errors.LAUNCH_REFUSED
    assert differences(done.stderr) == ["nccl  2.29.7 -> unknown"]


def test_asked_with_the_difference_in_sight(machine: Machine) -> None:
    """Somebody is there: each difference on a line of its own, then the question; Stop starts nothing."""
    pexpect = pytest.importorskip("pexpect")
    machine.config("bf16", "'no'")
    env = environment(machine.folder / "home", {**machine.environment(), "TERM": "dumb"})
    child = pexpect.spawn(
        sys.executable, ["-m", "mgpu", "launch", "--json-result", "result.json", "train.py"],
        cwd=str(machine.folder), env=env, encoding="utf-8", timeout=60, dimensions=(24, 80),
    )  # fmt: skip
    child.expect("Not verified: changed since the test\r\n  mixed_precision  bf16 -> no\r\n")
    child.expect("Run the smoke test first")
    child.expect("Type a number")
    child.sendline("3")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == errors.LAUNCH_REFUSED
    assert not (machine.folder / ".mgpu/runs").exists()
    result = json.loads((machine.folder / "result.json").read_text())
    assert [check["id"] for check in result["checks"]] == ["config_changed_since_verified"]


# Before the start


def test_a_gpu_that_somebody_works_on(machine: Machine) -> None:
    machine.lines.append(fake_nvml.FAULTS["busy"])
    done = machine.launch("--json-result", "result.json", "train.py")
    assert (done.returncode, done.stdout) == (errors.LAUNCH_REFUSED, ""), done.stderr
    assert "gpu_busy" in done.stderr and "GPU 0 in use" in done.stderr
    result = json.loads((machine.folder / "result.json").read_text())
    assert [check["id"] for check in result["checks"]] == ["gpu_busy"]
    allowed = machine.launch("--unverified", "allow", "--dry-run", "train.py")
    assert allowed.returncode == errors.READY
    assert re.search("^Warnings +gpu_busy", allowed.stdout, re.MULTILINE)


def test_a_port_that_is_taken(bare: Machine) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        bare.config("num_machines: 1\n", f"num_machines: 1\nmain_process_port: {port}\n")
        bare.verify()
        done = bare.launch("train.py")
        assert done.returncode == errors.LAUNCH_REFUSED, done.stderr
        assert f"port {port} is in use by pid" in " ".join(done.stderr.split())
        elsewhere = bare.launch("--port", "auto", "--print-command", "train.py")
        words = shlex.split(elsewhere.stdout)
        assert words[words.index("--main_process_port") + 1] != str(port)
        assert bare.launch("--port", "auto", "--dry-run", "train.py").returncode == errors.READY


def test_a_folder_that_cannot_be_written(machine: Machine) -> None:
    if not Path("/proc/1").is_dir():
        pytest.skip("no /proc")
    done = machine.launch("train.py", "--output_dir", "/proc/1/out")
    assert done.returncode == errors.LAUNCH_REFUSED
    assert "output_folder_not_writable" in done.stderr and "/proc/1/out" in done.stderr
    assert machine.launch("--dry-run", "train.py", "--output_dir=later/out").returncode == errors.READY


# Which launcher, on which GPUs


def test_a_part_of_the_gpus_is_not_what_was_verified(machine: Machine) -> None:
    done = machine.launch("--gpus", "1,3", "train.py")
    assert done.returncode == errors.LAUNCH_REFUSED, done.stderr
    assert "num_processes  4 -> 2" in differences(done.stderr)
    assert "mgpu smoke-test --gpus 1,3" in done.stderr
    shown = machine.launch("--gpus", "1,3", "--print-command", "train.py")
    assert shown.stdout.startswith("CUDA_VISIBLE_DEVICES=GPU-1b07c9e5-5f42-49da-a61b-d83f204e97c6,GPU-3d92b64f-")
    assert "--num_processes 2 train.py" in shown.stdout


def test_fewer_gpus_mend_a_config_for_more(bare: Machine) -> None:
    bare.config("num_processes: 4", "num_processes: 8")
    refused = bare.launch("--print-command", "train.py")
    assert refused.returncode == errors.LAUNCH_REFUSED and "config_more_ranks_than_gpus" in refused.stderr
    shown = bare.launch("--gpus", "2", "--print-command", "train.py")
    assert shown.returncode == errors.READY and "--num_processes 2 train.py" in shown.stdout, shown.stderr
    bare.lines.append(fake_nvml.FAULTS["library_mismatch"])
    blind = bare.launch("--gpus", "2", "--print-command", "train.py")
    assert blind.returncode == errors.LAUNCH_REFUSED and "no GPU here" not in blind.stderr, blind.stderr


def test_one_gpu_needs_no_test(bare: Machine) -> None:
    """FSDP stays with accelerate's launcher; plain DDP on one GPU is a process without one."""
    done = bare.launch("--gpus", "1", "train.py")
    assert done.returncode == 0, done.stderr
    assert "one process: there are no ranks to verify" in done.stderr
    assert json.loads(done.stdout)["arguments"][-3:] == ["--num_processes", "1", "train.py"]
    bare.config("distributed_type: FSDP", "distributed_type: MULTI_GPU")
    (bare.folder / "train.py").write_text(LAUNCHER)
    told = json.loads(bare.launch("--gpus", "1", "train.py", "--gpus", "x").stdout)
    assert (told["module"], told["arguments"]) == (None, ["--gpus", "x"])
    assert told["env"]["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert told["env"]["CUDA_VISIBLE_DEVICES"].startswith("GPU-0a64f1d8-")
    assert bare.launch("--launcher", "python", "train.py").returncode == errors.USAGE


def test_a_script_that_speaks_for_itself_gets_torchrun(machine: Machine) -> None:
    (machine.folder / "train.py").write_text(
        "import os\nimport torch.distributed as dist\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "dist.init_process_group('nccl')\ndist.destroy_process_group()\n"
    )
    done = machine.launch("train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["module"] == "torch.distributed"
    assert told["arguments"][:2] == ["--nproc-per-node", "4"] and told["arguments"][2] == "--master-port"
    assert told["arguments"][4:] == ["train.py", "--lr", "1"]
    said = " ".join(done.stderr.split())
    assert "torchrun: train.py sets up torch.distributed itself" in said
    assert "ignores FSDP, mixed_precision bf16" in said
    forced = machine.launch("--launcher", "accelerate", "--print-command", "train.py")
    assert "accelerate.commands.launch" in forced.stdout


def test_exec_replaces_the_process(machine: Machine) -> None:
    done = machine.launch("--exec", "train.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"][-1] == "train.py"
    assert "your program's output" not in done.stderr and not (machine.folder / ".mgpu/runs").exists()


def test_the_printed_command_runs_as_it_is_printed(machine: Machine) -> None:
    arguments = ["--help", "--", "", "a b", "é", "*", "$HOME", "it's", "--token", "abc123", "-n"]
    shown = machine.launch("--print-command", "train.py", *arguments)
    assert shown.returncode == 0 and "abc123" in shown.stdout, shown.stderr
    env = environment(machine.folder / "home", machine.environment())
    done = subprocess.run(["sh", "-c", shown.stdout], cwd=machine.folder, env=env, capture_output=True, check=False)
    told = json.loads(done.stdout)["arguments"]
    assert told[told.index("train.py") + 1 :] == arguments
    dry = machine.launch("--dry-run", "train.py", *arguments)
    assert "abc123" not in dry.stdout and "--token '***'" in dry.stdout


# A question at the terminal


def typed(machine: Machine, *arguments: str) -> Terminal:
    """The same launch, typed at a terminal."""
    command = [sys.executable, "-m", "mgpu", "launch", *arguments]
    env = environment(machine.folder / "home", machine.environment())
    return Terminal(command, env=env, cwd=machine.folder)


def test_nothing_is_asked_if_there_is_nothing_to_decide(machine: Machine) -> None:
    """A launch typed into tmux and left alone starts."""
    terminal = typed(machine, "train.py")
    assert terminal.end() == 0
    assert "Start?" not in terminal.text and "finished, exit 0" in terminal.text


def test_a_finding_is_to_be_decided_on(machine: Machine) -> None:
    alone = (
        "import torch\nmodel = torch.nn.Linear(1, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for x in range(3):\n    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n"
    )
    (machine.folder / "train.py").write_text(alone)
    terminal = typed(machine, "train.py")
    assert "every rank would train the same thing" in terminal.see("Start?")
    terminal.press(DOWN, ENTER)
    assert terminal.end() == errors.LAUNCH_REFUSED
    assert typed(machine, "--yes", "train.py").end() == 0


def test_the_fix_and_the_check_of_a_taken_port_are_of_this_launch(machine: Machine) -> None:
    """The plan shows why it would not start; the fix and the check are of mgpu launch, with this port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for more in (("--dry-run",), ()):
            done = machine.launch(*more, "--port", port, "train.py")
            said = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == errors.LAUNCH_REFUSED, said
            assert f"port {port} is in use" in said and "mgpu launch --port auto" in said
            assert f"Check mgpu launch --dry-run --port {port} train.py" in said, said
            assert "\\n" not in done.stdout + done.stderr and ("WOULD NOT START" in said) is bool(more)
        free = machine.launch("--port", "auto", "--dry-run", "train.py")
        assert free.returncode == 0, free.stderr
