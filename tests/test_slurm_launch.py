"""`mgpu launch --slurm`: a job is submitted, followed to its end, cancelled with whoever follows it; inside an
allocation its script runs there. A real Slurm, whose jobs do not import torch; what takes minutes is told by a scontrol
of our own.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.config.reading import CPU_JOB, for_engine
from mgpu.engine import root_cause
from mgpu.errors import MgpuError
from mgpu.job_files import insert, preflight_block
from mgpu.launch.request import Request
from mgpu.process.tail import Tail
from mgpu.readers.job_script import read as job_script_read
from mgpu.readers.log import read
from mgpu.report.screen import Screen
from mgpu.scheduler import sbatch_errors
from mgpu.scheduler.client import Answer
from mgpu.slurm import in_allocation, job_outcome, prepare, record, report, run, salloc
from mgpu.slurm.follow import Followed, ReceivedSignals, follow
from tests.conftest import environment
from tests.slurm import Cluster

_LONGEST_S = 60

# ---- A real Slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=2, cpus=4)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)


class Launched:
    """`mgpu launch --slurm ARGS`, in a folder of its own."""

    def __init__(self, cluster: Cluster, folder: Path, *arguments: str, before: Sequence[str] = ()) -> None:
        (folder / "home").mkdir(exist_ok=True)
        added = {"SLURM_CONF": cluster.environment["SLURM_CONF"]}
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "mgpu", "launch", "--slurm", *arguments], cwd=folder,
            env=environment(folder / "home", added), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def end(self, timeout: float = _LONGEST_S) -> tuple[int, bytes, str]:
        """Exit code, stdout, stderr."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        return self.process.returncode, out, err.decode()

    def until(self, word: bytes) -> bytes:
        """What it prints until a word is there."""
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        said, limit = b"", time.monotonic() + _LONGEST_S
        while word not in said:
            assert time.monotonic() < limit and self.process.poll() is None, said
            said += self.process.stdout.read() or b""
            time.sleep(0.02)
        os.set_blocking(self.process.stdout.fileno(), True)
        return said


def job(folder: Path, *body: str, head: str = "--nodes=1 --time=5", name: str = "job.sbatch") -> str:
    (folder / name).write_text("\n".join(["#!/bin/bash", f"#SBATCH {head}", *body]) + "\n")
    return name


def number_of(said: str) -> str:
    found = re.search(r"\bjob (\d+)", said)
    assert found, said
    return found[1]


@pytest.mark.parametrize("code", [0, 7])
def test_a_job_is_followed_to_its_end(cluster: Cluster, tmp_path: Path, code: int) -> None:
    script = job(
        tmp_path,
        r"printf 'half a '; until [ -e go ]; do sleep 0.05; done; printf 'line\n\xff\x00 bytes'",
        "srun bash -c 'exit $0' \"$1\"",
        head=f"--output={tmp_path}/new/sub/%j.out --nodes=1 --time=5",
    )
    launched = Launched(cluster, tmp_path, "--no-preflight", "--log-dir", "logs", script, str(code))
    said = launched.until(b"half a ")  # it comes while the job goes on, and without an end of the line
    (tmp_path / "go").touch()
    ended_with, out, err = launched.end()
    assert ended_with == code
    # Slurm makes no folder: the job would fail, and nothing would tell why.
    assert "created " in err
    output = next(tmp_path.glob("new/sub/*.out")).read_bytes()
    assert said + out == output and output.startswith(b"half a line\n\xff\x00 bytes")
    document = json.loads((tmp_path / "logs" / "result.json").read_text())
    assert document["exit_code"] == code and document["slurm"]["nodes"] == "node1"
    if code:
        assert "task 0 on node1, exit code 7" in " ".join(err.split())
    else:
        assert "finished, job" in err and "COMPLETED" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_whoever_stops_mgpu_stops_the_job(cluster: Cluster, tmp_path: Path, number: int, code: int) -> None:
    script = job(tmp_path, "srun bash -c 'echo ready; sleep 300'")
    launched = Launched(cluster, tmp_path, "--no-preflight", script)
    launched.until(b"ready")
    launched.process.send_signal(number)
    ended_with, _, err = launched.end()
    assert ended_with == code
    assert cluster.job_of(number_of(err))["JobState"] == "CANCELLED"
    assert cluster.quiet() == []
    assert f"stopped by {signal.Signals(number).name}" in " ".join(err.split())
    assert "Probable cause" not in err and "First to fail" not in err  # that it was cancelled is no finding


def test_a_job_that_can_never_start_is_no_wait(cluster: Cluster, tmp_path: Path) -> None:
    """sbatch takes a time limit over the partition's, and the job would wait for ever."""
    launched = Launched(cluster, tmp_path, "--no-preflight", "--time", "10:00:00", job(tmp_path, "srun true"))
    code, out, err = launched.end()
    assert (code, out) == (errors.LAUNCH_REFUSED, b"")
    assert "NOT STARTED" in err and "PartitionTimeLimit" in err
    assert "end of the job's output" not in err and "\nLog " not in err  # there is none
    assert cluster.job_of(number_of(err))["JobState"] == "CANCELLED"
    launched = Launched(cluster, tmp_path, "--no-preflight", "--detach", "--time", "10:00:00", "job.sbatch")
    code, out, err = launched.end()  # nobody would be there to see it wait
    assert (code, out) == (errors.LAUNCH_REFUSED, b"")
    assert "NOT STARTED" in err and "PartitionTimeLimit" in err and "cancelled it" in err
    assert cluster.job_of(number_of(err))["JobState"] == "CANCELLED"


