"""What do programs, launchers and batch systems print last when a run succeeds?

A rule's pattern is searched in a line without prefixes. Where the words of a program are those of many ("Training
complete"), no rule is needed: `course.py` has the general forms.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

# program: the training program itself, or a launcher that checks the exit code of each rank. Earlier errors were
# survived. wrapper: what runs the user's command. It reports success also if that command is a shell script that
# failed before its last line, so it says nothing about an exception before it. setup: what prepares a run. It is a
# good end only of a log that has nothing after it.
By: TypeAlias = Literal["program", "wrapper", "setup"]


class GoodEnd(NamedTuple):
    """A line that shows a good end."""

    pattern: str
    samples: tuple[str, ...]
    source: str
    by: By = "program"


_TRANSFORMERS = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
_LIGHTNING = "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/loops/fit_loop.py"
_ELASTIC = "https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/agent/server/api.py"
_MEGATRON = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/training.py"
_RAY = "https://docs.ray.io/en/latest/cluster/running-applications/job-submission/quickstart.html"
_RAY_TUNE = "https://github.com/ray-project/ray/blob/master/python/ray/tune/experimental/output.py"
_SKY = "https://github.com/skypilot-org/skypilot/issues/5462"
_OPERATOR = "https://github.com/kubeflow/mpi-operator/issues/297"
_YOLO = "https://github.com/ultralytics/ultralytics/blob/main/ultralytics/engine/trainer.py"

# fmt: off
GOOD_ENDS = (
    GoodEnd(r"['\"]train_runtime['\"]: ?['\"]?\d|^\s*(?:train|predict|test)_runtime\s+=",
            ("{'train_runtime': 812.1, 'train_loss': 0.4}", "  train_runtime            = 0:13:32.11",
             "  predict_runtime            = 1:02:26.82"), _TRANSFORMERS),
    GoodEnd(r"Training completed\. Do not forget to share your model",
            ("Training completed. Do not forget to share your model on huggingface.co/models =)",), _TRANSFORMERS),
    GoodEnd(r"`(?:Trainer|Fabric)\.\w+` stopped: `max_\w+=\S+` reached",
            ("`Trainer.fit` stopped: `max_epochs=3` reached.", "`Trainer.fit` stopped: `max_steps=500` reached."),
            _LIGHTNING),
    GoodEnd(r"Signaling Trainer to stop\.",
            ("Monitored metric val_loss did not improve in the last 3 records. Best score: 0.412. Signaling Trainer to "
             "stop.", "Time limit reached. Elapsed time is 3:00:01. Signaling Trainer to stop."),
            "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/callbacks/timer.py"),
    GoodEnd(r"[Ww]orker group successfully finished|WorkerState\.SUCCEEDED|worker group finished \(SUCCEEDED\)",
            ("[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
             "[default] worker group finished (SUCCEEDED)"), _ELASTIC),
    GoodEnd(r"Process \d+ exits successfully",
            ("Process 4711 exits successfully.",),
            "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/launch.py"),
    GoodEnd(r"\[after training is done\]|exiting program (?:at|after) (?:iteration|\d)",
            ("[after training is done] datetime: 2026-11-21 10:12:09", "[exiting program after 500 iterations]",
             "[exiting program at iteration 500] datetime: 2026-11-21 10:12:09"), _MEGATRON),
    GoodEnd(r'"key": "run_stop".{0,390}"status": "success"',
            (':::MLLOG {"namespace": "", "time_ms": 1745907824256, "event_type": "INTERVAL_END", "key": "run_stop", '
             '"value": 0.92, "metadata": {"file": "/workspace/train.py", "lineno": 185, "status": "success"}}',),
            "https://github.com/mlcommons/logging/blob/master/mlperf_logging/compliance_checker/README.md"),
    GoodEnd(r"^RESULT,[A-Za-z0-9_.-]+,\S*,\d+,",
            ("RESULT,LLM_FINETUNING,,553,nvidia,2025-04-30 10:49:47 AM",),
            "https://github.com/mlcommons/training_results_v5.0", "wrapper"),
    GoodEnd(r"Final validation metrics",
            ("('Final validation metrics: {'val/test_score': 0.5}')",),
            "https://github.com/verl-project/verl/blob/main/verl/trainer/ppo/ray_trainer.py"),
    GoodEnd(r"End time of running main: \d",
            ("[INFO:swift] End time of running main: 2026-11-21 10:12:09.123456",),
            "https://github.com/modelscope/ms-swift/blob/main/swift/pipelines/base.py"),
    GoodEnd(r"^\d+ epochs completed in [\d.]+ hours",
            ("10 epochs completed in 0.006 hours.",), _YOLO),
    GoodEnd(r"Training stopped early as no improvement observed",
            ("EarlyStopping: Training stopped early as no improvement observed in last 100 epochs. Best results "
             "observed at epoch 41, best model saved as best.pt.",), _YOLO),
    GoodEnd(r"\bOverall training speed: \d+ iterations in",
            ("Overall training speed: 89998 iterations in 8:12:31 (0.3284 s / it)",),
            "https://github.com/facebookresearch/detectron2/blob/main/detectron2/engine/hooks.py"),
    GoodEnd(r"\*\*\* Best metric: [\d.]+ \(epoch \d+\)",
            ("*** Best metric: 78.42 (epoch 299)",),
            "https://github.com/huggingface/pytorch-image-models/blob/main/train.py"),
    GoodEnd(r"\bFinal remote sync successful",
            ("Final remote sync successful.",),
            "https://github.com/mlfoundations/open_clip/blob/main/src/open_clip_train/main.py"),
    GoodEnd(r"\bTraining time:? \d+(?:\.\d+)? ?(?:s|sec|m|min|h)|"
            r"\bTraining (?:time:?|took) (?:\d+ days?, )?\d+:\d\d",
            ("Training time 3:12:01", "Training time: 812.35s", "Training took 01:45:11.12"),
            "https://github.com/facebookresearch/mae/blob/main/main_pretrain.py"),
    GoodEnd(r"\bTraining completed after \d+ iterations at|\bTrial \S+ completed after \d+ iterations at",
            ("Training completed after 10 iterations at 2026-11-21 10:12:09. Total running time: 3min 2s",
             "Trial TorchTrainer_9d1c2_00000 completed after 10 iterations at 2026-11-21 10:12:09."), _RAY_TUNE),
    GoodEnd(r"\[State Transition\] \w+ -> FINISHED\b",
            ("[State Transition] RUNNING -> FINISHED.",),
            "https://github.com/ray-project/ray/blob/master/python/ray/train/v2/_internal/execution/controller/state.py"),
    # Its other last lines, the average bandwidth and "Collective test concluded", also follow wrong results.
    GoodEnd(r"^# Out of bounds values\s*: 0 OK",
            ("# Out of bounds values : 0 OK",),
            "https://github.com/NVIDIA/nccl-tests/blob/master/src/common.cu"),
    GoodEnd(r"\bmax training steps reached, stopping training",
            ("max training steps reached, stopping training, total_train_steps:  6",),
            "https://github.com/meta-llama/llama-cookbook/blob/main/src/llama_cookbook/utils/train_utils.py"),
    GoodEnd(r"\b(?:SFT|RL) trainer finished!",
            ("SFT trainer finished!", "RL trainer finished!"),
            "https://github.com/PrimeIntellect-ai/prime-rl"),
    GoodEnd(r"Job 'raysubmit_\w+' succeeded",
            ("Job 'raysubmit_abc' succeeded",), _RAY, "wrapper"),
    GoodEnd(r"\bJob finished \(status: SUCCEEDED\)|Managed job \d+ .{0,40}\bSUCCEEDED\b",
            ("✓ Job finished (status: SUCCEEDED).", "Managed job 6 (task: 1) SUCCEEDED. Cleaning up the cluster x."),
            _SKY, "wrapper"),
    GoodEnd(r"\b(?:PyTorch|MPI|TF|XGBoost|Paddle|Train|Ray|JAX)Job \S+ (?:is )?successfully completed",
            ("PyTorchJob llm is successfully completed.", "MPIJob default/x successfully completed."),
            _OPERATOR, "wrapper"),
    GoodEnd(r"^(?:job\.batch|pod|pytorchjob\.kubeflow\.org)/\S+ condition met",
            ("job.batch/train condition met",), "https://kubernetes.io/docs/reference/kubectl/generated/kubectl_wait/",
            "wrapper"),
    GoodEnd(r"\bphase: Succeeded\b|\bJob state: Succeeded\b|^\S+\s+\d+/\d+\s+Completed\s+0\s",
            ("  phase: Succeeded", "train-worker-0   0/1     Completed   0          2h"),
            "https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase", "wrapper"),
    GoodEnd(r"\bState\s*[:=]\s*COMPLETED\b|JobState=COMPLETED|^\d+(?:\.\w+)?\s.*\sCOMPLETED\s+0:0\s*$",
            ("State: COMPLETED (exit code 0)", "JobState=COMPLETED Reason=None",
             "4711.batch         batch                    lab         64  COMPLETED      0:0"),
            "https://slurm.schedmd.com/sacct.html", "wrapper"),
    GoodEnd(r"^Successfully completed\.$|\bExit_status ?[=:] ?0\b",
            ("Successfully completed.", "    Exit_status = 0"),
            "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0", "wrapper"),
    GoodEnd(r"Reporting training SUCCESS|Completed - Training job completed",
            ("2026-11-21 10:12:09,123 sagemaker-training-toolkit INFO     Reporting training SUCCESS",
             "2026-11-21 10:12:09 Completed - Training job completed"),
            "https://github.com/aws/sagemaker-training-toolkit", "wrapper"),
    GoodEnd(r"Waiting for W&B process to finish\.{3} .{0,12}\(success\)",
            ("wandb: Waiting for W&B process to finish... (success).",), "https://github.com/wandb/wandb", "wrapper"),
    GoodEnd(r"^(?:wandb: )?Program ended successfully\.",
            ("wandb: Program ended successfully.",), "https://github.com/wandb/wandb", "wrapper"),
    GoodEnd(r"Application shutdown complete|mgpu: finished",
            ("INFO:     Application shutdown complete.", "mgpu: finished"), "https://www.uvicorn.org/settings/"),
    GoodEnd(r"^=+ (?:\d+ \w+, )*\d+ passed\b(?!.*(?:failed|error))",
            ("============ 12 passed, 3 warnings in 4.20s ============",),
            "https://docs.pytest.org/en/stable/how-to/output.html"),
    GoodEnd(r"[Ff]inished .*(?:exit|return|status) ?code:?=? ?0\b|"
            r"(?:exited with|exit|return) (?:code|status):?=? ?0\b(?!x)|"
            r"\bExitCode[:=] ?0:0\b|\bcompleted \(0 failed\)",
            ("Job 4711 finished with exit code 0", "trainer-1 exited with code 0", "exit code: 0", "ExitCode=0:0"),
            "https://docs.docker.com/reference/cli/docker/compose/up/", "wrapper"),
    GoodEnd(r"\bSuccessfully installed ",
            ("Successfully installed torch-2.9.0",),
            "https://pip.pypa.io/en/stable/cli/pip_install/", "setup"),
)
# fmt: on
