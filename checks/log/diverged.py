"""Why did ranks wait for one that did not join? What the run was doing before the timeout shows the probable reason."""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.signature import Applies, Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import before_wait, counted, either, every, never, shown, since_last_step, waits

_GATHERS = ("GATHER", "REDUCE_SCATTER", "BROADCAST", "COALESCED")  # of ZeRO-3 and FSDP, also within an operation's name
_AT_END = 0.98  # share of a bar, or of an epoch
_FEW = 20  # a bar with fewer steps is at its end only at the last one
_STALL = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType={}, NumelIn=8, NumelOut=16, "
    "Timeout(ms)=600000) ran for 600014 milliseconds"
)
_TOGETHER = (
    "torch.distributed.all_reduce(stop)",
    "accelerator.set_trigger()  # on the rank that stops",
    "stopped = accelerator.check_trigger()  # on all ranks",
)


def _of_parameters(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the collective can be one in which ZeRO-3 or FSDP exchange parameters."""
    operations = [(one.operation or "").upper() for one in log.stalled]
    return not operations or any(part in one for one in operations for part in _GATHERS)


def _at_end_of_epoch(log: Log, raised: UncaughtException | None) -> bool:
    step = log.last_step
    if step is None or step.inner:
        return False
    if step.epoch is not None and step.epoch % 1 > _AT_END:
        return True
    if step.of is None or step.of < 2:
        return False
    return step.at >= step.of - 1 or (step.of >= _FEW and step.at / step.of >= _AT_END)


def _differ(log: Log, raised: UncaughtException | None) -> bool:
    """Whether ranks waited in different collectives."""
    groups = {one.group for one in log.stalled if one.group is not None}
    if len(groups) > 1 or any(one.several for one in log.stalled):
        return False  # each process group counts its own
    return len({(one.sequence, one.operation) for one in log.stalled}) > 1


_ZERO_THREE: Applies = every(shown("zero_three"), _of_parameters)
# fmt: off
_SAME_NUMBER = (
    Fix("Give every rank the same number of batches: drop the rest, filter and pack before the split, or pad.",
        ("DataLoader(..., drop_last=True)",
         "dataset = split_dataset_by_node(dataset.filter(keep), rank=rank, world_size=world_size)",
         "with accelerator.join_uneven_inputs([model], even_batches=False):", "mgpu doctor --script train.py")),
    Fix("Stop all ranks together when the first one has no more batches.", _TOGETHER),
)
_UNEVEN = ("A rank without batches starts no more collectives, and the others wait for it. That happens if each rank "
           "filters, packs or streams its own part of the data (IterableDataset, split_dataset_by_node), and with "
           "samplers that do not pad.")
_ON_ALL = Fix("Move collectives out of `if rank == 0`: barrier, wait_for_everyone, gather, reduce, and what calls them "
              "(saving sharded models, metrics, samplers).", ("mgpu doctor --script train.py",))
_WHICH = Fix("Let torch record which collective each rank was in.",
             ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 mgpu launch train.py",))
CASES = (
    Case(before_wait("rank_finished"),
         "a rank had finished its batches, and others waited for it{where} until the timeout: probably an unequal "
         "number of batches per rank", _UNEVEN, _SAME_NUMBER,
         "rank 0 step 2\nrank 1 done, 2 batches\n" + _STALL.format("ALLGATHER"),
         "https://github.com/huggingface/datasets/issues/6719"),
    Case(before_wait("stopped_early"),
         "ranks waited{where} until the timeout after an early stop: probably not all ranks stopped",
         "One rank decided to stop, from its own metric or as rank 0, and left the loop. The others continue, and wait "
         "for it in their next collective.",
         Fix("Decide on all ranks together: reduce the flag, or send rank 0's to all.", _TOGETHER),
         "Early stopping triggered after 12 epochs\n" + _STALL.format("ALLREDUCE"),
         "https://github.com/speechbrain/speechbrain/pull/2051"),
    Case(before_wait("batch_skipped"),
         "ranks waited{where} until the timeout after a batch was skipped: probably one rank skipped it alone",
         "A rank that skips the backward pass (NaN, out of memory, an empty batch) does not join the collectives of "
         "this step. The others wait for it, or the ranks are out of step from then on.",
         Fix("Skip on all ranks together, or run the backward pass with a loss of zero.",
             (*_TOGETHER, "loss = 0.0 * sum(p.sum() for p in model.parameters())")),
         "non-finite loss nan, skipping this step\n" + _STALL.format("ALLREDUCE"),
         "https://github.com/NVIDIA-NeMo/Automodel/pull/2468"),
    Case(every(before_wait("kernels_compiling"), since_last_step("kernels_compiling")),
         "ranks waited{where} until the timeout while kernels were compiled or tuned: probably one rank was still "
         "compiling",
         "A rank with a warm cache reaches its collectives long before one that compiles everything first "
         "(torch.compile, Triton's autotuning, CUDA extensions). A batch of a new shape recompiles on one rank only.",
         (Fix("Run one forward and backward pass on every rank, then a barrier, before the training begins, with a "
              "longer timeout.", ("torch.distributed.barrier()", "InitProcessGroupKwargs(timeout=timedelta(hours=1))")),
          Fix("Give all nodes a warm cache, and keep the shapes constant.",
              ("export TORCHINDUCTOR_CACHE_DIR=/shared/inductor TRITON_CACHE_DIR=/shared/triton",
               "torch.compile(model, dynamic=True)"))),
         "AUTOTUNE mm(32768x1280, 1280x5120)\n" + _STALL.format("ALLREDUCE"),
         "https://github.com/karpathy/nanochat/pull/722"),
    Case(every(_ZERO_THREE, either(shown("expert_model"), shown("thousands_of_parameters"))),
         "ranks waited{where} until the timeout in a mixture-of-experts model under ZeRO-3: probably they ran "
         "different experts",
         "ZeRO-3 gathers the parameters of an expert when it runs. Ranks whose tokens go to different experts gather "
         "different parameters, and wait for each other. The MoE block must be a leaf module, which ZeRO-3 gathers as "
         "a whole.",
         (Fix("Declare the MoE block a leaf module, with the class name of your model.",
              ("deepspeed.utils.set_z3_leaf_modules(model, [Qwen3MoeSparseMoeBlock])",
               "deepspeed_moe_layer_cls_names: Qwen3MoeSparseMoeBlock")),
          Fix("Use ZeRO-2 or FSDP, which do not gather single experts.", ("mgpu configure",)), _WHICH),
         "model: Qwen3-30B-A3B\nParameter Offload: Total persistent parameters: 6522880 in 3457 params\n"
         + _STALL.format("_ALLGATHER_BASE"), "https://github.com/deepspeedai/DeepSpeed/issues/7461"),
    Case(every(shown("multimodal_model"), never(counted(inner=True))),
         "ranks waited{where} until the timeout, in a model that also reads images: probably one rank's batch had none",
         "A rank with a text-only batch skips the vision encoder, and with it the collectives for its parameters "
         "(gathered by ZeRO-3 or FSDP) and gradients. The other ranks wait there. With ZeRO-3, a batch with images and "
         "video runs the encoder twice, with the same effect.",
         (Fix("Do not mix text-only samples into batches with images, or add a small blank image to them."),
          Fix("Use ZeRO-2, or with DDP allow unused parameters.",
              ("DistributedDataParallel(model, find_unused_parameters=True)",)),
          _WHICH),
         "Loading Qwen2.5-VL-7B-Instruct\n" + _STALL.format("_ALLGATHER_BASE"),
         "https://github.com/modelscope/ms-swift/issues/9655"),
    Case(every(shown("samples_packed"), either(counted(inner=True), _differ)),
         "ranks waited{where} until the timeout, with packed samples: probably only some ranks ran a collective of the "
         "packing sampler",
         "A sampler for packed samples exchanges the number of batches between the ranks when its length is read. If "
         "only rank 0 reads it (for an evaluation, a progress bar or a log line), the ranks are out of step.",
         (Fix("Turn packing off for the evaluation.", ("eval_sample_packing: false",)),
          Fix("Upgrade the trainer and transformers together.", ("pip install --upgrade axolotl transformers",)),
          _ON_ALL),
         " 25%|##| 103/412 [08:11<24:35,  4.77s/it]\n  0%|  | 0/21 [00:00<?, ?it/s]\n"
         "packing_efficiency_estimate: 0.93\n" + _STALL.format("BROADCAST"), "https://github.com/axolotl-ai-cloud/axolotl/pull/1974"),
    Case(counted(inner=True),
         "ranks waited{where} until the timeout during an evaluation or generation: probably only some ranks reached "
         "a collective there",
         "A metric, a callback or a barrier runs on rank 0 only, the ranks evaluate unequal numbers of batches, or "
         "they generate texts of unequal lengths, where ZeRO-3 and FSDP gather parameters for each token.",
         (_ON_ALL, Fix("ZeRO-3, FSDP: let all ranks generate the same number of tokens.",
                       ("model.generate(**inputs, synced_gpus=True)",)),
          Fix("To confirm it, train without the evaluation.", ("TrainingArguments(eval_strategy='no')",))),
         " 25%|##| 103/412 [08:11<24:35,  4.77s/it]\n  0%|  | 0/21 [00:00<?, ?it/s]\n" + _STALL.format("ALLREDUCE"),
         "https://github.com/huggingface/accelerate/issues/3861"),
    Case(_at_end_of_epoch,
         "ranks waited{where} until the timeout at the end of an epoch: probably an unequal number of batches per rank",
         _UNEVEN + " Otherwise, one rank alone saves, evaluates or logs there.", (*_SAME_NUMBER, _ON_ALL),
         "Epoch 3:  99%|###| 811/812 [03:11<00:00,  4.24it/s]\n" + _STALL.format("ALLREDUCE"),
         "https://github.com/pytorch/pytorch/issues/141069"),
    Case(every(_ZERO_THREE, either(_differ, before_wait("module_order_changed"))),
         "ranks waited{where} until the timeout under ZeRO-3: probably they ran different parts of the model",
         "ZeRO-3 gathers the parameters of each module when it runs. A module that some ranks skip (an expert, an "
         "encoder, an adapter, a branch that depends on the batch), or run more often, leaves the ranks in different "
         "collectives.",
         (Fix("Run the same modules on all ranks, or declare the block with the branch a leaf module.",
              ("deepspeed.utils.set_z3_leaf_modules(model, [Block])",)), _WHICH),
         "deepspeed: zero3.json\n" + _STALL.format("_ALLGATHER_BASE") + "\n"
         + _STALL.format("_ALLGATHER_BASE").replace("Rank 1", "Rank 2").replace("812", "815"),
         "https://deepspeed.readthedocs.io/en/latest/training.html"),
)
# fmt: on


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
    because_of=("log_rank_worked_alone", "log_timed_out_after_end"),
    role="secondary",
    kind="timeout",
    tags=("precise",),
    same_as=(
        "log_collective_timed_out",
        "log_gloo_timed_out",
        "log_desynchronised",
        "log_exchange_stalled",
    ),
)
def log_ranks_diverged(log: Log) -> Answer:
    """Ranks waited for another one until a timeout, and what the run did before shows the probable reason.

    Why: A rank that takes another path (unequal batches, an early stop, a skipped module) does not join the collectives
    of the others.

    Fix: Let all ranks run the same collectives, in the same order.
    """
    waited = waits(log)
    case = next((case for case in CASES if case.when(log, None)), None) if waited else None
    if case is None:
        return Ok("nothing shows why a rank did not join" if waited else "no rank waited until a timeout")
    first = waited[0]
    operation = next((one.operation for one in log.stalled if one.operation), None)
    return Problem(
        case.title.format(where=f" in {operation}" if operation else ""),
        case.why,
        case.fix if isinstance(case.fix, tuple) else (case.fix,),
        {"line": first.text, "last_step": log.last_step.text if log.last_step else None},
        place=Place(first.file, first.line),
    )
