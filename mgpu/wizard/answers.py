"""What has the user decided, and where? One record; a file, flags, the environment and questions fill it.

KEYS is the one table of what can be decided. The flags of `mgpu configure`, the variables MGPU_*, `--set`, the answers
files and the command line that repeats a session are all made from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from mgpu import errors
from mgpu.errors import MgpuError, clipped
from mgpu.job_formats import SHAPES
from mgpu.planning import memory
from mgpu.secrets_masking import masked, masked_argv

Origin = Literal["probe", "rule", "you", "flag", "env", "answers", "file", "-"]


@dataclass(frozen=True)
class Answers:
    """The user's decisions. None or "auto": nothing was decided, the machine or a rule says.

    `origins` tells where each decided field came from. A field that is decided and None or "auto" was left to the
    machine on purpose. Nothing about the machine stands here: what is in the record is stored and replayed.
    """

    # model
    params: int | None = None  # parameters of the model
    model: str | None = None  # the Hub id or folder `params` was read from
    train: str = "auto"  # full, lora, qlora
    trainable: int | None = None  # parameters that are trained, where not all are
    optimizer: str = "auto"  # adamw, adam8bit, sgd, adafactor
    seq_len: int | None = None  # tokens per sample: said in a hint, never judged
    # devices
    gpus: int | tuple[int, ...] | None = None  # how many, or which (NVML order); 0 = CPU ranks
    precision: str = "auto"  # no (fp32), fp16, bf16, fp8
    strategy: str = "auto"  # ddp, fsdp2, zero1, zero2, zero3
    offload: str = "auto"  # none, cpu
    # batch
    batch_per_gpu: int | None = None
    accum: int | None = None  # gradient accumulation steps
    effective_batch: int | None = None  # wanted; accumulation follows from it
    dataset_size: int | None = None  # samples
    drop_last: bool | None = None  # of the DataLoader
    epochs: int | None = None
    lr: float | None = None  # a learning rate the user trusts …
    lr_ref_batch: int | None = None  # … at this effective batch
    lr_rule: str = "auto"  # keep, sqrt, linear
    # host
    threads: int | None = None  # OMP threads per rank
    workers: int | None = None  # DataLoader workers per rank
    numa: bool | None = None  # bind ranks to the CPUs near their GPU
    port: int | None = None  # of the rendezvous; None: a free one at every launch
    compile: bool | None = None  # torch.compile
    reshard: bool | None = None  # training may go on later on another number of GPUs
    # machines
    nodes: int | None = None
    address: str | None = None  # of the first machine, as the others reach it
    # a job on Slurm
    slurm: bool | None = None  # Slurm starts the machines; a job script is written too
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: str | None = None  # as Slurm reads it: 12:00:00
    gpus_per_node: int | None = None  # 0 = ranks on the CPU
    gpu_model: str | None = None  # of the nodes, where Slurm does not say: A100-80GB
    shape: str = "auto"  # accelerate, torchrun, plain
    container: str | None = None  # the image the ranks run in
    requeue: bool | None = None
    preflight: bool | None = None  # the job examines and tests its nodes first
    spare: int | None = None  # nodes more, to stand in for bad ones
    command: tuple[str, ...] | None = None  # the script and its arguments
    origins: Mapping[str, Origin] = field(default_factory=dict)
    source: str = ""  # where `params` was read, when it was: "from the local cache"

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


UNDECIDED: Final = Answers()
_MOST = 999_999  # samples, steps, epochs: anything larger is a slip of the keyboard
_MOST_TOKENS = 10_000_000
_MOST_CPUS = 4_096  # threads or workers of one rank
_MOST_NODES = 100_000
_MOST_RATE = 1_000.0
_MOST_SECONDS = 365 * 24 * 3600  # of a job
_MOST_GPUS = 64  # of a node
_MOST_SPARE = 1_000


# -- how each kind of value is read: from text, or from what a TOML, JSON or YAML reader made of it -----------------


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(raw: object) -> int:
        text = str(raw).strip().replace("_", "").replace(",", "")
        if isinstance(raw, bool) or not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _one_of(*names: str, **also: str) -> Callable[[object], str]:
    """One of the names; `also` are other spellings of them."""

    def read(raw: object) -> str:
        text = ("no" if raw is False else str(raw)).strip().lower()  # YAML reads a bare no as False
        text = also.get(text, text)
        if text not in (*also.values(), *names):
            told = [*names, "auto"]
            import difflib

            near = difflib.get_close_matches(text, told, n=1, cutoff=0.5)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise ValueError(f"choose {', '.join(told[:-1])} or {told[-1]}{hint}")
        return text

    return read


def _yes_no(raw: object) -> bool:
    text = str(raw).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise ValueError("yes or no")


def _name(raw: object) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if not text or not text.isprintable() or len(text) > 500:
        raise ValueError("a name, on one line")
    return text


def _host(raw: object) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.%]*:[0-9A-Za-z:.%]*\]?", text):
        raise ValueError("a host name or an address, without a port")
    return text


def _rate(raw: object) -> float:
    from mgpu.planning import plan

    value = plan.parse_rate("" if isinstance(raw, bool | list | dict) else str(raw))
    if value > _MOST_RATE:
        raise ValueError(f"a learning rate of {value:g} is too large to be meant: write a number such as 2e-5")
    return value


def _params(raw: object) -> int:
    from mgpu.planning import plan

    return plan.parse_params(_digits(raw))


def _count(raw: object) -> int:
    from mgpu.planning import plan

    return plan.parse_count(_digits(raw))


def _digits(raw: object) -> str:
    """What a reader made of 8.03e9 as the text it was, so that one parser judges both."""
    if isinstance(raw, float) and raw.is_integer():
        return str(int(raw))
    return "" if isinstance(raw, bool | list | dict) else str(raw)


def _gpus(raw: object) -> int | tuple[int, ...]:
    """How many (2), or which (0,1,3; 0-3; [2]; "3," is GPU 3 alone)."""
    if isinstance(raw, list | tuple):
        raw = ",".join(map(str, raw)) + ","
    text = str(raw).strip().replace(" ", "")
    if not isinstance(raw, bool):
        if re.fullmatch(r"[0-9]{1,4}", text):
            return int(text)
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1].rstrip(",") + ","
        if re.fullmatch(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*,?", text):
            which: list[int] = []
            for part in filter(None, text.split(",")):
                first, _, last = part.partition("-")
                if int(last or first) < int(first):
                    raise ValueError(f"{part} runs backwards")
                which += range(int(first), int(last or first) + 1)
            twice = next((index for index in which if which.count(index) > 1), None)
            if twice is not None:
                raise ValueError(f"GPU {twice} is named twice")
            return tuple(sorted(which))
    raise ValueError('how many GPUs (2), which (0,1,3; "3," is GPU 3 alone), or auto')


def _of_slurm(what: str, also: str = "") -> Callable[[object], str]:
    """A name as Slurm gives them; it stands in a line of the job script as it is."""

    def read(raw: object) -> str:
        text = raw.strip() if isinstance(raw, str) else ""
        if not re.fullmatch(rf"[A-Za-z0-9_][A-Za-z0-9_.@+{also}-]{{0,199}}", text):
            raise ValueError(f"{what}, as Slurm calls it")
        return text

    return read


def _time(raw: object) -> str:
    from mgpu.probes import cluster

    text = str(raw).strip()
    try:
        length = cluster.seconds(text)
    except ValueError:
        length = None
    if isinstance(raw, bool) or not length or length > _MOST_SECONDS:
        raise ValueError("a time as Slurm reads it: 90 (minutes), 12:00:00, 2-00:00:00")
    return text


def _image(raw: object) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    if not text or not text.isprintable() or len(text) > 500 or text.startswith("-"):
        raise ValueError("an image: a .sif or .sqsh file, or a name such as nvcr.io/nvidia/pytorch:25.10-py3")
    return text


def _gpu_model(raw: object) -> str:
    from mgpu.planning import gpu_models

    found = gpu_models.named(raw) if isinstance(raw, str) else ()
    if len(found) != 1:
        near = found or gpu_models.MODELS
        raise ValueError(f"choose {', '.join(model.name for model in near[:-1])} or {near[-1].name}")
    return found[0].name


def _command(raw: object) -> tuple[str, ...]:
    """train.py --lr 1e-4, or -m package.train; as one text, or as words."""
    import shlex

    try:
        words = tuple(map(str, raw)) if isinstance(raw, list | tuple) else tuple(shlex.split(str(raw)))
    except ValueError:
        words = ()
    script = bool(words) and (words[0].endswith(".py") or (words[0] == "-m" and len(words) > 1))
    if not script or any(not word.isprintable() for word in words):
        raise ValueError("the training script and its arguments: train.py --lr 1e-4, or -m package.train")
    return words


@dataclass(frozen=True)
class Key:
    """One thing that can be decided: a field of Answers and every name it has outside."""

    name: str  # the field
    section: str  # the table of an answers file …
    key: str  # … and the key in it
    metavar: str
    help: str
    read: Callable[[object], Any]  # raises ValueError: what is allowed, as a clause

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "MGPU_" + self.name.upper()

    @property
    def dotted(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def switch(self) -> bool:
        """Whether the flag takes no value: --numa, --no-numa."""
        return self.read is _yes_no


SECTIONS: Final = {
    "model": "Model",
    "devices": "Devices",
    "batch": "Batch and learning rate",
    "host": "Host",
    "machines": "Machines",
}

KEYS: Final = (
    Key("params", "model", "params", "N", "Parameters of the model: 8.03B, 350M, 8.03e9.", _params),
    Key("model", "model", "name", "ID", "Read them from a Hugging Face model: an id or a folder.", _name),
    Key("train", "model", "train", "HOW", "full, lora or qlora.", _one_of(*memory.TRAIN)),
    Key("trainable", "model", "trainable", "N", "Parameters that are trained, where not all are.", _params),
    Key(
        "optimizer", "model", "optimizer", "NAME", "adamw, adam8bit, sgd or adafactor.",
        _one_of(*memory.OPTIMIZERS),
    ),
    Key("seq_len", "model", "seq_len", "N", "Tokens per sample, for a hint.", _whole(1, _MOST_TOKENS)),
    Key("gpus", "devices", "gpus", "N|LIST", "How many (2), or which (0,1,3); 0 = CPU ranks.", _gpus),
    Key(
        "precision", "devices", "precision", "P", "bf16, fp16, fp32, fp8 or auto.",
        _one_of("bf16", "fp16", "fp32", "fp8", fp32="no"),
    ),
    Key(
        "strategy", "devices", "strategy", "S", "ddp, zero1, zero2, zero3, fsdp2 or auto.",
        _one_of(*memory.STRATEGIES),
    ),
    Key("offload", "devices", "offload", "TO", "none or cpu: what does not fit goes to RAM.", _one_of("none", "cpu")),
    Key("batch_per_gpu", "batch", "per_gpu", "N", "Samples per GPU per step.", _whole(1, _MOST)),
    Key("accum", "batch", "accum", "N", "Gradient accumulation steps.", _whole(1, _MOST)),
    Key(
        "effective_batch", "batch", "effective_batch", "N", "Samples per optimizer step; accumulation follows.",
        _whole(1, 1_000_000_000),
    ),
    Key("dataset_size", "batch", "dataset_size", "N", "Samples of the data set: 52002, 52k.", _count),
    Key("drop_last", "batch", "drop_last", "", "The DataLoader drops the last partial batch.", _yes_no),
    Key("epochs", "batch", "epochs", "N", "Passes over the data.", _whole(1, _MOST)),
    Key("lr", "batch", "lr", "X", "A learning rate you trust: 2e-5.", _rate),
    Key("lr_ref_batch", "batch", "lr_ref_batch", "N", "The effective batch it was tuned at.", _whole(1, 1_000_000_000)),
    Key("lr_rule", "batch", "lr_rule", "RULE", "keep, sqrt or linear.", _one_of("keep", "sqrt", "linear")),
    Key("threads", "host", "threads", "N", "CPU threads per rank (OMP_NUM_THREADS).", _whole(1, _MOST_CPUS)),
    Key("workers", "host", "workers", "N", "DataLoader workers per rank.", _whole(0, _MOST_CPUS)),
    Key("numa", "host", "numa", "", "Bind each rank to the CPUs near its GPU.", _yes_no),
    Key(
        "port", "host", "port", "N", "Of the rendezvous; auto = a free one each time.",
        lambda raw: None if raw in (0, "0") else _whole(1024, 65535)(raw),
    ),
    Key("compile", "host", "compile", "", "torch.compile.", _yes_no),
    Key("reshard", "host", "reshard", "", "Checkpoints may go on with another number of GPUs.", _yes_no),
    Key("nodes", "machines", "nodes", "N", "Machines of the run.", _whole(1, _MOST_NODES)),
    Key("address", "machines", "address", "HOST", "Of the first machine, as the others reach it.", _host),
    Key("slurm", "machines", "slurm", "", "Slurm starts it: write a job script as well.", _yes_no),
    Key("partition", "machines", "partition", "NAME", "Slurm's queue.", _of_slurm("a partition", ",")),
    Key("account", "machines", "account", "NAME", "That pays for the job.", _of_slurm("an account")),
    Key("qos", "machines", "qos", "NAME", "Quality of service.", _of_slurm("a QOS")),
    Key(
        "constraint", "machines", "constraint", "FEATURE", "Nodes with this feature only: h100&ib.",
        _of_slurm("a feature of nodes, or several joined by & or |", r"&|,:*\[\]()"),
    ),
    Key("time", "machines", "time", "LIMIT", "Of the job: 12:00:00, 2-00:00:00, 90 (minutes).", _time),
    Key("gpus_per_node", "machines", "gpus_per_node", "N", "GPUs of each node; 0 = CPU ranks.", _whole(0, _MOST_GPUS)),
    Key("gpu_model", "machines", "gpu_model", "MODEL", "Of the nodes, like A100-80GB.", _gpu_model),
    Key("shape", "machines", "shape", "HOW", "accelerate, torchrun or plain (srun).", _one_of(*SHAPES)),
    Key("container", "machines", "container", "IMAGE", "Run in it: pyxis, or a .sif (apptainer).", _image),
    Key("requeue", "machines", "requeue", "", "At its time limit the job queues again.", _yes_no),
    Key("preflight", "machines", "preflight", "", "The job tests its nodes first (by mgpu).", _yes_no),
    Key("spare", "machines", "spare", "K", "Nodes more, in place of bad ones.", _whole(0, _MOST_SPARE)),
    Key("command", "machines", "command", "WORDS", "'train.py --lr 1e-4'; or behind a --.", _command),
)  # fmt: skip
BY_NAME: Final = {key.name: key for key in KEYS}

# Deciding one of these settles what a weaker source said about the others.
_RIVALS: Final = {
    "params": ("model", "trainable"),
    "model": ("params", "trainable"),
    "accum": ("effective_batch",),
    "effective_batch": ("accum",),
}
_EXCLUDE = (("params", "model"), ("accum", "effective_batch"))


def key_named(text: str) -> Key:
    """The key of a dotted name, a field, a bare key or a flag. Raises MgpuError with the nearest name."""
    name = text.strip().lower().lstrip("-").replace("-", "_")
    for key in KEYS:
        if name in (key.name, key.dotted):
            return key
    bare = [key for key in KEYS if key.key == name]
    if len(bare) == 1:
        return bare[0]
    import difflib

    names = {
        **{k.name: k.dotted for k in KEYS},
        **{k.key: k.dotted for k in KEYS},
        **{k.dotted: k.dotted for k in KEYS},
    }
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f". Did you mean {names[near[0]]}?" if near else f"; there are {', '.join(k.dotted for k in KEYS)}"
    raise MgpuError(f"no answer is called {clipped(repr(text))}{hint}", errors.USAGE)


def parse(name: str, raw: object) -> Any:
    """The value of a field. None or "auto" where the machine shall say. Raises ValueError: what is allowed."""
    if raw is None or (isinstance(raw, str) and raw.strip().lower() == "auto"):
        return UNDECIDED[name]
    value = BY_NAME[name].read(raw)
    if isinstance(value, str) and masked(value) != value:
        raise ValueError("without a secret in it: answers are kept in files, and shown")
    return value


def holds_secret(name: str, value: Any) -> bool:
    """Whether an answer must not be kept: the command, with a secret among its words."""
    return name == "command" and value is not None and masked_argv(value) != [*value]


def shown(name: str, value: Any) -> str:
    """A value as the user would type it: parse(name, shown(name, value)) == value."""
    if value in (None, "auto"):
        return "auto"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "command":
        import shlex

        return shlex.join(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value)) + ("," if len(value) == 1 else "")
    if name in ("params", "trainable"):
        return _short(value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0*(\d)", lambda e: f"e{e[1].strip('+')}{e[2]}", repr(value))
    return "fp32" if name == "precision" and value == "no" else str(value)


def _short(number: int) -> str:
    """8.03B where that says it exactly in four digits, else the number."""
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            short = f"{number / size:.4g}"
            if "e" not in short and round(float(short) * size) == number:
                return short + unit
    return str(number)


# -- one record out of several sources ------------------------------------------------------------------------------


def decided(answers: Answers, name: str, value: Any, origin: Origin = "you") -> Answers:
    """The answers with one more decision. Accepting what stands there already changes nothing but who said it."""
    if answers[name] == value and name in answers.origins:
        return answers
    origins = {**answers.origins, name: origin}
    changed: dict[str, Any] = {name: value}
    if value not in (None, "auto"):
        for rival in _RIVALS.get(name, ()):
            changed[rival] = UNDECIDED[rival]
            origins.pop(rival, None)
    if name in ("params", "model"):
        changed["source"] = ""
    return replace(answers, **changed, origins=origins)


def merge(*layers: Answers) -> Answers:
    """One record: for each field the first of the layers that decides it."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    blocked: set[str] = set()
    for layer in layers:
        taken = [name for name in layer.origins if name not in origins and name not in blocked]
        values |= {name: layer[name] for name in taken}
        origins |= {name: layer.origins[name] for name in taken}
        blocked |= {rival for name in taken if layer[name] not in (None, "auto") for rival in _RIVALS.get(name, ())}
    return Answers(**values, origins=origins)


