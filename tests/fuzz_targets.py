"""One target for every kind of file that mgpu reads: documents to begin with, and what a command does with the file.

A target calls what the command calls. What it raises otherwise than `permitted` is a fault. `covers` names the
functions of mgpu that open the file, which tests/test_fuzz.py compares with the source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import itertools
import json
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from mgpu import engine, file_reading, files, project_settings
from mgpu import snapshot as snapshot_types
from mgpu.check import Check
from mgpu.cli import guide, known_values
from mgpu.config import deepspeed_json, reading
from mgpu.doctor import repair
from mgpu.engine import plugins, selections
from mgpu.errors import MgpuError
from mgpu.fleet import artifacts, far_run, hosts_doctor, hosts_run, hosts_verdict, verified_hosts, worker
from mgpu.fleet import load as fleet_reading
from mgpu.hangs import hang_evidence, hang_files, stack_requests
from mgpu.hosts import named_hosts
from mgpu.launch import (
    gpu_readings_file,
    hang_report,
    list_runs,
    memory_text,
    node_answers,
    node_pace,
    node_ranks,
    pace_report,
    pace_watch,
    rank_facts,
    registry,
    run_facts_file,
    run_outcome,
    show_runs,
)
from mgpu.launch import report as launch_report
from mgpu.launchers import choice, deepspeed_hosts, framework_yaml, line_program, project_folder, run_folder, stamp
from mgpu.launchers.foreign_programs import FRAMEWORKS
from mgpu.launchers.option_words import Given
from mgpu.planning import measured
from mgpu.probes import libraries, packages, pci
from mgpu.process import log_follower as launch_written
from mgpu.process import processes, system_calls, tail
from mgpu.readers import nccl_ras, plain_pickle, torch_dumps
from mgpu.readers.job_script import read as job_script_read
from mgpu.readers.log import read as triage
from mgpu.readers.sources import left_loops, value_origins
from mgpu.readers.training_script import read as training_script_read
from mgpu.recorder.inject import _mgpu_recorder
from mgpu.rehearse import run as rehearse_run
from mgpu.rehearse import stopped_at
from mgpu.report import case_archive, failure, load, screen
from mgpu.report.document import check_json
from mgpu.slurm import job_case, job_outcome, node_watch
from mgpu.smoke import baseline, nccl_log, runner, script_section, show_last, stacks, watch
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import BadSnapshot, Config, Plan, Snapshot, changes, decode, to_json
from mgpu.snapshot.redaction import redact
from mgpu.text import visible
from mgpu.validate import run as validate_run
from mgpu.wizard import (
    answers_file,
    drafts,
    existing_file,
    folder,
    job_file,
    model,
    parameter_probe,
    weights,
    write_config,
)
from mgpu.wizard.answers import Answers
from mgpu.wizard.flow import State
from tests import machines, planted
from tests.checks.facts import facts

HERE = Path(__file__).parent
MACHINE = Snapshot(**facts())
SCREEN = screen.Screen(screen.WIDTH_PLAIN, False, False, io.StringIO())


@dataclass(frozen=True)
class Target:
    """A kind of file."""

    name: str  # of the file
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], object]
    covers: tuple[str, ...]
    permitted: tuple[type[Exception], ...] = (MgpuError,)
    share: float = 1.0  # of the inputs: of a target that is slow, fewer
    reads_seeds: bool = True  # its first document is accepted


def texts(pattern: str, most: int = 40_000) -> list[bytes]:
    """Files of the tests' own material."""
    found = [path.read_bytes() for path in sorted(HERE.glob(pattern)) if path.is_file()]
    assert found, pattern
    return [raw for raw in found if len(raw) <= most] or [raw[:most] for raw in found]


def document(*found: Any) -> list[bytes]:
    return [json.dumps(one, indent=1).encode() for one in found]


@cache
def snapshots() -> list[bytes]:
    names = [path.stem for path in sorted((HERE / "machines").glob("*.json"))][:6]
    facts_of = [json.loads(path.read_bytes()) for path in (HERE / "smoke_runs").glob("*/facts.json")]
    return document(to_json(MACHINE), *[to_json(machines.machine(name)) for name in names], *facts_of)


def no_crash(outcomes: Any) -> None:
    """No check breaks, and what it says can be written."""
    for outcome in outcomes:
        assert outcome.status != "crash", f"{outcome.check.id}: {getattr(outcome.answer, 'trace', outcome.answer)}"
        json.dumps(check_json(outcome)).encode("utf-8", "surrogatepass")


# ---- hosts


def tested_hosts() -> list[bytes]:
    tested = {"config": "abc", "hosts": ["n1", "me@n2"], "python": "/p", "time": "2026-11-23T10:00:00+00:00"}
    return document({"schema": 1, "tested": [tested]})


def tested_hosts_of(path: Path) -> object:
    """As launch reads what was tested, in its folder."""
    place = path.parent / project_folder.FOLDER
    place.mkdir(exist_ok=True)
    (place / verified_hosts.FILE).write_bytes(path.read_bytes())
    return verified_hosts.find(path.parent / "accelerate.yaml", "abc", ["n1", "me@n2"], "/p")


def project_folder_of(path: Path) -> object:
    """As a run that wrote nothing leaves it: only what mgpu wrote is removed."""
    place = path.parent / project_folder.FOLDER
    place.mkdir(exist_ok=True)
    (place / ".gitignore").write_bytes(path.read_bytes())
    with contextlib.suppress(OSError):
        project_folder.remove_if_unused(place)
    assert place.exists() is (path.read_bytes() != b"*\n")
    return None


def parts_of_hosts() -> list[bytes]:
    cause = {"id": "log_python_exception", "role": "root", "title": "ValueError", "status": "fail"}
    own = {
        "ranks": [{"rank": 0, "pid": 1, "exit_code": 1}, {"rank": 1, "pid": 2, "exit_code": 1}], "remarks": ["a"],
        "probable_cause": cause, "secondary": [], "first_failure": {"rank": 0}, "signalled": None,
    }  # fmt: skip
    part = {"host": "n1", "order": 0, "code": 1, "lost": None, "said": "", "document": own}
    return document(part, {**part, "lost": "the connection ended: x", "document": None})


def part_of_hosts_of(path: Path) -> object:
    """As launch completes its verdict with what a host says, after it came over the connection."""
    far_run._document(path)
    place = path.parent / hosts_run.RESULTS
    place.mkdir(exist_ok=True)
    (place / "0.json").write_bytes(path.read_bytes())
    whole: Any = {"exit_code": 1, "signalled": None, "timed_out": False, "first_failure": None}
    hosts_verdict.amend(path.parent, whole, [{"name": "n1", "user": "", "port": None}])
    return json.dumps(whole)


def orders_of_hosts() -> list[bytes]:
    host = {"name": "n1", "user": "", "port": None, "slots": None, "local": False}
    return document({
        "hosts": [host], "python": "/p", "folder": "/f", "pass_env": [], "interfaces": {}, "parts": {"n1": {"node": 0}},
        "common": {"config": "", "name": "a.yaml", "options": [], "target": ["t.py"], "logs": "/l"},
    })  # fmt: skip


def orders_of_hosts_of(path: Path) -> object:
    return hosts_run.read_orders(path.parent)


# ---- configs


def config_of(path: Path) -> None:
    hosts_doctor.wish((), hosts_doctor.Subject(config=str(path)))
    config = reading.read(path)
    no_crash(validate_run.judge(config, MACHINE))
    validate_run.fix_config(reading.contents(path), str(path), MACHINE)


