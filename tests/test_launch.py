"""Does a launch start what was verified, unseen by the training, and end as the training ended?

Real launches of two ranks over gloo, with a config that one real smoke test has stamped.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.cli import option_parser
from mgpu.hangs.hang_evidence import INJECTED
from mgpu.launch import result_document as told
from mgpu.launch import run
from mgpu.launch.request import Request
from mgpu.launchers import choice
from mgpu.process import interpreter, processes
from tests import fake_nvml
from tests.conftest import Run, environment
from tests.scripts import ONE_PROCESS, SCRIPTS, TWO_RANKS, kill_all, marked, start, wait_for, write_config
from tests.scripts.report import ERR, OUT

# What the shell would pass on, and what looks like options of mgpu or of the launcher.
ARGUMENTS = ("--help", "--yes", "-h", "--", "x", "a b", "", "--config_file", "é", "-n", "*", "$HOME")


@pytest.fixture(scope="module")
def stamp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config that a real smoke test has passed, and its stamp."""
    folder = tmp_path_factory.mktemp("stamped")
    write_config(folder)
    runner = start("smoke-test", "--level", "quick", "--log-dir", "logs", folder=folder)
    output, said = runner.communicate(timeout=120)
    assert runner.returncode == errors.READY, output + said
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with the test's scripts and a config that nothing has verified. Nothing that runs here outlives it."""
    for path in SCRIPTS.glob("*.py"):
        shutil.copy(path, tmp_path)
    write_config(tmp_path)
    yield tmp_path
    kill_all(tmp_path)


@pytest.fixture
def stamped(here: Path, stamp: Path) -> Path:
    """The same folder, and the config is verified."""
    shutil.copytree(stamp / ".mgpu", here / ".mgpu")
    return here


def ready(folder: Path) -> Any:
    """Both ranks of waits.py are there."""
    return wait_for(lambda: all((folder / f"ready.{rank}").exists() for rank in (0, 1)), 60)


def launched(runner: subprocess.Popen[str], limit_s: float = 60) -> tuple[int, str, str]:
    output, said = runner.communicate(timeout=limit_s)
    return runner.returncode, output, said


# Said, not started


def test_print_command_pastes_into_a_shell(stamped: Path, mgpu: Run) -> None:
    done = mgpu("launch", "--print-command", "report.py", *ARGUMENTS)
    assert done.returncode == errors.READY and done.stderr == ""
    (line,) = done.stdout.splitlines()
    words = shlex.split(line)
    assert words[0] == "ACCELERATE_USE_CPU=true"
    start_at = words.index("report.py")
    assert words[1:start_at] == [
        *interpreter.module(sys.executable, platform.python_version(), "accelerate.commands.launch"),
        "--config_file", "accelerate.yaml", "--main_process_port", words[start_at - 1],
    ]  # fmt: skip
    assert 1024 <= int(words[start_at - 1]) < 65536
    assert tuple(words[start_at + 1 :]) == ARGUMENTS
    assert not (stamped / ".mgpu/runs").exists()


def test_dry_run_starts_nothing(stamped: Path, mgpu: Run) -> None:
    done = mgpu("launch", "--dry-run", "waits.py", "--epochs", "3")
    assert done.returncode == errors.READY, done.stderr
    assert re.search(r"^Config +accelerate\.yaml +verified .* on this machine$", done.stdout, re.MULTILINE)
    assert "2 ranks on the CPU over gloo" in done.stdout
    assert re.search(r"^Env +ACCELERATE_USE_CPU=true$", done.stdout, re.MULTILINE)
    assert re.search(
        r"^Command .* --config_file accelerate\.yaml --main_process_port \d+ waits\.py --epochs 3$",
        done.stdout,
        re.MULTILINE,
    )
    assert not (stamped / ".mgpu/runs").exists() and not (stamped / "ready.0").exists()


def test_dry_run_of_what_is_not_verified(here: Path, mgpu: Run) -> None:
    done = mgpu("launch", "--dry-run", "waits.py")
    assert done.returncode == errors.LAUNCH_REFUSED
    assert "NOT verified" in done.stdout
    assert mgpu("launch", "--dry-run", "--unverified", "allow", "waits.py").returncode == errors.READY


