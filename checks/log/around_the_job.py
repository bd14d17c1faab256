"""Did something around the job stop it or keep it from starting: PBS, LSF, `timeout`, ssh, Ray's job, conda's terms?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_LSF = "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=controls-job-termination-reasons"
_COREUTILS = "https://www.gnu.org/software/coreutils/manual/html_node/timeout-invocation.html"
_SSH = "https://man.openbsd.org/ssh_config#ServerAliveInterval"
_RAY_JOBS = "https://docs.ray.io/en/latest/cluster/running-applications/job-submission/index.html"
_CONDA = "https://www.anaconda.com/docs/tools/anaconda-org/tos"
_GCC = "https://docs.pytorch.org/docs/stable/cpp_extension.html"

# fmt: off
ROWS = (
    Row("log_batch_time_up", "root", "scheduler",
        r"PBS: job killed: walltime \S+ exceeded limit|\bTERM_RUNLIMIT\b|"
        r"job killed after reaching LSF run time limit",
        ("=>> PBS: job killed: walltime 3630 exceeded limit 3600",
         "TERM_RUNLIMIT: job killed after reaching LSF run time limit."),
        "the batch system stopped the job: it reached its time limit",
        "Every process of the job is terminated. What the ranks print then is a consequence.",
        (Fix("Request more time.", ("qsub -l walltime=24:00:00 JOB.sh", "bsub -W 24:00 < JOB.sh")),
         Fix("Save checkpoints often enough, and resume from the last one.")),
        _LSF, summary="The batch system stopped the job because it reached its time limit."),
    Row("log_timeout_command", "root", "scheduler",
        r"^timeout: sending signal (?P<signal>\w+) to command .?(?P<command>[\w./-]+)",
        ("timeout: sending signal TERM to command 'python'",),
        "the command timeout stopped {command}: it ran longer than the job script allows",
        "The script starts it with `timeout DURATION`, which then sends {signal} (exit code 124).",
        Fix("Raise the duration, or find out why it took longer.", ("grep -n timeout JOB.sh",)), _COREUTILS,
        summary="The command timeout stopped the program."),
    Row("log_ssh_connection_broke", "secondary", "network",
        r"^client_loop: send disconnect|^packet_write_wait: Connection to|"
        r"^Connection to \S+ (?:closed by remote host|timed out)\.?$",
        ("client_loop: send disconnect: Broken pipe", "Connection to gpu1 closed by remote host."),
        "the ssh connection broke; programs that it had started get SIGHUP",
        "The network or the other node failed, or the connection was idle for too long.",
        (Fix("Run in tmux or detached, so that the run does not depend on the connection.",
             ("mgpu launch --detach train.py", "tmux new -s train")),
         Fix("Keep idle connections open.", ("ssh -o ServerAliveInterval=60 HOST",))),
        _SSH, effect_of="stop", tags=("last_lines",), summary="The ssh connection broke."),
    Row("log_ssh_host_silent", "root", "network",
        r"^(?!.*git@).*ssh: connect to host (?!git\.|\S*(?:github|gitlab|bitbucket|gitee|huggingface|hf\.co))"
        r"(?P<host>\S+) port (?P<port>\d+): Connection timed out",
        ("ssh: connect to host node2 port 22: Connection timed out",),
        "{host} does not answer to ssh (port {port}), so nothing was started there",
        "The node is down, its name has another network's address, or a firewall drops the connection.",
        Fix("Check the node and its address from this one.",
            ("getent hosts {host:host}", "ping -c 3 {host:host}", "sinfo -N -l")), _SSH,
        summary="A node does not answer to ssh."),
    Row("log_uv_failed", "secondary", "launcher",
        r"^error: Failed to (?P<did>fetch|download|spawn|prepare)\b[^`\n]{0,40}`(?P<what>[^`\n]+)`",
        ("error: Failed to fetch: `https://pypi.org/simple/torch/`", "error: Failed to spawn: `torchrun`"),
        "uv could not {did} {what}",
        "The lines that begin with 'Caused by' have the reason: no network or name service on this node, a program "
        "that the environment does not have, a build that failed.",
        Fix("Prepare the environment where the internet is reachable, and only use it in the job.",
            ("uv sync", "uv run --no-sync --offline train.py", "uv pip list")), "https://docs.astral.sh/uv/",
        tags=("before_ranks",), summary="uv could not fetch, build or start something."),
    Row("log_ray_job_failed", "wrapper", "launcher",
        r"^Job '?raysubmit_\w+'? (?:has )?failed|Job entrypoint command failed with exit code \d+",
        ("Job 'raysubmit_x7f' failed",
         "Status message: Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 "
         "chars):"),
        "the command of a Ray job failed; the reason is in the job's own log",
        "ray job submit reports only how its command ended, and the last lines of its output.",
        Fix("Read the whole log of the job.", ("ray job logs JOB_ID > job.log; mgpu doctor --log job.log",)), _RAY_JOBS,
        tags=("exit_only",), summary="The command of a Ray job failed."),
    Row("log_conda_terms", "root", "launcher",
        r"CondaToSNonInteractiveError|Terms of Service have not been accepted",
        ("CondaToSNonInteractiveError: Terms of Service have not been accepted for the following channels. Please "
         "accept or remove them before proceeding:",),
        "conda does not use its default channels until their terms of service are accepted",
        "A script cannot answer the question, so the environment was not created or changed.",
        Fix("Accept the terms, or use conda-forge.",
            ("conda tos accept --override-channels --channel https://repo.anaconda.com/pkgs/main",
             "conda tos accept --override-channels --channel https://repo.anaconda.com/pkgs/r",
             "conda create -n train -c conda-forge --override-channels python=3.11")), _CONDA),
    Row("log_compiler_killed", "root", "kernel",
        r"\b(?:gcc|g\+\+|c\+\+|cc|clang(?:\+\+)?|nvcc)\S*: (?:fatal )?error: Killed (?:signal terminated program "
        r"\w+|\(program \w+\))|^nvcc error\s+: '\w+' died due to signal 9\b",
        ("g++: fatal error: Killed signal terminated program cc1plus",
         "x86_64-conda-linux-gnu-c++: fatal error: Killed signal terminated program cc1plus",
         "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
        "a compiler was killed while an extension was built: host memory ran out",
        "Each compiler process of flash-attn, DeepSpeed, apex or vLLM needs several GB, and the build starts as many "
        "as there are CPUs.",
        Fix("Start fewer at once, or install a wheel that is already built.",
            ("MAX_JOBS=4 pip install --no-build-isolation PACKAGE", "free -g")), _GCC,
        summary="A compiler was killed while an extension was built."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
