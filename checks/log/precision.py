"""Did the computation fail: mismatched dtypes, overflow, NaN?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from . import _dtype_cases, _plain_torch_cases
from ._circumstances import every, said, shown
from ._image_cases import STOPPED_AT_NAN, WENT_ON_WITH_NAN
from ._nan_steps import STOPPED_AFTER_NAN
from ._plain_script_cases import in_plain_script, types_differ

_AMP = "https://pytorch.org/docs/stable/amp.html"
_PEFT = "https://github.com/huggingface/peft/blob/main/docs/source/developer_guides/troubleshooting.md"
_SCALER = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/fp16/loss_scaler.py"
_ANOMALY = "https://pytorch.org/docs/stable/autograd.html#anomaly-detection"
_BF16 = Fix(
    "Use bf16 if the GPUs support it.",
    ("torch.autocast('cuda', dtype=torch.bfloat16)", "accelerate launch --mixed_precision bf16 ..."),
)

# fmt: off
_NAN_IN_FP32 = Case(
    every(shown("computes_in_fp32"), shown("training_loss_finite")),
    "the loss is NaN, or exactly 0 with NaN gradients, in fp32: the model no longer learns",
    "The log says that it computes in fp32, which rarely overflows, and losses before were numbers. What is left: all "
    "labels of a batch are masked, so that the mean is 0 / 0 (one short sample per batch, a prompt longer than the "
    "limit), the learning rate is too high (the loss rose before), or a division, logarithm or root of 0.",
    (Fix("Skip batches without a label, or allow longer sequences and more samples per batch.",
         ("assert (batch['labels'] != -100).any(dim=-1).all()",)),
     Fix("Lower the learning rate, and clip the gradients.",
         ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",)),
     Fix("Find the first operation with NaN.", ("torch.autograd.set_detect_anomaly(True)",))),
    "COMPUTE_DTYPE: torch.float32 (bf16 not supported)\nstep 1 | loss: 5.47 | lr 0.3\nstep 2 | loss: nan | lr 0.3\n",
    _ANOMALY)
_BACKWARD = said(r"Function '\w+' returned nan values")
_IN_NUMPY = Fix("Start with the lines that the RuntimeWarnings name: print what is divided, and guard counts and sums "
                "that are 0.", ("np.seterr(all='raise')  # stops at the first one",
                                "weights = 1 / np.maximum(counts, 1)"))
_FORWARD = Fix("Find the forward call that torch printed above, after \"Error detected in\": its last line made the "
               "value.", ("print(torch.isfinite(x).all(), x.min(), x.max())  # before that line",))
_NUMPY_BEFORE = (
    "numpy divided by zero, or computed NaN, before it ({shown_array_not_finite}): a count or a sum that is 0 becomes "
    "inf or NaN, and gets into the loss as a weight of a class, a mean or a normalization.")
_NAN = "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.\n"
_WARNED = "/x/weights.py:161: RuntimeWarning: divide by zero encountered in true_divide\n"
_OF_ARRAYS_IN_BACKWARD = Case(
    every(_BACKWARD, shown("array_not_finite")),
    "the backward pass of an operation gave NaN: probably from a value that numpy divided by zero",
    _NUMPY_BEFORE, (_IN_NUMPY, _FORWARD), f"{_WARNED}{_NAN}",
    "https://numpy.org/doc/stable/reference/generated/numpy.errstate.html")
_OF_ARRAYS = Case(
    shown("array_not_finite"),
    "training stopped because its loss or output is NaN or infinite: probably from a value that numpy divided by zero",
    _NUMPY_BEFORE, (_IN_NUMPY, Fix("If that value does not reach the loss, find the operation.",
                                   ("torch.autograd.set_detect_anomaly(True)",))),
    f"{_WARNED}Loss is nan, stopping training\n",
    "https://numpy.org/doc/stable/reference/generated/numpy.errstate.html")
_IN_BACKWARD = Case(
    _BACKWARD,
    "the backward pass of an operation gave NaN",
    "torch's anomaly mode found it. Usual reasons: sqrt, norm, log, pow or a division at 0, an infinite weight in the "
    "loss (a class without samples), fp16 that overflows, or weights that are NaN already.",
    (_FORWARD, _BF16), _NAN, _ANOMALY)
ROWS = (
    Row("computes_in_fp32", "context", "script",
        r"(?i:compute[_ ]d?type|mixed[_ ]precision|\btraining precision)['\"]?\s?[:=]\s?['\"]?"
        r"(?:torch\.)?(?:float32|fp32)\b|\b[Nn]ot supported, using fp32\b",
        ("COMPUTE_DTYPE: torch.float32 (auto-detected)", "mixed precision: fp32"), "", "",
        Fix("No action needed.", ()), _AMP),
    Row("log_fp16_gradients_unscaled", "root", "script", r"Attempting to unscale FP16 gradients",
        ("ValueError: Attempting to unscale FP16 gradients.",),
        "fp16 parameters are trained with fp16 mixed precision",
        "Mixed precision needs trained parameters in fp32, but the model was loaded in fp16 (torch_dtype, .half()).",
        (Fix("Keep trained parameters in fp32.", ("model.float()  # not model.half()",
                                               "from_pretrained(..., torch_dtype=torch.float32)",
                                               "peft.cast_mixed_precision_params(model, dtype=torch.float16)")), _BF16),
        _PEFT),
    Row("log_no_gradients_to_scale", "root", "script", r"No inf checks were recorded (?:for this|prior)",
        ("AssertionError: No inf checks were recorded for this optimizer.",),
        "the optimizer's parameters got no gradients",
        "They are frozen, belong to another copy of the model than the one that is trained (such as that before "
        "prepare()), or the scaled loss had no backward() before this step.",
        Fix("Create the optimizer from the parameters of the model that is trained, and scale each loss.",
            ("scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
             "mgpu doctor --script train.py")), _AMP),
    Row("log_loss_scale_exhausted", "root", "script", r"loss scale already at minimum",
        ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",),
        "fp16 overflows in every step",
        "Gradients are infinite or NaN at any scale. The model needs bf16, the learning rate is too high, or the data "
        "is bad.", (_BF16, Fix("Lower the learning rate, use a longer warmup, clip gradients.", ())), _SCALER),
    Row("log_loss_not_finite", "root", "script",
        r"[Ll]oss is (?:nan|NaN|inf), (?:stopping|aborting|exiting)|(?:Error|Exception): .*\b[Ll]oss is "
        r"(?:nan|NaN|inf)|Function '\w+' returned nan values in its|"
        r"probability tensor contains either `inf`, `nan`|Encountered (?:nan|NaN|inf) (?:in|loss|values)",
        ("Loss is nan, stopping training", "ValueError: The loss is NaN. Stopping training.", "RuntimeError: Function "
                                                                                              "'MulBackward0' returned "
                                                                                              "nan values in its 0th "
                                           "output.",
         "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
        "training stopped because its loss or output is NaN or infinite",
        "The learning rate is too high, fp16 overflows, an empty batch causes a division by zero, or one GPU computes "
        "wrong results.",
        (_BF16, Fix("Find the operation, and check whether one GPU is faulty.",
                    ("torch.autograd.set_detect_anomaly(True)", "mgpu smoke-test",
                     "mgpu doctor --deep --only gpu_results_differ"))), _ANOMALY,
        cases=(STOPPED_AFTER_NAN, _plain_torch_cases.NO_PROBABILITIES, _OF_ARRAYS_IN_BACKWARD, _OF_ARRAYS,
               _IN_BACKWARD, STOPPED_AT_NAN)),
    Row("log_loss_is_nan", "secondary", "script",
        r"'loss': nan\b|'loss': 'nan'|\"loss\": NaN\b|(?<![\w.])(?:total_|train_|training_)?loss=nan\b|"
        r"(?<![\w.])(?<!\bval )(?<!\btest )(?<!\bvalid )(?<!\beval )(?<!\bvalidation )loss: nan\b|"
        r"\|\| (?:[\w-]+ ){0,3}Loss: nan (?=\|\|)|"
        r"(?<!finite )\bloss nan(?=\s*(?:[,;|]\s*(?!skip)|$))|"
        r"'loss': 0\.0, 'grad_norm': nan\b|'loss': '0', 'grad_norm': 'nan'",
        ("{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}",
         "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9.99e-05, 'epoch': 0.0}",
         "{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '9.99e-05', 'epoch': '0.01'}",
         "Epoch 1:  10%|#         | 10/100 [00:10<01:40,  1.1s/it, loss=nan]", "step 40 loss: nan lr: 1e-4",
         "  2%|2         | 8/400 [00:04<03:46,  1.7it/s, cls_loss=0.4, total_loss=nan]",
         "Iters: 10/80000 || Lr: 0.019998 || Task Loss: nan || KD Loss: nan ||",
         "iter 3010: loss nan, time 1019.95ms, mfu 14.12%"),
        "the loss is NaN, or exactly 0 with NaN gradients: the model no longer learns",
        "fp16 overflows, the learning rate is too high, all labels of a batch are masked (-100, samples cut too "
        "short), or the attention kernel does not support this GPU or padding. If it happens on several GPUs only, "
        "they may exchange wrong values.",
        (_BF16, Fix("Check that each sample has labels, and try another attention.",
                    ("assert (batch['labels'] != -100).any(dim=-1).all()",
                     "from_pretrained(..., attn_implementation='eager')")),
         Fix("Find the first operation with NaN.", ("torch.autograd.set_detect_anomaly(True)",)),
         Fix("Compare with one GPU, and test the exchange.", ("mgpu launch --gpus 1 train.py", "mgpu smoke-test"))),
        "https://github.com/hiyouga/LlamaFactory/issues/8088",
        because_of=("log_tensor_not_finite", "log_samples_masked"), cases=(_NAN_IN_FP32, WENT_ON_WITH_NAN)),
    Row("log_types_differ", "root", "script",
        r"expected scalar type \w+ but found \w+|Found dtype (?!Long)\w+ but expected (?:BFloat16|Half|Float)|"
        r"mat1 and mat2 must have the same dtype|"
        r"expected m1 and m2 to have the same dtype|expected mat1 and mat2 to have the same dtype|"
        r"Expected query, key, and value to have the same dtype|self and mat2 must have the same dtype|"
        r"Data types for parameters must match when outside of autocast|"
        r"Index put requires the source and destination dtypes match|query and key must have the same dtype|"
        r"Flash ?Attention(?:-\d)? only supports? (?:fp16|bf16)|"
        r"Input type \((?:torch\.cuda\.\w+\) and bias type \((?:torch\.cuda\.|(?!torch\.))|"
        r"torch\.(?!cuda\.)\w+\) and bias type \((?:torch\.(?!cuda\.)|(?!torch\.))|(?!torch\.)[^)]+\) and bias type)|"
        r"\"\w+\" not implemented for '(?:Half|BFloat16|Float8)",
        ("RuntimeError: expected scalar type Half but found Float",
         "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
         "RuntimeError: FlashAttention only support fp16 and bf16 data type",
         "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
         "RuntimeError: Expected query, key, and value to have the same dtype, but got query.dtype: float key.dtype: "
         "float and value.dtype: c10::BFloat16 instead.",
         "RuntimeError: Index put requires the source and destination dtypes match, got Float for the destination and "
         "BFloat16 for the source."),
        "two tensors have different dtypes (fp16, bf16, fp32), or an operation does not support one",
        "Part of the model was loaded in a different dtype, or runs outside of autocast. On the CPU, many operations "
        "do not support fp16.",
        Fix("Load everything in one dtype, and compute inside autocast.",
            ("with accelerator.autocast():", "model.to(torch.bfloat16)")), _AMP,
        cases=(*_plain_torch_cases.TYPES, *_dtype_cases.DTYPES), explain=types_differ),
    Row("log_value_overflows", "root", "script", r"cannot be converted to type (?P<type>\S+) without overflow",
        ("RuntimeError: value cannot be converted to type at::Half without overflow",),
        "a constant in the model is too large for {type}",
        "Masks filled with -1e9 or similar values do not fit in fp16.",
        (_BF16, Fix("Use the smallest value of the dtype.", ("torch.finfo(x.dtype).min",))), _AMP,
        summary="A constant in the model is too large for its dtype."),
    Row("log_overflow_skipped", "noise", "script", r"OVERFLOW! Rank \d+ Skipping step|overflow detected, skipping step",
        ("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",),
        "fp16 searches for its loss scale", "Normal in the first steps.", Fix("No action needed.", ()), _SCALER),
    Row("log_distribution_invalid", "root", "script",
        r"normal expects all elements of std >= 0\.0|Expected (?:parameter \w+|value argument) \(.{0,400}"
        r"(?:to satisfy the constraint|but found invalid values)",
        ("RuntimeError: normal expects all elements of std >= 0.0",
         "ValueError: Expected parameter logits (Tensor of shape (4, 6)) of distribution Categorical(logits: "
         "torch.Size([4, 6])) to satisfy the constraint IndependentConstraint(Real(), 1), but found invalid values:"),
        "the policy or the model diverged: a distribution got NaN, or a scale that is not positive",
        "torch checks the values before it samples. NaN comes from a loss or a gradient of an earlier step, a scale "
        "below 0 from an output that is not passed through softplus or exp.",
        (Fix("Lower the learning rate and clip the gradients, and stop at the first loss that is not finite.",
             ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "assert torch.isfinite(loss)")),
         Fix("Keep the scale positive.", ("std = torch.nn.functional.softplus(raw) + 1e-4",))),
        "https://github.com/pytorch/pytorch/blob/main/torch/distributions/distribution.py",
        summary="A distribution got parameters that are NaN or out of its range.", explain=in_plain_script),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
