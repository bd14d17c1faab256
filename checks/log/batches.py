"""Did a collator or a function of torch get text, lists or None in place of tensors?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import within

_COLLATORS = "https://huggingface.co/docs/transformers/main_classes/data_collator"
_FORMATS = "https://huggingface.co/docs/datasets/use_with_pytorch"
_OF_DATASETS = frozenset({"datasets", "transformers", "trl"})
_COLLATES = re.compile(r" in (?:\w*collate\w*|__call__)$")
_COLUMN = re.compile(r"your features \(`(?P<column>\w+)`")
_OF_TOKENIZER = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "labels", "special_tokens_mask")
_OF_LANGUAGE_MODELS = re.compile(r"data_collator\.py in torch_call$")  # DataCollatorForLanguageModeling
_PAD_LABELS = Fix(
    "Use a collator that pads labels too (with -100, which the loss leaves out).",
    ("DataCollatorForSeq2Seq(tokenizer, padding=True)",),
)
_PAD_ALL = Fix(
    "Use a collator that pads inputs and labels.",
    ("DataCollatorForSeq2Seq(tokenizer, padding=True)", "DataCollatorForLanguageModeling(tokenizer, mlm=False)"),
)
_DROP_TEXT = Fix(
    "Tokenize the text columns, and remove them.",
    ("dataset.map(tokenize, batched=True, remove_columns=dataset.column_names)", "print(dataset.column_names)"),
)


def _of_column(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a column that the tokenizer cannot pad, by what it holds."""
    found = _COLUMN.search(raised.message) if raised else None
    if found is None:
        return None
    column = found["column"]
    if column == "labels" and raised and any(map(_OF_LANGUAGE_MODELS.search, raised.frames)):
        return Meaning(
            "the collator pads input_ids, but not the column labels, which the dataset already has",
            "DataCollatorForLanguageModeling pads what the tokenizer made, and then makes the labels of it. Labels "
            "that are in the dataset already stay as they are, with a different length in each sample.",
            (
                _PAD_LABELS,
                Fix(
                    "Or remove the column, if all tokens are to be learned: the collator then makes it.",
                    ("dataset = dataset.remove_columns('labels')",),
                ),
            ),
        )
    if any(column.endswith(name) for name in _OF_TOKENIZER):
        return Meaning(
            f"the lists of the column {column} in one batch have different lengths or are nested, and nothing pads "
            "them",
            "tokenizer.pad (in DataCollatorWithPadding) pads input_ids and the attention mask only. Lists of lists "
            "come from a tokenizer that was called with return_tensors='pt' or a list of one text.",
            (
                _PAD_ALL,
                Fix(
                    "Tokenize without return_tensors, and cut all samples to one length.",
                    ("tokenizer(text, truncation=True, max_length=1024)", python("print(dataset[0]['{:id}'])", column)),
                ),
            ),
        )
    return Meaning(
        f"the column {column} reached the collator, which cannot make a tensor of it",
        "It holds text or nested lists. A collator makes a tensor of every column that it gets: columns that the model "
        "does not need must be removed before, and text must be tokenized.",
        (_DROP_TEXT,),
    )


def _of_own_values(kind: str, at: str) -> Meaning | None:
    """Explain a number or a list that does not come from the datasets library, as far as the log shows it."""
    number = kind in ("int", "float", "bool") or (kind.startswith("numpy.") and kind != "numpy.ndarray")
    if number:
        return Meaning(
            f"item {at} of a list that torch joins into one tensor is a plain number ({kind}), not a tensor",
            "torch.stack, torch.cat and pad_sequence join tensors. Rewards, losses after .item(), lengths and labels "
            "are plain numbers, and become a tensor at once.",
            (
                Fix(
                    "Make a tensor of the numbers. For losses that are to be trained, keep them as tensors.",
                    ("torch.tensor(items)", "losses.append(loss)  # not: loss.item()"),
                ),
                _LOOK,
            ),
        )
    if kind == "list":
        return Meaning(
            f"item {at} of a list that torch joins into one tensor is a list, not a tensor",
            "A dataset, a transform or a function gives lists of Python, and nothing converts them before this line.",
            (Fix("Convert each of them.", ("torch.stack([torch.tensor(x) for x in items])",)), _LOOK),
        )
    return None


