"""Memory, values that are not finite, and the pace of the ranks: recorded in real ranks over gloo, and shown."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.hangs.hang_evidence import INJECTED, RECORDED
from mgpu.launch import finite_watch, memory_text, pace_report, rank_facts
from mgpu.launchers.port import free_port
from mgpu.recorder.inject._mgpu_recorder import BEAT, FOLDER, MEMORY, STEP, STEPS
from mgpu.report.json_types import EndedRankEntry
from mgpu.report.screen import Screen
from mgpu.snapshot import NotFinite, Pace, RankPace, Run, Snapshot
from tests.conftest import PYTHONPATH, environment
from tests.conftest import Run as Command
from tests.scripts import write_config
from tests.test_schema import RUN

SCREEN = Screen(100, False, False, io.StringIO())
GIB = 1 << 30
PATHS = f"{INJECTED}{os.pathsep}{PYTHONPATH}"
# Rank 1 allocates 300 MiB, and has a NaN in its batch in step 15.
TRAIN = """\
import sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if dist.get_rank() == 1:
    kept = torch.ones(300 << 20, dtype=torch.uint8)
for step in range(1, 21):
    batch = torch.randn(2, 20)
    if step == 15 and dist.get_rank() == 1:
        batch[0, 0] = float("nan")
    model(batch).sum().backward()
    optimizer.step()
del model, optimizer  # before the process group: threads of gloo that still hold their tensors can abort the exit
sys.stdout.write("done\\n")  # in one piece, also where PYTHONUNBUFFERED is set
dist.destroy_process_group()
"""
LAUNCH = ("launch", "--yes", "--unverified", "allow", "--launcher", "torchrun", "--log-dir", "log", "train.py")


def test_a_run_with_nan_on_one_rank(mgpu: Command, tmp_path: Path) -> None:
    """One finding with rank and step; the peak memory of each rank; the program's bytes are its own."""
    (tmp_path / "train.py").write_text(TRAIN)
    write_config(tmp_path)
    done = mgpu(*LAUNCH, timeout=150)
    assert (done.returncode, done.stdout) == (0, "done\ndone\n"), done.stderr
    document = json.loads((tmp_path / "log" / "result.json").read_text())
    RUN.validate(document)
    (found,) = [one for one in document["remarks"] if one["id"] == "run_not_finite"]
    said = "its inputs have NaN already, batch (train.py:13), 1 of 40 values"
    assert found["title"] == f"the loss of rank 1 is nan in step 15 (train.py:13): {said}"
    assert (found["evidence"]["rank"], found["evidence"]["step"]) == (1, 15)
    assert "Then rank 0 in step 16." in found["cause"]
    said = " ".join(done.stderr.split())
    assert "Ranks the loss of rank 1 is nan in step 15" in said
    host = {one["rank"]: one["peak_host"] for one in document["ranks"]}
    assert 250 << 20 < host[1] - host[0] < 350 << 20
    assert {one["peak_allocated"] for one in document["ranks"]} == {None}
    assert "Memory peak: host" in said and "(rank 1)" in said


FINITE = """
import os, sys, torch
def run(what):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 6):
        loss = model(torch.full((2, 4), float("nan") if step == 3 and what != "well" else 1.0)).sum()
        if what == "scaled":
            scaler = torch.amp.GradScaler("cpu")
            value = torch.ones(1, requires_grad=True).sum()
            (scaler.scale(value) * float("inf")).backward()  # the scaled loss and the gradients are infinite
            model.weight.grad = torch.full_like(model.weight, float("inf"))
        elif what == "norm":
            model(torch.ones(2, 4)).sum().backward()
            if step == 3:
                model.weight.grad.fill_(float("inf"))
        else:
            loss.backward(retain_graph=True) if what == "loss" else torch.autograd.backward([loss])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
what = sys.argv[1]
torch.manual_seed(0)
if what == "compiled":
    clip = torch.compile(lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0), backend="eager", fullgraph=True)
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), float("nan"))
    clip([weight])
else:
    run(what)
print("torch" in sys.modules, torch.nn.utils.clip_grad_norm_.__name__, torch.autograd.backward.__name__)
"""