def test_a_job_is_left_found_and_ended(cluster: Cluster, tmp_path: Path) -> None:
    script = job(tmp_path, "echo ready; sleep 300")
    code, out, err = Launched(cluster, tmp_path, "--no-preflight", "--detach", script).end()
    number = out.decode().strip()
    assert code == 0 and number.isdecimal() and f"--attach {number}" in err
    following = Launched(cluster, tmp_path, "--attach", number)
    following.until(b"ready")
    following.process.send_signal(signal.SIGINT)
    code, _, err = following.end()
    assert code == errors.INTERRUPTED and "is still running" in err
    code, out, _ = Launched(cluster, tmp_path, "--status", number).end()
    assert code == 0 and b"RUNNING" in out and b"node1" in out
    code, _, err = Launched(cluster, tmp_path, "--stop", number).end()
    assert code == 0 and "has ended (CANCELLED)" in err
    code, out, err = Launched(cluster, tmp_path, "--attach", number).end()  # of one that is over: its end
    assert code == 143 and out.startswith(b"ready") and "CANCELLED" in err


_TABLE = """\
t.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_02:12:56
  host      : somewhere.else
  rank      : 3 (local_rank: 1)
  exitcode  : 9 (pid: 10132)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_the_rank_that_fails_is_named_with_its_node(cluster: Cluster, tmp_path: Path) -> None:
    """A launcher ends with 1 whatever its rank ended with, and srun with the highest code of all tasks."""
    (tmp_path / "table").write_text(_TABLE)
    on_node = "if [ $SLURM_PROCID = 1 ]; then cat table; exit 1; fi; sleep 300"
    script = job(tmp_path, f"srun --kill-on-bad-exit=1 --label bash -c '{on_node}'", head="--nodes=2 --time=5")
    code, _, err = Launched(cluster, tmp_path, "--no-preflight", "--json-result", "end.json", script).end()
    document = json.loads((tmp_path / "end.json").read_text())
    assert code == document["exit_code"] == 9
    assert (document["first_failure"]["rank"], document["first_failure"]["host"]) == (3, "node2")
    assert "rank 3 (host node2), exit code 9" in err
    assert document["probable_cause"]["id"] == "run_rank_failed"  # and not that srun ended the others
    number = str(document["slurm"]["job"])
    assert f"mgpu launch --slurm --report {number}" in err
    code, _, err = Launched(cluster, tmp_path, "--report", "--json-result", "case.json", number).end()
    assert code == 0, err
    case = json.loads((tmp_path / "case.json").read_text())
    assert case["probable_cause"]["id"] == "run_rank_failed" and case["headline"]["word"] == "FAILED"
    assert case["first_failure"]["rank"] == 3 and [one["rank"] for one in case["run"]["ranks"]] == [3]
    assert (tmp_path / f"mgpu-report-job-{number}.html").stat().st_size > 10_000
    code, _, err = Launched(cluster, tmp_path, "--report", "999999").end()
    assert code == errors.USAGE and "no result of job 999999" in err


def test_a_script_runs_in_the_allocation_that_is_there(cluster: Cluster, tmp_path: Path) -> None:
    script = job(
        tmp_path, 'echo "$SLURM_SUBMIT_DIR $SLURM_JOB_NUM_NODES"', "srun bash -c 'echo on $SLURMD_NODENAME'",
        'exit "$1"', head="--nodes=2 --ntasks-per-node=1",
    )  # fmt: skip
    shell = ("salloc", "--nodes=2", "--immediate=30")
    launched = Launched(cluster, tmp_path, "--no-preflight", script, "5", before=shell)
    code, out, err = launched.end()
    assert code == 5, err
    assert {b"on node1", b"on node2", f"{tmp_path} 2".encode()} <= set(out.splitlines())
    assert "nothing is submitted" in err
    assert "before it started a rank" not in err  # the ranks of a step are nobody's children here
    step = ("salloc", "--nodes=2", "--immediate=30", "srun", "--nodes=1", "--ntasks=1")
    code, out, err = Launched(cluster, tmp_path, "--no-preflight", script, "0", before=step).end()
    assert code == 0 and {b"on node1", b"on node2"} <= set(out.splitlines()), err
    small = ("salloc", "--nodes=1", "--immediate=30")
    code, _, err = Launched(cluster, tmp_path, "--no-preflight", script, before=small).end()
    assert code == errors.LAUNCH_REFUSED and "requests 2 nodes" in err
    assert cluster.quiet() == []


def test_ctrl_c_in_an_allocation_ends_the_step(cluster: Cluster, tmp_path: Path) -> None:
    """srun takes a single SIGINT for a question, and its tasks here none at all."""
    task = 'trap "" INT TERM; echo ready; while true; do sleep 0.2; done'
    script = job(tmp_path, f"srun bash -c '{task}'", head="--nodes=2")
    shell = ("salloc", "--nodes=2", "--immediate=30", "bash", "-c", 'echo $$ > pid; exec "$@"', "bash")
    launched = Launched(cluster, tmp_path, "--no-preflight", script, before=shell)
    launched.until(b"ready")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGINT)
    code, _, err = launched.end()
    assert code == 130 and "Interrupted after" in err
    assert cluster.quiet() == []


def test_what_slurm_would_refuse_is_explained(cluster: Cluster, tmp_path: Path) -> None:
    jobs = cluster.run("squeue", "-h", "-t", "all", "-o", "%i").stdout
    for options, said in {
        ("--nodes", "9"): "no node in the partition matches",
        ("--partition", "nope"): "partition nope does not exist",
    }.items():
        code, _, err = Launched(cluster, tmp_path, "--no-preflight", *options, job(tmp_path, "srun true")).end()
        assert code == errors.LAUNCH_REFUSED and said in err
    assert not (tmp_path / ".mgpu/runs").exists()
    head = f"--output={tmp_path}/new/sub/%j.out --nodes=1 --time=5"
    code, out, err = Launched(
        cluster, tmp_path, "--no-preflight", "--dry-run", job(tmp_path, "srun true", head=head)
    ).end()
    assert code == 0 and out == (tmp_path / "job.sbatch").read_bytes() and "would create" in err
    assert not (tmp_path / "new").exists()
    assert cluster.run("squeue", "-h", "-t", "all", "-o", "%i").stdout == jobs  # nothing was submitted


def test_a_controller_that_is_away_is_not_the_end(cluster: Cluster, tmp_path: Path) -> None:
    controller = int((cluster.folder / "slurmctld.pid").read_text())
    script = job(tmp_path, "echo ready; until [ -e go ]; do sleep 0.05; done; echo done")
    launched = Launched(cluster, tmp_path, "--no-preflight", script)
    said = launched.until(b"ready")
    try:
        os.kill(controller, signal.SIGSTOP)
        (tmp_path / "go").touch()
        said += launched.until(b"done")  # the output goes on
        time.sleep(1.5)
        assert launched.process.poll() is None
    finally:
        os.kill(controller, signal.SIGCONT)
    code, out, err = launched.end()
    assert (code, said + out) == (0, b"ready\ndone\n"), err


# ---- What takes Slurm minutes, told by a scontrol of our own

_SAYS = """\
#!/bin/bash
# Answers with the next of the files 1, 2 ... beside it; with the last one for ever. A file `gone` makes it forget.
cd "$(dirname "$0")"
[ -e gone ] && { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
n=$(($(cat at 2>/dev/null || echo 0) + 1)); [ -e "$n" ] || n=$((n - 1)); echo "$n" > at
cat "$n"
"""


def saying(folder: Path, states: Sequence[str], monkeypatch: pytest.MonkeyPatch, sacct: str = "") -> None:
    for number, said in enumerate(states, 1):
        (folder / str(number)).write_text(said + "\n")
    programs = {"scontrol": _SAYS, "sacct": f"#!/bin/bash\necho '{sacct}'\n" if sacct else "#!/bin/bash\nexit 1\n",
                "scancel": '#!/bin/bash\necho "$@" >> "$(dirname "$0")/cancelled"\n'}  # fmt: skip
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def says(folder: Path, state: str, reason: str = "None", restarts: int = 0, code: str = "0:0") -> str:
    nodes = "node[1-2]" if state not in ("PENDING", "REQUEUE_HOLD") else ""
    return (
        f"JobId=12 JobName=a b UserId=root(0) JobState={state} Reason={reason} Restarts={restarts} ExitCode={code} "
        f"StartTime=2026-11-22T01:56:24 NodeList={nodes} NumNodes=2 StdErr={folder}/out StdOut={folder}/out Power="
    )


def followed(said: list[str], **options: Any) -> Followed:
    with ReceivedSignals() as signals:
        return follow(12, signals, say=lambda text, style: said.append(text), **options)


def test_a_job_that_is_queued_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "out").write_bytes(b"from the checkpoint\n")
    states = [("RUNNING", "None", 0), ("COMPLETING", "None", 0), ("PENDING", "BeginTime", 1), ("RUNNING", "None", 1)]
    saying(tmp_path, [*(says(tmp_path, *one) for one in states), says(tmp_path, "COMPLETED", "None", 1)], monkeypatch)
    said: list[str] = []
    end = followed(said)
    assert end.state == "COMPLETED" and job_outcome.exit_status(end, job_outcome.Found()) == 0
    assert any("requeued (restart 1)" in line for line in said)
    assert capfdbinary.readouterr().out == b"from the checkpoint\n"


def test_what_another_machine_writes_late_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The job is over for Slurm, and the end of its output is seen here only later."""
    (tmp_path / "out").write_bytes(b"first ")
    saying(tmp_path, [says(tmp_path, "RUNNING"), says(tmp_path, "COMPLETED")], monkeypatch)
    rest, again = [b"second ", b"", b"last"], Tail.again

    def arrive(tail: Tail) -> None:
        again(tail)
        if tail.path and rest:
            with (tmp_path / "out").open("ab") as file:
                file.write(rest.pop(0))

    monkeypatch.setattr(Tail, "again", arrive)
    assert followed([]).state == "COMPLETED"
    assert capfdbinary.readouterr().out == b"first second last"


def test_a_job_that_slurm_holds_is_no_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = says(tmp_path, "PENDING", "launch_failed_requeued_held", 1)
    saying(tmp_path, [says(tmp_path, "CONFIGURING"), held], monkeypatch)
    end = followed([])
    assert "Prolog" in end.held and job_outcome.exit_status(end, job_outcome.Found()) == errors.NOT_READY
    assert not (tmp_path / "cancelled").exists()  # it may be released


def test_a_job_that_slurm_has_forgotten_is_asked_of_the_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = "FAILED|3:0|node[1-2]|2026-11-22T01:56:24|None|a|02:00:00|0|gpu"
    saying(tmp_path, [says(tmp_path, "RUNNING")], monkeypatch, known)
    (tmp_path / "gone").touch()
    end = followed([])
    assert (end.state, job_outcome.exit_status(end, job_outcome.Found())) == ("FAILED", 3)
    assert end.seconds == 7200  # and not how long somebody looked
    saying(tmp_path, [], monkeypatch)
    assert job_outcome.exit_status(followed([]), job_outcome.Found()) == errors.UNKNOWN  # nobody knows it: never 0


def test_a_controller_that_does_not_answer_has_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    monkeypatch.setattr(record, "query", lambda job: types.SimpleNamespace(wait=lambda: silent))
    monkeypatch.setattr(record, "read_accounting", lambda job: None)
    with pytest.raises(MgpuError, match="cannot query Slurm about job 7") as refused:
        record.read_record(7)
    assert refused.value.exit_code == errors.UNKNOWN


def test_no_step_is_ended_that_may_be_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Slurm did not say which steps there were before, none is known to be of the script."""
    said = Answer(0, "7.0\n7.1\n7.batch\n", "")
    ended_: list[str] = []

    def ask(*words: str, limit_s: float) -> Answer:
        ended_.extend(words[1:] if words[0] == "scancel" else ())
        return said

    monkeypatch.setattr("mgpu.scheduler.client.ask", ask)
    monkeypatch.setattr("mgpu.scheduler.client.is_there", lambda name: True)
    monkeypatch.setattr(in_allocation, "_ENDING_S", 0.3)
    here = salloc.Allocation("7", 2, None, False)
    in_allocation._end_steps(here, None)
    assert ended_ == []
    in_allocation._end_steps(here, frozenset({"7.0"}))
    assert ended_ == ["--signal=TERM", "7.1", "7.1"]  # it does not end


def test_a_second_signal_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saying(tmp_path, [says(tmp_path, "RUNNING")], monkeypatch)
    signals = ReceivedSignals()
    signals.came = [signal.SIGINT, signal.SIGINT]
    end = follow(12, signals, say=lambda text, style: None)
    assert end.left and job_outcome.exit_status(end, job_outcome.Found()) == 130
    assert (tmp_path / "cancelled").read_text() == "12\n"  # Slurm has heard of it all the same


# ---- Records, exit codes, reasons


def test_a_record_of_the_accounting_of_any_release() -> None:
    new = record.parse_sacct(12, "CANCELLED by 0|0:15|n[1-2]|2026-11-22T01:56:24|None|a|1-02:00:03|1|gpu\n")
    assert new is not None and (new.state, new.signal, new.restarts) == ("CANCELLED", 15, 1)
    assert new.ran_s == 26 * 3600 + 3
    old = record.parse_sacct(12, "TIMEOUT|0:0|n1|Unknown|None|a|00:01:00\n", record._SACCT_OLD)
    assert old is not None and (old.state, old.start, old.ran_s) == ("TIMEOUT", "", 60)
    assert record.parse_sacct(12, "\n") is None


def test_a_file_with_patterns_that_scontrol_leaves() -> None:
    one = record.Record(12, "RUNNING", name="train", nodes="n7", restarts=2)
    assert record.files("/x/%x-%j-%r.out", one) == ("/x/%x-%j-%r.out", "/x/train-12-2.out")
    assert record.files("", one) == ()


@pytest.mark.parametrize(
    ("state", "code", "signalled", "expected"),
    [
        ("COMPLETED", 0, 0, 0), ("FAILED", 7, 0, 7), ("FAILED", 0, 9, 137), ("TIMEOUT", 0, 0, 143),
        ("CANCELLED", 0, 15, 143), ("OUT_OF_MEMORY", 0, 125, 137), ("NODE_FAIL", 0, 0, 1), ("BOOT_FAIL", 0, 0, 1),
        ("PREEMPTED", 0, 0, 143), ("DEADLINE", 0, 0, 143),
    ],
)  # fmt: skip
def test_the_exit_status_of_a_state(state: str, code: int, signalled: int, expected: int) -> None:
    assert job_outcome.state_code(record.Record(12, state, exit_code=code, signal=signalled)) == expected


def test_the_first_failure_of_several_nodes(tmp_path: Path) -> None:
    """The node by the label of its line; of two that fell in the same second, the one with a code of its own."""
    late = _TABLE.replace("02:12:56", "02:12:58").replace("rank      : 3", "rank      : 0").replace(": 9 (", ": 4 (")
    same = _TABLE.replace("rank      : 3", "rank      : 1").replace(": 9 (", ": 1 (")
    for first, second in ((late, _TABLE), (same, _TABLE), (_TABLE, late)):
        text = "".join(f"0: {line}\n" for line in first.splitlines())
        text += "".join(f"1: {line}\n" for line in second.splitlines())
        (tmp_path / "slurm-12.out").write_text(text + "srun: error: n8: task 1: Killed\n")
        asked = record.Record(12, "FAILED", exit_code=137, nodes="n[7-8]")
        one = Followed(12, asked, 1.0, output=str(tmp_path / "slurm-12.out"))
        found = job_outcome.read_outcome(one)
        assert found.first is not None
        node = "n7" if first is _TABLE else "n8"
        assert (found.first.rank, found.first.host, found.first.exit_code) == (3, node, 9)
        assert job_outcome.exit_status(one, found) == 9


@pytest.mark.parametrize("code", [9, 1])
def test_the_store_that_went_with_the_first_launcher_is_no_cause(code: int, tmp_path: Path) -> None:
    """Recorded with torch 2.13: rank 3 ended by itself, then its launcher, and with it the store of the other node."""
    table = "".join(f"0: {line}\n" for line in _TABLE.replace(": 9 (", f": {code} (").splitlines())
    lost = "1: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the "
    (tmp_path / "slurm-12.out").write_text(f"{table}{lost}remote server shutdown or crash?\n")
    asked = record.Record(12, "FAILED", exit_code=1, nodes="n[7-8]")
    one = Followed(12, asked, 1.0, output=str(tmp_path / "slurm-12.out"))
    run_ = job_outcome.run_of(one, job_outcome.read_outcome(one), code, None)
    first = root_cause.find_cause(read.read_logs([tmp_path / "slurm-12.out"]), run_).first
    assert first is not None and first.id == "run_rank_failed"


def test_the_nodes_that_the_preflight_left_count_the_tasks(tmp_path: Path) -> None:
    """With a spare node, task 1 is on another node than the second of the job."""
    folder = tmp_path / "preflight-12"
    folder.mkdir()
    (folder / "hostfile").write_text("n7\nn9\n")
    (tmp_path / "slurm-12.out").write_text("".join(f"1: {line}\n" for line in _TABLE.splitlines()))
    asked = record.Record(12, "FAILED", exit_code=1, nodes="n[7-9]")
    found = job_outcome.read_outcome(Followed(12, asked, 1.0, output=str(tmp_path / "slurm-12.out")))
    assert found.first is not None and found.first.host == "n9"


def test_files_of_single_nodes_tell_the_node(tmp_path: Path) -> None:
    (tmp_path / "train-12.out").write_text("hello\n")
    (tmp_path / "train-12-n1.log").write_text(_TABLE)
    (tmp_path / "train-112-n0.log").write_text(_TABLE.replace(": 9 (", ": 5 ("))  # another job's
    asked = record.Record(12, "FAILED", exit_code=1, nodes="gpu[01-02]")
    found = job_outcome.read_outcome(Followed(12, asked, 1.0, output=str(tmp_path / "train-12.out")))
    assert found.first is not None and (found.first.host, found.first.exit_code) == ("gpu02", 9)
    assert job_outcome.node_in(tmp_path / "x-gpu01.log", tmp_path, ("gpu01", "gpu011")) == "gpu01"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "--account"),
        ("sbatch: error: Unable to open file nope", "cannot be read"),
        ('sbatch: error: "$N" is not a valid node count', "do not expand shell variables"),
        ("sbatch: error: unrecognized option '--nodez=2'\nTry \"sbatch --help\" for more information", "--nodez=2"),
        ("sbatch: error: Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead of UNIX line breaks",
         "Windows line endings"),
        ("sbatch: error: something new", "something new"),
        ("", "without a reason"),
    ],
)  # fmt: skip
def test_refusals_in_words(text: str, said: str) -> None:
    assert said in sbatch_errors.explain(text)


def test_reasons_in_words() -> None:
    assert (
        sbatch_errors.explain_waiting("PartitionTimeLimit").never
        and sbatch_errors.explain_waiting("QOSMaxGRESPerJob").never
    )
    assert (
        sbatch_errors.explain_waiting("QOSMaxWallDurationPerJobLimit").never
        and sbatch_errors.explain_waiting("AssocMaxNodePerJobLimit").never
    )
    for passing in (
        "Resources",
        "Priority",
        "QOSMaxGRESPerUser",
        "AssocGrpGRES",
        "PartitionConfig",
        "",
        "SomethingNew",
    ):
        wait = sbatch_errors.explain_waiting(passing)
        assert wait.words and not wait.never and not wait.held
    assert "n[3,7]" in sbatch_errors.explain_waiting("ReqNodeNotAvail,_UnavailableNodes:n[3,7]").words
    assert sbatch_errors.explain_waiting("launch_failed_requeued_held").held
    assert record.is_dropped(Answer(1, "", "slurm_load_jobs error: Invalid job id specified"))


def test_a_file_that_is_begun_anew_is_read_anew(tmp_path: Path) -> None:
    path, tail = tmp_path / "out", Tail()
    assert tail.read((str(path),)) == b""
    path.write_bytes(b"first run")
    assert tail.read(("nope", str(path))) == b"first run"
    path.write_bytes(b"second")
    assert tail.read(("nope", str(path))) == b"second" and tail.begun_anew == 1
    tail.close()


def test_what_the_preflight_found_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "preflight-12"
    folder.mkdir(parents=True)
    bad = [{"node": "n8", "reason": "n8: no GPU"}]
    found = {"schema": "mgpu.preflight/1.0", "need": 2, "good": ["n7"], "chosen": [], "bad": bad}
    (folder / "preflight.json").write_text(json.dumps(found))
    (tmp_path / "slurm-12.out").write_text("FAILED\n")
    asked = record.Record(12, "FAILED", exit_code=1, nodes="n[7-8]", script=str(tmp_path / "runs" / "job.sbatch"))
    end = Followed(12, asked, 1.0, output=str(tmp_path / "slurm-12.out"))
    run = job_outcome.run_of(end, job_outcome.Found(), 1, None)
    document, _ = report._document(end, job_outcome.read_outcome(end), run, None, triage=True, config=None)
    screen = Screen(80, glyphs=False, colour=False, stream=io.StringIO())
    said = " ".join("".join(text for text, _ in line) for line in report.lines(document, screen))
    assert "training not started: 1 healthy node, 2 needed. n8: no GPU" in " ".join(said.split())
    found_by_preflight = document["slurm"]["preflight"]
    assert found_by_preflight is not None and found_by_preflight["chosen"] == []


def told_of(record_: record.Record, **changes: object) -> str:
    """What is said at the end of a job."""
    end = Followed(record_.job, record_, 7200.0, **changes)  # type: ignore[arg-type]
    found = job_outcome.Found(task=job_outcome.Task("n1", "0", 143))
    run = job_outcome.run_of(end, found, job_outcome.exit_status(end, found), None)
    document, _ = report._document(end, found, run, None, triage=False, config=None)
    screen = Screen(80, glyphs=False, colour=False, stream=io.StringIO())
    lines = ["".join(text for text, _ in line) for line in report.lines(document, screen)]
    assert all(len(line) <= 80 for line in lines), lines
    return "\n".join(lines)


def test_a_task_that_slurm_ended_is_not_the_first_to_fail(tmp_path: Path) -> None:
    assert "task 0 on n1" in told_of(record.Record(12, "FAILED", exit_code=143, nodes="n[1-2]"))
    assert "task 0" not in told_of(record.Record(12, "TIMEOUT", nodes="n[1-2]"))
    assert "task 0" not in told_of(record.Record(12, "CANCELLED", nodes="n[1-2]"), signalled=signal.SIGINT)


def test_a_job_that_went_well_without_a_node_says_why(tmp_path: Path) -> None:
    (tmp_path / "preflight-12").mkdir()
    found = {"schema": "mgpu.preflight/1.0", "need": 2, "good": ["n7", "n9"], "chosen": ["n7", "n9"],
             "bad": [{"node": "n8", "reason": "n8: /dev/shm is 1 MiB, too small for 2 ranks"}]}  # fmt: skip
    (tmp_path / "preflight-12" / "preflight.json").write_text(json.dumps(found))
    one = record.Record(12, "COMPLETED", nodes="gpu-of-a-long-name-[0001-0002,0004-0009,0011]")
    said = " ".join(told_of(one, output=str(tmp_path / "slurm-12.out")).split())
    assert "exit 0, 2 h" in said and "n8: /dev/shm is 1 MiB" in said and "sbatch --exclude=n8" in said


def test_where_stderr_is_full_nothing_goes_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        for _ in range(2):
            report.show_plan([("Job", "x")], Screen.of(sys.stderr))
        assert sys.stderr is not full
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), full.fileno())  # what is buffered can be let go
    assert capfd.readouterr().out == ""


def test_in_an_allocation_it_is_told_that_the_preflight_let_nothing_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"schema": "mgpu.preflight/1.0", "need": 2, "good": ["n7"], "chosen": [],
             "bad": [{"node": "n8", "reason": "no GPU"}]}  # fmt: skip
    for chosen, told in ((["n7"], False), ([], True)):
        (tmp_path / "preflight.json").write_text(json.dumps(found | {"chosen": chosen}))
        in_allocation._show_preflight(tmp_path)
        said = " ".join(capsys.readouterr().err.split())
        assert ("1 healthy node, 2 needed. n8: no GPU. salloc --exclude=n8" in said) == told == bool(said)


@pytest.mark.parametrize(("granted", "fits"), [("4(x2)", True), ("8,2(x3)", False), ("", True)])
def test_more_cpus_than_the_allocation_has_are_refused(granted: str, fits: bool, tmp_path: Path) -> None:
    """srun would refuse the step, and the pre-flight take it for nodes that do not answer."""
    (tmp_path / "j.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2 --cpus-per-task=4\nsrun torchrun t.py\n")
    job_ = job_script_read.read(tmp_path / "j.sbatch")
    one = prepare.Prepared("j.sbatch", "", job_, (), (), 2, "", False, None, None)
    here = salloc.Allocation("12", 2, None, False)
    if fits:
        in_allocation._refuse_too_many_cpus(one, here, {"SLURM_JOB_CPUS_PER_NODE": granted})
    else:
        with pytest.raises(errors.MgpuError, match=r"requests 4 CPUs per node.* has 2:  salloc --cpus-per-task=4"):
            in_allocation._refuse_too_many_cpus(one, here, {"SLURM_JOB_CPUS_PER_NODE": granted})


def test_a_script_of_nearly_this_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job(tmp_path, "srun true", name="train.sbatch")
    with pytest.raises(errors.MgpuError, match=r"Did you mean train\.sbatch"):
        prepare.prepare_script(Request(slurm=True), ["trian.sbatch"], tmp_path)


@pytest.mark.parametrize("line", ["#SBATCH --array=0-3", "#SBATCH -W"])
def test_what_cannot_be_followed_is_refused(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "j.sbatch").write_text(f"#!/bin/bash\n{line}\nsrun torchrun t.py\n")
    monkeypatch.setattr("mgpu.scheduler.client.is_there", lambda program="sbatch": True)
    with pytest.raises(errors.MgpuError, match=r"j\.sbatch:2: --") as raised:
        run.run(Request(slurm=True, target=(str(tmp_path / "j.sbatch"),)))
    assert raised.value.exit_code == errors.LAUNCH_REFUSED


def test_no_preflight_switches_off_the_block_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "j.sbatch").write_text(
        "\n".join(
            [
                "#!/bin/bash",
                "#SBATCH -N 2",
                *preflight_block.lines(mgpu="mgpu", need=2, config=None, logs="."),
                "srun t\n",
            ]
        )
    )
    kept = prepare.prepare_script(Request(slurm=True), ["j.sbatch"], tmp_path)
    assert (kept.preflight, kept.changed) == ("in the script", False)
    off = prepare.prepare_script(Request(slurm=True, preflight=False), ["j.sbatch"], tmp_path)
    assert off.changed and "\nMGPU_PREFLIGHT=0" in off.text and "omitted" in off.preflight
    (tmp_path / "j.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2\nmgpu smoke-test --slurm\nsrun t\n")
    own = prepare.prepare_script(Request(slurm=True, preflight=False), ["j.sbatch"], tmp_path)
    assert not own.changed and "cannot remove" in own.preflight


_CONFIG = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 4\n"


@pytest.mark.parametrize(
    ("remarks", "asked", "gpus"),
    [
        ([], None, 2),
        ([CPU_JOB], None, 0),
        ([CPU_JOB], 3, 3),
        ([], 0, 0),
    ],
)
def test_a_config_for_ranks_on_the_cpu_asks_for_no_gpu(
    remarks: list[str], asked: int | None, gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What configure --slurm wrote is known by its comment: else each rank would train by itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "accelerate.yaml").write_text("\n".join([*remarks, for_engine("slurm"), _CONFIG]))
    (tmp_path / "train.py").write_text("from accelerate import Accelerator\n")
    made = prepare.prepare_script(Request(slurm=True, nodes=2, gpus_per_node=asked), ["train.py"], tmp_path)
    assert "mgpu launch --slurm job.sbatch" in made.text and "THIS_FILE" not in made.text
    assert (f"--gpus-per-node={gpus}" in made.text) is (gpus > 0)
    assert ("ACCELERATE_USE_CPU=true" in made.text) is (gpus == 0)
    assert f"SLURM_JOB_NUM_NODES * {gpus or 2}" in made.text


@pytest.mark.parametrize(
    ("preflight", "environ", "nodes", "refused"),
    [
        (True, "1", 2, False),
        (False, "1", 2, True),
        (True, "0", 2, True),
        (False, "1", 3, False),
        (False, "1", None, False),
    ],
)
def test_a_larger_allocation_needs_the_preflight(
    preflight: bool, environ: str, nodes: int | None, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else leaves out the nodes that are too many: the world would be larger than was asked for."""
    monkeypatch.setenv("MGPU_PREFLIGHT", environ)
    (tmp_path / "j.sbatch").write_text("#!/bin/bash\nsrun torchrun t.py\n")
    job_ = job_script_read.read(tmp_path / "j.sbatch")
    one = prepare.Prepared("j.sbatch", "", job_, (), (), nodes, "", False, None, tmp_path / "j.sbatch")
    request, here = (
        Request(slurm=True, preflight=preflight, nodes=nodes),
        salloc.Allocation("12", 3, None, False),
    )
    if refused:
        with pytest.raises(errors.MgpuError, match=r"2 nodes requested, .* has 3, .*--nodes 3"):
            in_allocation._refuse_too_few_nodes(request, one, here)
    else:
        in_allocation._refuse_too_few_nodes(request, one, here)


@pytest.mark.parametrize(
    ("launch", "told"),
    [
        ("srun torchrun train.py", False),
        ("srun --container-image=img.sqsh torchrun train.py", True),
        ("srun apptainer exec --nv img.sif torchrun train.py", True),
        ("srun singularity exec img.sif bash -c 'torchrun train.py'", True),
    ],
)
def test_the_preflight_says_that_it_does_not_examine_an_image(
    launch: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job(tmp_path, launch, head="--nodes=2", name="j.sbatch")
    text = prepare.prepare_script(Request(slurm=True), ["j.sbatch"], tmp_path).text
    assert "smoke-test --slurm" in text
    assert ("checking outside the container" in text) is told


def test_spare_nodes_need_the_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_PREFLIGHT", "0")
    with pytest.raises(errors.MgpuError, match="MGPU_PREFLIGHT=0 does not detect"):
        run.check(Request(slurm=True, spare=1, target=("a.sbatch",)))


# ---- Where the block goes

_SCRIPTS: Mapping[str, tuple[str, int | None]] = {  # text, the line that comes after the block
    "a plain one": ("#SBATCH -N 2\nsource v/bin/activate\nsrun torchrun t.py\n", 4),
    "one that reads its nodes first": (
        "module load x\nnodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )\nh=${nodes[0]}\nsrun torchrun t\n",
        3,
    ),
    "counts in an arithmetic": ("W=$((SLURM_NNODES * 8))\nsource x\ntorchrun t.py\n", 2),
    "a count in an if": ("if true; then\n  W=$SLURM_NNODES\nfi\nsrun torchrun t.py\n", 2),
    "a line that goes on": ("echo hi\nsrun --a \\\n  --b \\\n  torchrun t.py\n", 3),
    "a here-document": ("cat > x.sh <<'EOF'\nsrun torchrun t.py\nEOF\nsrun bash x.sh\n", 5),
    "a function": ("go() {\n  srun torchrun t.py\n}\nsource x\ngo\n", 6),
    "a loop": ("a=1\nfor i in 1 2; do\n  srun torchrun t.py\ndone\n", 3),
    "words in quotes": ('echo "now\nsrun x"\nsrun torchrun t.py\n', 4),
    "a command in a variable": ('export L="accelerate launch \\\n  --x"\necho ok\nsrun bash -c "$L t.py"\n', 5),
    "nodes that are only told": ("echo $SLURM_JOB_NODELIST\nsource x\nsrun torchrun t.py\n", 4),
    "a case": ("case $1 in\n  a) echo x ;;\n  *) srun torchrun t.py ;;\nesac\n", 2),
    "an address": ("ip=$(srun --nodes=1 hostname)\nsrun torchrun t.py\n", 2),
    "in the background": ("trap 'echo x' USR1\nsrun torchrun t.py &\nwait\n", 3),
    "a launch in a trap": ("trap 'srun torchrun save.py' USR1\nsource x\nsrun torchrun t.py\n", 4),
    "remarks": ("# srun x\necho a # srun b\nsrun torchrun t.py\n", 4),
    "nothing that launches": ("echo hi\n", None),
}


@pytest.mark.parametrize("what", _SCRIPTS)
def test_the_block_goes_before_the_first_launch(what: str, tmp_path: Path) -> None:
    body, line = _SCRIPTS[what]
    text = f"#!/bin/bash\n{body}"
    (tmp_path / "job.sbatch").write_text(text)
    place = insert.place(job_script_read.read(tmp_path / "job.sbatch"))
    assert place == line
    if place is not None:
        made = insert.with_block(text, "# >>>\ntrue\n# <<<", place)
        assert made.replace("# >>>\ntrue\n# <<<\n", "") == text  # all else byte for byte
        assert made.split("\n")[place - 1 :][:3] == ["# >>>", "true", "# <<<"]


@pytest.mark.parametrize("shebang", ["#!/bin/tcsh", "#!/usr/bin/env python3"])
def test_no_block_in_another_language(shebang: str, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(f"{shebang}\n#SBATCH -N 2\nsrun torchrun t.py\n")
    assert insert.place(job_script_read.read(tmp_path / "job.sbatch")) is None


# ---- Options


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Request(target=("a.sbatch",), gpus="2"), "--gpus-per-node"),
        (Request(target=("a.sbatch",), node=1), "--node-rank"),
        (Request(target=("a.sbatch",), watch=True), "--watch"),
        (Request(target=("a.sbatch",), spare=1, preflight=False), "--no-preflight"),
        (Request(target=("a.sbatch",), time="1 2"), "--time"),
        (Request(target=("a.sbatch",), partition="--wrap=x"), "--partition"),
        (Request(target=("a.sbatch",), print_command=True), "--dry-run"),
        (Request(attach=True), "needs a job number"),
        (Request(attach=True, target=("x1",)), "needs a job number"),
        (Request(report=True), "needs a job number"),
    ],
)
def test_what_means_nothing_on_slurm_is_refused(wrong: Request, said: str) -> None:
    from dataclasses import replace

    with pytest.raises(errors.MgpuError, match=re.escape(said)) as raised:
        run.run(replace(wrong, slurm=True))
    assert raised.value.exit_code == errors.USAGE


