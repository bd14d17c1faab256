"""mgpu/wizard/answers.py, answers_file.py and the flags of configure: what was decided, where, and how it is kept."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu import cli, errors
from mgpu.cli import option_parser
from mgpu.errors import MgpuError
from mgpu.validate import request as validate_request
from mgpu.validate import run as validate_run
from mgpu.version import __version__
from mgpu.wizard import answers, answers_file, run
from mgpu.wizard.answers import KEYS, UNDECIDED, Answers

# For every key: what a person types, and the value it means.
TYPED: dict[str, tuple[str, Any]] = {
    "params": ("8.03B", 8_030_000_000),
    "model": ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
    "train": ("LoRA", "lora"),
    "trainable": ("20m", 20_000_000),
    "optimizer": ("adam8bit", "adam8bit"),
    "seq_len": ("2048", 2048),
    "gpus": ("0,1,3", (0, 1, 3)),
    "precision": ("fp32", "no"),
    "strategy": ("fsdp2", "fsdp2"),
    "offload": ("cpu", "cpu"),
    "batch_per_gpu": ("8", 8),
    "accum": ("4", 4),
    "effective_batch": ("128", 128),
    "dataset_size": ("52k", 52_000),
    "drop_last": ("yes", True),
    "epochs": ("3", 3),
    "lr": ("2e-5", 2e-5),
    "lr_ref_batch": ("8", 8),
    "lr_rule": ("sqrt", "sqrt"),
    "threads": ("4", 4),
    "workers": ("6", 6),
    "numa": ("no", False),
    "port": ("29501", 29501),
    "compile": ("on", True),
    "reshard": ("true", True),
    "hosts": ("node[1-4],me@n9:2222", "node[1-4],me@n9:2222"),
    "hosts_python": ("b=/home/you/env/bin/python", "b=/home/you/env/bin/python"),
    "nodes": ("2", 2),
    "address": ("node-1.cluster", "node-1.cluster"),
    "slurm": ("yes", True),
    "partition": ("gpu_h100,gpu", "gpu_h100,gpu"),
    "account": ("def-lab", "def-lab"),
    "qos": ("high.long", "high.long"),
    "constraint": ("a100|h100", "a100|h100"),
    "time": ("12:00:00", "12:00:00"),
    "gpus_per_node": ("8", 8),
    "gpu_model": ("nvidia_a100-sxm4-80gb", "A100-80GB"),
    "shape": ("torchrun", "torchrun"),
    "container": ("/images/torch 2.sif", "/images/torch 2.sif"),
    "requeue": ("on", True),
    "preflight": ("no", False),
    "spare": ("2", 2),
    "command": ("train.py --data 'my set' --lr 1e-4", ("train.py", "--data", "my set", "--lr", "1e-4")),
}
NAMES = [key.name for key in KEYS]


def values(given_answers: Answers) -> dict[str, Any]:
    return {name: given_answers[name] for name in given_answers.origins}


def collecting(requests: list[Any]) -> Any:
    """A `run` that keeps what it was asked."""

    def keep(request: Any) -> int:
        requests.append(request)
        return 0

    return keep


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `mgpu configure ARGS` would do: the Request, or the exit code when it is refused."""
    requests: list[run.Request] = []
    monkeypatch.setattr(run, "run", collecting(requests))
    monkeypatch.setattr(validate_run, "run", collecting(requests))
    for key in KEYS:
        monkeypatch.delenv(key.variable, raising=False)
    for name in ("MGPU_NO_INPUT", "MGPU_ACCESSIBLE"):
        monkeypatch.delenv(name, raising=False)

    def ask(*arguments: str) -> run.Request | int:
        requests.clear()
        code = cli.run(["configure", *arguments])
        return requests[0] if requests else code

    return ask


# --- one table ------------------------------------------------------------------------------------------------------


