"""Does the script work with a launcher?"""

from __future__ import annotations

import re

from mgpu.check import WHY, Answer, Fix, Ok, Place, Severity, check, commands
from mgpu.command_line import python, shell
from mgpu.several_ranks import TORCH_SPAWNS
from mgpu.snapshot import Script, ScriptCall, ScriptOption, ScriptSet
from mgpu.text import counted

from .. import _shadowing as shadowing
from .._variables import CUDA_GUIDE, misspelt_cuda_name
from ._calls import DDP, TORCHRUN, argument, calls, finding, reached_calls, text_of
from ._data_parallel import data_parallel_call
from ._measures import only_measures
from ._rank_paths import backward_calls, is_repeated, unknown_kind
from ._slurm_ranks import has_one_gpu_per_task, knows_other_ranks, rank_from_mpi, rank_from_slurm

_SPAWN = "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods"
_MIGRATION = "https://huggingface.co/docs/accelerate/en/basic_tutorials/migration"
# Libraries that torch, accelerate and transformers do not import: a script with a file of this name means its own.
_ONLY_SCRIPTS_IMPORT = frozenset({"evaluate", "trl", "diffusers", "lightning"})
_MPIRUN = "https://docs.open-mpi.org/en/main/launching-apps/quickstart.html"
_SRUN = "https://slurm.schedmd.com/srun.html"
_TESTS = re.compile(r"(?:.*\.)?_?test")
_ENVIRON = re.compile(r"os\.environ\['(\w+)'\]")
_LOCAL_RANK = ("--local_rank", "--local-rank")
_WITH_DATA_PARALLEL = (
    "A launcher starts the script once per GPU. Each of these processes would use all GPUs with DataParallel and train "
    "its own model on all the data. All ranks write the same files."
)
_DEFINES = re.compile(r"\.(?:add_argument|DEFINE_\w+)$")  # an option
# By the sign of the default, a number or a name.
_OF_ABSL = {
    "": "flags.DEFINE_integer('local_rank', int(os.environ.get('LOCAL_RANK', {:id})), '')",
    "-": "flags.DEFINE_integer('local_rank', int(os.environ.get('LOCAL_RANK', -{:id})), '')",
}
_OF_ARGPARSE = {
    "": "parser.add_argument('{:option}', type=int, default=int(os.environ.get('LOCAL_RANK', {:id})))",
    "-": "parser.add_argument('{:option}', type=int, default=int(os.environ.get('LOCAL_RANK', -{:id})))",
}


@check(Severity.WARNING, source=shadowing.SYS_PATH)
def script_folder_hides_module(script: Script) -> Answer:
    """A file or package next to the script has the name of a module that training imports.

    Why: The script's folder comes first in the sys.path of every rank, with or without a launcher. A `random.py` or
    `accelerate/` in it is imported instead of the real module, even by torch: "partially initialized module", "has no
    attribute".

    Fix: Rename it, or move the script to another folder.
    """
    package = script.module.partition(".")[0]
    if package and any(name.partition(".")[0] == package for name in script.imports):
        return Ok(f"it imports its own package {package}, so its folder does not come first in sys.path")
    hidden = {name: path for name, path in script.shadowed.items() if name not in _ONLY_SCRIPTS_IMPORT}
    if not hidden:
        return Ok("no file or folder next to the script hides a module that libraries import")
    return shadowing.shadowing_problem(
        hidden,
        "Every rank imports it instead of the module, because the script's folder comes first in sys.path. Modules "
        "that torch imports are affected too.",
        Place(script.path, None),
    )


