"""Which server, which device and which part of the memory is meant, in programs without a trainer?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

CONV = ("torch/nn/modules/conv.py", "forward", "return self._conv_forward(input, self.weight, self.bias)")
PREPARED = ("accelerate/utils/operations.py", "forward", "return model_forward(*args, **kwargs)")
REQUESTS = ("requests/adapters.py", "send", "raise ConnectionError(e, request=request)")
STATUS = ("requests/models.py", "raise_for_status", "raise HTTPError(text, response=self)")
OPENAI = ("openai/_base_client.py", "_request", "raise self._make_status_error(err)")
URLLIB = ("/usr/lib/python3.11/urllib/request.py", "http_error_default", "raise HTTPError(url, code, text)")
VISION = ("torchvision/datasets/cifar.py", "__init__", "raise RuntimeError(text)")
FSDP = ("torch/distributed/fsdp/_state_dict_utils.py", "_full_pre_state_dict_hook", "gather(x)")
LOAD = ("torch/serialization.py", "load", "result = unpickler.load()")
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB"
POOL = "requests.ConnectionError: HTTPSConnectionPool(host='{host}', port=443): Max retries exceeded with url: /x"
TYPES = "RuntimeError: Input type ({one}) and weight type ({other}) should be the same"


def refused(host: str, why: str) -> str:
    return f"{POOL.format(host=host)} (Caused by NewConnectionError('{why}'))"


@pytest.mark.parametrize(
    ("function", "code", "below", "error", "title", "words", "never"),
    [
        # Servers that are not the Hub.
        (
            "main",
            "get(url)",
            (REQUESTS,),
            refused("api.example.org", "[Errno 111] Connection refused"),
            "api.example.org could not be reached: it refused",
            "https://api.example.org",
            "hf download",
        ),
        (
            "main",
            "get(url)",
            (REQUESTS,),
            refused("api.example.org", "[Errno 111] Connection refused").replace("443", "8080"),
            "api.example.org could not be reached: it refused",
            "nc -vz -w 10 api.example.org 8080",
            "https://api.example.org",
        ),
        (
            "main",
            "get(url)",
            (REQUESTS,),
            refused("api.example.org", "[Errno -2] Name or service not known"),
            "its name could not be resolved",
            "proxy",
            "hf download",
        ),
        (
            "main",
            "get(url)",
            (REQUESTS,),
            refused("huggingface.co", "[Errno 101] Network is unreachable"),
            "a server on the internet could not be reached",
            "hf download",
            "huggingface.co could",
        ),
        (
            "main",
            "answer.raise_for_status()",
            (STATUS,),
            "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://api.example.org/v1",
            "a server rejected the request",
            "Retry-After",
            "Hub",
        ),
        (
            "main",
            "answer.raise_for_status()",
            (STATUS,),
            "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/x",
            "the server rejected the request",
            "Every rank",
            "Retry-After",
        ),
        (
            "main",
            "ask()",
            (OPENAI,),
            "openai.RateLimitError: Error code: 429 - {'error': {'message': 'You exceeded your current quota'}}",
            "has no credit left",
            "Add credit",
            "Semaphore",
        ),
        (
            "main",
            "ask()",
            (OPENAI,),
            "openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached for requests'}}",
            "too many requests or tokens",
            "Semaphore",
            "Add credit",
        ),
        (
            "main",
            "urlretrieve(url)",
            (URLLIB,),
            "urllib.error.HTTPError: HTTP Error 404: Not Found",
            "the server has no file at the address",
            "print(url)",
            "login",
        ),
        (
            "main",
            "urlretrieve(url)",
            (URLLIB,),
            "urllib.error.HTTPError: HTTP Error 403: Forbidden",
            "the server refuses the download (403",
            "login",
            "no file",
        ),
        (
            "main",
            "data = CIFAR10(root)",
            (VISION,),
            "RuntimeError: File not found or corrupted.",
            "torchvision does not find the files",
            "checksum",
            'Follow the error message: "HTTP',
        ),
        (
            "main",
            "load()",
            (),
            "OSError: Can't load tokenizer for 'org/name'. If you were trying to load it from",
            "found no tokenizer under the name",
            "hides it",
            "sentencepiece",
        ),
        (
            "main",
            "load()",
            (),
            "OSError: Can't load tokenizer for '/data/name'. If you were trying to load it from",
            "one of its files or packages is missing",
            "sentencepiece",
            "hides it",
        ),
        # Devices, without accelerate and on a Mac.
        (
            "main",
            "y = model(x)",
            (MODULE, CONV),
            TYPES.format(one="torch.cuda.FloatTensor", other="torch.FloatTensor"),
            "the weights of model are on the CPU",
            "nn.ModuleList",
            "accelerator.device",
        ),
        (
            "main",
            "y = model(x)",
            (MODULE, PREPARED, CONV),
            TYPES.format(one="torch.cuda.FloatTensor", other="torch.FloatTensor"),
            "the weights of model are on the CPU",
            "accelerator",
            "nn.ModuleList",
        ),
        (
            "main",
            "y = model(x)",
            (MODULE, CONV),
            TYPES.format(one="torch.FloatTensor", other="MPSFloatType"),
            "the input of model is on the CPU",
            "x = x.to(next(",
            "dtype",
        ),
        (
            "main",
            "y = model(x)",
            (MODULE, CONV),
            TYPES.format(one="torch.cuda.FloatTensor", other="torch.cuda.HalfTensor"),
            "another dtype",
            "autocast",
            "on the CPU",
        ),
        # Memory: a function that is called save or resume does more than its name says.
        ("save_video", "y = model(x)", (MODULE, CONV), FULL, "full in the forward pass", "smaller batch", "state dict"),
        (
            "resume_training",
            "y = model(x)",
            (MODULE, CONV),
            FULL,
            "full in the forward pass",
            "smaller batch",
            "torch.load",
        ),
        (
            "resume_training",
            "state = torch.load(path)",
            (LOAD,),
            FULL,
            "while a checkpoint is loaded",
            "map_location",
            "smaller batch",
        ),
        (
            "save_checkpoint",
            "best = copy(model)",
            (),
            FULL,
            "full while a checkpoint is saved",
            "detach().cpu()",
            "gathered on the GPU",
        ),
        (
            "save_checkpoint",
            "state = model.state_dict()",
            (FSDP,),
            FULL,
            "the full state dict is gathered on the GPU",
            "Save sharded",
            "detach().cpu()",
        ),
        # Ranks.
        (
            "main",
            "assert dist.is_initialized()",
            (),
            "AssertionError",
            "a group of connected ranks",
            "--nproc-per-node=1",
            "one of several",
        ),
    ],
)
def test_what_is_meant(
    function: str,
    code: str,
    below: tuple[tuple[str, str, str], ...],
    error: str,
    title: str,
    words: str,
    never: str,
    tmp_path: Path,
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, function, code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert never not in f"{found} {text}", (found, text)