def test_keys_that_accelerate_drops_become_flags(here: Path, mgpu: Run) -> None:
    config = here / "accelerate.yaml"
    config.write_text(config.read_text() + "enable_cpu_affinity: true\nrdzv_backend: c10d\n")
    done = mgpu("launch", "--print-command", "waits.py")
    words = shlex.split(done.stdout)
    assert "--enable_cpu_affinity" in words
    assert words[words.index("--rdzv_backend") + 1] == "c10d"


def test_a_backend_that_torchrun_does_not_have_is_not_handed_on(here: Path, mgpu: Run) -> None:
    config = here / "accelerate.yaml"
    config.write_text(config.read_text() + "rdzv_backend: nccl\n")
    assert "--rdzv_backend" not in mgpu("launch", "--print-command", "waits.py").stdout


def test_what_mgpu_wrote_into_comments_is_told_and_handed_on(here: Path, mgpu: Run) -> None:
    config = here / "accelerate.yaml"
    told = "# batch per rank 4 x 2 ranks x accumulate 2 = effective batch 16\n# dataset 1,000 samples: 63 steps\n"
    adds = "# mgpu launch adds: --num_cpu_threads_per_process 3 --evil 1\n"
    config.write_text(told + adds + config.read_text())
    done = mgpu("launch", "--dry-run", "--unverified", "allow", "waits.py")
    rows = " ".join(done.stdout.split())
    assert "Batch 4 x 2 ranks x accumulate 2 = effective batch 16 (as configured); 1,000 samples = 63 steps" in rows
    assert "--num_cpu_threads_per_process 3 waits.py" in rows
    assert "evil" not in rows


# Refused


def test_not_verified(here: Path, mgpu: Run) -> None:
    done = mgpu("launch", "--json-result", "result.json", "report.py")
    assert done.returncode == errors.LAUNCH_REFUSED
    assert done.stdout == ""
    assert (
        "the smoke test has not passed with this config" in " ".join(done.stderr.split())
        and "NOT STARTED" in done.stderr
    )
    result = json.loads((here / "result.json").read_text())
    assert (result["phase"], result["exit_code"]) == ("preflight", errors.LAUNCH_REFUSED)
    assert [check["id"] for check in result["checks"]] == ["config_not_verified"]
    assert not (here / ".mgpu/runs").exists()


def test_several_machines_are_started_by_hand(here: Path, mgpu: Run) -> None:
    """No dead end: the test and the launch of every machine are named."""
    config = here / "accelerate.yaml"
    text = config.read_text().replace("num_machines: 1", "num_machines: 2\nmain_process_ip: 10.0.0.1")
    config.write_text(text.replace("num_processes: 2", "num_processes: 4"))
    done = mgpu("launch", "report.py", "--lr", "1")
    assert (done.returncode, done.stdout) == (errors.LAUNCH_REFUSED, ""), done.stderr
    for node in (0, 1):
        assert f"accelerate launch --config_file accelerate.yaml --machine_rank {node} report.py --lr 1" in done.stderr
        assert f"mgpu launch --node-rank {node} report.py --lr 1   # on node {node}" in done.stderr
    assert "mgpu smoke-test --node-rank 1   # on node 1" in done.stderr
    assert mgpu("launch", "--node-rank", "2", "report.py").returncode == errors.USAGE
    which = mgpu("launch", "--unverified", "allow", "--launcher", "torchrun", "report.py")
    assert (which.returncode, which.stdout) == (errors.LAUNCH_REFUSED, "") and not (here / ".mgpu/runs").exists()
    assert "mgpu launch --node-rank K --unverified allow ..." in which.stderr
    shown = mgpu("launch", "--node-rank", "1", "--print-command", "report.py")
    assert "--machine_rank 1 report.py" in shown.stdout and "rdzv_conf" not in shown.stdout
    each = mgpu("launch", "--print-command", "report.py").stdout.splitlines()
    assert [line.partition("--machine_rank ")[2] for line in each] == [
        f"{node} report.py   # on node {node}" for node in (0, 1)
    ]


def test_config_changed(stamped: Path, mgpu: Run) -> None:
    config = stamped / "accelerate.yaml"
    config.write_text(config.read_text().replace("mixed_precision: 'no'", "mixed_precision: bf16"))
    done = mgpu("launch", "report.py")
    assert done.returncode == errors.LAUNCH_REFUSED and done.stdout == ""
    assert "mixed_precision  no -> bf16" in done.stderr


def test_comments_do_not_count(stamped: Path, mgpu: Run) -> None:
    config = stamped / "accelerate.yaml"
    lines = config.read_text().splitlines()
    config.write_text("# a word\n" + "\n".join(reversed(lines)) + "\n")
    assert mgpu("launch", "--dry-run", "report.py").returncode == errors.READY


