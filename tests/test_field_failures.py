"""Failures that people had with multi-GPU training, and what finds each of them.

FAILURES is the table: the failure, the checks that name it, and the tests that plant it, as FILE::TEST in this folder.
The table is tested: the checks and tests exist, a test plants the fault for each check, and the check gives the cause
and the fix that helped those people. Where mgpu leaves a failure to something else, the row says to what, and why.

Below it are the faults that no other file plants. They go through the real probes: on a machine that the fake NVML
describes, in trees of files in the place of /proc and /sys, and where it can be had, for real.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mgpu import engine
from mgpu.check import Problem
from mgpu.probes import KERNEL, NVML, PACKAGES, PYTORCH, SYSTEM, build, gather
from mgpu.probes.environ import resolve_visible
from mgpu.snapshot import Nccl, Plan, Snapshot
from tests import fake_nvml, sysfs
from tests.checks.facts import BARE, DOCKER, facts, host, problem, slurm
from tests.conftest import CHECKS, ROOT, Run, environment, missing, need
from tests.test_every_check import cases
from tests.test_probe_infiniband import known as with_infiniband
from tests.test_probe_network import inside
from tests.test_probe_pci import machine_facts
from tests.test_probe_stack import NCCL_C, TORCH, asked, install_torch
from tests.test_probe_system import FILTER, from_child, plant

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Failure:
    """A failure people had, and what finds it."""

    checks: tuple[str, ...] = ()
    planted: tuple[str, ...] = ()
    cause: str = ""  # in the title or the cause that one of the checks gives
    fix: str = ""  # in a fix that one of them gives
    elsewhere: str = ""  # who deals with it instead, and why: "launch: it ..."


def by(checks: str, *planted: str, cause: str, fix: str) -> Failure:
    return Failure(tuple(checks.split()), planted, cause, fix)


def not_by_doctor(who: str, why: str, *planted: str) -> Failure:
    return Failure(planted=planted, elsewhere=f"{who}: {why}")


FAILURES: dict[str, Failure] = {
    # ---- the driver and its GPUs
    "nvidia-smi-no-driver": by(
        "driver_not_loaded nouveau_holds_gpus secure_boot_may_refuse_driver",
        "test_probe_nvml.py::test_a_planted_fault_is_named_and_nothing_else",
        "test_field_failures.py::test_a_kernel_that_keeps_the_driver_out",
        cause="Nouveau took the GPUs at boot", fix="blacklist nouveau"),
    "nvml-driver-library-mismatch": by(
        "driver_library_mismatch", "test_probe_nvml.py::test_a_planted_fault_is_named_and_nothing_else",
        cause="upgraded but its kernel module was not reloaded", fix="sudo reboot"),
    "driver-too-old": by(
        "driver_too_old_for_torch", "test_probe_nvml.py::test_an_old_driver_under_a_new_torch",
        cause="insufficient for CUDA runtime version (error 35)", fix="--index-url https://download.pytorch.org/whl/"),
    "dev-nvidia-permission": by(
        "device_nodes_denied", "test_probe_nvml.py::test_files_in_dev_that_are_not_for_this_user",
        cause="Without permission, PyTorch finds no GPU", fix="sudo usermod -aG video $USER"),
    "gpu-count-mismatch": by(
        "gpus_on_bus_not_in_driver gpu_count_unexpected", "test_probe_nvml.py::test_seven_of_eight",
        cause="The driver failed to initialize it", fix="dmesg"),
    "gpu-order-mismatch": by(
        "visible_devices_order_differs torch_numbers_gpus_otherwise",
        "test_field_failures.py::test_cards_of_two_models",
        "test_field_failures.py::test_a_torch_that_numbers_the_fast_card_first",
        cause="index 0 is not the same GPU for both", fix="export CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    "cuda-oom": by(
        "gpu_memory_below_plan gpu_busy", "test_probe_nvml.py::test_a_gpu_that_is_full_already",
        cause="would run out of memory", fix="export CUDA_VISIBLE_DEVICES="),
    "gpu-already-occupied": by(
        "gpu_busy gpu_memory_without_process rank_orphaned",
        "test_probe_nvml.py::test_a_gpu_that_is_full_already",
        "test_field_failures.py::test_memory_that_no_process_holds",
        "test_probe_leftovers.py::test_ranks_that_are_really_left",
        cause="GPU memory and port stay in use until they exit", fix="kill 4711"),
    "pid-namespace-hidden": by(
        "gpu_memory_used_from_outside", "test_probe_nvml.py::test_processes_that_a_container_does_not_show",
        cause="or a process in this container that NVML does not list", fix="Find out on the host"),
    "xid-31-13-43-app": by(
        "xid_program_crashed", "test_probe_kernel_log.py::test_the_users_own_crash_is_told_and_no_fault",
        cause="CUDA error 700 or 719", fix="compute-sanitizer"),
    "xid-63-remap-pending": by(
        "gpu_row_remap_pending gpu_row_remap_failed",
        "test_probe_nvml.py::test_a_planted_fault_is_named_and_nothing_else",
        cause="is used after the next reset", fix="nvidia-smi --gpu-reset"),
    "thermal-power-throttle": by(
        "gpu_too_hot gpu_power_braked gpu_power_limits_differ",
        "test_probe_nvml.py::test_a_planted_fault_is_named_and_nothing_else",
        cause="as long as on the slowest GPU", fix="Check fans, airflow"),
    # ---- between the GPUs
    "cuda-802-fabric-manager": by(
        "nvlink_fabric_not_ready fabric_manager_missing fabric_manager_version_differs cuda_does_not_start",
        "test_probe_nvml.py::test_a_fabric_that_nobody_started",
        "test_probe_pci.py::test_the_fabric_manager_tells_its_version",
        "test_gpu_stress.py::test_the_fix_fits_the_code",
        cause="error 802, system not yet initialized", fix="sudo systemctl restart nvidia-fabricmanager"),
    "nvls-multicast-bind": by(
        "nvlink_fabric_degraded", "test_field_failures.py::test_a_fabric_that_is_up_and_not_sound",
        cause="NVLS (multicast in the switches) can fail", fix="export NCCL_NVLS_ENABLE=0"),
    "imex-channel-permission": by(
        "imex_channel_unusable", "test_field_failures.py::test_an_imex_channel_that_cannot_be_opened",
        cause="CUDA error 800", fix="sudo chmod 666 /dev/nvidia-caps-imex-channels/channel0"),
    "p2p-hang-acs-iommu": by(
        "iommu_translates_peer_traffic pcie_acs_redirects",
        "test_field_failures.py::test_an_iommu_that_translates",
        "test_probe_pci.py::test_acs_on_a_plx_switch",
        cause="through a translating IOMMU hang or lose data", fix="iommu=pt"),
    "rtx40-p2p-old-driver": by(
        "rtx40_peer_access_misreported", "test_field_failures.py::test_rtx_40_cards_under_an_old_driver",
        cause="but they have none. NCCL hangs", fix="export NCCL_P2P_DISABLE=1"),
    "pcie-link-downgraded": by(
        "pcie_width_reduced pcie_switch_uplink_narrow pcie_bandwidth_limited",
        "test_doctor.py::test_a_sick_machine_names_exactly_the_planted_fault",
        "test_probe_pci.py::test_a_narrow_link_above_a_switch",
        "test_probe_kernel_log.py::test_a_link_with_too_few_lanes",
        cause="Half the lanes mean half the bandwidth", fix="Check slot, riser"),
    "vm-no-p2p": by(
        "vm_topology_flat", "test_probe_pci.py::test_a_virtual_machine_without_peer_access",
        cause="directly on the root bus", fix="NCCL_TOPO_FILE"),
    "wsl2-nccl": by(
        "wsl_limits_nccl wsl_several_gpus", "test_field_failures.py::test_two_cards_under_wsl",
        cause="NCCL finds no PCI bus here", fix="export NCCL_IB_DISABLE=1"),
    "nccl-heartbeat-monitor": by(
        "xid_firmware_crashed", "test_probe_kernel_log.py::test_what_stands_behind_a_stuck_watchdog",
        cause="Ranks hang until a watchdog or heartbeat monitor stops them", fix="nvidia-smi --gpu-reset"),
    # ---- containers
    "docker-no-gpu-runtime": by(
        "container_given_no_gpus nvml_library_missing",
        "test_field_failures.py::test_a_container_beside_a_driver_and_without_its_gpus",
        "test_probe_nvml.py::test_a_container_that_was_started_without_its_gpus",
        cause="the host lacks the NVIDIA Container Toolkit", fix="nvidia-ctk runtime configure --runtime=docker"),
    "nvidia-driver-capabilities": by(
        "driver_lacks_compute libcuda_missing", "test_field_failures.py::test_a_container_with_gpus_to_look_at_only",
        cause="has the GPUs for monitoring only", fix="NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
    "container-gpu-lost-daemon-reload": by(
        "container_lost_gpus", "test_probe_nvml.py::test_a_container_whose_devices_were_taken_away",
        cause="which happens when the host reloads systemd", fix="docker restart"),
    "nccl-cumem-host-docker": by(
        "nccl_host_buffers_fail", "test_field_failures.py::test_a_container_that_forbids_numa_calls",
        cause="in a docker container that blocks NUMA calls", fix="--cap-add SYS_NICE"),
    "docker-bridge-multinode": by(
        "container_network_private", "test_field_failures.py::test_a_container_behind_a_bridge",
        cause="an address that exists only on this host", fix="--network host"),
    # ---- limits of the host
    "shm-too-small-nccl": by(
        "shm_too_small", "test_probe_system.py::test_a_small_dev_shm",
        cause="Error while creating shared memory segment", fix="docker run --shm-size=8g"),
    "dataloader-bus-error-shm": by(
        "shm_too_small shm_tight_for_loaders", "test_probe_system.py::test_a_small_dev_shm",
        cause="killed by a bus error", fix="docker run --ipc=host"),
    "shm-stale-segments": by(
        "shm_holds_leftovers shared_memory_removed_at_logout",
        "test_probe_leftovers.py::test_segments_that_fill_a_small_shm",
        "test_field_failures.py::test_a_logind_that_clears_shared_memory",
        cause="left over from killed runs", fix="RemoveIPC=no"),
    "nofile-too-low": by(
        "open_files_limit_low", "test_probe_system.py::test_few_open_files",
        cause="Too many open files", fix="limits.d/nofile.conf"),
    "memlock-too-low": by(
        "locked_memory_limited", "test_probe_system.py::test_little_locked_memory",
        cause="locks them in memory", fix="--ulimit memlock=-1"),
    "host-oom-sigkill": by(
        "memory_small_for_ranks processes_killed_for_memory oom_killer_struck",
        "test_probe_system.py::test_a_process_the_kernel_kills", "test_probe_kernel_log.py::test_a_killed_rank",
        cause="exit code -9", fix="start fewer ranks"),
    "dataloader-workers-oversubscribed": by(
        "cpus_fewer_than_ranks", "test_probe_system.py::test_one_cpu",
        cause="limits this process to few cores", fix="srun --cpus-per-task=8"),
    "omp-threads-one": by(
        "omp_threads_too_few omp_threads_exceed_cpus",
        "test_field_failures.py::test_an_offloaded_optimizer_on_one_thread",
        "test_field_failures.py::test_more_threads_than_cpus",
        cause="Each rank's offloaded optimizer runs on a single core", fix="export OMP_NUM_THREADS=24"),
    "kernel-too-old-hang": by(
        "kernel_older_than_advised", "test_field_failures.py::test_an_old_kernel",
        cause="Older kernels made some multi-GPU runs hang", fix="mgpu smoke-test"),
    # ---- storage, and what earlier runs left
    "torch-extensions-stale-lock": by(
        "extension_lock_stale", "test_probe_leftovers.py::test_a_lock_that_hangs_every_rank",
        cause="waits forever for the lock", fix="rm /home/ada/.cache/torch_extensions/"),
    "triton-cache-nfs": by(
        "compile_cache_on_network", "test_probe_storage.py::test_compile_caches_on_nfs",
        cause="compiled kernels on a file server", fix="export TRITON_CACHE_DIR="),
    "dataset-cache-race": by(
        "hf_cache_on_network", "test_probe_storage.py::test_a_hub_cache_whose_locks_do_not_hold",
        cause="write the same files at the same time", fix="hf download"),
    "disk-full-checkpoint": by(
        "output_folder_full", "test_probe_storage.py::test_a_full_disk",
        cause="A checkpoint does not fit", fix="df -h"),
    "slow-training-low-util": by(
        "data_folder_on_slow_storage", "test_probe_storage.py::test_a_data_set_on_an_object_store",
        cause="The GPUs wait for data", fix="rsync -a"),
    # ---- Python, PyTorch, CUDA libraries, NCCL
    "cpu-only-torch": by(
        "torch_is_cpu_build", "test_field_failures.py::test_a_torch_for_the_cpu_beside_gpus",
        cause="is built for the CPU only", fix="--index-url https://download.pytorch.org/whl/cu130"),
    "no-kernel-image-sm": by(
        "torch_lacks_gpu_kernels", "test_probe_stack.py::test_the_wheels_kernels_and_the_gpus",
        cause="has no kernels for sm_120", fix="whl/cu128"),
    "cuda-222-ptx": by(
        "nvcc_newer_than_driver", "test_probe_stack.py::test_nvcc_on_path_newer_than_the_driver",
        cause="fail with error 222", fix="Or install a newer driver"),
    "exit-sigsegv": by(
        "torch_import_fails extension_does_not_load nccl_stack_unlimited",
        "test_probe_stack.py::test_torch_that_dies_of_a_signal_is_named",
        "test_probe_stack.py::test_an_extension_that_crashes_costs_nothing_else",
        "test_field_failures.py::test_a_stack_without_a_limit",
        cause="can crash at start with an unlimited stack", fix="ulimit -s 8192"),
    "extension-abi-undefined-symbol": by(
        "extension_does_not_load extension_built_for_another_torch bitsandbytes_lacks_cuda",
        "test_probe_stack.py::test_an_extension_of_another_torch",
        "test_probe_stack.py::test_extensions_say_what_they_were_built_for",
        "test_probe_stack.py::test_bitsandbytes_and_the_cuda_of_torch",
        cause="undefined symbol: _ZN3c10", fix="--no-build-isolation"),
    "nccl-multiple-installs-symbol": by(
        "nccl_wheels_mixed nccl_not_the_wheels nccl_loaded_is_another",
        "test_probe_stack.py::test_an_nccl_wheel_that_was_overwritten",
        "test_probe_stack.py::test_a_preloaded_nccl_is_asked_itself",
        "test_probe_stack.py::test_the_nccl_torch_really_loads",
        cause="They share one directory and one file name", fix="pip uninstall -y nvidia-nccl-cu12"),
    "nvjitlink-symbol": by(
        "library_path_shadows_wheels", "test_probe_stack.py::test_an_older_library_on_library_path",
        cause="lacks symbols that torch's libraries need", fix="unset LD_LIBRARY_PATH"),
    "deepspeed-cuda-home-missing": by(
        "deepspeed_cannot_compile", "test_probe_stack.py::test_deepspeed_without_a_toolkit",
        cause="looks for nvcc on import", fix="export CUDA_HOME="),
    "deepspeed-cuda-torch-mismatch": by(
        "deepspeed_refuses_nvcc nvcc_of_another_cuda", "test_probe_stack.py::test_nvcc_says_its_version",
        cause="CUDAMismatchException", fix="export CUDA_HOME=/usr/local/cuda-13.0"),
    "deepspeed-nvlink-ops-arch": by(
        "arch_list_lacks_gpu deepspeed_cannot_compile",
        "test_field_failures.py::test_an_arch_list_of_another_machine",
        "test_probe_stack.py::test_deepspeed_without_a_toolkit",
        cause="Extensions compiled with it do not run on", fix="unset TORCH_CUDA_ARCH_LIST"),
    "accelerate-not-found": by(
        "accelerate_command_missing accelerate_missing",
        "test_probe_stack.py::test_no_accelerate_on_path", "test_hostile.py::test_doctor_without_accelerate",
        cause="command not found", fix="-m accelerate.commands.launch"),
    "wrong-python-env": by(
        "python_on_path_is_another accelerate_of_another_python user_site_mixed_in environment_package_hidden",
        "test_probe_stack.py::test_launchers_of_another_interpreter",
        "test_probe_stack.py::test_the_users_own_site_in_an_environment",
        "test_probe_stack.py::test_a_package_hidden_by_another_copy",
        cause="would use the other interpreter", fix="export PYTHONNOUSERSITE=1"),
    # ---- the network
    "port-29500-in-use": by(
        "port_busy", "test_probe_network.py::test_a_busy_port_and_who_has_it",
        cause="port 29500 is in use by pid 412", fix="mgpu launch --port auto"),
    "hostname-unresolvable": by(
        "hostname_unresolvable", "test_probe_network.py::test_a_hostname_nobody_knows",
        cause="Ranks look up their own name at startup", fix="/etc/hosts"),
    "gloo-connect-failure": by(
        "hostname_is_loopback hostname_unresolvable loopback_is_down",
        "test_probe_network.py::test_a_hostname_on_loopback_and_one_that_is_elsewhere",
        "test_probe_network.py::test_a_hostname_nobody_knows", "test_probe_network.py::test_loopback_that_is_down",
        cause="would connect to themselves", fix="export GLOO_SOCKET_IFNAME="),
    "rendezvous-client-timeout": by(
        "master_unreachable master_unresolvable", "test_probe_network.py::test_masters_that_cannot_be_reached",
        cause="Every rank connects to it first, and retries for minutes", fix="export MASTER_ADDR="),
    "rdzv-endpoint-not-local": by(
        "master_elsewhere master_is_local_only config_address_not_here",
        "test_probe_network.py::test_masters_that_cannot_be_reached",
        "test_field_failures.py::test_a_config_that_calls_this_machine_by_anothers_address",
        cause="would connect to a host other than rank 0's", fix="is_host=true"),
    "nccl-no-socket-interface": by(
        "socket_interface_missing socket_interface_unusable",
        "test_probe_network.py::test_bridges_tunnels_and_dead_ends_of_a_real_kernel",
        cause="no such interface", fix="export NCCL_SOCKET_IFNAME="),
    "nccl-wrong-interface": by(
        "nccl_picks_dead_end nccl_picks_off_route",
        "test_probe_network.py::test_bridges_tunnels_and_dead_ends_of_a_real_kernel",
        cause="whether it reaches the other nodes or not", fix="export NCCL_SOCKET_IFNAME="),
    "ib-not-used-socket-fallback": by(
        "verbs_library_missing verbs_node_unusable infiniband_none_active nccl_network_disabled",
        "test_probe_infiniband.py::test_an_image_without_libibverbs",
        "test_probe_infiniband.py::test_a_container_without_the_device_nodes",
        "test_probe_infiniband.py::test_no_subnet_manager",
        "test_field_failures.py::test_a_variable_that_keeps_nccl_off_infiniband",
        cause="NCCL then silently falls back to TCP", fix="libibverbs1 librdmacm1 ibverbs-providers"),
    "efa-plugin-missing": by(
        "efa_plugin_missing", "test_probe_infiniband.py::test_efa_without_its_plugin",
        cause="NCCL does not support EFA without a plugin", fix="aws-ofi-nccl"),
    # ---- the config
    "only-one-gpu-num-processes": by(
        "config_leaves_gpus_idle config_one_process_of_many accelerate_default_config_left",
        "test_field_failures.py::test_a_config_that_uses_one_gpu_of_eight",
        "test_field_failures.py::test_a_default_config_that_lies_in_the_cache",
        cause="1 rank on 4 visible GPUs: 3 idle", fix="Set num_processes to 4"),
    "gpu-ids-vs-cvd": by(
        "visible_devices_replaced_by_config", "test_field_failures.py::test_gpu_ids_against_visible_devices",
        cause="regardless of the variable", fix="unset CUDA_VISIBLE_DEVICES"),
    "deepspeed-hostfile-ssh": by(
        "deepspeed_pdsh_missing", "test_field_failures.py::test_deepspeed_on_two_machines_without_pdsh",
        cause="DeepSpeed's launcher stops at once", fix="deepspeed_multinode_launcher: standard"),
    "mixed-precision-off": not_by_doctor(
        "configure", "precision is a choice and no fault; it proposes what the GPUs have",
        "test_configure.py::test_the_config_fits_the_machine"),
    # ---- Slurm
    "slurm-ntasks-vs-accelerate": by(
        "slurm_starts_several_launchers", "test_probe_system.py::test_a_real_step_with_a_task_for_each_gpu",
        cause="each starts one rank per GPU", fix="--ntasks-per-node=1"),
    "slurm-gpu-bind-subset": by(
        "slurm_task_sees_part_of_gpus", "test_probe_system.py::test_a_real_step_with_a_task_for_each_gpu",
        cause="ranks of different tasks cannot open each other's", fix="--gpu-bind=none"),
    "slurm-srun-cpus-per-task": by(
        "slurm_cpus_not_passed_on", "test_probe_system.py::test_cpus_that_a_real_srun_does_not_pass_on",
        cause="does not inherit the option from sbatch", fix="export SRUN_CPUS_PER_TASK="),
    "slurm-oom-kill": by(
        "memory_small_for_ranks processes_killed_for_memory", "test_probe_system.py::test_a_process_the_kernel_kills",
        cause="limited by Slurm's --mem", fix="sbatch --mem=0"),
    "slurm-invalid-gres": not_by_doctor("sbatch", "it refuses the job before there is a machine to look at"),
    "slurm-invalid-qos-account": not_by_doctor("sbatch", "it refuses the job before there is a machine to look at"),
    # ---- while it runs, and other machines
    "sighup-kills-torchrun": not_by_doctor(
        "launch", "nothing is wrong with the machine; under nohup it keeps the hangup from the launcher",
        "test_launch.py::test_hangup_is_ignored_under_nohup"),
    "nccl-version-mismatch-nodes": not_by_doctor(
        "doctor --compare", "one machine does not tell what another has; two saved ones do",
        "test_changes.py::test_a_change_is_named"),
}  # fmt: skip


# ---- the table is true


@cache
def module(file: str) -> dict[str, ast.stmt]:
    """What a test file defines: name -> where."""
    defined: dict[str, ast.stmt] = {}
    for statement in ast.parse((HERE / file).read_text("utf-8")).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                defined[name] = statement
            case ast.Assign(targets=[ast.Name(id=name)]):
                defined[name] = statement
    return defined


@cache
def words_of(node: str) -> frozenset[str]:
    """The text constants of a test, and of all in its file that it uses: tables, helpers, fixtures."""
    file, _, test = node.partition("::")
    defined, names, words = module(file), [test], set[str]()
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen or name not in defined:
            continue
        seen.add(name)
        for part in ast.walk(defined[name]):
            match part:
                case ast.Name(id=used) | ast.arg(arg=used):
                    names.append(used)
                case ast.Constant(value=str(text)):
                    words.add(text)
    return frozenset(words)


every_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


@every_failure
def test_it_is_found_or_it_is_said_who_deals_with_it(failure: Failure) -> None:
    assert bool(failure.checks) != bool(failure.elsewhere)
    assert not failure.checks or (failure.planted and failure.cause and failure.fix)
    assert [name for name in failure.checks if name not in CHECKS] == []


@every_failure
def test_its_tests_exist_and_plant_it(failure: Failure) -> None:
    for node in failure.planted:
        file, _, test = node.partition("::")
        assert test.startswith("test_") and isinstance(module(file).get(test), ast.FunctionDef), node
        assert not failure.checks or set(failure.checks) & words_of(node), f"{node} names none of {failure.checks}"
    for name in failure.checks:
        assert any(name in words_of(node) for node in failure.planted), f"nothing plants what {name} finds"


@every_failure
def test_the_cause_and_the_fix_are_those_that_helped(failure: Failure) -> None:
    told = [
        answer.problem
        for name in failure.checks
        for case in cases()[name]
        if not case.bug and (answer := case.answer()).problem is not None
    ]
    if failure.checks:
        assert any(failure.cause in text for found in told for text in (found.title, found.cause))
        assert any(failure.fix in text for found in told for text in offered(found))


def test_no_failure_stands_twice() -> None:
    text = Path(__file__).read_text("utf-8")
    written = re.findall(r'^    "([a-z0-9-]+)": (?:by|not_by_doctor)\(', text, re.MULTILINE)
    assert [name for name, number in Counter(written).items() if number > 1] == []
    assert list(FAILURES) == written


# ---- on a machine that the fake NVML describes, by the command itself

fake_driver = pytest.mark.skipif(
    Path("/sys/module/nvidia").exists(), reason="the driver of this machine would show through the fake one"
)
Named = Callable[..., dict[str, Any]]


def offered(found: Problem | Mapping[str, Any]) -> list[str]:
    """The texts and commands of a problem's fixes, or of a check's in the JSON."""
    if isinstance(found, Problem):
        return [text for fix in found.fixes for text in (fix.text, *fix.commands)]
    return [text for fix in found["fix"] for text in (fix["text"], *fix["commands"])]


def says(found: Problem | Mapping[str, Any], title: str, cause: str, fix: str) -> None:
    """It is found, with this in the title, the cause and a fix."""
    told = (found.title, found.cause) if isinstance(found, Problem) else (found["title"], found["cause"])
    assert title in told[0]
    assert cause in told[1]
    assert any(fix in text for text in offered(found)), offered(found)


def only_check(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one check of a report, which must have found something."""
    assert result.stdout, result.stderr
    (found,) = json.loads(result.stdout)["checks"]
    assert found["status"] in ("fail", "warn", "info"), found
    assert isinstance(found, dict)
    return found


