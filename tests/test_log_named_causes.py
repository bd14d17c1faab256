"""Failures of which a log names the cause in a line above, in a size, in an old wording or in the script's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

HOROVOD = (
    "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are "
    "waiting for remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to "
    "submit different tensors or that only subset of ranks is submitting tensors, which will cause deadlock. \n"
)


def test_the_rank_that_horovod_misses_is_named(tmp_path: Path) -> None:
    text = HOROVOD + "Stalled ops:\nHorovodBroadcast_fc_weights_0 [missing ranks: 0]\n"
    row, title, words = explained(tmp_path, text)
    assert row == "log_horovod_rank_missing" and "rank 0 never" in title and "mgpu doctor --log" in words
    many = text.replace("missing ranks: 0", "missing ranks: 1, 3")
    assert "rank 1, 3 never" in explained(tmp_path, many)[1]


def test_ranks_that_call_different_things_in_horovod(tmp_path: Path) -> None:
    text = (
        f"[1,0]<stderr>:{HOROVOD}[1,0]<stderr>:Stalled ranks:\n"
        "[1,0]<stderr>:0: [HorovodBroadcast_net_bias_0, HorovodBroadcast_net_beta_0 ...]\n"
        "[1,0]<stderr>:1: [DistributedMomentumOptimizer_Allreduce/HorovodAllreduce_gradients_AddN_100_0 ...]\n"
    )
    row, title, words = explained(tmp_path, text)
    assert row == "log_horovod_stalled" and "different" in title and "broadcast" in words
    assert "different" not in explained(tmp_path, HOROVOD + "Missing ranks:\n3: [allreduce.fc.weight]\n")[1]


def test_two_processes_with_one_rank(tmp_path: Path) -> None:
    calls = frames((SCRIPT, "main", "dist.init_process_group(rank=args.rank)"), ("torch/distributed/__init__.py",
                   "init_process_group", "group_name, rank)"))  # fmt: skip
    error = "RuntimeError: more than one node have assigned same rank at /x/THD/process_group/General.cpp:17\n"
    row, title, words = explained(tmp_path, calls + error)
    assert row == "log_ranks_not_distinct" and "same rank" in title and "torchrun" in words


@pytest.mark.parametrize(
    ("said", "row", "title"),
    [
        ("World size 2 must be divisible by the product of all parallel degrees.", "log_sizes_do_not_divide",
         "World size 2 must"),
        ("the frobnicator has no wheels left", "log_traceback_cut", "the frobnicator has no wheels left"),
    ],
)  # fmt: skip
def test_a_message_logged_above_its_traceback_is_that_of_the_exception(
    said: str, row: str, title: str, tmp_path: Path
) -> None:
    stamp = "2026-11-21 10:12:01 - [ERROR] - "
    above = f"2026-11-21 10:12:00 - [DEBUG] - ready\n{stamp}An error occurred during training: {said}\n"
    found = explained(tmp_path, f"{above}{stamp}{frames((SCRIPT, 'main', 'trainer = Trainer(args)'))}")
    assert found[0] == row and title in found[1], found
    for other in ("wandb: ERROR For more info see: the page about it", "ERROR: failed (exitcode: 1) local_rank: 0"):
        whole = f"{other}\n{frames((SCRIPT, 'main', 'trainer = Trainer(args)'))}"
        assert "reported" not in explained(tmp_path, f"start\n{whole}")[1]
    plain = explained(tmp_path, f"An information: {said}\n{frames((SCRIPT, 'main', 'trainer = Trainer(args)'))}")
    assert "reported" not in plain[1]


@pytest.mark.parametrize(
    ("name", "old", "new", "words", "never"),
    [
        ("classifier.weight", "3, 768", "2, 768", "build the model with 3 outputs in classifier", "shifted"),
        ("classification_head.weight", "7, 256", "9, 256", "build the model with 7 outputs in classif", "parallel"),
        ("head.bias", "10", "100", "build the model with 10 outputs in head", "split over"),
        ("fc.weight", "1000, 512", "5, 512", "build the model with 1000 outputs in fc", "parallel"),
        ("blocks.3.proj.weight", "64, 512", "32, 512", "parallel", "num_labels"),
        ("head.weight", "5, 768", "5, 1024", "configuration", "num_labels"),
    ],
)  # fmt: skip
def test_classes_of_a_checkpoint(name: str, old: str, new: str, words: str, never: str, tmp_path: Path) -> None:
    error = (
        f"RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for {name}: copying a param with "
        f"shape torch.Size([{old}]) from checkpoint, the shape in current model is torch.Size([{new}]).\n"
    )
    calls = frames((SCRIPT, "main", "model.load_state_dict(state)"), ("torch/nn/modules/module.py", "load_state_dict",
                   "raise RuntimeError("))  # fmt: skip
    row, title, text = explained(tmp_path, calls + error)
    assert row == "log_checkpoint_sizes_differ" and words in text and never not in text, (title, text)
    of_hub = (
        calls + frames(("transformers/modeling_utils.py", "from_pretrained", "raise RuntimeError(")).split("\n", 1)[1]
    )
    text = explained(tmp_path, of_hub + error)[2]
    assert ("num_labels=" in text) == words.startswith("build the model"), text


INVALID = (
    "TypeError: randn() received an invalid combination of arguments - got ({got}), but expected one of:\n"
    " * (tuple of ints size, *, torch.Generator generator, tuple of names names, torch.dtype dtype = None)\n"
    " * (tuple of ints size, *, Tensor out = None, torch.dtype dtype = None)\n"
)


def test_arguments_that_torch_does_not_accept(tmp_path: Path) -> None:
    calls = frames((SCRIPT, "main", "noise = torch.randn(shape, generator=generator, dtype=kind)"))
    _, title, words = explained(tmp_path, calls + INVALID.format(got="tuple, dtype=torch.dtype, generator=NoneType"))
    assert "shape" in title and "not an int" in title and "is None" not in words, (title, words)
    assert "print(shape" in words
    _, title, words = explained(tmp_path, calls + INVALID.format(got="NoneType, dtype=torch.dtype"))
    assert "is None" in title + words


def test_an_index_beyond_an_array_of_numpy(tmp_path: Path) -> None:
    error = "IndexError: index 15281 is out of bounds for axis 0 with size 5924\n"
    _, title, words = explained(tmp_path, frames((SCRIPT, "draw", "p = data[order[i], 0]")) + error)
    assert (
        "data has only 5,924" in title
        and "15281, probably" in title
        and "order[i]" in title
        and "tokenizer" not in words
    )
    assert "classes" not in words
    _, title, words = explained(tmp_path, frames((SCRIPT, "draw", "plot(data)")) + error)
    assert "15281" in title and "tokenizer" not in words
    inside = error.replace("axis", "dimension")
    assert "tokenizer" in explained(tmp_path, frames((SCRIPT, "draw", "x = table[ids]")) + inside)[2]


@pytest.mark.parametrize(
    ("code", "message", "name"),
    [
        ("cfg = yaml.safe_load(open(config.extra_path))", "expected str, bytes or os.PathLike object, not NoneType",
         "config.extra_path"),
        ("full = os.path.join(args.root, 'a.pt')", "expected str, bytes or os.PathLike object, not NoneType",
         "args.root"),
        ("if os.path.exists(resume_from):", "stat: path should be string, bytes, os.PathLike or integer, not NoneType",
         "resume_from"),
        ("folder = Path(out_dir)", "argument should be a str or an os.PathLike object where __fspath__ returns a str, "
         "not 'NoneType'", "out_dir"),
        ("if 'clip' in opt.model:", "argument of type 'NoneType' is not iterable", "opt.model"),
    ],
)  # fmt: skip
def test_a_path_that_was_not_set(code: str, message: str, name: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}TypeError: {message}\n")
    assert title.startswith(f"{name} is None") and "grep -nE" in words, (title, words)


def test_a_path_that_was_not_set_and_is_used_in_python_itself(tmp_path: Path) -> None:
    below = ("/opt/env/lib/python3.11/posixpath.py", "join", "a = os.fspath(a)")
    text = frames((SCRIPT, "main", "full = os.path.join(args.root, 'a.pt')"), below)
    text += "TypeError: expected str, bytes or os.PathLike object, not NoneType\n"
    assert explained(tmp_path, text)[1].startswith("args.root is None")


ANOMALY = "[W python_anomaly_mode.cpp:104] Warning: Error detected in MulBackward0. Traceback of forward call:\n"
NAN = frames((SCRIPT, "main", "loss.backward()")) + "RuntimeError: Function 'MulBackward0' returned nan values in its "


def test_anomaly_mode_is_not_advised_where_it_is_on(tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, f"step 1\n{ANOMALY}{NAN}0th output.\n")
    assert row == "log_loss_not_finite" and "backward pass" in title
    assert "set_detect_anomaly" not in words and "forward" in words
    divided = "/home/ada/weights.py:161: RuntimeWarning: divide by zero encountered in true_divide\n"
    row, title, words = explained(tmp_path, f"step 1\n{ANOMALY}{divided}{NAN}0th output.\n")
    assert "divided by zero" in words and "numpy" in words
    assert "set_detect_anomaly" in explained(tmp_path, "Loss is nan, stopping training\n")[2]


def test_tensorflow_reports_a_full_gpu(tmp_path: Path) -> None:
    text = frames((SCRIPT, "fit", "model.fit(x)"), ("tensorflow/python/client/session.py", "run", "call(c)"))
    text += (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
        "shape[2,64,400,112,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator "
        "GPU_0_bfc\n"
    )
    row, title, words = explained(tmp_path, text)
    assert row == "log_tensorflow_memory_full" and "[2,64,400,112,112]" in title and "batch" in words
    host = text.replace("device:GPU:0 by allocator GPU_0_bfc", "device:CPU:0 by allocator cpu")
    assert "host" in explained(tmp_path, host)[1]
