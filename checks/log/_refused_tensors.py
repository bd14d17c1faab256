"""Which tensor or array of the script's line do torch and numpy refuse, by its shape, its type or its number of items?

Their messages have the sizes and types, and the line of code the names. Texts for `exceptions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from .._wording import at_place
from ._compared_arrays import two_arrays
from ._messages import short_name
from ._own_objects import NAME, PLAIN, Meaning

_SUBSCRIPT = re.compile(rf"(?<![\w.])(?P<of>{PLAIN})\[[^\[\]]*,[^\[\]]*\]")
_TEXT_KEY = re.compile(rf"(?<![\w.])(?P<of>{PLAIN})\[(?P<key>'\w+'|\"\w+\")\]")
_STACKED = re.compile(
    rf"\b(?:np|numpy|torch|jnp)\.(?:stack|concatenate|vstack|hstack|cat)\(\[?\*?(?P<of>{NAME})(?=[,)\]])"
)
_REDUCED = re.compile(rf"\b(?:max|min|amax|amin|argmax|argmin)\((?P<of>{NAME})(?=[,)])")
_NORMALIZES = re.compile(r"torchvision|sub_\(mean|(?i:normaliz)")
_PARTS_OF_HIDDEN = ("layers x directions", "batch", "hidden size")


def _own_code(one: UncaughtException) -> str:
    """Return the line of the script's own code through which the exception passed."""
    return (one.code if one.raised_in_own_code else one.own_code) or one.own_code or ""


def _only(pattern: re.Pattern[str], code: str) -> str | None:
    """Return the name that a pattern finds, if it finds only one."""
    names = {match["of"] for match in pattern.finditer(code)}
    return names.pop() if len(names) == 1 else None