@pytest.fixture
def named(on: Run, tmp_path: Path) -> Named:
    """What `mgpu doctor --only CHECK` finds on a described machine: named("gpu_busy", "h100_sxm_x8", "0.… = …")."""

    def run(check: str, name: str, *lines: str, config: str = "", **env: str) -> dict[str, Any]:
        arguments = ["doctor", "--quick", "--json", "--only", check]
        if config:
            (tmp_path / "run.yaml").write_text(config)
            arguments += ["--config", "run.yaml"]
        return only_check(on(name, lines, *arguments, env=env))

    return run


def config_of(**values: Any) -> str:
    """A config of accelerate: the usual one, some values changed."""
    usual = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "num_machines": 1}
    return json.dumps(usual | values)  # which is YAML as well


@fake_driver
def test_rtx_40_cards_under_an_old_driver(named: Named) -> None:
    """A driver of before 550.40.07 promises peer access that the cards do not have."""
    promise = "0-1.p2p_read = 0\n0-1.p2p_write = 0"
    old = ("driver.version = 535.183.01", "driver.cuda_version = 12020", promise)
    found = named("rtx40_peer_access_misreported", "rtx4090_x2", *old)
    says(found, "2 RTX 40 cards and driver 535.183.01", "NCCL hangs", "export NCCL_P2P_DISABLE=1")
    assert "export NCCL_IB_DISABLE=1" in offered(found)


