"""Is the model divided among the GPUs in a way that transformers, trl and accelerate support?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_QUANTIZERS = "https://github.com/huggingface/transformers/tree/main/src/transformers/quantizers"
_GRPO = "https://github.com/huggingface/trl/blob/main/trl/trainer/grpo_trainer.py"
_WEIGHTS = "https://github.com/huggingface/trl/blob/main/trl/experimental/async_grpo/weight_transfer.py"
_MESH = "https://github.com/huggingface/transformers/blob/main/src/transformers/distributed/utils.py"
_EXPERTS = "https://github.com/huggingface/transformers/blob/main/src/transformers/distributed/expert_parallel.py"
_MERGE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/fsdp_utils.py"
# fmt: off
ROWS = (
    Row("log_device_map_has_cpu", "root", "script",
        r"(?:load|use) (?P<what>an? .{1,40} model|Flash Attention \d(?:\.0)?) with a "
        r"(?:device_map that contains a|model dispatched on) (?:CPU|disk)",
        ("ValueError: You are attempting to load an AWQ model with a device_map that contains a CPU or disk device. "
         "This is not supported. Please remove the CPU or disk device from the device_map.",
         "ValueError: You are attempting to use Flash Attention 2.0 with a model dispatched on CPU or disk. This is "
         "not supported."),
        "device_map puts a part of the model on the CPU or the disk, which does not work for {what}",
        "Either it names them, or it is 'auto' and the GPUs had too little free memory.",
        (Fix("Check who uses the GPUs, and give each rank its own.",
             ("nvidia-smi", "from_pretrained(..., device_map={{'': PartialState().local_process_index}})")),
         Fix("Or use more GPUs, or a smaller model.")),
        _QUANTIZERS,
        summary="device_map puts a part of the model on the CPU or the disk, which its kernels do not support."),
    Row("log_trainer_refuses_data_parallel", "root", "launcher",
        r"(?P<trainer>\w+) does not support `nn\.DataParallel`",
        ("ValueError: GRPOTrainer does not support `nn.DataParallel`, which `Trainer` uses when several GPUs are "
         "visible to a single process. Launch the script with `accelerate launch` or `torchrun`, or make a single GPU "
         "visible with `CUDA_VISIBLE_DEVICES`.",),
        "the script was started as one process on a node with several GPUs, which {trainer} refuses",
        "Without a launcher, Trainer copies the model to all GPUs that it sees.",
        (Fix("Start one process per GPU.",
             ("accelerate launch --num_processes GPUS train.py",)),
         Fix("Or show it one GPU.",
             ("CUDA_VISIBLE_DEVICES=0 python train.py",))),
        _GRPO,
        summary="A trainer that refuses nn.DataParallel was started without a launcher."),
    Row("log_mesh_is_not_world", "root", "launcher",
        r"(?P<what>The parallel mesh requires \d+ processes, but world_size is \d+|"
        r"\b(?:dp_size \* cp_size|mp_replicate_size \* mp_shard_size) must equal to world_size, got \d+ \* \d+ != \d+)",
        ("RuntimeError: The parallel mesh requires 8 processes, but world_size is 4.",
         "ValueError: dp_size * cp_size must equal to world_size, got 2 * 4 != 4.",
         "ValueError: mp_replicate_size * mp_shard_size must equal to world_size, got 1 * 2 != 8."),
        "the product of the parallel sizes differs from the number of ranks: {what}",
        "Each rank has exactly one place in the mesh. A size that is left out counts as 1.",
        Fix("Change the sizes, or start as many ranks as their product.",
            ("torchrun --nproc-per-node GPUS train.py",)),
        _MESH,
        summary="The product of the parallel sizes differs from the number of ranks."),
    Row("log_experts_do_not_divide", "root", "script",
        r"Cannot evenly shard (?P<experts>\d+) experts across (?P<ranks>\d+) expert-parallel ranks",
        ("ValueError: Cannot evenly shard 60 experts across 8 expert-parallel ranks.",),
        "the model's {experts} experts cannot be divided evenly among {ranks} ranks",
        "Expert parallelism gives each rank the same number of whole experts.",
        Fix("Use an ep_size that divides the number of experts.",
            ("grep -E 'num_(local_|routed_)?experts|n_routed_experts' MODEL/config.json",)),
        _EXPERTS,
        summary="The number of experts is not a multiple of the expert-parallel size."),
    Row("log_sharded_without_launcher", "root", "launcher",
        r"Tensor Parallel requires torch\.distributed to be initialized first|"
        r"Saving an FSDP-wrapped model requires torch\.distributed to be initialized",
        ("ValueError: Tensor Parallel requires torch.distributed to be initialized first.",
         "ValueError: Saving an FSDP-wrapped model requires torch.distributed to be initialized. Call "
         "save_pretrained from every rank."),
        "a model that is sharded over ranks is used in a process that belongs to no group of ranks",
        "The script was started with plain python, or the process group is not created yet, or already destroyed.",
        (Fix("Start it with a launcher.",
             ("torchrun --nproc-per-node GPUS train.py",)),
         Fix("Save on every rank, before destroy_process_group().")),
        _MESH),
    Row("log_merge_needs_sharded_folder", "root", "launcher",
        r"Tried to load from (?P<folder>\S+) but couldn't find a valid metadata file",
        ("ValueError: Tried to load from out/checkpoint-500 but couldn't find a valid metadata file. However, "
         "potential model and optimizer checkpoint directories exist.",),
        "accelerate merge-weights was given {folder}, which is not the folder of a sharded FSDP state",
        "It reads pytorch_model_fsdp_0, whose .metadata is written last, by rank 0. A FULL_STATE_DICT checkpoint needs "
        "no merging, and DeepSpeed has its own zero_to_fp32.py.",
        (Fix("Name the folder inside the checkpoint.",
             ("ls -a {folder}", "accelerate merge-weights {folder}/pytorch_model_fsdp_0 merged")),
         Fix("If .metadata is missing there, the save was cut short: use an older checkpoint.")),
        _MERGE,
        summary="accelerate merge-weights was given a folder that is not a sharded FSDP state."),
    Row("log_weight_transfer_not_set_up", "root", "network",
        r"Failed to set up the NCCL weight-transfer group with the vLLM server at (?P<server>\S+?)\.? Check",
        ("RuntimeError: Failed to set up the NCCL weight-transfer group with the vLLM server at "
         "http://10.0.0.5:8000. Check that the server was started with `VLLM_SERVER_DEV_MODE=1`",),
        "the trainer and the vLLM server at {server} could not create an NCCL group for the weights",
        "The server needs its development endpoints and a GPU that no rank of the trainer uses. Its own log has the "
        "failure of its side.",
        (Fix("Start the server so.",
             ("CUDA_VISIBLE_DEVICES=GPUS VLLM_SERVER_DEV_MODE=1 vllm serve MODEL "
              "--weight-transfer-config '{{\"backend\":\"nccl\"}}'",)),
         Fix("On two nodes, let NCCL use the interface that connects them.",
             ("export NCCL_SOCKET_IFNAME=INTERFACE", "mgpu doctor --only nccl"))),
        _WEIGHTS,
        summary="The trainer and the vLLM server could not create an NCCL group for the weights."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
