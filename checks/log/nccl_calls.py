"""Did NCCL refuse a call: its buffers, its root, its group, its streams, or how the ranks can reach each other?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import reported

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_SRC = "https://github.com/NVIDIA/nccl/blob/master/src"
_SCRIPT = "mgpu doctor --script train.py"
_FIRST = Fix("Find the rank that exited first, in its own log.", ("mgpu doctor --log LOGS...",))

# fmt: off
_DOMAIN_WANTED = Case(
    reported(r"MNNVL is not supported on this system"),
    "NCCL_MNNVL_ENABLE=1 requires NVLink between nodes, which this system does not have or this NCCL does not use",
    "With 1, NCCL stops if the GPUs of several nodes are not in one NVLink domain. With 2 or without the variable, it "
    "uses such a domain if there is one.",
    (Fix("Unset it.", ("unset NCCL_MNNVL_ENABLE", "env | grep ^NCCL_")),),
    "node1:4802:4871 [1] init.cc:850 NCCL WARN MNNVL is not supported on this system\n", _ENV)
_EXECUTED = Case(
    reported(r"Failed to execute operation (?:Setup|Connect) from rank"),
    "NCCL's helper thread failed while it set up a connection for a rank",
    "The thread allocates the buffers and opens the transport (shared memory, P2P, InfiniBand) on behalf of a rank of "
    "the node. Its own first WARN line, just before this one, has the reason: memory, /dev/shm, or an adapter.",
    (Fix("Read the WARN line before it, also in the logs of the other ranks of the node.",
         ("NCCL_DEBUG=WARN mgpu launch train.py", "mgpu doctor --log LOGS...")),
     Fix("Test the transports one by one.", ("mgpu smoke-test", "df -h /dev/shm"))),
    "node1:4802:4871 [1] proxy.cc:1458 NCCL WARN [Proxy Service 1] Failed to execute operation Connect from rank 1, "
    "retcode 3\n", f"{_SRC}/proxy.cc")

ROWS = (
    Row("log_nccl_sizes_differ", "root", "script",
        r"NET/Socket : peer \S+ message truncated : receiving|message truncated : receiving \d+ bytes instead of \d+|"
        r"collective mismatch error,? local size|posted incorrect receive info: size",
        ("node1:1:2 [0] transport/net_socket.cc:500 NCCL WARN NET/Socket : peer 10.0.0.2<40001> message truncated : "
         "receiving 1048576 bytes instead of 65536. If you believe your socket network is in a healthy state, there "
         "may be a mismatch in collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks",
         "node1:1:2 [0] transport/net_ib.cc:1700 NCCL WARN NET/IB : req 0/1 tag 1 peer 10.0.0.2<40001> collective "
         "mismatch error, local size 4096 remote size 8192"),
        "two ranks called a collective with tensors of different sizes, or with different NCCL settings",
        "The receiving rank expects another number of bytes than the sender transfers. Usually the tensors have "
        "different shapes on the ranks (a batch that is not padded, another model), or the ranks are in different "
        "collectives. Otherwise NCCL_ALGO, NCCL_PROTO or NCCL_BUFFSIZE differ between the nodes.",
        (Fix("Let torch name the collective and the shapes of each rank.",
             ("TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch train.py", _SCRIPT)),
         Fix("Compare NCCL's variables on all nodes.", ("env | grep ^NCCL_", "cat /etc/nccl.conf ~/.nccl.conf"))),
        f"{_SRC}/transport/net_socket.cc"),
    Row("log_nccl_root_outside", "root", "script",
        r"invalid root (?:\d+) \(root should be in the|[Ii]nvalid root (?:rank|tensor): ?(?:-?\d+)|"
        r"Invalid rank requested : (?:-?\d+)/|improper usage of ncclCommInitRank: nId",
        ("node1:1:2 [0] misc/argcheck.cc:204 NCCL WARN Broadcast : invalid root 5 (root should be in the 0..4 range)",
         "ValueError: ProcessGroupGloo::broadcast: invalid root rank: 4",
         "node1:1:2 [0] init.cc:2501 NCCL WARN Invalid rank requested : 8/8"),
        "a collective names a rank that its group does not have",
        "The root (src, dst) or the rank is outside of the group: the script uses a fixed rank of a larger job, or a "
        "position in a group where torch expects the rank in the whole job, or the reverse.",
        Fix("Take the root from the group.",
            ("src = torch.distributed.get_global_rank(group, 0)", "torch.distributed.get_world_size(group)", _SCRIPT)),
        f"{_SRC}/misc/argcheck.cc"),
    Row("log_nccl_buffer_elsewhere", "root", "script",
        r"NCCL WARN \w+ : \w+ (?:0x)?[0-9a-f]+ is not a valid pointer|"
        r"\w+ : \w+ allocated on device (?:\d+) mismatch\w* with NCCL device (?:\d+)",
        ("node1:1:2 [0] misc/argcheck.cc:16 NCCL WARN AllReduce : sendbuff 0x7f21c4000000 is not a valid pointer",
         "node1:1:2 [1] misc/argcheck.cc:24 NCCL WARN AllReduce : sendbuff allocated on device 0 mismatch"
         "s with NCCL device 1"),
        "a collective got a tensor that is not on the GPU of its group",
        "The rank's group belongs to one GPU, but the tensor is on another GPU or in host memory: a fixed cuda:0, "
        "`.cuda()` before torch.cuda.set_device(), or a tensor on the CPU.",
        Fix("Select the rank's GPU before anything else, and create tensors on it.",
            ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "t = t.to(f'cuda:{{local_rank}}')", _SCRIPT)),
        f"{_SRC}/misc/argcheck.cc"),
    Row("log_nccl_no_transport", "root", "nccl", r"No transport found for rank \d+\S* -> rank \d+",
        ("node1:1:2 [0] transport.cc:43 NCCL WARN No transport found for rank 0[1b000] -> rank 1[1c000]",),
        "NCCL has no way to transfer data between two ranks: every transport that connects them is turned off",
        "Within a node NCCL uses P2P or shared memory, otherwise the network. NCCL_P2P_DISABLE and NCCL_SHM_DISABLE "
        "leave the network only, and NCCL_NET or an interface that is down can exclude that too. Containers on one "
        "node that do not share /dev/shm have the same effect.",
        (Fix("Unset the variables that turn transports off.",
             ("env | grep ^NCCL_", "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_NET", "mgpu smoke-test")),
         Fix("Give all ranks of a node one container.", ("docker run --gpus all --ipc=host --network=host ...",))),
        f"{_SRC}/transport.cc"),
    Row("log_nccl_domain_not_usable", "root", "nccl", r"MNNVL \(cliqueSize \d+\) is available but not|"
        r"MNNVL is not supported on this system",
        ("node1:1:2 [0] mnnvl.cc:60 NCCL WARN MNNVL (cliqueSize 72) is available but not working on some system. Check "
         "the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this "
         "issue.",
         "node1:1:2 [0] mnnvl.cc:60 NCCL WARN MNNVL (cliqueSize 18) is available but not supported on this system. "
         "Check the IMEX configuration."),
        "the GPUs of several nodes are in one NVLink domain (GB200), but this process cannot share memory over it",
        "NCCL exports GPU memory to other nodes through an IMEX channel. The IMEX daemon does not run on each node of "
        "the domain, their configs list different nodes, or the job or container has no channel device.",
        (Fix("Check the daemon on each node, and give the job a channel.",
             ("nvidia-imex-ctl -N", "ls -l /dev/nvidia-caps-imex-channels",
              "docker run --gpus all -e NVIDIA_IMEX_CHANNELS=0 ...", "mgpu doctor --only imex_channel_unusable"),
             who="admin"),
         Fix("Or use the network between the nodes.", ("export NCCL_MNNVL_ENABLE=0",), kind="stopgap",
             caveat="Traffic between the nodes is slower.")), _ENV, cases=(_DOMAIN_WANTED,)),
    Row("log_nccl_proxy_lost", "secondary", "nccl",
        r"\[Service thread\] Could not receive type from localRank|Proxy Call to rank \d+ failed|"
        r"\[Proxy Service \d+\] Failed to execute operation|ncclProxyCallBlocking\w* call to (?:tpRank|rank)|"
        r"ncclProxyClient\w+ call to (?:tpRank|top parent rank)|\[Proxy Service\w*\] Poll failed",
        ("node1:1:2 [1] proxy.cc:1533 NCCL WARN [Service thread] Could not receive type from localRank 0, res=3, "
         "closed=0", "node1:1:2 [1] proxy.cc:1100 NCCL WARN Proxy Call to rank 1 failed (Connect)",
         "node1:1:2 [1] proxy.cc:1458 NCCL WARN [Proxy Service 1] Failed to execute operation Setup from rank 1, "
         "retcode 3"),
        "NCCL's helper thread lost the connection to a rank of the same node",
        "The thread serves all ranks of a node. The connection closed because that rank stopped, or because an earlier "
        "call in it failed. The first WARN line of that rank has the cause.", _FIRST, f"{_SRC}/proxy.cc",
        cases=(_EXECUTED,)),
    Row("log_nccl_sends_to_itself", "root", "script", r"Trying to (?:send|recv) to self without a matching",
        ("node1:1:2 [0] enqueue.cc:1160 NCCL WARN Trying to send to self without a matching recv",),
        "a rank sends to itself and does not receive, or the reverse",
        "The rank of the neighbor was computed as this rank's own: a pipeline or ring of size 1, a position in a group "
        "used as a rank of the job, or several ranks with the same number.",
        (Fix("Print rank, source and destination before the call, and skip it if they are equal.",
             ("assert dst != torch.distributed.get_rank()", _SCRIPT)),
         Fix("Post both directions together.", ("torch.distributed.batch_isend_irecv([send, recv])",))),
        f"{_SRC}/enqueue.cc"),
    Row("log_nccl_used_too_early", "root", "nccl",
        r"Attempt to use communicator before the previous operation returned|"
        r"Blocking and nonblocking communicators are not allowed in the same group",
        ("node1:1:2 [0] init.cc:430 NCCL WARN Attempt to use communicator before the previous operation returned "
         "ncclSuccess",),
        "NCCL runs in its nonblocking mode, and a collective was called before the group was ready",
        "TORCH_NCCL_USE_COMM_NONBLOCKING=1 (or eager initialization with it) lets calls return early. It is "
        "experimental, and libraries that call NCCL themselves do not wait.",
        Fix("Turn it off.", ("unset TORCH_NCCL_USE_COMM_NONBLOCKING NCCL_COMM_BLOCKING",)), f"{_SRC}/init.cc"),
    Row("log_nccl_driver_too_old", "root", "cuda",
        r"CUDA Driver version found is (?:\d+)\. Minimum requirement is (?:\d+)|"
        r"Failed to find CUDA library \S*libcuda|NCCL WARN cuDriverGetVersion failed",
        ("node1:1:2 [0] misc/cudawrap.cc:285 NCCL WARN CUDA Driver version found is 11020. Minimum requirement is "
         "11030",
         "node1:1:2 [0] misc/cudawrap.cc:190 NCCL WARN Failed to find CUDA library libcuda.so (NCCL_CUDA_PATH='') : "
         "libcuda.so: cannot open shared object file"),
        "NCCL cannot use the driver: it is too old for this NCCL, or its library libcuda was not found",
        "NCCL opens the driver's libcuda itself. In a container it is there only if the NVIDIA runtime mounts it, and "
        "NCCL_CUDA_PATH overrides where it is searched.",
        (Fix("Upgrade the driver, or use a torch for the CUDA of this driver.",
             ("nvidia-smi | head -n 4", "mgpu doctor --only driver,container"), who="admin"),
         Fix("In a container, start it with the GPUs.",
             ("docker run --gpus all ...", "unset NCCL_CUDA_PATH", "ldconfig -p | grep libcuda"))),
        f"{_SRC}/misc/cudawrap.cc", summary="NCCL cannot use the driver."),
    Row("log_nccl_topology_unreadable", "root", "nccl",
        r"NCCL WARN (?:Could not find real path of (?!/sys/class/pci_bus)|No path computed to go from|"
        r"Error : could not find CPU close to GPU|Could not find any local path from gpu|"
        r"Failed to find reverse path from|Could not find intermediate GPU between|"
        r"Add (?:PCI Link|NVLink|C2c) error|Error : too many (?:Topo links|XML nodes)|"
        r"Error : XML parser is limited|Error : tried to create too many nodes|"
        r"GetXmlFromCpu : could not find CPU numa ID|Error : ring \d+ does not (?:loop back|contain))",
        ("node1:1:2 [0] graph/paths.cc:192 NCCL WARN Error : could not find CPU close to GPU 3",
         "node1:1:2 [0] graph/topo.cc:2048 NCCL WARN Could not find any local path from gpu 2 to net.",
         "node1:1:2 [0] graph/xml.cc:871 NCCL WARN Error : XML parser is limited to 32 subnodes"),
        "NCCL could not make sense of how the GPUs, CPUs and adapters of this node are connected",
        "It reads the PCI tree from /sys. In virtual machines and containers parts of that tree are missing, flat or "
        "not those of the GPUs, and NCCL_TOPO_FILE can describe another type of node. Some releases of NCCL also fail "
        "on large trees.",
        (Fix("Unset the file, mount /sys, and try a newer NCCL.",
             ("unset NCCL_TOPO_FILE NCCL_GRAPH_FILE", "docker run -v /sys:/sys:ro ...",
              "pip install --upgrade torch", "mgpu doctor --only pci_tree_hidden,topology_file_misfit")),
         Fix("On a cloud machine, use the topology file of the provider for this type."),
         ), f"{_SRC}/graph/topo.cc"),
    Row("log_nccl_streams_mixed_in_graph", "root", "script",
        r"Streams given to a communicator within a NCCL group must|"
        r"Either none or all communicators in a ncclGroup\(\) can be CUDA graph captured",
        ("node1:1:2 [0] enqueue.cc:2596 NCCL WARN Streams given to a communicator within a NCCL group must either be "
         "all uncaptured or all captured by the same graph.",),
        "some collectives of one NCCL group were captured in a CUDA graph and others were not",
        "A part of the step is captured (torch.compile with reduce-overhead, make_graphed_callables), while DDP, FSDP "
        "or a pipeline calls collectives on another stream at the same time.",
        Fix("Capture the whole step, or turn CUDA graphs off for the parts that communicate.",
            ("torch.compile(model, mode='default')", "torch._inductor.config.triton.cudagraphs = False")),
        f"{_SRC}/enqueue.cc"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
