"""mgpu/message_names.py: the commands of a fix name what the message names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.doctor import run
from mgpu.doctor.request import Request
from mgpu.engine import root_cause
from mgpu.message_names import fill_names
from mgpu.readers.log import read

DOWNLOAD, AGAIN = "hf download ORG/MODEL", "hf download --force-download ORG/MODEL"
LISTENS = "ss -ltnp 'sport = :29500'"
PARQUET = "load_dataset(NAME, revision='refs/convert/parquet')"


@pytest.mark.parametrize(
    ("command", "message", "filled"),
    [
        (DOWNLOAD, "OSError: meta-llama/L-7b is not a local folder and is not a valid model identifier listed on "
         "'https://huggingface.co/models'", "hf download meta-llama/L-7b"),
        (DOWNLOAD, "404 Client Error: Not Found for url: https://huggingface.co/a/b/resolve/main/config.json.",
         "hf download a/b"),
        (DOWNLOAD, "404 for url: https://huggingface.co/gpt2/resolve/main/config.json", "hf download gpt2"),
        (DOWNLOAD, "429 Client Error for url: https://huggingface.co/api/models/a/b.", "hf download a/b"),
        (AGAIN, "429 for url: https://huggingface.co/api/datasets/a/b/tree/main",
         "hf download --force-download --repo-type dataset a/b"),
        (DOWNLOAD, "429 Client Error for url: https://huggingface.co/api/datasets/glue/paths-info/bcdcba79d07bc864c1c2",
         "hf download --repo-type dataset glue"),
        ("HF_HOME=/scratch/hf hf download ORG/MODEL", "ConnectionError: Couldn't reach 'imdb' on the Hub (x)",
         "HF_HOME=/scratch/hf hf download --repo-type dataset imdb"),
        (DOWNLOAD, "see https://huggingface.co/docs/hub/models-gated", DOWNLOAD),
        (DOWNLOAD, "Cannot send: https://huggingface.co/api/whoami-v2", DOWNLOAD),
        (DOWNLOAD, "$(reboot)/x is not a local folder and is not a valid model identifier", DOWNLOAD),
        (PARQUET, "ValueError: Loading x/y requires you to execute the configuration file",
         "load_dataset('x/y', revision='refs/convert/parquet')"),
        (PARQUET, "RuntimeError: Dataset scripts are no longer supported, but found pg19.py", PARQUET),
        ("ls -ld PATH", "OSError: Incorrect path_or_model_id: '/data/my model'. Please", "ls -ld '/data/my model'"),
        ("ls -ld PATH", "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/d/l'.",
         "ls -ld /d/l"),
        ("findmnt -T PATH", "OSError: [Errno 30] Read-only file system: '/data/out'", "findmnt -T /data/out"),
        ("df -h .; df -i .", "OSError: [Errno 28] No space left on device: '/data/my runs/step_9.pt'",
         "df -h '/data/my runs'; df -i '/data/my runs'"),
        ("df -h .; df -i .", "OSError: [Errno 122] Disk quota exceeded: 'out/step_9.pt'", "df -h out; df -i out"),
        ("df -h .; df -i .", "OSError: [Errno 28] No space left on device: 'step_9.pt'", "df -h .; df -i ."),
        ("df -h .; df -i .", "OSError: [Errno 28] No space left on device: 'out/9.pt' -> '/home/u/staging/9.pt'",
         "df -h /home/u/staging; df -i /home/u/staging"),
        ("findmnt -T PATH", "Read-only file system", "findmnt -T PATH"),
        ("nc -vz HOST 29500", "timed out after 60s while trying to connect to (10.0.0.1, 29511).",
         "nc -vz 10.0.0.1 29511"),
        ("nc -vz HOST 29500", "failed to connect to [node1]:29511 (errno: 111 - Connection refused).",
         "nc -vz node1 29511"),
        ("nc -vz HOST 29500", "RuntimeError: connect() timed out. Original timeout was 60000 ms.", "nc -vz HOST 29500"),
        (LISTENS, "The server socket has failed to listen on any local network address. port: 29613, useIpv6: false, "
         "code: -98, name: EADDRINUSE", "ss -ltnp 'sport = :29613'"),
        (LISTENS, "The server socket has failed to bind to [::]:29613 (errno: 98 - Address already in use).",
         "ss -ltnp 'sport = :29613'"),
        (LISTENS, "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8265): address already "
         "in use", "ss -ltnp 'sport = :8265'"),
        (LISTENS, "RuntimeError: Address already in use", LISTENS),
        ("getent hosts HOST", "The IPv6 network addresses of (no-such-host, 29566) cannot be retrieved",
         "getent hosts no-such-host"),
        ("getent hosts HOST", "socket.gaierror: [Errno -3] Temporary failure in name resolution", "getent hosts HOST"),
    ],
)  # fmt: skip
def test_what_a_message_names(command: str, message: str, filled: str) -> None:
    assert fill_names(command, message) == filled


def test_the_fix_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("OSError: Incorrect path_or_model_id: '/data/model'. Please provide either the path or a repo_id\n")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    assert [command for fix in first.outcome.problem.fixes for command in fix.commands] == ["ls -ld /data/model"]


def test_commands_start_the_script_of_the_log(tmp_path: Path) -> None:
    """Also if train.py is a part of another name, and only a script: a module of a package is started differently."""
    frames = [
        '  File "/srv/x/{}", line 9, in <module>\n    main()\n',
        '  File "/srv/x/model.py", line 41, in main\n    loss.backward()\n',
    ]
    error = "RuntimeError: CUDA error: device-side assert triggered\n"
    for name, started in (
        ("fine tune.py", "train.py"),
        ("finetune.py", "finetune.py"),
        ("lib/python3.11/site-packages/trl/cli.py", "train.py"),
    ):
        path = tmp_path / "run.log"
        path.write_text("Traceback (most recent call last):\n" + "".join(frames).format(name) + error)
        found = run.examine(Request(log=(str(path),)))
        commands = [c for o in found.outcomes if o.problem for fix in o.problem.fixes for c in fix.commands]
        assert f"CUDA_LAUNCH_BLOCKING=1 python {started}" in commands
