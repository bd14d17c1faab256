"""Do Slurm's Prolog and HealthCheckProgram take out the right nodes, on a real Slurm whose nodes see a fake NVML?"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from mgpu import cli
from mgpu.engine import verdict
from mgpu.report import formats
from mgpu.snapshot import Gap, Snapshot
from tests import fake_nvml
from tests.conftest import ROOT, need
from tests.fake_nvml import FAULTS
from tests.slurm import Cluster

HOOKS = ROOT / "mgpu" / "hooks"
_WAIT_S = 60.0


def hook(folder: Path, name: str, mgpu: Path) -> Path:
    """A site's copy of a hook, with its mgpu."""
    text = (HOOKS / name).read_text()
    path = folder / name
    path.write_text(
        text.replace("/opt/mgpu/bin/mgpu", str(mgpu)).replace("/usr/bin/scontrol", str(folder / "scontrol"))
    )
    path.chmod(0o755)
    return path


def installed(folder: Path, library: Path, described: str) -> Path:
    """An mgpu of a site, as a program that needs nothing of the environment; `described` is a shell word."""
    path = folder / "mgpu"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "#!/bin/sh\n"
        f"export LD_LIBRARY_PATH={library} FAKE_NVML={described} PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1\n"
        f'exec {sys.executable} -m mgpu "$@"\n'
    )
    path.chmod(0o755)
    return path


def bare(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program with an empty environment, as slurmd starts a hook."""
    return subprocess.run(
        list(map(str, command)), env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        cwd="/", check=False,
    )  # fmt: skip


# ---- without Slurm


@pytest.fixture
def sick(tmp_path: Path, library: Path) -> Callable[..., Path]:
    """The site's mgpu on a machine with a fault."""

    def made(*faults: str) -> Path:
        described = fake_nvml.machine(tmp_path / "described", "h100_sxm_x8", *(FAULTS[fault] for fault in faults))
        return installed(tmp_path / "bin", library, str(described))

    return made


def test_prologs_need_nothing_of_their_environment_and_several_at_once_answer_alike(
    sick: Callable[..., Path], tmp_path: Path
) -> None:
    prolog = hook(tmp_path, "prolog.sh", sick("gpu_lost"))
    of_a_job = {"SLURM_JOB_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURMD_NODENAME": "n7"}
    with ThreadPoolExecutor(2) as pool:
        several = list(pool.map(lambda variables: bare(prolog, **variables), (of_a_job, {"SLURMD_NODENAME": "n7"})))
    for result in several:
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith("n7: mgpu: GPU 3") and "[gpu_lost]" in result.stderr  # not one of the job's


def test_a_driver_that_hangs_drains_nothing_and_is_given_up_in_time(sick: Callable[..., Path]) -> None:
    program = sick("nvml_hangs")
    # The limit itself is a number; that it ends a hanging driver shows as well with a smaller one.
    limit = re.search(r"^LIMIT=(\d+)", (HOOKS / "prolog.sh").read_text(), re.MULTILINE)
    assert (
        limit is not None and importlib.import_module("mgpu.cli.doctor")._PROLOG_S < int(limit[1]) < 10
    )  # Slurm's MessageTimeout
    shorter = (
        'import sys, mgpu.__main__ as m, mgpu.cli.doctor; sys.modules["mgpu.cli.doctor"]._PROLOG_S = 0.5; m.main()'
    )
    program.write_text(program.read_text().replace("-m mgpu", f"-c '{shorter}'"))
    result = bare(program, "doctor", "--exit-style", "prolog", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)["gaps"]["driver"]
    assert told["kind"] == "timed_out" and "in 0.5 s" in told["reason"]


@pytest.mark.parametrize(
    ("fact", "kind", "unsure"),
    [
        ("gpus.2.temperature", "timed_out", True),
        ("driver", "crashed", True),
        ("gpus.2.details", "not_asked", False),
        ("storage", "timed_out", False),
    ],
)
def test_what_a_hanging_driver_leaves_unknown_is_not_called_healthy(fact: str, kind: str, unsure: bool) -> None:
    seen = Snapshot(gaps={fact: Gap(kind, "no answer")})  # type: ignore[arg-type]
    assert verdict.unsure(seen, "ready") == unsure and verdict.unsure(seen, "no_gpu")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 1", 0),  # a program that crashes
        ("echo 'Traceback: no module mgpu' >&2; exit 1", 0),
        ("exec /bin/sleep 60", 0),
        ("echo 'mgpu: GPU 3 is lost [gpu_lost]'", 0),  # it may say what it wants: the code counts as well
        ("echo 'mgpu: GPU 3 is lost [gpu_lost]'; exit 1", 1),
        ("exit 127", 0),
    ],
)
def test_a_broken_mgpu_drains_nothing(script: str, code: int, tmp_path: Path) -> None:
    broken = tmp_path / "mgpu"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    prolog = hook(tmp_path, "prolog.sh", broken)
    prolog.write_text(prolog.read_text().replace("LIMIT=8 ", "LIMIT=0.3 "))
    assert bare(prolog).returncode == code
    prolog.write_text(prolog.read_text().replace(str(broken), "/nowhere/mgpu"))
    assert bare(prolog).returncode == 0


