"""Does the smoke test tell a run that works from one that does not, name the rank at fault, and leave nothing behind?

Real ranks over gloo through the real launcher. Faults come from tests/scripts/faults, or from outside by a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine, errors, probes
from mgpu.config import facts
from mgpu.engine.before_start import refusals, warning_ids
from mgpu.launchers import argv as launching
from mgpu.smoke import config_under_test, culprit
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.request import Request
from mgpu.smoke.runner import Attempt, run_ranks
from mgpu.smoke.screen import TITLES
from mgpu.snapshot import Gap, Plan, Snapshot
from tests import fake_nvml
from tests.checks import facts as known
from tests.conftest import Run
from tests.scripts import ONE_PROCESS, TWO_RANKS, fault, kill_all, marked, start, wait_for, write_config
from tests.test_schema import SMOKE
from tests.verdicts import cause, checks, judged

QUICK = ("--level", "quick")
STALL = 3  # seconds; an import on a busy machine holds Python up for more than one


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    """However a test ends, its processes end with it."""
    yield
    kill_all(tmp_path)


def smoke_test(mgpu: Run, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """`mgpu smoke-test --json`, without the search for the cause: exit code and document."""
    done = mgpu("smoke-test", "--json", "--no-bisect", *arguments, env=env)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    SMOKE.validate(document)
    return done.returncode, document


def first(document: dict[str, Any]) -> str:
    """The check that the report names as the cause."""
    return str(cause(document)["id"])


# What passes


def test_two_ranks_pass_and_are_stamped(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    code, document = smoke_test(mgpu)
    assert code == errors.READY == document["exit_code"]
    assert document["verdict"] == "passed" and document["ended"] == "finished"
    assert [stage["name"] for stage in document["stages"]] == list(STAGES)
    assert {stage["status"] for stage in document["stages"]} == {"ok"}
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
    for rank in document["ranks"]:
        assert rank["world_size"] == rank["accelerate_world_size"] == 2
        assert rank["device"] == "cpu" and rank["error"] is None
        assert rank["measured"]["gradient_difference"] < 1e-5
    assert document["culprit"] is None and not checks(document) and not checks(document, "crash")

    path = tmp_path / document["stamp"]
    assert path == tmp_path / ".mgpu" / "verified.json"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (path.parent / ".gitignore").read_text() == "*\n"
    (entry,) = json.loads(path.read_text())["entries"].values()
    assert entry["rungs"] == list(STAGES) and entry["facts"]["config.num_processes"] == "2"
    assert set(entry["measured"]) == {"0", "1"}

    folder = tmp_path / document["logs"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads((folder / "smoke.json").read_text()) == document
    assert not marked(tmp_path)


def test_rehearsal_needs_no_config_and_stamps_nothing(mgpu: Run, tmp_path: Path) -> None:
    done = mgpu("smoke-test", "--cpu", "2", *QUICK)
    assert done.returncode == errors.READY, done.stdout + done.stderr
    for rung in Request(level="quick").stages:
        assert f" {TITLES[rung]} " in done.stdout
    assert "PASSED  2 CPU ranks trained together correctly" in done.stdout
    assert "CPU rehearsal, not recorded." in done.stdout and not (tmp_path / ".mgpu/verified.json").exists()
    assert "\x1b" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 80


def test_one_process_of_type_no_and_a_log_dir_with_other_files(mgpu: Run, tmp_path: Path) -> None:
    """What is there already is neither taken for what the ranks write now, nor removed."""
    write_config(tmp_path, ONE_PROCESS)
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in (0, 1):
        records = [{"order": 1, "time": 0, "rung": STAGES[0], "word": "begins", "limit_s": None}]
        records.append({"order": 2, "time": 0, "rung": STAGES[3], "word": "all-reduce 1 x int64", "limit_s": None})
        (folder / f"rank{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (folder / f"rank{number}.beat").touch()
        os.utime(folder / f"rank{number}.beat", (1, 1))
    for name in ("rank_model.py", "ranking.csv", "rank0.ckpt.pt"):
        (folder / name).write_text(name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, document = smoke_test(mgpu, *QUICK, "--log-dir", "logs")
    assert (code, document["verdict"], document["ended"]) == (errors.READY, "passed", "finished")
    (rank,) = document["ranks"]
    assert rank["world_size"] == rank["accelerate_world_size"] == 1
    assert document["stamp"]
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    (ours,) = (path for path in folder.iterdir() if path.is_dir())
    assert ours.name.startswith("smoke-") and document["logs"] == f"logs/{ours.name}"


def test_one_process_on_a_machine_without_gpus_needs_no_use_cpu(mgpu: Run, tmp_path: Path) -> None:
    """accelerate trains one process of type NO on the CPU by itself."""
    write_config(tmp_path, ONE_PROCESS.replace("use_cpu: true\n", ""))
    code, document = smoke_test(mgpu, *QUICK)
    assert (code, document["verdict"], document["ranks"][0]["device"]) == (errors.READY, "passed", "cpu")


# What must not pass


def test_rank_stopped_in_training(tmp_path: Path) -> None:
    """Named with rank, pid and state, in the stall limit and a few seconds."""
    write_config(tmp_path)
    options = ("--json", "-o", "told.json", "--no-bisect", *QUICK, "--stall-timeout", str(STALL))
    runner = start("smoke-test", *options, folder=tmp_path, env=fault("SIGSTOP", "step 3 of "))
    victim = wait_for(lambda: _pid(tmp_path, 1))
    wait_for(lambda: _state(victim) == "T")
    stopped = time.monotonic()
    most, mapped = _memory(runner)
    document = json.loads((tmp_path / "told.json").read_text())
    SMOKE.validate(document)
    assert runner.returncode == errors.NOT_READY
    # mgpu itself stays small and imports no torch
    assert 0 < most < 100e6 and "torch" not in mapped
    assert time.monotonic() - stopped < STALL + 20
    assert document["ended"] == "stalled" and first(document) == "rank_frozen"
    told = document["culprit"]
    assert (told["rank"], told["rung"], told["state"]) == (1, "train", "stopped")
    assert told["last_word"].startswith("step 3 of ")
    # what the others wait in, by torch's flight recorder
    assert "all_reduce" in told["collective"] or told["collective"] == told["last_word"]
    frozen = checks(document)["rank_frozen"]
    assert frozen["evidence"]["rank"] == 1 and frozen["evidence"]["pid"] == victim
    assert f"pid {victim}) is stopped" in frozen["title"]
    stages = {stage["name"]: stage["status"] for stage in document["stages"]}
    assert stages["collectives"] == "ok" and stages["train"] == "fail" and stages["shutdown"] == "skip"
    assert document["stamp"] is None and not (tmp_path / ".mgpu/verified.json").exists()
    assert not marked(tmp_path)


def _state(pid: int) -> str:
    """The letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]


