"""Files and sockets that say why a run hangs: torch's flight recorder, mgpu's hang.json, NCCL's RAS, py-spy.

The RAS texts are excerpts of NCCL's user guide (docs/userguide/source/troubleshooting/ras.rst, NCCL 2.24) and follow
src/ras/client_support.cc; the server that sends them is ours. Only plain values in the flight recorder files are
synthetic; `pickle` protocol 2 is what torch 2.5 to 2.13 writes.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.hangs import hang_files, ras_query
from mgpu.launch import hang_report, py_spy, why, why_subject
from mgpu.launchers import run_folder
from mgpu.process import processes
from mgpu.readers import nccl_ras, plain_pickle, torch_dumps
from mgpu.report.screen import Screen
from mgpu.snapshot import Collective, Hang, HangRank, RasCommunicator, RasCount, Snapshot
from tests.checks.facts import frame, hang, hang_rank, waits
from tests.conftest import ROOT, Run
from tests.scripts import wait_for

pytestmark = pytest.mark.quick

REDUCE = Collective("all_reduce", "0", 14, "420 float", True, caller=frame(line=35))
SCREEN = Screen(100, False, False, io.StringIO())
LOG = "step 13\nstep 14\n[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n"


# --- pickles ---


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


def _deep() -> bytes:
    """A tuple of a tuple of a tuple …, as a key of a dict: to hash it overflows C's stack."""
    return b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s."


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(_Evil()),
        pickle.dumps({"a": {1, 2}}),
        pickle.dumps(io.BytesIO(b"x")),
        _deep(),
        b"\x80\x02]r\xff\xff\xff\x7f",  # a memo of 2^31 places, and no end
        b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\x7fa.",  # a text of 2^63 bytes
        b"\x80\x02a.",
        b"\x80\x02h\x05.",
        b"\x80\x02(u.",
        b"",
        b"\x80",
        b"not a pickle",
    ],
)  # fmt: skip
def test_a_pickle_runs_nothing(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(plain_pickle.NotPlain):
        plain_pickle.load(data)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_of_plain_values(protocol: int) -> None:
    value = {
        "entries": [{"a": (1, 2.5, None), "b": ["x" * 300, 1 << 40, -3, True, False, (), (1,), (1, 2, 3, 4)]}],
        "v": "",
    }
    assert plain_pickle.load(pickle.dumps(value, protocol)) == value


# --- torch's flight recorder ---


def recorded(number: int, *, is_open: bool, line: int = 35, name: str = "all_reduce") -> dict[str, Any]:
    """One entry, as torch 2.13 writes it."""
    return {
        "frames": [
            {"name": name, "filename": "/v/site-packages/torch/distributed/distributed_c10d.py", "line": 3245},
            {"name": "step", "filename": "/home/me/train.py", "line": line},
        ],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": f"nccl:{name}", "input_sizes": [[420]],
        "input_dtypes": ["Float"], "state": "started" if is_open else "completed", "retired": not is_open,
        "timeout_ms": 600_000, "is_p2p": False,
    }  # fmt: skip


def dump(last: int, *, is_open: bool, world: int = 4) -> dict[str, Any]:
    """The file of a rank that has started `last` collectives."""
    ranks = str(list(range(world)))
    entries = [recorded(number, is_open=is_open and number == last) for number in range(1, last + 1)]
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": entries,
    }


