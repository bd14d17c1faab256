"""Did NVSHMEM or DeepEP, which exchange the tokens of expert parallelism, fail?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from ._kernel_cases import NEW_NVSHMEM

_ENV = "https://docs.nvidia.com/nvshmem/api/gen/env.html"
_INSTALL = "https://docs.nvidia.com/nvshmem/release-notes-install-guide/install-guide/nvshmem-install-proc.html"
_DEEPEP = "https://github.com/deepseek-ai/DeepEP"
# fmt: off
_TEST = Fix("Test the exchange alone.", ("python tests/test_intranode.py  # of DeepEP",
                                         "python tests/test_internode.py"))

ROWS = (
    Row("log_nvshmem_no_transport", "root", "nccl",
        r"Unable to initialize any transports|init failed for transport: ?IBGDA|neither nv_peer_mem|"
        r"nvshmem detect topo failed|connect EPS failed|create DCT share err|NULL value Unable to create ah|"
        r"cuMemHostRegister with IoMemory failed|ibgda\.cpp:\d+: (?:non-zero status|NULL value)|"
        r"ibrc\.cpp:\d+: (?:non-zero status|NULL value)",
        ("/x/src/host/transport/transport.cpp:nvshmemi_transport_init:287: Unable to initialize any transports. "
         "returning error.",
         "/x/src/modules/transport/ibgda/ibgda.cpp:nvshmemt_init:3626: neither nv_peer_mem, or nvidia_peermem detected",
         "/x/src/modules/transport/ibgda/ibgda.cpp:2966: non-zero status: 7 create DCT share err.",
         "/x/src/modules/transport/ibrc/ibrc.cpp:1433: non-zero status: 7"),
        "NVSHMEM, which DeepEP uses, cannot use the InfiniBand adapters",
        "IBGDA lets the GPU drive the adapter. It needs the driver options for it, nvidia-peermem or DMA-BUF, adapters "
        "of one type that reach each other, and rights in the container.",
        (Fix("Set the driver's options and load the module, then reboot.",
             ("echo 'options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\"' | sudo "
              "tee /etc/modprobe.d/nvidia.conf", "sudo modprobe nvidia-peermem",
              "mgpu doctor --only gpudirect_rdma_unavailable"), who="admin"),
         Fix("Name the adapters, and on RoCE the GID.",
             ("export NVSHMEM_HCA_LIST=mlx5_0:1,mlx5_1:1", "export NVSHMEM_IB_GID_INDEX=3")),
         Fix("Use the older transport.", ("export NVSHMEM_IB_ENABLE_IBGDA=0",), kind="stopgap", caveat="Slower."),
         _TEST), _INSTALL),
    Row("log_nvshmem_peer_not_accessible", "root", "nccl", r"Peer GPU \d+ is not accessible",
        ("/x/src/host/topo/topo.cpp:476: [GPU 0] Peer GPU 1 is not accessible, exiting ...",),
        "NVSHMEM requires direct access between the GPUs of a node, and two of them do not have it",
        "The GPUs have no NVLink or peer access, or each rank sees only its own GPU (CUDA_VISIBLE_DEVICES, "
        "--gpus-per-task).",
        Fix("Let each rank see all GPUs of its node, and check the connections.",
            ("nvidia-smi topo -p2p r", "srun --gpus-per-node=8 ...", "mgpu doctor --only visibility,links")), _ENV),
    Row("log_nvshmem_bootstrap_failed", "secondary", "network",
        r"bootstrap_uid\.cpp|bootstrap_net_\w+:\d+: |nvshmem(?:i_)?\w*bootstrap\w* .*failed|"
        r"allgather of ipc handles failed",
        ("/x/src/modules/bootstrap/uid/bootstrap_uid.cpp:496: non-zero status: -6",
         "/x/src/host/topo/topo.cpp:477: non-zero status: -6 allgather of ipc handles failed"),
        "NVSHMEM lost the connection to another rank while it started",
        "Another rank failed before it, or the interface that NVSHMEM chose does not connect the nodes.",
        (Fix("Read the log of the rank that failed first.", ("mgpu doctor --log LOGS...",)),
         Fix("Set the interface that connects the nodes.",
             ("export NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=IFACE NCCL_SOCKET_IFNAME=IFACE",))), _ENV),
    Row("log_nvshmem_not_started", "secondary", "nccl",
        r"(?i:nvshmem initialization failed)|NVSHMEM API called before NVSHMEM initialization|"
        r"nvshmem API called before nvshmem_init|aborting due to error in nvshmemi_init|building transport map failed",
        ("/x/src/host/init/init.cu:nvshmemi_check_state_and_init:1080: nvshmem initialization failed, exiting",
         "NVSHMEM API called before NVSHMEM initialization has completed",
         "/x/src/host/init/init.cu:998: non-zero status: 7 building transport map failed"),
        "NVSHMEM did not start",
        "The lines before it have the reason. If there are none: the installed NVSHMEM is not the one that the "
        "extension was built with.",
        (Fix("Show its messages, and check the version.", ("NVSHMEM_DEBUG=INFO mgpu launch train.py",
                                                           "nvshmem-info -a", "pip list | grep -i nvshmem")), _TEST),
        "https://github.com/deepseek-ai/DeepEP/issues/150",
        because_of=("log_nvshmem_no_transport", "log_nvshmem_bootstrap_failed", "log_nvshmem_peer_not_accessible")),
    Row("log_deepep_timed_out", "secondary", "timeout",
        r"DeepEP (?:\w+ ){0,4}timeout|DeepEP error: (?:timeout|CPU recv timeout)|"
        r"EPException.*\b(?:CPU wait|timeout)|DeepEP error: .*timed? ?out",
        ("RuntimeError: DeepEP error: timeout (dispatch CPU)", "RuntimeError: DeepEP error: CPU recv timeout",
         "DeepEP timeout check failed: rank = 0, thread = 3, value = 1024)",
         "DeepEP dispatch RDMA sender timeout, channel: 3, RDMA: 0, nvl: 1, dst RDMA lane: 1, head: 4, tail: 5"),
        "a rank waited for the tokens of another until DeepEP's timeout",
        "The other rank failed, did not run the same expert layer, or its RDMA traffic does not arrive.",
        (Fix("Find the rank that failed or is behind.", ("mgpu doctor --log LOGS...",)), _TEST,
         Fix("If it never worked, check the adapters.", ("mgpu doctor --only infiniband",))), _DEEPEP,
        cases=(NEW_NVSHMEM,)),
    Row("log_deepep_assertion", "root", "script",
        r"Failed: (?:Assertion|CUDA|EP) error .*/(?P<place>[\w.]+:\d+) '(?P<what>(?!local_fd|pidfd).+)'",
        ("RuntimeError: Failed: Assertion error /x/DeepEP/csrc/kernels/runtime.cu:39 'nvshmem_rank == nvshmem_my_pe()'",
         "RuntimeError: Failed: CUDA error /sgl/DeepEP/csrc/deep_ep.cpp:68 'invalid resource handle'"),
        "DeepEP or DeepGEMM failed at {place}: {what}",
        "A condition there does not hold: a size or type that it does not support, buffers that differ "
        "between the ranks, or GPUs that each rank sees differently. A CUDA error is from an earlier kernel.",
        (Fix("Look the condition up in its source, next to that line.", ("pip show deep_ep deep_gemm",)), _TEST),
        _DEEPEP, summary="DeepEP or DeepGEMM failed in its own check of a call."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
