"""checks/container.py"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Interface, Library, Plan
from tests.checks.facts import (
    BRIDGE,
    DOCKER,
    ETH,
    KUBERNETES,
    LO,
    WSL,
    Case,
    container,
    driver,
    fails,
    informs,
    libraries,
    network,
    no_driver,
    skips,
    slurm,
    table,
    uuid,
    warns,
    well,
)

# Started without GPUs on a machine that has them: the module is seen, the nodes and libraries are not there.
BARRED: dict[str, Any] = {"gpus": (), "driver": no_driver(pci_gpus=4, module_version="580.65.06")}
VETH = Interface("eth0", True, False, ("172.17.0.2",), False, 1500, kind="veth")
WSL_CUDA = Library("cuda", "/usr/lib/wsl/lib/libcuda.so.1", "system")
LINUX_CUDA = Library("cuda", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "system")
NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm")
CASES = (
    # container_lost_gpus
    fails("container_lost_gpus", "2 GPU device nodes, but NVML reports UNKNOWN", "docker restart",
        container=DOCKER, driver=no_driver("UNKNOWN", device_nodes=NODES)),
    fails("container_lost_gpus", "2 GPU device nodes, but NVML reports NO_PERMISSION", "docker restart",
        container=DOCKER, driver=no_driver("NO_PERMISSION", device_nodes=NODES)),
    well("container_lost_gpus", "4 GPU device nodes, usable by NVML", container=DOCKER),
    skips("container_lost_gpus", "",
        container=DOCKER, driver=driver(nvml_error="DRIVER_NOT_LOADED")),
    skips("container_lost_gpus", "not a container", driver=no_driver("UNKNOWN", device_nodes=NODES)),
    skips("container_lost_gpus", "no /dev/nvidiaN",
        container=DOCKER, driver=no_driver("UNKNOWN", device_nodes=("/dev/nvidiactl",))),
    # wsl_limits_nccl
    informs("wsl_limits_nccl", "WSL2", "Nothing for development.", container=WSL),
    well("wsl_limits_nccl", "not WSL"),
    # container_given_no_gpus: the host's module is loaded, and nothing of it is in here
    fails("container_given_no_gpus", "the host runs NVIDIA driver 580.65.06, but this container has no GPU",
        "docker run --gpus all", container=DOCKER, **BARRED),
    fails("container_given_no_gpus", "(NVIDIA_VISIBLE_DEVICES=void)", "sudo nvidia-ctk runtime configure",
        container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "void"}, **BARRED),
    fails("container_given_no_gpus", "(NVIDIA_VISIBLE_DEVICES=empty)", "docker run --gpus all",
        container=container("containerd"), env={"NVIDIA_VISIBLE_DEVICES": ""}, **BARRED),
    *(
        fails("container_given_no_gpus", "the host runs NVIDIA driver 580.65.06, but this container has no GPU",
        fix, container=container(kind), **BARRED)
        for kind, fix in (
            ("podman", "podman run --device nvidia.com/gpu=all"),
            ("kubernetes", "kubectl explain pod.spec.containers.resources.limits"),
            ("apptainer", "apptainer exec --nv"),
            ("enroot", "export NVIDIA_VISIBLE_DEVICES=all"),
            ("lxc", "/dev/nvidia*"),
        )
    ),
    well("container_given_no_gpus", "/dev/nvidia0, /dev/nvidia1, /dev/nvidia2 and /dev/nvidia3", container=DOCKER),
    well("container_given_no_gpus", "/dev/dxg",
        container=replace(DOCKER, wsl=True), driver=no_driver(device_nodes=("/dev/dxg",), module_version="580.65.06")),
    skips("container_given_no_gpus", "not a container", **BARRED),
    skips("container_given_no_gpus", "no NVIDIA driver found on the host",
        container=DOCKER, gpus=(), driver=no_driver()),
    skips("container_given_no_gpus", "no GPUs expected (--expect-gpus 0)",
        container=DOCKER, plan=Plan(expect_gpus=0), **BARRED),
    # container_got_fewer_gpus
    warns("container_got_fewer_gpus", "NVIDIA_VISIBLE_DEVICES lists 5 GPUs, 1 of them missing", "nvidia-smi -L",
        container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "0,1,2,3,4"}),
    warns("container_got_fewer_gpus", "NVIDIA_VISIBLE_DEVICES lists 2 GPUs, 1 of them missing",
        "If the variable was set inside the container, it has no effect.",
        container=KUBERNETES, env={"NVIDIA_VISIBLE_DEVICES": f"{uuid(0)},{uuid(7)}"}),
    warns("container_got_fewer_gpus", "NVIDIA_VISIBLE_DEVICES lists 1 GPU, 1 of them missing", "nvidia-smi -L",
        container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "0"}, gpus=()),
    well("container_got_fewer_gpus", "4 GPUs in NVIDIA_VISIBLE_DEVICES, all here",
        container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "4,5,6,7"}),
    well("container_got_fewer_gpus", "1 GPU in", container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "0"}),
    well("container_got_fewer_gpus", "2 GPUs in",
        container=KUBERNETES, env={"NVIDIA_VISIBLE_DEVICES": f"{uuid(0)[:12]}, {uuid(1)}"}),
    well("container_got_fewer_gpus", "1 GPU in",
        container=KUBERNETES, env={"NVIDIA_VISIBLE_DEVICES": f"{uuid(0)}::3,{uuid(0)}::4"}),
    skips("container_got_fewer_gpus", "not a container", env={"NVIDIA_VISIBLE_DEVICES": "0,1,2,3,4"}),
    skips("container_got_fewer_gpus", "is not set", container=DOCKER),
    *(
        skips("container_got_fewer_gpus", f"NVIDIA_VISIBLE_DEVICES={value} lists no GPUs", container=DOCKER,
            env={"NVIDIA_VISIBLE_DEVICES": value})
        for value in ("all", "none", "void")
    ),
    skips("container_got_fewer_gpus", "MIG", container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "0:0,0:1"}),
    skips("container_got_fewer_gpus", "MIG", container=DOCKER, env={"NVIDIA_VISIBLE_DEVICES": "MIG-1"}),
    skips("container_got_fewer_gpus", "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all cannot be parsed", container=DOCKER,
        env={"NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu=all"}),
    # container_network_private
    fails("container_network_private", "the container has only eth0 (172.17.0.2), a private bridge on its host",
        "docker run --network host", container=DOCKER, plan=Plan(nodes=2), network=network(interfaces=(LO, VETH))),
    fails("container_network_private", "only eth0", "podman run --network host",
        container=container("podman"), slurm=slurm(nodes=2), network=network(interfaces=(LO, VETH))),
    fails("container_network_private", "only eth0", "nerdctl run --network host",
        container=container("containerd"), plan=Plan(nodes=2), network=network(interfaces=(LO, VETH))),
    well("container_network_private", "eno1 and docker0", container=DOCKER, plan=Plan(nodes=2),
        network=network(interfaces=(LO, replace(ETH, kind="physical"), replace(BRIDGE, kind="bridge")))),
    well("container_network_private", "eth0 and eth1", container=DOCKER, plan=Plan(nodes=2),  # an overlay network
        network=network(interfaces=(LO, VETH, replace(VETH, name="eth1")))),
    well("container_network_private", "eth0", container=DOCKER, plan=Plan(nodes=2),
        network=network(interfaces=(LO, replace(VETH, kind="macvlan")))),
    skips("container_network_private", "single-node run", container=DOCKER, network=network(interfaces=(LO, VETH))),
    skips("container_network_private", "not a Docker", container=KUBERNETES, plan=Plan(nodes=2),
        network=network(interfaces=(LO, VETH))),
    skips("container_network_private", "not a Docker", plan=Plan(nodes=2)),
    skips("container_network_private", "the kinds of the network interfaces are unknown",
        container=DOCKER, plan=Plan(nodes=2),
        network=network(interfaces=(LO, replace(VETH, kind=None)))),
    skips("container_network_private", "the kinds of the network interfaces are unknown",
        container=DOCKER, plan=Plan(nodes=2),
        network=network(interfaces=())),
    # wsl_has_linux_driver
    warns("wsl_has_linux_driver", "libcuda belongs to a Linux driver: /usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "sudo apt-get remove 'nvidia-driver-*'", container=WSL, libraries=libraries(found=(LINUX_CUDA,))),
    warns("wsl_has_linux_driver", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "ldconfig",
        container=WSL, libraries=libraries(found=(WSL_CUDA, LINUX_CUDA))),
    well("wsl_has_linux_driver", "libcuda is the Windows driver's: /usr/lib/wsl/lib/libcuda.so.1",
        container=WSL, libraries=libraries(found=(WSL_CUDA,))),
    skips("wsl_has_linux_driver", "not WSL2"),
    skips("wsl_has_linux_driver", "in a container", container=replace(DOCKER, wsl=True)),
    skips("wsl_has_linux_driver", "no libcuda", container=WSL, libraries=libraries(found=())),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
