"""What do rows of the Hub, Trainer and datasets mean for an upload, a headless model, a short epoch, a bad row?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from ._circumstances import counts, either, every, never, said, within

_TRAINER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
_METRICS = re.compile(
    r"is set to '(?P<wanted>[^']{1,60})'.{1,80}available evaluation metrics are: "
    r"(?P<names>\[[^\]]+\])"
)
_NAME = re.compile(r"'([^']{1,80})'")
_SEVERAL = " With several evaluation sets the name has the set's name: eval_NAME_loss."
_SPEED = re.compile(r"_runtime$|_per_second$|^epoch$|_preparation_time$|_compilation_time$")
# fmt: off
UPLOAD = Case(
    either(said(r"/api/(?:repos/create|\w+/\S+/(?:preupload|commit)\b)"),
           within(r" in (?:push_to_hub|create_repo|init_hf_repo|upload_\w+|create_commit|_push_from_checkpoint)$")),
    "the run should upload to the Hub (push_to_hub), which is unreachable from here",
    "Nothing is missing for the training itself. Compute nodes often have no internet access, or HF_HUB_OFFLINE is "
    "set.",
    (Fix("Turn the upload off, and upload from a node with internet access after the run.",
         ("TrainingArguments(push_to_hub=False)", "hf upload ORG/MODEL FOLDER")),
     Fix("If the nodes have access, take the variable away.", ("unset HF_HUB_OFFLINE TRANSFORMERS_OFFLINE",))),
    "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/repos/create: offline mode "
    "is enabled. To disable it, please unset the `HF_HUB_OFFLINE` environment variable.",
    "https://huggingface.co/docs/huggingface_hub/guides/upload")
HEADLESS = (
    Case(said(r"only the following keys: last_hidden_state"),
         "the model has no head: it returns hidden states, and so no loss",
         "It is a base model (AutoModel, BertModel), which computes no loss whatever the batch has.",
         (Fix("Load the class with a head for the task.",
              ("AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2)",
               "AutoModelForCausalLM.from_pretrained(MODEL)")),
          Fix("Or compute the loss yourself.",
              ("def compute_loss(self, model, inputs, return_outputs=False, **kwargs): ...",))),
         "ValueError: The model did not return a loss from the inputs, only the following keys: "
         "last_hidden_state,pooler_output. For reference, the inputs it received are "
         "input_ids,attention_mask.", _TRAINER),
    Case(said(r"only the following keys: start_logits,end_logits"),
         "the batches have no start_positions and end_positions, so the model returns no loss",
         "Models for answering questions need these two columns: the first and the last token of the answer.",
         Fix("Make them where the data is tokenized, with these names.",
             ("inputs['start_positions'] = starts; inputs['end_positions'] = ends", "print(dataset.column_names)")),
         "ValueError: The model did not return a loss from the inputs, only the following keys: "
         "start_logits,end_logits. "
         "For reference, the inputs it received are input_ids.", _TRAINER),
)
EPOCH_WITHOUT_STEPS = Case(
    said(r"if dataloader does not have a length"),
    "the number of steps is not known: the data is a stream, or an epoch has no complete batch",
    "Trainer computes the steps from the number of batches. A streamed dataset has no known end. A dataset with fewer "
    "samples than one batch of all GPUs has none if dataloader_drop_last=True.",
    (Fix("For a stream, set the number of steps.", ("TrainingArguments(max_steps=10000)",)),
     Fix("For a small dataset, use a smaller batch, or keep the incomplete one.",
         ("print(len(dataset), len(trainer.get_train_dataloader()))",
          "TrainingArguments(dataloader_drop_last=False, per_device_train_batch_size=4)"))),
    "ValueError: args.max_steps must be set to a positive value if dataloader does not have a length, was -1", _TRAINER)
GENERATED_FROM_BATCH = Case(
    within(r"trainer\w*\.py in (?:prediction_step|evaluation_step)$"),
    "the evaluation passes the batch on to generate(), and the model does not take some of its fields: {names}",
    "With predict_with_generate, the trainer gives generate() what the collator returns. Fields that only the loss "
    "needs, that the dataset has in addition, or that a trainer adds for itself are no arguments of the model.",
    (Fix("Take the fields that the message names out of the batch before generate(), or out of the dataset.",
         ("inputs = {{name: value for name, value in inputs.items() if name not in UNUSED}}",)),
     Fix("If the trainer of a package adds them, update it, or evaluate by the loss only.",
         ("Seq2SeqTrainingArguments(predict_with_generate=False)",))),
    'Traceback (most recent call last):\n  File "/x/site-packages/transformers/trainer_seq2seq.py", line 9, in '
    "prediction_step\n    generated_tokens = self.model.generate(**generation_inputs, **gen_kwargs)\n"
    "ValueError: The following `model_kwargs` are not used by the model: ['length'] (note: typos in the generate "
    "arguments will also show up in this list)", _TRAINER)
STREAM_ENDED = Case(
    said(r"At the end of all iterable data available before expected stop iteration"),
    "the streamed dataset (IterableDataset) gave no more samples before the training's last step",
    "Its end came where a batch was expected. A generator gives its samples once: when the loop starts the data again "
    "for the steps that are left (max_steps), there are none. If no step ran before, the stream is empty from the "
    "start: a filter or a path.",
    (Fix("Make the stream of a function, which starts again for each pass, or set max_steps to what it holds.",
         ("IterableDataset.from_generator(samples)  # the function, not samples()",
          "TrainingArguments(max_steps=500)")),
     Fix("Count what it gives.", ("print(sum(1 for _ in dataset))",))),
    "ValueError: Batch does not contain any data (`None`). At the end of all iterable data available before expected "
    "stop iteration.", "https://github.com/huggingface/accelerate/blob/main/src/accelerate/data_loader.py")
ONE_CLASS_PER_SAMPLE = Case(
    either(within(r"^transformers/loss/loss_utils\.py in ForSequenceClassificationLoss$"),
           every(within(r"^transformers/models/\S+ in forward$"),
                 never(within(r"^transformers/loss/")),  # of language models: one label per token
                 counts(r"batch_size \((\d+)\) to match target batch_size \((\d+)\)",
                        lambda sizes: int(sizes[1]) > int(sizes[0]) and int(sizes[1]) % int(sizes[0]) == 0))),
    "the loss got {a} predictions and {b} labels",
    "A model that classifies sequences makes one prediction per sample. Several labels per sample are one value per "
    "class: then they must be floating point numbers, which makes the loss a multi-label one.",
    (Fix("Several classes per sample: give the labels as floats, and say so in the config.",
         ("from_pretrained(MODEL, num_labels=3, problem_type='multi_label_classification')",
          "dataset = dataset.cast_column('labels', datasets.Sequence(datasets.Value('float32')))")),
     Fix("One class per sample: give one whole number each.", ("print(batch['labels'].shape, "
             "batch['input_ids'].shape)",)),
     Fix("If a class per token is wanted, the model is another one.",
         ("AutoModelForTokenClassification.from_pretrained(MODEL)",))),
    'Traceback (most recent call last):\n  File "/v/lib/python3.11/site-packages/transformers/loss/loss_utils.py", '
    "line 9, in ForSequenceClassificationLoss\n    return fixed_cross_entropy(pooled_logits, labels)\n  File "
    '"/v/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in cross_entropy\n    return _C(\n'
    "ValueError: Expected input batch_size (2) to match target batch_size (6).",
    "https://github.com/huggingface/transformers/blob/main/src/transformers/loss/loss_utils.py")
NO_LIGHTNING_MODULE = Case(
    said(r"`model` must be a `LightningModule`.*got `(?:int|str|dict|list|type|function|NoneType|Linear|Sequential|"
         r"ResNet|DistributedDataParallel|PeftModel\w*|\w+For[A-Z]\w+)`"),
    "the model that fit() got is not a LightningModule, but another object",
    "The message names its class. A plain model of torch or transformers has no training_step: Lightning trains a "
    "LightningModule that holds the model.",
    (Fix("Wrap it.",
         ("class Lit(L.LightningModule):\n    def __init__(self, model): super().__init__(); self.model = model\n"
          "    def training_step(self, batch, i): return self.model(**batch).loss",)),
     Fix("If it is a LightningModule of the other package: import only one of lightning and pytorch_lightning.")),
    "TypeError: `model` must be a `LightningModule` or `torch._dynamo.OptimizedModule`, got `Linear`",
    "https://lightning.ai/docs/pytorch/stable/common/lightning_module.html")
# fmt: on


def beyond_last_row(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain the number of a row that a dataset with rows does not have."""
    if groups["size"] == "0":
        return None
    return Meaning(
        f"row {groups['key']} is asked for, and the dataset has {groups['size']} rows",
        "Rows count from 0. The index was made for another split, for the data before a filter, or by a sampler of "
        "another dataset.",
        (Fix("Print the length where the index is made.", ("print(len(dataset))",)),),
    )