@check(Severity.WARNING, source=_MIGRATION, because_of=("script_uses_data_parallel",), tags=("portable",))
def script_trains_alone(script: Script) -> Answer:
    """The script trains, but nothing in it makes the ranks train together.

    Why: A launcher starts the script once per GPU. Without accelerate or DDP, every rank trains its own model on all
    the data. That takes as long as on one GPU, and all ranks write the same files.

    Fix: Use accelerate: create an Accelerator, prepare everything with it, and replace this line.
    More: Or wrap the model with DDP.
    """
    if script.speaks is None:
        return unknown_kind(script)
    if script.speaks != "nothing":
        return Ok(f"the script uses {script.speaks}")
    used = [call for call in backward_calls(script) if is_repeated(script, call) and not _TESTS.match(call.function)]
    if not used:
        return Ok("no visible training loop")
    if all(only_measures(script, call) for call in used):
        return Ok("it measures memory or speed, and keeps nothing that it trains")
    used.sort(key=lambda call: (not _is_followed_by_step(script, call), any("scale" in one for one in call.within)))
    backward = used[0]
    parallel = data_parallel_call(script) is not None
    alone = shell("python {:path}", script.path) if parallel else shell("mgpu launch --gpus 1 {:path}", script.path)
    return finding(
        script,
        backward,
        "every rank would train the same thing: no Accelerator, no DDP",
        (
            *((_port(script),) if script.has_own_backward else ()),  # no module is changed
            commands(
                "accelerator = Accelerator()",
                "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
                python("accelerator.backward({:dotted})", backward.on) or "accelerator.backward(loss)",
            ),
            Fix("Or start one process, which uses all GPUs." if parallel else "Or train on one GPU.", (alone,)),
        ),
        why=_WITH_DATA_PARALLEL if parallel else WHY,
    )


def _port(script: Script) -> Fix:
    return Fix(
        "Let mgpu change the script. It shows the diff, with a reason for each change, before it writes.",
        (shell("mgpu doctor --script {:path} --fix", script.path),),
    )


def _is_followed_by_step(script: Script, backward: ScriptCall) -> bool:
    """Whether an optimizer steps in the same function and loop: the gradients are not only looked at."""
    place = (backward.file, backward.function, backward.loops)
    return any(
        call.name.endswith(".step") and (call.file, call.function, call.loops[: len(backward.loops)]) == place
        for call in script.calls
    )


@check(Severity.WARNING, source=TORCHRUN, tags=("leads_to_usage_error", "leads_to_gpu_error"))
def script_expects_local_rank_argument(script: Script) -> Answer:
    """The script expects --local_rank, which torchrun and accelerate do not pass.

    Why: Only the old torch.distributed.launch passed it. Now every rank gets the default, and all of them use the same
    GPU or train alone.

    Fix: Read it from the environment, where every launcher sets it, and keep the default for a start without one.
    """
    options = [option for option in script.options if set(option.names) & set(_LOCAL_RANK)]
    if not options or script.speaks != "ddp":
        return Ok("the rank is not expected as an argument")
    option = options[0]
    values = [option.default or "", *(one.value for one in script.sets)]
    values += [value for call in script.calls for value in (*call.arguments, *call.keywords.values(), call.name)]
    given = [one for one in script.sets if one.target.endswith("local_rank") and not one.value.endswith(".local_rank")]
    read_elsewhere = any("LOCAL_RANK" in value for value in values)
    if given or (read_elsewhere and not _wraps_on_default(script, option)):
        return Ok("LOCAL_RANK is read from the environment")
    if any(target.endswith("local_rank") for call in script.calls for target in call.targets):
        return Ok("the local rank comes from elsewhere")
    used = [c for c in script.calls if any("local_rank" in value for value in (*c.arguments, *c.keywords.values()))]
    if not [call for call in used if call.name != option.names[0] and not _DEFINES.search(call.name)]:
        return Ok("the argument is not used")
    name = next(name for name in option.names if name in _LOCAL_RANK)
    return finding(
        script,
        option,
        f"{name} is not passed by torchrun or accelerate",
        commands(_option_with_default(script, option, name)),
        why="Only the old torch.distributed.launch passed it. Now every rank gets the default"
        f"{_default_text(option.default)}: all of them use the same GPU, or train alone.",
    )


def _wraps_on_default(script: Script, option: ScriptOption) -> bool:
    """Whether the model is wrapped on the GPU of this option, whose default is none, and nothing else sets it."""
    if not re.fullmatch(r"-\d+", option.default or "") or any("local_rank" in call.keywords for call in script.calls):
        return False
    devices = (call.keywords.get("device_ids", "") for call in reached_calls(script, re.escape(DDP)))
    return any(re.fullmatch(r"\[\s*[\w.()]*\.local_rank\s*\]", value) for value in devices)


def _option_with_default(script: Script, option: ScriptOption, name: str) -> str:
    """Return the option's line, which reads LOCAL_RANK and keeps the default for a start without a launcher.

    The script may test for that default: -1, None.
    """
    default = option.default or "None"
    of_absl = "DEFINE_" in (option.action or "")
    if default == "None" and not of_absl:  # argparse converts a text
        return python("parser.add_argument('{:option}', type=int, default=os.environ.get('LOCAL_RANK'))", name)
    sign, kept = ("-", default[1:]) if re.fullmatch(r"-\d+", default) else ("", default)
    kept = kept if re.fullmatch(r"[\w.]+", kept) and kept != "None" else "0"
    return python(_OF_ABSL[sign], kept) if of_absl else python(_OF_ARGPARSE[sign], name, kept)


