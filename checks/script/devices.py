"""Does each rank use a GPU of its own?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import InScript, Script, ScriptCall

from ._calls import DDP, DDP_DOC, TORCHRUN, calls, finding, given, sets, text_of, trains

_CUDA_SEMANTICS = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_FIXED = re.compile(r"['\"]cuda:\d+['\"](?: if .*)?")
_MOVES = r".*\.(?:to|cuda)|torch\.device|torch\.cuda\.set_device|torch\.cuda\.device"
_CHOOSES = r"torch\.(?:cuda|accelerator|npu|xpu)\.(?:set_device|set_device_index|device)"
_OWN = "int(os.environ['LOCAL_RANK'])"


def _alone(spot: InScript) -> bool:
    """Whether only some ranks come there, or only a run of one process: there a fixed GPU is no fault."""
    return bool({"main", "local_main", "not_main", "some", "single"} & set(spot.guards))


def _fixed_device(call: ScriptCall) -> str | None:
    """The GPU that a call names by number, as written."""
    if re.fullmatch(_MOVES, call.name):
        values = call.arguments[:1]
        if call.name.endswith((".cuda", ".set_device")) and values and values[0].isdecimal():
            return f"{call.name.rpartition('.')[2]}({values[0]})"
        if values and _FIXED.fullmatch(values[0]):
            return values[0]
    device = call.keywords.get("device", "")
    return device if _FIXED.fullmatch(device) and not call.name.endswith(".add_argument") else None


def _hides_others(script: Script) -> bool:
    """Whether each rank makes all GPUs but its own invisible: then cuda:0 is its own."""
    visible = sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]")
    return any(text_of(one.value) is None for one in visible)


def _models_by_hand(script: Script) -> bool:
    """Whether parts of a model are put on several GPUs by number."""
    return len({text.text for text in script.texts if re.fullmatch(r"cuda:\d+", text.text)}) > 1


@check(Severity.WARNING, source=_CUDA_SEMANTICS)
def script_device_fixed(script: Script) -> Answer:
    """The script names a GPU by number.

    Why: All ranks run this line, so all of them use that one GPU: it runs out of memory, or NCCL says "Duplicate GPU
    detected", and the others idle.

    Fix: Take the rank's own GPU.
    More: accelerator.device, or cuda:LOCAL_RANK.
    """
    if script.speaks is None or not trains(script):
        return Ok("it is not seen to train on several GPUs")
    if _hides_others(script) or _models_by_hand(script):
        return Ok("each rank sees its own GPU only, or parts of the model are placed by hand")
    spots: list[tuple[InScript, str]] = [
        (call, told) for call in script.calls if not _alone(call) and (told := _fixed_device(call))
    ]
    spots += [
        (one, one.value)
        for one in script.sets
        if not _alone(one) and "device" in one.target.lower() and _FIXED.fullmatch(one.value)
    ]
    if not spots:
        return Ok("no GPU is named by number")
    spots.sort(key=lambda pair: (pair[0].file, pair[0].line, pair[0].column))
    (first, told), others = spots[0], [spot for spot, _ in spots[1:]]
    if script.speaks == "accelerate":
        fix = Fix("Let accelerate choose.", ("device = accelerator.device",))
    elif script.speaks in ("trainer", "lightning"):
        fix = Fix("Take the line out: the Trainer puts the model and the batches on the rank's own GPU.")
    else:
        fix = commands(f"device = torch.device('cuda', {_OWN})")
    return finding(
        script, first, f"{told.partition(' if ')[0]} is the same GPU on every rank", fix, others, device=told
    )


@check(Severity.WARNING, source=TORCHRUN, because_of=("script_trains_alone",))
def script_device_not_set(script: Script) -> Answer:
    """The script uses "cuda" without a number and never chooses the rank's GPU.

    Why: Without a number, "cuda" means the current device, and that is GPU 0 in every process until it is chosen: all
    ranks share it, and it runs out of memory, or NCCL says "Duplicate GPU detected".

    Fix: Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything touches the GPU.
    """
    if script.speaks != "ddp" or not trains(script) or script.unread or script.cut:
        return Ok("the GPU is not chosen by hand, or where nothing was read")
    chosen = calls(script, _CHOOSES) or sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]")
    if chosen:
        return Ok(f"the rank's GPU is chosen in line {chosen[0].line}")
    spots = [call for call in script.calls if _current_device(call) and not _alone(call)]
    if not spots:
        return Ok("every device has a number")
    init = next(iter(calls(script, r"torch\.distributed\.init_process_group")), None)
    before = f", before line {min(spots[0].line, init.line) if init else spots[0].line}" if not spots[0].file else ""
    return finding(
        script,
        spots[0],
        '"cuda" is GPU 0 on every rank: nothing calls set_device',
        Fix(f"Choose the rank's GPU first{before}.", (f"torch.cuda.set_device({_OWN})",)),
        spots[1:],
    )


def _current_device(call: ScriptCall) -> bool:
    """Whether a call puts something on the current GPU."""
    if call.name.endswith(".cuda") and not call.arguments and not set(call.keywords) - {"non_blocking"}:
        return not call.name.startswith("torch.cuda.")
    value = call.arguments[:1] if re.fullmatch(r".*\.to|torch\.device", call.name) else ()
    return bool(value and re.fullmatch(r"['\"]cuda['\"](?: if .*)?", value[0]) and len(call.arguments) == 1)


@check(Severity.INFO, source=TORCHRUN)
def script_device_by_global_rank(script: Script) -> Answer:
    """The script chooses its GPU by the global rank.

    Why: On a second machine the ranks go on counting (8, 9 ...), and there is no such GPU: "invalid device ordinal". On
    one machine it works.

    Fix: Choose by the rank on this machine.
    More: LOCAL_RANK starts at 0 on every machine.
    """
    if script.speaks != "ddp":
        return Ok("the GPU is not chosen by hand")
    ranks = ("torch.distributed.get_rank()", "os.environ['RANK']")
    for call in calls(script, r"torch\.cuda\.set_device"):
        if given(call, 0, "device") in ranks:
            return finding(
                script, call, "the GPU is chosen by the global rank", commands(f"torch.cuda.set_device({_OWN})")
            )
    return Ok("no GPU is chosen by the global rank")


@check(Severity.WARNING, source=DDP_DOC)
def script_wraps_on_fixed_device(script: Script) -> Answer:
    """DistributedDataParallel gets the same device_ids on every rank.

    Why: It is the GPU that this rank uses. Every rank would move its batches there, and all but one stop because their
    model is elsewhere, or all of them share that GPU.

    Fix: Name the rank's own GPU.
    """
    for call in calls(script, re.escape(DDP)):
        value = call.keywords.get("device_ids") or given(call, 1, "device_ids") or ""
        if re.fullmatch(r"\[\s*(?:\d+\s*,?\s*)+\]", value) and not _alone(call) and not _hides_others(script):
            return finding(
                script,
                call,
                f"device_ids={value} on every rank",
                commands("device_ids=[int(os.environ['LOCAL_RANK'])]"),
            )
    return Ok("device_ids is not fixed")


@check(Severity.WARNING, source="https://huggingface.co/docs/accelerate/en/concept_guides/big_model_inference")
def script_spreads_model_on_every_rank(script: Script) -> Answer:
    """The script loads its model with device_map="auto" and trains it on several ranks.

    Why: The ranks fight for the same memory, and accelerate says "You can't train a model that has been loaded with
    `device_map='auto'` in any distributed mode".
    More: Each rank spreads the whole model over all GPUs.

    Fix: Leave it out, or give the rank's own GPU; a model that fits on none needs FSDP or DeepSpeed.
    """
    if script.speaks not in ("accelerate", "trainer", "ddp") or not trains(script):
        return Ok("no model is spread over GPUs and trained on several ranks")
    modes = ("auto", "balanced", "balanced_low_0", "sequential")
    for call in calls(script, r".*\.from_pretrained|.*\.from_config|transformers\.pipeline"):
        if (mode := text_of(call.keywords.get("device_map"))) in modes and not _alone(call):
            return finding(
                script,
                call,
                f'device_map="{mode}" spreads the model over all GPUs, on every rank',
                commands("device_map={'': int(os.environ['LOCAL_RANK'])}"),
            )
    return Ok("no model is spread over all GPUs")


@check(Severity.WARNING, source=_CUDA_SEMANTICS)
def script_sets_visible_devices(script: Script) -> Answer:
    """The script sets CUDA_VISIBLE_DEVICES to fixed GPUs.

    Why: It overrides what the launcher, Slurm or a container gave this run. With fewer GPUs than ranks torch says
    "invalid device ordinal"; else it may be somebody else's GPU.

    Fix: Take the line out, and choose the GPUs when you launch, with mgpu launch --gpus.
    """
    for one in sets(script, r"os\.environ\['CUDA_VISIBLE_DEVICES'\]"):
        value = text_of(one.value)
        if (
            script.speaks is not None
            and trains(script)
            and value
            and value != "-1"  # the CPU is meant: nobody's GPU is taken
            and not _alone(one)
            and not any("CUDA_VIS" in c for c in one.conditions)
        ):
            return finding(
                script,
                one,
                f"CUDA_VISIBLE_DEVICES is set to {value} in every rank",
                Fix(
                    "Take the line out, and choose the GPUs when you launch.",
                    (shell("mgpu launch --gpus {:numbers} ...", value),),
                )
                if re.fullmatch(r"[\d,]+", value)
                else Fix(),
            )
    return Ok("the visible GPUs are left as they are given")
