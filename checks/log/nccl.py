"""What did NCCL report about the GPUs, shared memory and the layout of the ranks?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._first_exchange_cases import ENGINE_SHARES_GPU, ONE_GPU_FOR_ALL, PLUGIN_OF_ONE_NODE, SEGMENT_REFUSED
from ._start_cases import CONTAINER_NETWORKS, LINK_LOCAL
from .reinforcement import SEPARATE_GPUS, explain_shared_gpu

_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_MPI = "https://github.com/NVIDIA/nccl/blob/master/docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst"
_INIT = "https://github.com/NVIDIA/nccl/blob/master/src/init.cc"
# fmt: off
_DEBUG = Fix("Run again with NCCL's messages, and read the first WARN.",
             ("NCCL_DEBUG=WARN mgpu launch train.py", "mgpu smoke-test"))
_UPGRADE = Fix("Use a newer NCCL: a newer torch brings one.",
               ("python -c 'import torch; print(torch.cuda.nccl.version())'", "pip install --upgrade torch"))
_SMOKE = Fix("Find a setting that works.", ("mgpu smoke-test", "NCCL_CUMEM_ENABLE=0 mgpu smoke-test",
                                           "NCCL_P2P_DISABLE=1 mgpu smoke-test"))
_SECURITY_GROUP = Fix(
    "Allow all traffic from and to the security group itself, in both directions.",
    ("aws ec2 authorize-security-group-ingress --group-id GROUP --protocol all --source-group GROUP",
     "aws ec2 describe-security-groups --group-ids GROUP"), who="admin")
_CUDA_FAILURES = {
    "OS call failed": (
        "The container or the kernel denies what NCCL needs to share memory between processes: cuMem handles, Unix "
        "sockets or /dev/shm.",
        (Fix("Start the container with the host's IPC.", ("docker run --ipc=host --cap-add=SYS_PTRACE --ulimit "
                                                          "memlock=-1 ...",)),
         Fix("Turn off cuMem in every rank.", ("export NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0",)))),
    "invalid argument": (
        "NCCL and the driver or the GPU do not fit: an NCCL older than the GPU (before 2.26 on GeForce RTX 50), or a "
        "feature that does not work here (cuMem, peer access).",
        (_UPGRADE, _SMOKE)),
    "invalid kernel file": (
        "NCCL's library (RCCL on AMD) has no code for this GPU, or was built for another driver.", (_UPGRADE,)),
    "invalid device function": (
        "NCCL's library has no code for this GPU, or two NCCL libraries are loaded.", (_UPGRADE,)),
    "operation not supported": (
        "The GPU, its driver or the virtual machine lacks a feature that NCCL tried: cuMem, peer access or multicast.",
        (Fix("Turn them off in every rank.", ("export NCCL_CUMEM_ENABLE=0 NCCL_P2P_DISABLE=1 NCCL_NVLS_ENABLE=0",)),
         _SMOKE)),
}
# fmt: on


def _cuda_failure(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    for text, (why, fixes) in _CUDA_FAILURES.items():
        if text in groups["what"]:
            return Meaning(f"a CUDA call in NCCL failed: {groups['what']}", why, (*fixes, _DEBUG))
    return None


# fmt: off
ROWS = (
    Row("log_ranks_share_a_gpu", "root", "nccl",
        r"Duplicate GPU detected : rank \d+ and rank \d+ both on|"
        r"Multiple [Rr]anks are using the same GPU",
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
         "node1:1:2 [0] init.cc:1 NCCL WARN Multiple Ranks are using the same GPU/Partition. Set "
         "NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration."),
        "two ranks use the same GPU",
        "The script does not select its device by LOCAL_RANK (cuda:0 is hard-coded, no set_device), there are more "
        "ranks than GPUs, the vLLM server got a GPU of the trainer, Ray's workers use CUDA before CUDA_VISIBLE_DEVICES "
        "is set, or two slices of one MIG GPU are used.",
        (Fix("Select the device by LOCAL_RANK, or use accelerator.device.",
             ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "mgpu doctor --script train.py")),
         Fix("Start at most as many ranks as GPUs.", ("nvidia-smi -L", "mgpu doctor --only visibility,mig")),
         SEPARATE_GPUS),
        "https://github.com/NVIDIA/nccl/issues/1241", cases=(ENGINE_SHARES_GPU, ONE_GPU_FOR_ALL)),
    Row("log_shm_full_for_nccl", "root", "nccl",
        r"posix_fallocate failed|failed to extend /dev/shm/nccl-\S+|Error while creating shared memory segment|"
        r"Error: failed to (?:extend|create shared memory file) /dev/shm(?!.*Permission denied)",
        ("NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)",
         "node1:1:2 [0] misc/shmutils.cc:132 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-WU88OE "
         "(size 9637888), error: No space left on device (28)",
         "NCCL WARN Call to posix_fallocate failed : No space left on device"),
        "/dev/shm is too small or full for NCCL",
        "NCCL keeps its buffers there if GPUs have no direct connection. Containers get 64 MB by default. torch only "
        "prints 'unhandled system error'.",
        (Fix("Give the container more shared memory.", ("docker run --ipc=host ...", "docker run --shm-size=8g ...",
                                                        "mgpu doctor --only shm_too_small,shm_holds_leftovers")),
         Fix("Turn off shared memory in NCCL.", ("export NCCL_SHM_DISABLE=1",), kind="stopgap", caveat="Much slower.")),
        "https://github.com/NVIDIA/nccl/issues/290", cases=(SEGMENT_REFUSED,)),
    Row("log_shm_segment_gone", "root", "nccl",
        r"Error while attaching to shared memory segment (?!\S*nccl-\S* \(size 0\))|unlink shared memory \S+ failed|"
        r"Call to shm_open failed(?! ?: Permission denied)|shm_unlink \S+ failed",
        ("NCCL WARN unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory",
         "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-abc (size 9637888), error: No such "
         "file or directory (2)"),
        "NCCL's shared memory disappeared during the run",
        "systemd removes a user's shared memory when the last login session ends (RemoveIPC), or the ranks run in "
        "containers that do not share /dev/shm.",
        (Fix("Turn off RemoveIPC in systemd.",
             ("echo RemoveIPC=no | sudo tee -a /etc/systemd/logind.conf && sudo systemctl restart systemd-logind",
              "mgpu doctor --only shared_memory_removed_at_logout"), who="admin"),
         Fix("Put the containers of one run in one IPC namespace.", ("docker run --ipc=host ...",))), _MPI),
    Row("log_nvls_fails", "root", "nccl",
        r"Failed to bind NVLink SHARP|nvls\.cc:\d+ NCCL WARN Cuda failure|"
        r"operation cannot be performed in the present state|NVLS.*multicast.*fail",
        ("Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot "
         "be performed in the present state'.",
         "node1:1:2 [0] transport/nvls.cc:169 NCCL WARN Cuda failure 1 'invalid argument'"),
        "NVLink SHARP (NVLS) setup failed: the NVSwitches' multicast memory cannot be used",
        "NCCL 2.18 and later use multicast in the NVSwitches. The fabric manager or IMEX has a fault or another "
        "version than the driver, another run holds the multicast memory, or the container or virtual machine has only "
        "some GPUs of the node.",
        (Fix("Turn off multicast in the environment of every rank. All-reduce within the node is slower.",
             ("export NCCL_NVLS_ENABLE=0",)),
         Fix("Restart the fabric manager in the driver's version.",
             ("sudo systemctl restart nvidia-fabricmanager", "mgpu doctor --only links"), who="admin")),
        "https://github.com/NVIDIA/nccl/issues/1672"),
    Row("log_imex_not_permitted", "root", "nccl", r"Cuda failure (?:800 )?'operation not permitted'",
        ("transport/p2p.cc:275 NCCL WARN Cuda failure 800 'operation not permitted'",),
        "this user cannot use an IMEX channel, through which GPUs share memory across nodes",
        "On systems with an NVLink domain (GB200), NCCL opens /dev/nvidia-caps-imex-channels.",
        (Fix("Give the user or the container a channel.",
             ("ls -l /dev/nvidia-caps-imex-channels", "docker run --gpus all -e NVIDIA_IMEX_CHANNELS=0 ...",
              "mgpu doctor --only imex_channel_unusable"), who="admin"),
         Fix("Turn off multi-node NVLink.",
             ("export NCCL_MNNVL_ENABLE=0",), kind="stopgap", caveat="Nodes use the network instead.")),
        "https://github.com/NVIDIA/nccl/blob/master/docs/userguide/source/troubleshooting/performance_and_tuning.rst"),
    Row("log_rank_twice", "root", "nccl", r"Bootstrap Root : rank (?P<rank_no>\d+) of (?P<of>\d+) ranks has already",
        ("NCCL WARN Bootstrap Root : rank 0 of 16 ranks has already checked in",),
        "two processes report that they are rank {rank_no} of {of}",
        "Two nodes have the same machine_rank: one YAML was copied to all nodes, or a Slurm variable was expanded in "
        "the batch shell, where it is 0.",
        Fix("Give every node its own number.",
            ("mgpu launch --node-rank N train.py", "srun bash -c 'accelerate launch --machine_rank $SLURM_NODEID ...'",
             "mgpu doctor --only config_machine_rank_fixed")),
        "https://github.com/NVIDIA/nccl/blob/master/src/bootstrap.cc", summary="Two processes have the same rank."),
    Row("log_nccl_versions_differ", "root", "nccl",
        r"Mismatched NCCL version detected|NCCL version mismatch with remote peer",
        ("NCCL WARN Mismatched NCCL version detected : rank 0 version 22605 rank 8 version 22703",
         "NCCL WARN NCCL version mismatch with remote peer 10.0.0.2<40000>"),
        "the nodes have different NCCL versions",
        "The versions use different protocols, so the process group is not created, or hangs.",
        Fix("Use the same environment on all nodes. Check LD_PRELOAD and LD_LIBRARY_PATH for another NCCL.",
            ("python -c 'import torch; print(torch.cuda.nccl.version())'", "mgpu doctor --only nccl")), _INIT),
    Row("log_interface_not_found", "root", "nccl",
        r"Bootstrap : no socket interface found|is neither AF_INET\(\d+\) nor AF_INET6|"
        r"no device found matching .* verify NCCL_OOB_NET_IFNAME|No interface found in the same subnet|"
        r"NET/Socket : (?:no interface|No usable listening interface) found|no device found after excluding ",
        ("NCCL WARN Bootstrap : no socket interface found",
         "NCCL WARN ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
         "NCCL WARN NET/Socket : no interface found",
         "NCCL WARN No interface found in the same subnet as remote address 10.0.0.1<5000>"),
        "NCCL finds no network interface with the configured name",
        "NCCL_SOCKET_IFNAME (often copied from another cluster) matches no interface here.",
        Fix("Unset it, or set an existing interface.",
            ("unset NCCL_SOCKET_IFNAME", "ip -br addr", "mgpu doctor --only socket_interface_missing")),
        "https://github.com/NVIDIA/nccl/issues/1837"),
    Row("log_data_port_unreachable", "root", "network",
        r"[Cc]onnect to (?!127\.)\S+ (?:failed|returned)(?: with error)? ?:? ?(?:\d+\()?"
        r"(?:No route to host|Connection timed out|Connection refused|Network is unreachable|"
        r"Software caused connection abort|Connection reset by peer)(?!\)?, retrying)|"
        r"NCCL WARN Call to connect (?:returned|timeout :|failed :) (?:No route|Connection (?:timed|refused)|"
        r"Network is unreach)|"
        r"socketPollConnect: connect(?: to \S+)? returned (?:No route|Connection (?:timed|refused))|"
        r"socketStartConnect: exceeded retries",
        ("NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route to host",
         "NCCL WARN socketStartConnect: Connect to 10.0.0.1<40001> failed : Connection refused",
         "NCCL WARN socketPollConnect: connect to 10.0.0.2<4000> returned Connection timed out, exceeded error retry "
         "count (35)",
         "NCCL WARN socketPollConnect: Connect to 10.10.0.3<51423> returned 113(No route to host) errno 0",
         "NCCL WARN socketStartConnect: Connect to 10.1.2.3<41443> failed : Software caused connection abort"),
        "NCCL cannot reach another node on the port it selected there",
        "The rendezvous port is open, but NCCL also uses random ports. A firewall blocks them, or the interface does "
        "not connect the nodes (docker0, a management network). Connection refused: the other side had already "
        "exited.",
        (Fix("Set the interface that connects the nodes.",
             ("ip -br addr", "export NCCL_SOCKET_IFNAME=IFACE", "mgpu doctor --only network")),
         Fix("Open the ports between the nodes.", ("sysctl net.ipv4.ip_local_port_range",), who="admin")),
        "https://github.com/NVIDIA/nccl/issues/1105", cases=(LINK_LOCAL,)),
    Row("log_pci_tree_hidden", "root", "nccl", r"Could not find real path of /sys/class/pci_bus",
        ("graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:21/../../0000:21:00.0",),
        "NCCL cannot find the GPUs in /sys",
        "This is WSL2, or a container or virtual machine without the PCI tree.",
        Fix("Use a newer NCCL, or mount /sys in the container.",
            ("pip install --upgrade torch", "docker run -v /sys:/sys:ro ...", "mgpu doctor --only pci_tree_hidden")),
        "https://github.com/NVIDIA/nccl/issues/442"),
    Row("log_iommu_hangs_peers", "root", "nccl", r"Missing \"iommu=pt\" from kernel command line",
        ('NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',),
        "the IOMMU translates traffic between GPUs, which can cause hangs",
        "Without pass-through, direct traffic between GPUs can go to the wrong address.",
        Fix("Boot the kernel with iommu=pt.",
            ("cat /proc/cmdline", "mgpu doctor --only iommu_translates_peer_traffic,pcie_acs_redirects"), who="admin"),
        _TROUBLE, tags=("can_hang",)),
    Row("log_efa_not_used", "secondary", "nccl", r"Selected [Pp]rovider is (?:tcp|sockets)\b",
        ("NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)",),
        "the AWS plugin uses TCP instead of EFA",
        "The EFA devices are not in the container, or FI_PROVIDER excludes them. On a node without EFA this is "
        "normal.",
        Fix("Pass the devices to the container.",
            ("export FI_PROVIDER=efa", "docker run --device=/dev/infiniband/uverbs0 ...", "fi_info -p efa",
             "mgpu doctor --only efa_plugin_missing")), "https://github.com/aws/aws-ofi-nccl/issues/803"),
    Row("log_ofi_plugin_failed", "root", "nccl",
        r"(?:NCCL WARN |^)NET/OFI (?!.*(?:Selected|Unresponsive receiver|insert remote address))(?P<words>.+)",
        ("node1:1:2 [0] nccl_net_ofi_create_plugin:199 NCCL WARN NET/OFI Unable to find a protocol that worked.",
         "node1:1:2 [0] NCCL WARN NET/OFI Couldn't open CQ. RC: -12, ERROR: Cannot allocate memory"),
        "the AWS network plugin of NCCL failed: {words}",
        "libfabric, the plugin and NCCL are incompatible, the locked memory limit is low, the adapters are missing, or "
        "the nodes' security group does not allow all traffic to itself (inbound and outbound), which EFA needs.",
        (Fix("Check the adapters and the limit.",
             ("fi_info -p efa", "ulimit -l", "mgpu doctor --only efa_plugin_missing,locked_memory_limited")),
         _SECURITY_GROUP),
        "https://github.com/aws/aws-ofi-nccl/issues/803", summary="The AWS network plugin of NCCL failed."),
    Row("log_efa_peer_unreachable", "root", "network",
        r"NET/OFI .*(?:Unresponsive receiver|Unable to insert remote address into address vector)",
        ("ofi_process_cq:246 NCCL WARN NET/OFI Request 0x7f1c completed with error. RC: 107. Error: 4126 (Unresponsive "
         "receiver (reachable by EFA device but handshake failed)) My EFA addr: fi_addr_efa://[fe80::13]:0:1001",
         "NET/OFI Unable to insert remote address into address vector for device 1. RC: 0"),
        "the EFA adapter of another node does not respond, probably because of the security group",
        "EFA traffic is not IP traffic: a rule for 0.0.0.0/0 does not cover it. The security group of the nodes must "
        "name itself as source (inbound) and as destination (outbound) for all traffic. Otherwise the other rank "
        "exited, or the nodes are in different subnets.",
        (_SECURITY_GROUP, Fix("Test EFA alone.", ("fi_info -p efa", "mgpu smoke-test"))),
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html",
        because_of=("log_nccl_versions_differ",)),
    Row("log_nccl_adapter_id_unknown", "root", "nccl", r"Could not find NET with id \d+",
        ("hpc-n041:88213:88911 [0] graph/topo.h:230 NCCL WARN Could not find NET with id 0",),
        "NCCL's search for paths failed: a fault of NCCL 2.25 and 2.26 with several network adapters per GPU",
        "NCCL joins adapters into one, finds no path for its pattern, and falls back to an adapter number that no "
        "longer exists. NCCL 2.27 and later keep that number.",
        Fix("Use NCCL 2.27 or later: torch 2.8 or later, or a container of 2025-06 or later.",
            ("python -c 'import torch; print(torch.cuda.nccl.version())'", "pip install --upgrade torch")),
        "https://github.com/NVIDIA/nccl/issues/1748"),
    Row("log_google_plugin_failed", "root", "nccl",
        r"NCCL WARN NET/(?:GPUDirectTCPX|FasTrak|GIB)\b(?P<words>.+)",
        ("node1:1:2 [0] NCCL WARN NET/GPUDirectTCPX failed to connect client socket",),
        "Google's network plugin of NCCL (GPUDirect-TCPX, FasTrak, gIB) failed{words}",
        "The plugin, its daemon (RxDM), the driver and NCCL must be of one release: torch brings its own NCCL, which "
        "can be newer than the plugin that the node mounts.",
        (Fix("Use the NCCL that belongs to the plugin, and check that its daemon runs.",
             ("export LD_LIBRARY_PATH=/usr/local/nvidia/lib64:$LD_LIBRARY_PATH", "kubectl logs POD -c tcpx-daemon")),
         Fix("Or do without the plugin.", ("export NCCL_NET=Socket",), kind="stopgap", caveat="Much slower.")),
        "https://github.com/GoogleCloudPlatform/container-engine-accelerators/issues/414",
        summary="Google's network plugin of NCCL failed."),
    Row("log_network_named_not_there", "root", "nccl",
        r"Error: network \S+ not found|Failed to initialize any NET plugin|"
        r"NCCL_NET_PLUGIN .* not found",
        ("node1:1:2 [0] net.cc:1 NCCL WARN Error: network IB not found.",
         "node1:1:2 [0] plugin/net.cc:311 NCCL WARN Failed to initialize any NET plugin"),
        "NCCL cannot find the network that it was configured to use",
        "NCCL_NET or NCCL_NET_PLUGIN names one whose library or adapter does not exist.",
        Fix("Let NCCL choose.",
            ("unset NCCL_NET NCCL_NET_PLUGIN",
             "mgpu doctor --only nccl_plugin_not_loadable,infiniband,verbs_library_missing")), _ENV,
        cases=(PLUGIN_OF_ONE_NODE,)),
    Row("log_nccl_setting_refused", "root", "nccl",
        r"NCCL WARN (?P<words>(?:Invalid (?!rank |device |argument |client |regBuf|GIN |PCI )|"
        r"Error : no algorithm|No algorithm/protocol available|NCCL_[A-Z0-9_]+).+)",
        ("node1:1:2 [0] graph/tuning.cc:1 NCCL WARN No algorithm/protocol available for function AllReduce "
         "with datatype ncclFloat32.", "node1:1:2 [0] NCCL WARN Invalid value for NCCL_ALGO: foo",
         "node1:1:2 [0] NCCL WARN NCCL_TOPO_FILE could not be parsed"),
        "NCCL rejected a setting: {words}",
        "A variable (NCCL_ALGO, NCCL_PROTO, NCCL_TOPO_FILE) or an nccl.conf excludes or misspells what NCCL needs.",
        Fix("Unset NCCL's variables one by one.",
            ("env | grep ^NCCL_", "mgpu doctor --only environ")), _ENV, summary="NCCL rejected a setting."),
    Row("log_nccl_topology_file_bad", "root", "nccl",
        r"NCCL WARN (?:Could not open XML|XML Parse|Attribute \w+ of node \w+ not found)",
        ("node1:1:2 [0] graph/xml.h:1 NCCL WARN Attribute coll of node net not found",
         "node1:1:2 [0] graph/xml.cc:1 NCCL WARN XML Parse error : expecting <, got -"),
        "the topology from NCCL_TOPO_FILE or a plugin cannot be used",
        "NCCL_TOPO_FILE is for another type of node, or the plugin has an incompatible version.",
        Fix("Let NCCL detect the topology.",
            ("unset NCCL_TOPO_FILE", "mgpu doctor --only topology_file_misfit")), _ENV),
    Row("log_nccl_cuda_failed", "secondary", "nccl",
        r"^(?!.*(?:nvls|transport/p2p|transport/shm|misc/cudawrap)\.cc).*NCCL WARN (?:HIP failure|"
        r"Cuda failure) (?!(?:800 )?'operation not permitted|"
        r"(?:2 )?'out of memory|(?:3 )?'initialization error|"
        r"(?:217 )?'peer access)(?P<what>.+)",
        ("node1:1:2 [3] init.cc:1 NCCL WARN Cuda failure 999 'unknown error'",
         "node1:1:2 [0] enqueue.cc:100 NCCL WARN Cuda failure 'invalid argument'"),
        "a CUDA call in NCCL failed: {what}",
        "An earlier error occurred on the same GPU, memory ran out, or the driver rejects a feature (cuMem, "
        "multicast).",
        (Fix("Look for an earlier CUDA error of this rank, and for an Xid.",
             ("mgpu doctor --only xid", "mgpu smoke-test")), _DEBUG), _TROUBLE, summary="A CUDA call in NCCL failed.",
        explain=_cuda_failure),
    Row("log_nccl_peer_memory_failed", "root", "nccl",
        r"transport/p2p\.cc:\d+ NCCL WARN (?!.*(?:'operation not permitted'|'out of memory'|'peer access))(?P<what>.+)",
        ("node1:1:2 [0] transport/p2p.cc:298 NCCL WARN Cuda failure 'invalid argument'",
         "node1:1:2 [3] transport/p2p.cc:275 NCCL WARN Cuda failure 1 'invalid argument'"),
        "NCCL could not open a GPU's memory from another rank of the node (P2P over CUDA IPC): {what}",
        "The ranks run in separate containers or see other GPUs (CUDA_VISIBLE_DEVICES per rank), memory was allocated "
        "by an allocator that cannot be shared (expandable_segments, vLLM's sleep mode), or cuMem does not work here "
        "or is turned off (vLLM sets NCCL_CUMEM_ENABLE=0).",
        (Fix("If NCCL_CUMEM_ENABLE is 0, set it to 1 in all processes of the group.", ("export NCCL_CUMEM_ENABLE=1",)),
         Fix("Try without cuMem, then without P2P: which one helps shows the cause.",
             ("NCCL_CUMEM_ENABLE=0 mgpu smoke-test", "NCCL_P2P_DISABLE=1 mgpu smoke-test")),
         Fix("Give all ranks of a node one container, and let each see all GPUs.",
             ("docker run --ipc=host --gpus all ...", "mgpu doctor --only links,visibility"))),
        "https://github.com/NVIDIA-NeMo/RL/issues/564",
        summary="NCCL could not open a GPU's memory from another rank of the node."),
    Row("log_nccl_message_truncated", "root", "nccl", r"NCCL WARN Message truncated : received",
        ("node1:1:2 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 172 bytes instead of 64",),
        "two ranks exchanged messages of different sizes while NCCL set up a group",
        "The ranks are out of step: they create different groups, or the same groups in another order. Across nodes, "
        "NCCL versions that differ cause the same message.",
        (Fix("Look for new_group() and collectives under a condition on the rank.", ("mgpu doctor --script train.py",)),
         Fix("With several nodes, compare the versions.",
             ("python -c 'import torch; print(torch.cuda.nccl.version())'", "mgpu doctor --only nccl"))), _INIT),
    Row("log_nccl_stranger", "secondary", "nccl", r"wrong magic|invalid magic|Unexpected magic|"
        r"\[Service thread\] Unknown command \d+ from localRank|\[Rem Allocator\] Allocation failed",
        ("node1:1:2 [0] misc/socket.cc:520 NCCL WARN socketFinalizeAccept: wrong magic 474554202f != 1234",
         "n1:1:2 [0] proxy.cc:1500 NCCL WARN [Service thread] Unknown command 790 from localRank -1",
         "n1:1:2 [0] bootstrap.cc:279 NCCL WARN [Rem Allocator] Allocation failed (segment 0, fd 130)"),
        "a program other than this run's ranks connected to NCCL's port",
        "It is a port scanner of the network, or a rank of another job with the same address. NCCL rejects it.",
        Fix("Use ports that are not scanned, and give each job its own rendezvous.",
            ("export NCCL_SOCKET_IFNAME=IFACE", "ss -tnp | head")),
        "https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc"),
    Row("log_nvlink_peers_disabled", "secondary", "nccl", r"P2P is disabled between NVLINK connected GPUs",
        ("NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their "
         "connectivity, and is probably due to a hardware issue.",),
        "two GPUs are connected by NVLink, but direct access between them does not work",
        "A link is down, the driver or the fabric manager is in a bad state, or a virtual machine hides the link. "
        "Traffic goes through host memory, which is much slower.",
        Fix("Check the links, and restart the fabric manager or the node.",
            ("nvidia-smi nvlink -s", "nvidia-smi topo -p2p r", "mgpu doctor --only links"), who="admin"), _TROUBLE),
    Row("log_nccl_adapters_differ", "secondary", "nccl",
        r"Detected mixed local (?:Coll)?Net device counts|mismatched? number of (?:local )?(?:net|NET) devices",
        ("node1:1:2 [0] init.cc:700 NCCL WARN Detected mixed local Net device counts: 8 vs 7",),
        "the nodes or ranks have different numbers of network adapters",
        "An adapter is down or missing on one node. NCCL then may fail, or use fewer adapters everywhere.",
        Fix("Compare the adapters of the nodes.", ("ibv_devinfo | grep -E 'hca_id|state'", "mgpu doctor --only "
                                                                                           "infiniband"),
            who="admin"), _INIT),
    Row("log_nccl_on_loopback", "secondary", "network",
        r"^(?!.*, retrying).*[Cc]onnect(?:ing)? to (?:address )?127\.\d+\.\d+\.\d+<\d+>.*"
        r"(?:refused|timed out|No route|failed)",
        ("NCCL WARN socketStartConnect: Connect to 127.0.0.1<40001> failed : Connection refused",),
        "a rank could not connect to another one at the loopback address",
        "On one node the loopback interface is fine: the other rank had already exited, and has the cause. With "
        "several nodes it cannot work: NCCL_SOCKET_IFNAME is lo, or no other interface is up.",
        (Fix("With one node, find the rank that exited first.", ("mgpu doctor --log LOGS...",)),
         Fix("With several nodes, set the interface that connects them.",
             ("export NCCL_SOCKET_IFNAME=IFACE", "ip -br addr", "mgpu doctor --only socket_interface_missing"))), _ENV),
    Row("log_nccl_peer_gone", "secondary", "nccl",
        r"^(?!.*NCCL INFO ).*Connection closed by (?:remote peer|localRank)|Socket recv failed|Net : Call to recv from|"
        r"ncclRemoteError: A call failed|(?<!INFO )\[(?:Service thread|Proxy Service[^\]]*)\] (?:Connection closed|"
        r"Error encountered"
        r"|Accept failed)|socketProgress: Connection closed|remote process (?:has terminated|exited)",
        ("node1:202016:202238 [2] proxy.cc:1326 NCCL WARN Socket recv failed",
         "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
         "NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3, closing connection",
         "NCCL WARN socketProgress: Connection closed by remote peer node2<45000>",
         "NCCL WARN Net : Call to recv from 10.0.0.1<40000> failed : Connection reset by peer"),
        "NCCL detected that another rank disappeared",
        "The connection closed because the process at the other end exited. That rank has the cause.",
        Fix("Find the rank that exited first, in its own log.", ("mgpu doctor --log LOGS...",)), _TROUBLE),
    Row("log_nccl_system_error", "wrapper", "nccl", r"unhandled system error|ncclSystemError",
        ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
         "RuntimeError: NCCL error in: /x/NCCLUtils.hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for "
         "details), NCCL version 2.18.5"),
        "a system call in NCCL failed; see 'Last error:' or NCCL's WARN lines for which one",
        "The cause is shared memory, sockets, locked memory or InfiniBand. torch does not report which.",
        _DEBUG, "https://github.com/vllm-project/vllm/issues/6574", cases=(CONTAINER_NETWORKS,)),
    Row("log_nccl_invalid_usage", "wrapper", "nccl",
        r"ncclInvalidUsage: This usually reflects invalid usage|ncclInvalidArgument: Invalid value for an argument|"
        r"NCCL error(?: in)?: (?:.*, )?invalid (?:usage|argument)|NCCL Error \d+: invalid (?:usage|argument)",
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
         "RuntimeError: NCCL Error 5: invalid usage",
         "ncclInvalidArgument: Invalid value for an argument."),
        "NCCL rejected a call; the reason follows 'Last error:'",
        "The usual cause is two ranks on one GPU, or ranks that pass different sizes.", _DEBUG, _TROUBLE,
        explain=explain_shared_gpu),
    Row("log_nccl_internal_error", "wrapper", "nccl", r"ncclInternalError: Internal check failed|"
        r"NCCL (?:error(?: in)?: (?:.*, )?|Error \d+: )internal error",
        ("ncclInternalError: Internal check failed.",
         "RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers",
         "RuntimeError: NCCL error in: /x/ProcessGroupNCCL.cpp:1, internal error, NCCL version 2.18.1"),
        "NCCL stopped with an internal error; the reason follows 'Last error:' or is in its WARN lines",
        "The cause is the topology, the interface, or a rank that disappeared.", _DEBUG, _TROUBLE),
    Row("log_nccl_cuda_error", "wrapper", "nccl", r"ncclUnhandledCudaError: Call to CUDA|unhandled cuda error",
        ("ncclUnhandledCudaError: Call to CUDA function failed.",
         "torch.distributed.DistBackendError: NCCL error in: /x/NCCLUtils.cpp:93, unhandled cuda error (run with "
         "NCCL_DEBUG=INFO for details), NCCL version 2.26.2"),
        "a CUDA call inside NCCL failed; see 'Last error:' or NCCL's WARN lines for which one",
        "The cause is memory, NVLink SHARP, peer access or a GPU in an error state. torch does not report which.",
        _DEBUG, _TROUBLE),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
