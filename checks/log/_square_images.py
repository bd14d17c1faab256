"""Does a check of the script's own code require images that are square, or of the size that the model was built for?"""

from __future__ import annotations

import ast
import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException

from .._followed_values import parsed
from ._own_objects import Meaning

_SIDES = ({2, 3}, {-1, -2})  # of an image (N, C, H, W); (C, H, W) and others cannot be known from two positions
_SIZE = re.compile(r"(?P<of>[A-Za-z_][\w.]*)\.(?:shape\[(?P<shape>-?\d)\]|size\((?P<size>-?\d)\))")
_IMAGE = re.compile(r"img|image|patch|(?:^|[._])pics?(?:_|$)", re.IGNORECASE)
_NO_IMAGE = re.compile(r"attn|attention|score|sim|cov|matrix|mask", re.IGNORECASE)
_SETTING = re.compile(r"(?:self\.|\w+\.)*(?:\w*(?:resolution|img_size|image_size|input_size|patch_size|crop_size)\w*)")


def not_square(one: UncaughtException, condition: str, printed: str) -> Meaning | None:
    """Explain a check that both sides of an image are equal: x.shape[2] == x.shape[3] == self.resolution."""
    tree = parsed(f"_({condition})")
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)] if tree else []
    if len(compared) != 1 or not all(isinstance(op, ast.Eq) for op in compared[0].ops):
        return None
    parts = [ast.unparse(part) for part in (compared[0].left, *compared[0].comparators)]
    sides = [found for part in parts if (found := _SIZE.fullmatch(part))]
    others = [part for part in parts if not _SIZE.fullmatch(part)]
    at = {int(found["shape"] or found["size"]) for found in sides}
    if len(sides) != 2 or at not in _SIDES or len({found["of"] for found in sides}) != 1 or len(others) > 1:
        return None
    setting = others[0] if others and _SETTING.fullmatch(others[0]) else None
    name = sides[0]["of"]
    if (others and not setting) or (not others and not _IMAGE.search(name)) or _NO_IMAGE.search(name):
        return None  # a matrix of attention is square, too
    wanted = f" to each other and to {setting}" if setting else ""
    shown = (
        python("print({:dotted}.shape, {:dotted})", name, setting)
        if setting
        else python("print({:dotted}.shape)", name)
    )
    resized = f"{setting}, which is set in the config or where the model is made" if setting else "the same side"
    return Meaning(
        f"{name} is not a square image{f' of the size {setting}' if setting else ''} ({one.place})",
        f"The code requires that the height and the width of {name} are equal{wanted}. The images or "
        f"patches of this run have another size than the model was built for: they are not cut or resized, or the "
        f"config is one for other data. It is not about a GPU.{printed}",
        (
            Fix("Print the sizes before that line.", (shown,)),
            Fix(
                f"Cut or resize the images to {resized}, and the masks and boxes of a sample with them.",
                ("transforms.Compose([transforms.Resize(SIZE), transforms.CenterCrop(SIZE)])",),
            ),
            *((Fix(f"If they are square, set {setting} to their size."),) if setting else ()),
        ),
    )
