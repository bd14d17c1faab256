"""Which steps does a line count, and do the last lines of a log show that the training reached its last step?

A counter at its total is the end of a bar or of an epoch, and not always of the run: it counts only if no other epoch
can follow, or if the program wrote its results after it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mgpu.readers.log.line import parse_line

SEARCHED = 400  # characters of a line
_TAIL_LINES = 60
# In the shape of a line with a step counter (prefilter.py: lower case, without digits and spaces).
SHAPES = (
    b"step",
    b"iter",
    b"epoch",
    b"batch",
    b"it/s",
    b"s/it",
    b"%|",
    b"episode",
    b"update",
    b"round",
    b"examples/s",
    b"]eta:",
    b",]loss",
    b",]train",
    b",/]loss",
    b",/]train",
    b"it=",
    b"|loss",
)
# The counters: tqdm's "50/1000 [00:10<03:00", Keras' "50/50 [=====] - 5s", and words before a number.
_BAR = re.compile(r"(?P<name>[^%|]*?)\d{1,3}%\|.*?\| *(?P<at>[\d.]+)[kKMG]?/(?P<of>[\d.?]+)[kKMG]? \[\d")
# Of tqdm without the bar itself, as Colab shows it: "45% 45/100 [01:09<01:25, 1.55s/it]".
_BAR_LESS = re.compile(
    r"(?P<name>[^%|]*?)\b\d{1,3}% +(?P<at>[\d.]+)[kKMG]?/(?P<of>[\d.?]+)[kKMG]? \[[\d:]+<[^\]]{0,40}(?:it/s|s/it)\b"
)
_KERAS = re.compile(r"^\s*(?P<at>\d{1,9})/(?P<of>\d{1,9}) (?:\[[=>.]+\]|━+)\S* (?:- )?\d+(?:ms|s|:)")
_COUNTER = re.compile(
    r"(?<!\bper)(?<!\bper )\b(?P<name>(?:global|train|training|optimizer|total|num)?[ _-]?(?:steps?|iter(?:ation)?s?|"
    r"updates?|batch|episode|round|epoch)|it(?= ?=))\b[\"']?\s{0,3}[:=#\[(]{0,2}\s{0,9}"
    r"(?P<at>\d{1,12}(?:\.\d{1,9})?)(?!\d|:\w+\.py\b)"
    r"(?: ?/ ?(?P<of>\d{1,12}))?",
    re.I,
)
# A line without any of them has no counter.
_COUNTED = ("step", "iter", "update", "batch", "episode", "round", "epoch", "it=", "it =")
# "Epoch(val) [12][5000/5000]" of mmengine, "Epoch: [89][5000/5005]", "Train Epoch: 31 [500/500 (100%)]".
_OF_EPOCH = re.compile(
    r"\bepoch(?:\((?P<kind>\w+)\))?:?\s{0,4}\[?\s{0,4}(?P<epoch>\d{1,6})\]?\s{0,4}(?:\[\s*(?P<at>\d{1,12})\s*/\s*(?P<of>\d{1,12})\b)?",
    re.I,
)
# "Epoch: [3]  [  20/1252]  eta: 0:12:31", as torchvision's MetricLogger and its copies write it; "Evaluation  [ 20/250]
# eta: ...", and without a header.
_WITH_ETA = re.compile(
    r"^(?P<name>[^\[\]]{0,60})(?:\[ *(?P<epoch>\d{1,6}) *\])? *\[ *(?P<at>\d{1,12}) */ *(?P<of>\d{1,12})\] +eta: "
)
# "[1,  2000] loss: 2.173" of torch's tutorials: epoch and step.
_PAIR = re.compile(
    r"^(?:[A-Z]+:\w+:)?\W{0,3}\[ *(?P<epoch>\d{1,6}), *(?P<at>\d{1,12})(?: */ *\d{1,12})?\] (?:train_?|val_?)?loss\b"
)
# "622 | loss 2.8663 | lr 3e-4", as copies of llama2.c write it.
_PIPED = re.compile(r"^(?P<at>\d{1,12})(?: ?/ ?(?P<of>\d{1,12}))? \| (?P<name>(?:train[_ ]?)?loss)\b")
# "epoch=0 i=17/530", "Epoch 1/10, step 17/530": the epoch alone would not grow from step to step.
_STEP_OF_EPOCH = re.compile(
    r"\bepoch ?[=: ] ?(?P<epoch>\d{1,6})(?: ?/ ?\d{1,6})?[],;|: -]{1,3}"
    r"\[?(?:i|it|iter|iteration|step|batch|idx) ?[=: ] ?(?P<at>\d{1,12}) ?/ ?(?P<of>\d{1,12})\b",
    re.I,
)
# A bar that prepares the run: its 100% is not the end of the run.
_PREPARES = re.compile(
    r"load|download|fetch|map|filter|token|generating|resolv|extract|saving the dataset|sanity|shard|warm|capturing|"
    r"compil|split|preprocess|packing|cast|concat|import|convert|creating|read|writ|build|quantiz|prepar|stat",
    re.I,
)
# A bar of datasets (map, filter), whatever its title: it counts examples. Trainers count steps.
OF_DATASET = re.compile(r"\d%\|[^|]*\| *[\d.]+[kKMG]?/[\d.?]+[kKMG]? \[[^\]]{0,60}\bexamples/s\b")
# What Trainer prints of its plan before the first step: "  Total optimization steps = 2".
_PLANNED = re.compile(
    r"\b(?:Total optimization steps|Gradient Accumulation steps|Num (?:Epochs|examples)) = [\d,]+$", re.I
)
_EVALUATES = re.compile(
    r"\b(?:eval\w*|valid\w*|val|test\w*|predict\w*|inference|generate|generating|generation|mAP\S*|sampling)\b|mAP",
    re.I,
)
_OF_WHOLE = re.compile(
    r"^\W*(?:(?:train(?:ing)?|optimization|global) ?)?(?:steps?|progress|iterations?|iters?)\W*$", re.I
)
_OUTER = re.compile(r"(\d+) ?/ ?(\d+)")  # in the name of a bar: "Epoch 1/10: 100%|" is not the end of the run
_INDEX = re.compile(r"\b(?:epoch|episode|round|fold|stage|iteration|phase)\W{0,3}(\d{1,6})", re.I)
# "epoch: 10" alone can be of a configuration.
_HEAD_OF_EPOCH = re.compile(r"\W{0,9}(?:train\w*\W{1,3})?epoch(?!\s*[:=]\s*\d+\s*$)\W{0,3}(\d{1,6})\b", re.I)
_STARTED = re.compile(
    rb"(?:^|[\r\n])(?P<name>[^%|\r\n]{0,80}?) {0,3}0%(?:\|[^|\r\n]{0,200}\|)? *0/(?P<of>\d{1,12}) \[00:00"
)
# What a program writes after its training, and torch when the process exits by itself.
_RESULT = re.compile(
    r"\b(?:saved|saving|wrote|written|uploaded|pushed|exported)\b.{0,80}?(?:model|weights|adapter|pipeline|config|"
    r"tokenizer|processor|\.(?:pt|pth|bin|safetensors|ckpt)\b)|\bsaved in \S+|^wandb: Run summary:|\bfinal \w+ ?[:=]|"
    r"process group has NOT been destroyed|destroy_process_group\(\) was not called before program exit",
    re.I,
)
# What reinforcement learning does between two rounds of training.
_NEXT_ROUND = re.compile(
    r"\b(?:update|updating|sync(?:ing)?|send(?:ing)?|broadcast(?:ing)?|load(?:ing)?) (?:the )?(?:model )?weights?\b|"
    r"\bmake_experience\b|\brollouts?\b|\bwak(?:e|ing)[ _]up\b",
    re.I,
)
# mmengine's estimate of the time that is left in all epochs, and the time of one step.
_LEFT = re.compile(r"\beta: (?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d)\s+time: (?P<step>\d+\.\d+)")
_EPOCH_ENDED = re.compile(r"\bend[ -]of[ -]epoch\W{0,3}(?P<epoch>\d{1,6})\b", re.I)
# torch writes it when a process exits by itself.
_EXITED = re.compile(r"destroy_process_group\(\) was not called before program exit")
# "[Step 3/3] Launching training...": a script's heading of what it does next, not a step of the training.
_HEADING = re.compile(r"^[\])}:.\s-]{0,5}(?:[A-Za-z]+ing\b[^\d=]*|[^\d=]*(?:\.\.\.|…)\s*)$")
_MOST_PARTS = 20
# The last line of a log announces what follows: "working on file b.pth ..."
_ANNOUNCES = re.compile(
    r"^\W{0,5}(?:[A-Z]+:\w+:)?"
    r"(?!(?:saving|cleaning|closing|clearing|deleting|removing|exiting|finishing|shutting|terminating|uploading|writing)\b)"
    r"\w+ing\b.*(?:\.\.\.|…)\s*$",
    re.I,
)
_WRONG = re.compile(r"\b(?:error|fatal|failed|failure|exception|abort(?:ed|ing)?)\b", re.I)
_VALUE = re.compile(r"(?<![\w./])\d+\.\d+|\d\.?\d*e[-+]\d+", re.I)
_SUMMARY = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test|average|avg|mean|mAP|acc@1)\b|mAP", re.I)
# How many steps and epochs the run was configured for.
ANNOUNCED = re.compile(
    r"(?:\b|_)(?:max|total|num|number of|n)[_ -](?:train(?:ing)?[_ -])?(?:optimization[_ -])?"
    r"(?P<unit>steps|iters?|iterations|updates|(?:train[_ -])?epochs)['\"]?"
    r"\s{0,12}[:=\s]\s{0,12}['\"]?(?P<number>\d{1,9})\b(?!\.\d)|"
    r"(?:^|[\s,('\"-])(?:(?P<epochs>epochs)|train[_-]iters)['\"]?\s{0,12}[:=\s]\s{0,12}['\"]?(?P<other>\d{1,9})\b(?!\.\d)|"
    r"\b[Tt]raining for (?P<for>\d{1,6}) (?P<of>epochs|steps|iterations)\b",
    re.I,
)
# What a match of it contains, in lower case: many times faster, and few lines have it.
_CAN_ANNOUNCE = re.compile(
    r"(?:max|total|num|n|number of)[_ -](?:train|optim|steps|iter|updates|epochs)|epochs|train[_-]iters|training for"
)
_BEFORE_UNIT = re.compile(r"[flmnx][_ -](?:train|optim|steps|iter|updates|epochs)")  # which few lines have
# Shapes and words of such lines (prefilter.py).
# fmt: off
ANNOUNCING = (
    "max_steps", "maxsteps", "max_iter", "maxiter", "max_epoch", "maxepoch", "max_train", "maxtrain", "total_steps",
    "totalsteps", "total_iter", "total_train", "totaltrain", "totaloptimizationsteps", "total_optimization",
    "num_epochs", "numepochs", "num_train", "numtrain", "num_steps", "numsteps", "num_iter", "n_epochs", "epochs",
    "train_iters", "trainiters", "trainingfor", "numberofepochs", "numberofsteps", "max_updates", "maxupdates",
)
ANNOUNCING_WORDS = ("max", "total", "num", "epochs", "iters", "steps", "training", "number")
# fmt: on
_ANNOUNCED_CHARS = 1 << 13
_STEPS_IN_EPOCH = 10**12  # more than any epoch has


@dataclass
class Announced:
    """How long the run was configured to be, and which bars it started."""

    steps: set[int] = field(default_factory=set)
    epochs: set[int] = field(default_factory=set)
    bars: Counter[tuple[str, int]] = field(default_factory=Counter)

    def take(self, text: str) -> None:
        """Process a line that can state how long the run will be."""
        lower = text.lower()
        possible = "epochs" in lower or "train" in lower or _BEFORE_UNIT.search(lower)
        if text.isascii() and not (possible and _CAN_ANNOUNCE.search(lower)):
            return
        for found in ANNOUNCED.finditer(text[:_ANNOUNCED_CHARS]):
            number = int(found["number"] or found["other"] or found["for"])
            unit = found["unit"] or found["epochs"] or found["of"] or "iters"
            (self.epochs if "epoch" in unit.lower() else self.steps).add(number)

    def take_bars(self, piece: bytes) -> None:
        """Count the bars that start in a piece of the log."""
        if b"| 0/" in piece or b"% 0/" in piece:
            for found in _STARTED.finditer(piece):
                name = parse_line(found["name"].decode("utf-8", "replace")).text
                self.bars[_name(name), int(found["of"])] += 1


def _bar(text: str) -> re.Match[str] | None:
    """Return the bar in a line. Without its last two characters the search fails at every place, after a long try."""
    if "%|" in text:
        return _BAR.search(text)
    return _BAR_LESS.search(text) if "% " in text and "<" in text else None


def _can_count(text: str) -> bool:
    """Whether a line can have a counter. Outside of ASCII a letter can be another one in lower case: the long s."""
    lower = text.lower()
    return not text.isascii() or any(word in lower for word in _COUNTED)


def counter(text: str) -> tuple[str, float, float | None] | None:
    """Return the name, value and total of a line's counter."""
    found = _bar(text) or (_COUNTER.search(text) if _can_count(text) else None) or _PIPED.match(text)
    if found is None or _PLANNED.search(text):
        return None
    try:
        of = None if found["of"] in (None, "?") else float(found["of"])
        return _name(found["name"]), float(found["at"]), of
    except ValueError:
        return None