def _memory(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The most memory that a process had in use until it ended, and the files it mapped."""
    most, mapped = 0, ""
    while process.poll() is None:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            most = int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10
            mapped = Path(f"/proc/{process.pid}/maps").read_text() or mapped
        time.sleep(0.05)
    return most, mapped


def _pid(folder: Path, rank: int) -> int | None:
    """The pid by which a rank has introduced itself."""
    for journal in folder.glob(f".mgpu/runs/smoke-*/rank{rank}.jsonl"):
        for line in journal.read_text().splitlines():
            record = json.loads(line)
            if identity := record.get("identity"):
                return int(identity["pid"])
    return None


def test_rank_hangs_in_python(mgpu: Run, tmp_path: Path) -> None:
    """Alive, with a heartbeat, but it does not come to the collective: its stack says where it is."""
    write_config(tmp_path)
    code, document = smoke_test(mgpu, *QUICK, "--stall-timeout", str(STALL), env=fault("sleep", "all-reduce 1000 x"))
    assert code == errors.NOT_READY and document["ended"] == "stalled"
    assert first(document) == "ranks_hang"
    assert document["culprit"]["rank"] == 1, document["ranks"]
    assert document["culprit"]["rung"] == "collectives"
    assert "sitecustomize" in document["culprit"]["stack"] and document["culprit"]["stack_from"] == "asked"
    assert checks(document)["ranks_hang"]["evidence"]["rank"] == 1
    assert not marked(tmp_path)


def test_rank_raises(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    code, document = smoke_test(mgpu, *QUICK, env=fault("raise", "first barrier"))
    assert code == errors.NOT_READY
    assert first(document) == "rank_failed"
    problem = checks(document)["rank_failed"]
    assert problem["evidence"]["rank"] == 1 and "the disk is on fire" in problem["title"]
    assert document["culprit"]["rank"] == 1
    assert not marked(tmp_path)


def test_wrong_gradient_on_one_rank(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    code, document = smoke_test(mgpu, *QUICK, env=fault("wrong gradient", "wrap the model"))
    assert code == errors.NOT_READY and document["verdict"] == "failed"
    assert first(document) == "rank_computes_wrong_gradients"
    problem = checks(document)["rank_computes_wrong_gradients"]
    assert problem["evidence"]["rank"] == 1 == document["culprit"]["rank"]
    assert "1.0e-02" in problem["title"]
    assert document["stamp"] is None and not (tmp_path / ".mgpu/verified.json").exists()


def test_ranks_that_should_have_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the launch had not added ACCELERATE_USE_CPU: accelerate finds no device to train on, lets every rank train
    alone, and says nothing: N trainings of one rank."""
    path = write_config(tmp_path)
    config = facts(path, ask_loader=False)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(launching, "on_cpu", lambda config, driver: False)
    snapshot = replace(probes.gather(probes.QUICK, plan=Plan(nodes=1)), config=config)
    folder = tmp_path / "run"
    folder.mkdir()
    assert snapshot.driver is not None
    orders = config_under_test.rank_orders(Request(), config_under_test.Subject(config), snapshot.driver, folder)
    ranks = run_ranks(Attempt(config, snapshot, orders, timeout_s=60))
    assert ranks.ended == "died"
    outcomes = judged(replace(snapshot, ranks=ranks))
    failed = {o.check.id: o for o in outcomes if o.status == "fail"}
    assert "rank_failed" in failed
    problem = failed["rank_failed"].problem
    assert problem is not None and "accelerate reports 1 rank, the config asks for 2" in problem.title
    named = culprit.find_cause(outcomes)
    assert named is not None and named.problem is not None and named.check.id == "ranks_not_of_one_world"
    assert "expected 2 ranks" in named.problem.title
    # The launcher ends the other rank when the first has failed, which may be before it could say anything.
    said = {(rank.accelerate_world_size, rank.world_size) for rank in ranks.ranks}
    assert (1, 2) in said and all(one in (1, None) and other in (2, None) for one, other in said)


def test_time_limit(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    code, document = smoke_test(mgpu, *QUICK, "--timeout", "6", env=fault("sleep", "first barrier"))
    assert code == errors.TIMED_OUT and document["ended"] == "timed_out"
    assert first(document) == "ranks_hang"
    assert "time limit" in checks(document)["ranks_hang"]["title"]
    assert document["stamp"] is None and not marked(tmp_path)


def test_time_limit_before_any_rank_was_heard_of(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    code, document = smoke_test(mgpu, "--timeout", "1")
    assert code == errors.TIMED_OUT and document["ended"] == "timed_out"
    assert not marked(tmp_path)
    assert "ranks_hang" in checks(document) and document["stamp"] is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    write_config(tmp_path)
    runner = start("smoke-test", folder=tmp_path)
    wait_for(lambda: _pid(tmp_path, 0))
    assert marked(tmp_path)
    runner.send_signal(number)
    _, said = runner.communicate(timeout=20)
    assert runner.returncode == 128 + number
    assert "Traceback" not in said
    assert not marked(tmp_path) and not (tmp_path / ".mgpu/verified.json").exists()


def test_killed(tmp_path: Path) -> None:
    """Even SIGKILL to mgpu leaves no rank behind."""
    write_config(tmp_path)
    runner = start("smoke-test", folder=tmp_path, env=fault("sleep", "step 3 of "))
    wait_for(lambda: _pid(tmp_path, 0) and _pid(tmp_path, 1))
    runner.kill()
    runner.communicate(timeout=20)
    wait_for(lambda: not marked(tmp_path), 20)


# Before a rank is started


def test_no_config(mgpu: Run) -> None:
    done = mgpu("smoke-test")
    assert done.returncode == errors.USAGE
    assert "no config accelerate.yaml" in done.stderr and "--cpu 2" in done.stderr


def test_torch_that_cannot_see_the_gpus(mgpu: Run, tmp_path: Path) -> None:
    """NVML shows eight GPUs, torch is a CPU build: no rank is started on the CPU instead."""
    import torch

    if torch.version.cuda is not None:
        pytest.skip("torch is a CUDA build")
    library = fake_nvml.build(tmp_path / "nvml")
    env = fake_nvml.environment(library, fake_nvml.machine(tmp_path / "nvml", "h100_sxm_x8"))
    write_config(tmp_path, TWO_RANKS.replace("num_processes: 2", "num_processes: 8"))
    code, document = smoke_test(mgpu, env=env)
    assert code == errors.NOT_READY and document["verdict"] == "failed"
    assert "torch_is_cpu_build" in checks(document)
    assert document["ranks"] == [] and not (tmp_path / ".mgpu/runs").exists()


# What is known before a rank is started


def healthy(**changes: Any) -> Snapshot:
    return Snapshot(**known.facts(**changes))


def ids(outcomes: list[engine.Outcome]) -> list[str]:
    return [outcome.check.id for outcome in outcomes]


def test_a_healthy_machine_gives_no_reason_to_refuse_and_no_doubt() -> None:
    assert refusals(healthy()) == []
    assert warning_ids(healthy()) == []


def test_what_only_may_stop_a_run_is_told_and_tried() -> None:
    sick = healthy(
        gpus=known.gpus(3, known.gpu(3, ecc_uncorrected_volatile=7)), system=known.system(shm_writable=False)
    )
    assert refusals(sick) == []
    assert set(warning_ids(sick)) == {"gpu_ecc_uncorrected", "shm_not_writable"}


def test_what_is_certain_to_fail_is_refused() -> None:
    assert "torch_is_cpu_build" in ids(refusals(healthy(pytorch=known.pytorch(version="2.9.0+cpu", cuda=None))))
    assert ids(refusals(healthy(config=known.config(known.YAML.replace("4", "9"))))) == ["config_more_ranks_than_gpus"]


def test_fsdp_1_is_refused_where_there_is_no_gpu() -> None:
    """Elsewhere the same file may be right: about the file it is a warning."""
    config = known.config("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 1}\n")
    without = healthy(config=config, driver=known.no_driver("DRIVER_NOT_LOADED"), gpus=None)
    assert "config_fsdp1_needs_gpu" in ids(refusals(without))
    assert "config_fsdp1_needs_gpu" not in ids(refusals(healthy(config=config)))


def test_a_rehearsal_needs_no_driver() -> None:
    broken = healthy(driver=known.no_driver("LIB_RM_VERSION_MISMATCH"))
    assert "driver_library_mismatch" in ids(refusals(broken))
    assert refusals(replace(broken, plan=Plan(cpu_ranks=2))) == []


def test_a_driver_that_does_not_answer_is_a_reason_to_refuse() -> None:
    hung = replace(healthy(), driver=None, gpus=None, gaps={"driver": Gap("timed_out", "NVML did not answer in 10 s")})
    (refused,) = refusals(hung)
    assert refused.unsettling and refused.check.area == "driver"


def test_a_config_for_several_machines_is_refused(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path, known.YAML.replace("num_machines: 1", "num_machines: 2\nmain_process_ip: 10.0.0.1"))
    done = mgpu("smoke-test")
    assert done.returncode == errors.USAGE and "uses 2 nodes" in done.stderr
