"""Do variables change what the launcher, accelerate or the ranks' CPU threads do?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, Container, InfiniBand, Network, Plan, Slurm, System, Visible
from mgpu.text import counted

from .._gpus import usable_count
from .._nccl_settings import environment_settings, node_count, setting_problem
from .._wording import parse_digits
from ._pytorch import TRUE

_TORCHRUN = "https://pytorch.org/docs/stable/elastic/run.html"
_ACCELERATE = "https://github.com/huggingface/accelerate (utils/launch.py)"
# A launcher sets these for its ranks; in a plain shell they are leftovers.
# fmt: off
_LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
)
# fmt: on
_RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # init_method env:// wants all four
# The PET_ variables that affect `accelerate launch`. accelerate sets the others itself, and all of them if the config
# spans several nodes (utils/launch.py prepare_multi_gpu_env; measured accelerate 1.15, torch 2.13).
_PET = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT")
# `accelerate launch` does not overwrite these, and the ranks obey them (accelerate 1.15: state.py, accelerator.py).
_ACCELERATE_DECIDES = {
    "ACCELERATE_USE_CPU": "trains on the CPU",
    "ACCELERATE_USE_FSDP": "wraps the model with FSDP",
    "ACCELERATE_USE_DEEPSPEED": "trains with DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "trains with Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "splits the ranks by PARALLELISM_CONFIG_*",
    "ACCELERATE_BYPASS_DEVICE_MAP": "ignores the device map of the model",
}
_ACCELERATE_VALUES = {
    "ACCELERATE_TORCH_DEVICE": "chooses the device",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "overrides the argument in the script",
}


def _under_launcher(env: Mapping[str, str]) -> bool:
    """Whether this shell is itself a rank, or a Slurm or MPI task."""
    by_torchrun = "TORCHELASTIC_RUN_ID" in env and "RANK" in env
    return by_torchrun or any(name in env for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/elastic/run.html#environment-variables")
def launcher_variables_left(env: Mapping[str, str], container: Container) -> Answer:
    """Variables that a launcher sets for its ranks are set in this shell.

    Why: with RANK, WORLD_SIZE and similar variables set, a plain `python train.py` waits for ranks that never
    start, or fails with "environment variable MASTER_ADDR expected" if only some are set. A launcher sets its own
    values for its ranks, so these are leftovers.

    Fix: unset them.
    """
    if _under_launcher(env):
        return Skip("a launcher started this shell")
    left = {name: env[name] for name in _LAUNCHER if name in env}
    if not left:
        return Ok("no rank variables are left over")
    if container.kind in ("kubernetes", "containerd") and all(name in left for name in _RENDEZVOUS):
        return Ok(f"set for this pod: rank {left['RANK']} of {left['WORLD_SIZE']}")
    missing = [name for name in _RENDEZVOUS if name not in left]
    half = f" {', '.join(missing)} missing: PyTorch would fail at once." if 0 < len(missing) < len(_RENDEZVOUS) else ""
    return Problem(
        ", ".join(f"{name}={value}" for name, value in left.items()),
        f"A script started without a launcher would wait for ranks that never start.{half}",
        Fix(commands=(shell("unset {:name}", list(left)),)),
        left,
        tuple(left),
    )


@check(Severity.ERROR, source=_TORCHRUN)
def torchrun_variables_left(
    env: Mapping[str, str], plan: Plan, slurm: Slurm, container: Container, network: Network
) -> Answer:
    """PET_* variables change the rendezvous endpoint or the number of nodes.

    Why: torchrun also reads each of its options from a PET_ variable, even inside accelerate: PET_NNODES=2 makes a
    single-node launch wait silently for a second node. Operators such as Kubeflow set them for their own launches.

    Fix: unset them.
    More: Unset those you did not set on purpose.
    """
    left = {name: env[name] for name in _PET if name in env}
    if not left:
        return Ok("no PET_ variable affects the launcher")
    nodes = node_count(plan, slurm)
    asked = left.get("PET_NNODES", str(nodes)).strip()
    operator = container.kind in ("kubernetes", "containerd") and {"PET_NNODES", "PET_NODE_RANK"} <= set(left)
    if operator and asked != str(nodes):
        return Skip(f"set by an operator for this pod: node {left['PET_NODE_RANK']} of {asked}")
    bad = {name: value for name, value in left.items() if _misleads(name, left, nodes, network)}
    if not bad:
        return Ok(f"{', '.join(f'{name}={value}' for name, value in left.items())}, as planned")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in bad.items()),
        "torchrun reads its options from these: a single-node launch would wait for other nodes or their address "
        "and time out."
        if nodes == 1
        else f"torchrun reads its options from these, and {nodes} nodes are planned.",
        Fix(commands=(shell("unset {:name}", list(bad)),)),
        bad,
        tuple(bad),
    )


def _misleads(name: str, left: Mapping[str, str], nodes: int, network: Network) -> bool:
    """Whether a PET_ variable prevents the rendezvous of a launch on `nodes` nodes."""
    value = left[name].strip()
    if name == "PET_NNODES":
        return value.rpartition(":")[2] != str(nodes)
    if nodes > 1:
        return False
    if name == "PET_NODE_RANK":
        return value != "0"
    if name == "PET_MASTER_ADDR":
        return not _is_here(value, network)
    dynamic = left.get("PET_RDZV_BACKEND", "static").strip() != "static"  # with "static" the endpoint does not count
    return name == "PET_RDZV_ENDPOINT" and dynamic and not _is_here(value.rpartition(":")[0] or value, network)


def _is_here(address: str, network: Network) -> bool:
    own = {network.hostname, *network.hostname_addresses, *(a for i in network.interfaces for a in i.addresses)}
    return address in own or address in ("", "localhost", "::1") or address.startswith("127.")


@check(Severity.WARNING, source=_ACCELERATE)
def accelerate_variables_left(env: Mapping[str, str], plan: Plan) -> Answer:
    """ACCELERATE_* variables in this shell override the config.

    Why: `accelerate launch` sets what the config contains and passes on every other ACCELERATE_ variable:
    ACCELERATE_USE_CPU=true trains on the CPU while the GPUs are idle, ACCELERATE_GRADIENT_ACCUMULATION_STEPS
    overrides the script's argument.

    Fix: unset it and set it in the config instead.
    """
    if _under_launcher(env):
        return Skip("a launcher started this shell")
    effects = {
        name: what for name, what in _ACCELERATE_DECIDES.items() if env.get(name, "").strip().lower() in TRUE | {"on"}
    } | {name: what for name, what in _ACCELERATE_VALUES.items() if env.get(name)}
    if plan.cpu_ranks is not None or plan.expect_gpus == 0:
        effects.pop("ACCELERATE_USE_CPU", None)
    if not effects:
        return Ok("no ACCELERATE_ variable overrides the config")
    found = [environment_settings(env)[name] for name in effects]
    return setting_problem(
        found,
        ", ".join(map(str, found)),
        "; ".join(f"{name} {what}" for name, what in effects.items()) + ", regardless of the config.",
    )


# --- threads ------------------------------------------------------------------------------------------------------


def _threads(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the variable that sets the number of CPU threads of a rank, and that number; None if neither is set."""
    found = [
        (number, name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if (number := parse_digits(env.get(name, "")))
    ]
    return (max(found)[1], max(found)[0]) if found else None


def _ranks_here(visible: Visible, plan: Plan) -> int:
    return plan.cpu_ranks or usable_count(visible)


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate (utils/environment.py)")
def omp_threads_not_a_number(env: Mapping[str, str]) -> Answer:
    """OMP_NUM_THREADS is not a whole number.

    Why: OpenMP allows a list ("4,2"), accelerate does not: it stops with ValueError before anything
    starts, also on an empty value.

    Fix: give one number, or unset it.
    """
    value = env.get("OMP_NUM_THREADS")
    if value is None:
        return Skip("OMP_NUM_THREADS is not set")
    if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value, re.ASCII):
        return Ok(f"OMP_NUM_THREADS={value}")
    return Problem(
        f"OMP_NUM_THREADS={value!r}",
        "accelerate reads it as one integer and stops with ValueError.",
        Fix(commands=("unset OMP_NUM_THREADS",)),
        {"OMP_NUM_THREADS": value},
        ("OMP_NUM_THREADS",),
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/threading_environment_variables.html")
def omp_threads_exceed_cpus(env: Mapping[str, str], system: System, visible: Visible, plan: Plan) -> Answer:
    """The ranks together have more compute threads than this job has CPUs.

    Why: the ranks compete with each other and with their data loaders for the CPUs.
    More: Each rank starts OMP_NUM_THREADS threads. With eight ranks and a value meant for one process,
    tokenization, augmentation and offloaded optimizers take many times as long.

    Fix: divide the CPUs among the ranks.
    """
    threads, ranks = _threads(env), _ranks_here(visible, plan)
    if threads is None:
        return Ok("torchrun gives each rank one thread")
    if not ranks:
        return Skip("the number of ranks on this machine is unknown")
    name, number = threads
    cpus = system.cpus_usable
    if number * ranks <= cpus or number == 1:
        return Ok(f"{name}={number} for {counted(ranks, 'rank')} and {counted(cpus, 'CPU')}")
    return Problem(
        f"{name}={number} for {counted(ranks, 'rank')}: {number * ranks} threads on {counted(cpus, 'CPU')}",
        fix=Fix(commands=(shell("export {:name}={:number}", name, max(1, cpus // ranks)),)),
        evidence={name: number, "ranks": ranks, "cpus": cpus},
        subjects=(name,),
    )


def _offloads(config: Config) -> bool:
    """Whether the optimizer runs on the CPU."""
    deepspeed, fsdp = config.values.get("deepspeed_config"), config.values.get("fsdp_config")
    by_deepspeed = isinstance(deepspeed, dict) and "cpu" in (
        deepspeed.get("offload_optimizer_device"),
        deepspeed.get("offload_param_device"),
    )
    by_fsdp = isinstance(fsdp, dict) and str(fsdp.get("fsdp_offload_params")).lower() == "true"
    return (config.distributed_type == "DEEPSPEED" and by_deepspeed) or (config.distributed_type == "FSDP" and by_fsdp)


def _threads_added_by_launch(config: Config) -> int:
    """Return the threads per rank that mgpu launch passes to the launcher; not passed for DeepSpeed runs."""
    flag, flags = "--num_cpu_threads_per_process", config.launch_flags
    if config.distributed_type == "DEEPSPEED" or flag not in flags:
        return 1
    return int(flags[flags.index(flag) + 1])


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate (commands/launch.py)")
def omp_threads_too_few(env: Mapping[str, str], system: System, config: Config) -> Answer:
    """The offloaded optimizer has one CPU thread per rank.

    Why: each rank's offloaded optimizer runs on a single core.
    More: torchrun and accelerate set OMP_NUM_THREADS to 1 if it is not set; not for a single rank with DeepSpeed.

    Fix: divide the CPUs among the ranks.
    """
    if not _offloads(config):
        return Skip("nothing is offloaded to the CPU")
    threads, ranks = _threads(env), config.ranks_here
    if not ranks:
        return Skip("the number of ranks is not known")
    if threads is None and ranks == 1 and config.distributed_type == "DEEPSPEED":
        return Ok("1 rank: neither accelerate nor torchrun limits its threads")  # measured accelerate 1.15 torch 2.13
    share = max(1, system.cpus_usable // ranks)
    given = threads[1] if threads else _threads_added_by_launch(config)
    if given > 1 or share < 2:
        return Ok(f"{counted(given, 'thread')} for each of {counted(ranks, 'rank')}")
    return Problem(
        f"1 thread for each of {counted(ranks, 'rank')} on {counted(system.cpus_usable, 'CPU')}",
        fix=Fix(commands=(shell("export OMP_NUM_THREADS={:number}", share),)),
        evidence={"OMP_NUM_THREADS": env.get("OMP_NUM_THREADS"), "ranks": ranks, "cpus": system.cpus_usable},
        subjects=("OMP_NUM_THREADS",),
    )


# --- libfabric ----------------------------------------------------------------------------------------------------


@check(Severity.WARNING, source="https://github.com/aws/aws-ofi-nccl")
def libfabric_provider_not_efa(env: Mapping[str, str], infiniband: InfiniBand, plan: Plan, slurm: Slurm) -> Answer:
    """FI_PROVIDER keeps libfabric from using the EFA adapters in a multi-node run.

    Why: NCCL's EFA plugin requests a provider from libfabric. With FI_PROVIDER=tcp or sockets it gets that one, and
    traffic between nodes runs at a tenth of the speed, or the plugin fails.

    Fix: select EFA.
    """
    value = env.get("FI_PROVIDER")
    if not value:
        return Ok("FI_PROVIDER is not set: the plugin chooses")
    adapters = [port.device for port in infiniband.ports if port.link_layer == "EFA"]
    if not adapters:
        return Skip("there is no EFA adapter")
    excludes = value.startswith("^")
    names = value.lower().removeprefix("^").replace(";", ",").split(",")
    if ("efa" in names) != excludes:
        return Ok(f"FI_PROVIDER={value} allows EFA")
    if node_count(plan, slurm) < 2:
        return Skip("single-node run")
    return Problem(
        f"FI_PROVIDER={value} excludes {counted(len(adapters), 'EFA adapter')}",
        "libfabric gives the plugin a provider other than EFA.",
        Fix(commands=("export FI_PROVIDER=efa",)),
        {"FI_PROVIDER": value, "adapters": " ".join(adapters)},
        ("FI_PROVIDER",),
    )
