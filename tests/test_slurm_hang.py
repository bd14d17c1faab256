"""A Slurm job that hangs: every node asks its ranks, and there is one verdict. Real Slurm, real ranks over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.hangs import hang_files
from mgpu.job_files import watch_block
from mgpu.job_files.job import Watch
from mgpu.process import processes
from mgpu.recorder.inject import _mgpu_recorder
from mgpu.slurm import node_watch
from tests.conftest import PYTHONPATH, environment
from tests.scripts import wait_for
from tests.slurm import Cluster
from tests.test_hang_launch import TRAIN
from tests.test_schema import RUN, WHY

YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
use_cpu: true
num_machines: 2
num_processes: 2
"""
LAUNCH = ("--no-preflight", "--nodes", "2", "--launcher", "torchrun", "--yes", "--log-dir", "logs", "--hang-after", "4")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=0, cpus=4)
    yield made
    made.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "accelerate.yaml").write_text(YAML)
    (tmp_path / "home").mkdir()
    return tmp_path


def start(cluster: Cluster, here: Path, *arguments: str) -> subprocess.Popen[str]:
    added = {"SLURM_CONF": cluster.environment["SLURM_CONF"], "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "mgpu", "launch", *arguments], cwd=here, env=environment(here / "home", added),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def mgpu(cluster: Cluster, here: Path, *arguments: str) -> tuple[int, str, str]:
    running = start(cluster, here, *arguments)
    out, err = running.communicate(timeout=120)
    return running.returncode, out, err


def test_a_job_that_hangs_gets_one_verdict(cluster: Cluster, here: Path) -> None:
    """The rank that keeps the others waiting is on the second node."""
    code, out, err = mgpu(cluster, here, "--slurm", *LAUNCH, "--on-hang", "stop", "train.py", "sleeps")
    said = " ".join(err.split())
    assert code == errors.TIMED_OUT, err + out
    assert said.count("no progress for") == 1 and "rank 1 sleeps at train.py:10" in said
    assert "Rank 0 waits in all_reduce" in said and "[hang_rank_sleeps]" in said
    assert "mgpu" not in out
    document = json.loads((here / "logs" / "result.json").read_text())
    RUN.validate({key: value for key, value in document.items() if key != "slurm"})
    assert (document["hang"]["id"], document["hang"]["rank"]) == ("hang_rank_sleeps", 1)
    assert [one["rank"] for one in document["hang"]["ranks"]] == [0, 1]
    assert document["probable_cause"]["id"] == "hang_rank_sleeps" and document["timed_out"]
    job = document["slurm"]["job"]
    assert cluster.quiet() == [] and not list(Path("/tmp").glob(f"mgpu-*-{job}-*"))
    again = mgpu(cluster, here, "--slurm", *LAUNCH, "--dry-run", "train.py", "trains")
    assert again[0] == 0, again[2]  # the files there are mgpu's own


def test_why_of_a_job(cluster: Cluster, here: Path) -> None:
    """Detached: the nodes report what they find, and answer."""
    code, out, err = mgpu(cluster, here, "--slurm", "--detach", *LAUNCH, "train.py", "sleeps")
    assert code == 0, err
    job = out.strip()

    def why(*more: str) -> Any:
        slurm = ["--slurm"] if Path(f"/proc/{job}").exists() else []  # a process here has this number
        code, out, err = mgpu(cluster, here, *slurm, "--why", "--json-result", "-", *more, job)
        return (code, json.loads(out)) if out else (code, err)

    def hangs() -> Any:
        """In the first second, the rank may have worked between the two looks."""
        code, answer = why()
        return answer if code == errors.NOT_READY and answer["hang"]["id"] != "hang_rank_works" else None

    found = wait_for(hangs, 60)
    WHY.validate(found)
    assert found["hang"]["id"] == "hang_rank_sleeps" and found["progress"] is False
    assert [(one["rank"], one["line"]) for one in found["hang"]["ranks"]][1] == (1, "time.sleep(1000)")
    wait_for(lambda: hang_files.read(here / "logs" / f"watch-{job}"), 30)
    status = mgpu(cluster, here, "--slurm", "--status", job)[1]
    assert "rank 1 sleeps at train.py:10" in " ".join(status.split())
    assert cluster.job_of(job)["JobState"] == "RUNNING", "it reports, and does not stop"
    assert mgpu(cluster, here, "--slurm", "--stop", job)[0] == 0
    code, _, err = mgpu(cluster, here, "--slurm", "--why", job)
    assert code == errors.UNKNOWN and "is not running (CANCELLED). What its ranks did is in" in " ".join(err.split())


def test_a_job_that_hangs_after_its_terminal_has_gone_is_stopped(cluster: Cluster, here: Path) -> None:
    code, out, err = mgpu(cluster, here, "--slurm", "--detach", "--on-hang", "stop", *LAUNCH, "train.py", "sleeps")
    assert code == 0, err
    assert cluster.ended(out.strip(), 90)["JobState"] == "CANCELLED"


def test_an_allocation(cluster: Cluster, here: Path) -> None:
    """The script runs here, and only it is stopped: the allocation goes on."""
    words = [sys.executable, "-m", "mgpu", "launch", "--slurm", *LAUNCH, "--on-hang", "stop", "train.py", "sleeps"]
    done = cluster.run(
        "salloc", "--nodes=2", "--ntasks-per-node=1", "--time=5", "--quiet", "sh", "-c",
        '"$@" 2>err; echo "code $?"; ls -d /tmp/mgpu-*-$SLURM_JOB_ID-*; '
        "srun --ntasks=1 --nodes=1 echo goes on", "sh", *words, timeout=180, cwd=here,
        env={"OMP_NUM_THREADS": "1", "HOME": str(here / "home"), "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    said = " ".join((here / "err").read_text().split())
    assert done.stdout.endswith("code 124\ngoes on\n"), done.stdout + done.stderr + said
    assert "rank 1 sleeps at train.py:10" in said and "[hang_rank_sleeps]" in said
    assert json.loads((here / "logs" / "result.json").read_text())["probable_cause"]["id"] == "hang_rank_sleeps"


def test_a_detached_run_in_an_allocation(cluster: Cluster, here: Path) -> None:
    """Its verdict is there for --status and --why while it hangs, and in the report of its end."""
    words = [sys.executable, "-m", "mgpu", "launch"]
    (here / "steps.sh").write_text(
        'run=$("$@" --slurm --detach ' + " ".join(LAUNCH) + " train.py sleeps)\n"
        'for _ in $(seq 60); do "$@" --status $run >status; grep -q "^Hang" status && break; sleep 1; done\n'
        '"$@" --why $run >why; echo "why $?"; "$@" --stop $run; "$@" --attach $run\n'
        'ls -d /tmp/mgpu-*-$SLURM_JOB_ID-*; squeue -s -h -j $SLURM_JOB_ID -o "step %j"\n'
    )
    done = cluster.run(
        "salloc", "--nodes=2", "--ntasks-per-node=1", "--time=5", "--quiet", "sh", "steps.sh", *words, timeout=180,
        cwd=here, env={"OMP_NUM_THREADS": "1", "HOME": str(here / "home"), "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "rank 1 sleeps at train.py:10" in " ".join((here / "status").read_text().split()), said
    assert "Rank 1 sleeps at train.py:10" in (here / "why").read_text() and "why 1\n" in said, said
    assert "no progress for" in (here / "logs" / "mgpu.log").read_text()
    assert json.loads((here / "logs" / "result.json").read_text())["hang"]["id"] == "hang_rank_sleeps"
    assert "/tmp/mgpu-" not in done.stdout and "mgpu-watch" not in done.stdout, "the watch ended with the run"


def test_a_job_that_trains_is_silent(cluster: Cluster, here: Path) -> None:
    """A script of the user, whose `wait` does not wait for the watch; its output is the program's alone."""
    (here / "job.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --time=5\nset -eu\n"
        f"export PATH={Path(sys.executable).parent}:$PATH\n"
        "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\n"
        "srun torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id $SLURM_JOB_ID"
        " --rdzv-endpoint $head:29871 short.py trains &\nwait\necho done\n"
    )  # fmt: skip
    (here / "short.py").write_text(TRAIN.replace("100000", "20") + "print('trained', flush=True)\n")
    given = ("--slurm", "--no-preflight", "--yes", "--log-dir", "logs", "job.sbatch")
    code, out, err = mgpu(cluster, here, *given)
    assert code == 0, err + out
    # torch may warn about connections that the other rank has closed
    assert sorted(line for line in out.splitlines() if line in ("done", "trained")) == ["done", "trained", "trained"]
    assert "mgpu" not in out
    assert "progress" not in err and "Recorder inserted before line 6" in " ".join(err.split())
    assert watch_block.BEGIN in (here / "logs" / "job.sbatch").read_text()
    assert cluster.quiet() == []
    code, out, err = mgpu(cluster, here, *given[:-1], "--no-recorder", "--dry-run", "job.sbatch")
    assert code == 0 and "MGPU_RECORDER" not in out


def test_a_job_without_a_recorder(cluster: Cluster, here: Path) -> None:
    (here / "plain.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=1 --time=5\nsleep 300\n")
    job = cluster.batch(here / "plain.sbatch")
    cluster.until(job, ["RUNNING"])
    code, _, err = mgpu(cluster, here, "--slurm", "--why", job)
    assert code == errors.UNKNOWN and "has no recorder" in err
    cluster.run("scancel", job)


def test_the_block_is_harmless(tmp_path: Path) -> None:
    """Without mgpu, without Slurm, with `set -eu`, in dash; and with MGPU_RECORDER=0."""
    text = "set -eu\n" + "\n".join(watch_block.lines(Watch("/none/python", 30.0), str(tmp_path / "a b")))
    shown = '\nenv | grep -E "^(MGPU_RECORDER|PYTHONPATH)=" || echo nothing\n'
    for shell in ("bash", "dash"):
        given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "PYTHONPATH": "/mine"}
        done = subprocess.run([shell, "-c", text + shown], env=given, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert sorted(done.stdout.splitlines()) == [
            f"MGPU_RECORDER=/tmp/mgpu-{os.getuid()}-7-%N/recorder", f"PYTHONPATH={watch_block.INJECTED}:/mine"
        ]  # fmt: skip
        given["MGPU_RECORDER"] = "0"
        done = subprocess.run([shell, "-c", text + shown], env=given, capture_output=True, text=True, check=True)
        assert sorted(done.stdout.splitlines()) == ["MGPU_RECORDER=0", "PYTHONPATH=/mine"]


@pytest.mark.parametrize("how", ["link", "open to others"])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, how: str) -> None:
    (tmp_path / "theirs").mkdir()
    if how == "link":
        (tmp_path / "mine").symlink_to(tmp_path / "theirs")
    else:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine").chmod(0o777)
    with pytest.raises(PermissionError):
        _mgpu_recorder.make_own(str(tmp_path / "mine" / "recorder"))
    assert not list((tmp_path / "theirs").iterdir())
    _mgpu_recorder.make_own(str(tmp_path / "new" / "recorder"))
    _mgpu_recorder.make_own(str(tmp_path / "new" / "recorder"))
    assert (tmp_path / "new" / "recorder").stat().st_mode & 0o777 == 0o700


def test_a_process_that_is_no_rank_yet_writes_into_no_folder_of_others(tmp_path: Path) -> None:
    """An exception before the ranks start is the first thing written on that node."""
    (tmp_path / "theirs" / "recorder").mkdir(parents=True)
    (tmp_path / "mgpu-0-7-n1").symlink_to(tmp_path / "theirs")
    script = tmp_path / "fails.py"
    script.write_text("1/0\n")
    for node, at in (("n1", "theirs/recorder"), ("n2", "mgpu-0-7-n2/recorder")):
        recorded = tmp_path / "mgpu-0-7-%N" / "recorder"
        variables = environment(tmp_path, {"MGPU_RECORDER": str(recorded), "SLURMD_NODENAME": node})
        variables["PYTHONPATH"] = str(watch_block.INJECTED)
        done = subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
        assert bool(list((tmp_path / at).glob("0.*.raised"))) == (node == "n2")
    assert (tmp_path / "mgpu-0-7-n2").stat().st_mode & 0o777 == 0o700


def test_ranks_are_found_by_their_files(tmp_path: Path) -> None:
    """Not a process that has the number of a rank by now, nor a worker of a rank."""
    recorded = tmp_path / "mgpu-0-7-%N" / "recorder"
    code = "import os, sys, time\nchild = os.fork()\nprint('there', flush=True) if child else None\ntime.sleep(60)\n"
    variables = environment(tmp_path, {"MGPU_RECORDER": str(recorded), "SLURMD_NODENAME": "n1", "RANK": "3"})
    variables["PYTHONPATH"] = str(watch_block.INJECTED)
    process = subprocess.Popen([sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"there\n"
        place = tmp_path / "mgpu-0-7-n1" / "recorder"
        wait_for(lambda: len(list(place.glob("*.stacks"))) == 2, 10)
        (place / f"5.{os.getpid()}.stacks").touch()
        assert node_watch.ranks_in(place) == {3: processes.Rank(process.pid)}
    finally:
        for pid in reversed(processes.with_descendants(process.pid)):
            os.kill(pid, 9)
        process.communicate()
    time.sleep(0.1)
    assert node_watch.ranks_in(place) == {} and node_watch.ranks_in(tmp_path / "none") == {}
