"""What is the host's in a container, and what do a path, a column, a frame or two sizes of a message decide?

All logs are synthetic, in the form of the programs that write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

IMAGE = (
    "FATAL:   While checking container encryption: could not open image /work/ada/{name}: failed to retrieve path for "
    "/work/ada/{name}: lstat /work/ada/{name}: no such file or directory\n"
)
STEP_BEFORE = frames((SCRIPT, "main", "import yaml")) + "ModuleNotFoundError: No module named 'yaml'\n"
BANNER = "== CUDA ==\nContainer image Copyright (c) 2016-2023, NVIDIA CORPORATION & AFFILIATES. All rights reserved.\n"
NVCC = "FileNotFoundError: [Errno 2] No such file or directory: '{path}/bin/nvcc'\n"
MIXED = "/bin/bash: {folder}/libtinfo.so.6: no version information available (required by /bin/bash)\n"
CRASHED = "job.sh: line 55: 4711 Segmentation fault      (core dumped) {command} --nv image.sif python train.py\n"
MAIN = (SCRIPT, "main", "model = load(name)")
HUB_MKDIR = ("huggingface_hub/file_download.py", "hf_hub_download", "Path(lock_path).parent.mkdir(parents=True)")
PYTHONS_MKDIR = ("/opt/env/lib/python3.8/pathlib.py", "mkdir", "self._accessor.mkdir(self, mode)")
DENIED = "PermissionError: [Errno 13] Permission denied: '{path}'\n"
LABELS = (
    "ValueError: Unable to create tensor, you should probably activate truncation and/or padding with 'padding=True' "
    "'truncation=True' to have batched tensors with the same length. Perhaps your features (`labels` in this case) "
    "have excessive nesting (inputs type `list` where type `int` is expected).\n"
)
TO_TENSORS = ("transformers/tokenization_utils_base.py", "convert_to_tensors", "raise ValueError(")
UNEQUAL = (
    frames((SCRIPT, "main", "trainer.train()"), ("transformers/tokenization_utils_base.py", "as_tensor", "return x"))
    + "ValueError: expected sequence of length 175 at dim 1 (got 182)\n\n"
    "The above exception was the direct cause of the following exception:\n\n"
)
TRAIN = (SCRIPT, "main", "trainer.train()")
TRAINING_STEP = ("transformers/trainer.py", "_inner_training_loop", "loss = self.training_step(model, inputs)")
AMP = (SCRIPT, "training_step", "if self.use_amp:")
NO_AMP = "AttributeError: 'OwnTrainer' object has no attribute 'use_amp'\n"
POSITIONS = ("transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py", "get_rope_index", "position_ids[..., i] = x")
SIZES = (
    "RuntimeError: shape mismatch: value tensor of shape [3, {one}] cannot be broadcast to indexing result of shape "
    "[3, {other}]\n"
)
POOL = (
    'ValueError: Exception encountered when calling layer "pool_1" (type MaxPooling1D).\n\n'
    "Negative dimension size caused by subtracting 3 from 1 for '{{node pool_1/MaxPool}} = MaxPool[ksize=[1, 3, "
    "1, 1]](pool_1/ExpandDims)' with input shapes: [?,1,1,128].\n\nCall arguments received:\n  • inputs=x\n"
)
OTHER_CALL = POOL.replace("Negative dimension size caused by subtracting 3 from 1 for", "Blocks do not fit here for")
KERAS = [(SCRIPT, "main", "model = Sequential(["), ("keras/backend.py", "pool2d", "x = tf.nn.max_pool(")]
LOSSES = (
    "step 1 | loss: 5.47 | lr 0.3\nstep 2 | loss: 7.25 | lr 0.3\nstep 3 | loss: nan | lr 0.3\nstep 4 | loss: nan | x\n"
)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (IMAGE.format(name="None"), "the path of the container's image has an empty variable in it"),
        (IMAGE.format(name="${SIF}.sif"), "the path of the container's image has an empty variable in it"),
        (STEP_BEFORE + IMAGE.format(name="None"), "the path of the container's image has an empty variable in it, and"),
        (STEP_BEFORE + IMAGE.format(name="None.sif"), "Apptainer cannot open the container's image"),
        ("slurmstepd: error: pyxis: failed to import docker image\n", "the container's image was not found, or could"),
        (BANNER + NVCC.format(path="/cvmfs/soft/easybuild/software/cudacore/12.6.2"), "CUDA_HOME has a path of the ho"),
        (BANNER + NVCC.format(path="/usr/local/cuda"), "an extension must be compiled, but there is no CUDA toolkit"),
        (NVCC.format(path="/cvmfs/soft/easybuild/software/cudacore/12.6.2"), "an extension must be compiled"),
        (
            MIXED.format(folder="/cvmfs/soft/usr/lib64") + CRASHED.format(command="apptainer run"),
            "the container crashed",
        ),
        (MIXED.format(folder="/home/ada/miniconda3/lib") + CRASHED.format(command="apptainer run"), "a rank crashed"),
        (
            MIXED.format(folder="/cvmfs/soft/usr/lib64") + CRASHED.format(command="env"),
            "a rank crashed inside compiled",
        ),
        (CRASHED.format(command="apptainer exec"), "a rank crashed inside compiled code"),
    ],
)
def test_what_is_of_the_host(text: str, title: str, tmp_path: Path) -> None:
    found = explained(tmp_path, text)[1]
    assert found.startswith(title), found


@pytest.mark.parametrize(
    ("text", "title", "words"),
    [
        (frames(MAIN, HUB_MKDIR, PYTHONS_MKDIR) + DENIED.format(path="/data/hf/.locks/models--org--one"),
         "this user cannot create /data/hf/.locks/models--org--one in a shared cache", "export HF_HOME="),
        (frames((SCRIPT, "main", "os.makedirs(out)")) + DENIED.format(path="/data/out/run1"),
         "this user cannot create the folder /data/out/run1", "namei -l /data/out/run1"),
        (frames((SCRIPT, "main", "open(path)")) + DENIED.format(path="/data/hf/models--org--one/a.json"),
         "this user cannot open /data/hf", "ls -ld"),
        (UNEQUAL + frames(TRAIN, ("transformers/data/data_collator.py", "torch_call", "x"), TO_TENSORS) + LABELS,
         "the collator pads input_ids, but not the column labels", "DataCollatorForSeq2Seq(tokenizer, padding=True)"),
        (UNEQUAL + frames(TRAIN, ("transformers/data/data_collator.py", "__call__", "x"), TO_TENSORS) + LABELS,
         "the lists of the column labels in one batch have different", "DataCollatorForLanguageModeling"),
        (frames(TRAIN, TRAINING_STEP, AMP) + NO_AMP,
         "the script's OwnTrainer reads self.use_amp, which transformers' Trainer has in", "super().training_step"),
        (frames(TRAIN, AMP) + NO_AMP, "OwnTrainer has no attribute use_amp", "grep"),
        (frames((SCRIPT, "main", "x = model.vae")) + "AttributeError: 'DataParallel' object has no attribute 'vae'\n",
         "the script reads .vae from the wrapper DataParallel", "model.module.vae"),
        (frames((SCRIPT, "main", "train()"), POSITIONS) + SIZES.format(one=131361, other=131072),
         "a sample was probably cut within its image or video tokens: 131,072 tokens", "cutoff_len"),
        (frames((SCRIPT, "main", "train()"), POSITIONS) + SIZES.format(one=131072, other=131361),
         "values of the shape", "print(x[mask].shape"),
        (frames((SCRIPT, "main", "y[mask] = x")) + SIZES.format(one=131361, other=131072), "values of the sh", "print"),
        (frames(*KERAS) + POOL, "the input of the layer pool_1 has the length 1, and its window", "model.summary"),
        (frames(*KERAS) + OTHER_CALL, "fit.py:7 in main raised ValueError: Blocks do not fit here", "call path"),
        ("COMPUTE_DTYPE: torch.float32 (auto-detected)\n" + LOSSES,
         "the loss is NaN, or exactly 0 with NaN gradients, in fp32", "Skip batches without a label"),
        ("Pillow: [14:21:55] idx=0 failed - ValueError: unknown file extension: .tmp\n",
         "Pillow cannot save an image: the ending of its name (.tmp)", "format='PNG'"),
    ],
)  # fmt: skip
def test_what_the_message_and_its_frames_decide(text: str, title: str, words: str, tmp_path: Path) -> None:
    _, found, why = explained(tmp_path, text)
    assert found.startswith(title) and words in why, (found, why)


def test_advice_that_does_not_apply_is_left_out(tmp_path: Path) -> None:
    wrapped = frames((SCRIPT, "main", "x = model.vae"))
    lacks = "AttributeError: 'DataParallel' object has no attribute 'vae'\n"
    assert "unwrap_model" not in explained(tmp_path, wrapped + lacks)[2]
    assert "unwrap_model" in explained(tmp_path, wrapped + lacks.replace("'Data", "'DistributedData"))[2]
    assert "bf16" not in explained(tmp_path, "mixed_precision: no\n" + LOSSES)[2]
    assert "bfloat16" in explained(tmp_path, "mixed_precision: fp16\n" + LOSSES)[2]
    noted = (
        "2021-11-21 05:34:00.350345: W tensorflow/core/common_runtime/gpu/gpu_device.cc:1850] Cannot dlopen a file\n"
    )
    assert "Cannot dlopen" not in explained(tmp_path, noted + frames(*KERAS) + POOL)[2]
    assert "arguments received" not in explained(tmp_path, frames(*KERAS) + OTHER_CALL)[2]