def collect(
    flags: Mapping[str, object],
    sets: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    *,
    file: Answers | None = None,
) -> Answers:
    """What the command line, the environment and an answers file say; the first of them wins. Raises MgpuError."""
    layers = [
        _layer("flag", ((name, value, BY_NAME[name].flag) for name, value in flags.items() if value is not None)),
        _layer("flag", map(_assignment, sets)),
        _layer("env", ((k.name, environ[k.variable], f"{k.variable}=") for k in KEYS if environ.get(k.variable))),
    ]
    if file is not None:
        layers.append(file)
    answers = merge(*layers)
    if wrong := contradiction(answers):
        raise MgpuError(wrong, errors.USAGE)
    return answers


def _layer(origin: Origin, given: Iterable[tuple[str, object, str]]) -> Answers:
    """One source: (field, raw value, how it was written)."""
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, raw, where in given:
        try:
            values[name] = parse(name, raw)
        except ValueError as error:
            told = f"{where}{'' if where.endswith('=') else ' '}{raw}"
            raise MgpuError(f"{told}: {error}", errors.USAGE) from None
        written[name] = where
    for one, other in _EXCLUDE:
        if values.get(one) is not None and values.get(other) is not None:
            pair = " and ".join(written[name].rstrip("=") for name in (one, other))
            raise MgpuError(f"{pair} exclude each other: {_WHY[one]}", errors.USAGE)
    return Answers(**values, origins=dict.fromkeys(values, origin))