def test_every_field_has_one_key_and_every_name_is_its_own() -> None:
    decided = [f.name for f in fields(Answers) if f.name not in ("origins", "source")]
    assert sorted(decided) == sorted(NAMES) == sorted(TYPED)
    for names in ([k.flag for k in KEYS], [k.variable for k in KEYS], [k.dotted for k in KEYS]):
        assert len(set(names)) == len(KEYS)
    assert {key.section for key in KEYS} == set(answers.SECTIONS)


@pytest.mark.parametrize("name", NAMES)
def test_flag_set_variable_and_file_say_the_same(
    name: str, asked: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = answers.key_named(name)
    text, value = TYPED[name]
    flag = (key.flag if value else key.flag.replace("--", "--no-"),) if key.switch else (key.flag, text)
    assert values(asked(*flag).answers) == {name: value}
    assert asked(*flag).answers.origins == {name: "flag"}
    for spelling in (key.dotted, name, key.flag, name.replace("_", "-"), name.upper()):
        assert values(asked("--set", f"{spelling}={text}").answers) == {name: value}, spelling
    tree = {key.section: {key.key: text}}
    for file, content in (
        ("a.toml", f"[{key.section}]\n{key.key} = {json.dumps(text)}\n"),
        ("b.toml", f"{name} = {json.dumps(text)}\n"),
        ("c.json", json.dumps(tree)),
        ("d.yaml", f"{key.section}:\n  {key.key}: {text}\n"),
        ("e.yaml", yaml.safe_dump(tree)),
    ):
        (tmp_path / file).write_text(content, "utf-8")
        found = asked("--answers", str(tmp_path / file)).answers
        assert (values(found), set(found.origins.values())) == ({name: value}, {"answers"}), file
    monkeypatch.setenv(key.variable, text)
    assert values(asked().answers) == {name: value}
    assert asked().answers.origins == {name: "env"}


@pytest.mark.parametrize("name", NAMES)
def test_auto_gives_every_answer_back(name: str) -> None:
    assert answers.parse(name, "Auto") == UNDECIDED[name] == answers.parse(name, None)
    assert answers.as_typed(name, UNDECIDED[name]) == "auto"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("raw", ["", "nonsense !", "-1", "nan", [], {}, {"a": 1}, [["x"]], "99999999999999999999"])
def test_nonsense_is_refused_with_what_is_allowed(name: str, raw: Any) -> None:
    if name == "model" and isinstance(raw, str) and raw:
        return  # what is no model is found out when it is looked up
    names = ("hosts", "address", "partition", "account", "qos", "constraint")
    if name in names and isinstance(raw, str) and raw.isalnum():
        return  # any word may be a host, or what a site calls its queues
    if name == "container" and isinstance(raw, str) and raw.strip("-1"):
        return  # any file or name may be an image
    with pytest.raises(ValueError, match=r"\w") as caught:
        answers.parse(name, raw)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("0", 0), ("3,", (3,)), ("[3]", (3,)), ("0-3", (0, 1, 2, 3)), ("0-1,4", (0, 1, 4)), ("3, 1", (1, 3))],
)
def test_gpus_are_a_number_or_a_list(text: str, value: Any) -> None:
    assert answers.parse("gpus", text) == value
    assert answers.parse("gpus", answers.as_typed("gpus", value)) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpus", "0,0", "GPU 0 is listed twice"),
        ("gpus", "0-2,1", "GPU 1 is listed twice"),
        ("gpus", "3-1", "the range 3-1 is reversed"),
        ("gpus", "two", 'expected how many GPUs (2), which (0,1,3; "3," is GPU 3 alone), or auto'),
        ("precision", "bf61", "choose bf16, fp16, fp32, fp8 or auto. Did you mean bf16?"),
        ("strategy", "zero-2", "choose ddp, zero1, zero2, zero3, fsdp2 or auto. Did you mean zero2?"),
        ("batch_per_gpu", "0", "expected a whole number from 1 to 999999"),
        ("port", "80", "expected a whole number from 1024 to 65535"),
        ("address", "node1:29500", "expected a host name or an address, without a port"),
        ("partition", "a b", "expected a partition, spelled as in Slurm"),
        ("time", "tomorrow", "expected a time in Slurm's format: 90 (minutes), 12:00:00, 2-00:00:00"),
        ("time", "0", "expected a time in Slurm's format: 90 (minutes), 12:00:00, 2-00:00:00"),
        ("gpu_model", "a100", "choose A100-40GB or A100-80GB"),
        ("command", "make", "expected the training script and its arguments: train.py --lr 1e-4, or -m package.train"),
        (
            "command",
            "train.py 'x",
            "expected the training script and its arguments: train.py --lr 1e-4, or -m package.train",
        ),
    ],
)
def test_what_is_said_about_a_slip(name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        answers.parse(name, text)
    assert str(caught.value) == words


# --- the way back ---------------------------------------------------------------------------------------------------

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "params": st.integers(1, 10**13),
    "model": st.from_regex(r"[a-z]{1,9}/[A-Za-z0-9][A-Za-z0-9.-]{0,9}", fullmatch=True),
    "train": st.sampled_from(["full", "lora", "qlora"]),
    "trainable": st.integers(1, 10**12),
    "optimizer": st.sampled_from(["adamw", "adam8bit", "sgd", "adafactor"]),
    "gpus": st.integers(0, 64) | st.sets(st.integers(0, 15), min_size=1).map(lambda s: tuple(sorted(s))),
    "precision": st.sampled_from(["no", "bf16", "fp16", "fp8"]),
    "strategy": st.sampled_from(["ddp", "fsdp2", "zero1", "zero2", "zero3"]),
    "offload": st.sampled_from(["none", "cpu"]),
    "dataset_size": st.integers(1, 10**12),
    "lr": st.floats(1e-12, 10, allow_nan=False),
    "lr_rule": st.sampled_from(["keep", "sqrt", "linear"]),
    "port": st.integers(1024, 65535),
    "hosts": st.sampled_from(["a,b", "node[1-8]", "me@n1:2222"]),
    "hosts_python": st.sampled_from(["/env/bin/python", "a=/env/bin/python,b=/p"]),
    "address": st.sampled_from(["node1", "10.0.0.1", "fe80::1", "a.b-c.d"]),
    **dict.fromkeys(
        ("partition", "account", "qos", "constraint"), st.from_regex(r"[a-z][a-z0-9_.]{0,9}", fullmatch=True)
    ),
    "time": st.sampled_from(["90", "12:00:00", "2-00:00:00", "1-12"]),
    "gpus_per_node": st.integers(0, 64),
    "gpu_model": st.sampled_from(["A100-80GB", "H100"]),
    "shape": st.sampled_from(["accelerate", "torchrun", "plain"]),
    "container": st.sampled_from(["image.sif", "nvcr.io/nvidia/pytorch:25.10-py3", "/a b/c.sqsh"]),
    "spare": st.integers(0, 1000),
    "command": st.sampled_from([("train.py",), ("-m", "pkg.train"), ("a b.py", "--x", "it's", "")]),
    **dict.fromkeys(("drop_last", "numa", "compile", "reshard", "slurm", "requeue", "preflight"), st.booleans()),
}
_NUMBER = st.integers(1, 4096)


