"""Known faults of the releases of torch, triton, transformers, accelerate and DeepSpeed, each with its source.

First and last bad releases were read in the repositories' tags, the patch releases' notes, or the packages themselves.
"""

from __future__ import annotations

from ._faults import Fault

_TORCH = "https://github.com/pytorch/pytorch"
_ACCELERATE = "https://github.com/huggingface/accelerate"
_TRANSFORMERS = "https://github.com/huggingface/transformers"
_DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed"
_NO_CUDNN = "Call torch.backends.cuda.enable_cudnn_sdp(False) in the script."
_HOPPER, _B200, _RTX_50 = ((9, 0),), ((10, 0),), ((12, 0), (12, 1))

# fmt: off
TORCH_FAULTS: tuple[Fault, ...] = (
    Fault(
        "torch", ">=2.5,<2.5.1",
        "Attention chooses cuDNN by default: NaN gradients, or \"No execution plans support the graph\".",
        "2.5.1", f"{_TORCH}/pull/138587", "2026-11", compute=_HOPPER,
        use="scaled_dot_product_attention", stopgap=_NO_CUDNN,
    ),
    # The issue is closed, and no release note names it: 2.11 to 2.13 are proven, 2.14 and 2.15 are not.
    Fault(
        "torch", ">=2.11,<2.14",
        "The gradient of attention is NaN if a mask is passed and the length is 64 above a multiple of 128 (cuDNN).",
        None, f"{_TORCH}/issues/196678", "2026-11", compute=_HOPPER,
        use="scaled_dot_product_attention with a mask", stopgap=_NO_CUDNN,
    ),
    Fault(
        "torch", ">=2.11,<2.14",
        "Attention with fewer than 8 key-value heads computes wrong values (cuDNN).",
        None, f"{_TORCH}/issues/193893", "2026-11", compute=_B200,
        use="scaled_dot_product_attention, few KV heads", stopgap=_NO_CUDNN,
    ),
    Fault(
        "torch", ">=2.12,<2.12.1",
        "Compiled convolutions access memory illegally in the backward pass (triton 3.7.0).",
        "2.12.1", f"{_TORCH}/releases/tag/v2.12.1", "2026-11", compute=_B200, use="torch.compile with convolutions",
    ),
    Fault(
        "torch", ">=2.2,<2.2.1",
        "DTensor and device meshes have silent errors (type conversion, HSDP with tensor parallelism).",
        "2.2.1", f"{_TORCH}/releases/tag/v2.2.1", "2026-11", use="DTensor, tensor parallelism or HSDP",
    ),
    Fault(
        "torch", ">=2.0,<2.0.1",
        "Loading a sharded optimizer state fails on several nodes.",
        "2.0.1", f"{_TORCH}/releases/tag/v2.0.1", "2026-11", several_nodes=True, use="sharded FSDP checkpoints",
    ),
    Fault(
        "triton", "<3.3",
        "torch.compile fails: this triton does not know sm_120.",
        "3.3.0", "https://github.com/triton-lang/triton/issues/5950", "2026-11", compute=_RTX_50,
    ),
)