def progress(text: str) -> tuple[str, float, float | None] | None:
    """Return the counter of a line as `counter` does, but with the steps of an epoch: Epoch: 3 [500/5000] is 3.1."""
    if found := _WITH_ETA.search(text):
        return (
            f"eta {_name(found['name'])}",
            int(found["epoch"] or 0) + int(found["at"]) / max(1, int(found["of"])),
            None,
        )
    if found := _PAIR.search(text):
        return "epoch and step", int(found["epoch"]) + int(found["at"]) / _STEPS_IN_EPOCH, None
    if found := _STEP_OF_EPOCH.search(text):
        return "epoch and step", int(found["epoch"]) + int(found["at"]) / max(1, int(found["of"])), None
    found = None if _bar(text) else _OF_EPOCH.search(text)
    if found is None or not found["at"] or not int(found["of"]):
        return counter(text)
    return f"epoch {found['kind'] or ''}", int(found["epoch"]) + int(found["at"]) / int(found["of"]), None


def prepares(name: str) -> bool:
    """Whether a counter's name shows that it prepares the run."""
    return bool(_PREPARES.search(name))


def epoch_of(text: str) -> int:
    """Return the number of the epoch that a line or the name of a bar begins with; 0 without one."""
    found = _HEAD_OF_EPOCH.match(text)
    return int(found[1]) if found else 0