@fake_driver
def test_cards_of_two_models(named: Named) -> None:
    found = named("visible_devices_order_differs", "rtx4090_x2", "1.name = NVIDIA RTX A2000")
    says(found, "2 GPU models", "CUDA numbers the fastest GPU first", "export CUDA_DEVICE_ORDER=PCI_BUS_ID")


@fake_driver
def test_a_fabric_that_is_up_and_not_sound(named: Named) -> None:
    found = named("nvlink_fabric_degraded", "h100_sxm_x8", fake_nvml.FAULTS["fabric_degraded"])
    says(found, "its bandwidth is degraded", "NVLS", "export NCCL_NVLS_ENABLE=0")
    assert "sudo systemctl restart nvidia-fabricmanager" in offered(found)


@fake_driver
def test_a_torch_for_the_cpu_beside_gpus(named: Named, tmp_path: Path) -> None:
    folder = install_torch(tmp_path / "site")
    (folder / "version.py").write_text("__version__ = '2.9.1+cpu'\ncuda = None\nhip = None\n")
    found = named("torch_is_cpu_build", "h100_sxm_x8", PYTHONPATH=f"{tmp_path / 'site'}{os.pathsep}{ROOT}")
    says(found, "torch 2.9.1+cpu is built for the CPU only", "silently trains on the CPU", "whl/cu130")


