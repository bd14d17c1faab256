"""The script under `mgpu smoke-test SCRIPT`, through the real launcher: exit codes, documents, the orderly stop."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.config import facts as read_config
from mgpu.config.reading import DEFAULT_CONFIG
from mgpu.launch import preflight
from mgpu.launchers import stamp
from mgpu.launchers.script_hash import script_hash
from mgpu.planning import measured as measured_facts
from mgpu.smoke import report
from mgpu.smoke.request import Request
from mgpu.snapshot import Config, Rehearsal, Snapshot
from tests.conftest import PYTHONPATH, Run
from tests.rehearsal_scripts import FOLDER, STEPS
from tests.scripts import TWO_RANKS, marked, start, wait_for, write_config
from tests.test_schema import SMOKE
from tests.verdicts import cause

PATHS = {"PYTHONPATH": f"{FOLDER}{os.pathsep}{PYTHONPATH}"}
# After the last step: catches the stop, goes on, and would leave a file if it was not stopped again.
STUBBORN = """\
import os
import re
import signal
from setting import *
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
print("secret output of the script")
for batch in [one for _ in range(3) for one in loader()]:  # more steps than are watched and measured
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    try:
        optimizer.step()
    except BaseException:
        pass
open(f"went_on_{os.environ['RANK']}", "w").close()
"""
STALLS = """\
import time
from setting import *
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
if dist.get_rank() == 0:
    torch.save(model().state_dict(), "best.pt")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    if dist.get_rank() == 1 and number == 2:
        time.sleep(1000)
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
"""


def rehearse(mgpu: Run, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """`mgpu smoke-test --json`: exit code and document."""
    options = ("smoke-test", "--json", "--level", "quick", "--no-bisect")
    done = mgpu(*options, *arguments, env={**PATHS, **(env or {})}, timeout=240)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    SMOKE.validate(document)
    return done.returncode, document


def test_the_next_command_has_the_same_script() -> None:
    snapshot = Snapshot(config=Config(DEFAULT_CONFIG, None, {}, {}))
    request = Request(target=("train.py", "--name", "a b"))
    assert report._launch(snapshot, request) == "mgpu launch train.py --name 'a b'"
    other = replace(request, module=True, config="c.yaml")
    assert report._launch(snapshot, other).startswith("mgpu launch -c c.yaml -m train.py ")


def test_a_script_that_works_passes_and_is_stamped(mgpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path)
    (tmp_path / "model.pt").write_text("precious")
    script = str(FOLDER / "healthy" / "with_accelerate.py")
    options = ("--steps", "14", "--scaling", "--checkpoint-now")
    code, document = rehearse(mgpu, *options, script, "--option-of", "the-script")
    assert code == errors.READY, document["checks"]
    found = document["rehearsal"]
    assert (found["steps"], found["wanted"], found["launcher"]) == (14, 14, "accelerate")
    assert found["ended"] in ("stopped", "finished"), "it has 24 steps, of which up to 20 after the 14th are measured"
    assert {group["status"] for group in found["groups"]} <= {"ok", "info"}
    for rank in found["ranks"]:
        assert rank["step_seconds"] > 0 and rank["backward_seconds"] > 0 and rank["samples_per_s"] > 0
        assert rank["peak_host_bytes"] > 0 and rank["loader_seconds"] >= 0
    assert any(name.endswith("/model.pt") for name in found["wrote"])
    assert (tmp_path / "model.pt").read_text() == "precious" and found["put_back"] == [str(tmp_path / "model.pt")]
    (files,) = (one for one in document["checks"] if one["id"] == "files_put_back")
    assert files["title"] == "model.pt was there: it has its content from before again"
    assert not marked(tmp_path)
    measured = found["measurement"]
    assert measured["ranks"] == 2 and measured["cpu"] and measured["batch"] == 4 and measured["samples_per_s"] > 0
    assert measured["checkpoint_s"] > 0 and measured["peak_bytes"] is None and measured["exchange_s"] is not None
    assert not list(tmp_path.glob(".mgpu/runs/*/recorder/checkpoint")), "the checkpoint is removed"
    alone, both = found["scaling"]
    assert (alone["ranks"], both["ranks"], both["why"]) == (1, 2, None), alone
    assert alone["samples_per_s"] > 0 and both["efficiency"] > 0 and set(both["costs"]) >= {"the loader"}
    shown = mgpu("launch", "--dry-run", script, env=PATHS)
    assert "this script rehearsed" in " ".join(shown.stdout.split()), shown.stdout + shown.stderr
    same = mgpu("launch", "--dry-run", script, "--option-of", "the-script", env=PATHS)
    assert re.search(r"\brehearsed \S+.*: [\d,.]+ samples/s on 2 CPU ranks", same.stdout), same.stdout
    plan = " ".join(mgpu("configure", "--plan", env=PATHS).stdout.split())
    assert "nothing is concluded from it for GPUs" in plan and "2 CPU ranks" in plan, plan
    other = mgpu("launch", "--dry-run", str(FOLDER / "healthy" / "plain_ddp.py"), env=PATHS)
    assert "rehearsed" not in other.stdout
    again = mgpu("smoke-test", "--show", env=PATHS)
    assert again.returncode == 0 and "Your script  with_accelerate.py: 14 of 14" in again.stdout
    monkeypatch.chdir(tmp_path)
    facts = preflight.gather_facts(read_config(tmp_path / "accelerate.yaml", ask_loader=False), ())
    fails = Rehearsal(script, 8, 2, "failed", script_sha256=script_hash([script]))
    stamp.add_failure(replace(facts, rehearsal=fails), "same_data", measured_facts.arguments_hash([]))
    shown = mgpu("launch", "--dry-run", script, env=PATHS)
    assert re.search(r"verified \S+.* on this machine\n +FAILED to rehearse this script .*: same_data", shown.stdout)
    other = mgpu("launch", "--dry-run", script, "--a", env=PATHS)
    assert "with other arguments: same_data" in " ".join(other.stdout.split())


def test_a_script_that_fails_is_a_failure_with_its_line(mgpu: Run, tmp_path: Path) -> None:
    code, document = rehearse(mgpu, "--cpu", "2", str(FOLDER / "faults" / "raises.py"))
    found = cause(document)
    assert code == errors.NOT_READY and found["id"] == "script_failed"
    assert found["file"].endswith("raises.py") and found["line"] == 15 and "rank 1" in found["title"]
    assert "net.module[0] is Linear(in_features=8, out_features=16" in found["cause"]
    assert "batch[0] is float32 [" in found["cause"]
    assert document["rehearsal"]["ended"] == "failed" and document["stamp"] is None
    log = tmp_path / document["rehearsal"]["log"]
    assert "RuntimeError" in log.read_text()


def test_a_script_without_a_step_proves_nothing(mgpu: Run, tmp_path: Path) -> None:
    code, document = rehearse(mgpu, "--cpu", "2", str(FOLDER / "faults" / "no_step.py"))
    assert code == errors.UNKNOWN and document["verdict"] == "unknown"
    assert [one["id"] for one in document["checks"] if one["status"] == "warn"] == ["script_never_stepped"]


def test_a_script_that_catches_the_stop_is_stopped_at_its_next_step(mgpu: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STUBBORN)
    options = ("--cpu", "2", "--level", "quick", "--steps", "3")
    done = mgpu("smoke-test", *options, "train.py", env=PATHS, timeout=240)
    assert done.returncode == errors.READY, done.stdout + done.stderr
    assert not [name for name in os.listdir(tmp_path) if name.startswith("went_on")]
    before = " ".join(done.stdout.partition("1 start processes")[0].split())
    assert "Then train.py really runs: 3 optimizer steps and up to 20 more to measure its speed" in before
    assert "3 of 3 optimizer steps on 2 CPU ranks" in done.stdout and "PASSED" in done.stdout
    assert "The script requests the backend nccl; the CPU ranks used gloo." in " ".join(done.stdout.split())
    assert "secret output" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_script_that_stalls_is_stopped_with_the_line_of_each_rank(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALLS)
    (tmp_path / "best.pt").write_text("precious")
    code, document = rehearse(mgpu, "--cpu", "2", "--stall-timeout", "6", "train.py")
    found = cause(document)
    assert code == errors.NOT_READY and found["id"] == "script_stalls", found
    assert "after 2 optimizer steps: rank 1 sleeps at train.py:13" in found["title"] and found["line"] == 13
    assert re.search(r"[.:] rank 0: 2 steps, at train.py:15; rank 1: 2 steps, at train.py:13", found["cause"])
    assert (tmp_path / "best.pt").read_text() == "precious" and document["rehearsal"]["put_back"]
    assert found["evidence"]["cause"] == "hang_rank_sleeps" and found["evidence"]["rank"] == 1
    assert document["rehearsal"]["ended"] == "stalled" and not marked(tmp_path)


@pytest.mark.parametrize(
    "arguments", [("--show", "train.py"), ("--slurm", "train.py"), ("--steps", "1", "train.py"), ("-m",)]
)
def test_options_that_contradict_a_script(mgpu: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text("")
    done = mgpu("smoke-test", *arguments)
    assert done.returncode == errors.USAGE and not (tmp_path / ".mgpu/runs").exists()


def test_a_script_that_is_not_valid_python_is_refused_before_the_stages(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfor x in y\n    pass\n")
    done = mgpu("smoke-test", "--cpu", "2", "train.py")
    assert done.returncode == errors.CANNOT_RUN and not (tmp_path / ".mgpu/runs").exists()
    assert "train.py:2: expected ':'" in done.stderr and "mgpu doctor --script train.py" in done.stderr
    assert "start processes" not in done.stdout


def test_a_script_that_does_not_exist(mgpu: Run, tmp_path: Path) -> None:
    done = mgpu("smoke-test", "--cpu", "2", "trian.py")
    assert done.returncode == errors.NOT_FOUND and "no script trian.py" in done.stderr
    assert STEPS == 8 and not (tmp_path / ".mgpu/runs").exists()


def test_a_script_that_the_user_stops(tmp_path: Path) -> None:
    """One line, as for the stages; nothing is judged, and nothing is left."""
    write_config(tmp_path)
    (tmp_path / "train.py").write_text(STALLS)
    (tmp_path / "best.pt").write_text("precious")
    options = ("smoke-test", "--level", "quick", "--no-bisect", "--log-dir", "log")
    runner = start(*options, "train.py", folder=tmp_path, env=PATHS)
    wait_for(lambda: any(one.read_text().count('"stepped"') for one in tmp_path.glob("log/recorder/*.rehearsal")), 120)
    runner.send_signal(signal.SIGINT)
    out, err = runner.communicate(timeout=60)
    assert runner.returncode == errors.INTERRUPTED, out + err
    assert re.fullmatch(r"Interrupted after \d+ s \(exit 130\)\.", out.splitlines()[-1]), out + err
    assert "Your script" not in out and "bug" not in out + err and not marked(tmp_path)
    assert "best.pt was there: it has its content from before again." in out
    assert (tmp_path / "best.pt").read_text() == "precious"
    document = json.loads((tmp_path / "log" / "smoke.json").read_text())
    assert (document["verdict"], document["rehearsal"]["ended"]) == ("unknown", "interrupted")


@pytest.mark.parametrize("given", [{"hosts": "a,b"}, {"slurm": True}])
def test_a_script_on_several_nodes_is_refused_with_the_commands_for_one(given: dict[str, Any]) -> None:
    with pytest.raises(errors.MgpuError) as refused:
        Request(target=("train.py", "--name", "a b"), **given).check()
    assert refused.value.exit_code == 2
    assert refused.value.message == (
        "--slurm and --hosts test nodes. A script is rehearsed on one node; test the others without SCRIPT:\n"
        "  mgpu smoke-test --cpu 2 train.py --name 'a b'   # on CPU ranks\n"
        "  mgpu configure -y --nodes 1 -o one-node.yaml   # on GPUs: a config of one node, then\n"
        "  mgpu smoke-test -c one-node.yaml train.py --name 'a b'"
    )


def test_a_script_with_a_config_of_several_nodes_is_refused_with_the_same_commands(mgpu: Run, tmp_path: Path) -> None:
    several = TWO_RANKS.replace("num_machines: 1", "num_machines: 2\nmain_process_ip: 10.0.0.1")
    write_config(tmp_path, several.replace("num_processes: 2", "num_processes: 4"))
    (tmp_path / "train.py").write_text("import torch\n")
    done = mgpu("smoke-test", "train.py")
    assert done.returncode == 2
    assert done.stderr.startswith("mgpu: accelerate.yaml uses 2 nodes. A script is rehearsed on one node; test the")
    assert "\n  mgpu smoke-test -c one-node.yaml train.py\n" in done.stderr
