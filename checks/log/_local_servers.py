"""Which server of the run did not answer, by its port, path and client, and why, by the error of the connection?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

_THIS_NODE = re.compile(r"localhost|127\.|0\.0\.0\.0")
_REFUSED = re.compile(r"\[?Errno (?:111|61)\b|Connection refused|WinError 10061|actively refused it")
_NO_ANSWER = re.compile(
    r"\[?Errno (?:101|110|113)\b|No route to host|Network is unreachable|timed out|ConnectTimeoutError|WinError 10060"
)
_OF_PROXY = re.compile(r"ProxyError|Cannot connect to proxy|Unable to connect to proxy|Tunnel connection failed")
# The connection was made, so the network is fine.
_TOO_SLOW = re.compile(r"ReadTimeoutError|Read timed out")
_ANSWERED = re.compile(r"ResponseError\((?:\D{0,20}(?P<code>\d{3}))?")
_NO_NAME = re.compile(r"NameResolutionError|Name or service not known|Temporary failure in name|getaddrinfo failed")
_CALLED = re.compile(r"Connect call failed")  # asyncio, which does not always print the number


class _Server(NamedTuple):
    """A kind of server, and what shows that it is one."""

    name: str
    address: str  # ":8000/health/": of its port and path
    frames: str  # of its client
    start: tuple[Fix, ...]


# fmt: off
TRL_SERVER = (
    Fix("Start the server first, and check that it answers at the address the trainer uses.",
        ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model MODEL --port 8000", "curl http://HOST:8000/health/",
         "GRPOConfig(use_vllm=True, vllm_mode='server', vllm_server_host='HOST', vllm_server_port=8000)")),
    Fix("Or let vLLM share the ranks' GPUs, without a server.", ("GRPOConfig(use_vllm=True, vllm_mode='colocate')",)),
)
_ITS_LOG = Fix("Read the server's own log.", ("mgpu doctor --log server.log",))
_OF_TRAINER = "the vLLM server from which the trainer (GRPO) gets its answers"
_OF_FRAMEWORKS = (
    (re.compile(r"\baxolotl\b"), Fix(
        "Start it first, in another terminal and on other GPUs, and wait until it has loaded the model. axolotl has a "
        "command for it; trl.vllm_server_host and vllm_server_port of the config are its address.",
        ("CUDA_VISIBLE_DEVICES=0 axolotl vllm-serve CONFIG.yaml", "curl http://HOST:8000/health/"))),
    (re.compile(r"\bms-swift\b|(?:^|[/\s.])swift[/.](?:llm|trainers|cli|plugin|megatron|rlhf)"), Fix(
        "Start it first, in another terminal and on other GPUs, and wait until it has loaded the model.",
        ("CUDA_VISIBLE_DEVICES=0 swift rollout --model MODEL", "curl http://HOST:8000/health/"))),
)
_SERVERS = (
    _Server(_OF_TRAINER,
            r":800\d/health/$|:\d+/(?:generate|chat|init_communicator|update_named_param|batch_update_named_params|"
            r"reset_prefix_cache|close_communicator|get_world_size)/$", r"vllm_client\.py", TRL_SERVER),
    _Server("Ollama's server", r":11434/|:\d+/api/(?:generate|chat|tags|embed(?:dings)?|pull|show)$", r"^ollama/",
            (Fix("Start it, on this node or with its address in OLLAMA_HOST.",
                 ("ollama serve", "export OLLAMA_HOST=http://HOST:11434")),)),
    _Server("MLflow's tracking server", r":\d+/api/\d\.\d/mlflow", r"^mlflow/",
            (Fix("Start it, or log to a folder.",
                 ("mlflow server --host 0.0.0.0 --port 5000", "export MLFLOW_TRACKING_URI=file:///shared/mlruns")),)),
    _Server("Ray's dashboard (it accepts jobs)", r":8265/", r"^ray/dashboard/",
            (Fix("Start Ray on its head node, and use that node's address.",
                 ("ray start --head --dashboard-host=0.0.0.0", "ray status",
                  "ray job submit --address http://HEAD:8265 -- python train.py")),)),
    _Server("the model server with OpenAI's API (vLLM, SGLang or another)", r":\d+/v1/", r"^(?:openai|litellm)/",
            (Fix("Start it first, and wait until it has loaded the model.",
                 ("vllm serve MODEL --port 8000", "curl http://HOST:8000/v1/models")),)),
    _Server("the inference server (SGLang or vLLM)",
            r":\d+/(?:health_generate|get_model_info|get_server_info|server_info|model_info|flush_cache|"
            r"update_weights_from_\w+|init_weights_update_group|generate)$", r"^sglang/",
            (Fix("Start it first, and wait until it has loaded the model.",
                 ("python -m sglang.launch_server --model-path MODEL --port 30000", "curl http://HOST:30000/health")),)),
    _Server("the server that scores answers (a reward model)", r":\d+/(?:get_)?(?:rewards?|scores?)/?$", r"remote_rm",
            (Fix("Start the reward server first, as the framework's example does, and pass its address."),)),
    _Server("the server that searches for the agent", r":\d+/retrieve/?$", r"(?!)",
            (Fix("Start the retrieval server first, as the framework's example does, and pass its address."),)),
    _Server("the sandbox that runs generated code", r":\d+/run_code/?$", r"(?!)",
            (Fix("Start the sandbox first, as the framework's example does, and pass its address."),)),
)
# fmt: on
# Hosts of one's own: addresses of private networks, and names without a domain.
LOCAL_HOST = (
    r"localhost|127\.[\d.]+|0\.0\.0\.0|10\.[\d.]+|192\.168\.[\d.]+|172\.(?:1[6-9]|2\d|3[01])\.[\d.]+|"
    r"[A-Za-z][\w-]*(?:\.local|\.internal|(?:\.[\w-]+)*\.svc(?:\.cluster\.local)?)?"
)


def explain_server(log: Log, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain which server did not answer, and why not; None if the line shows neither."""
    host, port, why = groups["host"], groups["port"], groups["why"]
    if why == "?":
        return None
    path = re.sub(r"^http://[^/]+", "", groups["url"].rpartition(" ")[2]).partition("?")[0]
    known = _server(f":{port}{path}", raised)
    at = f"{host}:{port}"
    start = _start(known, log, raised)
    if _OF_PROXY.search(why):
        return _of_proxy(at, host)
    if _NO_NAME.search(why):
        return _without_address(host, port, known)
    if answered := _ANSWERED.search(why):
        return _with_errors(at, answered["code"], known)
    if _TOO_SLOW.search(why):
        return _too_slow(at, known)
    if _REFUSED.search(why) or (_CALLED.search(why) and _THIS_NODE.match(host)):
        return _not_running(host, port, known, start)
    if _NO_ANSWER.search(why):
        return _no_answer(at, host, port, known)
    if known is None:
        return None
    return Meaning(
        f"{known.name} does not answer at {at}",
        "It was not started, has failed, is still loading its model, or listens elsewhere. localhost is this node.",
        (*start, _ask(host, port)),
    )