LOST = "echo 'mgpu: GPU 3 is lost [gpu_lost]'; exit 1"
DRAINS = "update NodeName=n7 State=DRAIN Reason=mgpu: GPU 3 is lost [gpu_lost]"
DRAINED = "State=IDLE+DRAIN Reason=mgpu: GPU 3 is lost [gpu_lost] [root@2026-11-22T02:40:59]"


@pytest.mark.parametrize(
    ("program", "shown", "asked"),
    [
        (LOST, "State=MIXED", DRAINS),
        ("echo a warning >&2\n" + LOST, "State=IDLE", DRAINS),
        (LOST, "State=IDLE+DRAIN Reason=disk of the admin [root@2026-11-22T02:40:59]", ""),
        ("echo 'mgpu: a bug in mgpu' >&2; exit 1", "State=IDLE", ""),
        ("exit 127", "State=IDLE", ""),
        ("", "State=IDLE", ""),
        ("", DRAINED, "update NodeName=n7 State=RESUME"),
        ("", "State=MIXED+DRAIN Reason=disk of the admin [root@2026-11-22T02:40:59]", ""),
        ("", "State=IDLE+DRAIN Reason=not mgpu: by hand [root@2026-11-22T02:40:59]", ""),
        ("echo 'mgpu: could not tell' >&2", DRAINED, ""),
        ("exec /bin/sleep 60", DRAINED, ""),
        (LOST, "", ""),  # the controller does not answer
    ],
)  # fmt: skip
def test_the_health_check_drains_and_resumes_what_it_may(program: str, shown: str, asked: str, tmp_path: Path) -> None:
    log = tmp_path / "asked"
    answer = f"echo 'NodeName=n7 Arch=x86_64 {shown}'" if shown else "exit 1"
    show = f'case "$1" in -o) {answer} ;; *) echo "$@" > {log} ;; esac'
    for name, script in (("scontrol", show), ("mgpu", program)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    health = hook(tmp_path, "healthcheck.sh", tmp_path / "mgpu")
    health.write_text(health.read_text().replace("LIMIT=30 ", "LIMIT=0.3 "))
    assert bare(health, SLURMD_NODENAME="n7").returncode == 0  # whatever it saw
    assert (log.read_text().strip() if log.exists() else "") == asked


def test_a_line_that_cannot_be_read_drains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*options: str) -> tuple[int, str, str]:
        return (cli.run(["doctor", *options]), *capsys.readouterr())

    code, out, error = said("--exit-style", "prolog", "--expect-gpu", "x")
    assert (code, out) == (0, "") and "mgpu: " in error
    code, out, error = said("--exit-style=nagios", "--bogus")
    assert (code, out.splitlines()[0][:12]) == (3, "MGPU UNKNOWN")
    code, out, error = said("--exit-style", "prolog", "--only", "no_such_check")
    assert (code, out) == (0, "") and "no_such_check" in error


@pytest.mark.parametrize(("expected", "visible", "code"), [("9", "", 1), ("8", "0,1", 0)])
def test_fewer_gpus_than_the_site_says_condemn_a_node(
    expected: str, visible: str, code: int, sick: Callable[..., Path]
) -> None:
    shown = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    result = bare(sick(), "doctor", "--exit-style", "prolog", "--expect-gpus", expected, **shown)
    assert result.returncode == code
    assert (result.stdout == "mgpu: 8 usable GPUs, 9 expected [gpu_count_unexpected]\n") == bool(code)


def test_a_reason_has_at_most_a_hundred_characters() -> None:
    from tests.test_formats import outcome, problem

    found = formats.prolog([outcome("gpu_lost", problem("GPU 3 " + "is lost " * 30))] * 2)
    assert (
        len(found) == 101 and found.startswith("mgpu: GPU 3 is lost") and found.endswith("... [gpu_lost] (+1 more)\n")
    )


# ---- a real Slurm


