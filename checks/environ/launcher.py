"""Do variables steer the launcher, accelerate or the threads of the ranks?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, Container, InfiniBand, Network, Plan, Slurm, System, Visible
from mgpu.text import counted

from .._gpus import usable_count
from .._nccl_settings import nodes_of, of_environment, setting_problem
from .._wording import whole
from ._pytorch import TRUE

_TORCHRUN = "https://pytorch.org/docs/stable/elastic/run.html"
_ACCELERATE = "https://github.com/huggingface/accelerate (utils/launch.py)"
# Set by a launcher for its ranks; in a plain shell they are leftovers.
# fmt: off
_LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
)
# fmt: on
_RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # init_method env:// wants all four
# Of the PET_ variables only these reach a launch by accelerate, which sets the others itself, or all of them where the
# config spans several machines (utils/launch.py prepare_multi_gpu_env; measured accelerate 1.15, torch 2.13).
_PET = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT")
# What `accelerate launch` does not overwrite, and the ranks obey (accelerate 1.15: state.py, accelerator.py).
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
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "wins over the argument in the script",
}


def _under_launcher(env: Mapping[str, str]) -> bool:
    """Whether this shell itself is a rank, or a task of Slurm or MPI."""
    by_torchrun = "TORCHELASTIC_RUN_ID" in env and "RANK" in env
    return by_torchrun or any(name in env for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/elastic/run.html#environment-variables")
def launcher_variables_left(env: Mapping[str, str], container: Container) -> Answer:
    """Variables that a launcher sets for its ranks are set in this shell.

    Why: RANK, WORLD_SIZE and their like make a plain `python train.py` wait for ranks that never come, and end it with
    "environment variable MASTER_ADDR expected" where only some of them are set. The launcher sets them anew for its own
    ranks, so they are leftovers of an earlier experiment.

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
    half = f" {', '.join(missing)} missing: PyTorch would stop at once." if 0 < len(missing) < len(_RENDEZVOUS) else ""
    return Problem(
        ", ".join(f"{name}={value}" for name, value in left.items()),
        f"A script started without a launcher would wait for ranks that never come.{half}",
        Fix(commands=(shell("unset {:name}", list(left)),)),
        left,
        tuple(left),
    )


@check(Severity.ERROR, source=_TORCHRUN)
def torchrun_variables_left(
    env: Mapping[str, str], plan: Plan, slurm: Slurm, container: Container, network: Network
) -> Answer:
    """PET_* variables change where the launcher waits, and for how many machines.

    Why: torchrun reads each of its options from a PET_ variable as well, also inside accelerate: PET_NNODES=2 makes a
    one-machine launch wait for a second machine, without a word. Operators such as Kubeflow set them, for the launch
    they have in mind.

    Fix: unset them.
    More: Unset those you did not mean.
    """
    left = {name: env[name] for name in _PET if name in env}
    if not left:
        return Ok("no PET_ variable steers the launcher")
    nodes = nodes_of(plan, slurm)
    asked = left.get("PET_NNODES", str(nodes)).strip()
    operator = container.kind in ("kubernetes", "containerd") and {"PET_NNODES", "PET_NODE_RANK"} <= set(left)
    if operator and asked != str(nodes):
        return Skip(f"an operator has set them for this pod: machine {left['PET_NODE_RANK']} of {asked}")
    bad = {name: value for name, value in left.items() if _misleads(name, left, nodes, network)}
    if not bad:
        return Ok(f"{', '.join(f'{name}={value}' for name, value in left.items())}, as planned")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in bad.items()),
        "torchrun takes its options from these: a launch on this machine alone would wait for others, or for their "
        "address, and end in a timeout."
        if nodes == 1
        else f"torchrun takes its options from these, and {nodes} machines are planned.",
        Fix(commands=(shell("unset {:name}", list(bad)),)),
        bad,
        tuple(bad),
    )


def _misleads(name: str, left: Mapping[str, str], nodes: int, network: Network) -> bool:
    """Whether a PET_ variable keeps a launch of so many machines from coming together."""
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
    """ACCELERATE_* variables of this shell decide how the ranks train.

    Why: `accelerate launch` writes what the config says, and passes on what it does not write: ACCELERATE_USE_CPU=true
    trains on the CPU next to idle GPUs, ACCELERATE_GRADIENT_ACCUMULATION_STEPS wins over the script's own argument.

    Fix: unset it; say it in the config.
    """
    if _under_launcher(env):
        return Skip("a launcher started this shell")
    effects = {
        name: what for name, what in _ACCELERATE_DECIDES.items() if env.get(name, "").strip().lower() in TRUE | {"on"}
    } | {name: what for name, what in _ACCELERATE_VALUES.items() if env.get(name)}
    if plan.cpu_ranks is not None or plan.expect_gpus == 0:
        effects.pop("ACCELERATE_USE_CPU", None)
    if not effects:
        return Ok("no ACCELERATE_ variable decides over the config")
    found = [of_environment(env)[name] for name in effects]
    return setting_problem(
        found,
        ", ".join(map(str, found)),
        "; ".join(f"{name} {what}" for name, what in effects.items()) + ", whatever the config says.",
    )


