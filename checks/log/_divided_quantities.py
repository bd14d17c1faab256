"""Which quantity of the model or the batch does not fit which parallel size? The message or the assertion names both.

A remedy is about these two only: a batch has nothing to do with layers that do not fit the pipeline.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_VALIDATE = "mgpu configure --validate accelerate.yaml"
_MESSAGE = re.compile(r"(?P<what>.+?)\b(?:divisible by|a multiple of)\b(?P<by>.+)", re.DOTALL)
_CONDITION = re.compile(r"(?P<what>[^%]+?) ?% ?(?P<by>.+?) ?== ?0")
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.]*\w)")
_OF_CASES = re.compile(r"heads|samples")  # assertions that cases of the row explain
_MOST = 12  # sizes that are listed


def _part(*words: str) -> re.Pattern[str]:
    """Match one of these words, also as a part of a name: "tp" in "tp_size", not in "http"."""
    return re.compile(rf"(?i)(?<![a-z])(?:{'|'.join(words)})(?![a-z])")


# What is divided, the most specific first.
_QUANTITIES = {
    "key-value heads": _part("kv", r"kv_?heads?", r"key[ _-]?values?", r"query[ _-]?groups?"),
    "attention heads": _part("heads?", "nheads?"),
    "experts": _part("experts?", r"n?experts"),
    "layers": _part("layers?", "nlayers?"),
    "vocabulary": _part(r"vocab\w*"),
    "batch": _part(r"(?:mini|micro)?batch\w*", "bsz", "gbs", "mbs", "samples", "prompts"),
    "sequence": _part(r"seq(?:uence)?(?:s|len)?", "tokens"),
    "ranks": _part("world", "worldsize", "ranks?", "gpus?", "process(?:es)?", "devices?"),
}
_SIZES = {
    "pipeline": _part("pipeline", "pp", r"pp_?size", "stages?", "vpp", "virtual"),
    "expert": _part("expert", "experts", "ep", r"ep_?size"),
    "context": _part("context", "cp", r"cp_?size"),
    "sequence": _part("ulysses", "sequence", "seq", "sp", r"sp_?size"),
    "tensor": _part("tensor", "tp", "mp"),
    "data": _part("data", "dp", "world", "worldsize", "ranks?", "gpus?", "process(?:es)?", "devices?", "replicas?"),
    "batch": _part(r"(?:mini|micro)?batch\w*", "bsz", "mbs", "accumulation", "generations"),
}


class _Division(NamedTuple):
    """What a pair of quantities means."""

    title: str
    why: str
    fixes: tuple[Fix, ...]


_WHOLE = "Each of these ranks needs the same number of whole {what}."
# fmt: off
_STAGES = _Division(
    "the model's layers cannot be divided evenly over the pipeline stages",
    "Each pipeline stage gets the same number of layers; with virtual stages, each part of a stage does. Neither the "
    "batch nor the number of nodes is the cause.",
    (Fix("Choose a pipeline parallel size that divides the number of layers{fit}.",
         ("--pipeline-model-parallel-size N  # Megatron, NeMo: pipeline_model_parallel_size",)),
     Fix("Or give the first or the last stage another number of layers, if the program can.",
         ("--decoder-first-pipeline-num-layers N  # Megatron", "--decoder-last-pipeline-num-layers N"))))
_HEADS = _Division(
    "the model's {what} cannot be divided evenly over the tensor-parallel ranks",
    f"{_WHOLE} A model with few key-value heads (grouped-query attention) limits the size.",
    (Fix("Choose a tensor parallel size that divides the number of {what}{fit}.",
         ("--tensor-model-parallel-size N  # Megatron", "--tensor-parallel-size N  # vLLM, SGLang")),))
_HEADS_OF_SEQUENCE = _Division(
    "the model's {what} cannot be divided evenly over the sequence-parallel ranks",
    "Ulysses gives each rank a part of the sequence, and exchanges it for some of the heads in the attention. "
    f"{_WHOLE}",
    (Fix("Choose a sequence parallel size that divides the number of {what}{fit}.",
         ("ulysses_sequence_parallel_size=N  # verl: actor_rollout_ref.actor.",)),
     Fix("Or split the sequence in another way, which does not divide the heads: ring attention, context "
         "parallelism.")))
_EXPERTS = _Division(
    "the model's experts cannot be divided evenly over the expert-parallel ranks", _WHOLE,
    (Fix("Choose an expert parallel size that divides the number of experts{fit}.",
         ("--expert-model-parallel-size N  # Megatron", "--ep-size N  # SGLang")),))
_VOCABULARY = _Division(
    "the vocabulary cannot be divided evenly over the tensor-parallel ranks",
    "Each rank has an equal part of the embedding, so the vocabulary must be padded to a multiple of that size.",
    (Fix("Pad the vocabulary, in the run and when the checkpoint is converted.",
         ("--make-vocab-size-divisible-by 128",)),))
_SEQUENCE = _Division(
    "the sequence cannot be divided evenly over the {size}-parallel ranks",
    "Each of these ranks gets an equal part of the sequence; some attentions need two parts for each.",
    (Fix("Pad the sequences to a multiple of that size, or choose a size that divides them{fit}."),))
_BATCH = _Division(
    "the batch cannot be divided evenly over the data-parallel ranks",
    "The global batch is made of whole micro batches on each data-parallel rank: it must be a multiple of micro batch "
    "x data-parallel ranks. These are all ranks, divided by the tensor, pipeline and context parallel sizes.",
    (Fix("Change the batch or the number of ranks, so that the batch is such a multiple."),))
_RANKS = _Division(
    "the number of ranks is not a multiple of the parallel sizes",
    "The tensor, pipeline, context and expert parallel sizes multiply to the ranks of one copy of the model. The job "
    "must start a whole number of copies.",
    (Fix("Start a number of ranks that is a multiple of that product, or make a parallel size smaller."),))
# fmt: on
_KNOWN = {
    ("layers", "pipeline"): _STAGES,
    ("key-value heads", "tensor"): _HEADS,
    ("attention heads", "tensor"): _HEADS,
    ("key-value heads", "sequence"): _HEADS_OF_SEQUENCE,
    ("attention heads", "sequence"): _HEADS_OF_SEQUENCE,
    ("experts", "expert"): _EXPERTS,
    ("vocabulary", "tensor"): _VOCABULARY,
    ("sequence", "context"): _SEQUENCE,
    ("sequence", "sequence"): _SEQUENCE,
    ("sequence", "tensor"): _SEQUENCE,
    ("batch", "data"): _BATCH,
}
_PARALLEL = frozenset(_SIZES) - {"data", "batch"}


def of_message(what: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a message that names what must be divisible by what; None if they are not such a pair."""
    found = _MESSAGE.match(what)
    return _explain(what, found["what"], found["by"], raised) if found else None