_WHY = {
    "params": "the number of parameters is read from the model",
    "accum": "accumulation follows from the effective batch",
}


def _assignment(text: str) -> tuple[str, object, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise MgpuError(f"--set {text}: KEY=VALUE, like --set batch.per_gpu=8", errors.USAGE)
    key = key_named(name)
    return key.name, value, f"--set {key.dotted}="


def contradiction(answers: Answers) -> str | None:
    """What cannot be true together, as one sentence; None when all may be."""
    a = answers
    if a.params is not None and a.trainable is not None and a.trainable > a.params:
        return (
            f"{shown('trainable', a.trainable)} trained parameters are more than the model has "
            f"({shown('params', a.params)}): --trainable, --params"
        )
    if a.effective_batch is None or a.batch_per_gpu is None:
        return None
    if a.effective_batch % a.batch_per_gpu:
        return f"an effective batch of {a.effective_batch} is no multiple of {a.batch_per_gpu} per GPU"
    gpus = len(a.gpus) if isinstance(a.gpus, tuple) else a.gpus
    gpus = gpus if a.gpus_per_node is None else a.gpus_per_node
    ranks = (gpus or 0) * (a.nodes or 1)
    from mgpu.planning import plan

    step = plan.effective_batch(a.batch_per_gpu, ranks)
    if ranks and a.effective_batch % step:
        over = f" x {a.nodes} machines" if (a.nodes or 1) > 1 else ""
        return (
            f"an effective batch of {a.effective_batch} is no multiple of {a.batch_per_gpu} per GPU x {gpus} GPUs{over}"
            f" = {step}, so no accumulation gives it"
        )
    return None


# -- the same again, without questions ------------------------------------------------------------------------------


def arguments(answers: Answers) -> list[str]:
    """The flags that decide the same."""
    looked_up = answers.model is not None and answers.origins.get("params") == "probe"
    words = []
    for key in KEYS:
        value = answers[key.name]
        if key.name not in answers.origins or value in (None, "auto"):
            continue
        if key.name == "params" and looked_up:  # one of the two says both
            continue
        if key.name == "model" and not looked_up and answers.params is not None:
            continue
        if key.switch:
            words.append(key.flag if value else key.flag.replace("--", "--no-", 1))
        else:
            words += [key.flag, shown(key.name, value)]
    return words


def equivalent_flags(answers: Answers, *, extra: Sequence[str] = (), width: int | None = None) -> str:
    """The command line that gives the same config without a question; on several lines where it is wider than that."""
    import shlex

    words = [shlex.quote(word) for word in ("mgpu", "configure", "--yes", *extra, *arguments(answers))]
    groups: list[str] = []
    for word in words:  # a flag and its value stay together
        if groups and not word.startswith("-") and groups[-1].startswith("-") and " " not in groups[-1]:
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    lines = [""]
    for group in groups:
        if width is not None and lines[-1].strip() and len(lines[-1]) + len(group) + 3 > width:
            lines.append("    ")
        lines[-1] += group if not lines[-1].strip() else f" {group}"
    return " \\\n".join(lines)
