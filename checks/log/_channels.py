"""Why does a convolution get another number of channels? Pictures, latents of a VAE, their layout, or other layers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place

_OF_PICTURES = 4  # channels at most: gray, RGB, with alpha
_INPAINTING, _DOUBLED = 9, 2
_MOST_LATENTS = 128  # channels; layers inside a model have more
_LATENTS = re.compile(r"noisy_latents|noisy_model_input|latent_model_input|noise_pred|\blatents\b|vae\.encode")
_VAES = "SD 1, SD 2 and SDXL have 4 channels of latents; SD 3, FLUX and most video models have 16 or more."


def _single(shape: list[int], got: int) -> Meaning:
    return Meaning(
        f"the input {shape} has {got} channels, and the model expects one: probably a dimension is at the wrong place",
        "The dimension of size 1 stands last. Either the batch dimension is missing, because a batch of one was "
        "squeezed, or the channel was added at the end instead of after the batch.",
        (
            Fix(
                "Print the shape where the input is made, and name the dimension that squeeze() removes.",
                ("print(x.shape)", "x = x.squeeze(1)  # not x.squeeze()"),
            ),
            Fix("The input must be (batch, 1, length).", ("x = x.movedim(-1, 1)", "x = x.unsqueeze(0)")),
        ),
    )


def _layout(shape: list[int], expected: int) -> Meaning:
    return Meaning(
        f"the channels of the input {shape} are probably in its last dimension; the model expects them in dimension 1",
        f"The last dimension has the {expected} channels that the convolution expects. numpy, PIL and OpenCV keep the "
        "channels of a picture last, and models of sequences the features; convolutions of torch want them after the "
        "batch.",
        (Fix("Move them, where the batch is made.", ("x = x.movedim(-1, 1).contiguous()",)),),
    )


def _latents(expected: int, got: int) -> Meaning:
    title = f"the denoiser expects latents with {expected} channels, but got {got}"
    look = "print(vae.config.latent_channels, unet.config.in_channels)"
    if _INPAINTING in (expected, got) or max(expected, got) == _DOUBLED * min(expected, got):
        return Meaning(
            title,
            "A model whose input is joined with a picture has more input channels than latents: 9 with inpainting (4 "
            "of latents, 4 of the masked picture, 1 of the mask), and twice as many with editing or image-to-video. "
            "The script and the checkpoint are of different kinds.",
            (
                Fix(
                    "Use the script that belongs to the model, or its base model, and join the inputs as it does.",
                    (look, "x = torch.cat([latents, mask, masked_latents], dim=1)  # inpainting"),
                ),
            ),
        )
    return Meaning(
        title,
        f"The VAE that made the latents is of another family than the denoiser. {_VAES} Latents cached by another "
        "model are a common reason.",
        (
            Fix(
                "Take both from one checkpoint, and make cached latents again.",
                (look, "AutoencoderKL.from_pretrained(MODEL, subfolder='vae')"),
            ),
        ),
    )


def _not_encoded(expected: int) -> Meaning:
    return Meaning(
        f"the denoiser expects latents with {expected} channels, but got a picture with 3",
        "The pictures were not encoded by the VAE before the noise was added.",
        (
            Fix(
                "Encode them first.", ("latents = vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor",)
            ),
        ),
    )


def _empty(shape: list[int], raised: UncaughtException | None) -> Meaning:
    at = at_place(raised)
    return Meaning(
        f"the input of a convolution is empty: its shape is {shape}{at}",
        "A dimension of size 0 means that there is nothing to compute: a sample or an image without objects, boxes, "
        "instances or points, a filter or a mask that leaves none, or an empty batch. The other sizes then mean "
        "little: view() and reshape() of nothing can give any.",
        (
            Fix(
                "Find the samples that have none, and leave them out of the data or skip this part of the model.",
                ("if boxes.shape[0] == 0: ...", "print(x.shape)"),
            ),
            Fix(
                "Or keep the sizes of the other dimensions where the empty tensor is made.",
                ("x = features.new_zeros((0, channels, length))",),
            ),
        ),
    )


def explain_channels(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an input with another number of channels, unless it is a picture."""
    expected, got = int(groups["a"]), int(groups["b"])
    shape = [int(size) for size in groups["shape"].split(",")]
    if 0 in shape:
        return _empty(shape, raised)
    # A square picture can have as many rows as the layer expects channels.
    if len(shape) > 2 and shape[-1] == expected and shape[1] == got and (len(shape) == 3 or shape[-2] != shape[-1]):
        return _single(shape, shape[1]) if expected == 1 else _layout(shape, expected)
    code = " ".join(filter(None, (raised.own_code, *raised.own_lines))) if raised else ""
    small = min(expected, got) > 2 and max(expected, got) <= _MOST_LATENTS
    if small and (_LATENTS.search(code) or (raised and "diffusers" in raised.packages)):
        return _not_encoded(expected) if got == 3 else _latents(expected, got)
    if max(expected, got) <= _OF_PICTURES:
        return None
    return Meaning(
        f"a convolution expects {expected} channels, but got {got}",
        "What comes before it does not return as many: a backbone of another size than the head or neck was made "
        "for, features that are joined or left out, several frames or bands stacked as channels, or a dimension in "
        "the wrong place.",
        (Fix("Compare the input's shape with in_channels, and change one of them.", ("print(x.shape)",)),),
    )
