"""Exceptions that a log shows although nothing ended with them: of servers, threads, loggers and skipped items."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read
from mgpu.readers.log.doubled import undoubled
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause, read_text

THREAD = "/opt/env/lib/python3.11/socketserver.py"
SHARER = "/opt/env/lib/python3.11/multiprocessing/resource_sharer.py"
SERVED = '127.0.0.1 - - [12/Apr/2026 20:48:31] "POST /generate HTTP/1.1" 200 -\n'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
DENIED = "openai.AuthenticationError: Error code: 401 - {'message': 'Authentication failed'}\n"
SHADOWED = "AttributeError: module 'code' has no attribute 'InteractiveInterpreter'\n"
HIDDEN = frames(
    (SCRIPT, "main", "import werkzeug.debug"), ("werkzeug/debug/console.py", "<module>", "class C(code.I):")
)
JIEBA = (
    "Dump cache file failed.\n"
    + frames(("jieba/__init__.py", "initialize", "_replace_file(fpath, cache_file)"))
    + "PermissionError: [Errno 1] Operation not permitted: '/tmp/tmp1' -> '/tmp/jieba.cache'\n"
)
PREDICTED = "***** predict metrics *****\n  predict_rouge-1            =    93.9588\n  predict_runtime = 1:02:26.82\n"
SKIPPED = (
    "[skip] Failed to load sym50.ckpt: Attempting to deserialize object on CUDA device 7 but "
    "torch.cuda.device_count() is 6. Please use torch.load with map_location\n"
)


def of_request(error: str) -> str:
    inner = frames(
        (SCRIPT, "answer", "client.chat.completions.create()"), ("openai/_base_client.py", "_request", "raise")
    )
    outer = frames((THREAD, "process_request_thread", "self.finish_request()"), (SCRIPT, "run", "handle()"))
    head = "Exception occurred during processing of request from ('127.0.0.1', 50342)\n"
    return f"{head}{inner}{DENIED}{CHAIN}{outer}{error}"


def test_a_server_goes_on_after_an_exception_of_one_request(tmp_path: Path) -> None:
    text = of_request("RuntimeError: cannot write the answer\n")
    assert cause(f"{SERVED}{text}{SERVED}", tmp_path) is None
    assert not [one for one in read_text(text, tmp_path).raised if not one.caught]
    died = f"{SERVED}{text}{frames((SCRIPT, 'main', 'serve()'))}OSError: no socket\n"
    assert "OSError" in explained(tmp_path, died)[1]


def test_a_tensor_that_a_worker_did_not_fetch_ends_nothing(tmp_path: Path) -> None:
    served = frames((SHARER, "_serve", "answer_challenge(c, self._authkey)"))
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    assert cause(f"Epoch 261/400 loss=0.03\n{served}{reset}", tmp_path) is None
    assert cause(f"Epoch 261/400 loss=0.03\n{frames((SCRIPT, 'main', 'conn.recv()'))}{reset}", tmp_path) is not None


def test_a_module_that_is_hidden_by_a_file_of_the_project(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, HIDDEN + SHADOWED)
    assert title.startswith("a file or folder named code is probably imported in place of Python's own module"), title
    assert "pip install" not in words and "import code as m" in words
    seeded = frames((SCRIPT, "main", "random.seed(3)")) + "AttributeError: module 'random' has no attribute 'seed'\n"
    assert explained(tmp_path, seeded)[1].startswith("a file or folder named random is probably imported")
    removed = frames((SCRIPT, "main", "t = time.clock()")) + "AttributeError: module 'time' has no attribute 'clock'\n"
    assert "this Python version has no time.clock" in explained(tmp_path, removed)[1]


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("d = datetime.now()", "module 'datetime' has no attribute 'now'", "the class datetime.datetime has it"),
        ("x = random.rand(3)", "module 'random' has no attribute 'rand'", "Python's module random has no rand"),
        ("time.pause(3)", "module 'time' has no attribute 'pause'", "Python's module time has no pause"),
        ("import tensorboard", "module 'distutils' has no attribute 'version'", "the installed setuptools is newer"),
    ],
)
def test_a_name_that_the_module_never_had_is_no_hidden_module(code: str, error: str, said: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}AttributeError: {error}\n")
    assert row == "log_module_lacks_name" and said in title and "imported in place of" not in f"{title} {words}", title


def test_predictions_are_an_end_after_what_a_library_printed(tmp_path: Path) -> None:
    assert cause(JIEBA, tmp_path) is not None
    log = read_text(JIEBA + PREDICTED, tmp_path)
    assert log.finished and all(one.caught for one in log.raised)
    assert cause(JIEBA + PREDICTED + frames((SCRIPT, "main", "save()")) + "OSError: no\n", tmp_path) is not None


def test_an_item_that_the_program_skips_is_no_failure(tmp_path: Path) -> None:
    assert cause(f"start\n{SKIPPED}Saved summary to: out.csv\n", tmp_path) is None
    assert cause(f"start\n{SKIPPED.removeprefix('[skip] ')}", tmp_path) == "log_checkpoint_of_more_gpus"


@pytest.mark.parametrize(
    ("line", "single"),
    [
        ("SyntaxErrorSyntaxError: : invalid syntaxinvalid syntax", "SyntaxError: invalid syntax"),
        ("ValueErrorValueErrorValueError: : : no axisno axisno axis", "ValueError: no axis"),
        (
            "requests.exceptionsrequests.exceptions..ConnectionErrorConnectionError: : refusedrefused",
            "requests.exceptions.ConnectionError: refused",
        ),
        ("KeyErrorKeyError: : 'a''b'", "KeyError: 'a''b'"),
        ("ValueError: : odd", "ValueError: : odd"),
        ("ValueErrorTypeError: : one", "ValueErrorTypeError: : one"),
        ("loss: : 3", "loss: : 3"),
    ],
)
def test_lines_of_processes_that_wrote_at_the_same_time(line: str, single: str) -> None:
    assert undoubled(line) == single


def test_a_doubled_exception_is_read(tmp_path: Path) -> None:
    frame = '  File "train.py", line 232\n    optim="adam"\n    ^\n'
    row, title, _ = explained(tmp_path, f"{frame}SyntaxErrorSyntaxError: : invalid syntaxinvalid syntax\n{frame}")
    assert row == "log_syntax_error" and title == "a syntax error in train.py:232: invalid syntax", title


def test_code_that_a_program_only_tries_out(tmp_path: Path) -> None:
    tried = "  File \"<string>\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed\n"
    assert cause(f"Epoch 1/9 loss 0.5\n{tried}Epoch 2/9 loss 0.4\nEpoch 3/9 loss 0.3\n", tmp_path) is None
    assert cause(f"Epoch 1/9 loss 0.5\n{tried}", tmp_path) == "log_syntax_error"


def test_tensorflow_computes_on_the_cpu_without_a_gpu(tmp_path: Path) -> None:
    refused = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    start = f"2021-01-01 00:00:00.1: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] {refused}"
    assert cause(f"{start}Epoch 1/9 loss 0.5\n", tmp_path) is None
    assert cause("RuntimeError: CUDA error: no CUDA-capable device is detected\n", tmp_path) == "log_no_gpu"


def test_amounts_per_step_do_not_count_steps(tmp_path: Path) -> None:
    """A summary of the settings before an error, and the number of all steps, are no progress after it."""
    (tmp_path / "run.log").write_text(
        "Tokens per step: 1,024\nEstimated FLOPs per step: 9.08e+07\ntotal_steps=8, warmup_steps=0\n"
        "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 14788 vs 10628\n"
        "E1201 02:02:52.910000 13918 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) "
        "local_rank: 1 (pid: 14006) of binary: /usr/bin/python\n=======================================\n"
    )
    seen = {one.signature: one for one in read.read_logs([tmp_path / "run.log"]).seen}
    assert not seen["log_collectives_differ"].survived