def write_dumps(folder: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> Path:
    """The files beside a log of a failed run; the log."""
    for rank, content in dumps.items():
        data = json.dumps(content).encode() if as_json else pickle.dumps(content, 2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    (folder / "train.log").write_text(LOG)
    return folder / "train.log"


BEHIND = {0: dump(14, is_open=True), 1: dump(13, is_open=False), 2: dump(14, is_open=True), 3: dump(14, is_open=True)}


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_did_not_come_is_the_cause_of_a_log(mgpu: Run, tmp_path: Path, as_json: bool) -> None:
    log = write_dumps(tmp_path, BEHIND, as_json=as_json)
    done = mgpu("doctor", "--log", str(log), "--json")
    cause = json.loads(done.stdout)["probable_cause"]
    assert cause["id"] == "hang_rank_behind"
    assert cause["title"] == "rank 1 did not start all_reduce #14 of 420 float32 values"


def test_a_rank_without_a_file(tmp_path: Path) -> None:
    """torch writes none for the rank that raised (pytorch#196968)."""
    log = write_dumps(tmp_path, {rank: content for rank, content in BEHIND.items() if rank != 1})
    found = torch_dumps.beside(log)
    assert found is not None
    outcome = hang_report.first_finding(found)
    assert outcome is not None
    assert outcome.problem is not None
    assert outcome.problem.title == (
        "rank 1 has written no flight recorder: it had probably ended before the others gave up"
    )


def test_files_of_another_time_or_kind_are_not_joined(tmp_path: Path) -> None:
    log = write_dumps(tmp_path, BEHIND)
    for rank in BEHIND:
        os.utime(tmp_path / f"nccl_trace_rank_{rank}", (1e9, 1e9))
    assert torch_dumps.beside(log) is None
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(_Evil()))
    os.mkfifo(tmp_path / "nccl_trace_rank_7")
    assert torch_dumps.beside(log) is None


@pytest.mark.parametrize("mode", [0o1777, 0o700])
def test_a_file_of_another_user_in_a_shared_folder_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    log = write_dumps(tmp_path, {0: dump(3, is_open=True, world=1)})
    tmp_path.chmod(mode)
    real = Path.stat

    def of_others(path: Path, **options: Any) -> os.stat_result:
        found = real(path, **options)
        if "rank_0" not in path.name:
            return found
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    assert torch_dumps.beside(log) is not None
    monkeypatch.setattr(Path, "stat", of_others)
    assert (torch_dumps.beside(log) is None) == (mode == 0o1777)


def test_lists_that_share_parts_are_not_printed(tmp_path: Path) -> None:
    """60 lists with 2 ** 60 texts, in less than a kilobyte."""
    nested: list[Any] = ["x"]
    for _ in range(60):
        nested = [nested, nested]
    entry = recorded(1, is_open=True) | {
        "profiling_name": nested,
        "process_group": (nested, ""),
        "input_dtypes": [nested],
    }
    entry |= {"input_sizes": [[nested]], "frames": [{"name": nested, "filename": nested, "line": 1}]}
    found = torch_dumps.beside(write_dumps(tmp_path, {0: dump(1, is_open=True, world=1) | {"entries": [entry]}}))
    assert found is not None
    assert found.ranks[0].collectives[0].name == ""


def test_no_file_is_opened_that_a_dump_names(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("password = 1\n")
    content = dump(1, is_open=True, world=1)
    content["entries"][0]["frames"] = [{"name": "f", "filename": str(tmp_path / "secret.py"), "line": 1}]
    found = torch_dumps.beside(write_dumps(tmp_path, {0: content}))
    assert found is not None
    assert "password" not in repr(found)


# --- hang.json ---


def test_the_facts_beside_a_log_are_its_cause(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(LOG)
    asleep = hang_rank(1, frame("time.sleep(1000)", line=31))
    hang_files.write(tmp_path, hang(waits(0, REDUCE), asleep))
    done = mgpu("doctor", "--log", str(tmp_path / "run.log"))
    assert "rank 1 sleeps at train.py:31" in done.stdout
    assert "hang_rank_sleeps" in done.stdout


def test_a_run_that_succeeded_has_no_hang(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "step 1\n{'train_runtime': 3.1, 'train_loss': 0.5, 'epoch': 1.0}\nTraining completed.\n"
    )
    hang_files.write(tmp_path, hang(waits(0, REDUCE), hang_rank(1, frame("time.sleep(1000)"))))
    done = mgpu("doctor", "--log", str(tmp_path / "run.log"), "--json")
    found = json.loads(done.stdout)
    assert found["ending"]["state"] != "succeeded" or found["probable_cause"] is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"quiet_s": "x"}', "{" * 90, '{"quiet_s":1,"longest_s":1,"x":2}'])
def test_a_damaged_file_is_no_hang(tmp_path: Path, content: str) -> None:
    (tmp_path / hang_files.NAME).write_text(content)
    assert hang_files.read(tmp_path) is None


def test_the_nodes_of_a_run_are_one(tmp_path: Path) -> None:
    """Each sees only that its own ranks wait, or sleep; together, which rank it is."""
    first = hang(waits(0, REDUCE), waits(1, REDUCE), world=4)
    second = hang(waits(2, REDUCE), hang_rank(3, frame("time.sleep(1)", line=31)), world=4)
    for number, node in enumerate((first, second)):
        (tmp_path / f"node{number}").mkdir()
        hang_files.write(tmp_path / f"node{number}", node)
    (alone,) = _ids(first)
    assert alone == "hang_others_unknown"
    joined = hang_files.of_run(tmp_path / "node0")
    assert joined is not None
    assert [rank.rank for rank in joined.ranks] == [0, 1, 2, 3]
    assert joined.expected == joined.world == 4
    assert _ids(joined) == ["hang_rank_sleeps"]
    assert hang_files.of_other_nodes(tmp_path / "node0") == [second]
    os.utime(tmp_path / "node1" / hang_files.NAME, (1e9, 1e9))
    assert hang_files.of_other_nodes(tmp_path / "node0") == []  # of an earlier run


def test_a_folder_with_files_of_a_recorder_is_used_again(tmp_path: Path) -> None:
    """Also after a launch that was killed, which leaves FIFOs."""
    logs = tmp_path / "logs"
    for _ in range(2):
        with run_folder.claim_folder(logs, run_folder.LAUNCH, named=True):
            assert os.listdir(logs) == [run_folder.MARKER]
            (logs / "recorder").mkdir()
            for kind in ("stacks", "beat", "raised", "flight", "flight.tmp"):
                (logs / "recorder" / f"0.{os.getpid()}.{kind}").touch()
            os.mkfifo(logs / "recorder" / f"0.{os.getpid()}.ask")
            hang_files.write(logs, hang())


def _ids(found: Hang) -> list[str]:
    return [one.check.id for one in engine.judge(Snapshot(hang=found), selections.HANG) if one.problem]


# The file that torch's tutorial shows, of two ranks over NCCL (frames shortened; JSON has no tuples):
# https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
TUTORIAL = """\
{"version": "2.3",
 "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
 "pg_status": {"0": {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 2}},
 "entries": [{"frames": [
    {"name": "test_short_pickle", "filename": "pytorch/test/distributed/test_c10d_nccl.py", "line": 3647},
    {"name": "spawn_main", "filename": ".conda/envs/pytorch-3.10/lib/python3.10/multiprocessing/spawn.py", "line": 116},
    {"name": "<module>", "filename": "<string>", "line": 1}],
   "record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "p2p_seq_id": 0,
   "op_id": 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 1724779239936775119, "input_sizes": [[3, 4]],
   "input_dtypes": ["Float"], "output_sizes": [[3, 4]], "output_dtypes": ["Float"], "state": "completed",
   "time_discovered_started_ns": null, "time_discovered_completed_ns": 1724779239975811724, "retired": true,
   "timeout_ms": 600000, "is_p2p": false}]}
"""


def test_a_flight_recorder_as_torch_documents_it(tmp_path: Path) -> None:
    """Two ranks are known to the file; the second one has written none."""
    log = tmp_path / "run.log"
    log.write_text(LOG)
    (tmp_path / "nccl_trace_rank_0").write_text(TUTORIAL)
    found = torch_dumps.beside(log)
    assert found is not None
    assert (found.world, found.timeout_s, found.backend) == (2, 600.0, "nccl")
    (done,) = found.ranks[0].collectives
    assert (done.name, done.sequence, done.shape, done.open) == ("all_reduce", 1, "3 x 4 float", False)
    assert done.caller is not None and (done.caller.file, done.caller.line) == (
        "pytorch/test/distributed/test_c10d_nccl.py", 3647,
    )  # fmt: skip
    assert [(rank.rank, bool(rank.unrecorded)) for rank in found.ranks] == [(0, False), (1, True)]


# --- NCCL's RAS ---

MISMATCH = """\
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
"""
PER_TYPE = """\
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 14
  Rank 1 has launched up to operation 13 -- GPU 1 managed by process 483073 on node 172.16.64.210

  Communicator ranks have different Broadcast operation counts
  3 ranks have launched up to operation 2
  Rank 1 has not launched any operations -- GPU 1 managed by process 483073 on node 172.16.64.210
"""
INCOMPLETE = """\
Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""
HEALTHY = """\
Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         8         4         1         4        32   RUNNING      OK
"""
STATUS = """\
#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  4 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 507285 on node 172.16.64.210
"""
ERROR = """\
#0-0 (cf264af53edbe986) ERROR
  Asynchronous error on 1 rank
  Rank 3 reported ncclRemoteError -- GPU 3 managed by process 77 on node 172.16.64.213
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MISMATCH, [RasCommunicator("27a079b828ff1a75", (), (RasCount("collective", 6650, 26),
                    RasCount("collective", 6649, 6, (0, 2, 3))))]),
        (PER_TYPE, [RasCommunicator("27a079b828ff1a75", (), (RasCount("AllReduce", 14, 3),
                    RasCount("AllReduce", 13, 1, (1,)), RasCount("Broadcast", 2, 3),
                    RasCount("Broadcast", 0, 1, (1,))))]),
        (INCOMPLETE, [RasCommunicator("cf264af53edbe986", (21,))]),
        (ERROR, [RasCommunicator("cf264af53edbe986", errors=("Rank 3 reported ncclRemoteError",))]),
        (STATUS, []),
        (HEALTHY, []),
        ("", []),
    ],
)  # fmt: skip
def test_what_ras_says(text: str, expected: list[RasCommunicator]) -> None:
    assert list(nccl_ras.communicators(text)) == expected