@st.composite
def some_answers(draw: st.DrawFn) -> Answers:
    """Any decisions that may stand together."""
    names = draw(st.sets(st.sampled_from(NAMES)))
    if "effective_batch" in names:
        names -= {"accum", "batch_per_gpu"}
    if "model" in names:
        names -= {"params", "trainable"}
    found: dict[str, Any] = {name: draw(st.none() | _VALUES.get(name, _NUMBER)) for name in names}
    found = {name: UNDECIDED[name] if value is None else value for name, value in found.items()}
    if found.get("params") and found.get("trainable"):
        found["trainable"] = min(found["trainable"], found["params"])
    return Answers(**found, origins=dict.fromkeys(found, "flag"))


def said(given_answers: Answers) -> dict[str, Any]:
    """What was decided and not left to the machine."""
    return {name: value for name, value in values(given_answers).items() if value not in (None, "auto")}


@given(some_answers())
@settings(max_examples=300, deadline=None)
def test_a_saved_file_decides_the_same_and_is_the_same_again(given_answers: Answers) -> None:
    text = answers_file.dumps(given_answers)
    again = answers_file.loads(text, "mgpu.answers.toml")
    assert said(again) == said(given_answers)
    assert answers_file.dumps(again) == text == answers_file.dumps(given_answers, text)


