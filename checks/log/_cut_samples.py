"""Was a sample cut within its image or video, by what the positions of its tokens show?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning

_POSITIONS = re.compile(
    r"value tensor of shape \[3, (?P<positions>\d+)\] cannot be broadcast to indexing result of shape "
    r"\[3, (?P<left>\d+)\]"
)


def cut_within_image(one: UncaughtException) -> Meaning | None:
    """Explain a sample that has fewer tokens than positions: they are counted from the sizes of its images."""
    found = _POSITIONS.search(one.message)
    if found is None or not any(frame.endswith(" in get_rope_index") for frame in one.frames):
        return None
    positions, left = int(found["positions"]), int(found["left"])
    if positions <= left:
        return None
    return Meaning(
        f"a sample was probably cut within its image or video tokens: {left:,} tokens are left, and its images and "
        f"text need {positions:,} positions",
        "The model counts the positions of an image or video from its size (image_grid_thw), and those of the text "
        "from its tokens. max_length (cutoff_len) cuts a sequence also within an image: the placeholder is then "
        "shorter than the image.",
        (
            Fix(
                "Drop samples that are longer than the limit, or raise the limit above the longest one.",
                ("SFTConfig(max_length=None)", "cutoff_len: LENGTH  # LLaMA-Factory"),
            ),
            Fix(
                "Use smaller images, and fewer frames of a video.",
                (
                    "AutoProcessor.from_pretrained(MODEL, max_pixels=512*28*28)",
                    "image_max_pixels: 262144  # LLaMA-Factory, also video_max_pixels, video_fps, video_maxlen",
                ),
            ),
        ),
        of_code=False,
    )
