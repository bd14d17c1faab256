"""How is a run on several nodes started by hand? One command per node, with mgpu, accelerate or torchrun.

Everything that differs between the nodes is on the command line, so all of them share one file.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from mgpu.wizard.proposal_types import Proposal

Tool = Literal["accelerate", "torchrun", "mgpu"]
DEFAULT_PLACES: Final = ("accelerate.yaml", "./accelerate.yaml")  # where every command looks
_SCRIPT: Final = ("train.py",)
_SHOWN: Final = 4  # commands listed in a comment; with more nodes, the first two and the last
_THREADS: Final = "--num_cpu_threads_per_process"
# The variable that accelerate's launcher sets for the ranks for a key (utils/launch.py, 1.15). torchrun does not read
# the file, so these variables are set in front of it.
_VARIABLES: Final[Mapping[str, str]] = {
    "mixed_precision": "ACCELERATE_MIXED_PRECISION",
    "fp8_config.fp8_backend": "ACCELERATE_FP8_BACKEND",
    "dynamo_config.dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    "fsdp_config.fsdp_version": "FSDP_VERSION",
    "fsdp_config.fsdp_reshard_after_forward": "FSDP_RESHARD_AFTER_FORWARD",
    "fsdp_config.fsdp_auto_wrap_policy": "FSDP_AUTO_WRAP_POLICY",
    "fsdp_config.fsdp_state_dict_type": "FSDP_STATE_DICT_TYPE",
    "fsdp_config.fsdp_cpu_ram_efficient_loading": "FSDP_CPU_RAM_EFFICIENT_LOADING",
    "fsdp_config.fsdp_offload_params": "FSDP_OFFLOAD_PARAMS",
    "deepspeed_config.zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "deepspeed_config.gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "deepspeed_config.offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "deepspeed_config.offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "deepspeed_config.zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "deepspeed_config.zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
}
_SWITCHES: Final = {"FSDP": "ACCELERATE_USE_FSDP", "DEEPSPEED": "ACCELERATE_USE_DEEPSPEED"}


def first_and_last(proposal: Proposal, config: str = "accelerate.yaml", tool: Tool = "accelerate") -> tuple[str, ...]:
    """Return the command for each node, node 0 first; with many nodes only the first two and the last.

    Short enough for a comment or a screen.
    """
    ranks = list(range(proposal.nodes))
    if proposal.nodes > _SHOWN:
        ranks = [0, 1, proposal.nodes - 1]
    lines = [command(proposal, rank, config=config, tool=tool) for rank in ranks]
    return (*lines[:-1], "...", lines[-1]) if len(ranks) < proposal.nodes else tuple(lines)


def command(
    proposal: Proposal,
    node: int,
    script: Sequence[str] = _SCRIPT,
    config: str = "accelerate.yaml",
    tool: Tool = "accelerate",
) -> str:
    """Return the command for one node, ready to paste into a shell."""
    if tool == "mgpu":  # it adds the variables and flags itself
        place = [] if config in DEFAULT_PLACES else ["-c", config]
        return shlex.join(["mgpu", "launch", *place, "--node-rank", str(node), *script])
    words = _accelerate(proposal, node, config) if tool == "accelerate" else _torchrun(proposal, node)
    added = {"ACCELERATE_USE_CPU": "true"} if proposal.cpu else {}
    if tool == "torchrun":
        added |= environment(proposal)
    front = [f"{name}={shlex.quote(value)}" for name, value in added.items()]
    return " ".join([*front, shlex.join([*words, *script])])


def _accelerate(proposal: Proposal, node: int, config: str) -> list[str]:
    words = ["accelerate", "launch", "--config_file", config]
    if proposal.nodes > 1:
        words += ["--machine_rank", str(node)]
        if proposal.gpu_ids is not None:
            words += ["--gpu_ids", proposal.gpu_ids]
    return [*words, *proposal.launch_flags]


def _torchrun(proposal: Proposal, node: int) -> list[str]:
    values = proposal.values
    words = ["torchrun", "--nnodes", str(proposal.nodes), "--nproc-per-node", str(proposal.ranks_here)]
    if proposal.nodes == 1:
        return [*words, "--standalone"]
    address, port = str(values.get("main_process_ip") or "ADDRESS"), str(values.get("main_process_port"))
    return [*words, "--node-rank", str(node), "--master-addr", address, "--master-port", port]


def environment(proposal: Proposal) -> dict[str, str]:
    """Return the environment variables that accelerate's launcher would set for the file's settings."""
    values, found = proposal.values, {}
    if proposal.gpu_ids is not None:
        found["CUDA_VISIBLE_DEVICES"] = proposal.gpu_ids
    if _THREADS in proposal.launch_flags:
        found["OMP_NUM_THREADS"] = proposal.launch_flags[proposal.launch_flags.index(_THREADS) + 1]
    if "--enable_cpu_affinity" in proposal.launch_flags:
        found["ACCELERATE_CPU_AFFINITY"] = "1"
    if switch := _SWITCHES.get(str(values.get("distributed_type"))):
        found[switch] = "true"
    for key, name in _VARIABLES.items():
        value: Any = values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    if "ACCELERATE_DYNAMO_BACKEND" in found:  # the launcher's default; without it, torch decides
        found["ACCELERATE_DYNAMO_USE_DYNAMIC"] = "False"
    return found