def _by_type(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain what is given in place of a tensor."""
    kind, at = groups["type"], groups["at"]
    if kind == "NoneType":
        return Meaning(
            f"item {at} of a list that torch joins into one tensor is None",
            "A sample has no value for this field, or a function returned nothing for it.",
            (
                Fix(
                    "Find the sample, and drop or fill it where the batch is built.",
                    ("print([type(x) for x in items])",),
                ),
            ),
        )
    of_datasets = raised is not None and (
        not _OF_DATASETS.isdisjoint(raised.packages) or bool(_COLLATES.search(raised.place or ""))
    )
    if not of_datasets and (meant := _of_own_values(kind, at)):
        return meant
    if kind in ("list", "int", "float"):
        return Meaning(
            f"item {at} of a list that torch joins into one tensor is a {kind}, not a tensor",
            "Datasets of the datasets library return lists and numbers of Python, unless their format is torch. After "
            "map(), remove_columns() or saving, the format is the default again.",
            (
                Fix(
                    "Set the format, or convert the values in the collator.",
                    ("dataset.set_format('torch', columns=['input_ids', 'labels'])", "torch.tensor(one['input_ids'])"),
                ),
            ),
        )
    if kind in _OTHERS:
        what, why, fix = _OTHERS[kind]
        return Meaning(
            f"item {at} of a list that torch joins into one tensor is {what}, not a tensor", why, (fix, _LOOK)
        )
    return None


# fmt: off
_LOOK = Fix("Look at what the list holds, before that line.", ("print([type(x) for x in items])",))
# What another kind of item in a list of tensors is, why it is there, and what to do.
_OF_ARRAY = (
    "a NumPy array", "The dataset or a transform returns arrays, and nothing converts them before this line.",
    Fix("Convert them.", ("torch.stack([torch.from_numpy(x) for x in items])", "torch.from_numpy(np.stack(items))")))
_OTHERS = {
    "str": ("a text",
            "The samples or results have a field of texts, such as a path, a name or an id, and the line joins every "
            "field. The default collate function leaves texts as a list.",
            Fix("Join only the fields that are tensors, and keep this one as a list.",
                ("torch.stack(x) if torch.is_tensor(x[0]) else x",))),
    "tuple": ("a tuple",
              "A model or function that returns several values (output and state, loss and logits), or a dataset whose "
              "samples are (input, label), put it there.",
              Fix("Take the part that is meant.", ("torch.stack([x[0] for x in items])", "print(len(items[0]))"))),
    "dict": ("a dict",
             "The samples or results have named fields, or a model returned an output object.",
             Fix("Join the field that is meant.",
                 ("torch.stack([x['input'] for x in items])", "print(items[0].keys())"))),
    "numpy.ndarray": _OF_ARRAY, "ndarray": _OF_ARRAY,
}
ROWS = (
    Row("log_samples_without_input_ids", "root", "script",
        r"supply an encoding or a list of encodings to this method that includes \w+, but you provided "
        r"(?P<columns>\[.{0,300}\])",
        ("ValueError: You should supply an encoding or a list of encodings to this method that includes input_ids, but "
         "you provided ['label']",),
        "the samples that reach the collator are not tokenized: they have only {columns}",
        "Nothing tokenized them, or Trainer removed the columns of tokens because the model's forward() has no "
        "argument of their name, as with a wrapped model.",
        Fix("Look at a sample, tokenize the dataset before, and keep its columns.",
            ("print(trainer.train_dataset[0])",
             "TrainingArguments(remove_unused_columns=False)")),
        _COLLATORS, summary="Samples that reach the collator are not tokenized."),
    Row("log_text_in_batch", "root", "script", r"ValueError: too many dimensions 'str'",
        ("ValueError: too many dimensions 'str'",),
        "text was given where torch needs numbers: torch.tensor() got a list of strings",
        "A tensor holds numbers. Names of classes need a number each, and text must be tokenized.",
        (Fix("Give each class a number.", ("label2id = {{name: i for i, name in enumerate(sorted(set(names)))}}",)),
         Fix("Look at what the batch holds, before that line.", ("print(type(x), x[:3])",))),
        "https://docs.pytorch.org/docs/stable/generated/torch.tensor.html",
        cases=(Case(
            within(r"^transformers/(?:tokenization|data/|feature_extraction|processing)|^trl/|^unsloth"),
            "a batch contains text: a column of the dataset was not tokenized, or was not removed",
            "The collator makes a tensor of every column that it gets. Trainer removes columns that the model does not "
            "know, unless remove_unused_columns=False; SFTTrainer tokenizes columns with the names that it expects, "
            "unless the preparation is skipped or the dataset already has input_ids.",
            (_DROP_TEXT, Fix("Compare the columns with what the trainer expects.",
                             ("print(trainer.train_dataset[0].keys())",))),
            'Traceback (most recent call last):\n  File "/home/user/sft.py", line 12, in main\n    trainer.train()\n'
            '  File "/x/site-packages/transformers/tokenization_utils_base.py", line 739, in as_tensor\n'
            "    return torch.tensor(value)\nValueError: too many dimensions 'str'", _COLLATORS),)),
    Row("log_batch_not_padded", "root", "script",
        r"Unable to create tensor, you should probably activate truncation",
        ("ValueError: Unable to create tensor, you should probably activate truncation and/or padding with "
         "'padding=True' 'truncation=True' to have batched tensors with the same length.",),
        "the samples of one batch do not make a tensor: their lengths differ, or a column is not numbers",
        "DataCollatorWithPadding pads input_ids and the attention mask only. Labels, own columns and text stay as they "
        "are.",
        (_PAD_ALL, _DROP_TEXT), _COLLATORS, explain=_of_column),
    Row("log_no_tensor_in_list", "root", "script",
        r"expected Tensor as element (?P<at>\d+) in argument \d+, but got (?P<type>\w+(?:\.\w+)*)",
        ("TypeError: expected Tensor as element 0 in argument 0, but got tuple",
         "TypeError: expected Tensor as element 0 in argument 0, but got numpy.ndarray"),
        "item {at} of a list that torch joins into one tensor is a {type}, not a tensor",
        "torch.stack, torch.cat and pad_sequence accept tensors only.",
        _LOOK,
        _FORMATS, explain=_by_type, summary="A list of tensors contains something else."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