def test_environment_changed(stamped: Path, mgpu: Run) -> None:
    done = mgpu("launch", "report.py", env={"NCCL_P2P_DISABLE": "1", "NOT_RELEVANT": "1"})
    assert done.returncode == errors.LAUNCH_REFUSED
    assert "NCCL_P2P_DISABLE  not set -> 1" in done.stderr and "NOT_RELEVANT" not in done.stderr


def test_damaged_stamp_verifies_nothing(stamped: Path, mgpu: Run) -> None:
    path = stamped / ".mgpu" / "verified.json"
    for text in ("", "[]", '{"schema": 1, "entries": {"a": {"facts": []}}}', path.read_text()[:200]):
        path.write_text(text)
        done = mgpu("launch", "--dry-run", "report.py")
        assert done.returncode == errors.LAUNCH_REFUSED, text
        assert "bug" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("report.py",), errors.LAUNCH_REFUSED, "config nowhere.yaml not found. Create one with:  mgpu configure"),
        (("repotr.py",), errors.NOT_FOUND, "no script repotr.py. Did you mean report.py?"),
        (("zzz",), errors.NOT_FOUND, "no script zzz."),
        (("--epochs", "3", "report.py"), errors.USAGE, "unknown option --epochs"),
        (("--gpu=2", "report.py"), errors.USAGE, "unknown option --gpu. Did you mean --gpus?"),
        (("--foo", "report.py"), errors.USAGE, "unknown option --foo. Options of the script go after its name."),
        (("--logdir", "x", "report.py"), errors.USAGE, "Did you mean --log-dir?"),
        (("torchrun", "--nproc_per_node", "2", "train.py"), errors.USAGE, "Leave it out: mgpu launch train.py"),
        (("job.sh",), errors.CANNOT_RUN, "job.sh is a shell script, and mgpu launch starts Python"),
        (("--unverified", "maybe", "report.py"), errors.USAGE, "choose ask, allow or refuse"),
        (("--yes",), errors.USAGE, "missing script. Usage: mgpu launch [OPTIONS] SCRIPT"),
    ],
)
def test_wrong_use(here: Path, mgpu: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    (here / "job.sh").write_text("#!/usr/bin/env bash\npython train.py\n")
    done = mgpu("launch", *arguments, env={"MGPU_CONFIG": "nowhere.yaml"})
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("train.py", "#!/bin/sh\n'''exec' python3 -u \"$0\" \"$@\"\n' '''\nimport torch\n", True),
        ("train.py", '#!/usr/bin/env bash\n"exec" "python" "$0" "$@"\nimport torch\n', True),
        ("train.py", "#!/bin/bash\nimport torch\n", True),  # its shebang is wrong, but Python ignores it
        ("train", "#!/bin/sh\n'''exec' python3 \"$0\" \"$@\"\n' '''\nimport torch\n", True),
        ("train.py", "#!/bin/bash\npython other.py\n", False),
        ("train", "#!/bin/bash\nulimit -n\n", False),  # also valid Python
        ("train.sh", "#!/bin/sh\n'''exec' python3 \"$0\" \"$@\"\n' '''\n", False),
    ],
)
def test_python_that_a_shell_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, runs: bool
) -> None:
    """A script that is shell and Python at once runs as Python, and is read as such."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    if runs:
        assert choice.resolve_target([name]) == [name]
        script = choice.read([name])
        assert script is not None and script.error is None and "torch" in script.imports
    else:
        with pytest.raises(errors.MgpuError, match="is a shell script"):
            choice.resolve_target([name])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("-", "stdout belongs to the training script"),
        ("nowhere/result.json", "nowhere does not exist"),
        (".", "is a folder"),
    ],
)
def test_result_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    """Known before the training, not hours later."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.MgpuError, match=words) as refused:
        run.run(Request(target=("report.py",), json_result=name))
    assert refused.value.exit_code == errors.USAGE