# Of real jobs, as people have posted them: tests/ras/, each file with its source.
RECORDED = {
    "healthy_2_26": [],
    "replaced_2_24": [],
    "ahead_2_26": [RasCommunicator("fa93daea854b060b", (), (RasCount("AllGather", 640, 30),
                   RasCount("AllGather", 641, 2, (12, 13))))],
    "garbage_2_27": [RasCommunicator("b3398875b8b2a063", (1,))],
    "exited_2_30": [RasCommunicator("1bdb83b038775869", (7,))],
    "dead_2_30": [RasCommunicator("job", errors=("Process 3748990 on node node1 is dead",))],
    "dead_2_24": [RasCommunicator("job", errors=("Process 3487984 on node 172.16.64.213 is dead",)),
                  RasCommunicator("cf264af53edbe986", (21,))],
    "straggler_2_30": [RasCommunicator("78db921d1c117b4a", (), (RasCount("AllReduce", 64, 7),
                       RasCount("AllReduce", 60, 1, (7,))))],
    "all_differ_2_30": [RasCommunicator("a3f5545bf4e7cf8c", (), tuple(RasCount("AllReduce", launched, 1, (rank,))
                        for rank, launched in ((1, 27911), (2, 27890), (3, 27872), (0, 27860))))],
}  # fmt: skip
SENTENCES = {
    "ahead_2_26": "AllGather: 30 ranks launched 640, ranks 12 and 13 launched 641.",
    "dead_2_30": "NCCL's RAS: Process 3748990 on node node1 is dead.",
    "straggler_2_30": "AllReduce: rank 7 launched 60, 7 ranks launched 64.",
    "all_differ_2_30": "AllReduce: rank 0 launched 27,860, rank 3 launched 27,872, rank 2 launched 27,890, rank 1 ",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "tests" / "ras").glob("*.txt")))