@given(some_answers(), some_answers())
@settings(max_examples=150, deadline=None)
def test_saving_over_a_persons_file_loses_nothing(old: Answers, new: Answers) -> None:
    mine = "# mine\nbefore = 1  # kept\n"
    text = mine + answers_file.dumps(old).replace("[devices]", "[devices]  # where\nrack = 'b4'")
    text += "\n[notes]\nwhy = 'it fits'  # since May\n"
    saved = answers_file.dumps(new, text)
    for words in ("# mine", "before = 1  # kept", "# where", "rack = 'b4'", "why = 'it fits'  # since May"):
        assert words in saved
    cleaned = "\n".join(line for line in saved.splitlines() if "rack" not in line and "before" not in line)
    assert said(answers_file.loads(cleaned, "x.toml")) == said(new)
    assert answers_file.dumps(new, saved) == saved


@given(some_answers())
@settings(max_examples=60, deadline=None)
def test_the_equivalent_command_line_decides_the_same(given_answers: Answers) -> None:
    requests: list[run.Request] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run", collecting(requests))
        for width in (None, 40):
            line = answers.equivalent_flags(given_answers, extra=("-o", "my file.yaml"), width=width)
            words = shlex.split(line.replace("\\\n", " "))
            assert words[:2] == ["mgpu", "configure"]
            assert cli.run(words[1:]) == 0
            assert requests[-1].yes and requests[-1].output == "my file.yaml"
            assert said(requests[-1].answers) == said(given_answers)


def test_the_command_line_is_folded_between_flags() -> None:
    given_answers = answers.collect({"params": "8.03B", "strategy": "fsdp2", "lr": "2e-5", "numa": False}, (), {})
    assert answers.equivalent_flags(given_answers, width=50) == (
        "mgpu configure --yes --params 8.03B \\\n    --strategy fsdp2 --lr 2e-5 --no-numa"
    )


def test_the_file_a_person_reads() -> None:
    given_answers = answers.collect(
        {"params": "8.03B", "train": "full", "batch_per_gpu": "8", "lr": "2e-5", "numa": True}, (), {}
    )
    assert answers_file.dumps(given_answers) == (
        "# Answers for mgpu configure, safe to commit. Replay:  mgpu configure --yes\n"
        'schema = 1\nmgpu = "0.1.0"\n\n'
        '[model]\nparams = "8.03B"\ntrain = "full"\n\n'
        '[devices]\ngpus = "auto"          # "auto" detects them on replay; 2 means any two, [0, 1, 3] these\n'
        'precision = "auto"\nstrategy = "auto"\n\n'
        "[batch]\nper_gpu = 8\nlr = 2e-5\n\n"
        "[host]\nnuma = true\n"
    ).replace("0.1.0", __version__)


# --- saving ---------------------------------------------------------------------------------------------------------