def evaluates(name: str) -> bool:
    """Whether a counter's name shows that it counts an evaluation."""
    return bool(_EVALUATES.search(name))


def training_step(text: str) -> bool:
    """Whether a line counts the steps of the training, and not how far the run is prepared."""
    text = text[:SEARCHED]
    found = progress(text)
    return found is not None and not prepares(found[0]) and not OF_DATASET.search(text)


def unnamed_total(text: str) -> float | None:
    """Return the total of a bar without a name and without a loss: of the training, or of work within it."""
    found = _bar(text[:SEARCHED])
    if found is None or found["name"].strip() or "=" in text[found.end() : SEARCHED] or found["of"] == "?":
        return None
    return float(found["of"])


def last_step(tail: str, announced: Announced) -> tuple[bool | None, str]:
    """Whether the last line of a log's tail that counts steps shows that the training reached its last one.

    With that line. None: the tail does not show how far the training is.
    """
    raw = [line for line in tail.replace("\r", "\n").split("\n") if line.strip()][-_TAIL_LINES:]
    whole = [parse_line(line).text for line in raw]
    texts = [text[:SEARCHED] for text in whole]
    if texts and _ANNOUNCES.match(texts[-1]):
        return False, ""
    later = _Later()
    for place in range(len(texts) - 1, -1, -1):
        text = texts[place]
        done = _state(text, announced, later, texts[:place])
        if done is not None:
            return done, whole[place]
        if _EXITED.search(whole[place]):
            later.exited = True
        elif later.exited and _RESULT.search(text):
            return True, whole[place]
        later.exited &= not _WRONG.search(text)
        later.results |= bool(_RESULT.search(text))
        later.works |= bool(_NEXT_ROUND.search(text))
    return None, ""