def test_what_ras_said_of_real_jobs(name: str) -> None:
    text = (ROOT / "tests" / "ras" / f"{name}.txt").read_text("utf-8")
    assert text.startswith("Source: https://")
    found = nccl_ras.communicators(text)
    assert list(found) == RECORDED[name]
    outcome = hang_report.first_finding(hang(waits(0, REDUCE), waits(1, REDUCE), backend="nccl", ras=found))
    assert outcome is not None and outcome.problem is not None
    assert SENTENCES.get(name, "") in outcome.problem.cause
    assert bool(found) == ("NCCL's RAS" in outcome.problem.cause)


class Server:
    """A socket that answers as NCCL's RAS does."""

    def __init__(self, replies: Sequence[bytes]) -> None:
        self.replies = list(replies)
        self.heard: list[bytes] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.where = self.socket.getsockname()[:2]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        link, _ = self.socket.accept()
        with link:
            for reply in self.replies:
                self.heard.append(link.recv(100))
                link.sendall(reply)
            if not self.replies:
                time.sleep(5)


@pytest.fixture
def served() -> Iterator[list[Server]]:
    """The servers of a test."""
    servers: list[Server] = []
    yield servers
    for one in servers:
        one.socket.close()


def test_ras_is_asked(served: list[Server]) -> None:
    served.append(server := Server([b"OK\n", INCOMPLETE.encode()]))
    assert nccl_ras.communicators(ras_query.ask(server.where)) == (RasCommunicator("cf264af53edbe986", (21,)),)
    assert server.heard == [b"TIMEOUT 1\n", b"VERBOSE STATUS\n"]