@fake_driver
def test_an_arch_list_of_another_machine(named: Named) -> None:
    found = named("arch_list_lacks_gpu", "h100_sxm_x8", TORCH_CUDA_ARCH_LIST="8.0;8.6")
    says(
        found,
        "TORCH_CUDA_ARCH_LIST=8.0;8.6 does not include 9.0",
        "do not run on GPUs 0, 1",
        "unset TORCH_CUDA_ARCH_LIST",
    )


@fake_driver
@pytest.mark.parametrize(
    ("check", "config", "title", "fix"),
    [
        (
            "config_leaves_gpus_idle",
            config_of(num_processes=1),
            "1 rank on 8 visible GPUs: 7 idle",
            "num_processes to 8",
        ),
        (
            "config_one_process_of_many",
            config_of(num_processes=8, distributed_type="NO"),
            "distributed_type NO starts 1 process, not 8",
            "distributed_type: MULTI_GPU",
        ),
    ],
    ids=["one process", "type NO"],
)
def test_a_config_that_uses_one_gpu_of_eight(check: str, config: str, title: str, fix: str, named: Named) -> None:
    says(named(check, "h100_sxm_x8", config=config), title, "", fix)


def test_a_default_config_that_lies_in_the_cache(mgpu: Run, tmp_path: Path) -> None:
    left = tmp_path / "hub" / "accelerate" / "default_config.yaml"
    left.parent.mkdir(parents=True)
    left.write_text(config_of(num_processes=1))
    arguments = ("doctor", "--quick", "--json", "--only", "accelerate_default_config_left")
    found = only_check(mgpu(*arguments, env={"HF_HOME": str(tmp_path / "hub")}))
    says(found, "default_config.yaml is in the cache", "silently uses it", f"cat {left}")