@pytest.mark.parametrize("option", ["--nodes", "--gpus-per-node", "--partition", "--spare"])
def test_options_of_a_job_mean_nothing_without_slurm(option: str, tmp_path: Path) -> None:
    from mgpu.cli import option_parser
    from mgpu.launch.request import Request

    line = option_parser.read(["launch", option, "1", "t.py"])
    assert line is not None
    with pytest.raises(errors.MgpuError, match="--slurm"):
        Request(**{name: value for name, value in line[0].own(line[1]).items() if name != "json_schema"}).check()


def test_spare_nodes_bring_their_tasks(tmp_path: Path) -> None:
    (tmp_path / "j.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2 -n 4\n#SBATCH --gpus=a100:8\nsrun torchrun t.py\n")
    options = prepare.with_spare(job_script_read.read(tmp_path / "j.sbatch"), 2, 1)
    assert options == ["--nodes=3", "--ntasks=6", "--gpus=a100:12"]


def test_a_step_is_told_what_its_job_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"JOB_ID": "12", "JOB_NUM_NODES": "3", "NNODES": "1", "STEP_ID": "0", "JOB_NODELIST": "n[1-3]",
                        "GPUS_ON_NODE": "4", "CPU_BIND": "mask"}.items():  # fmt: skip
        monkeypatch.setenv(f"SLURM_{name}", value)
    here = salloc.allocation()
    assert here == salloc.Allocation("12", 3, 4, True)
    (tmp_path / "j.sbatch").write_text("#!/bin/bash\n#SBATCH -N 3 --cpus-per-task=8\nsrun torchrun t.py\n")
    added = in_allocation.environment(job_script_read.read(tmp_path / "j.sbatch"), here)
    assert (added["SLURM_OVERLAP"], added["SLURM_NNODES"], added["SLURM_CPUS_PER_TASK"]) == ("1", "3", "8")
    assert "SLURM_CPU_BIND" in in_allocation._env_prefix(here) and added["SLURM_NODELIST"] == "n[1-3]"