def test_script_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything: the answer of the system is a stand-in."""
    (tmp_path / "train.py").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(errors.MgpuError, match="no permission to read the script") as refused:
        choice.resolve_target([str(tmp_path / "train.py")])
    assert refused.value.exit_code == errors.CANNOT_RUN


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("launch report.py 'a b'", "mgpu launch --unverified allow report.py 'a b'"),
        ("launch --unverified refuse -y report.py", "mgpu launch --unverified allow -y report.py"),
        ("launch --unverified=ask report.py", "mgpu launch --unverified allow report.py"),
        ("launch report.py --unverified x", "mgpu launch --unverified allow report.py --unverified x"),
    ],
)
def test_command_that_would_start_it(monkeypatch: pytest.MonkeyPatch, words: str, again: str) -> None:
    """A refusal ends with a line that pastes."""
    monkeypatch.setattr(sys, "argv", ["mgpu", *shlex.split(words)])
    line = option_parser.read(sys.argv[1:])
    assert line and told.rerun_command(line[1]["target"], "--unverified", "allow") == again


def test_result_of_a_run_that_could_not_be_prepared(here: Path, mgpu: Run) -> None:
    """Automation reads the phase instead of guessing it from 127, which a training may end with, too."""
    done = mgpu("launch", "--json-result", "result.json", "repotr.py")
    assert done.returncode == errors.NOT_FOUND
    result = json.loads((here / "result.json").read_text())
    assert (result["phase"], result["exit_code"]) == ("preflight", errors.NOT_FOUND)


def test_torch_that_cannot_see_the_gpus(here: Path, mgpu: Run) -> None:
    """Eight ranks would train alone on the CPU: refused although the user allows what is not verified."""
    import torch

    if torch.version.cuda is not None:
        pytest.skip("torch is a CUDA build")
    library = fake_nvml.build(here / "nvml")
    eight_gpus = fake_nvml.environment(library, fake_nvml.machine(here / "nvml", "h100_sxm_x8"))
    write_config(here, TWO_RANKS.replace("num_processes: 2", "num_processes: 8"))
    done = mgpu("launch", "--unverified", "allow", "--json-result", "result.json", "report.py", env=eight_gpus)
    assert (done.returncode, done.stdout) == (errors.LAUNCH_REFUSED, ""), done.stderr
    assert "torch_is_cpu_build" in done.stderr and "NOT STARTED" in done.stderr
    assert "torch_is_cpu_build" in [check["id"] for check in json.loads((here / "result.json").read_text())["checks"]]
    assert not (here / ".mgpu/runs").exists()


# Started


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory, stamp: Path) -> dict[str, Any]:
    """One verified launch of report.py whose three streams are no terminals."""
    folder = tmp_path_factory.mktemp("piped")
    for name in ("accelerate.yaml", ".mgpu"):
        source = stamp / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(source, folder / name)
    shutil.copy(SCRIPTS / "report.py", folder)
    done = subprocess.run(
        [sys.executable, "-m", "mgpu", "launch", "--json-result", "result.json", "report.py", *ARGUMENTS],
        cwd=folder,
        env=environment(folder / "home", {"REPORT": "report.json"}),
        input=b"a line on stdin\n",
        capture_output=True,
        timeout=120,
        check=False,
    )
    return {
        "folder": folder,
        "done": done,
        "report": json.loads((folder / "report.json").read_text()),
        "result": json.loads((folder / "result.json").read_text()),
    }


def test_arguments_are_untouched(piped: dict[str, Any]) -> None:
    assert piped["done"].returncode == 0
    assert tuple(piped["report"]["arguments"]) == ARGUMENTS
    assert (piped["report"]["world"], piped["report"]["cpu"], piped["report"]["marked"]) == ("2", "true", True)


def test_stdin_is_the_trainings(piped: dict[str, Any]) -> None:
    assert piped["report"]["stdin"] == "a line on stdin\n"


def test_bytes_are_untouched(piped: dict[str, Any]) -> None:
    """stdout holds the training's bytes and nothing else; what mgpu says is on stderr."""
    assert piped["done"].stdout == OUT
    assert ERR in piped["done"].stderr
    said = piped["done"].stderr.replace(ERR, b"").decode("utf-8")
    assert "your program's output starts here" in said and "mgpu: finished, exit 0" in said
    (log,) = piped["folder"].glob(".mgpu/runs/*/run.log")
    assert OUT in log.read_bytes() and ERR in log.read_bytes()
    assert b"mgpu" not in log.read_bytes()