def test_save_writes_leaves_alone_and_sets_aside(tmp_path: Path) -> None:
    path = tmp_path / "mgpu.answers.toml"
    one = answers.collect({"batch_per_gpu": "8"}, (), {})
    assert answers_file.save(path, one) == [f"Wrote {path}", "  Replay:  mgpu configure --yes"]
    assert answers_file.save(path, one) == [f"{path} is already up to date."]
    two = answers.collect({"batch_per_gpu": "4"}, (), {})
    changed = [f"Wrote {path}  (backup: {path}.bak)", "  -per_gpu = 8", "  +per_gpu = 4"]
    assert answers_file.save(path, two) == changed
    path.with_name("mgpu.answers.toml.bak").unlink()
    path.write_text("not = [toml\n", "utf-8")
    assert answers_file.save(path, one)[0] == f"Wrote {path}  (backup: {path}.bak, which was not TOML)"
    assert (tmp_path / "mgpu.answers.toml.bak").read_text("utf-8") == "not = [toml\n"
    path.write_bytes(b"\xff\xfe")
    assert "backup: " in answers_file.save(path, one)[0]
    with pytest.raises(MgpuError, match="a folder"):
        answers_file.save(tmp_path, one)


def test_a_value_that_means_the_same_stays_as_it_was_written() -> None:
    old = "[model]\nparams = 8_030_000_000 # eight\n[batch]\nlr = 0.00002 # careful\nper_gpu = 4\n"
    new = answers.collect({"params": "8.03B", "lr": "2e-5", "batch_per_gpu": "8"}, (), {})
    saved = answers_file.dumps(new, old)
    assert "params = 8_030_000_000 # eight" in saved
    assert "lr = 0.00002 # careful" in saved
    assert "per_gpu = 8\n" in saved


# --- sources --------------------------------------------------------------------------------------------------------


def test_precedence_is_flag_set_variable_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[batch]\nper_gpu = 1\nepochs = 1\nlr = 0.1\nlr_ref_batch = 1\n[host]\nthreads = 1\n", "utf-8")
    found = answers.collect(
        {"batch_per_gpu": "4"},
        ["batch.per_gpu=3", "epochs=3", "epochs=5"],
        {"MGPU_BATCH_PER_GPU": "2", "MGPU_EPOCHS": "2", "MGPU_LR": "0.2", "MGPU_LR_REF_BATCH": "auto", "MGPU_GPUS": ""},
        file=answers_file.read(str(file)),
    )
    assert values(found) == {"batch_per_gpu": 4, "epochs": 5, "lr": 0.2, "lr_ref_batch": None, "threads": 1}
    assert found.origins == {
        "batch_per_gpu": "flag", "epochs": "flag", "lr": "env", "lr_ref_batch": "env", "threads": "answers",
    }  # fmt: skip


def test_a_stronger_source_settles_what_a_weaker_one_said_about_the_same(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[model]\nname = "org/old"\nparams = "8B"\ntrainable = "1B"\n[batch]\naccum = 4\n', "utf-8")
    read = answers_file.read(str(file))
    assert (read.model, read.params) == ("org/old", 8 * 10**9)  # the number that was read from it, kept
    found = answers.collect({"effective_batch": "64", "model": "org/new"}, (), {}, file=answers_file.read(str(file)))
    assert values(found) == {"effective_batch": 64, "model": "org/new"}
    kept = answers.collect({"effective_batch": "auto", "trainable": "2B"}, (), {}, file=answers_file.read(str(file)))
    assert (kept.accum, kept.params, kept.trainable) == (4, 8 * 10**9, 2 * 10**9)


def test_deciding_twice() -> None:
    one = answers.with_decision(UNDECIDED, "model", "org/name")
    two = answers.with_decision(one, "params", 7)
    assert (two.model, two.params, two.origins) == (None, 7, {"params": "you"})
    flagged = answers.collect({"batch_per_gpu": "8"}, (), {})
    assert answers.with_decision(flagged, "batch_per_gpu", 8) is flagged
    assert answers.with_decision(flagged, "batch_per_gpu", 4).origins == {"batch_per_gpu": "you"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            {"accum": "2", "effective_batch": "64"},
            "--accum and --effective-batch cannot be used together: accumulation follows from the effective batch",
        ),
        (
            {"params": "8B", "model": "a/b"},
            "--params and --model cannot be used together: the number of parameters is read from the model",
        ),
        (
            {"batch_per_gpu": "8", "effective_batch": "60"},
            "an effective batch of 60 is not a multiple of 8 per GPU",
        ),
        (
            {"batch_per_gpu": "8", "effective_batch": "80", "gpus": "0,1,2"},
            "an effective batch of 80 is not a multiple of 8 per GPU x 3 GPUs = 24, so no accumulation reaches it",
        ),
        (
            {"batch_per_gpu": "8", "effective_batch": "32", "gpus": "4", "nodes": "2"},
            "an effective batch of 32 is not a multiple of 8 per GPU x 4 GPUs x 2 nodes = 64, "
            "so no accumulation reaches it",
        ),
        (
            {"params": "1B", "trainable": "2B"},
            "2B trained parameters are more than the model has (1B): check --trainable and --params",
        ),
        ({"lr": "fast"}, "--lr fast: 'fast' is not a learning rate: write a number above 0, such as 2e-5"),
        ({"gpus": "0,0"}, "--gpus 0,0: GPU 0 is listed twice"),
    ],
)
def test_what_cannot_be_together_is_one_sentence(flags: dict[str, str], words: str) -> None:
    with pytest.raises(MgpuError) as caught:
        answers.collect(flags, (), {})
    assert (caught.value.message, caught.value.exit_code) == (words, errors.USAGE)


