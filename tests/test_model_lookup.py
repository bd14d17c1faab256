"""mgpu/wizard/model.py, weights.py and first_optimizer.py: how large the model is, from files, the Hub or a script.

No network: the Hub is a server of this process, and every safetensors file is made here.
"""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.wizard import answers, model, parameter_probe, weights
from mgpu.wizard.answers import Answers
from tests.conftest import ROOT

BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I8": 1, "U8": 1, "I32": 4, "I64": 8}
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]  # name: dtype, shape

LLAMA: Shapes = {
    "model.embed_tokens.weight": ("BF16", (100, 8)),
    "model.layers.0.mlp.up_proj.weight": ("BF16", (32, 8)),
    "model.norm.weight": ("BF16", (8,)),
    "lm_head.weight": ("BF16", (100, 8)),
}
LLAMA_PARAMS = 800 + 256 + 8 + 800


def write_tensors(path: Path, tensors: Shapes, *, cut: int = 0) -> None:
    """A real safetensors file; `cut` bytes are missing at its end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes((struct.pack("<Q", len(raw)) + raw + b"\0" * at)[: -cut or None])


def write_sharded(folder: Path, shards: Mapping[str, Shapes]) -> None:
    weight_map: dict[str, str] = {}
    for name, tensors in shards.items():
        write_tensors(folder / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / weights.INDEX).write_text(json.dumps(index), "utf-8")


def refused(name: str, environ: Mapping[str, str], **options: Any) -> str:
    with pytest.raises(MgpuError) as caught:
        model.look_up(name, environ=environ, **options)
    assert caught.value.exit_code == errors.USAGE
    return caught.value.message


# --- folders --------------------------------------------------------------------------------------------------------


def test_one_file_is_counted_exactly(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", LLAMA)
    found = model.look_up(str(tmp_path), environ={})
    assert (found.params, found.dtype, found.where) == (LLAMA_PARAMS, "BF16", "from its folder")
    assert found.text == f"1.86K ({tmp_path}, from its folder)"


def test_the_real_library_writes_what_is_read_here(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    net = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
    safetensors.save_file(net.state_dict(), str(tmp_path / "model.safetensors"))
    assert weights.count(tmp_path).params == sum(p.numel() for p in net.parameters())


def test_only_the_files_the_index_names_are_counted(tmp_path: Path) -> None:
    names = list(LLAMA)
    write_sharded(
        tmp_path,
        {
            "model-00001-of-00002.safetensors": {name: LLAMA[name] for name in names[:2]},
            "model-00002-of-00002.safetensors": {name: LLAMA[name] for name in names[2:]},
        },
    )
    write_tensors(tmp_path / "consolidated.safetensors", LLAMA)  # the same model once more, as Mistral's have it
    assert weights.count(tmp_path).params == LLAMA_PARAMS
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(weights.Uncountable, match="only 1 of its 2 files exist"):
        weights.count(tmp_path)


def test_tied_embeddings_stored_twice_are_one(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", LLAMA)
    for config in ({"tie_word_embeddings": True}, {"text_config": {"tie_word_embeddings": True}}):
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
        found = model.look_up(str(tmp_path), environ={})
        assert found.params == LLAMA_PARAMS - 800
        assert found.notes == ("tied embeddings are stored twice and counted once",)
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": false}', "utf-8")
    assert weights.count(tmp_path).params == LLAMA_PARAMS


def test_what_is_no_parameter_is_not_counted(tmp_path: Path) -> None:
    buffers: Shapes = {
        "h.0.attn.bias": ("F32", (1, 1, 64, 64)),  # GPT-2's causal mask
        "h.0.attn.masked_bias": ("F32", ()),
        "layers.0.rotary_emb.inv_freq": ("F32", (64,)),
        "embeddings.position_ids": ("I64", (1, 512)),
        "bn.running_mean": ("F32", (5,)),
        "bn.num_batches_tracked": ("I64", ()),
    }
    parameters: Shapes = {"h.0.attn.c_attn.bias": ("F32", (30,)), "wte.weight": ("F32", (1000, 100))}
    write_tensors(tmp_path / "model.safetensors", {**buffers, **parameters})
    assert weights.count(tmp_path).params == 100_030


def test_fp8_weights_count_and_their_scales_do_not(tmp_path: Path) -> None:
    write_tensors(
        tmp_path / "model.safetensors",
        {"w.weight": ("F8_E4M3", (128, 128)), "w.weight_scale_inv": ("F32", (1, 1)), "norm": ("BF16", (128,))},
    )
    found = weights.count(tmp_path)
    assert (found.params, found.dtype) == (128 * 128 + 128, "F8_E4M3")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "it contains no safetensors file"),
        ({"pytorch_model.bin": b"x"}, "its weights are pickled"),
        ({"a.safetensors": b"x", "b.safetensors": b"y"}, "it has 2 safetensors files and no"),
        ({"model.safetensors": b""}, "model.safetensors is not a safetensors file"),
        ({"model.safetensors": b"\xff" * 20}, "model.safetensors is not a safetensors file"),
        ({"model.safetensors": struct.pack("<Q", 5) + b"[1,2]"}, "model.safetensors is not a safetensors file"),
        ({"model.safetensors": struct.pack("<Q", 9) + b'{"a": {}}'}, "model.safetensors is not a safetensors file"),
        ({"model.safetensors": struct.pack("<Q", 2) + b"{}"}, "it contains no weights"),
        ({weights.INDEX: b"{"}, f"{weights.INDEX} is not valid JSON"),
        ({weights.INDEX: b"[]"}, f"{weights.INDEX} is not valid JSON"),
        ({weights.INDEX: b"{}"}, "has no weight_map"),
        ({weights.INDEX: b'{"weight_map": {"a": "../../x.safetensors"}}'}, "lists files outside the folder"),
        ({"adapter_config.json": b'{"base_model_name_or_path": "org/base"}'}, "the base model is org/base"),
    ],
)
def test_folders_that_say_nothing(files: dict[str, bytes], words: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    message = refused(str(tmp_path), {})
    assert words in message
    assert "--params 8.03B" in message


def test_a_download_that_was_cut_is_seen(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", LLAMA, cut=100)
    assert "model.safetensors is truncated:" in refused(str(tmp_path), {})


def test_packed_weights_are_not_countable(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", {"q.qweight": ("I32", (64, 128)), "q.scales": ("F16", (8, 128))})
    assert "quantized and packed (I32) and cannot be counted: use the base model" in refused(str(tmp_path), {})


def test_a_file_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x", "utf-8")
    assert "is a file; use the folder of the model" in refused(str(tmp_path / "f"), {})
    assert "no such folder" in refused(str(tmp_path / "no"), {})
    assert "no such folder" in refused("./no", {})
    assert "neither a folder nor an ID" in refused("a/b/c", {})
    assert "neither a folder nor an ID" in refused("a b", {})
    assert "neither a folder nor an ID" in refused("", {})


# --- the local cache ------------------------------------------------------------------------------------------------


def cached(hub: Path, name: str, commit: str, tensors: Shapes, *, main: bool = False) -> Path:
    folder = hub / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir(exist_ok=True)
    write_tensors(folder / "blobs" / commit, tensors)
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs") / commit)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit, "utf-8")
    return snapshot


@pytest.mark.parametrize(
    ("environ", "hub"),
    [
        ({"HF_HUB_CACHE": "x/hub"}, "x/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "x/hub"}, "x/hub"),
        ({"HF_HOME": "x"}, "x/hub"),
        ({"XDG_CACHE_HOME": "x"}, "x/huggingface/hub"),
        ({"HOME": "x"}, "x/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_hub_puts_it(environ: dict[str, str], hub: str, tmp_path: Path) -> None:
    here = {name: str(tmp_path / value) for name, value in environ.items()}
    cached(tmp_path / hub, "org/name", "abc", LLAMA)
    found = model.look_up("org/name", offline=True, environ=here)
    assert (found.params, found.where) == (LLAMA_PARAMS, "from the local cache")
    assert model.look_up("https://huggingface.co/org/name/tree/main", offline=True, environ=here) == found


def test_main_is_taken_else_the_newest_that_is_whole(tmp_path: Path) -> None:
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    small: Shapes = {"w": ("F32", (3,))}
    old = cached(tmp_path, "gpt2", "old", small)
    new = cached(tmp_path, "gpt2", "new", LLAMA)
    os.utime(old, (1, 1))
    assert model.look_up("gpt2", offline=True, environ=environ).params == LLAMA_PARAMS
    (tmp_path / "models--gpt2" / "refs").mkdir()
    (tmp_path / "models--gpt2" / "refs" / "main").write_text("old", "utf-8")
    assert model.look_up("gpt2", offline=True, environ=environ).params == 3
    (old / "model.safetensors").unlink()
    assert model.look_up("gpt2", offline=True, environ=environ).params == LLAMA_PARAMS
    (new / "model.safetensors").unlink()
    message = refused("gpt2", environ, offline=True)
    assert message.startswith(
        "--model gpt2: it is in the local cache, but it contains no safetensors file, and --offline"
    )


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_the_hubs_own_switch_is_obeyed(variable: str, tmp_path: Path) -> None:
    environ = {"HF_HUB_CACHE": str(tmp_path), variable: "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
    assert refused("org/name", environ) == (
        "--model org/name: it is not in the local cache, and HF_HUB_OFFLINE disables network access.\n"
        "Set the number:  --params 8.03B"
    )


# --- the Hub --------------------------------------------------------------------------------------------------------


@dataclass
class Hub:
    """A server that answers as the Hub does."""

    url: str = ""
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    seen: list[tuple[str, str | None]] = field(default_factory=list)  # path, Authorization
    wait_s: float = 0

    def environ(self, tmp_path: Path) -> dict[str, str]:
        return {"HF_ENDPOINT": self.url, "HF_HUB_CACHE": str(tmp_path), "HF_TOKEN": "hf_secret"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.seen.append((self.path, self.headers.get("Authorization")))
            time.sleep(state.wait_s)
            code, body = state.answers.get(self.path, (404, b"{}"))
            self.send_response(code)
            if code == 307:
                self.send_header("Location", body.decode())
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()


def sizes(**parameters: int) -> tuple[int, bytes]:
    return 200, json.dumps({"safetensors": {"parameters": parameters, "total": sum(parameters.values())}}).encode()


def test_the_hub_is_asked_last_and_without_the_token_elsewhere(hub: Hub, tmp_path: Path) -> None:
    hub.answers["/api/models/org/name"] = sizes(BF16=8_030_261_248, F32=8)
    told: list[str] = []
    found = model.look_up("org/name", environ=hub.environ(tmp_path), say=told.append)
    host = hub.url.removeprefix("http://")
    assert found.text == f"8.03B (org/name, from {host})"
    assert (found.params, found.dtype) == (8_030_261_256, "BF16")
    assert told == [f"looking up the size of org/name on {host}"]
    assert hub.seen == [("/api/models/org/name", None)]
    cached(tmp_path, "org/name", "abc", LLAMA)
    assert model.look_up("org/name", environ=hub.environ(tmp_path)).params == LLAMA_PARAMS
    assert len(hub.seen) == 1


def test_a_renamed_model_is_followed(hub: Hub, tmp_path: Path) -> None:
    hub.answers["/api/models/gpt2"] = (307, b"/api/models/openai-community/gpt2")
    hub.answers["/api/models/openai-community/gpt2"] = sizes(F32=137_022_720)
    assert model.look_up("gpt2", environ=hub.environ(tmp_path)).params == 137_022_720


def test_the_token_goes_to_the_hub_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def fetch(request: Any, result: list[Any]) -> None:
        sent.append(dict(request.header_items()))
        result.append(sizes(F32=1)[1])

    monkeypatch.setattr(model, "_fetch", fetch)
    for endpoint, token in (
        ("https://huggingface.co", "Bearer hf_x"),
        ("http://huggingface.co", None),
        ("https://huggingface.co.evil.org", None),
        ("https://huggingface.co@evil.org", None),
        ("https://mirror.org", None),
    ):
        environ = {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": "/no/such", "HF_TOKEN": "hf_x"}
        model.look_up("org/name", environ=environ)
        assert sent.pop().get("Authorization") == token, endpoint
    model.look_up("org/name", environ={"HF_HUB_CACHE": "/no/such"})
    assert "Authorization" not in sent.pop()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, b"{}"), "has no public model with that name (HTTP 401; also not with HF_TOKEN)"),
        ((404, b"{}"), "has no public model with that name (HTTP 404;"),
        ((429, b""), "limits the request rate (HTTP 429)"),
        ((503, b""), "returned HTTP 503"),
        ((200, b"<html>"), "does not answer like the Hub"),
        ((200, b"[]"), "does not answer like the Hub"),
        ((200, b"{}"), "reports no size (no safetensors)"),
        ((200, b'{"safetensors": {"parameters": {"F32": "x"}}}'), "reports no size"),
        (sizes(I32=10**9, F16=10**7), "quantized and packed (I32)"),
        (sizes(), "it contains no weights"),
    ],
)
def test_what_the_hub_cannot_tell(answer: tuple[int, bytes], words: str, hub: Hub, tmp_path: Path) -> None:
    hub.answers["/api/models/org/name"] = answer
    message = refused("org/name", hub.environ(tmp_path))
    assert words in message
    assert "hf_secret" not in message


def test_nobody_answers(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HUB_CACHE": str(tmp_path)}
    message = refused("org/name", closed)
    assert message.startswith("--model org/name: it is not in the local cache, and 127.0.0.1:1 cannot be reached (")
    monkeypatch.setattr(model, "_DEADLINE_S", 0.3)
    hub.wait_s = 6
    began = time.monotonic()
    assert "cannot be reached (" in refused("org/name", hub.environ(tmp_path))
    assert time.monotonic() - began < 5
    for endpoint in ("ftp://x", "huggingface.co", "http://[bad"):
        environ = {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(tmp_path)}
        assert len(refused("org/name", environ).splitlines()) <= 2


def test_a_number_is_no_name() -> None:
    for text in ("8.03B", "350m", "8e9", "7_000_000_000", ".5B", "auto", "", " 7B "):
        assert not model.is_model_name(text), text
    for text in ("org/name", "gpt2", "~/models/x", "./x", "01-ai/Yi-6B", "https://huggingface.co/gpt2"):
        assert model.is_model_name(text), text


def test_resolved_fills_in_the_size_once(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", LLAMA)
    given = answers.with_decision(Answers(), "model", str(tmp_path))
    found = model.resolve_size(given)
    assert (found.params, found.origins) == (LLAMA_PARAMS, {"model": "you", "params": "probe"})
    assert found.source == "from its folder"
    assert answers.arguments(found) == ["--model", str(tmp_path)]
    assert model.resolve_size(found) is found
    assert model.resolve_size(Answers()) == Answers()


# --- a script -------------------------------------------------------------------------------------------------------

HEAD = "import sys, os, torch\nnet = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 3))\n"


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def write(text: str, name: str = "train.py") -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return write


def failing(command: list[str], **options: Any) -> str:
    with pytest.raises(MgpuError) as caught:
        parameter_probe.measure(command, **options)
    assert caught.value.exit_code == errors.USAGE
    return caught.value.message


def test_a_script_is_stopped_at_its_first_optimizer(script: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("RATE = 3e-4\n", "utf-8")
    path = script(
        HEAD + "import atexit, mine\nprint('x' * 100_000)\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['--data', 'a b'] and sys.argv[0] == __file__\n"
        "assert 'WORLD_SIZE' not in os.environ\n"
        "atexit.register(lambda: open('atexit', 'w'))\n"
        "net[0].requires_grad_(False)\n"
        "teacher = torch.nn.Linear(1000, 1000)\n"
        "try:\n"
        "    torch.optim.AdamW([{'params': net[1].weight}, {'params': net[1].bias, 'lr': 1e-3}], lr=mine.RATE)\n"
        "except BaseException:\n    open('caught', 'w')\n"
        "finally:\n    open('finally', 'w')\n"
        "open('after', 'w')\n"
    )
    told: list[str] = []
    found = parameter_probe.measure(
        [path, "--data", "a b"], environ={**os.environ, "WORLD_SIZE": "4", "RANK": "1"}, say=told.append
    )
    assert (found.params, found.trainable, found.dtype) == (143, 33, "float32")
    assert (found.name, found.optimizer, found.lr) == ("AdamW", "adamw", 3e-4)
    assert found.text == (
        "train.py: 143 parameters, 33 of them trained, mostly float32; AdamW, lr 0.0003 (the first of several). "
        "Stopped at its first optimizer."
    )
    assert told[0].startswith(f"running {path} up to its first optimizer, 0 s")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["mine.py", "train.py"]


def test_a_rank_that_was_forked_stops_its_parent_too(script: Any, tmp_path: Path) -> None:
    path = script(
        HEAD + "import multiprocessing\n"
        "rank = multiprocessing.get_context('fork').Process(target=lambda: torch.optim.Adam(net.parameters()))\n"
        "rank.start()\nrank.join()\nopen(__file__ + '.went_on', 'w')\n"
    )
    assert parameter_probe.measure([path]).name == "Adam"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["train.py"]


def test_the_training_of_the_tests_itself() -> None:
    found = parameter_probe.measure([str(ROOT / "tests" / "train_digits.py")])
    assert (found.params, found.trainable, found.optimizer) == (9_930, 9_930, "adamw")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SGD", "sgd"),
        ("Adafactor", "adafactor"),
        ("RAdam", "adamw"),
        ("FusedAdam", "adamw"),
        ("DeepSpeedCPUAdam", "adamw"),
        ("PagedAdamW8bit", "adam8bit"),
        ("LBFGS", None),
        ("AdamMini", None),
    ],
)
def test_optimizers_are_known_by_their_class(name: str, expected: str | None) -> None:
    report = {"params": 8, "trainable": 8, "dtypes": {"bfloat16": 6, "float32": 2}, "optimizer": name, "rates": []}
    found = parameter_probe._parse_measured("train.py", report)
    assert (found.optimizer, found.dtype, found.lr) == (expected, "bfloat16", None)
    assert ("the memory that" in found.text) == (expected is None)


def test_an_optimizer_without_parameters_says_nothing(script: Any) -> None:
    path = script("import torch\ntorch.optim.SGD([torch.zeros(0, requires_grad=True)], lr=1)\n")
    assert "its first optimizer (SGD) is empty" in failing([path])


@pytest.fixture
def light(tmp_path: Path) -> None:
    """A torch that loads at once, for scripts that never get as far as an optimizer."""
    (tmp_path / "torch.py").write_text("class optim:\n    class Optimizer:\n        pass\n", "utf-8")


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('done')\n", "it finished without creating a torch optimizer"),
        ("raise SystemExit(3)\n", "it failed (exit code 3) before its first optimizer"),
        ("import torch\n1 / 0\n", "before its first optimizer: ZeroDivisionError: division by zero"),
        ("def f(:\n", "SyntaxError"),
        ("input()\n", "EOFError"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "killed by SIGKILL (out of memory?)"),
        ("import os\nos.environ['LOCAL_RANK']\n", "it requires a launcher: KeyError: 'LOCAL_RANK'"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()\n",
            "the following arguments are required: --data.\nPass them after --:",
        ),
    ],
)
def test_scripts_that_get_nowhere(text: str, words: str, script: Any) -> None:
    path = script(text)
    message = failing([path])
    assert message.startswith(f"--params-from {path}: ")
    assert words in message


def test_one_rank_is_what_the_hint_makes_it(script: Any, tmp_path: Path) -> None:
    path = script("import os\nos.environ['LOCAL_RANK']\n" + HEAD + "torch.optim.SGD(net.parameters(), lr=0.1)\n")
    hint = failing([path]).splitlines()[1]
    assert hint == f"Run it as one rank:  {parameter_probe._ONE_RANK} mgpu configure --params-from {path}"
    one = dict(word.split("=") for word in parameter_probe._ONE_RANK.split())
    python = tmp_path / "python"  # the other interpreter that --python names
    python.write_text(f'#!/bin/sh\necho ran > "$0.log"\nexec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    assert parameter_probe.measure([path], environ={**os.environ, **one}, python=str(python)).params == 143
    assert (tmp_path / "python.log").exists()


@pytest.mark.usefixtures("light")
def test_a_script_that_hangs_is_ended_with_what_it_started(script: Any, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    path = script(
        "import subprocess, time\n"
        f"open({str(pid)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "print('waiting for the data', flush=True)\ntime.sleep(600)\n"
    )
    message = failing([path], deadline_s=1.5)
    assert "no torch optimizer within 1.5 s, so it was stopped. Last output: waiting for the data" in message
    for _ in range(50):
        if not alive(int(pid.read_text("utf-8"))):
            break
        time.sleep(0.1)
    assert not alive(int(pid.read_text("utf-8")))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("light")
def test_ctrl_c_ends_the_script_too(script: Any, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    path = script(f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")

    def interrupt() -> None:
        while not (pid.exists() and pid.read_text("utf-8")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        parameter_probe.measure([path])
    thread.join()
    assert not alive(int(pid.read_text("utf-8")))


def test_no_torch_is_said(script: Any, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12 is missing')\n", "utf-8")
    message = failing([script("import torch\n")])
    assert "torch cannot be imported (ImportError: libcudart.so.12 is missing)" in message
    assert "--python PATH" in message


def test_a_script_that_is_none(tmp_path: Path) -> None:
    assert failing([str(tmp_path / "no.py")]) == f"--params-from {tmp_path / 'no.py'}: no such file"
    assert failing([str(tmp_path)]) == f"--params-from {tmp_path}: is a folder, not a script"


def test_what_was_measured_fills_in_what_nobody_decided() -> None:
    measured = parameter_probe.Measured("train.py", 143, 33, "float32", "AdamW", "adamw", 3e-4)
    given = answers.collect({"model": "org/name", "optimizer": "sgd"}, (), {})
    found = parameter_probe.fill(given, measured)
    assert (found.params, found.trainable, found.optimizer, found.lr, found.model) == (143, 33, "sgd", 3e-4, None)
    assert found.origins == {"optimizer": "flag", "params": "probe", "trainable": "probe", "lr": "probe"}
    assert found.source == "from train.py"
    assert answers.arguments(found) == ["--params", "143", "--trainable", "33", "--optimizer", "sgd", "--lr", "0.0003"]
