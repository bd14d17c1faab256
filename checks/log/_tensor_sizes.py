"""What do two different sizes of tensors mean: a checkpoint, a split, a sample that is too long?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

from .._followed_values import operands, underlined
from .._wording import at_place
from ._circumstances import either, never, shown, through
from ._image_cases import NO_TEXT
from ._loss_sizes import prediction_and_target
from ._optimizer_state import LARGEST_SPLIT, LOADS, SMALLEST_SHARD, of_other_parameters, of_other_ranks
from ._predicted_sizes import smaller_prediction
from ._sizes import splits_tensors

_SPECTRA = re.compile(r"\birfft\([^*]*\*|\brfft\([^*]*\* *(?:torch\.fft\.)?rfft")
_SPLIT_PACKAGES = frozenset({"megatron", "torchtitan", "transformer_engine", "mbridge", "nemo", "nemo_rl"})
_AT = re.compile(
    r"at non-singleton dimension (?P<dim>\d+)(?:\.\s+Target sizes: (?P<target>\[[\d, ]*\])\.\s+"
    r"Tensor sizes: (?P<shape>\[[\d, ]*\]))?"
)
_ELSEWHERE = re.compile(r"torch/(?:distributed|optim|utils/checkpoint|nn/parallel|ao)/|(?i:normaliz)|\b(?:mean|std)\b")
_EXPANDED = re.compile(r"expanded size of the tensor .{1,120}Tensor sizes: \[1, \d+\]")
_MODEL = re.compile(r"^transformers/models/\S+ in forward$")
_LONGEST = 90  # characters of two operands in a sentence
_INNER = 3  # innermost frames, of which one names what the code does
_LIMITS = frozenset({77, 256, 512, 514, 1024, 2048, 4096, 8192, 16384, 32768})  # usual maximum lengths of models


def _parts(log: Log, groups: Mapping[str, str], raised: UncaughtException) -> int:
    """Return over how many ranks one of the two tensors was probably split; 0 if nothing points to it.

    One size that is twice the other is also what grouped heads, rotary halves and doubled features have: the log must
    show that ranks share tensors.
    """
    small, large = sorted((int(groups["a"]), int(groups["b"])))
    if small < LARGEST_SPLIT or large % small or not 1 < large // small <= LARGEST_SPLIT:
        return 0
    parallel = _SPLIT_PACKAGES & set(raised.packages) or "apply_rotary" in (raised.raised_in or "")
    return large // small if parallel and splits_tensors(log) else 0


def _of_spectra(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain two spectra of real signals that are multiplied: n samples have n // 2 + 1 frequencies.

    Both sizes are odd, as those of spectra mostly are, and numbers of channels are not.
    """
    a, b = int(groups["a"]), int(groups["b"])
    if raised is None or not a % 2 == b % 2 == 1 or not _SPECTRA.search(raised.own_code or ""):
        return None
    return Meaning(
        f"two spectra that are multiplied have different numbers of frequencies: {a} and {b} ({raised.place})",
        f"rfft of n real values has n // 2 + 1 frequencies: {a} are of {2 * (a - 1)} values (or {2 * a - 1}), {b} of "
        f"{2 * (b - 1)} (or {2 * b - 1}). The signal and the kernel were transformed with different lengths: one was "
        f"padded to another size (a maximum length, a number of features), or this input is shorter or longer. The "
        f'line is "{raised.own_code}".',
        (
            Fix(
                "Transform both with the same length along the same dimension; n pads with zeros. A convolution "
                "without wrap-around needs the sum of both lengths less 1.",
                (
                    "n = x.size(dim) + kernel.size(dim) - 1",
                    "y = torch.fft.irfft(torch.fft.rfft(x, n=n, dim=dim) * torch.fft.rfft(kernel, n=n, dim=dim), "
                    "n=n, dim=dim)",
                ),
            ),
        ),
        complete=True,
    )


# Partitioned parameters are empty outside of their layer's passes.
_PARTITIONS = either(shown("zero_three"), shown("fsdp"), through("deepspeed", "fairscale", "torchtitan"))
_OF_TEXT = either(never(NO_TEXT), shown("hugging_face"))


