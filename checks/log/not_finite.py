"""Was what a run that went on computed not finite: its gradients, every evaluation? Was every step skipped?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Circumstance, Log

_LEAST = 5  # steps in a row; the first ones are normal with fp16, until the loss scale fits
_LEAST_LATE, _LATE = 2, 20  # if they are logged rarely: the scale fits after about as many steps

_LEAST_LOSSES = 3  # a step or two can be skipped, and are
_LEAST_EVALUATIONS, _LEAST_SKIPPED = 2, 3  # reports; DeepSpeed's are 10 steps apart
_LEAST_MASKED, _MASKED_SHARE = 2, 0.1  # of the log's lines: a few such samples are usual in a run that works
_NAME = re.compile(r"\b(?P<name>[A-Za-z_]\w+): nan=True")


def _shown(log: Log, name: str) -> Circumstance | None:
    return next((one for one in log.shows if one.name == name), None)


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    role="secondary",
    kind="script",
)
def log_gradients_not_finite(log: Log) -> Answer:
    """The gradient norm is NaN or infinite in all last steps, and the run goes on without an error.

    Why: The optimizer skips such steps, or writes NaN into the weights: the model no longer learns. In fp16, gradients
    overflow while the loss is still finite.

    Fix: Train in bf16. Otherwise lower the learning rate and look for the first operation with NaN.
    """
    lost, finite = _shown(log, "gradients_not_finite"), _shown(log, "gradients_finite")
    late = log.reached is not None and log.reached.at >= _LATE and finite is None
    least = _LEAST_LATE if late else _LEAST
    if lost is None or lost.times < least or (finite is not None and finite.last > lost.line):
        return Ok("the last gradient norms are finite" if finite else "no gradient norms that are NaN in a row")
    if any(one.signature == "log_loss_is_nan" and not one.survived for one in log.seen):
        return Ok("the loss is NaN, too: log_loss_is_nan")
    always = finite is None
    return Problem(
        f"the gradients are NaN or infinite in {'every' if always else 'each later'} logged step ({lost.times}), while "
        "the loss is finite: probably fp16 overflows",
        "Such steps are skipped, or write NaN into the weights: the model learns nothing"
        + ("" if always else f" from line {lost.line:,} on")
        + ". With fp16, gradients above 65504 overflow in the backward pass, long before the loss does. Models trained "
        "in bf16 (Qwen, Gemma, Llama 3, most MoE models) need bf16. (The loss scaler of fp16 skips up to about 10 "
        "steps at the start of a normal run.)",
        (
            Fix("Load and train the model in bf16.", ("accelerate launch --mixed_precision bf16 ...",)),
            Fix(
                "If it is in bf16 already, find the first operation with NaN.",
                ("torch.autograd.set_detect_anomaly(True)",),
            ),
        ),
        {"line": lost.text, "steps": lost.times},
        place=Place(lost.file, lost.line),
    )


@check(
    Severity.ERROR,
    source="https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py",
    role="secondary",
    kind="script",
    tags=("precise",),
    because_of=("log_loss_is_nan",),
)
def log_evaluation_not_finite(log: Log) -> Answer:
    """The loss of every evaluation is NaN: the evaluated model is not usable, or the data has nothing to compare.

    Why: The weights already have NaN values, fp16 overflows in the evaluation, or all labels of the evaluated samples
    are masked (-100), so the mean is taken over nothing. The run itself goes on to its end.

    Fix: Compare with the training loss, and look at the labels of one evaluated batch.
    """
    lost = _shown(log, "evaluation_not_finite")
    if lost is None or lost.times < _LEAST_EVALUATIONS or _shown(log, "evaluation_finite"):
        return Ok("no loss that is NaN in every evaluation")
    return Problem(
        f"the loss of every evaluation ({lost.times}) is NaN, although the run went on",
        "Either the weights have NaN values by then (the training loss is NaN or 0, too), or the evaluation alone "
        "gives NaN: fp16 overflows in it, or all labels of its samples are masked (-100), for example because they are "
        "cut before the answer.",
        (
            Fix("Look at the training loss before the first evaluation: if it is NaN or 0, the training diverged."),
            Fix("Evaluate in bf16 or fp32.", ("TrainingArguments(bf16=True, fp16_full_eval=False)",)),
            Fix(
                "Check that each evaluated sample has labels.",
                ("batch = next(iter(eval_dataloader)); print((batch['labels'] != -100).sum(1))",),
            ),
        ),
        {"line": lost.text, "times": lost.times},
        place=Place(lost.file, lost.line),
    )


@check(
    Severity.ERROR,
    source="https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py",
    role="secondary",
    kind="script",
    tags=("precise",),
)
def log_all_steps_skipped(log: Log) -> Answer:
    """DeepSpeed skipped every step since the start: the weights never changed.

    Why: The gradients are infinite or NaN in each step, so the optimizer does nothing. The first steps of fp16 are
    skipped in a normal run, too, until the loss scale fits.

    Fix: Train in bf16. Otherwise look for the first operation with NaN.
    """
    skipped, steps = _shown(log, "all_steps_skipped"), _shown(log, "some_steps_skipped")
    if skipped is None or steps is None or skipped.times < _LEAST_SKIPPED or steps.times != skipped.times:
        return Ok("no run in which every step was skipped")
    return Problem(
        f"every step was skipped, in all {skipped.times} reports of DeepSpeed: nothing is learned",
        "DeepSpeed counts the steps whose gradients were infinite or NaN, and their number is that of all steps. The "
        "printed loss only changes with the batch. fp16 overflows in every step (models trained in bf16 do that), or "
        "the loss or the data has NaN.",
        (
            Fix("Train in bf16.", ('"bf16": {"enabled": true}, "fp16": {"enabled": false}',)),
            Fix("Look for the first NaN.", ("torch.autograd.set_detect_anomaly(True)",)),
        ),
        {"line": skipped.text, "times": skipped.times},
        place=Place(skipped.file, skipped.line),
    )


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/generated/torch.isnan.html",
    role="secondary",
    kind="script",
    because_of=("log_tensor_not_finite", "log_samples_masked"),
)
def log_loss_stays_nan(log: Log) -> Answer:
    """The training loss is NaN from some step on until the log ends, and the program went on without an error.

    Why: Once the weights have NaN values, every later loss is NaN: nothing is learned any more, and the checkpoints
    that are saved from then on are not usable. A loss that is NaN from the first step comes from the data, the
    initial weights or fp16.

    Fix: Continue from the last checkpoint before it, with a lower learning rate, clipped gradients, or in bf16.
    """
    lost, finite = _shown(log, "training_loss_nan"), _shown(log, "training_loss_finite")
    if lost is None or lost.times < _LEAST_LOSSES:
        return Ok("no training loss that is NaN until the end")
    if finite is not None and (finite.file != lost.file or finite.last > lost.line):  # lines of two files have no order
        return Ok("no training loss that is NaN until the end")
    if any(one.signature == "log_loss_is_nan" and not one.survived for one in log.seen):
        return Ok("log_loss_is_nan")
    since = f"the last {lost.times} times, from line {lost.line:,} on" if finite else f"all {lost.times} times"
    return Problem(
        f"the training loss is NaN {since}{'' if finite else ', from the start'}: the model no longer learns",
        "The weights have NaN values by then, and every later loss is NaN. The learning rate is too high, a step "
        "divided by zero or took the logarithm or root of 0, fp16 overflowed, or a batch was empty or had NaN in it. "
        "Checkpoints from then on are not usable."
        if finite
        else "No loss is a number, also not the first one: the data or the labels have NaN, the initial or loaded "
        "weights do, fp16 overflows, or the loss itself divides by zero (an empty batch, a mask without entries).",
        (
            Fix("Find the first operation with NaN.", ("torch.autograd.set_detect_anomaly(True)",)),
            Fix("Look for NaN in the data.", ("assert torch.isfinite(batch).all()",)),
            Fix(
                "Lower the learning rate, and clip the gradients.",
                ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",),
            ),
        ),
        {"line": lost.text, "times": lost.times},
        place=Place(lost.file, lost.line),
    )


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/generated/torch.isfinite.html",
    role="secondary",
    kind="script",
    tags=("precise",),
)
def log_tensor_not_finite(log: Log) -> Answer:
    """The program's own checks show a tensor with NaN before the loss was NaN.

    Why: The NaN was there before the model computed anything from it: in a file, in a feature that another model
    computed in fp16, or in a division by zero while the data was prepared. The learning rate is not the cause.

    Fix: Look for the NaN where that tensor is made, before the training.
    """
    tensor = _shown(log, "tensor_not_finite")
    loss = next((one for one in log.seen if one.signature == "log_loss_is_nan" and not one.survived), None)
    if tensor is None or loss is None or (tensor.file == loss.file and tensor.line > loss.line):
        return Ok("no tensor with NaN before a loss with NaN")
    found = _NAME.search(tensor.text)
    name = f"{found['name']} has" if found else "a tensor has"
    return Problem(
        f"{name} NaN values before the loss is NaN",
        "The line is from the program's own checks, and the first with NaN. The loss is NaN because of this tensor: a "
        "damaged file, features that an encoder computed in fp16, or a division by zero while the data was prepared. "
        "The learning rate is probably not the cause.",
        (
            Fix(
                "Check the tensor where it is made, and skip or repair such samples.",
                ("assert torch.isfinite(tensor).all(), path",),
            ),
            Fix("If another model computes it in fp16, compute it in fp32 or bf16.", ("encoder.float()",)),
        ),
        {"line": tensor.text, "loss": loss.text, "times": tensor.times},
        place=Place(tensor.file, tensor.line),
    )


@check(
    Severity.ERROR,
    source="https://github.com/haotian-liu/LLaVA/issues/1166",
    role="secondary",
    kind="script",
    tags=("precise",),
)
def log_samples_masked(log: Log) -> Answer:
    """Samples are left out of the loss: their text has other tokens than the conversation template expects.

    Why: LLaVA, InternVL and their descendants compare the length of each sample with that of its masked turns. If they
    differ, all labels of the sample are masked: the model learns nothing from it. With all samples the loss is 0.

    Fix: Use the conversation template of the base model, and the release of transformers that the project names.
    """
    masked = _shown(log, "samples_masked")
    ended = log.finished or log.fallen or any(not error.caught and not error.of_launcher for error in log.raised)
    if masked is None or masked.times < max(_LEAST_MASKED, _MASKED_SHARE * log.lines) or ended:
        return Ok("no samples that a tokenization mismatch leaves out")
    return Problem(
        f"{masked.times} samples are not trained on: the conversation template does not fit the tokenizer",
        "The length of a sample differs from that of its turns (tokenization mismatch), so all of its labels are "
        'masked. "Ignored" means the sample, not the warning. If it happens with nearly all samples, the loss is 0 and '
        "the model learns nothing. The same difference in each line is a special token that the template or the "
        "tokenizer adds.",
        (
            Fix(
                "Use the template of the base model.",
                ("--version llama_3", "--version v1", "--conv_style internvl2_5"),
            ),
            Fix(
                "Install the release of transformers and tokenizers that the project names.", ("pip show transformers",)
            ),
            Fix("If only some samples have it, look for empty turns or missing <image> tokens in them."),
        ),
        {"line": masked.text, "times": masked.times},
        place=Place(masked.file, masked.line),
    )
