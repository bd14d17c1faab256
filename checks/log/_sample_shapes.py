"""What do the two sizes of samples that cannot be stacked say: channels, images, or texts of different lengths?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_SIZES = re.compile(r"got \[(?P<one>[\d, ]*)\] at entry \d+ and \[(?P<other>[\d, ]*)\] at entry \d+")
_STACKED = re.compile(r"\b(?:stack|cat|concat|vstack|hstack)\(")
_COLLATES = re.compile(r"(?i)collat|torch/utils/data/| in batch\w*$")
_OF_SOUND, _OF_IMAGES = frozenset({1, 2}), frozenset({1, 2, 3, 4})
_SMALLEST_IMAGE = 8
_SMALLEST_AUDIO = 1000  # samples of a sound, at least: images are rarely that wide, and text never
_SAMPLES = re.compile(r"audio|wav|sound|speech|music|mel\b", re.I)


def explain_shapes(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain samples of different sizes by what differs; None if the message has no sizes."""
    if not (found := _SIZES.search(raised.message if raised else "")):
        return None
    one, other = ([int(number) for number in re.findall(r"\d+", found[name])] for name in ("one", "other"))
    sizes = f"[{found['one']}] and [{found['other']}]"
    if raised and _STACKED.search(raised.own_code or "") and not any(map(_COLLATES.search, raised.frames)):
        return _of_script(sizes, raised)
    if len(one) != len(other):
        return _other_dimensions(sizes, len(one), len(other))
    differing = [place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right]
    ends = {0, len(one) - 1}
    at_end = len(one) in (2, 3) and len(differing) == 1 and differing[0] in ends
    if at_end and (meant := _of_channels(sizes, one, other, differing[0], raised)):
        return meant
    if len(one) == 1:
        return _of_lengths(sizes)
    if len(one) == 2 and 1 in differing:
        return _of_last(sizes)
    return _of_images(sizes) if len(one) >= 3 and max(one + other) > 4 else _of_rows(sizes)


def _of_script(sizes: str, raised: UncaughtException) -> Meaning:
    """Explain tensors that the script's own line stacks, outside of a collate function."""
    return Meaning(
        f"tensors of different sizes are stacked: {sizes} ({raised.place})",
        "torch.stack() makes a new dimension, and needs tensors of one shape. They were read or computed in different "
        "sizes, or the last one is of a smaller batch.",
        (
            Fix("Print their shapes, and find the one that differs.", ("print([x.shape for x in tensors])",)),
            Fix(
                "Resize, pad or cut them to one shape, or join them along the dimension that differs.",
                ("torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)", "torch.cat(tensors, dim=0)"),
            ),
        ),
    )


def _of_channels(
    sizes: str, one: list[int], other: list[int], place: int, raised: UncaughtException | None
) -> Meaning | None:
    numbers = sorted((one[place], other[place]))
    rest = [size for at, size in enumerate(one) if at != place]
    frames = " ".join((*(raised.frames if raised else ()), (raised.code or "") if raised else ""))
    of_sound = rest[0] >= _SMALLEST_AUDIO or _SAMPLES.search(frames)
    if len(one) == 2 and of_sound and {*numbers} <= _OF_SOUND:
        return Meaning(
            f"samples of different sizes cannot be stacked into a batch: {sizes}, probably mono and stereo sound",
            f"Some files have {numbers[0]} channel{'s' if numbers[0] > 1 else ''}, others {numbers[1]}. The lengths "
            "are equal.",
            (
                Fix(
                    "Give all samples the same number of channels when a file is read.",
                    (python("x = x.mean(dim={:number}, keepdim=True)  # mono", place),),
                ),
            ),
        )
    if len(one) == 2 or min(rest) < _SMALLEST_IMAGE or not {*numbers} <= _OF_IMAGES:
        return None
    return Meaning(
        f"samples of different sizes cannot be stacked into a batch: {sizes}, so images have {numbers[0]} and "
        f"{numbers[1]} channels",
        "Some files are gray or have a transparency channel, others are RGB.",
        (Fix("Convert every image when it is read.", ("Image.open(path).convert('RGB')",)),),
    )


def _of_images(sizes: str) -> Meaning:
    return Meaning(
        f"samples of different sizes cannot be stacked into a batch: {sizes}",
        "The default collate function only stacks. Images, videos or volumes were not brought to one size, a resize "
        "with one number kept their proportions, or spectrograms have different lengths.",
        (
            Fix(
                "Resize to both sides, or resize and crop.",
                ("transforms.Resize((224, 224))", "transforms.Resize(256), transforms.CenterCrop(224)"),
            ),
            Fix("Or pad in a collate function of your own, or use batches of one.", ("DataLoader(..., batch_size=1)",)),
        ),
    )


def _of_lengths(sizes: str) -> Meaning:
    return Meaning(
        f"samples of different lengths cannot be stacked into a batch: {sizes}",
        "The default collate function only stacks. Texts, sounds and lists of labels have different lengths.",
        (
            Fix(
                "Pad in a collate function. For texts of a tokenizer:",
                ("DataLoader(..., collate_fn=DataCollatorWithPadding(tokenizer))",),
            ),
            Fix(
                "For other sequences:",
                ("torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)",),
            ),
        ),
    )


def _of_rows(sizes: str) -> Meaning:
    return Meaning(
        f"samples of different sizes cannot be stacked into a batch: {sizes}",
        "The default collate function only stacks. The samples have different numbers of rows: time steps, points, "
        "boxes or objects.",
        (
            Fix(
                "Pad or cut them in a collate function, or keep them in a list.",
                (
                    "torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)",
                    "DataLoader(..., collate_fn=lambda batch: tuple(zip(*batch)))",
                ),
            ),
        ),
    )


def _of_last(sizes: str) -> Meaning:
    return Meaning(
        f"samples of different sizes cannot be stacked into a batch: {sizes}",
        "The default collate function only stacks. The last dimension differs: texts of a tokenizer that was called "
        "with return_tensors='pt' ([1, tokens]), sounds ([channels, samples]), or other numbers of columns.",
        (
            Fix(
                "Call the tokenizer without return_tensors, and pad in a collate function.",
                ("DataLoader(..., collate_fn=DataCollatorWithPadding(tokenizer))",),
            ),
            Fix("Pad or cut the end of other samples.", ("x = F.pad(x, (0, longest - x.shape[-1]))",)),
        ),
    )


def _other_dimensions(sizes: str, one: int, other: int) -> Meaning:
    return Meaning(
        f"samples of different sizes cannot be stacked into a batch: {sizes}",
        f"One has {one} dimensions and another {other}: gray images without a channel, samples that are already a "
        "batch, or an empty sample.",
        (Fix("Bring every sample to the same dimensions when it is read.", ("x = x.unsqueeze(0)",)),),
    )
