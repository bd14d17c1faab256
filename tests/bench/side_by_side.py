"""Which tool names which planted fault?

    python -m tests.bench.side_by_side [--peers FOLDER] [--only WORD] [--verbose]

Every fault is planted where all tools can see it: in the environment, in limits and mounts, in installed packages, or
in a described machine that is served by a fake NVML, by an `nvidia-smi` that reads it (`fake_smi.py`) and on the PCI
bus. Each tool runs once on the machine without the fault and once with it. A tool *names* a fault when it prints a
line that it does not print without the fault and that has the fault's words in it (the same words for all tools, in
the table below, chosen generously); it only *differs* when it prints any other new line. The peers come from PyPI
into FOLDER, apart from everything else: pip install --target FOLDER cuda-doctor env-doctor.

No GPU is needed, and torch is this environment's: a CPU build here, which every tool may say of both runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import fake_nvml
from tests.conftest import ROOT

LIMIT_S = 30  # a tool that has not answered by then hangs
MACHINE = "h100_sxm_x8"
TOOLS = ("mgpu doctor", "accelerate env", "collect_env", "cuda-doctor", "env-doctor")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, how it is planted, and the words in which any tool may name it."""

    what: str
    words: str  # regular expression, case does not matter
    nvml: str = ""  # lines of fake_nvml
    env: dict[str, str] = field(default_factory=dict)
    shell: str = ""  # run before the tool, in a mount namespace of its own
    plant: Callable[[Path], dict[str, str]] | None = None  # files; gives more environment
    listen: int | None = None  # a port somebody holds


def two_nccl_wheels(folder: Path) -> dict[str, str]:
    """The metadata of two NCCL wheels, as pip leaves it."""
    for name, version in (("nvidia_nccl_cu12", "2.27.5"), ("nvidia_nccl_cu13", "2.29.7")):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}


