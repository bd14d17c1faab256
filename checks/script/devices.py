"""Does each rank use its own GPU?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check, commands
from mgpu.command_line import Command, shell
from mgpu.snapshot import InScript, Script, ScriptCall, ScriptOption, ScriptSet

from ._calls import (
    DDP,
    DDP_DOC,
    TORCHRUN,
    argument,
    calls,
    finding,
    plain_option,
    reached_calls,
    sets,
    text_of,
    trainer_calls,
    trains,
)
from ._rank_paths import backward_calls, callers, dotted_names, is_after_all, mentions_rank
from ._slurm_ranks import has_one_gpu_per_task

_CUDA_SEMANTICS = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_FIXED = re.compile(r"['\"]cuda:\d+['\"](?: if .*)?")
# Options for the device of the whole run, not that of an evaluation or of a second model.
_OF_TRAINING = re.compile(r"(?:train_?)?(?:device|gpu|cuda)(?:_?(?:id|name|type))?", re.IGNORECASE)
_MOVES = r".*\.(?:to|cuda)|torch\.device|torch\.cuda\.set_device|torch\.cuda\.device"
_CHOOSES = r"torch\.(?:cuda|accelerator|npu|xpu)\.(?:set_device|set_device_index|device)"
# What selects the rank's GPU in a library, when its object is created.
_SELECTS = (
    r"(?:transformers|trl)\.(?:\w+\.)*(?:\w*TrainingArguments|(?:SFT|DPO|GRPO|KTO|PPO|RLOO|ORPO|Reward)Config"
    r"|HfArgumentParser\(\)\.parse\w*|TrlParser\(\)\.parse\w*)|accelerate\.(?:Accelerator|PartialState)"
    r"|deepspeed\.(?:initialize|init_distributed)|.*\.set_device"
)
# The global rank, and the variable with the local rank of the same launcher.
_GLOBAL = {
    "torch.distributed.get_rank()": "LOCAL_RANK",
    "os.environ['RANK']": "LOCAL_RANK",
    "os.environ['SLURM_PROCID']": "SLURM_LOCALID",
    "os.environ['OMPI_COMM_WORLD_RANK']": "OMPI_COMM_WORLD_LOCAL_RANK",
}
_OWN = "int(os.environ['LOCAL_RANK'])"


def _is_on_some_ranks(spot: InScript) -> bool:
    """Whether only some ranks or a single-process run execute this, or nothing does; then a fixed GPU is fine."""
    return not spot.reached or bool({"main", "local_main", "not_main", "some", "single"} & set(spot.guards))


def _fixed_device_text(call: ScriptCall) -> str | None:
    """Return the GPU that a call names by number, as written; None if there is none."""
    if re.fullmatch(_MOVES, call.name):
        values = call.arguments[:1]
        if call.name.endswith((".cuda", ".set_device")) and values and values[0].isdecimal():
            return f"{call.name.rpartition('.')[2]}({values[0]})"
        if values and _FIXED.fullmatch(values[0]):
            return values[0]
    device = call.keywords.get("device", "")
    return device if _FIXED.fullmatch(device) and not call.name.endswith(".add_argument") else None


def _hides_others(script: Script) -> bool:
    """Whether each rank sees only its own GPU, which is cuda:0: it hides the others itself, or Slurm does."""
    visible = sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]")
    return any(text_of(one.value) is None for one in visible) or has_one_gpu_per_task(script)


def _models_by_hand(script: Script) -> bool:
    """Whether parts of a model are placed on several GPUs by number."""
    return len({text.text for text in script.texts if re.fullmatch(r"cuda:\d+", text.text)}) > 1


def _is_replaced(script: Script, spot: InScript) -> bool:
    """Whether the variable that this spot sets is only a default: a class attribute, or set again by another value."""
    names = (
        {spot.target} if isinstance(spot, ScriptSet) else set(spot.targets) if isinstance(spot, ScriptCall) else set()
    )
    if any(name[:1].isupper() and "." in name for name in names):
        return True
    later: list[tuple[InScript, set[str], str]] = [(one, {one.target}, one.value) for one in script.sets]
    later += [(call, set(call.targets), " ".join(call.written)) for call in script.calls if call.targets]
    return any(
        names & targets
        and (one.file, one.function) == (spot.file, spot.function)
        and one.line > spot.line
        and not re.search(r"cuda:\d|cpu|mps", value)
        for one, targets, value in later
    )


def _is_never_needed(script: Script, spot: InScript) -> bool:
    """Whether this sets a parameter only if it is None, and every visible call passes a variable of that name."""
    names = {spot.target} if isinstance(spot, ScriptSet) else set(getattr(spot, "targets", ()))
    name = next((one for one in names if f"{one} is None" in spot.conditions), None)
    sites = {(one.file, one.line, one.column) for one in callers(script, spot)}
    made = [call for call in script.calls if (call.file, call.line, call.column) in sites]
    if name is None or not sites or any(one.target == name and one.value == "None" for one in script.sets):
        return False
    passed = re.compile(rf"(?:\w+\.)*{re.escape(name)}")
    last = spot.function.rpartition(".")[2]
    made = [call for call in made if call.name.rpartition(".")[2] == last]
    return len(made) == len(sites) and all(any(map(passed.fullmatch, call.written)) for call in made)


def _is_only_named(spot: InScript) -> bool:
    """Whether this only gives a name to a GPU, and no code that runs reads the name."""
    return spot.unused and (
        isinstance(spot, ScriptSet) or (isinstance(spot, ScriptCall) and spot.name == "torch.device")
    )


def _fixed_by_default(script: Script) -> Problem | None:
    """Return the finding about an option whose default is the same GPU on every rank."""
    if (option := _option_of_one_gpu(script)) is None:
        return None
    title = f"{option.names[-1]} is {text_of(option.default)} by default, the same GPU on every rank"
    why = "All ranks get the same arguments, so all of them use this GPU. It runs out of memory, or NCCL reports "
    why += '"Duplicate GPU detected", and the other GPUs are idle.'
    return finding(script, option, title, commands(f"device = torch.device('cuda', {_OWN})"), why=why)


def _option_of_one_gpu(script: Script) -> ScriptOption | None:
    """Return the option that names a GPU by number if it is not given, and on which all ranks train."""
    given = {text.partition("=")[0] for text in script.arguments}
    given |= {text.partition("=")[0] for start in script.starts for text in start.arguments}
    roots = {target for call in script.calls if call.name.endswith("parse_args") for target in call.targets}
    roots |= {"args", "opt", "opts", "flags"}
    changed = {one.target for one in script.sets} | {target for call in script.calls for target in call.targets}
    for option in script.options:
        if not re.fullmatch(r"'cuda:\d+'", option.default or "") or _is_on_some_ranks(option):
            continue
        if not option.names or given.intersection(option.names):
            continue
        plain = [plain_option(name) for name in option.names if name.startswith("--")]
        names = {f"{root}.{name}" for root in roots for name in plain if _OF_TRAINING.fullmatch(name)}
        used = [call for call in calls(script, _MOVES) if names & dotted_names(call.written)]
        used = [call for call in used if not _is_on_some_ranks(call) and not _is_replaced(script, call)]
        if used and not names & changed and not any(map(_mentions_rank_near, used)):
            return option
    return None


def _mentions_rank_near(call: ScriptCall) -> bool:
    """Whether the rank may decide whether a call runs, or what it is given."""
    return mentions_rank(*call.conditions, *call.guarded_by, *call.written)


@check(Severity.WARNING, source=_CUDA_SEMANTICS, tags=("leads_to_gpu_error",))
def script_device_fixed(script: Script) -> Answer:
    """The script names a GPU by number.

    Why: All ranks run this line and use the same GPU. It runs out of memory, or NCCL reports "Duplicate GPU detected",
    and the other GPUs are idle.

    Fix: Use the rank's own GPU.
    More: accelerator.device, or cuda:LOCAL_RANK.
    """
    if script.speaks is None or not trains(script):
        return Ok("no visible training on several GPUs")
    if _hides_others(script) or _models_by_hand(script):
        return Ok("each rank sees only its own GPU, or parts of the model are placed by hand")
    spots: list[tuple[InScript, str]] = [
        (call, device) for call in script.calls if not _is_on_some_ranks(call) and (device := _fixed_device_text(call))
    ]
    spots += [
        (one, one.value)
        for one in script.sets
        if not _is_on_some_ranks(one) and "device" in one.target.lower() and _FIXED.fullmatch(one.value)
    ]
    spots = [(spot, device) for spot, device in spots if not _is_replaced(script, spot) and not _is_only_named(spot)]
    spots = [(spot, device) for spot, device in spots if not _is_never_needed(script, spot)]
    if not spots:
        return _fixed_by_default(script) or Ok("no GPU is named by number")
    spots.sort(key=lambda pair: (pair[0].file, pair[0].line, pair[0].column))
    (first, device), others = spots[0], [spot for spot, _ in spots[1:]]
    if script.speaks == "accelerate":
        fix = Fix("Let accelerate choose.", ("device = accelerator.device",))
    elif script.speaks in ("trainer", "lightning"):
        fix = Fix("Remove the line. The Trainer moves the model and the batches to the rank's own GPU.")
    else:
        fix = commands(f"device = torch.device('cuda', {_OWN})")
    return finding(
        script, first, f"{device.partition(' if ')[0]} is the same GPU on every rank", fix, others, device=device
    )


@check(Severity.WARNING, source=TORCHRUN, because_of=("script_trains_alone",), tags=("leads_to_gpu_error",))
def script_device_not_set(script: Script) -> Answer:
    """The script uses "cuda" without a number and never selects the rank's GPU.

    Why: Without a number, "cuda" means the current device, which is GPU 0 in every process by default. All ranks share
    it, and it runs out of memory, or NCCL reports "Duplicate GPU detected".

    Fix: Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything uses the GPU.
    """
    if (early := _before_selection(script)) is not None:
        spot, selected = early
        title = f'"cuda" is GPU 0 on every rank: its GPU is selected later, in line {selected.line}'
        fix = Fix(f"Select the rank's GPU first, before line {spot.line}.", (f"torch.cuda.set_device({_OWN})",))
        return finding(script, spot, title, fix)
    if script.speaks != "ddp" or not trains(script) or script.unread or script.cut:
        return Ok("the GPU is not selected by hand, or in a module that was not read")
    chosen = calls(script, _CHOOSES) or sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]")
    if chosen:
        return Ok(f"the rank's GPU is selected in line {chosen[0].line}")
    spots = [call for call in script.calls if _uses_current_device(call) and not _is_on_some_ranks(call)]
    if not spots:
        return Ok("every device has a number")
    init = next(iter(calls(script, r"torch\.distributed\.init_process_group")), None)
    before = f", before line {min(spots[0].line, init.line) if init else spots[0].line}" if not spots[0].file else ""
    return finding(
        script,
        spots[0],
        '"cuda" is GPU 0 on every rank: nothing calls set_device',
        Fix(f"Select the rank's GPU first{before}.", (f"torch.cuda.set_device({_OWN})",)),
        spots[1:],
    )


def _before_selection(script: Script) -> tuple[ScriptCall, ScriptCall] | None:
    """Return a call that moves something to "cuda" before the rank's GPU is selected, and the first call that does."""
    if script.speaks is None or not trains(script) or sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]"):
        return None
    selects = reached_calls(script, rf"{_CHOOSES}|{_SELECTS}")
    for call in script.calls:
        moved = call.name.endswith((".to", ".cuda")) and not _is_on_some_ranks(call)
        text = re.sub(r"^torch\.device\((['\"]cuda['\"])\)$", r"\1", call.written[0]) if call.written else ""
        if moved and call.name.endswith(".to"):
            moved = len(call.written) == 1 and text in ("'cuda'", '"cuda"')
        elif moved:
            moved = _uses_current_device(call)
        if moved and not call.conditions and selects and all(is_after_all(script, one, [call]) for one in selects):
            return call, selects[0]
    return None