TRAINING_FAULTS: tuple[Fault, ...] = (
    Fault(
        "deepspeed", ">=0.17.6,<0.18.3",
        "ZeRO stage 2 silently computes wrong gradients. Their norm is a fraction of the correct one.",
        "0.18.3", f"{_DEEPSPEED}/issues/7718", "2026-11", feature="zero_2",
    ),
    Fault(
        "deepspeed", ">=0.18.5,<0.18.7",
        "Every backward pass counts all parameters in each gradient hook: training is several times slower.",
        "0.18.7", f"{_DEEPSPEED}/pull/7886", "2026-11", feature="zero_1_or_2",
    ),
    Fault(
        "deepspeed", ">=0.18.3,<0.18.4",
        "DeepSpeed divides the gradients by the accumulation steps even if accelerate or the Trainer already did.",
        "0.18.4", f"{_DEEPSPEED}/pull/7724", "2026-11", feature="deepspeed_accumulate",
    ),
    Fault(
        "deepspeed", ">=0.17.6,<0.18.2",
        "The fp16 optimizer of stage 0 returns before its update, so outputs and loss are wrong.",
        "0.18.2", f"{_DEEPSPEED}/pull/7645", "2026-11", feature="zero_0_fp16",
    ),
    Fault(
        "deepspeed", ">=0.13.2,<0.16.6",
        "Gradient clipping turns an infinite norm into NaN, and the weights with it.",
        "0.16.6", f"{_DEEPSPEED}/pull/7171", "2026-11", feature="zero_clip",
    ),
    Fault(
        "deepspeed", "<0.18.4",
        "Waiting for NVMe holds Python's lock, so training sometimes hangs in aio_handle.wait().",
        "0.18.4", f"{_DEEPSPEED}/pull/7727", "2026-11", feature="zero_nvme",
    ),
    Fault(
        "accelerate", ">=1.13,<1.14",
        "FSDP2 no longer keeps the weights in fp32 under mixed precision: a model loaded in bf16 trains with bf16 "
        "master weights and loses small updates.",
        "1.14.0", f"{_ACCELERATE}/issues/3979", "2026-11", feature="fsdp2_mixed",
    ),
    Fault(
        "accelerate", ">=1.6,<1.14",
        "FSDP2 without fsdp_transformer_layer_cls_to_wrap wraps no layer: the whole model is gathered at once, and "
        "sharding saves little memory.",
        "1.14.0", f"{_ACCELERATE}/pull/3999", "2026-11", feature="fsdp2_no_classes",
    ),
    Fault(
        "accelerate", ">=1.6,<1.13",
        "FSDP2 with cpu_ram_efficient_loading and parameter offload fails at the first step: weights are on the GPU.",
        "1.13.0", f"{_ACCELERATE}/pull/3910", "2026-11", feature="fsdp2_ram_efficient_offload",
    ),
    Fault(
        "accelerate", ">=1.6,<1.11",
        "FSDP2 reduces gradients at every micro-batch of an accumulated step: slower, with the same result.",
        "1.11.0", f"{_ACCELERATE}/pull/3762", "2026-11", feature="fsdp2_accumulate",
    ),
    Fault(
        "accelerate", ">=1.6,<1.7",
        "FSDP2 with cpu_ram_efficient_loading puts the whole model on every GPU while it loads.",
        "1.7.0", f"{_ACCELERATE}/pull/3482", "2026-11", feature="fsdp2_ram_efficient",
    ),
    Fault(
        "accelerate", ">=0.34,<1.0",
        "get_state_dict() returns flattened weights under FSDP, which cannot be loaded.",
        "1.0.0", f"{_ACCELERATE}/pull/3096", "2026-11", feature="fsdp",
    ),
    Fault(
        "transformers", ">=4.46,<4.49",
        "The Trainer and DeepSpeed both divide the loss by the accumulation steps: gradients are too small.",
        "4.49.0", f"{_TRANSFORMERS}/pull/35808", "2026-11", feature="deepspeed_accumulate",
    ),
    Fault(
        "transformers", ">=4.46,<4.47",
        "The Trainer mixes dtypes under FSDP: \"expected dtype float for `end` but got dtype c10::BFloat16\".",
        "4.47.0", f"{_TRANSFORMERS}/issues/34702", "2026-11", feature="fsdp",
    ),
    Fault(
        "transformers", ">=4.36,<4.36.2",
        "Saving checkpoints in a multi-node run fails.",
        "4.36.2", f"{_TRANSFORMERS}/pull/28078", "2026-11", feature="several_nodes",
    ),
    Fault(
        "transformers", "<4.46",
        "With gradient accumulation, the Trainer averages micro-batches of different lengths as if they were equal.",
        "4.46.0", f"{_TRANSFORMERS}/pull/34191", "2026-11", use="Trainer with gradient accumulation",
    ),
    Fault(
        "transformers", "==4.55.1",
        "Models with FlashAttention 2 fail to import prepare_fa_kwargs_from_position_ids.",
        "4.55.2", f"{_TRANSFORMERS}/releases/tag/v4.55.2", "2026-11", use="FlashAttention 2",
    ),
)
# fmt: on
