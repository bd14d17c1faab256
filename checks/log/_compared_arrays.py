"""Which arrays does numpy not combine, and are they the scores and the labels of a metric?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning

_OF_METRICS = re.compile(r"metric|accura|score|f1|evaluat|compare", re.I)
_OF_LABELS = re.compile(r"==|!=|label|target|pred|logit|metric|accura|score|f1|\by(?:_\w+)?\b", re.I)
_OF_PAIRS = re.compile(r"^trl/trainer/utils\.py in compute_accuracy$")


def two_arrays(found: re.Match[str], one: UncaughtException, own_code: str) -> Meaning:
    """Explain the shapes `first` and `second` of a message."""
    first, second = ([int(size) for size in re.findall(r"\d+", found[name])] for name in ("first", "second"))
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    at = at_place(one)
    title = f"two arrays of shapes ({found['first']}) and ({found['second']}) cannot be combined{at}"
    one_more = len(longer) == len(shorter) + 1 and longer[:-1] == shorter
    if one_more and any(map(_OF_PAIRS.search, one.frames[-1:])):
        return _more_than_one_score(title)
    if one_more and any(map(_OF_METRICS.search, (*one.frames, own_code))) and _OF_LABELS.search(own_code):
        return _scores_of_classes(title, longer[-1], "transformers" in one.packages)
    return Meaning(
        title,
        "From the last dimension on, sizes must be equal or 1. Another number of samples, of columns or of channels is "
        "usual, or a dimension that one of them lacks.",
        (Fix("Print both shapes before that line.", ("print(a.shape, b.shape)",)),),
        of_code=False,
    )


def _scores_of_classes(title: str, classes: int, of_trainer: bool) -> Meaning:
    reduced = Fix(
        "Or reduce it before the evaluation collects all scores, which also saves memory.",
        ("Trainer(preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), ...)",),
    )
    return Meaning(
        title,
        f"One has {classes} values for each item of the other: probably scores of classes (logits) are compared with "
        "labels. A model that returns scores per token or per class needs the best class first.",
        (
            Fix(
                "Take the class with the largest score before the comparison.",
                ("predictions = np.argmax(predictions, axis=-1)",),
            ),
            *((reduced,) if of_trainer else ()),
        ),
    )


def _more_than_one_score(title: str) -> Meaning:
    """Explain what TRL's own accuracy of a reward model gets: it takes the better of two scores by itself."""
    return Meaning(
        f"the reward model probably does not return one score for each text: {title}",
        "TRL's compute_accuracy compares one score of the chosen text with one of the rejected text. A dimension more "
        "comes from a model that scores every token, such as a language model (...ForCausalLM, ...LMHeadModel), in "
        "place of a classifier. The steps before it then trained on such scores too. Another argmax would hide that.",
        (
            Fix(
                "Load the model as a classifier with one score.",
                ("AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1)",),
            ),
            Fix("Check what the model returns for one batch.", ("print(type(model), model(**batch).logits.shape)",)),
        ),
    )