def test_result_of_a_good_run(piped: dict[str, Any]) -> None:
    result = piped["result"]
    assert (result["schema"], result["phase"], result["exit_code"]) == ("mgpu.run/1.0", "training", 0)
    assert tuple(result["command"][-len(ARGUMENTS) :]) == ARGUMENTS
    added = result["env_added"]
    assert added.pop("PYTHONPATH").startswith(f"{INJECTED}:") and added.pop("MGPU_RECORDER").endswith("/recorder")
    assert added == {"ACCELERATE_USE_CPU": "true"}
    assert result["hang"] is None
    assert result["first_failure"] is None and result["duration_s"] > 0
    assert (piped["folder"] / result["logs"] / "run.log").is_file()


def test_module(stamped: Path, mgpu: Run) -> None:
    done = mgpu("launch", "--yes", "-m", "report", "-m", "--", env={"REPORT": "report.json"})
    assert done.returncode == 0, done.stderr
    assert json.loads((stamped / "report.json").read_text())["arguments"] == ["-m", "--"]


def test_allowed_although_not_verified(here: Path, mgpu: Run) -> None:
    (here / "go").touch()
    done = mgpu("launch", "--unverified", "allow", "waits.py")
    assert done.returncode == 0, done.stderr
    assert "NOT verified: the smoke test has not passed" in done.stderr
    assert done.stdout.replace("\n", "") == "no terminal" * 2  # two ranks may share a line


