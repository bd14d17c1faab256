"""Messages whose own values show the reason: an empty input, one class, a dimension too many, a list used as a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

CHANNELS = "RuntimeError: Given groups=1, weight of size [64, 128, 3], expected input{shape} to have 128 channels, but "
CONV = (("torch/nn/modules/conv.py", "forward", "return self._conv_forward(input)"),)
LOSS = (("torch/nn/functional.py", "nll_loss", "raise ValueError('Expected target size {}, got {}'.format("),)
YACS = (("yacs/config.py", "_merge_a_into_b", 'raise KeyError("Non-existent config key: {}".format(full_key))'),)
NO_PORT = (
    frames(
        ("torch/distributed/run.py", "run", "elastic_launch("),
        ("torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", "next_rendezvous", "self._store = TCPStore("),
    )
    + "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
)
WAITED = "".join(
    f"[E ProcessGroupNCCL.cpp:828] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
    "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1801501 milliseconds before timing out.\n"
    for rank in (0, 1)
)


@pytest.mark.parametrize(
    ("code", "within", "error", "title", "words"),
    [
        ("z = self.conv(x)", CONV, f"{CHANNELS.format(shape='[0, 2, 2]')}got 2 channels instead",
         "the input of a convolution is empty: its shape is [0, 2, 2]", "without objects"),
        ("z = self.conv(x)", CONV, f"{CHANNELS.format(shape='[8, 20, 20]')}got 20 channels instead",
         "expects 128 channels, but got 20", "Compare"),
        ("loss = ce(out, y)", LOSS, "ValueError: Expected target size (16, 30), got torch.Size([16])",
         "a dimension too many, (16, ?, 30), for labels of the shape (16)", "out[:, 0]"),
        ("loss = ce(out, y)", (), "RuntimeError: Expected target size [4, 32000], got [4, 512]",
         "needs labels of the shape (4, 32000), and they are (4, 512)", "out.transpose(1, 2)"),
        ("loss = ce(out, y)", (), "RuntimeError: Expected target size [4, 32, 32], got [8]",
         "the loss takes labels of the shape [4, 32, 32] for this output, and gets [8]", "print(out.shape"),
        ("loss = ce(out, y)", (), "IndexError: Target 1 is out of bounds.", "has only one class", "BCEWithLogitsLoss"),
        ("loss = ce(out, y)", (), "IndexError: Target 10 is out of bounds.", "larger than the number of classes",
         "ignore_index"),
        ("kind = out['qid'].split('_')[-1]", (), "AttributeError: 'list' object has no attribute 'split'",
         "out['qid'] is a list, and fit.py:7 in main uses it as one text: it has no split", "texts[0]"),
        ("for key in cfg.keys():", (), "AttributeError: 'list' object has no attribute 'keys'",
         "cfg is a list, and fit.py:7 in main uses it as a dict", "print(type(cfg))"),
        ("x = row.get('text')", (), "AttributeError: 'str' object has no attribute 'get'",
         "row is a str, and", "json.loads"),
        ("data.append(x)", (), "AttributeError: 'dict' object has no attribute 'append'",
         "data is a dict, and fit.py:7 in main uses it as a list", "setdefault"),
        ("name = row['name'].strip()", (), "AttributeError: 'float' object has no attribute 'strip'",
         "row['name'] is a float, and fit.py:7 in main uses it as a text", "keep_default_na"),
        ("x = torch.stack(a[i])", (), "TypeError: expected Tensor as element 0 in argument 0, but got str",
         "item 0 of a list that torch joins into one tensor is a text", "torch.is_tensor(x[0])"),
        ("x = torch.stack(a)", (), "TypeError: expected Tensor as element 2 in argument 0, but got numpy.ndarray",
         "item 2 of a list that torch joins into one tensor is a NumPy array", "torch.from_numpy"),
        ("x = torch.stack(a)", (), "TypeError: expected Tensor as element 2 in argument 0, but got Odd",
         "item 2 of a list that torch joins into one tensor is a Odd", "print([type(x)"),
        ("y = x.shape[0]", (), "AttributeError: 'list' object has no attribute 'shape'", "x is a list",
         "not collated"),
        ("x.frobnicate()", (), "AttributeError: 'list' object has no attribute 'frobnicate'",
         "x is a list, and fit.py:7 in main reads its attribute frobnicate", "print(type(x), x)"),
        ("cfg.merge_from_file(path)", YACS, "KeyError: 'Non-existent config key: MODEL.HEAD.PRETRAINED'",
         "sets MODEL.HEAD.PRETRAINED, a key that the project's defaults do not define", "PRETRAINED ."),
        ("cfg.merge_from_file(path)", YACS, "ValueError: Type mismatch (<class 'float'> vs. <class 'str'>) with "
         "values (0.1 vs. 1e-4) for config key: SOLVER.LR", "sets SOLVER.LR to a value of another type", "1.0e-4"),
    ],
)  # fmt: skip
def test_the_values_of_a_message_are_read(
    code: str, within: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    found = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *within)}{error}\n")
    assert title in found[1] and words in found[2], found


def test_a_package_that_uses_a_list_as_a_text_can_have_another_reason(tmp_path: Path) -> None:
    text = frames((SCRIPT, "main", "run(x)"), ("other/core.py", "run", "return names.split(',')"))
    title = explained(tmp_path, f"{text}AttributeError: 'list' object has no attribute 'split'\n")[1]
    assert "uses it as" not in title


def test_a_missing_folder_of_yolo_is_named_only_in_its_own_check(tmp_path: Path) -> None:
    error = "Exception: Dataset not found.\nWARNING: Dataset not found, nonexistent paths: ['/d/val']\n"
    text = frames((SCRIPT, "train", "check_dataset(data)"), ("/home/ada/utils/general.py", "check_dataset", "raise E"))
    _, title, words = explained(tmp_path, text + error)
    assert "a folder of images that YOLO's data file names does not exist" in title and "/d/val" in words
    assert "YOLO" not in explained(tmp_path, frames((SCRIPT, "main", "raise E")) + error)[1]


def test_a_launcher_without_a_port_did_not_start_the_ranks_that_wait(tmp_path: Path) -> None:
    assert cause(NO_PORT + WAITED, tmp_path) == "log_exchange_never_worked"
    assert cause(NO_PORT, tmp_path) == "log_port_taken"
    assert cause(WAITED + NO_PORT, tmp_path) == "log_port_taken"
    own = frames((SCRIPT, "main", "dist.init_process_group('nccl')"), ("torch/distributed/rendezvous.py", "_env", "s"))
    taken = "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    assert cause(own + taken + WAITED, tmp_path) == "log_port_taken"  # a rank's own


def test_a_stopped_download_is_named(tmp_path: Path) -> None:
    end = "KeyboardInterrupt\n"
    fetch = ("jets/utils.py", "get", "urlretrieve(url, path)")
    hub = ("huggingface_hub/file_download.py", "http_get", "for chunk in r.iter_content(chunk_size):")
    for inner in (fetch, hub):
        _, title, words = explained(tmp_path, frames((SCRIPT, "main", "x = load()"), inner) + end)
        assert "while it downloaded a file" in title and "x = load()" in words
    call = ("jets/utils.py", "get", "x = parse(urls)")
    assert "downloaded" not in explained(tmp_path, frames((SCRIPT, "main", "x = load()"), call) + end)[1]


def test_what_transformers_prints_of_every_new_head_is_no_problem(tmp_path: Path) -> None:
    said = "- This IS NOT expected if you are initializing TinyModel from a checkpoint that is exactly identical.\n"
    _, _, words = explained(tmp_path, said + frames((SCRIPT, "main", "f(x)")) + "ValueError: odd\n")
    assert "initializing" not in words


HOOK = "Error in sys.excepthook:\n" + frames(
    ("tracker/callback.py", "_except_handler", "run.finish(CRASHED, error=error)"),
    ("tracker/run.py", "finish", "self._cleanup(error)"),
)
DONE = "100%|██████████| 321/321 [07:20<00:00,  1.26s/it]\n"


def test_what_reports_an_exception_is_not_the_cause_if_it_fails(tmp_path: Path) -> None:
    original = "\nOriginal exception was:\n" + frames((SCRIPT, "main", "x = cfg['lr']")) + "KeyError: 'lr'\n"
    for raised in ("ModuleNotFoundError: No module named 'apt_pkg'\n", "ValueError: I/O operation on closed file\n"):
        found, title, words = explained(tmp_path, HOOK + raised + original)
        assert found == "log_exception" and "cfg has no key 'lr'" in title and "apt_pkg" not in words
        found, title, words = explained(tmp_path, DONE + HOOK + raised)
        assert found == "log_traceback_cut" and "so did the hook that reports exceptions" in title
        assert "reached its end before it" in words and "df -h" not in words


def test_a_log_that_ends_at_a_block_of_the_disk_names_the_disk(tmp_path: Path) -> None:
    text = DONE + HOOK[:-9]
    full = text.rjust(4096 - len(text.encode()) + len(text), " ")
    assert "exactly 1 block of 4 KiB" in explained(tmp_path, full)[2]
    assert "of 4 KiB" not in explained(tmp_path, text)[2]


def test_the_sides_of_an_operator_that_python_underlines_have_their_sizes(tmp_path: Path) -> None:
    error = "RuntimeError: The size of tensor a (3) must match the size of tensor b (16) at non-singleton dimension 0\n"
    for operator, of_batch in (("@", True), ("+", False)):
        lines = f"    y = w[:, None] {operator} x[:, :n]\n        ~~~~~~~~~~~^~~~~~~~~~\n"
        text = f'Traceback (most recent call last):\n  File "{SCRIPT}", line 7, in main\n{lines}{error}'
        words = explained(tmp_path, text)[2]
        assert "Here w[:, None] has 3, and x[:, :n] has 16." in words and ("With @" in words) == of_batch
    text = f'Traceback (most recent call last):\n  File "{SCRIPT}", line 7, in main\n    y = a + b + c\n{error}'
    assert "Here " not in explained(tmp_path, text)[2]


def test_a_killed_program_had_just_printed_how_large_its_arrays_are(tmp_path: Path) -> None:
    later = "still here\n" * 20
    for kill in ("Killed\n", "train.sh: line 33: 13 Killed                  python main.py\n"):
        _, title, words = explained(
            tmp_path, f"test shape: (8, 96)\nall: (90000, 96, 512)\ny shape: (90000, 96, 512)\n{kill}"
        )
        assert "an array of more than 4 GiB" in title and "batch by batch" in words
        assert "array" not in explained(tmp_path, f"y shape: (900, 96, 512)\n{kill}")[1]
        assert "array" not in explained(tmp_path, f"y shape: (90000, 96, 512)\n{later}{kill}")[1]


def test_a_bare_killed_has_the_work_before_it(tmp_path: Path) -> None:
    steps = "".join(f"epoch 1 step {n}/900 loss: 0.4{n}\n" for n in range(10, 20))
    assert "in the middle of training" in explained(tmp_path, f"{steps}Killed\n")[1]
    assert (
        "while a model or a checkpoint was loaded"
        in explained(tmp_path, "Loading checkpoint shards:  50%|█    | 1/2\nKilled\n")[1]
    )
    assert explained(tmp_path, "hello\nKilled\n")[1].endswith("usually because host memory ran out")
