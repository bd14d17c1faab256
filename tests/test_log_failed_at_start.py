"""What ends a run before its first step: Hydra's command line, folders of one name, numbers of GPUs, full disks.

The logs are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_log_callers import frames
from .test_log_meanings import explained
from .test_log_went_on import cause, read_text, shown

SCRIPT = "/home/ada/train.py"
AMBIGUOUS = (
    "Ambiguous value for argument 'data.split=8,1,1'\n1. To use it as a list, use key=[value1,value2]\n"
    "2. To use it as string, quote the value: key=\\'value1,value2\\'\n"
    "3. To sweep over it, add --multirun to your command line\n\n"
    "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
)
EXIT = (
    "E0101 10:00:00.000000 9 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: 1) local_rank: 0 "
    "(pid: 9) of binary: /opt/env/bin/python\n"
)
SENT = (
    "W0101 10:00:00.000000 9 torch/distributed/elastic/multiprocessing/api.py:858] Sending process 9 closing signal\n"
)
RESET = frames(("torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", "_call_store", "return store()")) + (
    "torch.distributed.DistNetworkError: Connection reset by peer\n"
)


def test_hydras_refusal_comes_before_the_end_of_the_rendezvous(tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, AMBIGUOUS * 4 + EXIT + SENT * 250 + RESET)
    assert row == "log_override_not_parsed" and title.endswith("means: data.split=8,1,1")
    assert "python train.py \"data.split='a,b'\"" in words and "'data.split=[a,b]'" in words
    assert "python train.py data.split=a | python train.py data.split=b" in words and "--multirun" in words
    assert cause(RESET, tmp_path) == "log_store_gone"
    # Nothing failed after it: the run did much else.
    assert cause(AMBIGUOUS + "working on the next file\n" * 250, tmp_path) is None


RANK = (
    "Root Cause (first observed failure):\n[0]:\n  host      : n1\n  rank      : 1 (local_rank: 1)\n"
    "  exitcode  : 1 (pid: 9)\n"
)
AGENT = frames(
    ("torch/distributed/launcher/api.py", "launch_agent", "result = agent.run()"),
    ("torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", "num_nodes_waiting", "self._sync()"),
)  # fmt: skip


def test_what_torchrun_raised_afterwards_is_no_ranks_exception(tmp_path: Path) -> None:
    lost = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection has failed.\n"
    assert "RendezvousConnectionError" not in shown(AMBIGUOUS + EXIT + RANK + AGENT + lost, tmp_path)
    own = frames((SCRIPT, "main", "run()")) + "ValueError: no such shape\n"
    text = shown(own + EXIT + RANK + AGENT + lost, tmp_path)
    first = text.partition("Probable cause")[0]
    assert "ValueError" in first and "RendezvousConnectionError" not in first


@pytest.mark.parametrize(
    ("line", "row", "title"),
    [
        ("missing EQUAL at '<EOF>'\n", "log_override_not_parsed", "a word without ="),
        ("Could not append to config. An item is already at 'lr'.\n", "log_override_not_parsed", "already has it"),
        ("Could not delete from config. 'lr' does not exist.\n", "log_override_not_parsed", "removes a key with ~"),
        ("Error parsing override 'a=x y'\n", "log_override_not_parsed", "cannot read an override"),
        ("Sweep parameters 'lr=range(1,4)' requires --multirun\n", "log_override_not_parsed", "without --multirun"),
        (
            "Sweeping over Hydra's configuration is not supported : 'hydra.verbose=true,false'\n",
            "log_override_not_parsed",
            "a setting of Hydra itself",
        ),
        (
            "Error in creating partial(torch.optim.adam.Adam, ...) object:\n",
            "log_target_not_created",
            "_target_ names: torch.optim.adam.Adam",
        ),
        (
            "TypeError: Error instantiating 'torch.optim.Adam' : __init__() missing 1 required positional argument\n",
            "log_target_not_created",
            "_target_ names: torch.optim.Adam",
        ),
        ("Primary config directory not found.\n", "log_config_not_found", "does not find a config file"),
        ("Key 'lrr' is not in struct\n    full_key: lrr\n", "log_config_key_missing", "does not have: lrr"),
    ],
)
def test_what_hydra_refuses(line: str, row: str, title: str, tmp_path: Path) -> None:
    found = explained(
        tmp_path, line + "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    assert found[0] == row and title in found[1]
    assert cause(f"the note of a user: {line.lower()}", tmp_path) != row


def test_another_program_that_cannot_make_an_object_is_not_hydra(tmp_path: Path) -> None:
    raised = (
        frames((SCRIPT, "main", "build(config)")) + "ValueError: Error instantiating 'Adam'with arguments {'lr': 1}\n"
    )
    assert cause(raised, tmp_path) not in (None, "log_target_not_created")


SIZES = (
    "2026-01-01 10:00:00,000 - mmcv - WARNING - The model and loaded state dict do not match exactly\n\n"
    "size mismatch for head.weight: copying a param with shape torch.Size([17, 8]) from checkpoint, the shape in "
    "current model is torch.Size([54, 8]).\n"
)
STEP = "2026-01-01 10:00:00,000 - mmx - INFO - Epoch [{epoch}][{at}/2400]\tlr: 1.000e-04, loss: 0.4\n"
TERM = "Killing subprocess 77\nKilling subprocess 78\nMain process received SIGTERM, exiting\n"


def test_a_warning_before_many_steps_is_not_why_the_run_was_stopped(tmp_path: Path) -> None:
    steps = "".join(STEP.format(epoch=n // 40 + 1, at=n % 40 * 50 + 50) for n in range(120))
    assert cause(SIZES + "hook\n" * 60 + steps + TERM + "ignored\n" * 40, tmp_path) == "log_asked_to_end"
    assert cause(SIZES + "hook\n" * 60 + TERM + "ignored\n" * 40, tmp_path) == "log_checkpoint_sizes_differ"


MMCV = ("mmcv/runner/checkpoint.py", "get_torchvision_models", "_zoo = import_module(f'torchvision.models.{name}')")
IMPORT = ("/opt/env/lib/python3.11/importlib/__init__.py", "import_module", "return _bootstrap._gcd_import(name)")
NO_MODULE = "ModuleNotFoundError: No module named 'torchvision.models.detection.draw_boxes'\n"


def test_a_folder_with_the_name_of_torchvisions_is_not_another_version(tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, frames((SCRIPT, "main", "model.init_weights()"), MMCV, IMPORT) + NO_MODULE)
    assert row == "log_submodule_missing" and title.startswith("a folder detection of the project")
    assert "import detection as m" in words and "pip install" not in words
    own = ("torchvision/models/detection/__init__.py", "<module>", "from .draw_boxes import *")
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", "init()"), MMCV, IMPORT, own) + NO_MODULE)
    assert "folder detection" not in title
    loads = ("mmcv/ops/boxes.py", "<module>", "from torchvision.models.detection.draw_boxes import draw")
    assert "do not fit" in explained(tmp_path, frames((SCRIPT, "main", "import mmcv"), loads) + NO_MODULE)[1]


TWO = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\n"
UPDATE = ("torchmetrics/classification/stat_scores.py", "_update_state", "self.tp += tp")
CHAIN = "\nThe above exception was the direct cause of the following exception:\n\n"
METRIC = (
    "RuntimeError: Encountered different devices in metric calculation (see stacktrace for details). This could be due "
    "to the metric class not being on the same device as input. Instead of `metric=BinaryRecall(...)` try to do "
    "`metric=BinaryRecall(...).to(device)` where device corresponds to the device of the input.\n"
)


def test_a_metric_on_another_device_is_named(tmp_path: Path) -> None:
    called = frames(
        (SCRIPT, "on_epoch_end", "recall(preds, labels)"), ("torchmetrics/metric.py", "forward", "update()")
    )
    row, title, words = explained(tmp_path, frames(UPDATE) + TWO + CHAIN + called + METRIC)
    assert row == "log_tensors_on_several_devices"
    assert title.startswith("the metric BinaryRecall is on another device") and "train.py:7 in on_epoch_end" in title
    assert "metric.to(preds.device)" in words and "recall(preds, labels)" in words
    assert explained(tmp_path, called + METRIC)[1] == title
    assert "metric" not in explained(tmp_path, frames((SCRIPT, "main", "y = model(x)")) + TWO)[1]


NEGATIVE = "RuntimeError: Device index must not be negative\n"


def test_a_negative_number_of_a_gpu(tmp_path: Path) -> None:
    in_ddp = frames(
        (SCRIPT, "main", "y = model(x)"), ("torch/distributed/utils.py", "to_map", "torch.device('cuda', n)")
    )
    row, title, words = explained(tmp_path, in_ddp + NEGATIVE + EXIT)
    assert row == "log_gpu_number_invalid" and "local_rank still has its default of -1" in title
    assert "int(os.environ['LOCAL_RANK'])" in words
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", "d = torch.device('cuda', args.gpu)")) + NEGATIVE)
    assert title == "the script gives a GPU a negative number" and "LOCAL_RANK" not in words


FULL = "OSError: [Errno 28] No space left on device"
SAVE = frames((SCRIPT, "main", "torch.save(model, path)"))


@pytest.mark.parametrize(
    ("path", "title", "wanted", "unwanted"),
    [
        (": '/tmp/pymp-2ab3cd_9'", "the disk with /tmp is full", "export TMPDIR=", "save_total_limit"),
        (": '/tmp/out/model.pt'", "the disk with /tmp is full", "write to a disk with space", "TMPDIR"),
        (": '/data/a.pt' -> '/home/ada/.local/share/wandb/artifacts/staging/tmp0aab'", "the disk with wandb's files is "
         "full: /home/ada/.local/share/wandb/artifacts/staging", "WANDB_DATA_DIR", "save_total_limit"),
        (": '/home/ada/.cache/huggingface/hub/x'", "the disk with Hugging Face's cache is full", "HF_HOME", "TMPDIR"),
        (": '/tmp/ray/session_1/x'", "the disk with Ray's folder is full", "--temp-dir", "TMPDIR"),
        (": '/data/out/a.pt'", "the disk is full", "df -h", "TMPDIR"),
        ("", "the disk is full", "df -h", "save_total_limit"),
    ],
)  # fmt: skip
def test_what_is_full_is_named(path: str, title: str, wanted: str, unwanted: str, tmp_path: Path) -> None:
    row, found, words = explained(tmp_path, f"{SAVE}{FULL}{path}\n")
    assert row == "log_disk_full" and found.startswith(title)
    assert wanted in words and unwanted not in words


def test_trainers_option_is_for_trainer(tmp_path: Path) -> None:
    saved = frames((SCRIPT, "main", "trainer.train()"), ("transformers/trainer.py", "_save", "save()"))
    assert "save_total_limit" in explained(tmp_path, f"{saved}{FULL}\n")[2]


def test_the_last_step_is_that_of_the_training(tmp_path: Path) -> None:
    steps = "".join(f"{n} | loss 3.{n} | lr 3.0e-04 | 170.16ms\n" for n in range(600, 623))
    log = read_text(f"step 300: train loss 3.1\nstep 600: train loss 3.0, val loss 2.9\n{steps}", tmp_path)
    assert log.reached is not None and log.reached.text.startswith("622 | loss")
    composed = read_text("trainer-1  | loss 3.1\n" * 3 + "trainer-1  | step 4\ntrainer-1  | step 5\n", tmp_path)
    assert composed.reached is not None and composed.reached.text == "trainer-1 | step 5".replace(" |", "  |")


def test_no_wheel_is_named_for_code_of_a_newer_cuda(tmp_path: Path) -> None:
    error = "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\n"
    row, _, words = explained(tmp_path, frames((SCRIPT, "main", "model.cuda()")) + error)
    assert row == "log_toolkit_newer_than_driver" and "cu126" not in words and "previous-versions" in words
    old = "The NVIDIA driver on your system is too old (found version 12020)."
    assert "cu126" in explained(tmp_path, frames((SCRIPT, "main", "model.cuda()")) + f"RuntimeError: {old}\n")[2]