@fake_driver
def test_gpu_ids_against_visible_devices(named: Named) -> None:
    config = config_of(num_processes=2, gpu_ids="0,1")
    found = named("visible_devices_replaced_by_config", "h100_sxm_x8", config=config, CUDA_VISIBLE_DEVICES="2,3")
    says(
        found, "gpu_ids: 0,1 overrides CUDA_VISIBLE_DEVICES=2,3", "uses GPUs 0 and 1", "unset CUDA_VISIBLE_DEVICES"
    )  # fmt: skip
    assert (found["file"], found["key"]) == ("run.yaml", "gpu_ids")


OFFLOAD = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": True}}


@fake_driver
def test_an_offloaded_optimizer_on_one_thread(named: Named) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU cannot be divided")
    # accelerate 1.15 starts one rank of DeepSpeed without OMP_NUM_THREADS, and one of FSDP with 1: both measured.
    found = named("omp_threads_too_few", "t4_x1", config=config_of(num_processes=1, **OFFLOAD))
    says(found, "1 thread for each of 1 rank on", "runs on a single core", "export OMP_NUM_THREADS=")


@fake_driver
def test_more_threads_than_cpus(named: Named) -> None:
    found = named("omp_threads_exceed_cpus", "h100_sxm_x8", OMP_NUM_THREADS="4096")
    says(found, "OMP_NUM_THREADS=4096 for 8 ranks", "compete with each other", "export OMP_NUM_THREADS=")