def test_set_and_variables_name_themselves() -> None:
    for sets, environ, words in (
        (["lr_rle=sqrt"], {}, "no answer is named 'lr_rle'. Did you mean batch.lr_rule?"),
        (["epochs"], {}, "--set epochs: expected KEY=VALUE, for example --set batch.per_gpu=8"),
        (["per-gpu=x"], {}, "--set batch.per_gpu=x: expected a whole number from 1 to 999999"),
        ([], {"MGPU_PORT": "99"}, "MGPU_PORT=99: expected a whole number from 1024 to 65535"),
    ):
        with pytest.raises(MgpuError) as caught:
            answers.collect({}, sets, environ)
        assert caught.value.message == words


# --- what a file can have wrong -------------------------------------------------------------------------------------

WRONG = [
    ("a.toml", "[devices]\nprecision = 'bf61'\n",
     'a.toml:2: devices.precision = "bf61": choose bf16, fp16, fp32, fp8 or auto. Did you mean bf16?'),
    ("a.toml", "[model]\n\n[batch]\n# per_gpu = 1\nper_gpu = true\n",
     "a.toml:5: batch.per_gpu = true: expected a whole number from 1 to 999999"),
    ("a.toml", "[batch]\nper_gp = 8\n", "a.toml:2: no answer is named 'batch.per_gp'. Did you mean batch.per_gpu?"),
    ("a.toml", "[devises]\ngpus = 2\n", "a.toml:1: unknown table [devises]. Did you mean [devices]?"),
    ("a.toml", "[x]\n", "a.toml:1: unknown table [x]. Choose [model], [devices], [batch], [host], [machines]."),
    ("a.toml", "gpus = 2\n[devices]\ngpus = 2\n", "a.toml:3: devices.gpus is set twice"),
    ("a.toml", "schema = 2\n", "a.toml:1: schema 2: this mgpu (VERSION) only reads 1"),
    ("a.toml", "[env]\nNCCL_DEBUG = 'INFO'\n",
     "a.toml:1: [env] is not supported by this version: remove it, and set the variables when you start mgpu launch"),
    ("a.toml", "[batch]\nlr = \n", "a.toml:2:6: Invalid value (TOML)"),
    ("a.toml", "[batch]\naccum = 2\neffective_batch = 8\n",
     "a.toml: batch.accum and batch.effective_batch cannot be used together: "
     "accumulation follows from the effective batch"),
    ("a.json", '{\n "batch": {\n  "lr": "x"\n }\n}',
     "a.json:3: batch.lr = \"x\": 'x' is not a learning rate: write a number above 0, such as 2e-5"),
    ("a.json", '{"gpus": 2,}', "a.json:1:12: Illegal trailing comma before end of object (JSON)"),
    ("a.json", '{"gpus": 2, "gpus": 3}', "a.json: duplicate key 'gpus'"),
    ("a.json", "[1]", "a.json: expected tables of keys, found a list"),
    ("a.yaml", "devices:\n  gpus: 2\n  gpus: 3\n", "a.yaml:3: duplicate key 'gpus'"),
    ("a.yaml", "devices:\n\tgpus: 2\n", "a.yaml:2:1: found character '\\t' that cannot start any token (YAML)"),
    ("a.yaml", "batch:\n  epochs: 2000-13-45\n", None),
    ("a.yaml", "", "a.yaml: expected tables of keys, found an empty file"),
    ("a.yaml", "devices:\n  gpus: !!python/object/apply:os.system [true]\n", None),
    ("a.yaml", "a: &a [*a]\n", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), WRONG)