def deepspeed_of(path: Path) -> None:
    text = f"distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: {path}\n"
    config = reading.parse_config(text.encode(), "a.yaml")
    no_crash(validate_run.judge(config, MACHINE))
    stamp.fingerprint(dataclasses.replace(MACHINE, config=config))


def deepspeed_json_of(path: Path) -> None:
    """A DeepSpeed file itself: as a job names it, and given to --validate."""
    named = deepspeed_json.read(path)
    given = deepspeed_json.recognized(path.read_bytes()[: deepspeed_json.LARGEST_BYTES], "a.json")
    files_read = tuple(file for file in (named, given) if file)
    no_crash(engine.judge(Snapshot(deepspeed_json=files_read or None), selections.DEEPSPEED_FILE))


def existing_config(path: Path) -> None:
    """What the wizard does with a file that is there."""
    with contextlib.suppress(MgpuError):
        write_config.answers_of_file(path, MACHINE)
    write_config.existing_answers(path, MACHINE)
    write_config.is_up_to_date(path, "distributed_type: MULTI_GPU\n")
    existing_file.differences(path, "distributed_type: MULTI_GPU\n")
    files.back_up(path)


# ---- the wizard


def answers_of(path: Path) -> None:
    found = answers_file.read(str(path))
    answers_file.dumps(found)


def site_checks(path: Path) -> None:
    """What is read, not what it does: a file that only root can write is run."""
    path.parent.chmod(0o755)
    path.parent.parent.chmod(0o755)
    with mock.patch.multiple(plugins, SITE=path.parent, _ROOT=os.getuid()):
        list(plugins._of_site([]))


def answers_over(path: Path) -> None:
    answers_file.save(path, Answers(gpus=2, origins={"gpus": "flag"}))


ANSWERS = (
    b'schema = 1\nmgpu = "0.1"\n\n[devices]\ngpus = 2 # mine\nprecision = "bf16"\n[batch]\nper_gpu = 8\n'
    b'effective_batch = 64\n[model]\nparams = "8.03B"\n[notes]\nwho = ["a", {b = 1}]\n',
    b"schema = 1\n",
)
PROJECT = (
    b'[tool.mgpu.doctor]\nstrict = true # ours\nskip = ["nccl"]\nexpect-gpus = 8\n\n[[tool.mgpu.waive]]\n'
    b'check = "gpu_busy"\nreason = "shared box"\nuntil = 2027-01-31\n',
    b'[tool.mgpu]\nwaive = [{check = "gpu-busy", reason = "x", until = "2027-01-31"}]\n',
)
YAML_ANSWERS = (b"schema: 1\ndevices:\n  gpus: [0, 1]\nbatch: {per_gpu: 8}\nhost:\n  port: 29500\n",)


def model_folder(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        if name != "model.safetensors":
            (path.parent / "model.safetensors").write_bytes(tensors()[0])
        count = weights.count(path.parent)
        model._make_found("m", count, "here").text  # noqa: B018

    return read


@cache
def tensors() -> list[bytes]:
    header = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [100, 10], "data_offsets": [0, 2000]},
        "lm_head.weight": {"dtype": "BF16", "shape": [100, 10], "data_offsets": [2000, 4000]},
    }
    raw = json.dumps(header).encode()
    return [struct.pack("<Q", len(raw)) + raw + bytes(4000)]


def header_of(path: Path) -> None:
    """A spoilt header is as long as the file says, so that it is not refused for its length."""
    raw = path.read_bytes()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(5000))
    with contextlib.suppress(weights.Uncountable):
        model._make_found("m", weights.count(path.parent), "here").text  # noqa: B018


def cache_of(path: Path) -> None:
    hub = path.parent / "hub" / "models--org--m"
    (hub / "snapshots" / "abc").mkdir(parents=True, exist_ok=True)
    (hub / "refs").mkdir(exist_ok=True)
    (hub / "refs" / "main").write_bytes(path.read_bytes())
    model._snapshots("org/m", {"HF_HUB_CACHE": str(path.parent / "hub")})


def report_of(path: Path) -> None:
    parameter_probe._parse_measured("train.py", parameter_probe._report_of(path, "train.py"))


def job_of_the_wizard(path: Path) -> None:
    job_file.is_unmodified(path)
    job_file.is_up_to_date(path, "#!/bin/bash\n")
    job_file.differences(path, "#!/bin/bash\n")


# ---- machines and results


def snapshot_of(path: Path) -> None:
    found = load.read_snapshot(path)
    hidden = redact(found)
    for one in (found, hidden):
        no_crash(engine.judge(one, selections.DOCTOR))
    changes.find_changes(redact(MACHINE), hidden)
    changes.time_saved(MACHINE, found)


def cases_packed() -> list[bytes]:
    """Archives, and the tar in one, gzip's own layer left out: a mutated gzip rarely unpacks."""
    whole = case_archive.packed(redact(MACHINE))
    plain = gzip.decompress(whole)
    return [whole, gzip.compress(plain[:2048] + plain[-1024:], 0), gzip.compress(plain[:512], 0)]


def facts_of_run(path: Path) -> None:
    """As `--report` reads what a run has stored, and the last lines of its log."""
    found = run_facts_file.load(path.parent)
    if found is not None:
        no_crash(engine.judge(redact(found), selections.DOCTOR))
    run_facts_file.last_lines([path], 40)
    run_facts_file.timed_steps(path, 0, 0.0, {})


def nodes_of(path: Path) -> None:
    (path.parent / "n2.json").write_bytes(snapshots()[1])
    if path.name != "n1.json":
        (path.parent / "n1.json").write_bytes(snapshots()[0])
    found = Snapshot(fleet=fleet_reading.fleet([str(path.parent)]), plan=Plan(nodes=2))
    no_crash(engine.judge(found, selections.FLEET))


def preflight_of(path: Path) -> None:
    artifacts.read(path.parent)
    job_outcome.preflight_in([path.parent])
    nodes_of(path)


PREFLIGHT = {
    "schema": "mgpu.preflight/1.0", "good": ["n1", "n2"], "chosen": ["n1"],
    "bad": [{"node": "n1", "reason": "n1: lost", "id": "gpu_lost"}, {"node": "n9", "reason": "no answer", "id": ""}],
}  # fmt: skip


def shown_of(path: Path) -> None:
    for name in ("smoke.json", "facts.json"):
        if name != path.name and not (path.parent / name).exists():
            (path.parent / name).write_bytes((HERE / "smoke_runs" / "passed" / name).read_bytes())
    found = show_last._read(path.parent)
    if found is not None:
        show_last._config(found)
        show_last.last_ranks(Path("accelerate.yaml"), path.parent.parent)
        result = show_last._result(found)
        from mgpu.smoke import formats
        from mgpu.smoke.request import Request

        with contextlib.redirect_stdout(io.StringIO()):
            formats.write_report(result, Request(), None, [])


BASELINE = {
    "schema": "mgpu.smoke/1.0", "time": "2026-01-01T00:00:00Z", "scaling": [], "bandwidth": [],
    "ranks": [{"rank": 0, "gpu": "GPU-1", "measured": {"step_s": 0.1}}],
}  # fmt: skip


def stamp_of(path: Path) -> None:
    place = path.parent / ".mgpu"
    place.mkdir(exist_ok=True)
    (place / "verified.json").write_bytes(path.read_bytes())
    (place / "verified.json").chmod(0o600)
    config = Config(str(path.parent / "accelerate.yaml"), "ab" * 32, {"num_processes": 2}, {}, ())
    now = dataclasses.replace(MACHINE, config=config)
    found = stamp.current_stamp(now)
    no_crash(engine.run(engine.load(only=("stamp",)), dataclasses.replace(now, stamp=found)))
    stamp.last_measurements(now, path.parent)
    stamp.last_pass(path.parent / "accelerate.yaml")