@pytest.mark.parametrize(
    ("what", "found"),
    [("loss", ("loss", "nan", 3)), ("autograd", ("loss", "nan", 3)), ("norm", ("gradient norm", "inf", 3)),
     ("scaled", None), ("well", None), ("compiled", None)],
)  # fmt: skip
def test_the_first_value_that_is_not_finite(tmp_path: Path, what: str, found: Any) -> None:
    (tmp_path / "train.py").write_text(FINITE)
    (tmp_path / RECORDED).mkdir()
    more = {"PYTHONPATH": PATHS, FOLDER: str(tmp_path / RECORDED), "RANK": "3", "MGPU_DEBUG": "1"}
    done = subprocess.run(
        [sys.executable, "train.py", what], env=environment(tmp_path, more), cwd=tmp_path, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True clip_grad_norm_ backward\n"), done.stderr
    seen = rank_facts.not_finite(tmp_path)
    assert seen is not None
    assert [(one.rank, one.what, one.value, one.step) for one in seen] == ([(3, *found)] if found else [])
    assert all(one.line is not None and one.line.file.endswith("train.py") for one in seen)


STEPS_ALONE = """
import pathlib, torch
store = pathlib.Path("store").absolute().as_uri()
torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
model, frozen = torch.nn.Linear(20, 3), torch.nn.Linear(9, 9)
for parameters in (model.parameters(), [*model.parameters(), *frozen.parameters()]):
    optimizer = torch.optim.SGD(parameters)
    model(torch.ones(1, 20)).sum().backward()
    optimizer.step()
"""


def test_the_bytes_of_the_parameters_that_are_trained(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS_ALONE)
    (tmp_path / RECORDED).mkdir()
    more = {"PYTHONPATH": PATHS, FOLDER: str(tmp_path / RECORDED), "RANK": "0", "MGPU_DEBUG": "1"}
    subprocess.run([sys.executable, "train.py"], env=environment(tmp_path, more), cwd=tmp_path, check=True, timeout=120)
    assert rank_facts.trained_bytes(tmp_path, 1) == (20 * 3 + 3) * 4
    assert rank_facts.trained_bytes(tmp_path, 2) == rank_facts.trained_bytes(tmp_path / RECORDED, 1) == 0
    (path,) = (tmp_path / RECORDED).glob("*.beat")
    path.write_bytes(path.read_bytes()[:-1])
    assert rank_facts.trained_bytes(tmp_path, 1) == 0


def test_values_that_a_trainer_logs(tmp_path: Path) -> None:
    """On a GPU the loss is a number only when the Trainer logs it. A module in place of transformers'."""
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "trainer.py").write_text("class Trainer:\n    def log(self, logs, start=None): return 'logged'\n")
    code = (
        "import torch, types\nfrom transformers.trainer import Trainer\n"
        "one = Trainer(); one.state = types.SimpleNamespace(global_step=40)\n"
        "print(one.log({'loss': 0.5, 'grad_norm': 1.0}), one.log({'loss': 0.0, 'grad_norm': float('nan')}))\n"
    )
    (tmp_path / RECORDED).mkdir()
    paths = f"{PATHS}{os.pathsep}{tmp_path}"
    more = {"PYTHONPATH": paths, FOLDER: str(tmp_path / RECORDED), "RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path, more), capture_output=True, text=True, check=True
    )
    assert done.stdout == "logged logged\n"
    (found,) = rank_facts.not_finite(tmp_path) or ()
    assert (found.what, found.value, found.step) == ("gradient norm", "nan", 40)


GPU = """
import sys
import _mgpu_finite
class Tensor:
    read = 0
    device = type("D", (), {"type": "cuda"})
    def numel(self): return 1
    def item(self): Tensor.read += 1; return float("nan") if Tensor.read == 2 else 1.0
torch = type("T", (), {"Tensor": Tensor})
recorder = type("R", (), {"steps": 0, "store": lambda self, kind, text: open(sys.argv[1], "w").write(text)})()
finite = _mgpu_finite.Finite(recorder, torch)
for recorder.steps in range(30):
    finite.look("loss", Tensor())
print(Tensor.read)
"""