def _default_text(value: str | None) -> str:
    return f" ({value})" if value else ""


@check(Severity.INFO, source=_SRUN, tags=("start_command",))
def script_rank_from_slurm(script: Script) -> Answer:
    """The script reads its rank from SLURM_PROCID, so only srun can start its ranks.

    Why: srun sets SLURM_PROCID for each task. torchrun and accelerate start all ranks of a node from one task, or
    without Slurm: SLURM_PROCID is then missing (KeyError), or the same for all of them.

    Fix: Start one task for each GPU with srun.
    More: Or read RANK, WORLD_SIZE and LOCAL_RANK, which every launcher sets.
    """
    spot = rank_from_slurm(script)
    if spot is None or script.spawns or knows_other_ranks(script):
        return Ok("the rank does not come from Slurm alone")
    line = shell("srun --ntasks-per-node=2 --gpus-per-node=2 python {:path}", script.path)
    if has_one_gpu_per_task(script):
        line = shell("srun --ntasks=2 --gpus-per-task=1 python {:path}", script.path)
    fix = Fix("Start one task for each GPU with srun, in a job with these GPUs.", (line,))
    return finding(script, spot, "the rank comes from SLURM_PROCID: only srun can start the ranks", fix)


@check(Severity.INFO, source=_MPIRUN, tags=("start_command",))
def script_rank_from_mpi(script: Script) -> Answer:
    """The script reads its rank from a variable of MPI, so only mpirun can start its ranks.

    Why: mpirun sets the variable for each process. torchrun and accelerate do not: the variable is then missing
    (KeyError), or each rank takes the default and trains alone as rank 0 of 1.

    Fix: Start one process for each GPU with mpirun.
    More: Or read RANK, WORLD_SIZE and LOCAL_RANK, which every launcher sets.
    """
    found = rank_from_mpi(script)
    if found is None or script.spawns or knows_other_ranks(script):
        return Ok("the rank does not come from MPI alone")
    spot, name = found
    fix = Fix(
        "Start one process for each GPU with mpirun, in a job with these GPUs.",
        (shell("mpirun -np 2 python {:path}", script.path),),
    )
    return finding(script, spot, f"the rank comes from {name}: only mpirun can start the ranks", fix)


@check(Severity.WARNING, source=CUDA_GUIDE)
def script_variable_misspelt(script: Script) -> Answer:
    """The script sets an environment variable whose name looks misspelled.

    Why: CUDA, NCCL and the launchers silently ignore unknown names, so the setting has no effect.

    Fix: Correct the name.
    """
    spots: list[tuple[ScriptSet | ScriptCall, str]] = [
        (one, found[1]) for one in script.sets if (found := _ENVIRON.fullmatch(one.target))
    ]
    setting = reached_calls(script, r"os\.(?:environ\.setdefault|putenv)")
    spots += [(call, name) for call in setting if (name := text_of(argument(call, 0, "key")))]
    wrong = [(spot, name, meant) for spot, name in spots if spot.reached and (meant := misspelt_cuda_name(name))]
    if not wrong:
        return Ok(f"{counted(len(spots), 'environment variable')} set, none with a misspelled name")
    spot, name, meant = wrong[0]
    return finding(
        script,
        spot,
        f"{name} has no effect: the name of the variable is {meant}",
        Fix(f"Rename it to {meant}."),
        [other for other, _, _ in wrong[1:]],
    )


@check(Severity.WARNING, source=_SPAWN)
def script_spawns_without_main_guard(script: Script) -> Answer:
    """The script spawns processes at its top level.

    Why: A spawned process imports the script again, and would also spawn processes. Python stops with "An attempt has
    been made to start a new process before the current process has finished its bootstrapping phase".

    Fix: Put it under a guard.
    More: if __name__ == "__main__".
    """
    if script.main_guard:
        return Ok("the entry point is under if __name__ == '__main__'")
    for call in calls(script, TORCH_SPAWNS):
        if not call.function and not call.file:
            return finding(
                script, call, "processes are spawned at the top level", commands("if __name__ == '__main__':")
            )
    return Ok("nothing is spawned at the top level")