def test_a_wrong_file_is_one_sentence_with_its_place(name: str, text: str, words: str | None) -> None:
    with pytest.raises(MgpuError) as caught:
        answers_file.loads(text, name)
    assert caught.value.exit_code == errors.USAGE
    assert len(caught.value.message.splitlines()) == 1
    if words is not None:
        if name == "a.json" and "trailing comma" in words:  # worded by Python, differently before 3.13
            assert caught.value.message.startswith("a.json:1:1")
        else:
            assert caught.value.message == words.replace("VERSION", __version__)


def test_notes_are_the_users_own() -> None:
    found = answers_file.loads("[notes]\nanything = ['goes']\n[batch]\nper_gpu = 8\n", "a.toml")
    assert values(found) == {"batch_per_gpu": 8}


@given(st.text(max_size=200) | st.from_regex(r"(\[?[a-z.]{1,9}\]?[ =:]{1,3}[\w\[\]\"',{}-]{0,9}\n){1,6}"))
@settings(max_examples=200, deadline=None)
def test_any_text_is_answers_or_one_sentence(text: str) -> None:
    for name in ("a.toml", "a.yaml", "a.json", "stdin"):
        try:
            found = answers_file.loads(text, name)
        except MgpuError as error:
            assert error.message
        else:
            assert isinstance(found, Answers)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9 = 1")
    for path, words in ((tmp_path / "no", "No such file"), (tmp_path, "it is a folder"), (tmp_path / "latin", "UTF-8")):
        with pytest.raises(MgpuError, match=words):
            answers_file.read(str(path))


