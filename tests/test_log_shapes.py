"""Is one traceback read the same in every form in which launchers, containers and loggers write it?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.report import failure

BEFORE = ("loading the model", "step 1 loss 0.5", "step 2 loss 0.4")
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/u/train.py", line 41, in main',
    "    step(batch)",
    "ValueError: bad batch",
)
PLAIN = (*BEFORE, *TRACEBACK)
BAR = "  5%|▌     | 50/1000 [00:10<03:00,  5.0it/s]"


def each(form: str) -> str:
    return "".join(f"{form.replace('{}', line)}\n" for line in PLAIN)


def lines(*shown: str) -> str:
    return "".join(f"{line}\n" for line in shown)


# The form, and the rank that it shows.
SHAPES: dict[str, tuple[str, int | None]] = {
    "plain": (each("{}"), None),
    "torch": (lines(*BEFORE, *(f"[rank3]: {line}" for line in TRACEBACK)), 3),
    "torchrun --tee": (each("[default3]:{}"), 3),
    "torchrun --role": (each("[trainer3]:{}"), 3),
    "srun --label": (each("3: {}"), 3),
    "srun --label of many tasks": (each("  3: {}"), 3),
    "srun --label after the batch script": (lines(*(f"module {n}" for n in range(20))) + each("3: {}"), 3),
    "srun --label of torch": (lines(*BEFORE, *(f"3: [rank3]: {line}" for line in TRACEBACK)), 3),
    "mpirun --tag-output": (each("[1,3]<stderr>:{}"), 3),
    "SageMaker": (each("[1,mpirank:3,algo-1]<stderr>:{}"), 3),
    "rank in words": (each("rank3: {}"), 3),
    "rank in brackets": (each("[Rank 3] {}"), 3),
    "pdsh": (each("node7: {}"), None),
    "pdsh and torch": (lines(*BEFORE, *(f"node7: [rank3]: {line}" for line in TRACEBACK)), 3),
    "Ray task": (each("(pid=123, ip=10.0.0.1) {}"), None),
    "Ray actor": (each("(WorkerDict pid=123) {}"), None),
    "Ray actor elsewhere": (each("(WorkerDict pid=123, ip=10.0.0.1) {}"), None),
    "Ray Train": (each("(RayTrainWorker pid=123, ip=10.0.0.1) {}"), None),
    "Ray in color": (each("\x1b[36m(WorkerDict pid=123)\x1b[0m {}"), None),
    "Ray, copied from a terminal": (each("[36m(WorkerDict pid=123)[0m {}"), None),
    "Ray, repeated": (
        each("(WorkerDict pid=123) {}").replace("bad batch", "bad batch [repeated 7x across cluster]"), None),
    "SkyPilot": (each("(worker1, rank=3, pid=2000, ip=10.0.0.2) {}"), 3),
    "kubectl logs --prefix": (each("[pod/train-worker-1/pytorch] {}"), None),
    "kubectl logs --timestamps": (each("2026-11-21T10:12:01.123456789Z {}"), None),
    "kubectl logs with both": (each("[pod/train-worker-1/pytorch] 2026-11-21T10:12:01.123456789Z {}"), None),
    "containerd": (each("2026-11-21T10:12:01.123456789Z stderr F {}"), None),
    "docker compose": (each("trainer-1  | {}"), None),
    "GitHub Actions": (each("2026-11-21T10:12:01.1234567Z {}"), None),
    "Azure ML": (each("[stderr]{}"), None),
    "ISO time": (each("2026-11-21 10:12:01 {}"), None),
    "ISO time with a zone": (each("2026-11-21T10:12:01+00:00 {}"), None),
    "ISO time in brackets": (each("[2026-11-21 10:12:01] {}"), None),
    "ISO time with a zone in brackets": (each("[2026-11-21T10:12:01Z] {}"), None),
    "time": (each("10:12:01 {}"), None),
    "time in brackets": (each("[10:12:01] {}"), None),
    "syslog": (each("Nov 21 10:12:01 node7 python[4711]: {}"), None),
    "glog": (each("E1121 10:12:01.123456 4711 train.py:41] {}"), None),
    "logging": (each("2026-11-21 10:12:01,123 ERROR {}"), None),
    "logging with names": (each("2026-11-21 10:12:01,123 - ERROR - train - {}"), None),
    "loguru": (each("2026-11-21 10:12:01.123 | ERROR    | __main__:main:41 - {}"), None),
    "basicConfig": (each("ERROR:root:{}"), None),
    "level": (each("ERROR: {}"), None),
    "level in brackets": (each("[ERROR] {}"), None),
    "vLLM": (each("(VllmWorker rank=3 pid=6123) ERROR 06-02 15:20:11 [multiproc_executor.py:487] {}"), 3),
    "vLLM's engine": (each("(EngineCore_DP0 pid=6123) ERROR 06-02 15:20:11 [core.py:708] {}"), None),
    "without its head": (lines(*BEFORE, *TRACEBACK[1:]), None),
    "without its head, under a prefix": (lines(*(f"<job 77> {line}" for line in (*BEFORE, *TRACEBACK[1:]))), None),
    "wandb": (each("wandb: {}"), None),
    "accelerate test": (each("stderr: {}"), None),
    "something unknown": (each("<<job 77 / worker b7>> {}"), None),
    "color": (each("\x1b[31m{}\x1b[0m"), None),
    "indented": (lines(*BEFORE, *(f"    {line}" for line in TRACEBACK)), None),
    "after a progress bar": (lines(*BEFORE, BAR + TRACEBACK[0], *TRACEBACK[1:], BAR), None),
    "after carriage returns": (lines(f"\r{BAR}\r{BAR}\r{BAR}{TRACEBACK[0]}", *TRACEBACK[1:]), None),
    "Windows": (each("{}\r"), None),
    "raised again by Ray": (lines(
        *BEFORE, "Traceback (most recent call last):", '  File "/home/u/main.py", line 9, in <module>',
        "    ray.get(task)", '  File "/opt/lib/python3.11/site-packages/ray/_private/worker.py", line 900, in get',
        "    raise value.as_instanceof_cause()",
        "ray.exceptions.RayTaskError(ValueError): ray::Worker.run() (pid=123, ip=10.0.0.1)", *TRACEBACK[1:]), None),
}  # fmt: skip

STEP = "*** STEP 123.0 ON node7 CANCELLED AT 2026-11-21T10:12:09 ***"
ENDS = {
    "nothing": "",
    "srun": lines("srun: error: node7: task 3: Exited with exit code 1", "srun: Terminating StepId=123.0"),
    "srun of several tasks": lines(
        f"slurmstepd: error: {STEP}", "srun: error: node7: tasks 0-2: Terminated",
        "srun: error: node7: task 3: Exited with exit code 1"),
    "docker": lines("trainer-1 exited with code 1"),
    "kubectl": lines("command terminated with exit code 1"),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_traceback_is_the_cause_in_every_shape(shape: str, end: str, tmp_path: Path) -> None:
    text, rank = SHAPES[shape]
    path = tmp_path / "run.log"
    path.write_bytes((text + ENDS[end]).encode())
    check(path, 3 if rank is None and end.startswith("srun") else rank)  # srun names the task, which is the rank


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes((lines(*TRACEBACK) + ENDS["srun"]).encode(encoding))
    check(path, 3)


def check(path: Path, rank: int | None) -> None:
    log = read.read_logs([path])
    verdict = root_cause.find_cause(log, None)
    document = failure.triage_document(verdict, log, None)
    assert verdict.first is not None and verdict.first.id == "log_exception"
    problem = verdict.first.outcome.problem
    assert problem is not None and problem.title.startswith("train.py:41 in main raised ValueError")
    assert problem.title.endswith(": bad batch")
    first = document["first_failure"]
    assert (first and first["rank"]) == rank


@pytest.mark.parametrize("form", ["(Worker pid={0}) {1}", "trainer-{0}  | {1}", "[pod/worker-{0}/main] {1}",
                                  "node{0}: {1}", "{0}: {1}", "[1,{0}]<stderr>:{1}"])  # fmt: skip
def test_processes_that_write_into_one_another(form: str, tmp_path: Path) -> None:
    show: Callable[[int, str], str] = form.format
    other = [line.replace("bad batch", "worse batch").replace("41", "43") for line in TRACEBACK]
    text = lines(*(show(n, pair[n]) for pair in zip(TRACEBACK, other, strict=True) for n in (0, 1)))
    path = tmp_path / "run.log"
    path.write_text(text)
    raised = read.read_logs([path]).raised
    assert [(one.message, one.place) for one in raised] == [
        ("bad batch", "train.py:41 in main"), ("worse batch", "train.py:43 in main"),
    ]  # fmt: skip


IPYTHON = lines(
    "---------------------------------------------------------------------------",
    "ValueError                                Traceback (most recent call last)",
    "Cell In[3], line 9",
    "      7 from accelerate import notebook_launcher",
    "----> 9 notebook_launcher(main, num_processes=2)",
    "",
    "File /home/u/train.py:41, in main(batch)",
    "     40     step = 1",
    "---> 41     step(batch)",
    "",
    "ValueError: bad batch",
)
OLD_IPYTHON = lines(
    "ValueError                                Traceback (most recent call last)",
    "/tmp/ipykernel_47/3532.py in <cell line: 0>()",
    "----> 2 main(batch)",
    "/home/u/train.py in main(batch)",
    "---> 41     step(batch)",
    "ValueError: bad batch",
)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (IPYTHON, "train.py:41 in main raised ValueError: bad batch"),
        (OLD_IPYTHON, "train.py:41 in main raised ValueError: bad batch"),
        # What is left of a traceback in a message to a forum
        ("some text\n\nValueError: bad batch\n", "the program raised ValueError: bad batch"),
        (lines(*TRACEBACK[:3], "bad batch"), "train.py:41 in main raised Exception: bad batch"),
        ("terminate called after throwing an instance of 'own::Error'\n  what():  bad batch (errno 14)\nAborted (core "
         "dumped)\n", "the program raised Error: bad batch (errno 14)"),
    ],
)  # fmt: skip
def test_what_is_left_of_a_traceback(text: str, title: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    assert (first.id, first.outcome.problem.title) == ("log_exception", title)


@pytest.mark.parametrize("before", ["NCCL WARN Cuda failure 999 'unknown error'\n", lines(*TRACEBACK)])
def test_a_line_alone_is_no_exception_if_the_log_shows_more(before: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"KeyError: 'x'\n{before}")
    assert [one.type for one in read.read_logs([path]).raised] == (["ValueError"] if "Trace" in before else [])


TOKEN = "hf_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7"


@pytest.mark.parametrize("form", [
    "Training completed {}", "NCCL WARN Call failed {}", "Saving the model {}\nRuntimeError: Socket Timeout",
    "torch.OutOfMemoryError: CUDA out of memory. {}", "ValueError: bad batch {}",
    "{}\nTraceback (most recent call last):\n  File \"/x/accelerate/commands/launch.py\", line 1, in launch_command\n"
    "subprocess.CalledProcessError: Command '['/usr/bin/python', 't.py']' returned non-zero exit status 1.",
])  # fmt: skip
def test_a_secret_at_the_end_of_what_is_kept_is_masked(form: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    for start in range(330, 402, 3):
        path.write_text(f"start\n{form.format('x' * start + f' {TOKEN} more')}\n")
        assert TOKEN[:9] not in str(read.read_logs([path]))


@pytest.mark.parametrize(("text", "line"), [
    ("a\rb\rc\nstep 1\nSaving checkpoint to /x/last.pt\nRuntimeError: Socket Timeout\n", 3),
    ("a\rb\rc\nstep 1\n[rank0]: Saving checkpoint to /x/last.pt\n[rank1]: RuntimeError: Socket Timeout", 3),
])  # fmt: skip
def test_the_line_number_of_lone_work_is_the_editors(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    work = read.read_logs([path]).lone_work
    assert work is not None and work.line == line


def test_the_last_line_of_a_file_without_a_line_end_counts(tmp_path: Path) -> None:
    names = ("rank0.log", "rank1.log")
    timeout = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BARRIER, Timeout(ms)=600000)"
    for name, text in zip(names, ("step 1\nSaving checkpoint to /x/last.pt", timeout), strict=True):
        (tmp_path / name).write_text(text)
    work = read.read_logs([tmp_path / name for name in names]).lone_work
    assert work is not None and (work.rank, work.line) == (0, 2)


@pytest.mark.parametrize(("code", "ends", "row"), [
    ("assert batch % world_size == 0", "AssertionError", "log_assertion_of_multiples"),
    ("assert batch % world_size == 0", "ZeroDivisionError: integer modulo by zero", None),
    ("assert batch % world_size == 0", "TypeError: unsupported operand type(s) for %: 'NoneType' and 'int'", None),
    ("if v not in ALL_PARALLEL_STYLES:", "TypeError: argument of type 'NoneType' is not iterable",
        "log_parallel_styles_missing"),
    ("cos, sin = position_embeddings", "TypeError: cannot unpack non-iterable NoneType object",
        "log_positions_not_passed"),
    ("default_generator = torch.cuda.default_generators[idx]", "IndexError: tuple index out of range",
        "log_rng_states_of_more_gpus"),
    ("raise ValueError('assert len(self.ckpt_list) > 0')", "ValueError: no", None),
    ("x = f(y)  # torch.cuda.default_generators[", "ValueError: no", None),
])  # fmt: skip
def test_the_line_of_code_that_raised_an_exception_matches_rows(
    code: str, ends: str, row: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        f'Traceback (most recent call last):\n  File "/home/u/train.py", line 9, in <module>\n    main()\n'
        f'  File "/home/u/env/lib/python3.10/site-packages/foo/bar.py", line 5, in run\n    {code}\n{ends}\n'
    )
    log = read.read_logs([path])
    assert [one.signature for one in log.seen] == ([row] if row else [])
    assert log.raised[0].signatures == ((row,) if row else ())