# --- threads ------------------------------------------------------------------------------------------------------


def _threads(env: Mapping[str, str]) -> tuple[str, int] | None:
    """The variable that decides how many threads a rank computes with on the CPU, and its number."""
    found = [(number, name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if (number := whole(env.get(name, "")))]
    return (max(found)[1], max(found)[0]) if found else None


def _ranks_here(visible: Visible, plan: Plan) -> int:
    return plan.cpu_ranks or usable_count(visible)


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate (utils/environment.py)")
def omp_threads_not_a_number(env: Mapping[str, str]) -> Answer:
    """OMP_NUM_THREADS is not a whole number.

    Why: OpenMP allows a list ("4,2"), accelerate does not: it stops with ValueError before anything starts, on an empty
    text as well.

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
    """The ranks together have more computing threads than this job has CPUs.

    Why: the ranks take the CPUs from each other, and from their data loaders.
    More: Each rank takes OMP_NUM_THREADS threads for itself. With eight ranks and a number meant for one process they
    push each other from the CPUs: tokenizing, augmentation and offloaded optimizers take many times as long.

    Fix: divide the CPUs among the ranks.
    """
    threads, ranks = _threads(env), _ranks_here(visible, plan)
    if threads is None:
        return Ok("torchrun gives each rank one thread")
    if not ranks:
        return Skip("how many ranks will run here is not known")
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
    """Whether the optimizer computes on the CPU."""
    deepspeed, fsdp = config.values.get("deepspeed_config"), config.values.get("fsdp_config")
    by_deepspeed = isinstance(deepspeed, dict) and "cpu" in (
        deepspeed.get("offload_optimizer_device"),
        deepspeed.get("offload_param_device"),
    )
    by_fsdp = isinstance(fsdp, dict) and str(fsdp.get("fsdp_offload_params")).lower() == "true"
    return (config.distributed_type == "DEEPSPEED" and by_deepspeed) or (config.distributed_type == "FSDP" and by_fsdp)


def _added(config: Config) -> int:
    """The threads of each rank that mgpu launch adds to the launcher's line; DeepSpeed runs are not told."""
    flag, flags = "--num_cpu_threads_per_process", config.launch_flags
    if config.distributed_type == "DEEPSPEED" or flag not in flags:
        return 1
    return int(flags[flags.index(flag) + 1])


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate (commands/launch.py)")
def omp_threads_too_few(env: Mapping[str, str], system: System, config: Config) -> Answer:
    """The optimizer is to compute on the CPU, with one thread for each rank.

    Why: the offloaded optimizer runs on one core of each rank.
    More: torchrun and accelerate set OMP_NUM_THREADS to 1 where it is not set.

    Fix: divide the CPUs among the ranks.
    """
    if not _offloads(config):
        return Skip("nothing is offloaded to the CPU")
    threads, ranks = _threads(env), config.ranks_here or 1
    share = max(1, system.cpus_usable // ranks)
    given = threads[1] if threads else _added(config)
    if given > 1 or share < 2:
        return Ok(f"{counted(given, 'thread')} for each of {counted(ranks, 'rank')}")
    return Problem(
        f"1 thread for each of {counted(ranks, 'rank')}, and {counted(system.cpus_usable, 'CPU')}",
        fix=Fix(commands=(shell("export OMP_NUM_THREADS={:number}", share),)),
        evidence={"OMP_NUM_THREADS": env.get("OMP_NUM_THREADS"), "ranks": ranks, "cpus": system.cpus_usable},
        subjects=("OMP_NUM_THREADS",),
    )


# --- libfabric ----------------------------------------------------------------------------------------------------


@check(Severity.WARNING, source="https://github.com/aws/aws-ofi-nccl")
def libfabric_provider_not_efa(env: Mapping[str, str], infiniband: InfiniBand, plan: Plan, slurm: Slurm) -> Answer:
    """In a run over several machines, FI_PROVIDER keeps libfabric from the EFA adapters.

    Why: the plugin that takes NCCL over EFA asks libfabric for a provider. With FI_PROVIDER set to tcp or sockets it
    gets that one, and the machines talk at a tenth of the speed, or the plugin gives up.

    Fix: name EFA.
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
    if nodes_of(plan, slurm) < 2:
        return Skip("the run stays on one machine")
    return Problem(
        f"FI_PROVIDER={value}, and {counted(len(adapters), 'EFA adapter')}",
        "libfabric offers the plugin another provider than EFA.",
        Fix(commands=("export FI_PROVIDER=efa",)),
        {"FI_PROVIDER": value, "adapters": " ".join(adapters)},
        ("FI_PROVIDER",),
    )