# ---- on this machine, by the command itself


def test_deepspeed_on_two_machines_without_pdsh(mgpu: Run, tmp_path: Path) -> None:
    section = {"zero_stage": 2, "deepspeed_hostfile": "hostfile"}
    (tmp_path / "run.yaml").write_text(
        config_of(num_machines=2, num_processes=8, distributed_type="DEEPSPEED", deepspeed_config=section)
    )
    arguments = ("doctor", "--quick", "--json", "--only", "deepspeed_pdsh_missing", "--config", "run.yaml")
    found = only_check(mgpu(*arguments, env={"PATH": str(tmp_path)}))
    says(found, "pdsh (its default), which is not installed", "stops at once", "deepspeed_multinode_launcher: standard")


def test_a_config_that_calls_this_machine_by_anothers_address(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        config_of(
            num_machines=2, num_processes=8, machine_rank=0, main_process_ip="203.0.113.9", main_process_port=29511
        )
    )
    arguments = ("doctor", "--quick", "--json", "--only", "config_address_not_here", "--config", "run.yaml")
    found = only_check(mgpu(*arguments))
    says(found, "main_process_ip 203.0.113.9 is not an address of this machine", "", "--main_process_ip")


def test_an_old_kernel(tmp_path: Path) -> None:
    """uname says 2.6: a personality of Linux for programs that choke on a number above that."""
    command = [need("setarch"), os.uname().machine, "--uname-2.6", sys.executable, "-m", "mgpu", "doctor"]
    result = subprocess.run(
        [*command, "--quick", "--json", "--only", "kernel_older_than_advised"], env=environment(tmp_path),
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "personality" in result.stderr:
        missing("a process may not choose its personality here")
    found = only_check(result)
    says(found, "Linux 2.6.", "made some multi-GPU runs hang", "mgpu smoke-test")


# ---- in trees of files, and with libraries that were planted


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that tells where this runs, or moves what it loads."""
    told = ("KUBERNETES_SERVICE_HOST", "APPTAINER_NAME", "SINGULARITY_NAME", "container", "CUDA_VISIBLE_DEVICES")
    for name in (*told, *(name for name in os.environ if name.startswith("SLURM"))):
        monkeypatch.delenv(name, raising=False)


def described(
    root: Path, files: Mapping[str, str], library: Path | None = None, name: str = "", *lines: str
) -> Snapshot:
    """What the probes of the machine say with these files in the place of /, and with the described GPUs."""
    plant(root, files)
    roots = {"proc": f"{root}/proc", "sys_root": f"{root}/sys", "root": str(root)}
    probes = [
        replace(
            SYSTEM, arguments={**roots, "shm": f"{root}/dev/shm"}, bare=True, then=(replace(KERNEL, arguments=roots),)
        )
    ]
    env = {}
    if library is not None:
        probes.append(replace(NVML, arguments={"sys_root": roots["sys_root"], "dev_root": f"{root}/dev"}))
        env = fake_nvml.environment(library, fake_nvml.machine(root, name, *lines))
    with mock.patch.dict(os.environ, env):
        return gather(probes)


def seen(snapshot: Snapshot, *names: str) -> dict[str, Any]:
    """Some facts of a Snapshot, with which GPUs CUDA would show."""
    found = {name: getattr(snapshot, name) for name in names}
    assert None not in found.values(), snapshot.gaps
    return found | ({"visible": resolve_visible(None, snapshot.gpus or ())} if "gpus" in names else {})


def test_memory_that_no_process_holds(library: Path, tmp_path: Path) -> None:
    here = seen(described(tmp_path, {}, library, "h100_sxm_x8", "2.memory_used = 40000MiB"), "container", "gpus")
    found = problem("gpu_memory_without_process", **here)
    says(found, "GPU 2: 39 GiB in use without a process", "died without freeing it", "sudo fuser -v /dev/nvidia2")


def test_two_cards_under_wsl(library: Path, tmp_path: Path) -> None:
    files = {"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
    snapshot = described(tmp_path, files, library, "rtx4090_x2", "*.compute_processes = !3")
    here = seen(snapshot, "container", "gpus", "links")
    says(problem("wsl_limits_nccl", **here), "WSL2", "no direct transfer between GPUs", "Nothing for development")
    found = problem("wsl_several_gpus", **here)
    says(found, "2 GPUs under WSL2", "everything through host memory", "export NCCL_P2P_DISABLE=1")
    assert any(".wslconfig" in text for text in offered(found))


NO_GPU: dict[str, Any] = {"gpus": None, "links": None, "visible": None}


def test_a_container_beside_a_driver_and_without_its_gpus(tmp_path: Path) -> None:
    """`docker run` without --gpus: /sys is the host's and shows the module; no library, no device file."""
    (tmp_path / fake_nvml.LIBRARY).write_text("")  # whatever driver the machine of this test has, it is not found
    files = {".dockerenv": "", "sys/module/nvidia/version": "580.65.06\n"}
    here = seen(described(tmp_path, files, tmp_path, "h100_sxm_x8"), "container", "driver")
    found = problem("container_given_no_gpus", **here, **NO_GPU)
    says(found, "580.65.06, but this container has no GPU", "started without GPUs", "--gpus all")
    assert "sudo nvidia-ctk runtime configure --runtime=docker" in offered(found)


def test_a_container_with_gpus_to_look_at_only(library: Path, tmp_path: Path) -> None:
    """NVIDIA_DRIVER_CAPABILITIES=utility: NVML is there, libcuda is not."""
    lines = ("driver.cuda_version = !12",)
    snapshot = described(tmp_path / "root", {".dockerenv": ""}, library, "h100_sxm_x8", *lines)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcuda.so.1").write_text("the loader stops here, whatever this machine has elsewhere\n" * 9)
    with mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": str(tmp_path / "lib")}):
        here = seen(snapshot, "container", "driver", "gpus") | seen(gather([PACKAGES]), "libraries")
    found = problem("driver_lacks_compute", **here)
    says(found, "NVML works, libcuda does not", "for monitoring only", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    says(problem("libcuda_missing", **here), "libcuda.so.1 cannot be loaded", "cannot start", "ldconfig -p")


def test_an_imex_channel_that_cannot_be_opened(library: Path, tmp_path: Path) -> None:
    """A link that leads nowhere: no user may open it, not even root."""
    channels = tmp_path / "dev" / "nvidia-caps-imex-channels"
    channels.mkdir(parents=True)
    (channels / "channel0").symlink_to("nowhere")
    rack = ("*.fabric_cluster = 5f6ab0e80f1d4c2b9c0e6d1a2b3c4d5e", "*.fabric_clique = 32766")
    here = seen(described(tmp_path, {}, library, "h100_sxm_x8", *rack), "driver", "gpus")
    found = problem("imex_channel_unusable", **here, plan=Plan(nodes=2))
    says(found, "no permission to open 1 IMEX channel", "CUDA error 800", "sudo chmod 666")
    assert "export NCCL_MNNVL_ENABLE=0" in offered(found)


def test_a_kernel_that_keeps_the_driver_out(library: Path, tmp_path: Path) -> None:
    """nouveau sits on the GPU; where it does not, Secure Boot rejects an unsigned module."""
    card = "sys/bus/pci/devices/0000:01:00.0"
    files = {
        "proc/modules": "nouveau 3096576 1 - Live 0x0\nib_core 1 0 - Live 0x0\n",
        f"{card}/vendor": "0x10de\n",
        f"{card}/class": "0x030000\n",
    }
    unloaded = ("h100_sxm_x8", fake_nvml.FAULTS["driver_not_loaded"])
    here = seen(described(tmp_path / "nouveau", files, library, *unloaded), "driver", "kernel")
    found = problem("nouveau_holds_gpus", **here, **NO_GPU)
    says(found, "nouveau is loaded, NVIDIA's module is not", "took the GPUs at boot", "blacklist nouveau")
    says(problem("driver_not_loaded", **here, **NO_GPU), "driver not loaded", "is not loaded", "sudo modprobe nvidia")
    boot = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    files |= {"proc/modules": "ib_core 1 0 - Live 0x0\n", boot: "\x06\0\0\0\x01"}
    here = seen(described(tmp_path / "secure", files, library, *unloaded), "driver", "kernel")
    found = problem("secure_boot_may_refuse_driver", **here, **NO_GPU)
    says(found, "Secure Boot is on", "rejects modules not signed with an enrolled key", "mokutil --import")


def test_a_logind_that_clears_shared_memory(tmp_path: Path) -> None:
    files = {"etc/systemd/logind.conf": "[Login]\nRemoveIPC=yes\n"}
    here = seen(described(tmp_path, files), "kernel")
    found = problem("shared_memory_removed_at_logout", **here, host=host(), container=BARE, slurm=slurm())
    says(found, "RemoveIPC=yes", "Ranks of a Slurm job have no login session", "RemoveIPC=no")


@pytest.mark.parametrize(("kind", "hangs"), [("DMA-FQ", True), ("identity", False)])
def test_an_iommu_that_translates(kind: str, hangs: bool, tmp_path: Path) -> None:
    """Two cards on root ports of their own, under an AMD processor."""
    machine = sysfs.workstation(tmp_path)
    cards = [device.address for device in machine.pci().of("gpu")]
    files = {f"sys/kernel/iommu_groups/{number}/type": f"{kind}\n" for number in range(len(cards))}
    files |= {f"proc/driver/nvidia/gpus/{card}/information": "" for card in cards}
    kernel = described(tmp_path, files).kernel
    for number, card in enumerate(cards):
        (machine.folder(card) / "iommu_group").symlink_to(tmp_path / f"sys/kernel/iommu_groups/{number}")
    here = machine_facts(machine.pci(), "NVIDIA RTX 5880 Ada Generation") | {"kernel": kernel}
    if hangs:
        found = problem("iommu_translates_peer_traffic", **here)
        says(found, "the IOMMU translates, but 1 GPU pair", "hang or lose data", "Add iommu=pt (or amd_iommu=off)")
        assert "export NCCL_P2P_DISABLE=1" in offered(found)
    else:
        assert quiet("iommu_translates_peer_traffic", **here)


def quiet(check: str, **changes: Any) -> bool:
    """Whether a check answers that all is well."""
    (outcome,) = engine.run_check(CHECKS[check], Snapshot(**facts(**changes)))
    return outcome.status == "ok"


def test_a_variable_that_keeps_nccl_off_infiniband(tmp_path: Path) -> None:
    here = with_infiniband(sysfs.dgx_h100(tmp_path), env={"NCCL_IB_DISABLE": "1"})
    found = problem("nccl_network_disabled", **here)
    says(found, "NCCL_IB_DISABLE=1, but 8 InfiniBand", "communicate over TCP instead", "unset NCCL_IB_DISABLE")


def test_a_torch_that_numbers_the_fast_card_first(library: Path, tmp_path: Path) -> None:
    gpus = described(tmp_path / "root", {}, library, "rtx4090_x2", "0.name = NVIDIA RTX A2000").gpus
    assert gpus is not None
    order = [(gpu.uuid or "").removeprefix("GPU-") for gpu in reversed(gpus)]
    folder = install_torch(tmp_path / "site")
    (folder / "__init__.py").write_text(
        f"{TORCH}\n"
        f"def _of(index): return _All(name='a card', major=8, minor=9, total_memory=1 << 34, uuid={order}[index])\n"
        "cuda.init, cuda.device_count, cuda.get_device_properties = _Called(None), _Called(2), _of\n"
    )
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(tmp_path / "site")}):
        runtime = gather([PYTORCH]).torch_runtime
    here = {"torch_runtime": runtime, "gpus": gpus, "visible": resolve_visible(None, gpus)}
    found = problem("torch_numbers_gpus_otherwise", **here)
    says(found, "cuda:0 is GPU 1 in nvidia-smi, not GPU 0", "not the PCI bus order", "CUDA_DEVICE_ORDER=PCI_BUS_ID")