def _uses_current_device(call: ScriptCall) -> bool:
    """Whether a call moves something to the current GPU."""
    if call.name.endswith(".cuda") and not call.arguments and not set(call.keywords) - {"non_blocking"}:
        return not call.name.startswith("torch.cuda.")
    value = call.arguments[:1] if re.fullmatch(r".*\.to|torch\.device", call.name) else ()
    return bool(value and re.fullmatch(r"['\"]cuda['\"](?: if .*)?", value[0]) and len(call.arguments) == 1)


@check(Severity.INFO, source=TORCHRUN, tags=("leads_to_gpu_error",))
def script_device_by_global_rank(script: Script) -> Answer:
    """The script selects its GPU by the global rank.

    Why: It works on one node. On a second node, the global ranks continue (8, 9 ...), and there is no such GPU:
    "invalid device ordinal".

    Fix: Select it by the local rank.
    More: LOCAL_RANK starts at 0 on every node.
    """
    if script.speaks != "ddp":
        return Ok("the GPU is not selected by hand")
    for call in reached_calls(script, rf"torch\.cuda\.set_device|{re.escape(DDP)}"):
        if call.name == DDP:
            value = re.fullmatch(
                r"\[\s*(.*?)\s*\]", call.keywords.get("device_ids") or argument(call, 1, "device_ids") or ""
            )
            if value and not script.spawns and (local := _local_of_global(script, call, value[1])):
                fix = commands(f"device_ids=[int(os.environ['{local}'])]")
                return finding(script, call, "device_ids is the global rank", fix)
            continue
        local = _GLOBAL.get(argument(call, 0, "device") or "", "")
        if not local and call.written and not script.spawns:
            local = _local_of_global(script, call, call.written[0])
        if local:
            fix = commands(f"torch.cuda.set_device(int(os.environ['{local}']))")
            return finding(script, call, "the GPU is selected by the global rank", fix)
    return Ok("no GPU is selected by the global rank")


