"""A weight that a sharded checkpoint lacks, and that the log has with a wrapper's part in its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log.wrapped_names import wrapped_name
from tests.test_log_meanings import explained

MISSING = "[rank0]: RuntimeError: Missing key in checkpoint state_dict: {}.\n"


@pytest.mark.parametrize(
    ("before", "key", "title", "command"),
    [
        ("saved: ['block.0._orig_mod.fc.weight', 'block.0._orig_mod.fc.bias']", "block.0.fc.weight",
         "the name that torch.compile gave it: block.0._orig_mod.fc.weight", "name.replace('_orig_mod.', '')"),
        ('Unexpected key(s) in state_dict: "module.body.fc.weight", "module.body.fc.bias".', "body.fc.weight",
         "the name that DDP or another wrapper that calls the model `module` gave it: module.body.fc.weight",
         "name.removeprefix('module.')"),
        ("layers.3._checkpoint_wrapped_module.mlp.up.weight", "layers.3.mlp.up.weight",
         "the name that activation checkpointing gave it", "name.replace('_checkpoint_wrapped_module.', '')"),
        ("_fsdp_wrapped_module.layers.3.mlp.up.weight: torch.Size([4, 4])", "layers.3.mlp.up.weight",
         "the name that FSDP 1 gave it", "name.replace('_fsdp_wrapped_module.', '')"),
        ("keys of the file: base_model.model.layers.3.mlp.up.weight", "layers.3.mlp.up.weight",
         "the name that PEFT gave it", "name.replace('base_model.model.', '')"),
        ("in the checkpoint: model.layers.3.mlp.up.weight", "layers.3.mlp.up.weight",
         "the name that an outer module that calls it `model` gave it", "name.removeprefix('model.')"),
    ],
)  # fmt: skip
def test_the_wrapper_is_named(before: str, key: str, title: str, command: str, tmp_path: Path) -> None:
    found, said, rest = explained(tmp_path, f"{before}\n{MISSING.format(key)}")
    assert found == "log_checkpoint_key_missing"
    assert title in said
    assert command in rest
    assert "allow_partial_load" not in rest


@pytest.mark.parametrize(
    ("before", "key"),
    [
        # Another layer, a longer name, the same name; names of the run's own model under an outer module.
        ("saved: ['block.0._orig_mod.fc.weight']", "block.1.fc.weight"),
        ("saved: ['block.0._orig_mod.fc.weight.absmax']", "block.0.fc.weight"),
        ("trained: block.0.fc.weight", "block.0.fc.weight"),
        ("trained: model.block.0.fc.weight", "block.0.fc.weight"),
        ("optimizer of my_module.fc.weight", "fc.weight"),
        ("step 3 of module.fc.weight", "weight"),
    ],
)
def test_another_name_says_nothing(before: str, key: str, tmp_path: Path) -> None:
    found, said, rest = explained(tmp_path, f"{before}\n{MISSING.format(key)}")
    assert found == "log_checkpoint_key_missing"
    assert said == f"the sharded checkpoint has no entry {key}, which the run loads"
    assert "allow_partial_load" in rest


def test_a_name_that_already_has_the_part_is_not_one_without_it() -> None:
    lines = ["_orig_mod.module.fc.weight", "module.fc.weight"]
    assert wrapped_name(lines, "module.fc.weight") == "_orig_mod.module.fc.weight"
    assert wrapped_name(lines[1:], "module.fc.weight") is None
