"""What cannot be put into a batch, made into a tensor, drawn or sent to a process? Cases and texts for `tensors.py`."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException

from ._circumstances import every, in_own_line, never, own_line, said, within

_DATA = "https://docs.pytorch.org/docs/stable/data.html"
_SCRIPT = 'Traceback (most recent call last):\n  File "/x/fit.py", line 7, in main\n    {line}\n'
# fmt: off
_OWN_COLLATE = "DataLoader(..., collate_fn=lambda samples: samples)  # a list, without a tensor"
_BY_TYPE = (
    ("PIL.", "An image of PIL is not a tensor: no transform ran, or the list of transforms has no ToTensor().",
     Fix("Convert images in the dataset.", ("transform=transforms.ToTensor()",
                                            "torchvision.transforms.functional.to_tensor(image)"))),
    ("NoneType", "The dataset returned None for a sample or one of its fields: a file that could not be read, a branch "
     "without return, or a field that is not set.",
     Fix("Return a value from each path, or leave out samples that failed.",
         ("DataLoader(..., collate_fn=lambda samples: default_collate([s for s in samples if s is not None]))",))),
    ("object", "An array of numpy holds objects: texts, lists of different lengths, None, or a table's column of mixed "
     "types.", Fix("Convert it to numbers in the dataset.", ("torch.as_tensor(row.astype('float32'))",))),
    ("", "default_collate joins tensors, arrays and numbers, and dicts, lists and tuples of these. Texts stay a list.",
     Fix("Return what can be joined, or give the loader a collate function of your own.",
         ("torch.tensor(float(value))", _OWN_COLLATE))),
)
LISTS_DIFFER = Case(
    every(in_own_line, own_line(r"(?i)tensor\("), never(within(r"^(?:transformers|trl|datasets)/"))),
    "a list whose rows have different lengths is made into a tensor ({the_place})",
    "A tensor has rows of one length. The message has the length of the first list, and of the one that differs. The "
    "line is \"{the_line}\".",
    (Fix("Find the rows that differ, where the list is made.", ("print({{len(row) for row in rows}})",)),
     Fix("If lengths may differ, pad the rows, or keep a list of tensors.",
         ("nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)",))),
    _SCRIPT.format(line="x = torch.tensor(rows)") + "ValueError: expected sequence of length 5 at dim 1 (got 4)", _DATA)
OWN_GENERATOR = Case(
    own_line(r"\bgenerator ?=(?!=)"),
    "the random generator that {the_place} passes is on {found}, and the numbers are drawn on {wanted}",
    "A generator draws on its own device only. The line is \"{the_line}\".",
    (Fix("Make the generator on the device of the tensor, or draw on the generator's device and move the result.",
         ("generator = torch.Generator(device=x.device).manual_seed(0)",
          "torch.randn(shape, generator=generator, device=generator.device).to(x.device)")),),
    _SCRIPT.format(line="x = torch.randn(4, device='cuda', generator=g)")
    + "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
    "https://docs.pytorch.org/docs/stable/generated/torch.Generator.html")
NOT_SENT = Case(
    every(own_line(r"\.(?:i?map\w*|starmap\w*|apply\w*|submit|start)\(|\b(?:Process|Pool|Parallel|spawn)\("),
          never(said(r"generator' object")), never(within(r"torch/utils/data/|^datasets/"))),
    "what another process should run, or its arguments, cannot be pickled",
    "A pool gets its function and its arguments as a pickled copy, and so does a process that is started with spawn, "
    "which Windows and macOS do. Lambdas, functions and classes inside of a function, open files, locks and "
    "connections cannot be pickled. An object that is passed, also as the self of a method, can hold one.",
    (Fix("Define the function at the top of a module, and open files in the process.",
         ("functools.partial(work, size=size)  # in place of a lambda",)),
     Fix("To find the object, pickle each argument by itself.", ("pickle.dumps(argument)",))),
    _SCRIPT.format(line="pool.map(lambda one: work(one), files)")
    + "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f>: attribute lookup <lambda> failed",
    "https://docs.python.org/3/library/multiprocessing.html#programming-guidelines")
# fmt: on


def not_collated(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain what the dataset returns that cannot be put into a batch, by its type."""
    if raised is None:
        return None
    kind = groups["type"]
    why, fix = next((why, fix) for mark, why, fix in _BY_TYPE if mark in kind)
    return Meaning(
        f"the dataset returns {kind}, which cannot be put into a batch",
        why,
        (Fix("Look at one sample.", ("print(dataset[0])",)), fix),
    )
