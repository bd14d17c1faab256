"""Which of a run's own servers did not answer, and why not?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

ROW = "log_local_server_unreachable"
REFUSED = (
    "NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7f>: Failed to establish a new connection: "
    "[Errno 111] Connection refused')"
)
NO_ROUTE = REFUSED.replace("[Errno 111] Connection refused", "[Errno 113] No route to host")
SLOW = (
    "ConnectTimeoutError(<urllib3.connection.HTTPConnection object at 0x7f>, 'Connection to 10.0.0.4 timed out. "
    "(connect timeout=5)')"
)
READ_TIMEOUT = "ReadTimeoutError(\"HTTPConnectionPool(host='x', port=1): Read timed out. (read timeout=60)\")"
PROXY = f"ProxyError('Unable to connect to proxy', {REFUSED})"
NO_NAME = "NameResolutionError(\"<x>: Failed to resolve 'node17' ([Errno -2] Name or service not known)\")"
TRAINER = "the vLLM server from which the trainer (GRPO) gets its answers"


def failed(host: str, port: int, url: str, why: str) -> str:
    return (
        f"requests.exceptions.ConnectionError: HTTPConnectionPool(host='{host}', port={port}): Max retries exceeded "
        f"with url: {url} (Caused by {why})\n"
    )


@pytest.mark.parametrize(
    ("text", "title", "there", "absent"),
    [
        # The path or the port shows which server it is.
        (failed("0.0.0.0", 8000, "/health/", REFUSED), f"{TRAINER} is not running: nothing listens at 0.0.0.0:8000",
         "trl vllm-serve", "no_proxy"),
        (failed("localhost", 8123, "/init_communicator/", REFUSED), f"{TRAINER} is not running", "trl vllm-serve",
         "no_proxy"),
        (failed("localhost", 11434, "/api/chat", REFUSED), "Ollama's server is not running", "ollama serve", "vllm"),
        (failed("127.0.0.1", 5000, "/api/2.0/mlflow/runs/create", REFUSED), "MLflow's tracking server is not running",
         "mlflow server", "vllm"),
        (failed("127.0.0.1", 8265, "/api/version", REFUSED), "Ray's dashboard (it accepts jobs) is not running",
         "ray start --head", "vllm"),
        (failed("10.0.0.4", 8000, "/v1/completions", REFUSED), "the model server with OpenAI's API", "vllm serve",
         "trl"),
        (failed("localhost", 30000, "/health_generate", REFUSED), "the inference server (SGLang or vLLM) is not",
         "sglang.launch_server", "trl"),
        # A path that many servers have, and a port that none of them is known for.
        (failed("localhost", 9123, "/health/", REFUSED), "a server that the run needs is not running: nothing listens "
         "at localhost:9123", "ss -ltnp 'sport = :9123'", "vllm"),
        (failed("localhost", 9123, "/things", REFUSED), "a server that the run needs is not running", "this node only",
         "vllm"),
        # Why it did not answer.
        (failed("10.0.0.4", 8000, "/health/", NO_ROUTE), f"10.0.0.4:8000 cannot be reached: {TRAINER}",
         "nc -vz 10.0.0.4 8000", "vllm-serve"),
        (failed("10.0.0.4", 9123, "/things", SLOW), "10.0.0.4:9123 cannot be reached, where the run expects a server",
         "firewall", "no_proxy"),
        (failed("10.0.0.4", 8000, "http://10.0.0.4:8000/health/", PROXY),
         "the request to 10.0.0.4:8000, a server of the run itself, was sent to an HTTP proxy",
         "no_proxy=localhost,127.0.0.1,10.0.0.4", "vllm-serve"),
        (failed("localhost", 8000, "/v1/completions", "ResponseError('too many 503 error responses')"),
         "the model server with OpenAI's API (vLLM, SGLang or another) answers at localhost:8000, but with errors "
         "(503)", "server's own log", "vllm serve MODEL"),
        # A connection that was made: neither the network nor a server that was not started.
        (failed("localhost", 8000, "/generate/", READ_TIMEOUT), f"{TRAINER} accepted the connection at localhost:8000, "
         "but did not answer in time", "server's own log", "firewall"),
        (failed("10.0.0.4", 9123, "/things", READ_TIMEOUT), "a server that the run needs accepted the connection",
         "read timeout", "nc -vz"),
        # A name without a domain is not on the internet.
        (failed("node17", 8000, "/health/", REFUSED), f"{TRAINER} is not running: nothing listens at node17:8000",
         "on node17", "this node only"),
        (failed("node17", 8000, "/init_communicator/", NO_NAME),
         f"the host name node17 does not resolve on this node: it is that of {TRAINER}", "getent hosts node17", "curl"),
        # aiohttp's client, and a line that is cut.
        ("aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:30000 ssl:default [Connect "
         "call failed ('127.0.0.1', 30000)]\n", "a server that the run needs is not running", ":30000", "vllm"),
        (failed("localhost", 8000, "/health/", "New").partition("(Caused")[0], f"{TRAINER} does not answer",
         "trl vllm-serve", "errno 111"),
        (failed("localhost", 9123, "/things", "New").partition("(Caused")[0], "a local server at localhost:9123 does "
         "not answer", "no_proxy", "errno 111"),
    ],
)  # fmt: skip
def test_which_server_and_why(text: str, title: str, there: str, absent: str, tmp_path: Path) -> None:
    found, said, rest = explained(tmp_path, text)
    assert found == ROW
    assert said.startswith(title), said
    assert there in rest
    assert absent not in rest, rest


def test_the_client_shows_it_too(tmp_path: Path) -> None:
    calls = frames(
        (SCRIPT, "main", "trainer.train()"), ("trl/extras/vllm_client.py", "check_server", "response = get(url)")
    )
    _, said, _ = explained(tmp_path, f"{calls}{failed('10.0.0.4', 9123, '/health/', REFUSED)}")
    assert said == f"{TRAINER} is not running: nothing listens at 10.0.0.4:9123"


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/w/axolotl/src/axolotl/cli/train.py", "axolotl vllm-serve CONFIG.yaml"),
        ("/x/site-packages/swift/llm/train/rlhf.py", "swift rollout --model MODEL"),
        ("/w/train_swift.py", "trl vllm-serve"),
    ],
)
def test_a_framework_starts_it_with_its_own_command(path: str, command: str, tmp_path: Path) -> None:
    called = f'Traceback (most recent call last):\n  File "{path}", line 3, in main\n    run()\n'
    _, _, rest = explained(tmp_path, f"{called}{failed('localhost', 8000, '/health/', REFUSED)}")
    assert command in rest


def test_a_server_on_the_internet_is_another_matter(tmp_path: Path) -> None:
    text = failed("hub.example.com", 80, "/api/models", NO_ROUTE)
    assert explained(tmp_path, text)[0] == "log_network_failed"
