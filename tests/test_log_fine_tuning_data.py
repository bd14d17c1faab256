"""What the data of a fine-tuning run lacks: text in a batch, lists, splits, roles of messages, large row groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

TRAIN = (SCRIPT, "main", "trainer.train()")
AS_TENSOR = ("transformers/tokenization_utils_base.py", "as_tensor", "return torch.tensor(value)")
PAD = ("transformers/data/data_collator.py", "pad_without_fast_tokenizer_warning", "padded = tokenizer.pad(*args)")
RENDER = (
    "transformers/utils/chat_template_utils.py",
    "raise_exception",
    "raise jinja2.exceptions.TemplateError(message)",
)
SPLITS = ("datasets/dataset_dict.py", "__getitem__", "return super().__getitem__(k)")
UNABLE = (
    "ValueError: Unable to create tensor, you should probably activate truncation and/or padding with 'padding=True' "
    "'truncation=True' to have batched tensors with the same length. Perhaps your features (`{}` in this case) have "
    "excessive nesting (inputs type `list` where type `int` is expected)."
)
LOAD = (SCRIPT, "main", "load_dataset(path)")
NESTED = (
    "pyarrow.lib.ArrowNotImplementedError: Nested data conversions not implemented for chunked array outputs\n\n"
    "The above exception was the direct cause of the following exception:\n\n"
)
JINJA = "jinja2.exceptions.TemplateError: "


@pytest.mark.parametrize(
    ("calls", "error", "wanted", "title", "words", "not_said"),
    [
        ((TRAIN, PAD, AS_TENSOR), "ValueError: too many dimensions 'str'", "log_text_in_batch",
         "a batch contains text: a column", "remove_columns", "pads"),
        (((SCRIPT, "encode", "y = torch.tensor(names)"),), "ValueError: too many dimensions 'str'", "log_text_in_batch",
         "torch.tensor() got a list of strings", "label2id", "SFTTrainer"),
        ((TRAIN, PAD), UNABLE.format("labels"), "log_batch_not_padded", "the column labels in one batch",
         "DataCollatorForSeq2Seq", "collate_fn=DataCollatorWithPadding"),
        ((TRAIN, PAD), UNABLE.format("prompt"), "log_batch_not_padded", "the column prompt reached the collator",
         "remove_columns", "DataCollatorForSeq2Seq"),
        (((SCRIPT, "__call__", "ids = pad_sequence("), ("torch/nn/utils/rnn.py", "pad_sequence", "return x(")),
         "TypeError: expected Tensor as element 0 in argument 0, but got list", "log_no_tensor_in_list",
         "is a list, not a tensor", "set_format('torch'", "drop or fill"),
        (((SCRIPT, "collate", "x = torch.stack(items)"),),
         "TypeError: expected Tensor as element 3 in argument 0, but got NoneType", "log_no_tensor_in_list",
         "item 3 of a list that torch joins into one tensor is None", "drop or fill", "set_format"),
        ((TRAIN, RENDER), f"{JINJA}Conversation roles must alternate user/assistant/user/assistant/...",
         "log_chat_template_refused", "refuses the messages: Conversation roles", "m['role']", "compare the versions"),
        ((TRAIN, RENDER), f"{JINJA}System role not supported", "log_chat_template_refused", "System role not supported",
         "first user message", "pip show"),
        ((TRAIN,), "jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'role'",
         "log_chat_message_malformed", "has no attribute 'role'", "m['from']", "pip show"),
        (((SCRIPT, "main", "data = raw['validation']"), SPLITS), "KeyError: 'validation'", "log_dataset_split_missing",
         "the dataset has no split 'validation', which fit.py:7 in main reads", "train_test_split", "call path"),
        (((SCRIPT, "main", "row = table['validation']"),), "KeyError: 'validation'", "log_exception", "validation",
         "table", "train_test_split"),
        ((LOAD,), f"{NESTED}{frames(LOAD)}datasets.exceptions.DatasetGenerationError: An error occurred while "
         "generating the dataset", "log_parquet_row_group_too_large", "row group", "row_group_size", "disk is full"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_data(
    calls: tuple[tuple[str, str, str], ...],
    error: str,
    wanted: str,
    title: str,
    words: str,
    not_said: str,
    tmp_path: Path,
) -> None:
    for prefix in ("", "[rank1]: "):
        text = "".join(f"{prefix}{line}\n" for line in f"{frames(*calls)}{error}".split("\n"))
        name, found, said = explained(tmp_path, text)
        assert (name, title in found, words in said, not_said in said) == (wanted, True, True, False), (found, said)


def test_other_template_errors_are_not_about_messages(tmp_path: Path) -> None:
    text = f"{frames(TRAIN)}jinja2.exceptions.TemplateError: filter 'x' needs jinja2 3.1\n"
    assert explained(tmp_path, text)[0] == "log_exception"


def test_the_values_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    text = (
        f"{frames(TRAIN)}ValueError: Please correct the following DeepSpeed config values that mismatch "
        "TrainingArguments values:\n- ds fp16.enabled=True vs hf fp16|fp16_full_eval+fp16_backend(amp)=False\n"
        "- ds train_batch_size=32 vs hf train_batch_size (calculated)=4\nThe easiest method is to set them to 'auto'.\n"
    )
    name, title, words = explained(tmp_path, text)
    assert name == "log_deepspeed_contradicts_arguments" and "fp16.enabled is True in the file, and False" in title
    assert "(and 1 more)" in title and "fp16.enabled, train_batch_size" in words


def test_mpi_that_finds_no_process_manager_explains_the_crash(tmp_path: Path) -> None:
    crash = "failed (exitcode: -11) local_rank: 0 (pid: 14) of binary: /usr/bin/python\n"
    pmi = (
        "[cli_0]: write_line error; fd=9 buf=:cmd=init pmi_version=1 pmi_subversion=1\n:\n"
        "system msg for write_line failure : Broken pipe\n"
        "Abort(1090831) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init_thread: Unknown error class\n"
    )
    name, title, words = explained(tmp_path, pmi + crash)
    assert name == "log_mpi_not_initialized" and "(PMI) that does not answer" in title and "env -u PMI_FD" in words
    assert explained(tmp_path, crash)[0] == "log_rank_segfault"


def test_no_run_shares_a_tensor_among_64_ranks(tmp_path: Path) -> None:
    shape = "RuntimeError: shape '[1, 4, 4, 16, 2, 2]' is invalid for input of size {}\n"
    assert "64 ranks" not in explained(tmp_path, shape.format(65536))[2]
    assert "split over" not in explained(tmp_path, shape.format(8192))[2]  # nothing shows that ranks share tensors
    shared = "--tensor-model-parallel-size 8\n"
    assert "a split over 8 ranks" in explained(tmp_path, shared + shape.format(8192))[2]
    assert "64 ranks" not in explained(tmp_path, shared + shape.format(65536))[2]


FETCH = ("torch/utils/data/_utils/fetch.py", "fetch", "data = [self.dataset[idx] for idx in possibly_batched_index]")


@pytest.mark.parametrize(
    ("error", "title", "words"),
    [
        ("ValueError: sequence_length=7311 is larger than self.max_length=6144",
         "a sample has 7,311 tokens, more than data.max_length (6,144)", "data.truncation=right"),
        ("ValueError: sequence_length=7000 is larger than self.max_length=6144",
         "a sample has 7,000 tokens", "tokenize=True, return_dict=False)"),
        ("NotImplementedError: sequence_length=301 is larger than max_length=256",
         "larger than max_length=256", "data.filter_overlong_prompts=True"),
        ("RuntimeError: Prompt length 1100 is longer than 1024.", "longer than 1024", "data.max_prompt_length=2048"),
    ],
)  # fmt: skip
def test_lengths_that_verl_refuses_name_its_options(error: str, title: str, words: str, tmp_path: Path) -> None:
    read_item = ("verl/utils/dataset/sft_dataset.py", "__getitem__", "raise ValueError(text)")
    found = explained(tmp_path, frames(TRAIN, FETCH, read_item) + error)
    assert found[0] == "log_prompts_too_long" and title in found[1] and words in found[2]


def test_another_length_is_not_one_of_verl(tmp_path: Path) -> None:
    error = "ValueError: sequence_length=5000 is larger than max_position_embeddings=4096"
    assert explained(tmp_path, frames(TRAIN) + error)[0] != "log_prompts_too_long"
