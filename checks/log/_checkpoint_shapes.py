"""What do the two shapes of a parameter say: another vocabulary, a split over ranks, another LoRA rank or model?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from ._sizes import of_vocabularies

_NUMBERS = r"\d+(?:, ?\d+)*,?"
_PAIR = re.compile(
    rf"size mismatch for (?P<name>[^\s:]+): copying a param with shape torch\.Size\(\[(?P<saved>{_NUMBERS})\]\) from "
    rf"checkpoint, the shape in current model is torch\.Size\(\[(?P<here>{_NUMBERS})\]\)|"
    rf"Size mismatch between saved torch\.Size\(\[(?P<saved_part>{_NUMBERS})\]\) and current: "
    rf"torch\.Size\(\[(?P<here_part>{_NUMBERS})\]\)(?: for (?P<part>[\w.]+))?|"
    rf"Global shape mismatch for loaded \(?torch\.Size\(\[(?P<saved_whole>{_NUMBERS})\]\)\)? and expected "
    rf"\(+(?P<here_whole>{_NUMBERS})\)+(?: tensor for key (?P<whole>[\w.]+))?"
)
_OF_TOKENS = re.compile(
    r"embed_tokens|lm_head|\bwte\b|word_embeddings?\b|tok_embeddings|shared\.weight|embed_(?:in|out)\b|output_layer|"
    r"vocab"
)
_NAMELESS = frozenset({"weight", "bias", "?"})  # of a layer that was loaded by itself
_SMALLEST_VOCABULARY = 20_000  # of a layer whose name does not show what it is; heads have fewer classes
_OF_POSITIONS = re.compile(r"pos(?:ition)?_?(?:emb\w*|ids)\b|position\w*_embeddings?|\bwpe\b|relative_position")
_OF_CLASSES = re.compile(
    r"classifier|\bscore\b|\bfc\b|(?:cls|roi|bbox)_(?:head|score|pred)|logits|num_classes|out_proj|\b(?!lm_)\w*heads?\b"
)
_OF_NORM = re.compile(r"norm|\bln_?\w*\.")
_LORA = re.compile(r"lora_(?:embedding_)?(?P<side>[AB])\b")
_SPLITS = (2, 4, 8, 16)
_MOST_SPLIT = 3  # dimensions of a weight that tensor parallelism splits; a kernel of a convolution has more
_LISTED = 3
_COMPARE = Fix(
    "Compare the checkpoint's config with that of the run.",
    ("diff CHECKPOINT/config.json MODEL/config.json",),
)
_NEW_FOLDER = Fix(
    "Build the model from the checkpoint's own config, or start in a new folder if the run should not resume.",
    ("AutoConfig.from_pretrained('CHECKPOINT')", "ls -lt CHECKPOINT_FOLDER"),
)

_SAME_VOCABULARY = (
    "Tokens were added (resize_token_embeddings), or the vocabulary was padded for tensor parallelism, in only one of "
    "them. An adapter with saved embeddings needs the resized base model."
)
_RESIZE = (
    Fix(
        "Load the tokenizer of the checkpoint, and resize the model before loading its weights.",
        ("tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)", "model.resize_token_embeddings(len(tokenizer))"),
    ),
    Fix("In Megatron, use the padding that wrote it.", ("--make-vocab-size-divisible-by 128",)),
)
_OTHER_VOCABULARY = (
    "Only the number of tokens differs, and neither is the other one padded or split, so added tokens or parallel "
    "sizes are not the cause. The two belong to different tokenizers or base models; the layer has a vocabulary of its "
    "own, as the head of a draft model (EAGLE) does; or it is tied to the embedding (tie_word_embeddings) in only one "
    "of them."
)
_COMPARE_VOCABULARIES = (
    Fix(
        "Compare these settings of both.",
        ("grep -HnE 'vocab_size|tie_word_embeddings' CHECKPOINT/config.json MODEL/config.json",),
    ),
    Fix(
        "Give the layer that loads it the checkpoint's size (vocab_size, draft_vocab_size), or use the checkpoint that "
        "belongs to this base model."
    ),
)


class _Pair(NamedTuple):
    """A parameter's shapes."""

    name: str
    saved: tuple[int, ...]  # in the checkpoint
    here: tuple[int, ...]  # in the model
    whole: bool  # of all ranks together, so no split changes them

    @property
    def changed(self) -> list[int]:
        """Dimensions that differ, of shapes with as many of them."""
        return [index for index, (a, b) in enumerate(zip(self.saved, self.here, strict=True)) if a != b]

    @property
    def ratio(self) -> int:
        """How many times larger one shape is, in the only dimension that differs; 0: no whole number, or several."""
        if len(self.changed) != 1:
            return 0
        small, large = sorted((self.saved[self.changed[0]], self.here[self.changed[0]]))
        return large // small if small and large % small == 0 else 0