def broken_torch(code: str) -> Callable[[Path], dict[str, str]]:
    """A torch that is found first and does this on import."""

    def plant(folder: Path) -> dict[str, str]:
        (folder / "torch").mkdir(parents=True)
        (folder / "torch" / "__init__.py").write_text(code)
        (folder / "torch" / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\nhip = None\n")
        return {"PYTHONPATH": str(folder)}

    return plant


def shadowing_file(folder: Path) -> dict[str, str]:
    """A user's own file with the name of a module that training imports, in the current directory."""
    Path("random.py").write_text("# my experiments\n")
    return {}


def stale_default_config(folder: Path) -> dict[str, str]:
    """The file accelerate reads when nobody names one."""
    (folder / "accelerate").mkdir(parents=True)
    (folder / "accelerate" / "default_config.yaml").write_text("num_processes: 1\n")
    return {"HF_HOME": str(folder)}


TOO_NEW = "__version__ = '2.13.0+cu130'\n"
RAISES = "raise ImportError('undefined symbol: ncclCommWindowRegister')\n"
TINY_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
FAULTS: tuple[Fault, ...] = (
    Fault("driver not loaded", r"(driver|module).{0,40}not (be )?loaded|not communicate|no nvidia driver", "init = !9"),
    Fault("driver and library of different versions", r"mismatch", "init = !18"),
    Fault("NVML hangs", r"did not answer|timed? ?out", fake_nvml.FAULTS["nvml_hangs"]),
    Fault("a GPU fell off the bus", r"lost|fell off", fake_nvml.FAULTS["gpu_lost"]),
    Fault("a GPU this job may not open", r"may not|permi", fake_nvml.FAULTS["gpu_forbidden"]),
    Fault("uncorrectable ECC errors", r"ecc|uncorrect", fake_nvml.FAULTS["ecc"]),
    Fault("row remapping pending", r"remap", fake_nvml.FAULTS["remap_pending"]),
    Fault("row remapping failed", r"remap", fake_nvml.FAULTS["remap_failed"]),
    Fault("GPU too hot, slowed down", r"therm|hot|throttl|slow", fake_nvml.FAULTS["thermal"]),
    Fault("power brake", r"brake|throttl|slow", fake_nvml.FAULTS["power_brake"]),
    Fault("PCIe width x8 of x16", r"x8\b|width|lanes", fake_nvml.FAULTS["pcie_width_reduced"]),
    Fault("compute mode prohibited", r"prohibited", fake_nvml.FAULTS["compute_prohibited"]),
    Fault("MIG on one GPU", r"\bMIG\b", fake_nvml.FAULTS["mig_on"]),
    Fault("another process on a GPU", r"busy|in use|process|GiB", fake_nvml.FAULTS["busy"]),
    Fault("NVLinks down", r"nvlink", fake_nvml.FAULTS["nvlink_down"]),
    Fault("NVSwitch fabric not started", r"fabric", fake_nvml.FAULTS["fabric_not_started"]),
    Fault("driver too old for CUDA 13", r"too old|older|requires? (a )?(newer )?driver|>= ?5[0-9]{2}",
          "driver.version = 535.161.08\ndriver.cuda_version = 12020", plant=broken_torch(TOO_NEW)),
    Fault("CUDA_VISIBLE_DEVICES=0,1,9", r"cuda_visible_devices.*(9|cut|stops|ignor|only)|cut short",
          env={"CUDA_VISIBLE_DEVICES": "0,1,9"}),
    Fault("CUDA_VISIBLE_DEVICES empty", r"cuda_visible_devices.*(hide|hidden|empty|no gpu)|hides? (all|every)",
          env={"CUDA_VISIBLE_DEVICES": ""}),
    Fault("NCCL_P2P_DISABLE=1 left over", r"nccl_p2p_disable", env={"NCCL_P2P_DISABLE": "1"}),
    Fault("NCCL variable misspelled", r"nccl_p2p_disabel|nccl_scoket", env={"NCCL_SCOKET_IFNAME": "eth0"}),
    Fault("NCCL_SOCKET_IFNAME names nothing", r"nosuch0|nccl_socket_ifname", env={"NCCL_SOCKET_IFNAME": "nosuch0"}),
    Fault("torch switch with an unreadable value", r"torch_nccl_blocking_wait", env={"TORCH_NCCL_BLOCKING_WAIT": "on"}),
    Fault("OMP_NUM_THREADS is a list", r"omp_num_threads", env={"OMP_NUM_THREADS": "4,2"}),
    Fault("PET_NNODES left by an operator", r"pet_nnodes", env={"PET_NNODES": "2"}),
    Fault("WORLD_SIZE left in the shell", r"world_size", env={"RANK": "0", "WORLD_SIZE": "8"}),
    Fault("/dev/shm of 64 MiB", r"/dev/shm|shared memory", shell=TINY_SHM),
    Fault("256 open files per process", r"open files|nofile|ulimit", shell="ulimit -n 256"),
    Fault("host name does not resolve", r"host ?name|resolv", shell="hostname no-such-host.invalid"),
    Fault("port 29500 taken", r"29500", listen=29500),
    Fault("current folder almost full", r"full|free|space",
          shell='mount -t tmpfs -o size=1m tmpfs "$PWD"; cd "$PWD"'),
    Fault("two NCCL wheels, cu12 and cu13", r"nccl.{0,40}cu1[23]|cu12 and|mixed", plant=two_nccl_wheels),
    Fault("import torch raises", r"undefined symbol", plant=broken_torch(RAISES)),
    Fault("import torch kills the process", r"sigsegv|segmentation|killed|crash|signal 11",
          plant=broken_torch("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n")),
    Fault("a default config of accelerate left over", r"default.?config|num_processes", plant=stale_default_config),
    Fault("random.py in the current folder", r"random\.py|shadow", plant=shadowing_file),
)  # fmt: skip


def commands(peers: Path | None) -> dict[str, tuple[list[str], dict[str, str]]]:
    """argv and environment of each tool that is there."""
    found: dict[str, tuple[list[str], dict[str, str]]] = {
        "mgpu doctor": ([sys.executable, "-m", "mgpu", "doctor", "-v"], {"PYTHONPATH": str(ROOT)}),
        "accelerate env": ([sys.executable, "-m", "accelerate.commands.accelerate_cli", "env"], {}),
        "collect_env": ([sys.executable, "-m", "torch.utils.collect_env"], {}),
    }
    if peers is not None:
        path = {"PYTHONPATH": str(peers)}
        found["cuda-doctor"] = ([sys.executable, "-m", "cuda_doctor", "diagnose", "-v"], path)
        found["env-doctor"] = ([sys.executable, "-c", "from env_doctor.cli import main; main()", "check"], path)
    return found


@contextmanager
def planted(fault: Fault | None, folder: Path, library: Path) -> Iterator[tuple[dict[str, str], str]]:
    """The environment and the shell words with which the fault is there."""
    described = fake_nvml.machine(folder / "machine", MACHINE, *([fault.nvml] if fault and fault.nvml else []))
    env = fake_nvml.environment(library, described) | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    (folder / "bin").mkdir(exist_ok=True)
    smi = folder / "bin" / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\nPYTHONPATH= exec {sys.executable} {Path(__file__).with_name("fake_smi.py")} "$@"\n')
    smi.chmod(0o755)
    numbers = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")  # as the machine is described
    if not (folder / "sys").exists():
        fake_nvml.sysfs(folder / "sys", {f"0000:{number}:00.0": place // 4 for place, number in enumerate(numbers)})
    bus = f"mount --bind {folder / 'sys/bus/pci'} /sys/bus/pci"
    if fault is None:
        yield env, bus
        return
    env |= fault.env
    holder = None
    before = Path.cwd()
    os.chdir(folder / "cwd")
    try:
        if fault.plant:
            env |= fault.plant(folder / "planted")
        if fault.listen:
            holder = socket.create_server(("", fault.listen))
        yield env, f"{bus}; {fault.shell}" if fault.shell else bus
    finally:
        os.chdir(before)
        if holder:
            holder.close()


def lines_of(argv: list[str], env: dict[str, str], shell: str, cwd: Path) -> set[str]:
    """What the tool prints, line by line; numbers that move from run to run are taken out."""
    argv = ["unshare", "--mount", "--uts", "sh", "-c", f'{shell}; exec "$@"', "sh", *argv]
    with subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
    text = re.sub(r"\d+\.\d+ ?s\b|\d\d:\d\d:\d\d|checks?, \d+|\d+ checks", "", text)
    return {line.strip() for line in text.splitlines() if line.strip()}


def result(before: set[str], noise: set[str], after: set[str], words: str) -> str:
    """names it, differs, or -."""
    new = after - before - noise
    if any(re.search(words, line, re.IGNORECASE) for line in new):
        return "names it"
    return "differs" if new else "-"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder with cuda-doctor and env-doctor")
    parser.add_argument("--only", default="", help="faults with this word in their name")
    parser.add_argument("--verbose", action="store_true", help="print the new lines")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in fault.what]
    clean = {
        k: v for k, v in os.environ.items() if not re.match(r"NCCL|CUDA|TORCH|OMP|PET_|SLURM|HF_|PYTHON|MASTER", k)
    }
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        library = fake_nvml.build(root / "library")
        tools = commands(options.peers.resolve() if options.peers else None)

        def run(tool: str, fault: Fault | None, folder: Path) -> set[str]:
            argv, extra = tools[tool]
            (folder / "cwd").mkdir(parents=True, exist_ok=True)
            (folder / "home").mkdir(exist_ok=True)
            with planted(fault, folder, library) as (env, shell):
                paths = [p for p in (env.get("PYTHONPATH"), extra.get("PYTHONPATH")) if p]
                env = {**clean, **extra, **env, "HOME": str(folder / "home"), "COLUMNS": "200"}
                if paths:
                    env["PYTHONPATH"] = os.pathsep.join(paths)
                return lines_of(argv, env, shell, folder / "cwd")

        rows = []
        base = root / "base"
        before = {tool: run(tool, None, base) for tool in tools}
        noise = {tool: run(tool, None, base) for tool in tools}
        for number, fault in enumerate(faults):
            row = {}
            for tool in tools:
                # The same folder as without the fault, so that no path differs.
                after = run(tool, fault, base)
                row[tool] = result(before[tool], noise[tool], after, fault.words)
                if options.verbose:
                    for line in sorted(after - before[tool] - noise[tool])[:12]:
                        print(f"{fault.what} | {tool} | {line}", file=sys.stderr)
                for left in (base / "planted", base / "cwd"):
                    shutil.rmtree(left, ignore_errors=True)
            rows.append((fault, row))
            print(f"{number + 1}/{len(faults)} {fault.what}: {row}", file=sys.stderr)
    print("| Planted fault | " + " | ".join(tools) + " |")
    print("|---" * (len(tools) + 1) + "|")
    for fault, row in rows:
        print(f"| {fault.what} | " + " | ".join(row[tool] for tool in tools) + " |")
    named = {tool: sum(row[tool] == "names it" for _, row in rows) for tool in tools}
    print(f"| **named, of {len(rows)}** | " + " | ".join(f"**{named[tool]}**" for tool in tools) + " |")


if __name__ == "__main__":
    main()