def _sizes(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _print_shape(name: str | None) -> Fix:
    command = python("print({:dotted}.shape)", name) if name and re.fullmatch(PLAIN, name) else "print(x.shape)"
    return Fix("Print the shape before that line.", (command,))


def _not_square(found: re.Match[str], one: UncaughtException) -> Meaning:
    return Meaning(
        f"{found['call']} needs square matrices, and gets {found['rows']} by {found['columns']}{at_place(one)}",
        "The last two dimensions of its input differ: a slice cuts only one of them, the dimensions are in another "
        "order, or the input is a batch of vectors.",
        (_print_shape(None), Fix("Cut or arrange both of the last two dimensions.", ("A[..., :n, :n]", "A.mT @ A"))),
    )


def _not_floating(found: re.Match[str], one: UncaughtException) -> Meaning:
    groups = found.groupdict()
    call, got = groups.get("call") or groups.get("call2") or "the operation", groups.get("got") or groups.get("got2")
    return Meaning(
        f"{call.rstrip('()')} computes with floating point numbers, and gets a tensor of type {got}{at_place(one)}",
        "Token ids, labels, masks and counts are integers, and a tensor that is made with dtype=x.dtype or from Python "
        "integers becomes one, too.",
        (
            Fix(
                "Convert it before, or make it as floating point.", ("x.float()", "torch.zeros(n, dtype=torch.float32)")
            ),
        ),
    )


def _types_of_two(found: re.Match[str], one: UncaughtException) -> Meaning:
    first, second = found["first"], found["second"]
    return Meaning(
        f"{found['call']} gets tensors of two types, {first} and {second}{at_place(one)}",
        "It does not convert them. One of them was made from integers, from numpy (float64, Double), or in half "
        "precision.",
        (Fix("Convert the second to the type of the first.", ("b = b.to(a.dtype)",)),),
    )


def _not_converged(which: str, one: UncaughtException) -> Meaning:
    return Meaning(
        f"the decomposition of a matrix{which} did not converge{at_place(one)}",
        "Usually the matrix has NaN or infinite values. Otherwise it is badly conditioned, or has nearly equal "
        "singular values or eigenvalues.",
        (
            Fix(
                "Check for NaN and infinite values first.",
                ("print(torch.isfinite(A).all())", "print(np.isfinite(A).all())"),
            ),
            Fix("If it has none, compute in float64.", ("torch.linalg.svd(A.double())",)),
        ),
        of_code=False,
    )


def _singular(found: re.Match[str], one: UncaughtException) -> Meaning:
    definite = "definite" in found[0]
    which = f" (item {found['item']} of the batch)" if found.groupdict().get("item") else ""
    if "converge" in found[0]:
        return _not_converged(which, one)
    what = "is not positive definite" if definite else "is singular"
    return Meaning(
        f"a matrix{which} {what}, so it cannot be solved, inverted or factorized{at_place(one)}",
        "Rows that are equal, zero or depend on each other make it so: samples that are the same, a covariance of "
        "fewer samples than features, a step whose values no longer change, or rounding in fp32.",
        (
            Fix(
                "Add a small value to its diagonal, or compute in float64.",
                (
                    "A = A + 1e-5 * torch.eye(A.shape[-1], device=A.device)",
                    "torch.linalg.solve(A.double(), b.double())",
                ),
            ),
            Fix("Check for NaN and infinite values first.", ("print(torch.isfinite(A).all())",)),
            Fix(
                "For a least squares solution, use the pseudo-inverse (on a GPU, lstsq needs full rank).",
                ("torch.linalg.pinv(A) @ b",),
            ),
        ),
        of_code=False,
    )


def _key_of_tensor(name: str, key: str, one: UncaughtException) -> Meaning:
    return Meaning(
        f"{name} is a tensor, and {one.place or 'the script'} reads its key {key} as if it were a dict",
        "torch takes a text as several indices, so its message is about these. A collate function or a dataset returns "
        "a tensor or a tuple where the code expects a dict, or the dict was unpacked before.",
        (
            Fix("Print what it is, and use it as such.", (python("print(type({:dotted}))", name),)),
            Fix("Or return a dict where the batch is made.", ("return {'ids': ids, 'labels': labels}",)),
        ),
    )


def _too_many_indices(found: re.Match[str], one: UncaughtException) -> Meaning:
    have = found["have"] or found["have2"]
    if keys := {(match["of"], match["key"]) for match in _TEXT_KEY.finditer(_own_code(one))}:
        name, key = sorted(keys)[0]
        if len(keys) == 1 and found["have"]:
            return _key_of_tensor(name, key, one)
    name = _only(_SUBSCRIPT, _own_code(one))
    asked = f"{found['asked']} indices" if found["asked"] else "more indices than that"
    number = "1 dimension" if have == "1" else f"{have} dimensions"
    return Meaning(
        f"{name or 'a tensor'} has {number}, and {one.place or 'the script'} gives it {asked}",
        "It has fewer dimensions than the code expects: the batch dimension is missing (one sample, a squeeze()), or "
        "the function returns one tensor where the code takes the first of several ([0] then takes the first row).",
        (_print_shape(name), Fix("Add the dimension, or leave out the index.", ("x.unsqueeze(0)",))),
    )


def _batches_of_matrices(found: re.Match[str], one: UncaughtException) -> Meaning:
    wanted, got = _sizes(found["wanted"]), _sizes(found["got"])
    if wanted[0] != got[0]:
        what = f"the first factor is a batch of {wanted[0]} matrices, and the second of {got[0]}"
    else:
        what = f"the rows of the first factor have {wanted[1]} items, and the second factor has {got[1]} rows"
    return Meaning(
        f"two batches of matrices cannot be multiplied: {what}{at_place(one)}",
        "For a @ b, the last dimension of a must equal the last but one of b, and the dimensions before must be equal "
        "or 1. Often one of the two has its dimensions in another order, or one unsqueeze() too many.",
        (Fix("Print both shapes, and transpose or squeeze one of them.", ("print(a.shape, b.shape)", "a.mT @ b")),),
    )


def _in_place(found: re.Match[str], one: UncaughtException) -> Meaning:
    have, wanted = found["have"], found["wanted"]
    sizes, other = _sizes(have), _sizes(wanted)
    why = (
        "+=, mul_() and other calls that end with _ keep the shape of the tensor on their left, and the result would "
        "have another one."
    )
    fix = Fix("Print both shapes, and compute out of place if the result may have another one.", ("x = x + y",))
    if 0 in other:
        why += " A size of 0 means that a tensor is empty: no sample, no term of the loss, or a mask without entries."
        fix = Fix("Print the shapes, and skip a batch without items.", ("print(x.shape, y.shape)", "y.numel() == 0"))
    elif (
        len(sizes) == len(other) == 3
        and (sizes[0], other[0]) == (1, 3)
        and _NORMALIZES.search(f"{one.code} {one.frames}")
    ):
        why = (
            "Normalize() has values for three channels, and the image has one: it is gray. Images of a dataset can "
            "differ in this."
        )
        fix = Fix(
            "Load all images with three channels, or give Normalize one value.",
            ("Image.open(path).convert('RGB')", "transforms.Grayscale(3)", "Normalize([0.5], [0.5])"),
        )
    return Meaning(
        f"a tensor of shape [{have}] cannot take a result of shape [{wanted}]{at_place(one)}", why, (fix,), False
    )


def _hidden_state(found: re.Match[str], one: UncaughtException) -> Meaning:
    wanted, got = _sizes(found["wanted"]), _sizes(found["got"])
    parts = _PARTS_OF_HIDDEN if len(wanted) == len(_PARTS_OF_HIDDEN) else _PARTS_OF_HIDDEN[::2]
    differ = [name for name, a, b in zip(parts, wanted, got, strict=False) if a != b]
    how = {
        "layers x directions": Fix(
            "Make one state for each layer, and two if it is bidirectional.",
            ("h0 = torch.zeros(num_layers * directions, batch, hidden)", "h0 = h0.repeat(num_layers, 1, 1)"),
        ),
        "batch": Fix(
            "Take the batch's size from the input: dimension 0 with batch_first=True, else 1. The last batch can be "
            "smaller.",
            (
                "h0 = torch.zeros(num_layers, x.size(0), hidden, device=x.device)  # with batch_first=True",
                "DataLoader(..., drop_last=True)",
            ),
        ),
        "hidden size": Fix("Use one hidden size for the RNN and for what makes its state."),
    }
    return Meaning(
        f"the RNN expects a hidden state of size ({found['wanted']}), and gets [{found['got']}]: "
        f"another {listed(differ) or 'number of dimensions'}{at_place(one)}",
        f"The sizes are ({', '.join(parts)}); the first is 1 for one layer in one direction. An encoder's state fits "
        "only a decoder with as many layers and directions, and a state that is kept only a batch of the same size.",
        tuple(how[name] for name in differ) or (_print_shape(None),),
    )


def _input_of_rnn(found: re.Match[str], one: UncaughtException) -> Meaning:
    return Meaning(
        f"the RNN takes {found['wanted']} features per step, and its input has {found['got']}{at_place(one)}",
        "The last dimension of the input is the number of features. It differs from input_size if columns were added "
        "or dropped, or if the dimensions have another order (batch_first).",
        (_print_shape(None), Fix("Make the layer for that size.", ("nn.LSTM(input_size=x.shape[-1], ...)",))),
    )


def _nothing_to_join(found: re.Match[str], one: UncaughtException) -> Meaning | None:
    code = _own_code(one)
    name = _only(_STACKED, code) or _only(_REDUCED, code)
    return Meaning(
        f"{name or 'a list or an array'} is empty{at_place(one)}: {found[0]}",
        "The line needs at least one item. The loop that fills it did not run or kept nothing: a loader, a split, a "
        "folder or a filter without samples (a series shorter than its window, drop_last with less than one batch).",
        (
            Fix(
                "Print the lengths where it is filled.",
                (
                    python("print(len({:dotted}))", name) if name else "print(len(items))",
                    "print(len(dataset), len(loader))",
                ),
            ),
            Fix("Check the path, the split and the filter that it comes from."),
        ),
        of_code=False,
    )


def _two_arrays(found: re.Match[str], one: UncaughtException) -> Meaning:
    return two_arrays(found, one, _own_code(one))


def _no_hook(found: re.Match[str], one: UncaughtException) -> Meaning:
    return Meaning(
        f"a hook is registered on a tensor that has no gradient{at_place(one)}",
        "It was computed under no_grad() or from integers, was detached, or gradients are turned off for all inputs "
        "and parameters (in evaluation, for example).",
        (
            Fix("Look where its path to the parameters ends.", ("print(x.requires_grad, x.grad_fn, x.dtype)",)),
            Fix("Register it only if there is a gradient.", ("if x.requires_grad: x.register_hook(hook)",)),
        ),
    )


class _Refusal(NamedTuple):
    pattern: re.Pattern[str]
    meaning: Callable[[re.Match[str], UncaughtException], Meaning | None]
    types: tuple[str, ...] = ("RuntimeError", "ValueError", "IndexError", "LinAlgError", "_LinAlgError")


_REFUSALS = (
    _Refusal(re.compile(r"cannot register a hook on a tensor that doesn't require gradient"), _no_hook),
    _Refusal(
        re.compile(
            r"(?P<call>[\w.]+): A must be batches of square matrices, but they are "
            r"(?P<rows>\d+) by (?P<columns>\d+)"
        ),
        _not_square,
    ),
    _Refusal(
        re.compile(
            r"(?P<call>[\w.]+): Expected a floating point or complex tensor as input\. Got (?P<got>\w+)|"
            r"(?P<call2>\w+)\(\): (?:could not infer output dtype\. )?[Ii]nput dtype must be either a floating point "
            r"or complex dtype\. Got: (?P<got2>\w+)"
        ),
        _not_floating,
    ),
    _Refusal(
        re.compile(
            r"(?P<call>[\w.]+): Expected \w+ and \w+ to have the same dtype, but found \w+ of type (?P<first>\w+) and "
            r"\w+ of type (?P<second>\w+)"
        ),
        _types_of_two,
    ),
    _Refusal(
        re.compile(
            r"(?:\(Batch element (?P<item>\d+)\): )?(?:The solver failed because the input matrix is singular|"
            r"The diagonal element \d+ is zero, the inversion could not be completed because the input matrix|"
            r"The factorization could not be completed because the input is not positive-definite|"
            r"The algorithm failed to converge because the input matrix)|"
            r"^(?:Singular matrix|Matrix is not positive definite|(?:SVD|Eigenvalues) did not converge)"
        ),
        _singular,
    ),
    _Refusal(
        re.compile(
            r"too many indices for (?:tensor of dimension (?P<have>\d+)|array: array is (?P<have2>\d+)-dimensional, "
            r"but (?P<asked>\d+) were indexed)"
        ),
        _too_many_indices,
    ),
    _Refusal(
        re.compile(
            r"Expected size for first two dimensions of batch2 tensor to be: \[(?P<wanted>[\d, ]+)\] but got: "
            r"\[(?P<got>[\d, ]+)\]"
        ),
        _batches_of_matrices,
    ),
    _Refusal(
        re.compile(
            r"output with shape \[(?P<have>[\d, ]*)\] doesn't match the broadcast shape \[(?P<wanted>[\d, ]*)\]"
        ),
        _in_place,
    ),
    _Refusal(
        re.compile(r"Expected hidden(?:\[\d\])? size \((?P<wanted>[\d, ]+)\), got \[(?P<got>[\d, ]+)\]"),
        _hidden_state,
    ),
    _Refusal(
        re.compile(r"input\.size\(-1\) must be equal to input_size\. Expected (?P<wanted>\d+), got (?P<got>\d+)"),
        _input_of_rnn,
    ),
    _Refusal(
        re.compile(
            r"need at least one array to (?:stack|concatenate)|stack expects a non-empty TensorList|"
            r"zero-size array to reduction operation \w+ which has no identity"
        ),
        _nothing_to_join,
    ),
    _Refusal(
        re.compile(
            r"operands could not be broadcast together with shapes \((?P<first>[\d,]+)\) \((?P<second>[\d,]+)\)"
            r"(?! ?\()"
        ),
        _two_arrays,
    ),
)


def refused_tensor(one: UncaughtException) -> Meaning | None:
    """Return what torch or numpy refuses of the tensors of the script's line; None if the message is another one."""
    short = short_name(one.type)
    for known in _REFUSALS:
        if short in known.types and (found := known.pattern.search(one.message)):
            return known.meaning(found, one)
    return None