@cache
def stamps() -> list[bytes]:
    config = Config("accelerate.yaml", "ab" * 32, {"num_processes": 2}, {}, ())
    entry = {
        "time": "2026-01-01T00:00:00Z", "facts": stamp.fingerprint(dataclasses.replace(MACHINE, config=config)),
        "rungs": ["start", "train"], "measured": {"0": {"step_s": 0.1}}, "level": "standard",
        "bandwidth": [], "scaling": [], "measured_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return document({"schema": 1, "entries": {"x": entry}})


# ---- runs


def private(path: Path, name: str) -> Path:
    """The same bytes in a file that mgpu could have written."""
    place = path.with_name(name)
    place.write_bytes(path.read_bytes())
    place.chmod(0o600)
    return place


ENTRY = dataclasses.asdict(
    registry.Entry(
        "20260101-0000-abcd", "r" * 32, "h", "b", 1, 2, 3, "/tmp/r", "/tmp", ("train.py",), ("python", "train.py"),
        "a.yaml", "2026-01-01T00:00:00+00:00", ended="2026-01-01T00:01:00+00:00", exit_code=1,
    )
)  # fmt: skip


def entry_of(path: Path) -> None:
    found = registry.load(path)
    looked = registry.refresh(found)
    show_runs.table([looked], [], SCREEN)
    list_runs.lines(*looked, SCREEN)
    json.dumps(registry.as_json(*looked))


def marker_of(path: Path) -> None:
    """What it lists is removed, and nothing else: not the file beside the folder."""
    place = path.parent / "logs"
    place.mkdir(exist_ok=True)
    (path.parent / "mine").touch()
    inode = str(place.stat().st_ino).encode()
    (place / run_folder.MARKER).write_bytes(path.read_bytes().replace(b"4711", inode))
    (place / run_folder.MARKER).chmod(0o600)
    for kind in (run_folder.LAUNCH, run_folder.PRE_FLIGHT):
        with contextlib.suppress(MgpuError), run_folder.claim_folder(place, kind, named=True):
            pass
    assert (path.parent / "mine").exists()


MARKER = {"schema": 1, "inode": 4711, "wrote": {"launch": ["run.log", "../mine", "machines/n1.json", "try-*/"]}}


def result_of(path: Path) -> None:
    launch_report.load_report(path.parent, SCREEN)
    launch_report.first_to_fail(path.parent)
    job_case._job_of(path)


RESULT = {
    "schema": "mgpu.run/1.0", "exit_code": 1, "duration_s": 3.5, "timed_out": False, "signalled": None,
    "triage": {"cause": "x", "text": "out of memory"}, "peak_memory": "1 GiB", "logs": "/tmp/r",
    "ranks": [{"rank": 0, "exit_code": 1}], "log": "run.log",
}  # fmt: skip


def readings_of(path: Path) -> None:
    gpu_readings_file.line(gpu_readings_file.load_readings(path.parent))


READINGS = {
    "at": 1.0, "now": [{"index": 0, "uuid": "GPU-1", "used_bytes": 1, "total_bytes": 2, "busy_percent": 3}],
}  # fmt: skip


def run_log_of(path: Path) -> None:
    list_runs.last_line(path.parent)
    for number in (-1, 0, 1, 7, 10**6):
        hosts_verdict._printed_by(path, number)
    output = launch_written.Output(path.parent)
    output.skip_to_tail()
    for _ in range(3):
        output.read()


def error_file_of(path: Path) -> None:
    keeper: Any = SimpleNamespace(_errors={})
    process: Any = SimpleNamespace(error_file=str(path))
    run_outcome.Aftermath._read_error(keeper, 0, process)


def journals_of(path: Path) -> None:
    view = watch.View(Orders(str(path.parent), 2))
    view.read()
    (path.parent / "rank0.json").write_bytes(path.read_bytes()[:2000])
    with contextlib.suppress(BadSnapshot):
        view.rank(0, {0: (None, None)}, {})
    runner._tail(path)
    rehearse_run._exit_code(1, path)


JOURNAL = (
    b'{"order": 1, "rung": "start", "time": 1.0, "word": "imports", "limit_s": 90, "identity": {"pid": 12}}\n'
    b'{"order": 2, "rung": "start", "time": 2.0, "done": {"rung": "start", "ok": true, "seconds": 1.0}, "report": {}}\n'
    b'{"order": 3, "rung": "train", "time": 3.0, "done": {"rung": "train", "ok": false}}\n',
)


def recorder_of(path: Path) -> None:
    stacks._stack(path.parent, 0)
    found = stacks._recorder(path.parent, 0)
    if found is not None:
        stacks.pending_collective(found)
        stacks.last_global_sequence(found)


RECORDER = {
    "version": "2.10", "entries": [
        {"collective_seq_id": 1, "process_group": ["0", "default_pg"], "is_p2p": False, "retired": False,
         "state": "scheduled", "input_sizes": [[1000]], "input_dtypes": ["Float"], "profiling_name": "gloo:all_reduce"},
    ],
}  # fmt: skip


SECRETS = tuple(planted.by_form().values())
PLANTED = " ".join(SECRETS)
# What the recorder in a rank writes, by the end of the file's name.
STACKS = (
    f"Current thread 0x00007f2a (most recent call first):\n"
    f'  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4939 in barrier\n'
    f'  File "/home/me/{SECRETS[0]}/train.py", line 31 in {SECRETS[1]}\n  File "/etc/passwd", line 1 in main\n'
    f'  File "/dev/zero", line 2 in a\n'
).encode()
RAISED = f"ValueError: bad answer for {PLANTED}\n/home/me/train.py:31:main\n<string>:1:<module>\n".encode()
BEAT = struct.pack(_mgpu_recorder.BEAT, 12, 100.5, 4, 101.0, 3.5, 0.0, 2.5)
FLIGHT = {
    "version": "2.10", "entries": [
        {"collective_seq_id": 1, "p2p_seq_id": 0, "process_group": ["0", "default_pg"], "is_p2p": False,
         "retired": False, "state": "scheduled", "input_sizes": [[1000], [4, 2]], "input_dtypes": ["Float", "Long"],
         "profiling_name": f"gloo:all_reduce {SECRETS[0]}", "timeout_ms": 1800000,
         "frames": [["/home/me/train.py", 31, "main"], [f"/home/{SECRETS[1]}/a.py", 3, f"f {SECRETS[2]}"]]},
    ],
}  # fmt: skip


def hang_of(kind: str) -> Callable[[Path], None]:
    """What a rank writes: nothing raises, no check breaks, and no secret is shown or stored."""

    def read(path: Path) -> None:
        folder, pid = path.parent, os.getpid()
        recorded = folder / hang_evidence.RECORDED
        recorded.mkdir(exist_ok=True)
        for suffix, content in (("stacks", STACKS), ("raised", RAISED), ("beat", BEAT), ("flight", b"{}")):
            (recorded / f"1.{pid}.{suffix}").write_bytes(path.read_bytes() if suffix == kind else content)
        inquiry = hang_evidence.Inquiry(folder, {1: processes.Rank(pid)})
        inquiry._samples[pid] = [hang_evidence._Sample(0.0, 1, 1, 1, {}) for _ in range(2)]
        inquiry._sizes[pid] = (recorded / f"1.{pid}.stacks", 0)
        inquiry._flights[1] = recorded / f"1.{pid}.flight"
        ranks, about = inquiry.result()
        waits = snapshot_types.HangRank(0, 1, "sleeping", False, frames=ranks[0].frames[:1])
        for found in (ranks, (waits, *ranks), (waits, dataclasses.replace(ranks[0], raised=None))):
            facts = Snapshot(hang=snapshot_types.Hang(45.0, 2.0, found, len(found), len(found), **about))
            outcomes = engine.judge(facts, selections.HANG)
            no_crash(outcomes)
            shown = json.dumps([to_json(facts), *(check_json(one) for one in outcomes)])
            assert not [secret for secret in SECRETS if secret in shown], shown

    return read


def proc_of(path: Path) -> None:
    """Any text instead of a file in /proc."""
    modules: tuple[Any, ...] = (hang_evidence, system_calls)
    original = file_reading
    for module in modules:
        module.file_reading = SimpleNamespace(read_part=lambda _, **limits: original.read_part(path, **limits))
    try:
        for look in (
            hang_evidence._io_bytes, hang_evidence._switches, stack_requests.listens, system_calls.waits_for,
        ):  # fmt: skip
            look(os.getpid())
    finally:
        for module in modules:
            module.file_reading = original


PROC = (
    b"rchar: 323934931\nwchar: 323929600\nsyscr: 632687\n",
    b"Name:\tpython\nSigCgt:\t0000000180004002\nvoluntary_ctxt_switches:\t150\n",
    b"0 0x3 0x7ffd 0x400 0x0 0x0 0x0 0x7ffd 0x7f1c\n", b"running\n", b"-1 0x7ffd 0x7f1c\n",
)  # fmt: skip


def hang_file_of(path: Path) -> None:
    """What another node or an earlier command of mgpu has written beside a log."""
    found = [hang for hang in (hang_files.read(path.parent), hang_files.of_run(path.parent)) if hang is not None]
    if found:
        whole = hang_files.merged([*found, snapshot_types.Hang(30.0, 1.0, (snapshot_types.HangRank(9),))])
        no_crash(engine.judge(Snapshot(hang=whole), selections.HANG))
        json.dumps(hang_report.entry(whole)).encode("utf-8", "surrogatepass")
        hang_report.table(whole, SCREEN)


HANG = {
    "quiet_s": 45.0, "longest_s": 2.0, "expected": 2, "world": 2, "timeout_s": 1800.0, "backend": "gloo", "ras": [],
    "ranks": [
        {"rank": 0, "pid": 12, "state": "sleeping", "busy": False, "moved": False, "steps": 3, "step_s": 44.0,
         "frames": [{"file": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": 1, "function": "barrier",
                     "library": True}, {"file": "train.py", "line": 35, "function": "main", "text": "dist.barrier()"}],
         "collectives": [{"name": "all_reduce", "group": "0", "sequence": 14, "shape": "420 float", "open": True}]},
        {"rank": 1, "state": None, "raised": "ValueError: x", "silent": "it has ended",
         "collectives": [{"name": "all_reduce", "group": "0", "sequence": 13, "shape": "420 float"}]},
    ],
}  # fmt: skip


def steps_file_of(path: Path) -> None:
    """The counters of one rank beside those of one that is well."""
    ends = {0: pace_watch.steps_of(path), 1: {n: pace_watch.Ended(100.0 + n, 0.1 * n) for n in range(1, 40)}}
    pace_judged(ends, {rank: {("0", n): 99.5 + n for n in range(1, 40)} for rank in ends})


def starts_file_of(path: Path) -> None:
    """The collectives of one rank beside those of one that is well."""
    starts = {0: pace_watch.starts_of(path), 1: {("0", n): 99.5 + n for n in range(1, 40)}}
    pace_judged({rank: {n: pace_watch.Ended(100.0 + n, 0.1 * n) for n in range(1, 40)} for rank in starts}, starts)


def pace_judged(ends: Any, starts: Any) -> None:
    """The ranks are compared and judged as at the end of a run."""
    pace = pace_watch.pace_of(list(pace_watch.compare(ends, starts).values()))
    facts = Snapshot(run=snapshot_types.Run(0, 0, 60.0, expected=2, pace=pace))
    no_crash(engine.judge(facts, selections.RANKS_UNEVEN))
    json.dumps(to_json(facts), allow_nan=False)


@cache
def step_files() -> list[bytes]:
    size = struct.calcsize(_mgpu_recorder.STEP)
    ring = bytearray(_mgpu_recorder.STEPS * size)
    for number in range(1, 40):
        struct.pack_into(
            _mgpu_recorder.STEP, ring, number * size, number, 100.0 + number, 0.2 * number, 0.1 * number, 0.0
        )
    return [BEAT + ring, BEAT + ring[: 20 * size + 3], BEAT]


def pace_of_run(path: Path) -> None:
    """What the supervisor of a run stores for --status."""
    found = pace_report.read(path.parent)
    if found is not None:
        pace_report.is_uneven(found)
        pace_report.table(pace_report.entry(found), SCREEN)


def rank_file_of(path: Path) -> None:
    """What a rank stores of its memory and of a value that is not finite."""
    recorded = path.parent / hang_evidence.RECORDED
    recorded.mkdir(exist_ok=True)
    (recorded / "1.7.nan").write_bytes(path.read_bytes())
    (recorded / "1.7.beat").write_bytes(path.read_bytes())
    (recorded / "1.7.values").write_bytes(path.read_bytes())
    rank_facts.peaks(path.parent, 1, 7)
    assert rank_facts.trained_bytes(path.parent, 1) >= 0
    values = rank_facts.values(path.parent, 1, 7)
    assert not [secret for secret in SECRETS if secret in repr(values)], values
    run = snapshot_types.Run(0, 0, 60.0, expected=2, not_finite=rank_facts.not_finite(path.parent))
    outcomes = engine.judge(Snapshot(run=run), selections.FINITE)
    no_crash(outcomes)
    shown = json.dumps([to_json(Snapshot(run=run)), *(check_json(one) for one in outcomes)])
    assert not [secret for secret in SECRETS if secret in shown], shown


def rehearsed_of(path: Path) -> None:
    """What a rank of the user's script has recorded, judged beside a rank that did well."""
    recorded = path.parent / rehearse_run.RECORDED
    recorded.mkdir(exist_ok=True)
    (recorded / "1.7.rehearsal").write_bytes(path.read_bytes())
    (recorded / "0.6.rehearsal").write_bytes(REHEARSED)
    ranks = rehearse_run.read_ranks(path.parent)
    found = snapshot_types.Rehearsal("train.py", 2, 2, "stopped", ranks, script_sha256="5c71")
    found = replace(found, measurement=measured.measurement(found, ()))
    stopped_at._line(path)
    outcomes = engine.judge(Snapshot(rehearsal=found), selections.SMOKE)
    no_crash(outcomes)
    section: Any = {}
    script_section.add_entry(section, found, outcomes)
    shown = json.dumps([to_json(Snapshot(rehearsal=found)), section, *(check_json(one) for one in outcomes)])
    assert not [secret for secret in SECRETS if secret in shown], shown


def request_of(path: Path) -> None:
    """The number of the last request to the nodes of a job, which any of the user's programs may have written."""
    (path.parent / "node-n1").mkdir(exist_ok=True)
    run = node_watch.NodeRun(path.parent / "recorder", path, "7")
    node = node_watch.Node(path.parent / "node-n1", path.parent, "n1", nodes=1, first=True)
    node_watch.NodeWatch(node, run, 30.0, "report").tick()


def ranks_of_node(path: Path) -> None:
    """What a node of a job stores, in a folder that other programs of the user may write to."""
    place = path.parent / "node-n1"
    place.mkdir(exist_ok=True)
    (place / node_ranks.NAME).write_bytes(path.read_bytes())
    run = node_ranks.with_records(snapshot_types.Run(0, 0, 60.0), path.parent)
    no_crash(engine.judge(Snapshot(run=run), selections.REMARKS))
    entries = failure.rank_entries(run)
    json.dumps(entries).encode("utf-8", "surrogatepass")
    memory_text.memory_text(entries)


def steps_of_node(path: Path) -> None:
    """The steps of one node beside those of a node that is well."""
    found, well = node_pace.read(path.parent), decode(node_pace.NodeTimes, {**NODE_TIMES, "machine": "b"}, "")
    well = replace(well, ranks=(replace(well.ranks[0], rank=1),))
    for nodes in ([well, found], [found, well]) if found is not None else ():
        if (times := node_pace.joined([node for node in nodes if node])) is not None and len(times.ends) > 1:
            pace_judged(*times)


NODE_RANKS = {
    "ranks": [{"rank": 1, "exit_code": None, "host": "n1", "pid": 7, "peak_bytes": 3 << 30}],
    "not_finite": [{"rank": 1, "what": "loss", "value": "nan", "step": 7, "at": 5.0, "line": None}],
    "world": 2, "ended": False,
}  # fmt: skip
NODE_TIMES = {
    "round": 7, "machine": "a", "synchronized": False,
    "ranks": [{"rank": 0, "steps": [[n, 1000.0 + n, 0.1 * n, 0.01 * n, 0.0] for n in range(1, 40)],
               "starts": [["0", n, 999.5 + n] for n in range(1, 40)]}],
}  # fmt: skip
REHEARSED = b"".join(
    json.dumps(record).encode() + b"\n"
    for record in (
        {"k": "rank", "t": 1.0, "rank": 0, "pid": 7, "world": 2, "line": None},
        {"k": "group", "t": 1.1, "rank": 0, "world": 2, "backend": "gloo", "replaced": None, "line": "/a/train.py:4"},
        {"k": "wrapper", "t": 1.2, "kind": "DDP", "parameters": 1, "ranks": 2, "dropout": False, "line": None},
        {
            "k": "loader",
            "t": 1.3,
            "l": 0,
            "dataset": "Images",
            "samples": 8,
            "batches": 2,
            "batch": 2,
            "sampler": "S",
            "batch_sampler": "B",
            "replicas": 2,
            "shuffle": True,
            "workers": 0,
            "line": "/a/train.py:9",
        },
        {"k": "epoch", "t": 1.4, "l": 0, "epoch": 0},
        {"k": "watched", "t": 1.41, "steps": 2},
        {
            "k": "measured",
            "t": 1.42,
            "steps": [[0.1, 0.01, 0.02, 0.005, 0.0, 2], [0.1, 0.01, None, 0.005, 0.0, 2]],
            "batch": 2,
            "queued": 0,
            "threads": 1,
            "static": 700,
            "peak": 900,
            "held": 1000,
        },
        {"k": "unmeasured", "t": 1.43, "why": "too long"},
        {"k": "checkpoint_refused", "t": 1.44, "why": "no model"},
        {"k": "random", "t": 1.5, "torch": "a", "python": "b"},
        {
            "k": "batch",
            "t": 1.6,
            "l": 0,
            "n": 0,
            "print": "f",
            "samples": 2,
            "each": ["x", "y"],
            "wait": 0.1,
            "grad": True,
        },
        {"k": "loss", "t": 1.7, "v": 0.5, "line": "/a/train.py:11", "loader": 0},
        {
            "k": "optimizer",
            "t": 1.8,
            "o": 0,
            "type": "SGD",
            "parameters": 1,
            "sharded": 0,
            "wrapped": 1,
            "names": ["w"],
            "shapes": ["2"],
            "start": [[1.0, 1.0, 1.0]],
            "line": "/a/train.py:12",
        },
        {
            "k": "step",
            "t": 1.9,
            "o": 0,
            "n": 1,
            "lr": 0.1,
            "grads": [[0.1, None, 0.2], None],
            "batches": 1,
            "unsynced": False,
            "line": "/a/train.py:12",
            "backward": "/a/train.py:11",
        },
        {
            "k": "stepped",
            "t": 2.0,
            "o": 0,
            "n": 1,
            "s": 0.1,
            "wait": 0.0,
            "backward_s": 0.0,
            "optimizer": 0.0,
            "save": 0.0,
            "samples": 2,
        },
        {
            "k": "collective",
            "t": 2.1,
            "op": "all_reduce",
            "shape": "2",
            "dtype": "float32",
            "ranks": 2,
            "inside": False,
            "line": None,
        },
        {"k": "other", "t": 2.1, "name": "horovod"},
        {"k": "file", "t": 2.2, "path": f"/home/{SECRETS[1]}/m.pt", "how": "save", "line": None},
        {"k": "checkpoint", "t": 2.3, "path": "/a/m.pt", "ok": False, "error": "E: cut", "s": 0.1, "size": 9},
        {"k": "exhausted", "t": 2.4, "l": 0, "n": 1},
        {"k": "subgroup", "t": 2.5, "ranks": 2, "line": None},
        {"k": "prepare", "t": 2.6, "kind": "MULTI_CPU", "types": ["Linear"], "line": None},
        {"k": "raised", "t": 2.7, "type": "ValueError", "message": f"key {SECRETS[1]}", "line": None, "after": False},
        {"k": "done", "t": 2.8, "host": 1, "allocated": 2, "reserved": 3},
        {"k": "end", "t": 2.9},
    )
)
NAN = {
    "what": "loss", "value": "nan", "step": 15, "at": 1795440250.3,
    "frames": [["/v/site-packages/torch/_tensor.py", 623, "backward"], [f"/home/{SECRETS[1]}/a.py", 3, "train"]],
}  # fmt: skip
PACE = {
    "steps": 40, "step_s": 0.21, "waited_share": 0.1,
    "ranks": [{"rank": rank, "loader_s": 0.001, "wait_s": 0.05 * (1 - rank), "last_share": float(rank),
               "optimizer_s": 0.004, "saving_s": 0.0} for rank in (0, 1)],
}  # fmt: skip
STARTS = {
    "entries": [
        {"process_group": ["0", "default_pg"], "collective_seq_id": n, "time_created_ns": 99_600_000_000 + n * 10**9}
        for n in range(1, 40)
    ],
}  # fmt: skip
# The file that torch's watchdog writes, as dict and as pickle.
DUMPED = {
    "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
    "entries": [
        {"frames": [{"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/a.py", "line": 3245},
                    {"name": "step", "filename": "/home/me/train.py", "line": 31}],
         "record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n, "p2p_seq_id": 0,
         "op_id": n, "profiling_name": "nccl:all_reduce", "input_sizes": [[420]], "input_dtypes": ["Float"],
         "state": "started" if n == 3 else "completed", "retired": n != 3, "timeout_ms": 600_000, "is_p2p": False}
        for n in (1, 2, 3)
    ],
}  # fmt: skip


def dump_of(path: Path) -> None:
    """Flight recorder files beside a log: one spoilt, one well."""
    (path.parent / "nccl_trace_rank_1").write_bytes(pickle.dumps(DUMPED, 2))
    log = path.parent / "train.log"
    log.write_text("step 13\nstep 14\n")
    found = torch_dumps.beside(log)
    assert found is not None
    no_crash(engine.judge(Snapshot(hang=found), selections.HANG))
    json.dumps(hang_report.entry(found)).encode("utf-8", "surrogatepass")


def pickle_of(path: Path) -> None:
    """Plain values, and nothing else."""
    shown = [plain_pickle.load(path.read_bytes())]
    for value in shown[:10_000]:
        assert isinstance(value, dict | list | tuple | str | int | float | None), type(value)
        shown += (
            [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        )
        del shown[20_000:]


def ras_of(path: Path) -> None:
    """The answer of NCCL's RAS, which comes through a socket."""
    found = nccl_ras.communicators(path.read_bytes().decode("utf-8", "replace"))
    ranks = tuple(snapshot_types.HangRank(rank, 1, "sleeping", False) for rank in (0, 1))
    hang = snapshot_types.Hang(45.0, 2.0, ranks, 2, 32, backend="nccl", ras=found)
    no_crash(engine.judge(Snapshot(hang=hang), selections.HANG))
    json.dumps(to_json(Snapshot(hang=hang)))


RAS = (
    b"#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    b"  3 ranks have launched up to operation 14\n"
    b"  Rank 1 has launched up to operation 13 -- GPU 1 managed by process 483073 on node 172.16.64.210\n",
    b"Errors\n======\n\n#0-0 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from 3 ranks\n"
    b"  The missing ranks: 3,5,8-10\n",
    b"#0-0 (cf264af53edbe986) ERROR\n  Asynchronous error on 1 rank\n"
    b"  Rank 3 reported ncclRemoteError -- GPU 3 managed by process 77 on node 172.16.64.213\n",
)


def nccl_of(path: Path) -> None:
    nccl_log.read(path.parent)


# ---- logs and scripts


def log_of(path: Path) -> None:
    found = triage.read_logs([path], last_run=True)  # as the doctor reads it
    no_crash(engine.run(engine.load(only=("log",)), Snapshot(log=found)))


FAILURES = (
    "KeyError: 'a'",
    "AttributeError: 'Net' object has no attribute 'x'",
    "NameError: name 'los' is not defined",
    "TypeError: main() got an unexpected keyword argument 'y'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/x'",
    "torch.OutOfMemoryError: CUDA out of memory.",
    "TypeError: 'NoneType' object is not subscriptable",
)


@cache
def exception_checks() -> tuple[Check, ...]:
    wanted = ("log_exception", "log_name_without_value")
    return tuple(check for check in engine.load(only=("log",)) if check.id in wanted)


def loops_left_in(path: Path) -> None:
    """Which of two ranks has left a loop, if both are in this file."""
    frames = (snapshot_types.StackFrame(str(path), line, "main") for line in (5, 30))
    ranks = [snapshot_types.HangRank(rank, frames=(frame,)) for rank, frame in enumerate(frames)]
    found = left_loops.find(ranks)
    assert found is None or (found.inside, found.left) == ((0,), (1,))
    assert not [secret for secret in SECRETS if secret in repr(found)], found


def source_of(path: Path) -> None:
    """A script beside a log in which many of its lines failed, in many ways."""
    loops_left_in(path)
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()][:400:7]
    log = path.with_name("run.log")
    for number, raised in zip(numbers, itertools.cycle(FAILURES), strict=False):
        frame = f'  File "{path}", line {number}, in main\n    {lines[number - 1].strip()}\n'
        log.write_text(f"Traceback (most recent call last):\n{frame}{raised}\n", "utf-8", "replace")
        found = value_origins.with_sources(triage.read_logs([log]), [path.parent])
        no_crash(engine.run(exception_checks(), Snapshot(log=found)))


def packed_log_of(path: Path) -> None:
    whole = path.read_bytes()
    packed = gzip.compress(whole, 1)
    path.write_bytes(packed if len(whole) % 3 else packed[: len(packed) * 2 // 3])
    log_of(path)


def script_of(path: Path) -> None:
    choice._shell_script(str(path))
    found = training_script_read.read(path, ("--x", "1"))
    snapshot = Snapshot(script=found)
    no_crash(engine.judge(snapshot, selections.DOCTOR))


def job_of(path: Path) -> None:
    job_script_read.is_job_script(path)
    found = job_script_read.read(path)
    snapshot = Snapshot(job_script=found)
    no_crash(engine.judge(snapshot, selections.DOCTOR))
    job_script_read.named_config(found)
    starts = path.with_name("starts.sh")
    head = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH -o no/logs/a.out\n"
    starts.write_text(f"{head}. {path.name}\nsrun bash {path.name} 1\nsrun python a.py --lr 1\n")
    for name in ("a.py", ".gitignore", "setup.sh"):
        path.with_name(name).write_bytes(path.read_bytes())
    no_crash(engine.judge(Snapshot(job_script=job_script_read.read(starts)), selections.DOCTOR))


def hostfile_of(path: Path) -> None:
    record: Any = SimpleNamespace(nodes="n[1-2]", script=None, job=1)
    old, job_outcome.preflight_folders = job_outcome.preflight_folders, lambda *_: iter([path.parent])
    try:
        job_outcome.task_nodes(record, path)
    finally:
        job_outcome.preflight_folders = old
    printed = job_outcome._end_of(path)
    job_outcome._by_node(printed, ["n1", "n2"])
    job_outcome._first_task(printed, ["n1", "n2"])
    one = tail.Tail()
    one.read((str(path),))
    one.close()


def deepspeed_hosts_of(path: Path) -> None:
    for more in ({}, {"num_nodes": "1"}, {"exclude": "n1:0,1"}):
        found = deepspeed_hosts.chosen(Given({"hostfile": str(path), **more}, ()), {})
        assert all(count >= 0 for count in found.slots.values())
        found.here(None)


def framework_yaml_of(path: Path) -> None:
    """The settings of a framework's YAML; the same bytes as the DeepSpeed file that it names."""
    (path.parent / "ds.json").write_bytes(path.read_bytes())
    for program in FRAMEWORKS:
        assert program.framework is not None
        given = {"deepspeed": str(path.parent / "ds.json")}
        for overrides in ({}, given):
            found = framework_yaml.read(str(path), program.framework.keys, overrides)
            visible(found.strategy).encode()
            visible(found.unread).encode()


def first_line_of(path: Path) -> None:
    line_program.other_python(str(path), "axolotl")


# ---- the environment


def nccl_conf_of(path: Path) -> None:
    os.environ["NCCL_CONF_FILE"] = str(path)
    try:
        found = packages._nccl_files()
    finally:
        del os.environ["NCCL_CONF_FILE"]
    nccl = (
        dataclasses.replace(MACHINE.nccl, config_files={name: tuple(lines) for name, lines in found.items()})
        if MACHINE.nccl
        else None
    )
    snapshot = dataclasses.replace(MACHINE, nccl=nccl)
    no_crash(engine.run(engine.load(only=("nccl", "environ")), snapshot))


def default_config_of(path: Path) -> None:
    place = path.parent / "accelerate"
    place.mkdir(exist_ok=True)
    (place / "default_config.yaml").write_bytes(path.read_bytes())
    os.environ["HF_HOME"] = str(path.parent)
    try:
        packages._default_settings()
    finally:
        del os.environ["HF_HOME"]
    libraries._read(str(path), 4096)


def topology_of(path: Path) -> None:
    pci._topology(str(path), "")


def verdict_of(path: Path) -> None:
    old = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(path.parent)
    try:
        (path.parent / "mgpu").mkdir(exist_ok=True, mode=0o700)
        (path.parent / "mgpu" / "doctor.json").write_bytes(path.read_bytes())
        (path.parent / "mgpu" / "doctor.json").chmod(0o600)
        guide._doctor()
    finally:
        os.environ.pop("XDG_STATE_HOME") if old is None else os.environ.update(XDG_STATE_HOME=old)


def summary_of(path: Path) -> None:
    worker._read(path)
    worker._sha256(path)


HOSTFILES = (b"n1\nn1\nn2\n", b"0: epoch 1\n1: epoch 1\nsrun: error: n2: task 1: Exited with exit code 1\n")
CONFIGS = ("config.reading.contents", "fleet.hosts_doctor.wish")
TARGETS: dict[str, Target] = {
    "config": Target("a.yaml", lambda: texts("bad_configs/*.yaml"), config_of, CONFIGS, share=0.5),
    "config json": Target("a.json", lambda: texts("bad_configs/*.json"), config_of, CONFIGS),
    "config of mgpu": Target("a.yaml", lambda: texts("templates/*.yaml"), config_of, CONFIGS, share=0.5),
    "deepspeed": Target(
        "ds.json", lambda: document({"zero_optimization": {"stage": 3}, "train_batch_size": "auto",
                                     "bf16": {"enabled": True}, "gradient_accumulation_steps": 4}),
        deepspeed_of, ("config.reading._deepspeed_file",),
    ),
    "deepspeed itself": Target(
        "ds.json", lambda: [b'{\n "zero_optimization": {"stage": 3}, // all\n train_batch_size: auto\n a: [1, 2,]\n}\n',
                            *document({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}})],
        deepspeed_json_of, ("config.deepspeed_json.read",),
    ),
    "config that exists": Target(
        "b.yaml", lambda: texts("templates/*.yaml"), existing_config,
        ("wizard.existing_file.text_of", "files.back_up"), share=0.5,
    ),
    "answers toml": Target("a.toml", lambda: list(ANSWERS), answers_of, ("wizard.answers_file.read",)),
    "project settings": Target(
        "pyproject.toml", lambda: list(PROJECT), lambda path: project_settings._read(path, "tool.mgpu"),
        ("project_settings._read",),
    ),
    "site checks": Target(
        "disks.py", lambda: texts("checks/test_local_rules.py"), site_checks, ("engine.plugins._of_site",), share=0.2
    ),
    "answers yaml": Target("a.yaml", lambda: list(YAML_ANSWERS), answers_of, ("wizard.answers_file.read",)),
    "answers json": Target(
        "a.json", lambda: document({"schema": 1, "devices": {"gpus": [0, 1]}, "batch": {"per_gpu": 8}}), answers_of,
        ("wizard.answers_file.read",),
    ),
    "answers that exist": Target(
        "mgpu.answers.toml", lambda: list(ANSWERS), answers_over, ("wizard.answers_file.save",), share=0.5
    ),
    "draft": Target(
        "d.toml", lambda: [drafts.dumps(State(Answers(gpus=2, origins={"gpus": "you"}), "precision")).encode()],
        lambda path: drafts.load(private(path, "e.toml")), ("wizard.drafts.load",),
    ),
    "safetensors": Target(
        "model.safetensors", lambda: tensors(), model_folder("model.safetensors"), ("wizard.weights.header",),
        (MgpuError, weights.Uncountable),
    ),
    "safetensors header": Target(
        "model.safetensors", lambda: [tensors()[0][8:-4000]], header_of, ("wizard.weights.header",)
    ),
    "model index": Target(
        weights.INDEX, lambda: document({"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}),
        model_folder(weights.INDEX), ("wizard.weights._json",), (MgpuError, weights.Uncountable),
    ),
    "model config": Target(
        "config.json", lambda: document({"tie_word_embeddings": True, "text_config": {"tie_word_embeddings": False}}),
        model_folder("config.json"), ("wizard.weights._json",), (MgpuError, weights.Uncountable),
    ),
    "model cache": Target("main", lambda: [b"abc\n"], cache_of, ("wizard.model._snapshots",), share=0.3),
    "first optimizer": Target(
        "report", lambda: document({"params": 10, "trainable": 5, "dtypes": {"bf16": 10}, "optimizer": "AdamW",
                                    "rates": [1e-4]}),
        report_of, ("wizard.parameter_probe._report_of", "wizard.parameter_probe.measure"),
    ),
    "job script of the wizard": Target(
        "train.sbatch", lambda: texts("screens/job_*.sbatch"), job_of_the_wizard, ("wizard.job_file._read",), share=0.5
    ),
    "folder": Target(
        "train_it.py", lambda: texts("bad_scripts/*.py", 4000), lambda path: folder.command(path.parent),
        ("wizard.folder._trains",), share=0.5,
    ),
    "snapshot": Target(
        "m.json", snapshots, snapshot_of, ("report.load.read_snapshot",), share=0.15,
    ),
    "case": Target(
        "x.mgpu.tar.gz", cases_packed, load.read_snapshot, ("report.case_archive.read_facts",), share=0.3,
    ),
    "facts of a run": Target(
        "facts.json", snapshots, facts_of_run,
        ("launch.run_facts_file.load", "launch.run_facts_file.last_lines"), share=0.1,
    ),
    "node": Target("n1.json", snapshots, nodes_of, ("fleet.load._facts",), share=0.1),
    "preflight": Target(
        "preflight.json", lambda: document(PREFLIGHT), preflight_of, ("fleet.artifacts.read",), share=0.15
    ),
    "result of a smoke test": Target(
        "smoke.json", lambda: texts("smoke_runs/*/smoke.json", 400_000), shown_of, ("smoke.show_last._read",), share=0.2
    ),
    "facts of a smoke test": Target(
        "facts.json", lambda: texts("smoke_runs/*/facts.json", 400_000), shown_of,
        ("smoke.show_last._result", "smoke.show_last.last_ranks"),
        share=0.2,
    ),
    "baseline": Target(
        "b.json", lambda: document(BASELINE), lambda path: baseline.load(str(path), MACHINE), ("smoke.baseline._read",)
    ),
    "project folder": Target(
        "ignore", lambda: [b"*\n", b"runs/\n"], project_folder_of, ("launchers.project_folder.remove_if_unused",),
        share=0.2,
    ),
    "stamp": Target("v.json", stamps, stamp_of, ("launchers.stamp._read",), share=0.5),
    "run": Target(
        "20260101-0000-abcd.json", lambda: document(ENTRY), lambda path: entry_of(private(path, path.name)),
        ("launch.registry.load",), (MgpuError, ValueError),
    ),
    "marker": Target("m.json", lambda: document(MARKER), marker_of, ("launchers.run_folder._read_marker",), share=0.5),
    "result": Target(
        "result.json", lambda: document(RESULT), result_of, ("launch.report._stored", "slurm.job_case._job_of")
    ),
    "readings": Target(
        "gpus.json", lambda: document(READINGS), readings_of, ("launch.gpu_readings_file.load_readings",)
    ),
    "run log": Target(
        "run.log", lambda: texts("logs/healthy/*.log"), run_log_of,
        ("launch.list_runs.last_line", "process.log_follower._open", "process.log_follower._last_of",
         "fleet.hosts_verdict._printed_by"), share=0.5,
    ),
    "error file": Target(
        "error.json", lambda: document({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "..."}}}),
        error_file_of, ("launch.run_outcome._read_error",),
    ),
    "journal": Target(
        "rank0.jsonl", lambda: list(JOURNAL), journals_of,
        ("smoke.watch.read", "smoke.watch.rank", "smoke.runner._tail", "rehearse.run._exit_code"),
    ),
    "flight recorder": Target(
        "rank0.recorder", lambda: document(RECORDER), recorder_of, ("smoke.stacks._stack", "smoke.stacks._recorder")
    ),
    "stacks of a rank": Target("s", lambda: [STACKS], hang_of("stacks"),
        ("hangs.hang_evidence.read", "readers.stack_dump._lines_of"), share=0.5),
    "exception of a rank": Target(
        "r", lambda: [RAISED], hang_of("raised"), ("hangs.hang_evidence.raised_in",), share=0.5
    ),
    "beat of a rank": Target("b", lambda: [BEAT], hang_of("beat"), ("hangs.hang_evidence.beat_of",), share=0.5),
    "collectives of a rank": Target(
        "f.json", lambda: document(FLIGHT), hang_of("flight"), ("hangs.hang_evidence._flight",)
    ),
    "process of a rank": Target(
        "p", lambda: list(PROC), proc_of,
        ("hangs.hang_evidence._io_bytes",
         "process.system_calls.waits_for"),
    ),
    "hang of a node": Target(
        hang_files.NAME, lambda: document(HANG), hang_file_of, ("hangs.hang_files.read", "snapshot.fact_file.read")
    ),
    "steps of a rank": Target(
        "0.7.beat", step_files, steps_file_of, ("launch.pace_watch.steps_of",)
    ),
    "starts of a rank": Target(
        "0.7.flight", lambda: document(STARTS), starts_file_of, ("launch.pace_watch.starts_of",)
    ),
    "ranks of a node": Target(
        node_ranks.NAME, lambda: document(NODE_RANKS), ranks_of_node, ("launch.node_ranks.read",)
    ),
    "steps of a node": Target(
        node_pace.NAME, lambda: document(NODE_TIMES), steps_of_node, ("launch.node_pace.read",)
    ),
    "request to a node": Target(
        node_answers.REQUEST, lambda: [b"1795440250"], request_of, ("launch.node_answers.requested",)
    ),
    "pace of a run": Target(
        pace_report.NAME, lambda: document(PACE), pace_of_run, ("launch.pace_report.read",)
    ),
    "nan of a rank": Target(
        "n.json", lambda: document(NAN), rank_file_of,
        ("launch.rank_facts.peaks", "launch.rank_facts._not_finite", "readers.recorded_values.read",
         "launch.rank_facts.trained_bytes"),
    ),
    "rehearsed rank": Target(
        "0.7.rehearsal", lambda: [REHEARSED], rehearsed_of, ("rehearse.rank_record.read", "rehearse.stopped_at._line")
    ),
    "torch dump": Target(
        "nccl_trace_rank_0", lambda: [pickle.dumps(DUMPED, 2), pickle.dumps(DUMPED, 4)], dump_of,
        ("readers.torch_dumps._content",),
    ),
    "torch dump json": Target(
        "nccl_trace_rank_0", lambda: document(DUMPED), dump_of, ("readers.torch_dumps._content",)
    ),
    "pickle": Target(
        "a.pkl", lambda: [pickle.dumps(DUMPED, number) for number in (2, 4)], pickle_of, (), (plain_pickle.NotPlain,)
    ),
    "nccl ras": Target("ras.txt", lambda: list(RAS), ras_of, ()),
    "nccl log": Target("nccl.h.1.txt", lambda: texts("nccl_logs/*.txt"), nccl_of, ("smoke.nccl_log.read",), share=0.5),
    "log": Target(
        "a.log", lambda: [*texts("logs/healthy/*.log"), *texts("logs/*.txt")], log_of,
        ("readers.log.opening.open_log",), share=0.2,
    ),
    "packed log": Target(
        "a.log.gz", lambda: texts("logs/healthy/*.log"), packed_log_of, ("readers.log.opening.open_log",), share=0.1
    ),
    "script": Target(
        "train.py", lambda: texts("bad_scripts/*.py"), script_of,
        ("readers.training_script.python_source.read_bytes", "launchers.choice._shell_script"), share=0.3,
    ),
    "source beside a log": Target(
        "train.py", lambda: texts("bad_scripts/*.py"), source_of,
        ("readers.sources.source_files._parse",), share=0.2
    ),
    "job script": Target(
        "a.sbatch", lambda: [*texts("screens/job_*.sbatch"), *texts("bad_jobs/*.txt", 6000)], job_of,
        (
            "readers.job_script.read._bytes", "readers.job_script.started_files.shell_file",
            "readers.job_script.python_files.content", "slurm.prepare._of_script",
        ), share=0.1,
    ),
    "hostfile": Target(
        "hostfile", lambda: list(HOSTFILES),
        hostfile_of, ("slurm.job_outcome.task_nodes", "slurm.job_outcome._end_of", "process.tail._open"),
    ),
    "deepspeed hostfile": Target(
        "hostfile", lambda: [b"n1 slots=8\nn2 slots=4\n# n3\n"], deepspeed_hosts_of,
        ("launchers.deepspeed_hosts.chosen",),
    ),
    "framework yaml": Target(
        "train.yaml", lambda: [
            b"per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\nbf16: true\ndeepspeed: ds.json\n",
            b"micro_batch_size: 2\nbf16: auto\nfsdp_config:\n  fsdp_version: 2\noutput_dir: ${a}\n",
        ], framework_yaml_of, ("launchers.framework_yaml.read", "launchers.framework_yaml._deepspeed_file"), share=0.5,
    ),
    "first line of a program": Target(
        "axolotl", lambda: [b"#!/usr/bin/env python3\nimport sys\n", b"#!/usr/bin/python3 -I\n"], first_line_of,
        ("launchers.line_program._of_shebang",),
    ),
    "nccl.conf": Target("nccl.conf", lambda: [b"# c\nNCCL_DEBUG=INFO\nNCCL_NET = IB\n"], nccl_conf_of, (),
                        share=0.5),
    "default config": Target("d.yaml", lambda: texts("templates/*.yaml"), default_config_of, ()),
    "topology": Target(
        "t.xml", lambda: [b'<system version="1"><cpu><pci busid="0000:01:00.0" class="0x030200"/></cpu></system>'],
        topology_of, (),
    ),
    "verdict": Target(
        "doctor.json", lambda: document({"verdict": "ready", "time": "2026-01-01T00:00:00Z", "host": "h"}), verdict_of,
        ("cli.guide._doctor",),
    ),
    "document of a test": Target(
        "d.json", lambda: texts("smoke_runs/*/smoke.json", 400_000), summary_of,
        ("fleet.worker._read", "fleet.worker._sha256", "fleet.worker._run"), share=0.3,
    ),
    "hosts file": Target(
        "hosts.txt", lambda: [b"# ours\nn1 slots=4\nme@n[2-3]:2222 slots=2\n[fe80::1]:22\n10.0.0.9 # new\n"],
        lambda path: named_hosts.read_hosts(str(path)), ("hosts.named_hosts._of_file",),
    ),
    "tested hosts": Target("hosts.json", tested_hosts, tested_hosts_of, ("fleet.verified_hosts._read",)),
    "part of a run on hosts": Target(
        "0.json", parts_of_hosts, part_of_hosts_of, ("fleet.hosts_verdict.read_parts", "fleet.far_run._document"),
    ),
    "orders of a run on hosts": Target(
        "hosts.json", orders_of_hosts, orders_of_hosts_of, ("fleet.hosts_run.read_orders",)
    ),
    "config offered by the shell": Target(
        "a.yaml", lambda: texts("templates/*.yaml"), lambda path: known_values.configs(str(path)),
        ("cli.known_values.configs",), share=0.3,
    ),
    "mgpu.env": Target("mgpu.env", lambda: [b"export NCCL_DEBUG=INFO\n"], lambda path: repair._text_of(path),
                       ("doctor.repair._text_of",), share=0.3),
}  # fmt: skip