@dataclass
class _Later:
    """What the lines after the one in question show."""

    results: bool = False
    steps: bool = False  # a step without a total
    inner: bool = False  # the bar within an epoch is complete
    works: bool = False  # the run gives an inference engine the new weights, or generates with it, as after each step
    evaluated: int | None = None  # the epoch after which the run was evaluated
    ended: int | None = None  # the epoch that a line reports as complete
    exited: bool = False  # the process exits by itself, and nothing between reports an error


def _state(text: str, announced: Announced, later: _Later, before: Iterable[str]) -> bool | None:
    """Whether a line shows the end of the training; None: it does not show how far the training is."""
    if bar := _bar(text):
        return _of_bar(bar, announced, later)
    if keras := _KERAS.match(text):
        later.inner = keras["at"] == keras["of"]
        return None if later.inner else False
    if ended := _EPOCH_ENDED.search(text):
        later.ended = int(ended["epoch"])
        return None
    epoch = _OF_EPOCH.search(text)
    if epoch and epoch["at"]:
        complete = epoch["at"] == epoch["of"]
        if complete and _EVALUATES.match(epoch["kind"] or "") and not _is_last(epoch, announced):
            later.evaluated = int(epoch["epoch"])
            return None
        if later.evaluated == int(epoch["epoch"]) and _only_this_epoch_left(text, int(epoch["of"]) - int(epoch["at"])):
            return True
        return complete and _is_last(epoch, announced) and not later.steps
    found = [one for one in _COUNTER.finditer(text) if not _PREPARES.search(one["name"])]
    totals = [one for one in found if one["of"]]
    if totals:
        return _of_totals(text, totals, len(found) > len(totals), announced, later, before)
    if epoch and int(epoch["epoch"]) == max(announced.epochs, default=-1) and not later.steps:
        return bool(_SUMMARY.search(text) and _VALUE.search(text)) or None
    if ANNOUNCED.search(text):
        return None
    steps = [one for one in found if not re.search("epoch|batch", one["name"], re.I)]
    if steps and announced.steps and any(_advanced(one, before) for one in steps):
        return any(float(one["at"]) >= max(announced.steps) for one in steps)
    later.steps |= bool(found)
    return None


