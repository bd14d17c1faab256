"""What did NCCL say of the GPUs, of shared memory and of how the ranks are laid out?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_MPI = "https://github.com/NVIDIA/nccl/blob/master/docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst"
_INIT = "https://github.com/NVIDIA/nccl/blob/master/src/init.cc"
# fmt: off
_DEBUG = Fix("Start again with NCCL's own words, and read the first WARN.",
             ("NCCL_DEBUG=WARN mgpu launch train.py", "mgpu smoke-test"))

ROWS = (
    Row("log_ranks_share_a_gpu", "root", "nccl",
        r"Duplicate GPU detected : rank \d+ and rank \d+ both on|"
        r"Multiple [Rr]anks are using the same GPU",
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
         "node1:1:2 [0] init.cc:1 NCCL WARN Multiple Ranks are using the same GPU/Partition. Set "
         "NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration."),
        "two ranks are on the same GPU",
        "The script does not choose its device by LOCAL_RANK (cuda:0 fixed, no set_device), more ranks than GPUs are "
        "started, or two slices of one MIG GPU are used.",
        (Fix("Choose the device by LOCAL_RANK, or use accelerator.device.",
             ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "mgpu doctor --script train.py")),
         Fix("Start at most as many ranks as GPUs.", ("nvidia-smi -L", "mgpu doctor --only visibility,mig"))),
        "https://github.com/NVIDIA/nccl/issues/1241"),
    Row("log_shm_full_for_nccl", "root", "nccl",
        r"posix_fallocate failed|failed to extend /dev/shm/nccl-\S+|Error while creating shared memory segment|"
        r"Error: failed to extend /dev/shm",
        ("NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)",
         "node1:1:2 [0] misc/shmutils.cc:132 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-WU88OE "
         "(size 9637888), error: No space left on device (28)",
         "NCCL WARN Call to posix_fallocate failed : No space left on device"),
        "/dev/shm is too small, or full, for NCCL",
        "NCCL keeps its buffers there where GPUs have no direct way; containers get 64 MB. torch shows only "
        "'unhandled system error'.",
        (Fix("Give the container more.", ("docker run --ipc=host ...", "docker run --shm-size=8g ...",
                                          "mgpu doctor --only shm_too_small,shm_holds_leftovers")),
         Fix("Go without it.", ("export NCCL_SHM_DISABLE=1",), kind="stopgap", caveat="Much slower.")),
        "https://github.com/NVIDIA/nccl/issues/290"),
    Row("log_shm_segment_gone", "root", "nccl",
        r"Error while attaching to shared memory segment|unlink shared memory \S+ failed|"
        r"Call to shm_open failed|shm_unlink \S+ failed",
        ("NCCL WARN unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory",
         "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-abc (size 0), error: No such file or "
         "directory (2)"),
        "shared memory of NCCL vanished under the run",
        "systemd removes a user's shared memory when the last login session ends (RemoveIPC), or the ranks are in "
        "containers that do not share /dev/shm.",
        (Fix("Keep systemd from it.",
             ("echo RemoveIPC=no | sudo tee -a /etc/systemd/logind.conf && sudo systemctl restart systemd-logind",
              "mgpu doctor --only shared_memory_removed_at_logout"), who="admin"),
         Fix("Containers of one run: one IPC namespace.", ("docker run --ipc=host ...",))), _MPI),
    Row("log_nvls_fails", "root", "nccl",
        r"Failed to bind NVLink SHARP|nvls\.cc:\d+ NCCL WARN Cuda failure|"
        r"operation cannot be performed in the present state|NVLS.*multicast.*fail",
        ("Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot "
         "be performed in the present state'.",
         "node1:1:2 [0] transport/nvls.cc:169 NCCL WARN Cuda failure 1 'invalid argument'"),
        "NVLink SHARP (NVLS) cannot be set up: the fabric manager is not in order",
        "NCCL 2.18 and later use multicast in the NVSwitches; where the fabric manager or IMEX is not well, the first "
        "collective fails, and torch says 'unhandled cuda error'.",
        (Fix("Restart the fabric manager, in the driver's version.",
             ("sudo systemctl restart nvidia-fabricmanager", "mgpu doctor --only links"), who="admin"),
         Fix("Go without multicast.", ("export NCCL_NVLS_ENABLE=0",), kind="stopgap",
             caveat="All-reduce inside the machine is slower.")),
        "https://github.com/pytorch/ci-infra/pull/541"),
    Row("log_imex_not_permitted", "root", "nccl", r"Cuda failure (?:800 )?'operation not permitted'",
        ("transport/p2p.cc:275 NCCL WARN Cuda failure 800 'operation not permitted'",),
        "this user may not use an IMEX channel, through which GPUs share memory across machines",
        "On NVLink-domain machines (GB200) NCCL opens /dev/nvidia-caps-imex-channels.",
        (Fix("Give the user or the container a channel.",
             ("ls -l /dev/nvidia-caps-imex-channels", "docker run --gpus all -e NVIDIA_IMEX_CHANNELS=0 ...",
              "mgpu doctor --only imex_channel_unusable"), who="admin"),
         Fix("Go without.", ("export NCCL_MNNVL_ENABLE=0",), kind="stopgap", caveat="Machines talk over the network.")),
        "https://github.com/NVIDIA/nccl/blob/master/docs/userguide/source/troubleshooting/performance_and_tuning.rst"),
    Row("log_rank_twice", "root", "nccl", r"Bootstrap Root : rank (?P<rank_no>\d+) of (?P<of>\d+) ranks has already",
        ("NCCL WARN Bootstrap Root : rank 0 of 16 ranks has already checked in",),
        "two processes say that they are rank {rank_no} of {of}",
        "Two machines have the same machine_rank: one YAML was copied to all, or a Slurm variable was expanded in the "
        "batch shell, where it is 0.",
        Fix("Give every machine its own number.",
            ("mgpu launch --node-rank N train.py", "srun bash -c 'accelerate launch --machine_rank $SLURM_NODEID ...'",
             "mgpu doctor --only config_machine_rank_fixed")),
        "https://github.com/NVIDIA/nccl/blob/master/src/bootstrap.cc", summary="Two processes have the same rank."),
    Row("log_nccl_versions_differ", "root", "nccl",
        r"Mismatched NCCL version detected|NCCL version mismatch with remote peer|"
        r"NCCL WARN Message truncated : received",
        ("NCCL WARN Mismatched NCCL version detected : rank 0 version 22605 rank 8 version 22703",
         "node1:1:2 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 172 bytes instead of 64"),
        "the machines have different versions of NCCL",
        "Ranks of another version speak another protocol: the group is not formed, or hangs.",
        Fix("Use the same environment everywhere; look for one that LD_PRELOAD or LD_LIBRARY_PATH puts in front.",
            ("python -c 'import torch; print(torch.cuda.nccl.version())'", "mgpu doctor --only nccl")), _INIT),
    Row("log_interface_not_found", "root", "nccl",
        r"Bootstrap : no socket interface found|is neither AF_INET\(\d+\) nor AF_INET6|"
        r"no device found matching .* verify NCCL_OOB_NET_IFNAME|No interface found in the same subnet|"
        r"NET/Socket : no interface found",
        ("NCCL WARN Bootstrap : no socket interface found",
         "NCCL WARN ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
         "NCCL WARN NET/Socket : no interface found",
         "NCCL WARN No interface found in the same subnet as remote address 10.0.0.1<5000>"),
        "NCCL finds no network interface of the name that it was given",
        "NCCL_SOCKET_IFNAME (often copied from another cluster) matches none here.",
        Fix("Unset it, or name one that is there.",
            ("unset NCCL_SOCKET_IFNAME", "ip -br addr", "mgpu doctor --only socket_interface_missing")),
        "https://github.com/NVIDIA/nccl/issues/1837"),
    Row("log_data_port_unreachable", "root", "network",
        r"[Cc]onnect to \S+ (?:failed|returned) ?:? ?"
        r"(?:No route to host|Connection timed out|Connection refused)(?!, retrying)|"
        r"socketPollConnect: connect(?: to \S+)? returned (?:No route|Connection (?:timed|refused))|"
        r"socketStartConnect: exceeded retries",
        ("NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route to host",
         "NCCL WARN socketStartConnect: Connect to 10.0.0.1<40001> failed : Connection refused",
         "NCCL WARN socketPollConnect: connect to 10.0.0.2<4000> returned Connection timed out, exceeded error retry "
         "count (35)"),
        "NCCL cannot reach another machine on the port it chose there",
        "The meeting port is open, but NCCL takes further ports at random: a firewall between the machines, or an "
        "interface that leads nowhere (docker0, a management network). Refused: the other side had already ended.",
        (Fix("Name the interface that joins the machines.",
             ("ip -br addr", "export NCCL_SOCKET_IFNAME=IFACE", "mgpu doctor --only network")),
         Fix("Open the ports between the machines.", ("sysctl net.ipv4.ip_local_port_range",), who="admin")),
        "https://github.com/NVIDIA/nccl/issues/1105"),
    Row("log_pci_tree_hidden", "root", "nccl", r"Could not find real path of /sys/class/pci_bus",
        ("graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:21/../../0000:21:00.0",),
        "NCCL cannot find the GPUs in /sys",
        "WSL2, or a container or virtual machine without the PCI tree.",
        Fix("Use a newer NCCL, or give the container /sys.",
            ("pip install --upgrade torch", "docker run -v /sys:/sys:ro ...", "mgpu doctor --only pci_tree_hidden")),
        "https://github.com/NVIDIA/nccl/issues/442"),
    Row("log_iommu_hangs_peers", "root", "nccl", r"Missing \"iommu=pt\" from kernel command line",
        ('NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',),
        "the IOMMU translates what GPUs send each other, which can hang",
        "Without pass-through, direct traffic between GPUs goes astray.",
        Fix("Start the kernel with iommu=pt.",
            ("cat /proc/cmdline", "mgpu doctor --only iommu_translates_peer_traffic,pcie_acs_redirects"), who="admin"),
        _TROUBLE),
    Row("log_efa_not_used", "secondary", "nccl", r"Selected [Pp]rovider is (?:tcp|sockets)\b",
        ("NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)",),
        "the AWS plugin uses TCP in place of EFA",
        "The EFA devices are not in the container, or FI_PROVIDER forbids them; on a machine without EFA this is "
        "normal.",
        Fix("Hand the devices over.",
            ("export FI_PROVIDER=efa", "docker run --device=/dev/infiniband/uverbs0 ...", "fi_info -p efa",
             "mgpu doctor --only efa_plugin_missing")), "https://github.com/aws/aws-ofi-nccl/issues/803"),
    Row("log_ofi_plugin_failed", "root", "nccl",
        r"NCCL WARN NET/OFI (?!.*Selected)(?P<words>.+)",
        ("node1:1:2 [0] nccl_net_ofi_create_plugin:199 NCCL WARN NET/OFI Unable to find a protocol that worked.",
         "node1:1:2 [0] NCCL WARN NET/OFI Couldn't open CQ. RC: -12, ERROR: Cannot allocate memory"),
        "the AWS network plugin of NCCL failed: {words}",
        "libfabric, the plugin and NCCL do not fit, the memory lock limit is low, or the adapters are missing.",
        Fix("See the adapters and the limit.",
            ("fi_info -p efa", "ulimit -l", "mgpu doctor --only efa_plugin_missing,locked_memory_limited")),
        "https://github.com/aws/aws-ofi-nccl/issues/803", summary="The AWS network plugin of NCCL failed."),
    Row("log_network_named_not_there", "root", "nccl",
        r"Error: network \S+ not found|Failed to initialize any NET plugin|"
        r"NCCL_NET_PLUGIN .* not found",
        ("node1:1:2 [0] net.cc:1 NCCL WARN Error: network IB not found.",
         "node1:1:2 [0] plugin/net.cc:311 NCCL WARN Failed to initialize any NET plugin"),
        "NCCL was told to use a network that it does not find",
        "NCCL_NET or NCCL_NET_PLUGIN names one, and its library or adapter is not there.",
        Fix("Let NCCL choose.",
            ("unset NCCL_NET NCCL_NET_PLUGIN",
             "mgpu doctor --only nccl_plugin_not_loadable,infiniband,verbs_library_missing")), _ENV),
    Row("log_nccl_setting_refused", "root", "nccl",
        r"NCCL WARN (?P<words>(?:Invalid|Error : no algorithm|No algorithm/protocol available|NCCL_[A-Z0-9_]+).+)",
        ("node1:1:2 [0] graph/tuning.cc:1 NCCL WARN No algorithm/protocol available for function AllReduce "
         "with datatype ncclFloat32.", "node1:1:2 [0] NCCL WARN Invalid value for NCCL_ALGO: foo",
         "node1:1:2 [0] NCCL WARN NCCL_TOPO_FILE could not be parsed"),
        "NCCL does not take a setting: {words}",
        "A variable (NCCL_ALGO, NCCL_PROTO, NCCL_TOPO_FILE) or an nccl.conf forbids or misnames what it needs.",
        Fix("Take NCCL's variables away, one after the other.",
            ("env | grep ^NCCL_", "mgpu doctor --only environ")), _ENV, summary="NCCL does not take a setting."),
    Row("log_nccl_topology_file_bad", "root", "nccl",
        r"NCCL WARN (?:Could not open XML|XML Parse|Attribute \w+ of node \w+ not found)",
        ("node1:1:2 [0] graph/xml.h:1 NCCL WARN Attribute coll of node net not found",
         "node1:1:2 [0] graph/xml.cc:1 NCCL WARN XML Parse error : expecting <, got -"),
        "the topology that NCCL was given, or a plugin reports, cannot be used",
        "NCCL_TOPO_FILE is of another machine type, or a plugin of another version fills it.",
        Fix("Let NCCL find the topology.", ("unset NCCL_TOPO_FILE", "mgpu doctor --only topology_file_misfit")), _ENV),
    Row("log_nccl_cuda_failed", "secondary", "nccl",
        r"^(?!.*nvls\.cc).*NCCL WARN (?:HIP failure|Cuda failure) (?!(?:800 )?'operation not permitted|"
        r"(?:2 )?'out of memory|"
        r"(?:217 )?'peer access)(?P<what>.+)",
        ("node1:1:2 [0] enqueue.cc:100 NCCL WARN Cuda failure 'invalid argument'",
         "node1:1:2 [3] init.cc:1 NCCL WARN Cuda failure 999 'unknown error'"),
        "a CUDA call of NCCL failed: {what}",
        "An earlier error on the same GPU, memory that ran out, or a driver that refuses a feature (cuMem, multicast).",
        (Fix("Look for an earlier CUDA error of this rank, and for an Xid.",
             ("mgpu doctor --only xid", "mgpu smoke-test")), _DEBUG), _TROUBLE, summary="A CUDA call of NCCL failed."),
    Row("log_nccl_peer_gone", "secondary", "nccl",
        r"Connection closed by (?:remote peer|localRank)|Socket recv failed|Net : Call to recv from|"
        r"ncclRemoteError: A call failed|\[(?:Service thread|Proxy Service[^\]]*)\] (?:Connection closed|"
        r"Error encountered"
        r"|Accept failed)|socketProgress: Connection closed|remote process (?:has terminated|exited)",
        ("node1:202016:202238 [2] proxy.cc:1326 NCCL WARN Socket recv failed",
         "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
         "NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3, closing connection",
         "NCCL WARN socketProgress: Connection closed by remote peer node2<45000>",
         "NCCL WARN Net : Call to recv from 10.0.0.1<40000> failed : Connection reset by peer"),
        "another rank disappeared, and NCCL noticed",
        "The connection ended because the process at its other end did: that rank has the cause.",
        Fix("Look for the rank that ended first, in its own log.", ("mgpu doctor --log LOGS...",)), _TROUBLE),
    Row("log_nccl_system_error", "wrapper", "nccl", r"unhandled system error|ncclSystemError",
        ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
         "RuntimeError: NCCL error in: /x/NCCLUtils.hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for "
         "details), NCCL version 2.18.5"),
        "a system call of NCCL failed; which one stands behind 'Last error:' or in its WARN lines",
        "Shared memory, sockets, locked memory or InfiniBand: torch does not tell which.",
        _DEBUG, "https://github.com/vllm-project/vllm/issues/6574"),
    Row("log_nccl_invalid_usage", "wrapper", "nccl",
        r"ncclInvalidUsage: This usually reflects invalid usage|ncclInvalidArgument: Invalid value for an argument|"
        r"NCCL error in: .*invalid (?:usage|argument)|NCCL Error \d+: invalid (?:usage|argument)",
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
         "RuntimeError: NCCL Error 5: invalid usage",
         "ncclInvalidArgument: Invalid value for an argument."),
        "NCCL refuses what it was asked for; the reason stands behind 'Last error:'",
        "Mostly two ranks on one GPU, or ranks that pass different sizes.", _DEBUG, _TROUBLE),
    Row("log_nccl_internal_error", "wrapper", "nccl", r"ncclInternalError: Internal check failed|"
        r"NCCL error in: .*internal error",
        ("ncclInternalError: Internal check failed.",
         "RuntimeError: NCCL error in: /x/ProcessGroupNCCL.cpp:1, internal error, NCCL version 2.18.1"),
        "NCCL ended with an internal error; the reason stands behind 'Last error:' or in its WARN lines",
        "The topology or the interface, or a rank that disappeared.", _DEBUG, _TROUBLE),
    Row("log_nccl_cuda_error", "wrapper", "nccl", r"ncclUnhandledCudaError: Call to CUDA|unhandled cuda error",
        ("ncclUnhandledCudaError: Call to CUDA function failed.",
         "torch.distributed.DistBackendError: NCCL error in: /x/NCCLUtils.cpp:93, unhandled cuda error (run with "
         "NCCL_DEBUG=INFO for details), NCCL version 2.26.2"),
        "a CUDA call inside NCCL failed; which one stands behind 'Last error:' or in its WARN lines",
        "Memory, NVLink SHARP, peer access or a GPU that is in error: torch does not tell which.", _DEBUG, _TROUBLE),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