@pytest.mark.parametrize(
    "text", ["[devices]\ngpus = [0, 1]\n", "devices:\n  gpus: [0, 1]\n", '{"devices": {"gpus": [0, 1]}}', "gpus: 0,1\n"]
)
def test_stdin_may_be_any_of_the_formats(text: str) -> None:
    code = "from mgpu.wizard import answers_file; print(answers_file.read('-').gpus)"
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False)
    assert done.stdout == "(0, 1)\n", done.stderr


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--validate --plan", "--validate cannot be combined"),
        ("--show-origin --plan", "--show-origin and --plan conflict"),
        ("--validate a --gpus 2", "only reads configs"),
        ("--validate --set lr=1", "only reads configs"),
        ("--show-origin --answers x", "only reads configs"),
        ("--validate -o x", "writes no config"),
        ("--validate --edit x", "writes no config"),
        ("--validate --force", "writes no config"),
        ("--fix", "--fix needs --validate"),
        ("--no-loader", "--no-loader needs --validate"),
        ("--show-origin a b", "accepts one FILE"),
        ("x.yaml", "unexpected argument 'x.yaml'"),
        ("--params-from t.py --params 8B", "--params-from counts the parameters"),
        ("--target 8xH100 --from x", "--target and --from conflict"),
        ("--resume --fresh", "--resume and --fresh"),
        ("--resume --edit x", "--resume and --edit"),
        ("--guided --yes", "--guided and --yes conflict"),
        ("--guided --no-input", "--guided and --no-input conflict"),
        ("--dry-run --diff", "--dry-run and --diff"),
        ("--plan --dry-run", "writes nothing"),
        ("--format yaml", "--format yaml: choose human, json, github or sarif."),
        ("--format github", "--format github needs --validate"),
        ("--python /no/such", "--python /no/such: no such file"),
        ("--gpus", "'--gpus' requires an argument"),
        ("--batch-per-gpus 8", "No such option: --batch-per-gpus. Did you mean --batch-per-gpu?"),
        ("--gpu 2", "No such option: --gpu. Did you mean --gpus?"),
    ],
)
def test_options_that_mean_nothing_together(
    line: str, words: str, asked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(*line.split()) == errors.USAGE
    said_words = capsys.readouterr().err
    assert words.lower() in said_words.lower()
    assert said_words.startswith("mgpu: ")


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("--validate", ("accelerate.yaml",)),
        ("--validate a.yaml", ("a.yaml",)),
        ("--validate a.yaml b.yaml --fix", ("a.yaml", "b.yaml")),
        ("--validate a.yaml --json --validate b.yaml", ("a.yaml", "b.yaml")),
        ("--validate=a.yaml --validate=b=c.yaml", ("a.yaml", "b=c.yaml")),
        ("--validate -- --odd.yaml", ("--odd.yaml",)),
        ("--validate -", ("-",)),
    ],
)
def test_files_are_named_in_any_way(line: str, paths: tuple[str, ...], asked: Any) -> None:
    assert asked(*line.split()).files == paths


@pytest.mark.parametrize(
    "line", ["--validate a", "--validate a b --no-loader", "--validate a --fix --dry-run", "--json --validate a"]
)
def test_the_plain_way_to_validate_means_the_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[validate_request.Request] = []
    monkeypatch.setattr(validate_run, "run", collecting(requests))
    assert cli.run(["configure", *line.split()]) == 0
    monkeypatch.setattr(option_parser, "read", lambda argv: None)
    assert cli.run(["configure", *line.split()]) == 0
    assert requests[0] == requests[1]


def test_what_the_request_holds(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = asked()
    assert plain == run.Request(answers=plain.answers, verified=plain.verified) and plain.verified is not None
    assert plain.answers == Answers()
    assert asked("--save-answers", "none").save_answers == ""
    assert asked("--save-answers", "x.toml").save_answers == "x.toml"
    assert asked("--show-origin=x.yaml").show_origin == "x.yaml"
    assert asked("--params-from", "t.py", "--lr", "1e-4", "--", "--data", "x").params_from == ("t.py", "--data", "x")
    assert asked("--json").format == "json"
    monkeypatch.setenv("MGPU_NO_INPUT", "1")
    monkeypatch.setenv("MGPU_ACCESSIBLE", "1")
    assert asked().no_input and asked().accessible


def test_validating_looks_at_no_variable(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_LR", "nonsense")
    assert asked("--validate", "--format", "github").answers == Answers()
    assert asked() == errors.USAGE


def test_help_groups_every_option_within_80_columns(mgpu: Any, tmp_path: Path) -> None:
    text = mgpu("configure", "--help", cwd=tmp_path).stdout
    text += mgpu("configure", "--help-slurm", cwd=tmp_path).stdout
    assert max(map(len, text.splitlines())) <= 80
    for title in answers.SECTIONS.values():
        assert f"\n{title}:\n" in text
    for key in KEYS:
        assert f"  {key.flag} " in text, key.flag


def test_the_table_costs_other_commands_nothing() -> None:
    code = "import sys, mgpu.cli; print(sorted(name for name in sys.modules if name.startswith('mgpu.wizard')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