def test_the_soft_limit_on_open_files_is_raised(here: Path) -> None:
    write_config(here, ONE_PROCESS)
    (here / "limits.py").write_text("import resource\nprint(*resource.getrlimit(resource.RLIMIT_NOFILE))\n")
    command = shlex.join([sys.executable, "-m", "mgpu", "launch", "--unverified", "allow", "limits.py"])
    done = subprocess.run(
        ["sh", "-c", f"ulimit -Sn 256 && ulimit -Hn 5000 && exec {command}"], env=environment(here / "home"), cwd=here,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["5000", "5000"], done.stderr


# Signals


def test_sigterm_ends_everything(stamped: Path) -> None:
    """USR1 reaches each rank before, and changes nothing."""
    runner = start("launch", "waits.py", folder=stamped)
    ready(stamped)
    runner.send_signal(signal.SIGUSR1)
    wait_for(lambda: all((stamped / f"usr1.{rank}").exists() for rank in (0, 1)), 10)
    assert runner.poll() is None
    runner.send_signal(signal.SIGTERM)
    code, output, said = launched(runner)
    assert code == 143, said
    assert output.replace("\n", "") == "no terminal" * 2
    assert "mgpu: stopped" in said
    assert not marked(stamped)


def test_sigint_and_one_process(here: Path) -> None:
    write_config(here, ONE_PROCESS)
    runner = start("launch", "--unverified", "allow", "waits.py", folder=here)
    wait_for(lambda: (here / "ready.0").exists())
    runner.send_signal(signal.SIGINT)
    code, _, said = launched(runner)
    assert code == errors.INTERRUPTED, said
    assert re.search(r"^Interrupted after \d+ s \(exit 130\)\.$", said, re.MULTILINE), said
    assert "Probable cause" not in said and "Try" not in said
    assert not marked(here)


def test_killed_mgpu_leaves_nothing(stamped: Path) -> None:
    """The kernel tells the launcher, which ends its ranks; torchrun's folder goes, too."""
    (stamped / "tmp").mkdir()
    runner = start("launch", "waits.py", folder=stamped, env={"TMPDIR": str(stamped / "tmp")})
    ready(stamped)
    assert list((stamped / "tmp").glob("torchelastic_*"))
    runner.kill()
    launched(runner)
    wait_for(lambda: not marked(stamped), 15)
    wait_for(lambda: not list((stamped / "tmp").glob("torchelastic_*")), 10)


def test_killed_mgpu_leaves_nothing_of_one_process(here: Path) -> None:
    """accelerate's launcher for one process does not pass SIGTERM on."""
    write_config(here, ONE_PROCESS)
    runner = start("launch", "--unverified", "allow", "waits.py", folder=here, stdout=subprocess.DEVNULL)
    wait_for(lambda: (here / "ready.0").exists())
    runner.kill()
    launched(runner)
    wait_for(lambda: not marked(here), 5)


def test_hangup_is_ignored_under_nohup(stamped: Path) -> None:
    """nohup starts mgpu with SIGHUP ignored: the shell's goodbye does not end the training."""
    runner = start("launch", "waits.py", folder=stamped, ignoring=[signal.SIGHUP])
    ready(stamped)
    runner.send_signal(signal.SIGHUP)
    time.sleep(1)
    (stamped / "go").touch()
    code, _, said = launched(runner)
    assert code == 0, said


def test_left_over_process_is_ended(stamped: Path) -> None:
    """A data loader that a rank leaves behind holds memory and pipes; the launch ends all the same."""
    runner = start("launch", "waits.py", "child", folder=stamped)
    code, _, said = launched(runner)
    assert code == 0, said
    child = int((stamped / "child").read_text())
    assert processes.state_of(child) in (None, "ended")
    assert "mgpu stopped 1 leftover process" in said
    assert not marked(stamped)


def test_a_process_that_left_the_session_of_a_run_that_succeeded_continues(stamped: Path) -> None:
    """An upload that the script has started with setsid is not lost; it is named."""
    runner = start("launch", "waits.py", "upload", folder=stamped, stdout=subprocess.DEVNULL)
    code, _, said = launched(runner)
    child = int((stamped / "child").read_text())
    assert code == 0 and processes.state_of(child) == "sleeping", said
    assert f"still running in the background: sleep ({child})" in said and "leftover" not in said
    assert marked(stamped) == [child]


def test_slow_reader_of_a_non_blocking_pipe(stamped: Path) -> None:
    """Some parents (Node, asyncio) hand over a pipe that does not block; no byte is lost when it is full."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    runner = start("launch", "floods.py", folder=stamped, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    received = bytearray()
    with open(reader, "rb", buffering=0) as stream:
        while data := stream.read(1 << 16):
            received += data
            time.sleep(0.005)
    assert runner.wait(30) == 0
    assert received == b"".join(b"%07d\n" % number for number in range(1 << 18))


def test_reader_that_goes_away_does_not_end_the_training(stamped: Path) -> None:
    """`mgpu launch … | head`: the training goes on, the log is whole."""
    reader, writer = os.pipe()
    runner = start("launch", "floods.py", folder=stamped, stdout=writer)
    os.close(writer)
    os.read(reader, 100)
    os.close(reader)
    _, said = runner.communicate(timeout=60)
    assert runner.returncode == 0, said
    (log,) = stamped.glob(".mgpu/runs/*/run.log")
    assert log.stat().st_size >= 8 << 18


# In a terminal


def terminal(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Any:
    """mgpu on a pseudo-terminal of 24 x 80."""
    pexpect = pytest.importorskip("pexpect")
    variables = environment(folder / "home", {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})})
    return pexpect.spawn(
        sys.executable, ["-m", "mgpu", *arguments],
        cwd=str(folder), env=variables, encoding="utf-8", timeout=60, dimensions=(24, 80),
    )  # fmt: skip


def test_ctrl_c_in_a_terminal(stamped: Path) -> None:
    child = terminal(stamped, "launch", "--yes", "waits.py")
    child.expect("a terminal")
    ready(stamped)
    child.send("\x03")
    child.expect(r"Interrupted.* after \d+ s \(exit 130\)\.")
    child.expect(pexpect_end())
    child.close()
    assert child.exitstatus == errors.INTERRUPTED
    assert not marked(stamped)


def test_asked_before_the_start(stamped: Path) -> None:
    """A verified run with a finding in its script asks once; "No" starts nothing."""
    alone = "import torch\nfor x in range(3):\n    loss.backward()\n    optimizer.step()\n"
    (stamped / "waits.py").write_text(alone)
    child = terminal(stamped, "launch", "waits.py", env={"TERM": "dumb"})
    child.expect("verified .* on this machine")
    child.expect(r"Start\?")
    child.expect("Type a number")
    child.sendline("2")
    child.expect(pexpect_end())
    child.close()
    assert child.exitstatus == errors.LAUNCH_REFUSED
    assert not (stamped / "ready.0").exists()


def test_as_a_background_job_of_a_shell(stamped: Path) -> None:
    """`mgpu launch … &` in a terminal: not stopped for touching a terminal that it may not touch."""
    pexpect = pytest.importorskip("pexpect")
    script = f"set -m; {shlex.quote(sys.executable)} -m mgpu launch --yes waits.py & wait $!; echo code $?"
    child = pexpect.spawn(
        "bash", ["--norc", "-c", script],
        cwd=str(stamped), env=environment(stamped / "home", {"TERM": "xterm"}), encoding="utf-8", timeout=60,
    )  # fmt: skip
    try:
        (stamped / "go").touch()
        child.expect(r"code (\d+)", timeout=20)
        assert child.match.group(1) == "0"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.close(force=True)


def pexpect_end() -> Any:
    import pexpect

    return pexpect.EOF