# ---- for real: namespaces, limits, filters


def nccl_of(site: Path, code: int) -> Nccl:
    """What the probe finds in an environment whose wheel brings an NCCL of this version, compiled here."""
    path = install_torch(site).parent / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    path.parent.mkdir(parents=True)
    (site / "nccl.c").write_text(NCCL_C)
    flags = ["-shared", "-fPIC", "-w", f"-DVERSION={code}"]
    subprocess.run([need("cc"), *flags, "-o", str(path), str(site / "nccl.c")], check=True)
    found = build({"nccl": asked(PACKAGES, {"PYTHONPATH": site})["nccl"]}, {}).nccl
    assert found is not None
    return found


def test_a_container_that_forbids_numa_calls(tmp_path: Path) -> None:
    """A real filter as Docker's, under which get_mempolicy fails; NCCL 2.24 to 2.26.2 do not test for it."""
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the number of the call is not known for this machine")
    nccl = nccl_of(tmp_path, 22602)
    for barred in (True, False):
        filtered = from_child(code=FILTER.replace("BAR", str(barred)))["container"]
        here = {"container": replace(DOCKER, mempolicy=filtered.mempolicy), "nccl": nccl}
        if not barred:
            assert quiet("nccl_host_buffers_fail", **here)
            continue
        found = problem("nccl_host_buffers_fail", **here)
        says(found, "NCCL 2.26.2 in a docker container", "fall back to /dev/shm", "docker run --cap-add SYS_NICE")
        assert "export NCCL_CUMEM_HOST_ENABLE=0" in offered(found)