def _local_of_global(script: Script, spot: InScript, written: str) -> str:
    """Return the variable to use in place of an expression that is the global rank; empty if it is not certainly that.

    The global rank: get_rank(), or a variable of this function with nothing else.
    """
    if re.fullmatch(r"(?:dist|torch\.distributed)\.get_rank\(\)", written):
        return "LOCAL_RANK"
    place = (spot.file, spot.function)
    made = [call for call in script.calls if (call.file, call.function) == place and written in call.targets]
    others = [one.value for one in script.sets if (one.file, one.function) == place and one.target == written]
    values = {f"{call.name}()" if call.name != "int" else "".join(call.arguments) for call in made}
    if len(values) != 1 or not all(re.fullmatch(r"-?\d+", value) for value in others):
        return ""
    return _GLOBAL.get(values.pop(), "")


@check(Severity.WARNING, source=DDP_DOC, tags=("leads_to_gpu_error",))
def script_wraps_on_fixed_device(script: Script) -> Answer:
    """DistributedDataParallel gets the same device_ids on every rank.

    Why: device_ids is the GPU that this rank uses. Every rank would move its batches there, and all but one stop
    because their model is on another GPU, or all of them share that GPU.

    Fix: Name the rank's own GPU.
    """
    for call in calls(script, re.escape(DDP)):
        value = call.keywords.get("device_ids") or argument(call, 1, "device_ids") or ""
        if (
            re.fullmatch(r"\[\s*(?:\d+\s*,?\s*)+\]", value)
            and not _is_on_some_ranks(call)
            and not _hides_others(script)
        ):
            return finding(
                script,
                call,
                f"device_ids={value} on every rank",
                commands("device_ids=[int(os.environ['LOCAL_RANK'])]"),
            )
    return Ok("device_ids is not fixed")