@dataclass
class Site:
    """Four nodes with their hooks; what NVML says on each is a file."""

    cluster: Cluster
    machines: dict[str, Path]
    checked: Path  # a folder: a node that is named in it has its health checked

    def heals(self, name: str) -> None:
        fake_nvml.machine(self.machines[name].parent, "a100_sxm_x4").rename(self.machines[name])

    def breaks(self, name: str, fault: str) -> None:
        fake_nvml.machine(self.machines[name].parent, "a100_sxm_x4", FAULTS[fault]).rename(self.machines[name])

    def state(self, name: str) -> tuple[str, str]:
        """What Slurm says of a node, and why."""
        shown = self.cluster.run("scontrol", "-o", "show", "node", name).stdout
        reason = shown.partition(" Reason=")[2].strip()
        return shown.partition(" State=")[2].split()[0], reason

    def until(self, name: str, *, drained: bool) -> str:
        end = time.monotonic() + _WAIT_S
        while ("DRAIN" in self.state(name)[0]) != drained:
            assert time.monotonic() < end, (self.state(name), self.cluster.run("sinfo", "-R").stdout)
            time.sleep(0.1)
        return self.state(name)[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    machines = {name: folder / "seen" / name for name in ("node1", "node2", "node3", "node4")}
    program = installed(folder, library, f"{folder}/seen/$(hostname)")
    prolog, health = hook(folder, "prolog.sh", program), hook(folder, "healthcheck.sh", program)
    client = folder / "scontrol"  # of a site whose slurm.conf lies where Slurm looks for it
    client.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm/slurm.conf exec {need("scontrol")} "$@"\n')
    client.chmod(0o755)
    checked, gate = folder / "checked", folder / "gate.sh"
    # Every second, but never two at once on a node: on a busy machine they would pile up, and none would end in time.
    once = f"flock -n {folder}/$(hostname).lock {health}"
    gate.write_text(f"#!/bin/sh\n[ -e {checked}/$(hostname) ] || exit 0\nexec {once}\n")
    gate.chmod(0o755)
    checked.mkdir()
    for path in machines.values():
        fake_nvml.machine(path.parent, "a100_sxm_x4").rename(path)
    (folder / "slurm").mkdir()
    text = (
        f"Prolog={prolog}\nPrologFlags=Alloc\n"
        f"HealthCheckProgram={gate}\nHealthCheckInterval=1\nHealthCheckNodeState=ANY,CYCLE"
    )
    site = Site(Cluster(folder / "slurm", nodes=4, gpus=0, cpus=2, more_conf=text), machines, checked)
    yield site
    gate.write_text("#!/bin/sh\n")
    site.cluster.close()


def test_the_prolog_drains_the_sick_node_and_the_job_goes_on_elsewhere(site: Site, tmp_path: Path) -> None:
    site.breaks("node1", "gpu_lost")
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/bash\necho "trained on $SLURMD_NODENAME"\n')
    job = site.cluster.batch(script)  # of two idle nodes Slurm takes the first
    reason = site.until("node1", drained=True)
    assert reason.startswith("Prolog error")  # Slurm's own word; ours is in slurmd's log
    held = site.cluster.until(job, ["PENDING"], _WAIT_S)
    assert "held" in held["Reason"].lower() or held["Reason"] == "launch_failed_requeued_held", held
    said = (site.cluster.folder / "node1.log").read_text(errors="replace")
    assert "node1: mgpu: GPU 3 fell off the bus (GPU_IS_LOST) [gpu_lost]" in said
    site.cluster.run("scontrol", "release", job)
    site.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm lets it wait two minutes
    ended = site.cluster.ended(job, _WAIT_S)
    assert (ended["JobState"], ended["NodeList"]) == ("COMPLETED", "node2")
    assert site.cluster.output(job) == "trained on node2\n"
    assert "DRAIN" not in site.state("node2")[0]


def test_the_health_check_drains_with_the_reason_and_resumes_only_its_own(site: Site) -> None:
    program = site.checked.with_name("mgpu")
    lines = program.read_text().splitlines()
    lines.insert(1, '[ "$(hostname)" = node4 ] && exit 0')  # healthy, and known to be
    program.write_text("\n".join([*lines, ""]))
    for name in ("node3", "node4"):
        (site.checked / name).touch()
    site.cluster.run("scontrol", "update", "NodeName=node4", "State=DRAIN", "Reason=disk of the admin")
    site.breaks("node3", "gpu_lost")
    assert site.until("node3", drained=True).startswith("mgpu: GPU 3")
    assert "mgpu: GPU 3" in site.cluster.run("sinfo", "-R", "-h", "-o", "%100E %N").stdout
    site.heals("node3")
    site.until("node3", drained=False)
    assert site.state("node4")[1].startswith("disk of the admin") and "DRAIN" in site.state("node4")[0]
