"""The two shapes of a parameter in a checkpoint and in the model: only the cause that the numbers show is named.

All messages are written here, in torch's, its checkpoint planner's and Megatron's form.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import SCRIPT, explained, traceback

PLANNER = "torch/distributed/checkpoint/default_planner.py"
MODULE = "torch/nn/modules/module.py"
SPLIT, OTHER = "tensor-parallel", "of another model or configuration"


def mismatch(*parameters: tuple[str, str, str]) -> str:
    """torch's exception, which lists all parameters: name, shape in the checkpoint, shape in the model."""
    lines = [
        f"\tsize mismatch for {name}: copying a param with shape torch.Size([{saved}]) from checkpoint, the shape in "
        f"current model is torch.Size([{here}])."
        for name, saved, here in parameters
    ]
    return "\n".join(("RuntimeError: Error(s) in loading state_dict for Net:", *lines))


@pytest.mark.parametrize(
    ("parameters", "title", "words", "absent"),
    [
        # Another vocabulary: by the name, or of a layer that is loaded by itself and has so many rows.
        ([("weight", "32000, 2048", "128256, 2048")], "the vocabulary of the checkpoint has another size than the "
         "model's: 32,000 and 128,256", "tie_word_embeddings", "Tokens were added"),
        ([("lm_head.weight", "32000, 64", "50257, 64"), ("model.embed_tokens.weight", "32000, 64", "50257, 64")],
         "the vocabulary", "draft_vocab_size", SPLIT),
        ([("lm_head.weight", "32002, 64", "32000, 64")], "the vocabulary", "32,002 is 2 more than 32,000", "draft"),
        ([("lm_head.bias", "32064", "32000")], "the vocabulary", "resize_token_embeddings", "draft"),
        ([("weight", "50304, 64", "50257, 64")], "the vocabulary", "rounded up to a multiple of 128", "draft"),
        ([("output_layer.weight", "151936, 64", "37984, 64")], "the vocabulary", "split over 4 tensor-parallel ranks",
         "draft"),
        # One layer's outputs: no split changes only these.
        ([("net.4.weight", "10, 64", "5, 64"), ("net.4.bias", "10", "5")], "the layer net.4 has 10 outputs in the "
         "checkpoint, and 5 in the model", "usually the classes", SPLIT),
        ([("net.3.weight", "10, 64", "5, 64"), ("net.4.bias", "10", "5")], "has another size", SPLIT, "classes"),
        # A fraction of one dimension, in all of them.
        ([("layers.0.up_proj.weight", "4096, 512", "1024, 512"), ("layers.0.down_proj.weight", "512, 4096",
           "512, 1024")], "has another size than in the model", f"split over 4 {SPLIT} ranks", OTHER),
        ([("layers.0.experts.w1", "8, 512, 64", "4, 512, 64")], "has another size", "or expert-parallel", OTHER),
        # The ranks of an adapter.
        ([("q_proj.lora_A.default.weight", "8, 512", "32, 512"), ("q_proj.lora_B.default.weight", "512, 8", "512, 32")],
         "LoRA rank r = 8, and the run has r = 32", "LoraConfig(r=8)", SPLIT),
        ([("q_proj.lora_A.default.weight", "8, 512", "8, 1024")], "for another base model", "rank_pattern", SPLIT),
        ([("q.lora_A.weight", "8, 512", "16, 512"), ("k.lora_A.weight", "4, 512", "16, 512")], "other ranks in some",
         "rank_pattern", SPLIT),
        # Positions.
        ([("wpe.weight", "1024, 64", "2048, 64")], "for another number of positions", "interpolate", SPLIT),
        ([("pos_embed", "1, 197, 64", "1, 577, 64")], "positions: 197 in pos_embed, and 577", "image_size", SPLIT),
        # Everything else: no whole fraction, both dimensions, also those that no split changes.
        ([("layers.0.up_proj.weight", "1100, 512", "1400, 512")], OTHER, "config.json", SPLIT),
        ([("layers.0.up_proj.weight", "3072, 512", "1024, 512")], OTHER, "config.json", SPLIT),  # 3 times
        ([("layers.0.q_proj.weight", "512, 512", "1024, 1024")], OTHER, "config.json", SPLIT),
        ([("layers.0.norm.weight", "512", "1024")], OTHER, "config.json", SPLIT),
        ([("layers.0.up_proj.weight", "1024, 512", "2048, 512"), ("layers.0.norm.weight", "512", "1024")], OTHER,
         "config.json", SPLIT),
        ([("conv1.weight", "64, 3, 7, 7", "64, 6, 7, 7")], "a kernel of a convolution", "channels of the input", SPLIT),
        ([("patch.weight", "64, 3, 16, 16", "64, 3, 14, 14")], "a kernel of a convolution", "patch size", OTHER),
        ([("weight", "512, 64", "1100, 64")], OTHER, "config.json", "vocabulary"),  # too few for one
        # What other entries explain.
        ([("classifier.weight", "2, 64", "1, 64")], "another number of classes", "num_labels", SPLIT),
        ([("layer.weight", "1", "512")], "has another size", "another configuration", OTHER),
    ],
)  # fmt: skip
def test_the_numbers_decide(
    parameters: list[tuple[str, str, str]], title: str, words: str, absent: str, tmp_path: Path
) -> None:
    row, found, text = explained(tmp_path, traceback(mismatch(*parameters), SCRIPT, MODULE))
    assert row == "log_checkpoint_sizes_differ" and title in found, found
    assert words in text and absent not in found + text, text
    assert "pipeline" not in text


@pytest.mark.parametrize(
    ("error", "title", "words", "absent"),
    [
        ("ValueError: Size mismatch between saved torch.Size([100, 64]) and current: torch.Size([140, 64]) for mlp.w",
         OTHER, "mlp.w is [100, 64] in the checkpoint and [140, 64] in the model", SPLIT),
        ("ValueError: Size mismatch between saved torch.Size([128, 64]) and current: torch.Size([64, 64]) for mlp.w",
         "has another size", SPLIT, OTHER),
        # Megatron's are the shapes of whole tensors.
        ("CheckpointingException: Global shape mismatch for loaded (torch.Size([128, 64])) and expected ((64, 64)) "
         "tensor for key mlp.linear_fc1.weight", OTHER, "mlp.linear_fc1.weight is [128, 64]", SPLIT),
        ("CheckpointingException: Global shape mismatch for loaded (torch.Size([50304, 64])) and expected ((50432, 64))"
         " tensor for key embedding.word_embeddings.weight", "the vocabulary", "--make-vocab-size-divisible-by", OTHER),
    ],
)  # fmt: skip
def test_other_messages(error: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    row, found, text = explained(tmp_path, traceback(error, SCRIPT, PLANNER))
    assert row == "log_checkpoint_sizes_differ" and title in found, found
    assert words in text and absent not in found + text, text


def test_a_line_without_its_exception(tmp_path: Path) -> None:
    line = mismatch(("layers.0.up_proj.weight", "1100, 512", "1400, 512")).split("\n")[1]
    assert OTHER in explained(tmp_path, f"loading\n{line}\n")[1]