def _pairs(text: str) -> list[_Pair]:
    found = []
    for one in _PAIR.finditer(text):
        saved = one["saved"] or one["saved_part"] or one["saved_whole"]
        here = one["here"] or one["here_part"] or one["here_whole"]
        name = one["name"] or one["part"] or one["whole"] or "?"
        found.append(_Pair(name, _shape(saved), _shape(here), bool(one["saved_whole"])))
    return found


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def explain(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain the shapes that a message lists; None if a case of the row does, or it lists none."""
    text = f"{raised.message}\n{raised.more or ''}" if raised else ""
    pairs = _pairs(text) or _pairs(groups["what"])
    if not pairs or not all(map(_is_whole, pairs)):
        return None
    first = pairs[0]
    if of_adapter := [one for one in pairs if _LORA.search(one.name)]:
        return _of_adapter(of_adapter)
    if _OF_CLASSES.search(first.name) and first.changed == [0] and "Size mismatch between saved" not in text:
        return None  # another number of classes
    if all(map(_is_vocabulary, pairs)):
        return _of_vocabulary(first)
    if all(map(_counts_positions, pairs)):
        return _of_positions(first)
    return (
        _of_outputs(pairs)
        or _of_split(pairs)
        or (_of_kernel(pairs) if len(first.saved) > _MOST_SPLIT else _of_other_model(pairs))
    )


def _is_whole(one: _Pair) -> bool:
    """Whether both are shapes of a parameter, not of an empty piece, of a placeholder or of a flat shard."""
    if len(one.saved) != len(one.here) or (1,) in (one.saved, one.here):
        return False
    return bool(one.changed) and min(*one.saved, *one.here) > 0


def _counts_positions(one: _Pair) -> bool:
    return bool(_OF_POSITIONS.search(one.name)) and len(one.changed) == 1 and one.changed[0] < len(one.saved) - 1


def _of_adapter(pairs: list[_Pair]) -> Meaning | None:
    """Explain adapters of another rank; None if the layers that they adapt differ."""
    ranks = set()
    for one in pairs:
        found = _LORA.search(one.name)
        place = 0 if found and found["side"] == "A" else len(one.saved) - 1
        if one.changed != [place]:
            return None
        ranks.add((one.saved[place], one.here[place]))
    if len(ranks) != 1:
        return None
    saved, here = ranks.pop()
    return Meaning(
        f"the adapter in the checkpoint has LoRA rank r = {saved}, and the run has r = {here}",
        "lora_A is rank x input and lora_B is output x rank: only the rank differs, so the base model is the right "
        "one.",
        (
            Fix(
                "Use the rank of the checkpoint, or train a new adapter in a new folder.",
                ("cat CHECKPOINT/adapter_config.json", python("LoraConfig(r={:number})", str(saved))),
            ),
        ),
        complete=True,
    )


def _is_vocabulary(one: _Pair) -> bool:
    if one.changed != [0]:
        return False
    large = min(one.saved[0], one.here[0]) >= _SMALLEST_VOCABULARY
    return bool(_OF_TOKENS.search(one.name)) or (one.name in _NAMELESS and large and len(one.saved) > 1)


def _of_vocabulary(one: _Pair) -> Meaning:
    saved, here = one.saved[0], one.here[0]
    title = f"the vocabulary of the checkpoint has another size than the model's: {saved:,} and {here:,}"
    relation = of_vocabularies(*sorted((saved, here)))
    if one.ratio in _SPLITS and not one.whole:
        relation += (
            f" One is exactly {one.ratio} times the other: a part of it, split over {one.ratio} tensor-parallel ranks."
        )
    if relation:
        return Meaning(title, f"{_SAME_VOCABULARY}{relation}", _RESIZE, complete=True)
    return Meaning(title, _OTHER_VOCABULARY, _COMPARE_VOCABULARIES, complete=True)


def _of_positions(one: _Pair) -> Meaning:
    place = one.changed[0]
    return Meaning(
        f"the checkpoint has embeddings for another number of positions: {one.saved[place]:,} in {one.name}, and "
        f"{one.here[place]:,} in the model",
        "The number of positions follows from the longest sequence, or from the size of the image and of its patches.",
        (
            Fix(
                "Use the sequence length or the image size of the checkpoint.",
                ("grep -nE 'max_position_embeddings|image_size|patch_size' CHECKPOINT/config.json",),
            ),
            Fix("Or interpolate the embeddings to the new number before they are loaded."),
        ),
        complete=True,
    )


def _of_outputs(pairs: list[_Pair]) -> Meaning | None:
    """Explain one layer with another number of outputs: parallel sizes would change other layers, too."""
    module = pairs[0].name.rpartition(".")[0]
    whole = {one.name: one.changed for one in pairs} == {f"{module}.weight": [0], f"{module}.bias": [0]}
    if not module or not whole:
        return None
    saved, here = pairs[0].saved[0], pairs[0].here[0]
    return Meaning(
        f"the layer {module} has {saved:,} outputs in the checkpoint, and {here:,} in the model",
        f"{_listed(pairs)}. No other shape differs. Of a last layer, the outputs are usually the classes: the "
        "checkpoint is of another data set, or the run was given another number of classes.",
        (
            Fix(f"Make the model with {saved:,} outputs there, if the checkpoint is the right one."),
            Fix(
                "To train a new layer, leave the old one out.",
                (
                    python("for name in ('weight', 'bias'): del state['{:id}.' + name]", module),
                    "model.load_state_dict(state, strict=False)",
                ),
            ),
        ),
        complete=True,
    )


def _of_split(pairs: list[_Pair]) -> Meaning | None:
    """Explain parameters that are the same part of the others; None if no split of tensors can have made them."""
    ratio = pairs[0].ratio
    possible = ratio in _SPLITS and all(
        one.ratio == ratio and not one.whole and len(one.saved) <= _MOST_SPLIT and not _OF_NORM.search(one.name)
        for one in pairs
    )
    if not possible:
        return None
    place = pairs[0].changed[0]
    longer = "in the model" if pairs[0].here[place] > pairs[0].saved[place] else "in the checkpoint"
    kind = "tensor- or expert-parallel" if any("expert" in one.name for one in pairs) else "tensor-parallel"
    return Meaning(
        "a parameter in the checkpoint has another size than in the model",
        f"{_listed(pairs)}. One is exactly {ratio} times the other, the longer one {longer}: probably it is a whole "
        f"tensor {longer}, and one of {ratio} equal parts on the other side, split over {ratio} {kind} ranks. Or the "
        "configuration of the model was changed by this factor.",
        (
            Fix(
                "Load it with the parallel sizes that wrote it, or convert it first: merge the parts, or split the "
                "whole one."
            ),
            _COMPARE,
        ),
        complete=True,
    )


def _of_kernel(pairs: list[_Pair]) -> Meaning:
    return Meaning(
        "a parameter in the checkpoint has another size than in the model: a kernel of a convolution",
        f"{_listed(pairs)}: output channels, input channels, then the size of the kernel. The patch size, the number "
        "of channels of the input, or the variant of the model differs from the run that wrote it.",
        (_COMPARE, _NEW_FOLDER),
        complete=True,
    )


def _of_other_model(pairs: list[_Pair]) -> Meaning:
    return Meaning(
        "a parameter in the checkpoint has another size than in the model: it is of another model or configuration",
        f"{_listed(pairs)}. A split over ranks would give a whole fraction of one dimension. The checkpoint "
        "is of another variant of the model (small, base, large), or the run's configuration was changed after it was "
        "written (the folder of an earlier run).",
        (_COMPARE, _NEW_FOLDER),
        complete=True,
    )


def _listed(pairs: list[_Pair]) -> str:
    shown = "; ".join(
        f"{one.name} is {list(one.saved)} in the checkpoint and {list(one.here)} in the model"
        for one in pairs[:_LISTED]
    )
    more = len(pairs) - _LISTED
    return f"{shown}{f'; and {more} more' if more > 0 else ''}"