def _is_last(epoch: re.Match[str], announced: Announced) -> bool:
    return int(epoch["epoch"]) == max(announced.epochs, default=-1)


def _only_this_epoch_left(text: str, steps: int) -> bool:
    """Whether the time that is left is that of this epoch's last steps. It is computed from the mean of all steps."""
    left = _LEFT.search(text)
    if left is None:
        return False
    return int(left["h"]) * 3600 + int(left["m"]) * 60 + int(left["s"]) <= 1.5 * steps * float(left["step"])


def _advanced(step: re.Match[str], before: Iterable[str]) -> bool:
    """Whether an earlier line has the same counter with a smaller number."""
    earlier = (one for text in before for one in _COUNTER.finditer(text) if one["name"] == step["name"])
    return any(float(one["at"]) < float(step["at"]) for one in earlier)


def _of_bar(bar: re.Match[str], announced: Announced, later: _Later) -> bool | None:
    name = bar["name"].strip()
    if _PREPARES.search(name):
        return None
    try:
        complete = float(bar["at"]) == float(bar["of"]) > 1
    except ValueError:
        return False
    if not complete or later.works:
        return False
    if _EVALUATES.search(name):
        return None
    if outer := _OUTER.search(name):
        return outer[1] == outer[2]
    if index := _INDEX.search(name):
        return int(index[1]) == max(announced.epochs, default=-1)
    if announced.bars[_name(name), int(float(bar["of"]))] > 1:  # it was started again: in each epoch
        return False
    return bool(_OF_WHOLE.match(name)) or "epoch" in name.lower() or later.results


def _of_totals(
    text: str, totals: list[re.Match[str]], others: bool, announced: Announced, later: _Later, before: Iterable[str]
) -> bool | None:
    if any(float(one["at"]) != float(one["of"]) or float(one["of"]) <= 1 for one in totals):
        return False
    if float(totals[0]["of"]) <= _MOST_PARTS and _HEADING.match(text[totals[-1].end() :]):
        return False
    epochs = [one for one in totals if re.search("epoch|round|episode", one["name"], re.I)]
    if not epochs:
        index = _INDEX.search(text)
        return not index or int(index[1]) == max(announced.epochs, default=-1)
    if later.inner or (
        later.ended == float(epochs[0]["at"]) and not others and text.lstrip("= #*-").startswith("Epoch")
    ):
        return True
    if others or later.steps:
        return False
    if len(epochs) < len(totals):
        return True
    head = text[: epochs[0].end()]
    again = any(other.startswith(head) for other in before)  # printed for each batch, or by each rank
    return later.results or bool(_VALUE.search(text) and not again)


def _name(name: str) -> str:
    return name.strip().lower()[-40:]