def explain_sizes(log: Log, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return what two different sizes of tensors mean, by the numbers and the traceback; None: nothing special."""
    if "0" in (groups["a"], groups["b"]):
        return _of_parameter(groups) if _PARTITIONS(log, raised) else _empty(groups, raised)
    if raised is not None and (parts := _parts(log, groups, raised)):
        return Meaning(
            f"two tensors have different sizes: {groups['a']} and {groups['b']}, {parts} times as large",
            f"One of them was probably split over {parts} ranks (tensor, sequence or context parallelism), the other "
            "was not: a mask, positions or an index that code built for the whole sequence, or a sequence whose length "
            "is not a multiple of the number of ranks.",
            (
                Fix(
                    f"Pad sequences to a multiple of {parts}, or turn sequence parallelism off to see whether it fits."
                ),
                Fix("If it fits then, split the other tensor too, or upgrade the framework.", ("pip check",)),
            ),
        )
    for known in _BY_PLACE:
        if found := known(groups, raised):
            return found
    if raised is None or not LOADS.search(" ".join((raised.place or "", *raised.frames[-_INNER:]))):
        long = _too_long(groups) if _OF_TEXT(log, raised) else None
        return long or _of_rows(groups, raised) or _in_plain_script(groups, raised)
    return Meaning(
        f"the checkpoint does not fit the model: a tensor has {groups['a']} elements in one and {groups['b']} in the "
        "other",
        "It was written with another configuration (vocabulary, architecture, an earlier run's folder), or with "
        "another tensor- or pipeline-parallel size.",
        (Fix("Build the model as it was saved: config, tokenizer, parallel sizes and resize_token_embeddings."),),
    )


def _of_parameter(groups: Mapping[str, str]) -> Meaning:
    return Meaning(
        f"probably a parameter or gradient of size 0 was used: {groups['a']} and {groups['b']} elements",
        "ZeRO-3 and FSDP leave nothing of a parameter outside of its layer's forward and backward pass. A weight "
        "is used outside of its own layer (tied weights, Liger's fused loss, weight normalization, an adapter that "
        "is merged), or a layer ran twice.",
        (
            Fix(
                "Use ZeRO-2, or gather the weight where it is used.",
                ("with deepspeed.zero.GatheredParameters([weight]): ...", "accelerate launch --zero_stage 2 ..."),
            ),
        ),
    )


def _empty(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning:
    """Explain a tensor without elements in a run of which nothing shows that parameters are partitioned."""
    at = at_place(raised)
    code = (raised.own_code or raised.code) if raised else None
    line = f' The line is "{code}".' if code else ""
    return Meaning(
        f"one of two tensors is empty: their sizes are {groups['a']} and {groups['b']}{at}",
        "Nothing was left in it: a mask or a filter that selects nothing, a sample without boxes, labels or tokens, an "
        "empty split or batch, or a slice beyond the end. If the run uses ZeRO-3 or FSDP, it can be a parameter, which "
        f"is empty outside of its layer's own pass.{line}",
        (
            Fix(
                "Print both shapes just before that line, and follow the empty one back.", ("print(a.shape, b.shape)",)
            ),
            Fix("If a sample may have none, treat that case before.", ("if boxes.numel() == 0: ...",)),
        ),
        complete=True,
    )


def _of_positions(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a table of positions or token types (one row per model, [1, N]) that is expanded to a longer sample."""
    found = _EXPANDED.search(raised.message) if raised else None
    of_model = raised is not None and any(_MODEL.search(frame) for frame in raised.frames[-_INNER:])
    if not found or not of_model or int(groups["a"]) <= int(groups["b"]):
        return None
    length, table = groups["a"], groups["b"]
    of_roberta = table == "514"
    most = "512" if of_roberta else table
    begin = " (RoBERTa's positions begin at 2, so 512 tokens fit)" if of_roberta else ""
    return Meaning(
        f"a sample has {length} tokens, and the model has positions for {most}",
        f"max_position_embeddings of the model's config is probably {table}{begin}. Texts are not cut, are cut to a "
        "longer length, or get special tokens after they were cut.",
        (
            Fix(
                "Cut them where they are tokenized.",
                (python("tokenizer(text, truncation=True, max_length={:number})", most),),
            ),
            Fix(
                "If the tokenizer should do that by itself, look at its own limit.",
                ("print(tokenizer.model_max_length, model.config.max_position_embeddings)",),
            ),
        ),
        complete=True,
    )


def _in_plain_script(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain sizes in a line of a script without a framework; None if its frames or sizes are those of images."""
    if raised is None or not raised.frames or {*raised.packages} - {"", "torch"}:
        return None
    seen = " ".join((*raised.frames, raised.code or "", raised.own_code or ""))
    found = _AT.search(raised.message)
    if found is None or _ELSEWHERE.search(seen):
        return None
    small, large = sorted((int(groups["a"]), int(groups["b"])))
    dim = int(found["dim"])
    if large - small <= 1 and dim > 1:  # feature maps whose size was rounded, which a case explains
        return None
    at = at_place(raised)
    title = f"two tensors have different sizes: {groups['a']} and {groups['b']} in dimension {dim}{at}"
    if found["target"]:
        shape, target = found["shape"], found["target"]
        title = f"a tensor of the shape {shape} cannot be expanded to, or written to, the shape {target}{at}"
    code = f' The line is "{raised.own_code or raised.code}".' if raised.own_code or raised.code else ""
    code = f"{_sides(groups, raised)}{code}"
    return Meaning(
        title,
        "Sizes are compared from the last dimension to the first: each pair must be equal, or one of them 1. Usual "
        "reasons: (n) and (n, m), where the first lacks a dimension; a layer that changes channels or features in a "
        "residual connection; a mask, labels or positions that were padded or cut to another length; an output "
        f"and a target of another layout; a state that was made for a larger batch than the last one.{code}",
        (
            Fix("Print both shapes just before that line.", ("print(a.shape, b.shape)",)),
            Fix(
                "Give one of them the size of the other where it is made, or add the missing dimension.",
                (
                    "a.unsqueeze(1)  # (n) with (n, m)",
                    "x = self.project(x) + self.conv(x)  # a 1x1 convolution or a linear layer",
                    "DataLoader(..., drop_last=True)  # if only the last batch differs",
                ),
            ),
        ),
        complete=True,
    )


def _sides(groups: Mapping[str, str], raised: UncaughtException) -> str:
    """Return which operand has which size, if Python underlines the operator that failed."""
    if not (sides := operands(raised)) or not raised.raised_in_own_code or len("".join(sides)) > _LONGEST:
        return ""
    left, right = sides
    batch = (
        " With @, all dimensions but the last two are of the batch: they must be equal, 1 or missing."
        if underlined(raised)[1].strip() == "@"
        else ""
    )
    return f" Here {left} has {groups['a']}, and {right} has {groups['b']}.{batch}"


def _of_rows(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain two large sizes that are close to each other, if no frame shows a step: rarely those of a batch."""
    small, large = sorted((int(groups["a"]), int(groups["b"])))
    if (raised is not None and raised.frames) or small < SMALLEST_SHARD or not 0 < large - small <= small // 10:
        return None
    return Meaning(
        f"two tensors have different sizes: {groups['a']} and {groups['b']}, probably rows of an embedding or a shard "
        "of it",
        "Sizes of this order are rarely lengths of a batch. The usual reason is a checkpoint whose model has another "
        "vocabulary (tokens added or padded on one side only) or other parallel sizes: it is loaded or resumed without "
        "resizing the embeddings first. If it failed in a step, masks or labels have another length than the input.",
        (
            Fix(
                "While a checkpoint is loaded: compare its vocabulary with the model's and the tokenizer's, and resize "
                "before loading.",
                (
                    "print(model.get_input_embeddings().weight.shape, len(tokenizer))",
                    "model.resize_token_embeddings(ROWS_OF_THE_CHECKPOINT)",
                ),
            ),
            Fix("In a step: print the shapes of the batch just before that line, on the rank that failed."),
        ),
    )


def _too_long(groups: Mapping[str, str]) -> Meaning | None:
    few, many = sorted((int(groups["a"]), int(groups["b"])))
    if few not in _LIMITS or many % few == 0:
        return None
    return Meaning(
        f"a sample is probably longer than the model allows: {many} instead of {few}",
        "Positions or masks exist for the maximum length only. Tokens added after truncation (special tokens, image "
        "tokens, a prompt) count too.",
        (
            Fix("Cut samples.", (python("tokenizer(text, truncation=True, max_length={:number})", few),)),
            Fix("Print the shapes of the batch just before that line."),
        ),
    )


_BY_PLACE = (
    _of_spectra,
    _of_positions,
    of_other_ranks,
    of_other_parameters,
    smaller_prediction,
    prediction_and_target,
)
