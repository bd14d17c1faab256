"""Did DeepSpeed refuse what the script calls, or the precision, the buffers or the data that it was given?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_ENGINE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py"
_CONFIG = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py"
_SWAPPER = (
    "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/swap_tensor/partitioned_param_swapper.py"
)
_MOE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/moe/sharded_moe.py"
_VALIDATE = "mgpu configure --validate accelerate.yaml"

# fmt: off
ROWS = (
    Row("log_deepspeed_two_precisions", "root", "script",
        r"bfloat16 and fp16 (?:modes )?cannot be (?:simultaneously enabled|enabled at once)",
        ("AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled",
         "RuntimeError: bfloat16 and fp16 cannot be enabled at once"),
        "DeepSpeed's config turns on fp16 and bf16 at the same time",
        "One of them comes from the DeepSpeed file (\"fp16\": {{\"enabled\": true}}), the other from --bf16 or "
        "mixed_precision, which adds its own section.",
        Fix("Write \"auto\" for both in the DeepSpeed file, and choose the precision in one place.",
            ('"fp16": {{"enabled": "auto"}}, "bf16": {{"enabled": "auto"}}',
             "accelerate launch --mixed_precision bf16 ...", _VALIDATE)), _CONFIG),
    Row("log_deepspeed_precision_unsupported", "root", "script",
        r"Type (?:fp16|bf16) is not supported on your device|"
        r"Cannot use (?:fp16|bf16|torch\.\w+|\{{low_precision_dtype\}}) without accelerator|"
        r"Accelerator is not detected, cannot perform low precision",
        ("ValueError: Type fp16 is not supported on your device.",
         "SystemError: Accelerator is not detected, cannot perform low precision training (e.g., fp16, bf16)."),
        "DeepSpeed finds no device here that computes in the precision of the config",
        "bf16 needs Ampere or newer, fp16 a GPU. The usual reason is that torch sees no GPU in this process, and "
        "DeepSpeed falls back to the CPU.",
        Fix("See which device DeepSpeed uses, and why.",
            ("python -c 'from deepspeed.accelerator import get_accelerator as a; print(a()._name, "
             "a().device_count())'", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES $DS_ACCELERATOR",
             "mgpu doctor --only driver,visibility,container")), _ENGINE),
    Row("log_deepspeed_scheduler_unknown", "root", "script", r"DeepSpeed does not recognize LR scheduler (?P<name>\S+)",
        ("AssertionError: DeepSpeed does not recognize LR scheduler CosineAnnealingLR",),
        "DeepSpeed has no learning rate scheduler named {name}",
        "The section \"scheduler\" of its config accepts DeepSpeed's own: LRRangeTest, OneCycle, WarmupLR, "
        "WarmupDecayLR, WarmupCosineLR. torch's schedulers are passed as objects.",
        Fix("Remove the section, and pass torch's scheduler, or use DeepSpeed's name.",
            ("deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config)",
             "TrainingArguments(lr_scheduler_type='cosine')")),
        "https://www.deepspeed.ai/docs/config-json/#scheduler-parameters",
        summary="DeepSpeed has no learning rate scheduler of that name."),
    Row("log_deepspeed_engine_without_optimizer", "root", "script",
        r"must provide optimizer during init in order to use (?P<what>\w+)",
        ("AssertionError: must provide optimizer during init in order to use backward",),
        "engine.{what}() was called, but DeepSpeed was initialized without an optimizer",
        "The config has no \"optimizer\" section and initialize() got none, as for inference, or the wrong engine is "
        "trained (a reference model).",
        Fix("Pass an optimizer, or add the section.",
            ("deepspeed.initialize(model=model, optimizer=optimizer, config=config)",
             '"optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}')), _ENGINE,
        summary="DeepSpeed was initialized without an optimizer, and its engine is trained."),
    Row("log_tensor_parallel_data_differs", "root", "script", r"Data inconsistency within the TP group",
        ("AssertionError: Data inconsistency within the TP group. Please check the Dataloader implementation to ensure "
         "consistency.",),
        "the ranks of one tensor-parallel group got different batches",
        "Ranks that share the layers must see the same data. The sampler divides the data over all ranks instead of "
        "the data-parallel ones, or each rank shuffles with its own seed.",
        Fix("Divide the data by the data-parallel rank.",
            ("DistributedSampler(data, num_replicas=dp_size, rank=dp_rank, seed=42)",
             "DataLoaderConfiguration(dispatch_batches=True)")), _ENGINE),
    Row("log_swap_buffers_too_small", "root", "script",
        r"Not enough (?:swap in )?buffers \d+ for swapping|More elements \d+ than buffer size \d+|"
        r"No swap buffers to allocate for fp16 param|Swapper ran out of swap buffers",
        ("AssertionError: More elements 544997376 than buffer size 100,000,000",
         "AssertionError: Not enough buffers 3 for swapping 5",
         "AssertionError: PipelinedOptimizerSwapper ran out of swap buffers, try increasing 'buffer_count'"),
        "DeepSpeed's buffers for NVMe offload are smaller than a parameter, or too few",
        "buffer_size counts elements, and must hold the largest parameter of the model (usually the embedding: "
        "vocabulary x hidden size). buffer_count is how many parameters move at once.",
        Fix("Raise both in offload_param (or offload_optimizer).",
            ('"offload_param": {{"device": "nvme", "buffer_size": 1e9, "buffer_count": 8}}',
             "print(max(getattr(p, 'ds_numel', p.numel()) for p in model.parameters()))")), _SWAPPER),
    Row("log_client_state_reserved", "root", "script",
        r"client_state contains reserved checkpoint keys?: (?P<keys>[^.]+)",
        ("KeyError: 'client_state contains reserved checkpoint keys: optimizer. These keys are used internally by "
         "DeepSpeed checkpoint metadata.'",),
        "the script saves extra state under names that DeepSpeed itself uses: {keys}",
        "client_state is stored in the same dictionary as DeepSpeed's own entries.",
        Fix("Rename them.", ("engine.save_checkpoint(FOLDER, client_state={{'my_step': step}})",)), _ENGINE,
        summary="The script saves extra state under names that DeepSpeed itself uses."),
    Row("log_experts_get_too_few_tokens", "root", "script",
        r"No\. of tokens \(batch-size\) should be greater than min_capacity",
        ("AssertionError: No. of tokens (batch-size) should be greater than min_capacity. Either set min_capacity to 0 "
         "or increase your batch size.",),
        "a batch has fewer tokens than the minimum capacity of the experts",
        "DeepSpeed's MoE layer reserves min_capacity tokens per expert. The last batch of a rank, an evaluation with "
        "one sample, or many ranks with small batches have fewer.",
        Fix("Set min_capacity to 0, or drop small batches.",
            ("deepspeed.moe.layer.MoE(..., min_capacity=0)", "DataLoader(..., drop_last=True)")), _MOE),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
