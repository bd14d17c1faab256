"""What do a kernel's crash and an index out of range mean, by the layer that ran and the assertion that failed?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import either, every, line_of, reported, said, shown, within
from ._embedding_cases import BARE_ASSERT, BEFORE_LOSS, LOSS, OF_EMBEDDING, PADDING_IDS, TEXTS_NOT_CUT
from ._ids_without_rows import ID_WITHOUT_ROW
from ._nan_steps import SAMPLED_AFTER_NAN

_FLASH = r"^flash_attn(?:_interface|_2_cuda|_3)?\b"
_TRITON_KERNELS = (
    r"^(?:fla|mamba_ssm|causal_conv1d|megablocks|liger_kernel|sageattention|grouped_gemm|triton_kernels)/|"
    r"^(?:deepspeed/ops/triton_ops|unsloth/kernels|vllm/model_executor/layers/fused_moe)\b"
)
_OVERFLOW = (
    "Such kernels compute addresses with 32-bit numbers. Beyond 2**31 elements (tokens x heads x head dimension, or "
    "tokens x stride if a tensor is a view of a wider one) the address wraps, and the kernel reads elsewhere. Below "
    "that, a wrong list of sequence lengths (cu_seqlens) does the same."
)
_BLOCKING = Fix(
    "Confirm which kernel it is: the traceback then stops at it.", ("CUDA_LAUNCH_BLOCKING=1 mgpu launch train.py",)
)
_SHORTER = Fix(
    "Use fewer tokens per rank and step: shorter packs or sequences, a smaller batch, or sequence "
    "parallelism. If the crash disappears, it is the size."
)

# fmt: off
_DEEPEP_TESTS = Fix("Test the exchange alone.", ("python tests/test_internode.py  # of DeepEP",
                                                 "mgpu doctor --only infiniband"))
_NEW_NVSHMEM = (
    "DeepEP builds InfiniBand requests itself and depends on the internals of NVSHMEM, which 3.5.19 changed: the "
    "receivers' counters stay at -1 until the timeout. Only DeepEP with pull request 564 fits it.",
    (Fix("Install a DeepEP with that change, or an older NVSHMEM and rebuild DeepEP with it.",
         ("pip install 'nvidia-nvshmem-cu12<3.5.19'", "pip list | grep -iE 'nvshmem|deep.?ep'",
          "git -C DeepEP log --oneline --grep '#564'")), _DEEPEP_TESTS),
)
_DEEPEP_LINES = (
    "DeepEP timeout check failed: rank = 62, thread = 0, value = 0)\n[rank62]: Traceback (most recent call last):\n"
    '[rank62]:   File "/x/site-packages/deep_ep/buffer.py", line 584, in internode_dispatch\n'
    "[rank62]:     event = self.runtime.internode_dispatch(\n"
    "[rank62]: RuntimeError: DeepEP error: timeout (dispatch CPU)\n"
)
_DEEPEP = "https://github.com/deepseek-ai/DeepEP/issues/707"
NEW_NVSHMEM = Case(
    shown("new_nvshmem"),
    "DeepEP waited for tokens until its timeout, probably because it does not support the installed NVSHMEM",
    *_NEW_NVSHMEM, "deep_ep 1.2.1+17cfb81 nvidia-nvshmem-cu13 3.6.5\n" + _DEEPEP_LINES, _DEEPEP)
FAILED_IN_TRAINING = Case(
    every(shown("loss_logged"), line_of("log_cuda_start_failed", r"CUDA (?:error: )?unknown error")),
    "CUDA failed with an unknown error in the middle of the training: probably the GPU or its driver failed, or a "
    "kernel did",
    "The run had already trained, so CUDA had started. The driver reset or lost the GPU (an Xid, power, heat, a "
    "suspended machine, a display that uses the same GPU), or a kernel failed earlier and a later call reports it.",
    (Fix("Look for an Xid at that time, and at what the GPU reports now.",
         ("sudo dmesg -T | grep -i xid", "nvidia-smi -q -d ECC,TEMPERATURE,POWER", "mgpu doctor --only xid"),
         who="admin"),
     Fix("If there is none, find the kernel.",
         ("CUDA_LAUNCH_BLOCKING=1 mgpu launch train.py", "compute-sanitizer python train.py"))),
    "step: 5700 loss: 0.028\nRuntimeError: CUDA error: unknown error\n",
    "https://github.com/nv-tlabs/3dgrut/issues/191")
START_IN_FORK = Case(
    reported(r"what\(\): +CUDA error: initialization error"),
    "CUDA was probably used in a forked process, where it cannot start: a DataLoader worker, or map(num_proc=...)",
    "A process that is forked after its parent used CUDA cannot use it. It fails when the dataset, the collator or a "
    "destructor touches a GPU tensor, often after some epochs. Without any fork, the driver itself does not start.",
    (Fix("Keep GPU tensors out of the dataset and the collator, or start the workers with spawn.",
         ("DataLoader(..., num_workers=0)  # to confirm it", "DataLoader(..., multiprocessing_context='spawn')")),
     Fix("If a plain CUDA program fails too, check the driver.",
         ("mgpu doctor --deep --only cuda", "ls -l /dev/nvidia*"))),
    "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: initialization error\n",
    "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing")
CRASHES = (
    Case(every(within(_FLASH), shown("long_sequences")),
         "a FlashAttention kernel read outside of its tensors, probably a 32-bit overflow with this many tokens",
         _OVERFLOW,
         (_SHORTER, Fix("Pass contiguous tensors, also as the gradient, and upgrade flash-attn.",
                        ("out = out.contiguous()", "pip install --upgrade flash-attn --no-build-isolation")),
          Fix("Or use PyTorch's own attention.", ("from_pretrained(..., attn_implementation='sdpa')",)), _BLOCKING),
         "[rank1]: INFO packing: max_tokens_per_rank=425984 hidden=1536\n"
         "[rank1]: Traceback (most recent call last):\n"
         '[rank1]:   File "/ws/train.py", line 188, in step\n[rank1]:     loss.backward()\n'
         '[rank1]:   File "/x/site-packages/flash_attn/cute/interface.py", line 905, in _flash_attn_bwd\n'
         "[rank1]:     _flash_attn_bwd.compile_cache[compile_key](\n"
         "[rank1]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
         "https://github.com/Dao-AILab/flash-attention/issues/2611"),
    Case(every(within(_TRITON_KERNELS), shown("long_sequences")),
         "a Triton kernel read outside of its tensors, probably a 32-bit overflow with this many tokens",
         _OVERFLOW,
         (_SHORTER, Fix("Upgrade the package of the kernel: several have moved to 64-bit offsets.",
                        ("pip install --upgrade flash-linear-attention mamba-ssm liger-kernel",)), _BLOCKING),
         "INFO seq_len=262144 batch=1\nTraceback (most recent call last):\n"
         '  File "/x/train.py", line 40, in main\n    loss = model(x)\n'
         '  File "/x/site-packages/fla/ops/common/chunk_delta_h.py", line 300, in chunk_fwd\n    kernel[grid](\n'
         "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
         "https://github.com/fla-org/flash-linear-attention/issues/1080"),
    Case(within(_FLASH),
         "a FlashAttention kernel crashed, probably because of its inputs",
         "It does not check them on the GPU: cumulative sequence lengths (cu_seqlens) that do not start at 0, do not "
         "end at the number of tokens or are on another GPU, position ids that do not fit packed samples, or more than "
         "2**31 elements.",
         (Fix("Try PyTorch's own attention. If that works, look at cu_seqlens and position_ids.",
              ("from_pretrained(..., attn_implementation='sdpa')", "assert cu_seqlens[-1] == q.shape[0]")),
          Fix("In one process with several GPUs, make the tensor's GPU the current one.",
              ("torch.cuda.set_device(q.device)",)),
          Fix("Rebuild or upgrade flash-attn for this torch and GPU.",
              ("pip install --upgrade flash-attn --no-build-isolation",)), _BLOCKING),
         "Traceback (most recent call last):\n"
         '  File "/x/train.py", line 40, in main\n    loss = model(x)\n'
         '  File "/x/site-packages/flash_attn/flash_attn_interface.py", line 90, in _flash_attn_varlen_forward\n'
         "    out, softmax_lse = flash_attn_gpu.varlen_fwd(\n"
         "RuntimeError: CUDA error: an illegal memory access was encountered",
         "https://github.com/Dao-AILab/flash-attention/blob/main/flash_attn/flash_attn_interface.py"),
    Case(within(_TRITON_KERNELS),
         "a custom (Triton or CUDA) kernel crashed, probably because of sizes that it does not support",
         "The traceback stops in the package of the kernel. Its offsets overflow 32 bits with many tokens, one expert "
         "got no or too many tokens, a tensor is not contiguous, or the package was written for another Triton.",
         (Fix("Upgrade the package of the kernel, or turn that kernel off.",
              ("pip show triton torch", "export TRITON_CACHE_DIR=/tmp/triton-$USER")), _SHORTER, _BLOCKING),
         "Traceback (most recent call last):\n"
         '  File "/x/train.py", line 40, in main\n    loss = model(x)\n'
         '  File "/x/site-packages/megablocks/ops/padded_gather.py", line 30, in forward\n    kernels.padded_gather(\n'
         "RuntimeError: CUDA error: an illegal memory access was encountered",
         "https://github.com/databricks/megablocks/pull/185"),
)

_IDS = Fix("Compare the largest id with the rows of the embedding, on the CPU.",
           ("print(input_ids.max(), model.get_input_embeddings().weight.shape[0], len(tokenizer))",
            "model.resize_token_embeddings(len(tokenizer))"))
_ASSERTED = "/pytorch/aten/src/ATen/native/cuda/{}: block: [0,0,0], thread: [1,0,0] Assertion `{}` failed."


def _loss_was_nan(log: Log, raised: UncaughtException | None) -> bool:
    return any(one.signature == "log_loss_is_nan" and not one.survived for one in log.seen)


_AFTER_NAN = Case(
    every(BARE_ASSERT, _loss_was_nan),
    "an assertion on the GPU failed after the loss had become NaN: probably a consequence of the NaN",
    "NaN or infinity in coordinates, boxes, probabilities or positions becomes an index outside of its tensor, or "
    "breaks a check of a kernel. The log does not have the assertion's own text. The loss was NaN before, which "
    "usually comes from a learning rate that is too high, fp16, or a sample that makes it infinite (an empty target, a "
    "box without an area).",
    (Fix("Lower the learning rate, start with a warm-up, and clip the gradients.",
         ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",)),
     Fix("Stop at the first loss that is not finite, and look at its batch.",
         ("assert torch.isfinite(loss), batch", "torch.autograd.set_detect_anomaly(True)")),
     Fix("If the loss is finite with the same data, find the kernel.", ("CUDA_LAUNCH_BLOCKING=1 python train.py",))),
    "  1%|1         | 8/900 [00:04<07:46,  1.9it/s, box_loss=nan, total_loss=nan]\n"
    'Traceback (most recent call last):\n  File "/x/net.py", line 9, in step\n    mask = mask.repeat(4)\n'
    "RuntimeError: CUDA error: device-side assert triggered",
    "https://docs.pytorch.org/docs/stable/notes/amp_examples.html")
INDEXES = (
    SAMPLED_AFTER_NAN,
    Case(reported(r"probability tensor contains"),
         "sampling failed: the model's probabilities contain NaN or infinity",
         "The model computes NaN or infinity while it generates: fp16 overflows, a step with NaN or an incomplete copy "
         "to the inference engine damaged the weights, or a prompt is empty or padded on the right.",
         (Fix("Generate in bf16, and check the weights.",
              ("from_pretrained(..., torch_dtype=torch.bfloat16)",
               "assert all(p.isfinite().all() for p in model.parameters())")),
          Fix("Pad prompts on the left.", ("tokenizer.padding_side = 'left'",))),
         _ASSERTED.format("TensorCompare.cu:112: _assert_async_cuda_kernel",
                          "probability tensor contains either `inf`, `nan` or element < 0"),
         "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/TensorCompare.cu"),
    Case(reported(r"input_val >= zero && input_val <= one"),
         "binary cross entropy got a value that is not between 0 and 1, or NaN",
         "BCELoss expects probabilities, the output of a sigmoid. Logits, NaN, and targets other than 0 to 1 break "
         "that.",
         Fix("Pass the logits to the loss that applies the sigmoid itself.", ("torch.nn.BCEWithLogitsLoss()",)),
         _ASSERTED.format("Loss.cu:90: operator()", "input_val >= zero && input_val <= one"),
         "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/Loss.cu"),
    Case(reported(r"target_val >= zero && target_val <= one"),
         "a target of binary cross entropy is not between 0 and 1, or is NaN",
         "The kernel checks the labels, not the outputs of the model: -1 and 1 instead of 0 and 1, numbers of classes "
         "(2, 3, ...), masks of 0 to 255, normalized images, or missing values. The call that fails later only "
         "reports it.",
         (Fix("Look at the targets, before they go to the GPU.",
              ("print(target.min(), target.max(), target.isnan().sum())",)),
          Fix("Bring them to 0 to 1, in the way that fits what they are. Leave out samples with missing values.",
              ("target = (target + 1) / 2  # -1 and 1", "mask = mask / 255  # 0 to 255",
               "torch.nn.CrossEntropyLoss()  # numbers of classes: 0, 1, 2, ..."))),
         _ASSERTED.format("Loss.cu:95: operator()", "target_val >= zero && target_val <= one"),
         "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/Loss.cu"),
    Case(every(shown("sequence_beyond_model"),
               either(said(r"index out of range in self|device-side assert"), OF_EMBEDDING)),
         "probably a sequence is longer than the model allows: the tokenizer warned of it before",
         "The tokenizer cuts nothing by itself. Positions beyond max_position_embeddings have no row in the "
         "embedding of "
         "positions, which is an index out of range.",
         (Fix("Cut the text, or split it into parts.",
              ("tokenizer(text, truncation=True, max_length=model.config.max_position_embeddings)",)),
          Fix("If no sequence is longer, compare the ids with the embedding.",
              ("print(input_ids.max(), model.get_input_embeddings().weight.shape[0], len(tokenizer))",))),
         "Token indices sequence length is longer than the specified maximum sequence length for this model (900 > "
         "512). "
         "Running this sequence through the model will result in indexing errors\n"
         'Traceback (most recent call last):\n  File "/home/user/fit.py", line 3, in main\n    y = net(ids)\n'
         "IndexError: index out of range in self",
         "https://huggingface.co/docs/transformers/pad_truncation"),
    Case(every(OF_EMBEDDING, within(r"(?i)pos(?:ition)?_?(?:emb|enc)|wpe")),
         "a position is beyond the model's last one: the sequence is longer than its position embedding",
         "The embedding of positions has as many rows as the longest sequence that the model was made for "
         "(max_position_embeddings).",
         Fix("Cut the samples to that length.",
             ("tokenizer(text, truncation=True, max_length=model.config.max_position_embeddings)",)),
         "Traceback (most recent call last):\n"
         '  File "/x/model.py", line 40, in position_embedding\n    return self.wpe(pos)\n'
         '  File "/x/site-packages/torch/nn/functional.py", line 2546, in embedding\n'
         "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
         "IndexError: index out of range in self", "https://github.com/karpathy/nanoGPT/issues/470"),
    *PADDING_IDS,
    TEXTS_NOT_CUT,
    *ID_WITHOUT_ROW,
    Case(OF_EMBEDDING,
         "a token id or position has no row in the embedding: too large or negative",
         "The tokenizer has more tokens than the model (tokens added without resize_token_embeddings, another model's "
         "tokenizer), a placeholder such as -100 or an image token is among the ids, or the sequence is longer than "
         "the position embedding. If ids are right, their tensor was reused or moved to the wrong GPU before it "
         "arrived.",
         (_IDS, Fix("Check that no id is negative, and that the sequence is not too long.",
                    ("assert input_ids.min() >= 0",))),
         "Traceback (most recent call last):\n"
         '  File "/x/train.py", line 40, in forward\n    x = self.tok_emb(ids)\n'
         '  File "/x/site-packages/torch/nn/modules/sparse.py", line 192, in forward\n    return F.embedding(\n'
         '  File "/x/site-packages/torch/nn/functional.py", line 2546, in embedding\n'
         "    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)\n"
         "torch.AcceleratorError: CUDA error: device-side assert triggered",
         "https://github.com/huggingface/transformers/issues/28104"),
    _AFTER_NAN,
    Case(reported(r"index out of range in self"),
         "an index is outside of its table, on the CPU: probably a token id that the embedding has no row for",
         "This message is of the CPU's embedding and index_select. The tokenizer has more tokens than the model (an "
         "added pad token without resize_token_embeddings, a config whose vocab_size does not fit), a placeholder such "
         "as -100 is among the ids, or a sequence is longer than the position embedding.",
         (_IDS, Fix("Check that no id is negative, and that the sequence is not too long.",
                    ("assert input_ids.min() >= 0",))),
         "IndexError: index out of range in self\n",
         "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cpu/IndexKernel.cpp"),
    Case(line_of("log_index_out_of_range", r"Target 1 is out of bounds"),
         "the label 1 is out of range: the output that the loss gets has only one class",
         "cross_entropy accepts labels from 0 to classes - 1, so one class leaves only the label 0. The last layer was "
         "made with one output (num_labels=1, a head for a number or for binary cross-entropy), or the classes are not "
         "in dimension 1 of the output.",
         (Fix("Print the output's shape, and give the head one output per class.",
              ("print(logits.shape, labels.unique())", "from_pretrained(..., num_labels=len(set(labels)))")),
          Fix("If one output is meant, use the loss for it.",
              ("nn.BCEWithLogitsLoss()(logits.squeeze(-1), labels.float())  # two classes",
               "nn.MSELoss()(logits.squeeze(-1), labels.float())  # a number"))),
         "IndexError: Target 1 is out of bounds.\n",
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html"),
    Case(either(within(LOSS), reported(r"t(?:arget)? >= 0 && \w+ < n_classes|Target -?\d+ is out of bounds")),
         "a label is out of range: larger than the number of classes or the vocabulary, or negative",
         "The loss accepts labels from 0 to classes - 1, and the value of ignore_index (-100). Labels that start at 1, "
         "num_labels that is too small, or another value for ignored tokens (-1, the pad token) break that.",
         (Fix("Look at the labels, on the CPU.",
              ("print(labels.min(), labels.max(), logits.shape[-1])",
               "from_pretrained(..., num_labels=len(set(labels)))")),
          Fix("Ignored tokens must be -100, or the ignore_index of the loss.",
              ("torch.nn.CrossEntropyLoss(ignore_index=-1)",))),
         "Traceback (most recent call last):\n"
         '  File "/x/train.py", line 40, in main\n    loss = criterion(out, y)\n'
         '  File "/x/site-packages/torch/nn/functional.py", line 3029, in cross_entropy\n'
         "    return torch._C._nn.cross_entropy_loss(\n"
         "RuntimeError: CUDA error: device-side assert triggered",
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html"),
    BEFORE_LOSS,
    Case(BARE_ASSERT,
         "an assertion on the GPU failed, usually an index out of range: a label or token id exceeds its table",
         "The log does not have the assertion's own text, which names the kernel. Usually a class label is >= the "
         "number of classes, or a token id is >= the vocabulary size. Values that are NaN, probabilities below 0 and "
         "targets outside of 0 to 1 fail in the same way. Kernels run asynchronously: the failure is reported by a "
         "later call.",
         (Fix("Find the call: Python then stops at it.", ("CUDA_LAUNCH_BLOCKING=1 python train.py",)),
          Fix("Look for the line of the kernel in the log of that rank.",
              ("grep -n 'Assertion' LOG",)),
          Fix("Check labels and ids on the CPU.",
              ("print(labels.min(), labels.max(), input_ids.min(), input_ids.max())",))),
         'Traceback (most recent call last):\n  File "/x/net.py", line 9, in step\n    total = total + loss.item()\n'
         "RuntimeError: CUDA error: device-side assert triggered",
         "https://docs.pytorch.org/docs/stable/notes/cuda.html"),
)
# fmt: on
