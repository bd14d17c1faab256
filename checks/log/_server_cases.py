"""What does an answer of an inference server mean, by its code?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, line_of, message

_NOT_FOUND = r"Request failed: (?:404|405)\b"
NOT_TRLS_SERVER = Case(
    either(message(_NOT_FOUND), line_of("log_generation_server_failed", _NOT_FOUND)),
    "the server at the vLLM address does not have the routes that TRL needs (404)",
    "TRL's trainer needs the server that `trl vllm-serve` starts, of the same TRL release. `vllm serve` has other "
    "routes, and another program can use the port.",
    (
        Fix(
            "Start TRL's own server, with the same TRL as the trainer's.",
            ("trl vllm-serve --model MODEL", "pip show trl"),
        ),
        Fix("Check which program answers there.", ("curl -i http://HOST:8000/health", "ss -ltnp 'sport = :8000'")),
    ),
    'Exception: Request failed: 404, {"detail":"Not Found"}\n',
    "https://huggingface.co/docs/trl/main/en/vllm_integration",
)