def test_only_the_ras_of_this_run_is_asked() -> None:
    """On a machine with two jobs, only the first one can listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = server.getsockname()
        assert ras_query.listens(where, [os.getpid()])
        assert not ras_query.listens(where, [os.getppid()])
        assert not ras_query.listens(("127.0.0.1", 1), [os.getpid()])


def test_an_endless_answer_is_read_to_a_limit() -> None:
    lists = "  The missing ranks: " + ",".join(["0-9999999"] * 50_000) + "\n"
    text = (
        "#0-0 (cf264af53edbe986) INCOMPLETE\n" + lists * 3 + f"  {'9' * 5000} ranks have launched up to operation 1\n"
    )
    (found,) = nccl_ras.communicators(text)
    assert len(found.missing) == 4096


def test_something_else_at_its_port(served: list[Server]) -> None:
    served.append(server := Server([b"HTTP/1.1 400 Bad Request\n"]))
    with pytest.raises(ConnectionError):
        ras_query.ask(server.where)


def test_a_server_that_is_silent(served: list[Server]) -> None:
    served.append(server := Server([]))
    began = time.monotonic()
    with pytest.raises(OSError, match="it is not"):
        ras_query.ask(server.where)
    assert time.monotonic() - began < ras_query.LIMIT_S + 5
    query = ras_query.Query(("127.0.0.1", 1))  # nothing listens
    time.sleep(0.1)
    assert query.result() is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", ("localhost", 28028)), ("node1:4000", ("node1", 4000)), ("[::1]:4000", ("::1", 4000)),
     (":4000", ("localhost", 4000)), ("node1:x", ("localhost", 28028)), ("node1:99999", ("localhost", 28028))],
)  # fmt: skip
def test_where_ras_listens(given: str, expected: tuple[str, int]) -> None:
    assert ras_query.address({"NCCL_RAS_ADDR": given}) == expected


def test_ras_is_evidence_of_a_verdict() -> None:
    found = hang(waits(0, REDUCE), waits(1, REDUCE), world=32, backend="nccl", ras=nccl_ras.communicators(INCOMPLETE))
    outcome = hang_report.first_finding(found)
    assert outcome is not None
    assert outcome.problem is not None
    assert "NCCL's RAS: rank 21 of communicator cf264af53edbe986 did not answer." in outcome.problem.cause
    counts = replace(found, ras=nccl_ras.communicators(PER_TYPE))
    outcome = hang_report.first_finding(counts)
    assert outcome is not None
    assert outcome.problem is not None
    assert "AllReduce: rank 1 launched 13, 3 ranks launched 14" in outcome.problem.cause


# --- py-spy, and the table ---


def test_no_program_of_another_user_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root asks about a user's process: the py-spy beside its interpreter is that user's."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "py-spy").write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
    (tmp_path / "bin" / "py-spy").chmod(0o755)
    with subprocess.Popen(["sleep", "60"], env={"VIRTUAL_ENV": str(tmp_path), "PATH": os.environ["PATH"]}) as process:
        part = why_subject.Part(tmp_path, {0: processes.Rank(process.pid)}, 1)
        try:
            monkeypatch.setenv("PATH", "")
            wait_for(lambda: b"VIRTUAL_ENV" in processes.environment(process.pid))  # not yet in the moment of its start
            with monkeypatch.context() as other:
                other.setattr(os, "geteuid", lambda: 1 << 20)
                assert why._spied(part) == {} and not (tmp_path / "ran").exists()
            assert why._spied(part) == {0: ()} and (tmp_path / "ran").exists()
        finally:
            process.kill()


def test_the_frames_of_py_spy() -> None:
    """Recorded with py-spy 0.4.3: `dump --nonblocking --json`."""
    main = {
        "pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": False, "owns_gil": False,
        "frames": [{"name": "f", "filename": "/home/me/train.py", "module": None, "short_filename": "train.py",
                    "line": 3, "locals": None, "is_entry": False}],
    }  # fmt: skip
    other = {**main, "os_thread_id": 8, "thread_name": "pin", "frames": []}
    (found,) = py_spy.frames([other, main], 7)
    assert (found.file, found.line, found.function) == ("/home/me/train.py", 3, "f")
    assert py_spy.frames([{"frames": "x"}], 7) == py_spy.frames("", 7) == ()


@pytest.mark.parametrize(("numbers", "text"), [([0, 1, 2, 5], "0-2,5"), ([3], "3"), ([], ""), ([4, 1], "1,4")])
def test_ranks_in_one_text(numbers: list[int], text: str) -> None:
    assert hang_report.spans(numbers) == text


def test_ranks_that_do_the_same_are_one_row() -> None:
    found = hang(*(waits(rank, REDUCE) for rank in (0, 2, 3)), hang_rank(1, frame("time.sleep(9)", line=31)))
    shown = ["".join(text for text, _ in line) for line in hang_report.table(found, SCREEN)]
    assert [line.split()[0] for line in shown] == ["RANKS", "0,2-3", "1"]
    assert "train.py:31" in shown[2]
    assert hang_report.table(Hang(1.0, 1.0), SCREEN) == []
    assert hang_report.entry(hang(HangRank(0, state=None)))["ranks"][0]["state"] == "ended"
