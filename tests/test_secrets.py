"""Are secrets masked wherever they may occur, in linear time, and is everything else left as it is?"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mgpu import secret_patterns as patterns
from mgpu.errors import MgpuError
from mgpu.job_files import engines, parts, validate
from mgpu.job_files.job import Container, Job
from mgpu.secret_names import is_secret_name
from mgpu.secrets_masking import MASK, masked, masked_argv, masked_env, masked_value
from tests import planted

HERE = Path(__file__).parent
FORMS, NAMED = planted.by_form(), planted.by_name()
AROUND = ("{}", "a {} b", '"{}"', "'{}',", "x\\n{}\\n", "https://h/{}?a=1", "(key: {})", "a\n{}\nb", "url=%3D{}")


# --- forms and names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", patterns.FORMS, ids=lambda form: form.name)
def test_every_form_is_masked_wherever_it_is(form: patterns.Form) -> None:
    secret = FORMS[form.name]
    for around in AROUND:
        shown = masked(around.format(secret))
        assert secret not in shown and secret[-10:] not in shown and MASK in shown, around
    assert masked(masked(f"a {secret} b")) == masked(f"a {secret} b")


@pytest.mark.parametrize("form", patterns.FORMS, ids=lambda form: form.name)
def test_the_shortest_token_of_each_form_is_masked(form: patterns.Form) -> None:
    """Texts without a long word are not searched: no form may match a shorter one."""
    secret, whole = FORMS[form.name], re.compile(form.lead + form.pattern, re.ASCII)
    shortest = next(secret[:end] for end in range(1, len(secret) + 1) if whole.fullmatch(secret[:end]))
    assert not re.search(r"\s", shortest)
    for around in ("{}", "a {} b", "\n{}\n"):
        assert masked(around.format(shortest)) == around.format(MASK), shortest


def test_the_forms_have_a_source_and_begin_as_they_say() -> None:
    assert len({form.name for form in patterns.FORMS}) == len(patterns.FORMS) >= 40
    for form in patterns.FORMS:
        assert re.match(r"gitleaks |detect-secrets |https://", form.source), form.name
        assert any(begin in FORMS[form.name] for begin in form.begins), form.name


@pytest.mark.parametrize("name", NAMED)
def test_a_value_is_masked_by_its_name(name: str) -> None:
    secret = NAMED[name]
    option = "--" + name.replace("_", "-")
    for text in (
        f"{name}={secret}", f"export {name}='{secret}'", f'{{"{name}": "{secret}", "a": 1}}',
        f"{name}: {secret}\nlr: 1",
        f"{option} {secret} --lr 1", f"{option}={secret}", f"os.environ['{name}'] = '{secret}'",
        f"f({name}='{secret}')",
        f'{{\\"{name}\\": \\"{secret}\\"}}', f"https://h/?{name}={secret}&a=1", f"{name.upper()}={secret} python x.py",
    ):  # fmt: skip
        shown = masked(text)
        assert secret not in shown and MASK in shown, text
    assert masked_argv(["a.py", option, secret, "--lr", "1"]) == ["a.py", option, MASK, "--lr", "1"]
    assert masked_argv([f"+x.{name}={secret}"]) == [f"+x.{name}={MASK}"]
    assert masked_env({name: secret, "A": "b"}) == {name: MASK, "A": "b"}
    assert masked_value({"a": {name: secret}, "b": [{name: [secret]}]}) == {"a": {name: MASK}, "b": [{name: [MASK]}]}


@pytest.mark.parametrize(("text", "wanted"), [
    ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
    ("-H 'Authorization: token abc123' x", "-H 'Authorization: token ***' x"),
    ("Cookie: a=b; c=d", "Cookie: ***"),
    ("got bearer abcdefgh12345678 back", "got bearer *** back"),
    ("curl -u ada:hunter2 https://x", "curl -u ada:*** https://x"),
    ("machine api.wandb.ai login user password abcdef", "machine api.wandb.ai login user password ***"),
    ("password: my long pass\nlr: 1", "password: ***\nlr: 1"),
    ("db_password: 12345678", "db_password: ***"),
    ("AccountName=a;AccountKey=abcd==;EndpointSuffix=c", "AccountName=a;AccountKey=***;EndpointSuffix=c"),
    ("--apitoken aa --pass bb --pw cc --bearer dd --signing-key ee",
     "--apitoken *** --pass *** --pw *** --bearer *** --signing-key ***"),
    ('api_keys: ["abc", "def"]', "api_keys: ***"),
    ('token = "not closed', 'token = "***'),
    ("{a:1,password:x123,user:y}", "{a:1,password:***,user:y}"),
    ("postgres://u:pa/ss@db/x", "postgres://***@db/x"),
    ("https://u:p@ss@host/x", "https://***@host/x"),
])  # fmt: skip
def test_a_secret_in_a_text(text: str, wanted: str) -> None:
    assert masked(text) == wanted


def test_a_private_key_is_masked_as_a_whole() -> None:
    key, line = planted.private_key()
    for text in (f"a\n{key}\nb", f"key: {json.dumps(key)} b", f"a {key[:200]}"):
        shown = masked(text)
        assert line not in shown and line[::-1] not in shown and MASK in shown
    assert masked(f"a\n{key}\nb") == f"a\n{MASK}\nb"


# --- what must stay ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "--pad_token <pad> --eos_token </s>", "token_ids=[1, 2, 3]", "num_tokens=4096", "max_new_tokens: 512",
    "key_value heads: 8", "--lr 1e-4 --weight_decay 0.01", "sha256:" + "3fa9c04be17d8265" * 4,
    "3fa9c04b-e17d-8265-3fa9-c04be17d8265", "commit " + "3fa9c04be1" * 4, "/data/tokens/secret_garden.txt",
    "NCCL commId 0x3fa9c04be17d8265", "ncclUniqueId a3:b4:c5", "--tokenizer meta-llama/Llama-3", "GPU-3fa9c04b",
    "missing key: model.layers.0.self_attn.q_proj.weight", "Unexpected token: <unk>", "KeyError: 'loss'",
    "--token-file /run/secrets/t", "forward pass: 0.31 s", "backward pass = ok", "use_auth_token=True",
    "password = None",
    "HF_TOKEN=$HF_TOKEN python x.py",
    "export PWD=/home/u",
    "apptainer exec --pwd /work/my-net x.sif", "apptainer run --pwd=/work x.sif",
    "cache_key=abc", "sort_key='step'", "--label_key labels",
    "token=os.environ['HF_TOKEN']", "step 12 loss 0.5 tokens/s 12345", "http://localhost:8000/a@b",
    "disk-sharded-model-part",
    "git+https://github.com/x/y@main", "author: Ada", "signature: nccl_timeout", "sig=SIGKILL", "--conf path.yaml",
    "pattern: abc", "sasl off", "key=loss value=0.3", "special_tokens_map.json",
    "tokenizer.pad_token = tokenizer.eos_token",
])  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text
    assert masked_argv(text.split()) == text.split()


def test_no_line_of_a_real_log_is_changed() -> None:
    folders = (HERE / "logs", HERE / "logs" / "healthy", HERE / "nccl_logs")
    lines = [
        line
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.is_file()
        for line in path.read_text("utf-8", "replace").splitlines()
    ]
    assert len(lines) > 500
    assert [(line, masked(line)) for line in lines if masked(line) != line] == []


@pytest.mark.parametrize("name", [
    "pad_token", "token_ids", "key_value", "tokenizer", "max_tokens", "PWD", "password_file", "monkey", "compass",
    "cls_token",
    "secret_name", "passes", "keys", "authors", "bypass", "NCCL_IB_PKEY", "prompt_token", "sort_key", "num_pass",
])  # fmt: skip
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


# --- time ------------------------------------------------------------------------------------------------------------


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


HOSTILE = (
    "a.", "a=", ":", '"', "'", "--a ", "QWxhZGRpbjpvcGVu", "://a:a", "://a:1/@", "-----BEGIN PRIVATE KEY-----", "eyJ",
    "a-eyJ", "token=***", "token ", " ", "\\", "cookie: a; ", 'key="\\"', "token=$(",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """A quadratic reading took 29 s for 400 KB of "a.", so 45 s for what is read here."""
    with alarm(20):
        masked(piece * (500_000 // len(piece)))


# --- structured data ----------------------------------------------------------------------------------------------


def test_a_tree_keeps_its_shape() -> None:
    tree: dict[str, Any] = {
        "num_processes": 2, "password": 12345, "hub_token": None, "use_auth_token": True,
        "credentials": {"user": "ada"},
        "fsdp_config": {"fsdp_version": 2, "url": "https://a:b@h/"}, "tokens": [1, 2], "api_keys": ["abc"],
    }  # fmt: skip
    assert masked_value(tree) == {
        **tree, "password": MASK, "credentials": {"user": MASK}, "api_keys": [MASK],
        "fsdp_config": {"fsdp_version": 2, "url": "https://***@h/"},
    }  # fmt: skip


# --- files that are made -----------------------------------------------------------------------------------------


JOB = Job(name="x", nodes=1, ranks_per_node=1, gpus_per_node=0, command=("train.py",), config="accelerate.yaml")
WITH_SECRETS: dict[str, dict[str, Any]] = {
    "command": {"command": ("train.py", "--pw", "hunter2")},
    "header": {"command": ("train.py", "-H", "Authorization: Bearer abcdef123456")},
    "env by name": {"env": {"SMTP_PASS": "hunter2"}},
    "env by form": {"env": {"ANYTHING": FORMS["Stripe"]}},
    "setup": {"setup": (f"export WANDB_API_KEY={NAMED['wandb_api_key']}",)},
    "image": {"container": Container("pyxis", "docker://u:pw@registry.example#a/b")},
}


@pytest.mark.parametrize("change", WITH_SECRETS.values(), ids=[*WITH_SECRETS])
def test_no_job_script_is_made_with_a_secret_in_it(change: dict[str, Any]) -> None:
    from dataclasses import replace

    job = replace(JOB, **change)
    with pytest.raises(MgpuError, match="secret") as refused:
        validate.refuse_invalid(job)
    assert "hunter2" not in refused.value.message
    with pytest.raises(MgpuError, match="secret"):
        parts.refuse(engines.Plan(job, {}, ""))


def test_a_job_without_secrets_is_made() -> None:
    validate.refuse_invalid(JOB)
    parts.refuse(engines.Plan(JOB, {}, ""))


# --- everything that mgpu writes and prints ----------------------------------------------------------------------


def all_secrets() -> dict[str, str]:
    """What is planted -> the secret to look for."""
    return {
        **{f"form {name}": secret for name, secret in FORMS.items()},
        **{f"name {name}": secret for name, secret in NAMED.items()},
        **{f"address {shape}": secret for shape, (_, secret) in planted.in_urls().items()},
        "private key": planted.private_key()[1],
    }


def lines_with_secrets() -> list[str]:
    """A line of a log, a comment or a value for each."""
    return [
        *(f"extra {number}: {secret} end" for number, secret in enumerate(FORMS.values())),
        *(f"{name}={secret}" for name, secret in NAMED.items()),
        *(address for address, _ in planted.in_urls().values()),
    ]


def plant(folder: Path) -> None:
    """The user's own files, full of secrets."""
    values = {f"extra_{number}": secret for number, secret in enumerate(FORMS.values())} | NAMED
    values |= {f"address_{number}": address for number, (address, _) in enumerate(planted.in_urls().values())}
    values["pem"] = planted.private_key()[0]
    config = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 2\n"
    )
    config += "num_machines: 1\nuse_cpu: true\n"
    (folder / "accelerate.yaml").write_text(config)
    nested = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in values.items())
    whole = "\n".join(f"{key}: {json.dumps(value)}" for key, value in values.items())
    (folder / "bad.yaml").write_text(f"{config}{whole}\nfsdp_config:\n{nested}\nnum_processes: two\n")
    (folder / "train.py").write_text(
        "def f(**_): pass\n\n" + "\n".join(f"f({key}={value!r})" for key, value in values.items())
    )
    exports = "\n".join(f"export {name}={secret}" for name, secret in NAMED.items())
    words = " ".join(f"--x{number} {secret}" for number, secret in enumerate(FORMS.values()))
    options = " ".join(f"--{name} {secret}" for name, secret in NAMED.items())
    (folder / "job.sh").write_text(
        f"#!/bin/bash\n#SBATCH --comment={FORMS['GitHub']}\n#SBATCH --nodes=2\n{exports}\n"
        f"srun torchrun train.py {words} {options}\n"
    )
    (folder / "run.log").write_text("".join(
        f"Traceback (most recent call last):\n  File \"a.py\", line {number}, in f\n    x\nValueError: {line}\n"
        for number, line in enumerate(lines_with_secrets())
    ) + f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB {FORMS['Slack']}\n")  # fmt: skip


def searched(text: str, what: str) -> list[str]:
    """The secrets that a text shows."""
    return [f"{name} in {what}" for name, secret in all_secrets().items() if secret in text]


def test_no_secret_is_printed_or_written(tmp_path: Path, mgpu: Any) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    plant(folder)
    own = {path.name for path in folder.iterdir()}
    env = {
        **{name.upper(): secret for name, secret in NAMED.items()},
        **{f"NCCL_X{number}": secret for number, secret in enumerate(FORMS.values())},
        **{f"ACCELERATE_{number}": address for number, (address, _) in enumerate(planted.in_urls().values())},
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    words = [*(f"--x={secret}" for secret in FORMS.values())]
    for name, secret in NAMED.items():
        words += [f"--{name}", secret]
    quick = ("doctor", "--quick", "--only", "environ,config", "-c", "bad.yaml", "-v")
    no_loader = ("configure", "--validate", "bad.yaml", "--no-loader")
    made_here = ("configure", "--yes", "--gpus", "0")
    commands = [
        (*quick, "--save", "saved.json"),
        *((*quick, "--format", form) for form in ("json", "markdown", "junit", "github", "html")),
        ("doctor", "--from", "saved.json", "-c", "bad.yaml", "--quick", "-v", "--save", "again.json"),
        *(("doctor", "--script", name, "-v", *more) for name in ("job.sh", "train.py") for more in ((), ("--json",))),
        *(("doctor", "--log", "run.log", "-v", *more) for more in ((), ("--json",))),
        (*no_loader, "--fix", "--dry-run"),
        (*no_loader, "--format", "json"),
        ("configure", "--show-origin", "bad.yaml"),
        (*made_here, "--command", f"train.py --pw {NAMED['smtp_pass']}", "--emit", "kubeflow"),
        (*made_here, "--model", f"https://u:{NAMED['hub_token']}@h/m", "--save-answers", "a.toml"),
        ("launch", "--unverified", "allow", "--dry-run", "train.py", *words),
        ("launch", "--unverified", "allow", "train.py", *words),
        ("launch", "--status", "--json-result", "-"),
        ("launch", "--report", "--json-result", "-"),
    ]
    found = []
    for command in commands:
        done = mgpu(*command, cwd=folder, env=env)
        found += searched(done.stdout + done.stderr, f"the output of mgpu {' '.join(command[:6])}")
        assert "Traceback" not in done.stderr, done.stderr
    assert any(path.name == "result.json" for path in tmp_path.rglob("*")), "the launch left no result"
    for path in tmp_path.rglob("*"):  # but for the user's own files, and what the training itself printed
        if path.is_file() and not (path.parent == folder and path.name in own) and path.name != "run.log":
            found += searched(path.read_text("utf-8", "replace"), str(path.relative_to(tmp_path)))
    assert found == []