def best_metric(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the metric that was asked for, and those that the evaluation has; None if the message does not list them."""
    found = _METRICS.search(raised.message) if raised else None
    if not found:
        return None
    wanted, names = found["wanted"], [name for name in _NAME.findall(found["names"]) if not _SPEED.search(name)]
    has = listed(names) if names else "none of its own"
    losses = [name for name in names if name.endswith("loss")]
    lost = "" if losses else " eval_loss is missing, too: probably the evaluation's batches have no labels."
    only = " The best checkpoint can only be chosen by one of these." if names else ""
    several = "" if "eval_loss" in names or not losses else _SEVERAL
    return Meaning(
        f"metric_for_best_model needs {wanted}, and the evaluation has {has}",
        f"Trainer puts eval_ before the names that compute_metrics returns.{only}{lost}{several}",
        (
            *((Fix("Choose one that there is.", (_choose(names),)),) if names else ()),
            Fix(
                "Or return it from compute_metrics, under the name without eval_.",
                (python("return {{'{:id}': value}}", wanted.removeprefix("eval_")),),
            ),
            *((Fix("For a loss, name the labels.", ("TrainingArguments(label_names=['labels'])",)),) if lost else ()),
        ),
        complete=True,
    )


def _choose(names: list[str]) -> str:
    name = next((one for one in names if one != "eval_loss"), "eval_loss").removeprefix("eval_")
    return python("TrainingArguments(metric_for_best_model='{:id}')", name)


def not_made(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the exception that stopped a dataset's preparation; None if the log does not have it."""
    if raised is None or not raised.cause:
        return None
    cause = raised.cause.rstrip(".")
    return Meaning(
        f"a dataset could not be prepared: {cause}",
        f"datasets reads all files of a split into one table. The exception before this one is why: {_why(cause)}",
        (
            Fix("Find the row in the file, and correct or drop it.", (_look(cause),)),
            Fix("In one process the message is the same, and quicker to get.", ("load_dataset(..., num_proc=None)",)),
        ),
    )


def _why(cause: str) -> str:
    for words, meaning in (
        ("JSON parse error", "a line is not valid JSON. Rows count from 0, within a block of the file."),
        ("CastError", "the columns or types of a file differ from features=, or from those of the first file."),
        ("invalid literal", "a value in a column of numbers is text, or the header does not fit features=."),
        ("KeyError", "the file has no such key at its top (field=), or no such column."),
        ("UnicodeDecodeError", "the file is not UTF-8 text: it is compressed, binary, or has another encoding."),
        ("No space left", "the disk of the cache is full (HF_DATASETS_CACHE)."),
    ):
        if words in cause:
            return meaning
    return "one of its files is damaged, has other columns or types, or the disk is full."


def _look(cause: str) -> str:
    if "JSON" in cause:
        return "python -c \"import json; [json.loads(line) for line in open('FILE.jsonl')]\""
    return shell("head -n 3 {:path}; df -h .", "FILE")
