"""What do the numbers in a message say of a sample: are image tokens missing, or doubled, and which limit would fit?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException
from mgpu.text import counted

_STEP = 1024  # limits are multiples of it
_COUNTS = re.compile(r"tokens: (?P<tokens>\d+), features:? (?P<wanted>\d+)")
# transformers counts the tokens in the text, and in the ids that the tokenizer made of it.
_LISTS = re.compile(r"Got ids=\[(?P<tokens>\d+)\] and text=\[(?P<wanted>\d+)\]")
_NONE_FOR = re.compile(r"image tokens is (?P<tokens>0) while the number of image given to the model is (?P<wanted>\d+)")


def _none(has: str) -> Meaning:
    return Meaning(
        "the text of a sample has no image token, but the sample has an image",
        f"The sample has {has}, and its text has no token for them: it was probably made without the image placeholder "
        "(a chat template of another model, or a text-only one), or by a tokenizer in place of the processor.",
        (
            Fix(
                "Build the prompt with the model's own processor, with the image as an item of the message.",
                (
                    "messages = [{'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': prompt}]}]",
                    "text = processor.apply_chat_template(messages, add_generation_prompt=True)",
                ),
            ),
            Fix("Print one prompt, and search it for the placeholder.", ("print(text, processor.image_token)",)),
        ),
    )


def _cut_off(missing: int, wanted: int) -> Meaning:
    return Meaning(
        f"{missing:,} image tokens are missing in a sample: it was probably truncated within the image",
        f"The image needs {wanted:,} tokens, and {wanted - missing:,} of them are left. max_length (cutoff_len) cuts a "
        "sequence also within an image.",
        (
            Fix(
                "Do not truncate samples with images, or raise the limit.",
                ("SFTConfig(max_length=None)", "cutoff_len: 8192  # LLaMA-Factory"),
            ),
            Fix("Use smaller images.", ("AutoProcessor.from_pretrained(MODEL, max_pixels=512*28*28)",)),
        ),
    )


def _too_many(tokens: int, features: int) -> Meaning:
    times = tokens // features if features and tokens % features == 0 else 0
    count = f"{tokens:,} image tokens, but {features:,} features"
    title = f"a sample has more image tokens than its images have features: {count}"
    if times == 2:
        title = f"a sample has twice as many image tokens as features: {count}"
    return Meaning(
        title,
        "The placeholder is in the text more often than there are images: it was added twice (by the dataset and the "
        "template), it is in the text of an answer, or an image was dropped and its placeholder was not.",
        (
            Fix(
                "Print the prompt of such a sample, and count its placeholders and images.",
                ("print(text.count(processor.image_token), len(images))",),
            ),
            Fix("Leave the placeholder out of the text, if the template adds it."),
        ),
    )


def explain_image_tokens(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a number of image tokens that differs from what the images need; None without both numbers."""
    if raised is None:
        return None
    text = f"{raised.message} {raised.more or ''}"
    if not (found := _COUNTS.search(text) or _LISTS.search(text) or _NONE_FOR.search(text)):
        return None
    tokens, wanted = int(found["tokens"]), int(found["wanted"])
    if tokens == wanted or (found.re is _LISTS and tokens > wanted):
        return None
    if tokens > wanted:
        return _too_many(tokens, wanted)
    if tokens:
        return _cut_off(wanted - tokens, wanted)
    return _none(counted(wanted, "image" if found.re is _NONE_FOR else "image feature"))


def _of_training(length: int, limit: int, fitting: int) -> Meaning:
    """Explain a sample of verl's SFT datasets, which count prompt and answer, or all turns, together."""
    return Meaning(
        f"a sample has {length:,} tokens, more than data.max_length ({limit:,})",
        "The SFT dataset of verl stops at the first sample that is longer (data.truncation is error, its default), "
        "which can be far into the first epoch. It counts the whole conversation, with the chat template.",
        (
            Fix(
                "Allow longer samples, if the model's positions and the GPU's memory do. This one needs "
                f"{fitting:,}; others can be longer.",
                (shell("data.max_length={:number}", fitting),),
            ),
            Fix(
                "Or cut them: right loses the end (the last answer), left the beginning (the system prompt).",
                ("data.truncation=right",),
            ),
            Fix(
                "Or remove them from the file: count the tokens of each sample with the tokenizer.",
                ("len(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))",),
            ),
        ),
    )


def explain_length(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name a limit that the sample in the message fits in, as the program that printed it calls the limit."""
    numbers = [int(number) for number in re.findall(r"\d+", groups["what"])]
    if len(numbers) != 2 or numbers[0] <= numbers[1]:
        return None
    length, limit = numbers
    fitting = -(-(length + 1) // _STEP) * _STEP
    if "self.max_length" in groups["what"]:
        return _of_training(length, limit, fitting)
    of_engine = "maximum model length" in groups["what"]
    of_verl = not of_engine or bool(raised and "verl" in raised.packages)
    drop = (
        ("data.filter_overlong_prompts=True data.truncation=left  # verl",)
        if of_verl
        else (python("if len(ids) < {:number}: ...", limit),)
    )
    raise_it = (
        python("LLM(..., max_model_len={:number})  # if the model has that many positions", fitting)
        if of_engine
        else python("data.max_prompt_length={:number}", fitting)
    )
    room = " The answer needs room in the same limit." if of_engine else ""
    return Meaning(
        f"a sample is longer than the configured maximum: {groups['what']}",
        f"It has {length:,} tokens, {length - limit:,} more than the limit of {limit:,}. Images add hundreds to "
        f"thousands of tokens each.{room}",
        (
            Fix("Drop or shorten samples that are longer than the limit, before the run.", drop),
            Fix(f"Raise the limit to at least {fitting:,}{', plus the answer' if of_engine else ''}.", (raise_it,)),
        ),
    )
