"""Do the kernel's settings leave enough memory, ports and files for the ranks?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Host, Kernel, Network, Slurm
from mgpu.text import counted

from .._wording import gib, parse_digits

_NCCL_LIMITS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html"
_NCCL_NETWORK = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/networking_troubleshooting.html"
)
# Share of fs.file-max at which monitoring usually warns (Linuxfabrik's plugin file-descriptors, 90 %).
_FILES_SHARE = 0.9
# The NCCL guide's own example of a range narrowed for a firewall has 1001 ports.
_PORTS = 1000


# ---- settings


@check(Severity.WARNING, source=_NCCL_LIMITS)
def shared_memory_removed_at_logout(kernel: Kernel, host: Host, container: Container, slurm: Slurm) -> Answer:
    """systemd-logind removes this user's shared memory when the user logs out.

    Why: ranks of a Slurm job have no login session, so logind clears /dev/shm when any shell of this user exits.
    More: The same is true for ranks that mpirun started. When an unrelated shell logs out, their segments are removed,
    and NCCL fails with "unlink shared memory /dev/shm/nccl-... failed".

    Fix: disable it on the compute nodes. Until then, open no SSH session there that may end before the run.
    """
    if container.kind:
        return Skip("the host's logind does not affect containers")
    if host.user_is_root:
        return Skip("root's shared memory is never removed")
    if slurm.job_id is None:
        return Skip("a run from a login session keeps that session open")
    if kernel.remove_ipc is None:
        return Skip("not set in logind.conf, and the built-in default differs between distributions")
    if not kernel.remove_ipc:
        return Ok("RemoveIPC=no")
    return Problem(
        "RemoveIPC=yes: logging out removes the shared memory of running ranks",
        fix=Fix(
            commands=(
                "sudo mkdir -p /etc/systemd/logind.conf.d",
                "printf '[Login]\\nRemoveIPC=no\\n' | sudo tee /etc/systemd/logind.conf.d/remove-ipc.conf",
                "sudo systemctl restart systemd-logind",
            ),
            who="admin",
        ),
        evidence={"RemoveIPC": "yes", "job": slurm.job_id},
    )


@check(Severity.INFO, source="https://docs.kernel.org/mm/overcommit-accounting.html")
def overcommit_is_strict(kernel: Kernel) -> Answer:
    """The kernel does not overcommit memory (vm.overcommit_memory=2).

    Why: reserved memory counts as used, so forking loader workers may fail with "Cannot allocate memory".
    More: CUDA and PyTorch reserve far more than they use, and each loader worker is a fork of its rank. The fork fails
    although memory is free.

    Fix: return to the default mode.
    """
    if kernel.overcommit_memory is None:
        return Skip("vm.overcommit_memory cannot be read")
    if kernel.overcommit_memory != 2:
        return Ok(f"vm.overcommit_memory={kernel.overcommit_memory}")
    known = kernel.commit_limit_bytes is not None and kernel.committed_bytes is not None
    left = max(0, (kernel.commit_limit_bytes or 0) - (kernel.committed_bytes or 0))
    return Problem(
        "vm.overcommit_memory=2" + (f": {gib(left)} may still be reserved" if known else ""),
        fix=Fix(commands=("sudo sysctl vm.overcommit_memory=0",), who="admin"),
        evidence={"committed_bytes": kernel.committed_bytes, "commit_limit_bytes": kernel.commit_limit_bytes},
    )


@check(Severity.INFO, source=_NCCL_NETWORK)
def outgoing_ports_few(kernel: Kernel) -> Answer:
    """The kernel has few ports for outgoing connections.

    Why: each connection uses one port. When none is left, ranks cannot connect.
    More: gloo, NCCL's sockets and loaders of remote data use a port per connection and keep it for a minute after. A
    narrow net.ipv4.ip_local_port_range runs out in large jobs: "Cannot assign requested address".

    Fix: widen the range.
    """
    if kernel.port_range is None:
        return Skip("net.ipv4.ip_local_port_range cannot be read")
    low, high = kernel.port_range
    if high - low + 1 >= _PORTS:
        return Ok(f"ports {low}-{high}")
    return Problem(
        f"{counted(max(0, high - low + 1), 'port')} ({low}-{high}) for all outgoing connections",
        fix=Fix(commands=("sudo sysctl net.ipv4.ip_local_port_range='32768 60999'",), who="admin"),
        evidence={"low": low, "high": high},
    )


@check(Severity.INFO, source="https://docs.kernel.org/networking/ip-sysctl.html")
def port_among_outgoing_ones(kernel: Kernel, network: Network) -> Answer:
    """The kernel may assign the rendezvous port to an outgoing connection.

    Why: any program's connection may be using the port when the ranks need it.
    More: net.ipv4.ip_local_port_range was widened to include the rendezvous port. Occasionally another program's
    connection uses it at launch: "Address already in use", and the next try works.

    Fix: reserve it.
    More: Or choose a port below the range.
    """
    if kernel.port_range is None:
        return Skip("net.ipv4.ip_local_port_range cannot be read")
    low, high = kernel.port_range
    if not low <= network.port <= high:
        return Ok(f"port {network.port} is outside {low}-{high}")
    if _contains_port(network.port, kernel.reserved_ports or ""):
        return Ok(f"port {network.port} is reserved")
    reserved = ",".join(filter(None, (kernel.reserved_ports, str(network.port))))
    return Problem(
        f"port {network.port} is in the range for outgoing connections ({low}-{high})",
        fix=Fix(commands=(shell("sudo sysctl net.ipv4.ip_local_reserved_ports={:numbers}", reserved),), who="admin"),
        evidence={"port": network.port, "low": low, "high": high},
    )


def _contains_port(port: int, ports: str) -> bool:
    """Return whether a list such as "8080,29500-29510" contains the port."""
    for part in ports.split(","):
        first, _, last = part.partition("-")
        low, high = parse_digits(first), parse_digits(last or first)
        if low is not None and high is not None and low <= port <= high:
            return True
    return False


@check(Severity.WARNING, source=_NCCL_LIMITS)
def file_handles_nearly_used_up(kernel: Kernel) -> Answer:
    """The machine has few file handles left.

    Why: the limit is for the whole machine. Without free handles, no program can open a file or a socket.
    More: fs.file-max applies to all processes together. At scale NCCL alone opens tens of thousands of files per rank.
    At the limit every program on the machine fails with "Too many open files in system".

    Fix: raise the limit (to the NCCL guide's value).
    More: Find out which processes hold them.
    """
    if kernel.files_used is None or not kernel.files_max:
        return Skip("fs.file-nr cannot be read")
    if kernel.files_used <= _FILES_SHARE * kernel.files_max:
        return Ok(f"{kernel.files_used} of {kernel.files_max} file handles in use")
    return Problem(
        f"{kernel.files_used} of {kernel.files_max} file handles in use",
        fix=Fix(commands=("sudo sysctl fs.file-max=2097152",), who="admin"),
        evidence={"used": kernel.files_used, "max": kernel.files_max},
    )
