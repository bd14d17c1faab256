"""Is the good end of a run recognized in the log of each program, and is a log that was cut or failed never healthy?

The logs are synthetic, in the wording of the programs that write them; the sources of the last lines are in
`mgpu/readers/log/good_ends.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log.good_ends import GOOD_ENDS
from tests.test_log_courses import FULL, RUNTIME, bars, cause, raised, read_text, steps

LIGHTNING_BAR = "Epoch {}: 100%|██████████| 40/40 [00:10<00:00, 4.0it/s, v_num=3, train_loss=0.2]\n"
RESTART = (
    "E1121 10:12:01.408000 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: "
    "0 (pid: 12) of binary: /usr/bin/python\n"
    "I1121 10:12:01.508000 4711 torch/distributed/elastic/agent/server/api.py:879] [default] Worker group FAILED. 2/3 "
    "attempts left; will restart worker group\n"
)
FINISHED = (
    "I1121 10:19:01.408000 4711 torch/distributed/elastic/agent/server/api.py:864] [default] worker group successfully "
    "finished. Waiting 300 seconds for other agents to finish.\n"
)
RANK_FAILED = raised("ValueError: bad batch", "/home/u/train.py", "[rank1]: ")
MMENGINE = (
    "train_cfg = dict(by_epoch=True, max_epochs=12, val_interval=1)\n"
    "2026/11/21 10:12:01 - mmengine - INFO - Epoch(train) [{0}][7330/7330]  lr: 2.0000e-04  loss: 0.4012\n"
    "2026/11/21 10:12:09 - mmengine - INFO - Saving checkpoint at {0} epochs\n"
    "2026/11/21 10:19:01 - mmengine - INFO - Epoch(val) [{0}][5000/5000]    coco/bbox_mAP: 0.3740\n"
)
OPEN_CLIP = (
    "2026-11-21,10:12:01 | INFO |   epochs: 32\n"
    "2026-11-21,10:12:01 | INFO | Train Epoch: {0} [12806235/12806235 (100%)] Data (t): 0.2 Loss: 1.2\n"
    "2026-11-21,10:19:01 | INFO | Eval Epoch: {1} imagenet-zeroshot-val-top1: 0.6032\timagenet-zeroshot-val-top5: 0.8\n"
)
KERAS = (
    "Epoch {0}/3\n\r 1/50 [..............................] - ETA: 9s - loss: 0.9\r50/50 "
    "[==============================] - 5s 3ms/step - loss: 0.1\n"
)
NANOGPT = "Overriding: max_iters = 5000\n" + steps(4997, 4999, "iter {n}: loss 0.81, time 23.1ms, mfu 41.0%")

SUCCEEDED: dict[str, str] = {
    "torchrun restarted": steps(1, 4) + RANK_FAILED + RESTART + FINISHED,
    "torchrun restarted, with steps": steps(1, 4) + RANK_FAILED + RESTART + steps(3, 9) + FINISHED,
    "ft_launcher restarted": steps(1, 4) + RANK_FAILED + RESTART + "[default] worker group finished (SUCCEEDED)\n",
    "Ray restarted": (
        "(RayTrainWorker pid=123, ip=10.0.0.1) step 3 loss 0.4\n" + raised(FULL, prefix="(RayTrainWorker pid=123) ")
        + "Restarting training worker group (attempt 1 of 3)\n(RayTrainWorker pid=456) step 3 loss 0.4\n"
        "(RayTrainWorker pid=456) step 4 loss 0.3\n(RayTrainWorker pid=456) step 5 loss 0.3\n"
        "Training completed after 5 iterations at 2026-11-21 10:12:09. Total running time: 3min 2s\n"),
    "MMEngine": MMENGINE.format(12),
    "open_clip": OPEN_CLIP.format(31, 32),
    "Keras": KERAS.format(2) + KERAS.format(3),
    "Keras 3": KERAS.format(3).replace("[==============================] -", "━━━━━━━━━━━━━━━━━━━━"),
    "nanoGPT": NANOGPT + "iter 5000: loss 0.80, time 23.1ms, mfu 41.0%\n",
    "nanochat": steps(998, 999, "step 00{n}/01000 (99.9%) | loss: 2.1") + "Total training time: 71.20m\n",
    "epochs in lines": steps(1, 3, "Epoch {n}/3 - train_loss: 0.4 - val_loss: 0.5"),
    "epochs and steps": steps(48, 50, "Epoch [3/3], Step [{n}/50], Loss: 0.3"),
    "epochs in bars": "Epoch 1/2: 100%|██████████| 40/40 [00:10<00:00, 4.0it/s]\n"
                      "Epoch 2/2: 100%|██████████| 40/40 [00:10<00:00, 4.0it/s]\n",
    "diffusers": "Steps: 100%|██████████| 500/500 [12:10<00:00, 1.5s/it, lr=1e-4, step_loss=0.1]\n"
                 "Model weights saved in out/pytorch_lora_weights.safetensors\n",
    "kohya": "steps: 100%|██████████| 1600/1600 [12:10<00:00, 1.5it/s, avr_loss=0.1]\nmodel saved.\n",
    "verl": "Training Progress: 100%|██████████| 435/435 [9:12:10<00:00, 81.2s/it]\n",
    "OpenRLHF": "Train step of epoch 0: 100%|██████████| 40/40 [00:10<00:00, 4.0it/s]\n"
                "Train epoch: 100%|██████████| 2/2 [00:21<00:00, 10.5s/it]\n",
    "no_trainer": bars(1, 30, 30) + "Configuration saved in out/config.json\n",
    "ultralytics": "      10/10      4.35G      1.394       28        640: 100%|██████████| 28/28 [00:17<00:00]\n"
                   "10 epochs completed in 0.006 hours.\nOptimizer stripped from runs/train/weights/best.pt\n",
    "fairseq": "2026-11-21 10:12:09 | INFO | fairseq_cli.train | done training in 812.1 seconds\n",
    "axolotl": "[2026-11-21 10:12:09,100] [INFO] [axolotl.train.train:267] [PID:47] Training completed! Saving trained "
               "model to ./out.\n",
    "MLPerf": ':::MLLOG {"namespace": "", "event_type": "INTERVAL_END", "key": "run_stop", "value": null, '
              f'"metadata": {{"file": "/{"x" * 300}/train.py", "lineno": 185, "status": "success"}}}}\n',
    "W&B": steps(1, 9) + "wandb: Waiting for W&B process to finish... (success).\n",
    "MAE": steps(1, 9, "Epoch: [399]  [{n}/1251]  loss: 0.41") + "Training time 1 day, 3:12:01\n",
}  # fmt: skip

CUT: dict[str, str] = {
    "an epoch's bar": LIGHTNING_BAR.format(0),
    "a later epoch's bar": LIGHTNING_BAR.format(0) + LIGHTNING_BAR.format(1),
    "a bar without a name": bars(1, 40, 40),
    "bars of each epoch": 2 * bars(0, 40, 40) + "Model weights saved in out/epoch_1/model.safetensors\n",
    "a bar of each epoch that has a general name": 2 * bars(0, 40, 40).replace("\r", "\rSteps: "),
    "an epoch's steps": "Epoch: 2 step 500/500 loss 0.3\n",
    "an epoch's batches": "Epoch: [12][5005/5005]\tTime 0.1\tLoss 2.1\n",
    "the beginning of the last epoch": "Epoch 3/3\n----------\n",
    "the beginning of Keras' last epoch": KERAS.format(2) + "Epoch 3/3\n 1/50 [.........] - ETA: 9s - loss: 0.9\n",
    "the last epoch, step by step": steps(1, 3, "Epoch 3/3 | loss 0.{n}"),
    "the last epoch with steps": "Epoch 3/3 lr 0.001\nstep 10 loss 0.3\nstep 20 loss 0.2\n",
    "the last epoch of several counters": "Epoch [3/3], Step [10/50], Loss: 0.3\n",
    "an evaluation": LIGHTNING_BAR.format(0) + "Validation: 100%|██████████| 9/9 [00:10<00:00, 4.0it/s]\n",
    "an evaluation of a Trainer": bars(1, 20, 40).rstrip("\n") + "\n100%|██████████| 8/8 [00:02<00:00, 3.5it/s]\n",
    "MMEngine": MMENGINE.format(11),
    "open_clip": OPEN_CLIP.format(30, 31),
    "nanoGPT": NANOGPT,
    "Keras": KERAS.format(2),
    "the end of a config": '   "train_iters": 320000,\n   "lr_decay_iters": 320000,\n   "max_steps": 500\n}\n',
    "a config": "training_complete: False\non_success: 'Training completed'\nsuccess: true\nmax_steps: 500\n"
                + steps(1, 3),
    "an epoch of a Trainer": "{'loss': 0.71, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 1.0}\n",
    "MLPerf that gave up": ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "aborted"}}\n',
    "Lightning that was interrupted": LIGHTNING_BAR.format(0) + "Detected KeyboardInterrupt, attempting graceful "
                                      "shutdown ...\n",
    "nccl-tests with wrong results": "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 12.3477\n#\n"
                                     "# Collective test concluded: all_reduce_perf\n",
    "the program's help": "  --max_steps MAX_STEPS  Stop when training is completed after this many steps\n",
    "W&B": steps(1, 9) + "wandb: Waiting for W&B process to finish... (failed 1). Press Control-C to abort syncing.\n",
}  # fmt: skip

FAILED: dict[str, tuple[str, str]] = {
    "an epoch's bar, then a crash": (LIGHTNING_BAR.format(0) + raised("ValueError: bad batch"), "log_exception"),
    "the last bar, then a crash": (bars(1, 30, 30) + raised("ValueError: bad batch"), "log_exception"),
    "the last step, then a crash": (
        steps(1, 5, "step {n}/5 loss 0.3") + raised("OSError: bad disk", "/home/u/train.py"), "log_exception"),
    "a rank that finished, and one that failed": (
        steps(1, 4) + RANK_FAILED + "[rank0] Training completed\n" + RESTART.splitlines(True)[0], "log_exception"),
    "a rank that finished after another failed": (steps(1, 4) + RANK_FAILED + "Training completed\n", "log_exception"),
    "a second attempt that failed": (
        steps(1, 4) + RANK_FAILED + RESTART + steps(3, 9) + RANK_FAILED + RESTART.splitlines(True)[0], "log_exception"),
    "a second attempt that failed at once": (
        steps(1, 4) + RANK_FAILED + RESTART + RANK_FAILED + RESTART.splitlines(True)[0], "log_exception"),
    "Slurm, after a script that ignored a failure": (
        steps(1, 4) + raised("ValueError: bad batch") + "Job ID: 4711\nState: COMPLETED (exit code 0)\n",
        "log_exception"),
    "SkyPilot, after a script that ignored a failure": (
        raised("ValueError: bad batch", prefix="(task, pid=4711) ") + "✓ Job finished (status: SUCCEEDED).\n",
        "log_exception"),
    "docker, after a script that ignored a failure": (
        raised("ValueError: bad batch") + "trainer-1 exited with code 0\n", "log_exception"),
    "W&B's summary after a failure": (
        steps(1, 9) + raised("ValueError: bad batch") + "wandb: Run history:\n" + 40 * "wandb: loss ▁▂▃\n"
        + "wandb: Run summary:\nwandb: loss 0.3\n", "log_exception"),
    "words of success in a config": (
        "on_end: 'Training completed'\n" + steps(1, 4) + raised("ValueError: bad batch"), "log_exception"),
    "the run before this one": (RUNTIME + steps(1, 4) + raised("ValueError: bad batch"), "log_exception"),
}  # fmt: skip


@pytest.mark.parametrize("line", [sample for end in GOOD_ENDS for sample in end.samples])
def test_the_last_line_of_each_program(line: str, tmp_path: Path) -> None:
    assert read_text(f"start\n{line}\n", tmp_path).finished is not None


def test_each_rule_has_a_source_and_a_pattern_of_its_own() -> None:
    assert all(end.source.startswith("https://") and end.samples for end in GOOD_ENDS)
    assert len({end.pattern for end in GOOD_ENDS}) == len(GOOD_ENDS)


@pytest.mark.parametrize("name", SUCCEEDED)
def test_a_run_that_succeeded(name: str, tmp_path: Path) -> None:
    log = read_text(SUCCEEDED[name], tmp_path)
    assert (cause(log)[0], log.failed) == (None, None)
    assert log.finished is not None


@pytest.mark.parametrize("name", CUT)
def test_a_log_that_was_cut_is_not_a_success(name: str, tmp_path: Path) -> None:
    assert read_text(CUT[name], tmp_path).finished is None


@pytest.mark.parametrize("name", FAILED)
def test_a_run_that_failed_after_words_of_success(name: str, tmp_path: Path) -> None:
    text, wanted = FAILED[name]
    log = read_text(text, tmp_path)
    assert (cause(log)[0], log.finished) == (wanted, None)