def of_assertion(what: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a failed assertion `a % b == 0` without a message; None if they are not such a pair."""
    found = _CONDITION.match(what)
    if not found or _OF_CASES.search(found["what"]):
        return None
    return _explain(what, found["what"], found["by"], raised)


def _explain(text: str, what: str, by: str, raised: UncaughtException | None) -> Meaning | None:
    quantity = next((name for name, known in _QUANTITIES.items() if known.search(what)), None)
    sizes = [name for name, known in _SIZES.items() if known.search(by)]
    number = int(([*_NUMBER.findall(what)] or ["0"])[-1])
    if quantity == "ranks":
        of_model = _PARALLEL.intersection(sizes) or "parallel" in by.lower()
        known = _RANKS if of_model and number != 1 else None
    elif quantity == "batch":
        known = _BATCH if "data" in sizes and not _PARALLEL.intersection(sizes) else None
    else:
        known = _KNOWN.get((quantity or "", sizes[0])) if len(sizes) == 1 else None
    if known is None:
        return None
    texts = {"what": quantity or "", "size": "".join(sizes[:1]), "fit": _that_fit(number)}
    fixes = tuple(replace(one, text=one.text.format_map(texts)) for one in known.fixes)
    if known in (_RANKS, _BATCH) and raised is not None and "accelerate" in raised.packages:
        fixes = (*fixes, Fix("Check the parallel sizes in accelerate's config.", (_VALIDATE,)))
    return Meaning(f"{known.title.format_map(texts)}: {text}", known.why.format_map(texts), fixes)


def _that_fit(number: int) -> str:
    """Return the sizes that divide a number: ": 1, 2, 4"; "" for 0, which stands for a message without it."""
    fit = [one for one in range(1, min(number, 1 << 12) + 1) if number % one == 0][:_MOST]
    return f": {', '.join(map(str, fit))}" if fit else ""