@pytest.mark.parametrize(("every", "read"), [("", "0"), ("10", "2"), ("1", "2"), ("x", "0")])
def test_a_gpu_is_waited_for_only_every_n_steps(tmp_path: Path, every: str, read: str) -> None:
    """A class in place of a tensor on a GPU counts how often it is read; the second value is NaN."""
    env = environment(tmp_path, {"PYTHONPATH": PATHS, "MGPU_NAN_CHECK": every})
    path = tmp_path / "0.1.nan"
    done = subprocess.run([sys.executable, "-c", GPU, str(path)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{read}\n"
    if read == "2":
        assert json.loads(path.read_text())["step"] == 2 * int(every)


def test_nan_check_is_shown_with_its_cost(mgpu: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    write_config(tmp_path)
    shown = mgpu("launch", "--nan-check", "10", "--dry-run", *LAUNCH[1:])
    said = " ".join(shown.stdout.split())
    assert "--nan-check: every 10 steps, the loss and the gradient norm wait for the GPU" in said
    wrong = mgpu("launch", "--nan-check", "10", "--no-recorder", *LAUNCH[1:])
    assert wrong.returncode == 2 and "--nan-check needs the recorder" in wrong.stderr


SAVES = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.Linear(2000, 2000)
optimizer = torch.optim.Adam(model.parameters())
for step in range(1, 7):
    model(torch.ones(2, 2000)).sum().backward()
    if step == 5:
        torch.save(model.state_dict(), "model.pt")
    optimizer.step()
"""


def test_time_in_the_optimizer_and_saving(tmp_path: Path) -> None:
    from mgpu.launch import pace_watch

    (tmp_path / RECORDED).mkdir()
    (tmp_path / "train.py").write_text(SAVES)
    more = {"PYTHONPATH": PATHS, FOLDER: str(tmp_path / RECORDED), "RANK": "0"}
    env = environment(tmp_path, more)
    subprocess.run([sys.executable, "train.py", str(free_port())], env=env, cwd=tmp_path, check=True)
    (beat,) = (tmp_path / RECORDED).glob("*.beat")
    steps = pace_watch.steps_of(beat)
    assert sorted(steps) == [1, 2, 3, 4, 5, 6]
    assert all(steps[n].optimizer_s > steps[n - 1].optimizer_s for n in range(2, 7))
    assert steps[4].saving_s == 0 < steps[5].saving_s == steps[6].saving_s
    peaks = rank_facts.peaks(tmp_path, 0, int(beat.name.split(".")[1]))
    assert peaks is not None and peaks.host > 64 << 20 and (peaks.allocated, peaks.reserved) == (None, None)


def test_memory_of_a_gpu_is_read(tmp_path: Path) -> None:
    place = tmp_path / RECORDED
    place.mkdir()
    empty = struct.pack(BEAT, 0, 0, 0, 0, 0, 0, 0) + bytes(STEPS * struct.calcsize(STEP))
    (place / "0.7.beat").write_bytes(empty + struct.pack(MEMORY, 3 * GIB, 30 * GIB, 38 * GIB))
    assert rank_facts.peaks(tmp_path, 0, 7) == (3 * GIB, 30 * GIB, 38 * GIB)
    (place / "0.8.beat").write_bytes(empty)
    assert rank_facts.peaks(tmp_path, 0, 8) is None and rank_facts.peaks(tmp_path, 0, 9) is None


def entry(rank: int, host: int | None, allocated: int | None = None, reserved: int | None = None) -> EndedRankEntry:
    return {
        "rank": rank, "exit": 0, "signal": None, "gpu": None, "host": None, "pid": 1, "error": None, "state": None,
        "at": None, "peak_host": host, "peak_allocated": allocated, "peak_reserved": reserved,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([entry(0, None)], ""),
        ([entry(0, 3 * GIB)], "peak: host 3.0 GiB"),
        ([entry(0, 3 * GIB), entry(1, 3 * GIB - 5)], "peak: host 3.0 GiB on each rank"),
        ([entry(0, 3 * GIB, 30 * GIB, 40 * GIB), entry(1, 9 * GIB, 30 * GIB, 38 * GIB)],
         "peak: host 9.0 GiB (rank 1), 3.0 GiB (rank 0); GPU allocated 30 GiB on each rank; "
         "GPU reserved 40 GiB on each rank"),
        ([entry(rank, (rank + 1) * GIB) for rank in range(8)],
         "peak: host 8.0 GiB (rank 7), 7.0 GiB (rank 6), 6.0 GiB (rank 5), 5.0 GiB (rank 4) and 4 more"),
    ],
)  # fmt: skip
def test_the_line_on_memory(ranks: list[EndedRankEntry], text: str) -> None:
    assert memory_text.memory_text(ranks) == text


def pace(last: float) -> Pace:
    equal = RankPace(0, 0.001, 0.05 * last, 1 - last, 0.004), RankPace(1, 0.001, 0.0, last, 0.004, 2.5)
    return Pace(40, 0.21, 0.1 * last, equal)


def test_uneven_ranks_have_a_table_and_equal_ones_none() -> None:
    assert pace_report.is_uneven(pace(1.0)) and not pace_report.is_uneven(pace(0.5))
    text = ["".join(part for part, _ in line) for line in pace_report.table(pace_report.entry(pace(1.0)), SCREEN)]
    assert text == [
        "RANK    STEP  LOADER  WAITS  OPTIMIZER    REST  SAVING  LAST",
        "   1  210 ms  1.0 ms   0 ms     4.0 ms  205 ms   2.5 s  100%",
        "   0  210 ms  1.0 ms  50 ms     4.0 ms  155 ms   0.0 s    0%",
    ]


def test_the_pace_of_a_running_run_is_stored(tmp_path: Path) -> None:
    pace_report.write(tmp_path, pace(1.0))
    assert pace_report.read(tmp_path) == pace(1.0)
    (tmp_path / pace_report.NAME).write_text("[]")
    assert pace_report.read(tmp_path) is None and pace_report.read(tmp_path / "none") is None


class Says:
    started = 0.0

    def __init__(self) -> None:
        self.ranks: dict[int, Any] = {}
        self.said: list[tuple[str, bool]] = []

    def say(self, text: str, *, important: bool = False) -> None:
        self.said.append((text, important))


def test_a_running_run_reports_it_once(tmp_path: Path) -> None:
    now = [100.0]
    watch, says = finite_watch.FiniteWatch(tmp_path, 2, lambda: now[0]), Says()
    (tmp_path / RECORDED).mkdir()
    watch.tick(says)
    content = {"what": "loss", "value": "nan", "step": 15, "at": 1.0, "frames": []}
    (tmp_path / RECORDED / "1.7.nan").write_text(json.dumps(content))
    for _ in range(5):
        now[0] += 6
        watch.tick(says)
    ((text, important),) = says.said
    assert text.startswith("the loss of rank 1 is nan in step 15. Look at the batch of rank 1") and important


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"what": 1, "value": 2, "step": -1, "at": 0}', '{"step": 1e400}'])
def test_a_file_that_is_damaged_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORDED).mkdir()
    (tmp_path / RECORDED / "1.7.nan").write_text(content)
    assert rank_facts.not_finite(tmp_path) == ()
    assert rank_facts.not_finite(tmp_path / "none") is None


def test_the_ranks_of_the_same_step() -> None:
    found = (NotFinite(2, "loss", "inf", 7, 1.0), NotFinite(0, "gradient norm", "nan", 7, 2.0))
    (outcome,) = engine.judge(Snapshot(run=Run(0, 0, 1.0, expected=4, not_finite=found)), selections.FINITE)
    assert outcome.problem is not None
    assert outcome.problem.title == "the loss of rank 2 is inf in step 7"
    assert outcome.problem.cause == "Then rank 0 in the same step."


@pytest.mark.parametrize("name", ["_mgpu_recorder.py", "_mgpu_finite.py"])
def test_the_recorder_is_not_the_users_code(name: str) -> None:
    """Where mgpu is not in site-packages. A user's file may have a similar name."""
    from mgpu.readers.log.traceback_frames import FOREIGN
    from mgpu.readers.stack_dump import frame_at

    assert (INJECTED / name).is_file()
    for path, is_own in ((str(INJECTED / name), False), (f"/home/me/train{name}", True)):
        assert frame_at(path, 1, "backward").library is not is_own
        assert bool(FOREIGN.search(path)) is not is_own