@check(
    Severity.WARNING,
    source="https://huggingface.co/docs/accelerate/en/concept_guides/big_model_inference",
    tags=("leads_to_gpu_error",),
)
def script_spreads_model_on_every_rank(script: Script) -> Answer:
    """The script loads its model with device_map="auto" and trains it on several ranks.

    Why: The ranks compete for the same memory, and accelerate stops with "You can't train a model that has been loaded
    with `device_map='auto'` in any distributed mode".
    More: Each rank spreads the whole model over all GPUs.

    Fix: Omit it, or use the rank's own GPU. A model that does not fit on one GPU needs FSDP or DeepSpeed.
    """
    if script.speaks not in ("accelerate", "trainer", "ddp") or not trains(script):
        return Ok("no model is spread across GPUs and trained on several ranks")
    modes = ("auto", "balanced", "balanced_low_0", "sequential")
    trained = [*trainer_calls(script), *backward_calls(script)]
    for call in calls(script, r".*\.from_pretrained|.*\.from_config|transformers\.pipeline"):
        mode = text_of(call.keywords.get("device_map"))
        if mode in modes and not _is_on_some_ranks(call) and not is_after_all(script, call, trained):
            return finding(
                script,
                call,
                f'device_map="{mode}" spreads the model over all GPUs, on every rank',
                commands("device_map={'': int(os.environ['LOCAL_RANK'])}"),
            )
    return Ok("no model is spread across all GPUs")


@check(Severity.WARNING, source=_CUDA_SEMANTICS, tags=("leads_to_gpu_error",))
def script_sets_visible_devices(script: Script) -> Answer:
    """The script sets CUDA_VISIBLE_DEVICES to fixed GPUs.

    Why: It overrides the GPUs that the launcher, Slurm or a container assigned to this run. With fewer GPUs than ranks,
    torch stops with "invalid device ordinal". Otherwise, the run may use another user's GPU.

    Fix: Remove the line, and select the GPUs when you launch, with mgpu launch --gpus.
    """
    if script.spawns:
        return Ok("no launcher starts the script, which selects the GPUs of its ranks")
    for one in sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]"):
        value = text_of(one.value)
        if (
            script.speaks is not None
            and trains(script)
            and value
            and value != "-1"  # selects the CPU, so no GPU is used
            and not _is_on_some_ranks(one)
            and not any("CUDA_VIS" in c for c in one.conditions)
        ):
            return finding(
                script,
                one,
                f"CUDA_VISIBLE_DEVICES is set to {value} in every rank",
                Fix(
                    "Remove the line, and select the GPUs when you launch.",
                    (_launch_on(value),),
                )
                if re.fullmatch(r"\d+(?:,\d+)*", value)
                else Fix(),
            )
    return Ok("the script does not change the visible GPUs")


def _launch_on(gpus: str) -> Command:
    """Return the command that selects these GPUs; without a comma, --gpus is a number of GPUs."""
    return (
        shell("mgpu launch --gpus {:numbers} ...", gpus)
        if "," in gpus
        else shell("mgpu launch --gpus {:number}, ...", gpus)
    )