def test_a_stack_without_a_limit(tmp_path: Path) -> None:
    system = from_child(need("prlimit"), "--stack=unlimited:unlimited")["system"]
    assert system.limit_stack_bytes is None
    found = problem("nccl_stack_unlimited", system=system, nccl=nccl_of(tmp_path, 22707))
    says(found, "ulimit -s is unlimited, NCCL is 2.27.7", "can crash at start", "ulimit -s 8192")


# A container's end of a veth pair: the other end is in a network namespace of somebody else.
BRIDGED = """\
ip link set lo up
unshare -n setpriv --pdeathsig KILL sleep 60 >/dev/null 2>&1 &
while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add eth0 type veth peer name far; ip link set far netns $!
ip addr add 172.17.0.2/16 dev eth0; ip link set eth0 up
"""


def test_a_container_behind_a_bridge(tmp_path: Path) -> None:
    need("setpriv")
    network = inside(BRIDGED, folder=tmp_path, uts="c1", hosts="127.0.0.1 localhost\n172.17.0.2 c1\n")
    container = described(tmp_path / "root", {".dockerenv": ""}).container
    assert container is not None and container.kind == "docker"
    here = {"network": network, "container": container, "slurm": slurm(nodes=2)}
    found = problem("container_network_private", **here, plan=Plan(nodes=2))
    says(found, "only eth0 (172.17.0.2), a private bridge", "exists only on this host", "docker run --network host")
