"""checks/fleet: what is said of nodes that differ, are missing, or are slow"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.check import Problem, Severity
from mgpu.snapshot import OTHER_MGPU, Difference, Fleet, NodeClass, NodeFault, Outlier
from tests.checks.facts import NODES, Case, fails, fleet, informs, problem, skips, table, warns, well

ROLE = "4 x NVIDIA H100 80GB HBM3"
MANY = tuple(f"n{number}" for number in range(1, 41))
ALONE = fleet(nodes=("n1",), roles={ROLE: ("n1",)}, clock_offsets_s=None, unshared=None)


def unlike(key: str, what: str, value: str | None, usual: str | None, *nodes: str, **changes: Any) -> NodeClass:
    """Some nodes of the four (n3, or those that are named) with one difference."""
    given: dict[str, Any] = {"role": ROLE, "nodes": nodes or ("n3",), "of": 4}
    return NodeClass(**{**given, "differences": (Difference(key, what, value, usual),), **changes})


def one(*classes: NodeClass, **changes: Any) -> Fleet:
    return fleet(classes=classes, **changes)


def differing(key: str, what: str, value: str | None, usual: str | None, *nodes: str, **changes: Any) -> Fleet:
    """The four nodes, one of which is unlike."""
    return one(unlike(key, what, value, usual, *nodes, **changes))


def large(**changes: Any) -> Fleet:
    """Forty nodes."""
    return fleet(nodes=MANY, roles={ROLE: MANY}, clock_offsets_s=dict.fromkeys(MANY, 0.0), **changes)


def population(key: str, what: str, *nodes: str) -> NodeClass:
    """Eight of the forty, alike."""
    return unlike(key, what, "550.1", "580.2", *(nodes or MANY[:8]), of=40, second=True)


SECOND = large(classes=(population("driver.version", "driver"),))
SECOND_TORCH = (population("pytorch.version", "torch"),)
SLOW = Outlier("n7", "measured.all_reduce_gb_per_s", "all reduce", 310.0, 400.0, -23.4, " GB/s")
HOT = Outlier("n9", "gpus.temperature_c", "hottest GPU", 83, 35, 14.0, " C")
TORCH = differing("pytorch.version", "torch", "2.12.1", "2.13.0")
DEAD = fleet(
    classes=(
        NodeClass(
            ROLE, ("n2",),
            (
                Difference("driver.nvml_error", "NVML", "DRIVER_NOT_LOADED", "responding"),
                Difference("driver.version", "driver", None, "580.65"),
                Difference("gpus", "gpus", None, "known"),
            ),
            4,
        ),
    )
)  # fmt: skip
CASES = (
    # nodes
    fails("fleet_node_missing", "n7 not examined: no answer in 90 s", "srun -N1 -w n7",
        fleet=fleet(missing={"n7": "no answer in 90 s"})),
    fails("fleet_node_missing", "n[7-8] not examined: no answer", "--exclude='n[7-8]'",
        fleet=fleet(missing={"n8": "", "n7": ""})),
    fails("fleet_node_missing", "n[7-8] not examined: mgpu there is 0.1, here it is 0.2",
        "srun -N2 -w 'n[7-8]' --time=1 --label mgpu --version",
        fleet=fleet(missing=dict.fromkeys(("n7", "n8"), f"{OTHER_MGPU}0.1, here it is 0.2"))),
    well("fleet_node_missing", "4 nodes answered"),
    fails("fleet_node_faulty", "n[2-3]: GPU 1 has fallen off the bus", "mgpu doctor --explain gpu_lost", fleet=fleet(
        faults=tuple(NodeFault(node, "gpu_lost", "GPU 1 has fallen off the bus") for node in ("n3", "n2")))),
    fails("fleet_node_faulty", "n[1-2]: GPU 1 is lost (and similar)", "-N2 -w 'n[1-2]'", fleet=fleet(
        faults=(NodeFault("n1", "gpu_lost", "GPU 1 is lost"), NodeFault("n2", "gpu_lost", "GPU 3 is lost")))),
    fails("fleet_node_faulty", "n2: no answer of its examination", "--exclude=n2", fleet=fleet(
        faults=(NodeFault("n2", "", "no answer of its examination"),))),
    well("fleet_node_faulty", "mgpu doctor found no error on 4 nodes"),
    skips("fleet_node_faulty", "too many nodes", fleet=fleet(faults=None)),
    warns("fleet_second_population", "8 of 40 nodes have the same differences: driver 550.1 (n[1-8])",
        "--exclude='n[1-8]'",
        fleet=SECOND),
    well("fleet_second_population", "no second group"),
    well("fleet_second_population", "no second group", fleet=large(classes=(population("host.kernel", "kernel"),))),
    skips("fleet_second_population", "1 node answered: nothing to compare", fleet=ALONE),
    informs("fleet_second_population_in_details", "8 of 40 nodes have the same differences: kernel 550.1 (n[1-8])",
        "--nodelist='n[1-8]'",
        fleet=large(classes=(population("host.kernel", "kernel"),))),
    well("fleet_second_population_in_details", "no second group", fleet=SECOND),
    skips("fleet_second_population_in_details", "nothing to compare", fleet=ALONE),
    informs("fleet_of_several_kinds", f"2 kinds of nodes: {ROLE} on n[1-4]; 8 x A100 on n[5-6]",
        "--gpus-per-node=TYPE:N",
        fleet=fleet(roles={ROLE: NODES, "8 x A100": ("n5", "n6")})),
    well("fleet_of_several_kinds", f"one kind: {ROLE}"),
    skips("fleet_of_several_kinds", "nothing to compare", fleet=ALONE),
    informs("fleet_facts_scattered", "2 facts differ from node to node: env.CUDA_X, env.CUDA_Y", "each node's own file",
        fleet=fleet(scattered=("env.CUDA_X", "env.CUDA_Y"))),
    well("fleet_facts_scattered", "250 facts compared"),
    skips("fleet_facts_scattered", "nothing to compare", fleet=ALONE),
    informs("fleet_rest_differs", "mgpu 0.1 on n3, 0.2 on the other 3 nodes", "Nothing",
        fleet=differing("mgpu", "mgpu", "0.1", "0.2")),
    well("fleet_rest_differs", "nothing else differs on 4 nodes"),
    warns("fleet_facts_unread", "torch runtime timed out on n3, known on the other 3 nodes", "mgpu doctor -v",
        fleet=differing("torch_runtime", "torch runtime", "timed out", "known")),
    well("fleet_facts_unread", "everything could be read on 4 nodes"),
    warns("fleet_facts_unread", "the driver was read on fewer than two nodes", "--save", fleet=fleet(known=("host",))),
    warns("fleet_facts_unread", "unknown on all nodes: torch runtime (timed out)", "mgpu doctor -v",
        fleet=fleet(unread={"torch_runtime": "timed out"})),
    warns("fleet_facts_unread", "n1.json, a.json, b.json and 1 more: not written by mgpu doctor --save",
        "mgpu doctor --quick --save", fleet=fleet(strangers=("n1.json", "a.json", "b.json", "c.json"))),
    warns("fleet_facts_unread", "n1.json: not written by mgpu doctor --save",
        "or pass only the files of nodes", fleet=replace(ALONE, strangers=("n1.json",))),
    skips("fleet_facts_unread", "nothing to compare", fleet=ALONE),
    # software
    fails("fleet_driver_silent", "NVML DRIVER_NOT_LOADED on n2, responding on the other 3 nodes", "nvidia-smi -L",
        fleet=DEAD),
    well("fleet_driver_silent", "same NVML state on 4 nodes", fleet=TORCH),
    fails("fleet_torch_differs", "torch 2.12.1 on n3, 2.13.0 on the other 3 nodes", "srun -N1 -w n3", fleet=TORCH),
    fails("fleet_torch_differs", "torch 550.1 on n[1-8], 580.2 on the other 32 nodes",
        "-N8 -w 'n[1-8]'", fleet=large(classes=SECOND_TORCH, together=True)),
    well("fleet_torch_differs", "same torch on 40 nodes", fleet=large(classes=SECOND_TORCH)),  # told as a population
    well("fleet_torch_differs", "same torch on 4 nodes"),
    fails("fleet_torch_differs", "pytorch.version differs on almost every node: no value has a majority", "--from FILE",
        fleet=fleet(scattered=("pytorch.version", "env.CUDA_X"))),
    informs("fleet_facts_scattered", "1 fact differs from node to node: env.CUDA_X", "each node's own file",
        fleet=fleet(scattered=("pytorch.version", "env.CUDA_X"))),
    skips("fleet_torch_differs", "pytorch: known on fewer than two nodes", fleet=fleet(known=("driver",))),
    skips("fleet_torch_differs", "1 node answered", fleet=ALONE),
    fails("fleet_nccl_differs", "NCCL 2.28.3 on n3, 2.29.7 on the other 3 nodes", "env | grep LD_",
        fleet=differing("nccl.loaded.version", "NCCL", "2.28.3", "2.29.7")),
    well("fleet_nccl_differs", "same NCCL on 4 nodes"),
    warns("fleet_driver_differs", "driver 575.1 on n3, 580.2 on the other 3 nodes", "driver 580.2",
        fleet=differing("driver.version", "driver", "575.1", "580.2")),
    well("fleet_driver_differs", "same driver", fleet=DEAD),  # of a driver that does not answer nothing follows
    well("fleet_driver_differs", "same driver", fleet=SECOND),
    warns("fleet_accelerate_differs", "accelerate 1.0 on n[3-4], 1.15 on the other 2 nodes", "'accelerate==1.15'",
        fleet=differing("packages.accelerate", "accelerate", "1.0", "1.15", "n3", "n4")),
    well("fleet_accelerate_differs", "same accelerate on 4 nodes"),
    warns("fleet_python_differs", "Python 3.10.1 on n3, 3.11.2 on the other 3 nodes", "sys.executable",
        fleet=differing("python.version", "Python", "3.10.1", "3.11.2")),
    well("fleet_python_differs", "same Python on 4 nodes"),
    warns("fleet_packages_differ", "no transformers on n3, 4.57 on the other 3 nodes", "pip list",
        fleet=differing("packages.transformers", "transformers", None, "4.57")),
    well("fleet_packages_differ", "same packages on 4 nodes", fleet=TORCH),
    informs("fleet_libraries_differ", "nvcc 12.8 on n3, none on the other 3 nodes", "modules",
        fleet=differing("libraries.nvcc", "nvcc", "12.8", None)),
    well("fleet_libraries_differ", "same libraries on 4 nodes"),
    informs("fleet_system_differs", "kernel 5.15 on n3, 6.8 on the other 3 nodes", "Nothing",
        fleet=differing("host.kernel", "kernel", "5.15", "6.8")),
    well("fleet_system_differs", "same operating system on 4 nodes"),
    warns("fleet_environment_differs", "NCCL_DEBUG=INFO on n3, none on the other 3 nodes", "env | grep NCCL_DEBUG",
        fleet=differing("env.NCCL_DEBUG", "NCCL_DEBUG", "INFO", None)),
    well("fleet_environment_differs", "same variables on 4 nodes"),
    fails("fleet_config_differs", "config mixed_precision no on n3, bf16 on the other 3 nodes", "a shared file system",
        fleet=differing("config.values.mixed_precision", "config mixed_precision", "no", "bf16")),
    well("fleet_config_differs", "same config on 4 nodes"),
    skips("fleet_config_differs", "config and files: known on fewer", fleet=fleet(known=("driver", "pytorch"))),
    fails("fleet_script_differs", "training script 0f1e on n3, 9a8b on the other 3 nodes", "sha256sum",
        fleet=differing("files.script", "training script", "0f1e", "9a8b")),
    well("fleet_script_differs", "same script on 4 nodes"),
    # hardware
    fails("fleet_gpu_model_differs", "GPU model A100 on n3, H100 on the other 3 nodes", "nvidia-smi -L",
        fleet=differing("gpus.name", "GPU model", "A100", "H100")),
    well("fleet_gpu_model_differs", "same GPU model on 4 nodes"),
    fails("fleet_gpu_count_differs", "3 GPUs on n3, 4 on the other 3 nodes", "Xid 79",
        fleet=differing("gpus.count", "GPUs", "3", "4")),
    well("fleet_gpu_count_differs", "same number of GPUs on 4 nodes", fleet=DEAD),
    fails("fleet_gpu_memory_differs", "GPU memory 40 GiB on n3, 80 GiB on the other 3 nodes", "memory.total",
        fleet=differing("gpus.memory_total_bytes", "GPU memory", "40 GiB", "80 GiB")),
    well("fleet_gpu_memory_differs", "same GPU memory on 4 nodes"),
    warns("fleet_gpu_settings_differ", "GPU power limit 500 W on n3, 700 W on the other 3 nodes", "power.limit",
        fleet=differing("gpus.power_limit_w", "GPU power limit", "500 W", "700 W")),
    well("fleet_gpu_settings_differ", "same GPU settings on 4 nodes"),
    warns("fleet_gpu_links_differ", "active NVLinks per GPU 17, 18 on n3, 18 on the other", "nvlink --status",
        fleet=differing("gpus.nvlinks", "active NVLinks per GPU", "17, 18", "18")),
    well("fleet_gpu_links_differ", "same GPU links on 4 nodes"),
    warns("fleet_gpu_health_differs", "GPU rows remap pending no, yes on n3", "mgpu doctor --quick",
        fleet=differing("gpus.rows_remap_pending", "GPU rows remap pending", "no, yes", "no")),
    well("fleet_gpu_health_differs", "same GPU health state on 4 nodes"),
    warns("fleet_network_cards_differ", "mlx5_0:1 state DOWN on n3, ACTIVE on the other 3 nodes", "ibstat",
        fleet=differing("infiniband.ports.mlx5_0:1.state", "mlx5_0:1 state", "DOWN", "ACTIVE")),
    warns("fleet_network_cards_differ", "eth0 mtu 1500 on n3, 9000 on the other 3 nodes", "ip -br link",
        fleet=differing("network.interfaces.eth0.mtu", "eth0 mtu", "1500", "9000")),
    well("fleet_network_cards_differ", "same network adapters on 4 nodes"),
    warns("fleet_cpus_differ", "RAM 256 GiB on n3, 512 GiB on the other 3 nodes", "scontrol show node n3",
        fleet=differing("system.memory_total_bytes", "RAM", "256 GiB", "512 GiB")),
    well("fleet_cpus_differ", "same CPUs and memory on 4 nodes"),
    informs("fleet_firmware_differs", "VBIOS 96.1 on n3, 96.2 on the other 3 nodes", "Nothing",
        fleet=differing("gpus.vbios", "VBIOS", "96.1", "96.2")),
    well("fleet_firmware_differs", "same firmware on 4 nodes"),
    # limits
    warns("fleet_shm_differs", "/dev/shm 64 MiB on n3, 512 GiB on the other 3 nodes", "df -h /dev/shm",
        fleet=differing("system.shm_total_bytes", "/dev/shm", "64 MiB", "512 GiB")),
    well("fleet_shm_differs", "same /dev/shm size on 4 nodes"),
    warns("fleet_limits_differ", "open file limit 1024 on n3, 65536 on the other 3 nodes", "ulimit -a",
        fleet=differing("system.limit_open_files", "open file limit", "1024", "65536")),
    well("fleet_limits_differ", "same limits on 4 nodes"),
    warns("fleet_storage_differs", "home folder filesystem ext4 on n3, nfs4 on the other 3 nodes", "df -hT",
        fleet=differing("storage.folders.home.filesystem", "home folder filesystem", "ext4", "nfs4")),
    well("fleet_storage_differs", "same file systems on 4 nodes"),
    fails("fleet_folder_not_shared", "/scratch/run is not shared: n[3-4] do not see it", "df -hT /scratch/run",
        fleet=fleet(unshared={"/scratch/run": ("n3", "n4"), "/home": ()})),
    well("fleet_folder_not_shared", "shared by 4 nodes"),
    skips("fleet_folder_not_shared", "was not tested", fleet=fleet(unshared=None)),
    # times
    fails("fleet_clock_far_off", "clock of n3 7 min behind", "timedatectl",
        fleet=fleet(clock_offsets_s={"n1": 0.0, "n3": -420.0})),
    well("fleet_clock_far_off", "2 nodes within 60 s", fleet=fleet(clock_offsets_s={"n1": 0.0, "n3": 60.0})),
    skips("fleet_clock_far_off", "not read at the same time", fleet=ALONE),
    warns("fleet_clock_off", "clock of n[3-4] 5 s ahead", "--exclude='n[3-4]'",
        fleet=fleet(clock_offsets_s={"n1": 0.0, "n3": 5.1, "n4": 4.9})),
    well("fleet_clock_off", "within 2 s",
        # n3 is the other check's
        fleet=fleet(clock_offsets_s={"n1": 2.0, "n2": 0.0, "n3": -420.0})),
    # of two the median is the time of neither
    fails("fleet_clock_far_off", "clock of n1 10 min behind n2", "timedatectl",
        fleet=fleet(clock_offsets_s={"n1": -300.0, "n2": 300.0})),
    fails("fleet_clock_far_off", "clock of n1 100 s behind n2", "timedatectl",
        fleet=fleet(clock_offsets_s={"n1": -50.0, "n2": 50.0})),
    fails("fleet_clock_far_off", "clock of n[1,3] 10 min behind n[2,4]", "timedatectl",
        fleet=fleet(clock_offsets_s={"n1": -300.0, "n2": 300.0, "n3": -300.1, "n4": 300.2})),
    fails("fleet_clock_far_off", "clock of n4 10 min ahead", "--exclude=n4",
        fleet=fleet(clock_offsets_s={"n1": -0.02, "n2": -0.01, "n3": 0.01, "n4": 600.0})),
    well("fleet_clock_off", "larger offset: see", fleet=fleet(clock_offsets_s={"n1": -50.0, "n2": 50.0})),
    warns("fleet_clock_off", "clock of n1 3 s behind n2", "timedatectl",
        fleet=fleet(clock_offsets_s={"n1": -1.5, "n2": 1.5})),
    well("fleet_clock_off", "2 nodes within 2 s", fleet=fleet(clock_offsets_s={"n1": -0.05, "n2": 0.05})),
    skips("fleet_clock_off", "1 node reported the time", fleet=fleet(clock_offsets_s={"n1": 0.0})),
    skips("fleet_clock_off", "not read at the same time", fleet=ALONE),
    warns("fleet_node_slow", "all reduce 310 GB/s on n7, median 400 GB/s", "srun -N1 -w n7",
        fleet=large(outliers=(SLOW, HOT))),
    well("fleet_node_slow", "no node is slower", fleet=large(outliers=(HOT,))),
    skips("fleet_node_slow", "fewer than 8 nodes"),
    warns("fleet_node_strained", "hottest GPU 83 C on n9, median 35 C", "uptime", fleet=large(outliers=(SLOW, HOT))),
    well("fleet_node_strained", "no node is hotter", fleet=large(outliers=(SLOW,))),
    skips("fleet_node_strained", "fewer than 8 nodes"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()


def test_nodes_with_the_same_difference_are_one_problem_whatever_else_they_differ_in() -> None:
    kernel = Difference("host.kernel", "kernel", "5.15", "6.8")
    torch = Difference("pytorch.version", "torch", "2.12.1", "2.13.0")
    classes = (NodeClass(ROLE, ("n3",), (torch,), 4), NodeClass(ROLE, ("n1",), (kernel, torch), 4))
    found = problem("fleet_torch_differs", fleet=one(*classes))
    assert found.title == "torch 2.12.1 on n[1,3], 2.13.0 on the other 2 nodes"
    assert found.subjects == ("n3", "n1")


def test_what_came_with_another_torch_is_told_with_it() -> None:
    came = (
        Difference("packages.triton", "triton", "3.4", "3.5"),
        Difference("nccl.loaded.version", "NCCL", "2.27", "2.29"),
        Difference("pytorch.version", "torch", "2.12.1", "2.13.0"),
    )
    unlike_torch = one(NodeClass(ROLE, ("n3",), came, 4))
    assert problem("fleet_torch_differs", fleet=unlike_torch).evidence["NCCL"] == "2.27, most: 2.29"
    for quiet in ("fleet_nccl_differs", "fleet_packages_differ"):
        well(quiet, "on 4 nodes", fleet=unlike_torch).verify()


def test_of_a_tie_both_sides_are_named_and_nobody_is_blamed() -> None:
    apart = problem("fleet_clock_far_off", fleet=fleet(clock_offsets_s={"n1": -300.0, "n2": 300.0}))
    assert apart.subjects == () and "which ones are right is unknown" in apart.cause
    found = problem(
        "fleet_torch_differs", fleet=differing("pytorch.version", "torch", "2.12.1", "2.13.0", "n3", "n4", tied=True)
    )
    assert found.title == "torch 2.12.1 on n[3-4], 2.13.0 on n[1-2]"
    assert "which one is right is unknown" in found.cause


def test_a_third_version_is_not_told_as_what_all_others_have() -> None:
    classes = (
        unlike("pytorch.version", "torch", "2.12.1", "2.13.0"),
        unlike("pytorch.version", "torch", "2.11", "2.13.0", "n4"),
    )
    (first, second) = problems_of("fleet_torch_differs", one(*classes))
    assert first.title == "torch 2.12.1 on n3, 2.13.0 on 2 other nodes"
    assert second.title == "torch 2.11 on n4, 2.13.0 on 2 other nodes"


def problems_of(check: str, seen: Fleet) -> tuple[Problem, ...]:
    answer = Case(check, "fail", "", changes={"fleet": seen}).asked.function(fleet=seen)
    assert isinstance(answer, tuple)
    return tuple(found for found in answer if isinstance(found, Problem))


def test_a_node_that_cannot_be_a_node_is_in_no_command() -> None:
    found = problem("fleet_torch_differs", fleet=differing("pytorch.version", "torch", "1", "2", "a;rm -rf b"))
    assert [fix.commands for fix in found.fixes] == [(), ()]
    found = problem("fleet_cpus_differ", fleet=differing("system.memory_total_bytes", "RAM", "1", "2", "a;b"))
    assert found.fixes[0].commands == ()


def test_a_version_or_a_variable_that_cannot_be_one_is_in_no_command() -> None:
    bad = "1'; rm -rf ~ #"
    found = problem("fleet_accelerate_differs", fleet=differing("packages.accelerate", "accelerate", "1", bad))
    assert found.fixes[0].commands == ()
    found = problem("fleet_environment_differs", fleet=differing(f"env.X{bad}", f"X{bad}", "1", None))
    assert found.fixes[0].commands == ()


def test_what_ends_a_run_is_an_error_and_what_does_not_is_none() -> None:
    severe = {c.asked.id for c in CASES if c.asked.severity is Severity.ERROR}
    assert severe == {
        "fleet_node_missing", "fleet_node_faulty", "fleet_driver_silent", "fleet_torch_differs", "fleet_nccl_differs",
        "fleet_config_differs", "fleet_script_differs", "fleet_gpu_model_differs", "fleet_gpu_count_differs",
        "fleet_gpu_memory_differs", "fleet_folder_not_shared", "fleet_clock_far_off",
    }  # fmt: skip