def _server(address: str, raised: UncaughtException | None) -> _Server | None:
    frames = raised.frames if raised else ()
    by_client = (one for one in _SERVERS if any(re.search(one.frames, frame) for frame in frames))
    return next(by_client, None) or next((one for one in _SERVERS if re.match(one.address, address)), None)


def _start(known: _Server | None, log: Log, raised: UncaughtException | None) -> tuple[Fix, ...]:
    """Return how such a server is started; by the command of the framework that the log shows."""
    if known is None:
        return (Fix("Start it first, and read its own log if it had started.", ("mgpu doctor --log server.log",)),)
    if known.name != _OF_TRAINER:
        return known.start
    seen = [*(raised.frames if raised else ()), *(one.frame or "" for one in log.cut)]
    seen += [one.text for one in log.shows if one.name == "hugging_face"]
    framework = next((fix for known_by, fix in _OF_FRAMEWORKS if any(map(known_by.search, seen))), None)
    return (framework, *known.start[1:]) if framework else known.start


def _name(known: _Server | None) -> str:
    return known.name if known else "a server that the run needs"


def _ask(host: str, port: str) -> Fix:
    where = "on this node" if _THIS_NODE.match(host) else f"on {host}"
    return Fix(f"See what listens {where}.", (shell("ss -ltnp 'sport = :{:number}'", port),))


def _not_running(host: str, port: str, known: _Server | None, start: tuple[Fix, ...]) -> Meaning:
    elsewhere = (
        f" {host} is this node only: a server on another node, or in another container, needs its own address."
        if _THIS_NODE.match(host)
        else ""
    )
    return Meaning(
        f"{_name(known)} is not running: nothing listens at {host}:{port}",
        "The connection was refused (errno 111): the node can be reached, but no program listens on that port. The "
        "server was not started, has failed, is still loading its model, or uses another port. No proxy is involved."
        f"{elsewhere}",
        (*start, _ask(host, port)),
    )


def _no_answer(at: str, host: str, port: str, known: _Server | None) -> Meaning:
    return Meaning(
        f"{at} cannot be reached{f': {known.name}' if known else ', where the run expects a server'}",
        "The network did not answer: no route, a firewall that drops the packets, an address of another network or of "
        "a node that has disappeared. If only the server were missing, the connection would be refused (errno 111).",
        (
            Fix(
                "Try the port from this node, and check which interface leads to it.",
                (shell("nc -vz {:host} {:number}", host, port), shell("ip route get {:host}", host)),
            ),
            Fix("Open the port between the nodes, or use an address of the network that connects them."),
        ),
    )


def _of_proxy(at: str, host: str) -> Meaning:
    return Meaning(
        f"the request to {at}, a server of the run itself, was sent to an HTTP proxy, which failed",
        "http_proxy is set. Without an exception for this host, requests to it go to the proxy, which does not reach "
        "the nodes of a job. The server itself may be running.",
        (
            Fix(
                "Exclude the job's nodes from the proxy, in both spellings of the variable.",
                (
                    shell("export no_proxy=localhost,127.0.0.1,{:host}", host),
                    "export NO_PROXY=$no_proxy",
                    "env | grep -i proxy",
                ),
            ),
        ),
    )


def _without_address(host: str, port: str, known: _Server | None) -> Meaning:
    return Meaning(
        f"the host name {host} does not resolve on this node{f': it is that of {known.name}' if known else ''}",
        "Names of containers and pods resolve in their own network only, and a node's short name needs the search "
        "domain or /etc/hosts.",
        (
            Fix(
                "Use its address, or a name that this node resolves.",
                (shell("getent hosts {:host}", host), "hostname -I  # on the server's node"),
            ),
        ),
    )


def _with_errors(at: str, code: str | None, known: _Server | None) -> Meaning:
    return Meaning(
        f"{_name(known)} answers at {at}, but with errors{f' ({code})' if code else ''}",
        "It runs and can be reached. The reason is in its own log: it is overloaded, still starting, or has an error.",
        (_ITS_LOG,),
    )


def _too_slow(at: str, known: _Server | None) -> Meaning:
    return Meaning(
        f"{_name(known)} accepted the connection at {at}, but did not answer in time",
        "The client's read timeout passed. The server runs and can be reached: it is overloaded, still busy with a "
        "long request, still loading its model, or hangs.",
        (_ITS_LOG, Fix("If it is only slow, increase the client's read timeout, or send less at a time.")),
    )
