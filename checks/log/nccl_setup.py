"""Did NCCL fail to set up memory, sockets or the driver's libraries on one node?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import every, never, passed, reported, shown

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_IPC = "https://github.com/NVIDIA/nccl/blob/master/src/misc/ipcsocket.cc"
_NVML = "https://github.com/NVIDIA/nccl/blob/master/src/misc/nvmlwrap.cc"
_IB = "https://github.com/NVIDIA/nccl/blob/master/src/transport/net_ib/init.cc"
# fmt: off
_IN_USED_PROCESS = Case(
    passed(r"^torch/distributed/distributed_c10d\.py in |^torch/nn/parallel/distributed\.py in __init__$"),
    "NCCL could not set up its first communicator: the CUDA driver reports an initialization error to it",
    "torch has already put data on the GPU for this call, so CUDA works in this process. On nodes with NVSwitches, "
    "NCCL 2.18 and later set up multicast memory (NVLS) here, which fails if the fabric manager does not run or the "
    "container lacks its devices. Otherwise the process was forked from one that had used CUDA.",
    (Fix("Let NCCL name the place: the line with WARN has its file (nvls.cc: multicast).",
         ("NCCL_DEBUG=INFO mgpu smoke-test 2>&1 | grep -B3 WARN",)),
     Fix("Turn off multicast in the environment of every rank. All-reduce within the node is slower.",
         ("export NCCL_NVLS_ENABLE=0", "mgpu doctor --only links")),
     Fix("If the script forks ranks itself, start them with spawn.",
         ("torch.multiprocessing.set_start_method('spawn')",))),
    "Traceback (most recent call last):\n"
    '  File "/w/train.py", line 9, in <module>\n'
    "    torch.distributed.barrier()\n"
    '  File "/env/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py", line 3665, in barrier\n'
    "    work = default_pg.barrier(opts=opts)\n"
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1197, unhandled cuda error, NCCL version "
    "2.18.3\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\n"
    "Last error:\n"
    "Cuda failure 'initialization error'\n",
    "https://github.com/NVIDIA/nccl/blob/v2.18.3-1/src/transport/nvls.cc")
_WORKERS = Fix("Ray, mpirun and ssh do not pass the shell's variables to the ranks: set them in env_vars of Ray's "
               "runtime_env, or before `ray start`, and with mpirun -x.", ("mpirun -x NCCL_CUMEM_HOST_ENABLE=0 ...",))
_FALLS_BACK = ("The plugin is not loaded. NCCL goes on with its own transport, often TCP sockets: the run is slower "
               "between nodes, or fails where only the plugin's network connects them.")


def _interface(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain which library is too old, or the wrong one, for a network plugin."""
    library, version = groups["library"].rpartition("/")[2], groups["version"]
    which = ("NCCL_DEBUG=INFO mgpu smoke-test 2>&1 | grep NET/",)
    if version.startswith("FABRIC_"):
        return Meaning(
            f"NCCL's network plugin (aws-ofi-nccl) is not loaded: the libfabric that it finds is too old, it lacks "
            f"{version}",
            f"The plugin was built for a newer libfabric than {groups['library']}. {_FALLS_BACK} EFA is not used.",
            (Fix("Upgrade the EFA software, which brings libfabric, or install an older aws-ofi-nccl.",
                 ("fi_info --version; ldconfig -p | grep libfabric", "conda list | grep aws-ofi-nccl", *which)),),
        )
    if version.startswith(("IBVERBS_", "MLX5_", "EFA_", "RDMACM_")):
        return Meaning(
            f"NCCL's network plugin is not loaded: two versions of the RDMA libraries (rdma-core) are mixed, and "
            f"{library} lacks {version}",
            f"{groups['library']} is found first, and is of another rdma-core release than the library that needs "
            f"{version}. Private interfaces fit within one release only. {_FALLS_BACK}",
            (Fix("Let the loader find one rdma-core only: remove the other folder from LD_LIBRARY_PATH and "
                 "/etc/ld.so.conf.d, or put the system's first.",
                 ("ldconfig -p | grep -E 'libibverbs|libefa|libmlx5'; echo $LD_LIBRARY_PATH",
                  "export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:$LD_LIBRARY_PATH", *which)),),
        )
    return None


ROWS = (
    Row("log_net_plugin_not_loaded", "secondary", "nccl",
        r"(?:NET|TUNER)/Plugin ?:.*?(?P<library>[\w.+/-]+\.so[\w.]*): version `(?P<version>\w[\w.]*)' not found",
        ("NCCL INFO NET/Plugin: libnccl-net.so: /lib/libfoo.so.1: version `FOO_2.1' not found (required by "
         "libnccl-net.so)",
         "NCCL INFO NET/Plugin : dlerror=/opt/amazon/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found (required "
         "by /x/lib/libnccl-net.so) No plugin found (libnccl-net.so), using internal implementation",
         "NCCL INFO NET/Plugin: libnccl-net-ofi.so: /opt/rdma-core/build/lib/libibverbs.so.1: version "
         "`IBVERBS_PRIVATE_34' not found (required by /usr/lib/x86_64-linux-gnu/libefa.so.1)"),
        "NCCL's network plugin is not loaded: {library} lacks the interface {version}",
        f"The loader finds an older library than the plugin was built for. {_FALLS_BACK}",
        Fix("Upgrade that library, or install a plugin that was built for it.",
            ("echo $LD_LIBRARY_PATH; ldconfig -p | grep -E 'libnccl-net|libfabric'",)),
        "https://github.com/awslabs/awsome-distributed-ai/issues/292",
        summary="NCCL's network plugin is not loaded: a library that it needs is of another version.",
        explain=_interface),
    Row("log_shm_not_permitted", "root", "nccl",
        r"Call to shm_open failed ?: Permission denied|shared memory file \S+, error Permission denied",
        ("node8:1:2 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied",),
        "NCCL may not create shared memory: /dev/shm is not writable for this user",
        "The folder needs the rights 1777. A mount with other rights, a container's security profile, or a file of "
        "another user with the same name prevents it. Its size is not the cause.",
        (Fix("Check the rights, and correct them.", ("ls -ld /dev/shm", "sudo chmod 1777 /dev/shm"), who="admin"),
         Fix("Or run without shared memory, which is slower.", ("export NCCL_SHM_DISABLE=1",), kind="stopgap",
             caveat="GPUs without peer access then exchange through the network.")),
        "https://github.com/pytorch/pytorch/issues/37004"),
    Row("log_nccl_host_memory_path", "root", "nccl",
        r"transport/shm\.cc:\d+ NCCL WARN (?:Cuda|CUDA) failure .+|"
        r"misc/cudawrap\.cc:\d+ NCCL WARN (?:Cuda|CUDA) failure .+",
        ("9b40:774:854 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these "
         "two devices'",
         "node1:1:2 [1] transport/shm.cc:588 NCCL WARN Cuda failure 2 'out of memory'",
         "node1:1:2 [0] misc/cudawrap.cc:36 NCCL WARN Cuda failure 1 'invalid argument'"),
        "NCCL could not share host memory between the ranks of a node through CUDA (cuMem)",
        "NCCL 2.24 and later allocate it with cuMem instead of /dev/shm. That fails where GPUs have no peer access, "
        "where a container or the system has no NUMA support, or with some drivers.",
        (Fix("Use /dev/shm instead, in the environment of every rank.",
             ("export NCCL_CUMEM_HOST_ENABLE=0", "df -h /dev/shm  # it needs about 1 GB")), _WORKERS),
        "https://github.com/NVIDIA/nccl/issues/1838"),
    Row("log_nccl_host_memory_paths_differ", "root", "nccl",
        r"Error while attaching to shared memory segment \S*nccl-\S* \(size 0\)",
        ("h:1:2 [0] misc/shmutils.cc:87 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size "
         "0), error: No such file or directory (2)",),
        "the ranks of a node share host memory in two different ways: one with cuMem, one with /dev/shm",
        "Each rank tests by itself whether cuMem host memory works. On some NUMA layouts it works for the GPUs of one "
        "socket only, and a rank then reads the other's handle as a file name (size 0).",
        Fix("Let all ranks use /dev/shm.", ("export NCCL_CUMEM_HOST_ENABLE=0", "numactl -H")),
        "https://github.com/NVIDIA/nccl/issues/2190"),
    Row("log_nccl_out_of_memory", "root", "cuda",
        r"^(?!.*transport/shm\.cc).*(?:NCCL WARN (?:Cuda|HIP) failure (?:2 )?'out of memory'|"
        r"NCCL WARN Failed to CUDA (?:calloc|malloc|host alloc)\b)",
        ("node1:1:2 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
         "h:1:2 [0] include/alloc.h:120 NCCL WARN Failed to CUDA calloc async 608 bytes",
         "h:1:2 [0] include/alloc.h:60 NCCL WARN Failed to CUDA host alloc 10485760 bytes"),
        "NCCL could not allocate its buffers: a GPU's memory is full",
        "NCCL needs memory that torch's cache or another process already holds: up to some GB with many ranks or "
        "process groups. If several ranks use GPU 0, it is full although the others are empty.",
        (Fix("Leave memory for it: a smaller batch, or a lower share for vLLM and torch.",
             ("nvidia-smi", "mgpu doctor --only gpu_busy", "--gpu-memory-utilization 0.8",
              "torch.cuda.set_per_process_memory_fraction(0.9)")),
         Fix("Check that each rank selects its own GPU.",
             ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "mgpu doctor --script train.py")),
         Fix("If the GPUs are empty, host memory is meant (cuMem on a NUMA node).",
             ("export NCCL_CUMEM_HOST_ENABLE=0",))),
        "https://github.com/pytorch/pytorch/issues/152302", because_of=("log_nccl_host_memory_path",),
        cases=(Case(every(shown("wsl"), never(reported(r"Tried to allocate"))),
                    "NCCL could not allocate memory that two GPUs share: probably the limits of WSL2, not a full GPU",
                    "The machine is Windows with WSL2, which has no direct access between GPUs and little memory that "
                    "GPU and host can share. NCCL reports that as 'out of memory', also if the GPUs are empty.",
                    (Fix("Look whether the GPUs are really full.", ("nvidia-smi",)),
                     Fix("Turn off the paths that WSL2 lacks, one after the other.",
                         ("export NCCL_P2P_DISABLE=1", "export NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0",
                          "export NCCL_SHM_DISABLE=1", "mgpu smoke-test")),
                     Fix("Or use gloo, or Linux without Windows: both GPUs work there.")),
                    "  host      : DESKTOP-356K2N7.localdomain\n"
                    "DESKTOP-356K2N7:1:2 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
                    "https://github.com/NVIDIA/nccl/issues/442"),)),
    Row("log_nccl_handles_not_passed", "root", "nccl",
        r"NCCL WARN UDS: (?P<what>.+)",
        ("h:1:2 [0] misc/ipcsocket.cc:95 NCCL WARN UDS: Binding to socket /tmp/nccl-socket-0-4dd7 failed : Address "
         "already in use (98)",
         "h:1:2 [0] misc/ipcsocket.cc:300 NCCL WARN UDS: Sending data over socket /tmp/nccl-socket-1-7f failed : "
         "Connection refused (111)"),
        "the ranks of a node cannot pass each other handles of GPU memory (Unix socket): {what}",
        "The sockets belong to a network namespace. Ranks of one node in separate containers do not see each other's, "
        "and two runs in one namespace can choose the same name. If a rank exited, its socket disappeared.",
        (Fix("Check first whether another rank exited.", ("mgpu doctor --log LOGS...",)),
         Fix("Start all ranks of a node in one container, or with the host's network.",
             ("docker run --network=host --ipc=host ...",)),
         Fix("Use the older way, without such sockets.", ("export NCCL_CUMEM_ENABLE=0",), kind="stopgap",
             caveat="NVLink SHARP and multi-node NVLink need cuMem.")),
        _IPC, summary="The ranks of a node cannot pass each other handles of GPU memory."),
    Row("log_nccl_nvml_missing", "root", "nccl",
        r"NCCL WARN (?:Failed to open libnvidia-ml\.so|"
        r"nvml\w+\([^)]*\) failed: (?!Driver/library|GPU is lost))",
        ("h:1:2 [0] misc/nvmlwrap.cc:100 NCCL WARN Failed to open libnvidia-ml.so.1: libnvidia-ml.so.1: cannot open "
         "shared object file: No such file or directory",
         "h:1:2 [0] misc/nvmlwrap.cc:183 NCCL WARN nvmlInit_v2() failed: Unknown Error",
         "h:1:2 [0] misc/nvmlwrap.cc:210 NCCL WARN nvmlDeviceGetHandleByIndex(3) failed: Not Found"),
        "NCCL cannot use the driver's management library (NVML)",
        "The container has libcuda but not libnvidia-ml (the capability `utility`), it lost its GPUs, or a GPU does "
        "not respond.",
        (Fix("See whether nvidia-smi, which uses the same library, works there.",
             ("nvidia-smi -L", "mgpu doctor --only driver,container")),
         Fix("Give the container both capabilities.",
             ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",))), _NVML),
    Row("log_nccl_initialized_after_fork", "root", "nccl",
        r"^(?!.*nvls\.cc).*NCCL WARN (?:Cuda|CUDA) failure (?:3 )?'initialization error'",
        ("node1:1:2 [0] init.cc:100 NCCL WARN Cuda failure 3 'initialization error'",
         "NCCL WARN Cuda failure 'initialization error'"),
        "CUDA does not start in a rank: probably it was forked from a process that had used CUDA",
        "A forked process cannot use its parent's CUDA context. If it was not forked, the driver does not start in "
        "this process (/dev/nvidia-uvm is missing, or the limit on processes was reached).",
        (Fix("Start processes with spawn, and do not call torch.cuda before.",
             ("torch.multiprocessing.set_start_method('spawn')", "export VLLM_WORKER_MULTIPROC_METHOD=spawn")),
         Fix("Check whether CUDA works in a new process.", ("mgpu doctor --deep --only cuda",))),
        "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing",
        because_of=("log_nvls_fails",), cases=(_IN_USED_PROCESS,)),
    Row("log_nccl_sizes_of_world_differ", "root", "launcher",
        r"Bootstrap Root : mismatch in (?:info|rank count) from procs",
        ("h:1:2 [0] bootstrap.cc:100 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8",
         "h:1:2 [0] bootstrap.cc:130 NCCL WARN Bootstrap Root : mismatch in info from procs, nranks 16 vs 8, nroots 1 "
         "vs 1, iroot 0 vs 0, offset 0 vs 0"),
        "the ranks do not agree on how many they are (WORLD_SIZE)",
        "The nodes were started with different counts, or ranks of an earlier run still connect to the same address "
        "and port.",
        (Fix("Start every node with the same counts.",
             ("env | grep -E 'WORLD_SIZE|NNODES'", "mgpu launch --dry-run train.py")),
         Fix("Stop what is left of earlier runs.", ("mgpu doctor --only rank_orphaned",))),
        "https://github.com/NVIDIA/nccl/blob/master/src/bootstrap.cc"),
    Row("log_ib_link_types_mixed", "root", "network",
        r"Attempted to (?:connect|merge) incompatible devices|"
        r"NET/IB : Remote \S+ device is incompatible with the local",
        ("h:1:2 [0] transport/net_ib.cc:900 NCCL WARN NET/IB : Attempted to connect incompatible devices: "
         "[0]mlx5_0:1/IB and [1]mlx5_2:1/RoCE. Try selecting NICs of only one link type using NCCL_IB_HCA",
         "h:1:2 [0] transport/net_ib/connect.cc:400 NCCL WARN NET/IB : Remote RoCE device is incompatible with the "
         "local [0]mlx5_0:1/IB. Try selecting NICs of only one link type using NCCL_IB_HCA"),
        "NCCL connects an InfiniBand adapter with an Ethernet (RoCE) adapter",
        "The nodes have adapters of both types, and NCCL uses all of them.",
        Fix("Name the adapters of one type, the same on all nodes.",
            ("ibv_devinfo | grep -E 'hca_id|link_layer'", "export NCCL_IB_HCA=mlx5_0,mlx5_1",
             "mgpu doctor --only infiniband")), _IB),
    Row("log_ib_without_address", "root", "network", r"NET/IB : No IP interface found",
        ("h:1:2 [0] transport/net_ib.cc:200 NCCL WARN NET/IB : No IP interface found.",),
        "NCCL found InfiniBand adapters but no network interface with an IP address to set up their connections",
        "NCCL_SOCKET_IFNAME excludes or misspells all interfaces, or none is up in the container.",
        Fix("Unset it, or set an interface that is up.",
            ("unset NCCL_SOCKET_IFNAME", "ip -br addr", "mgpu doctor --only socket_interface_missing")), _ENV),
    Row("log_nccl_feature_of_newer_gpu", "root", "script", r"FP8 reduction support begins with sm90",
        ("h:1:2 [0] enqueue.cc:100 NCCL WARN FP8 reduction support begins with sm90 capable devices.",),
        "an all-reduce of fp8 tensors was requested on GPUs older than Hopper",
        "NCCL reduces fp8 on compute capability 9.0 and newer only.",
        Fix("Convert the tensor to bf16 before the collective.", ("torch.distributed.all_reduce(t.bfloat16())",)),
        _TROUBLE),
    Row("log_memory_handle_denied", "root", "cuda", r"pidfd_getfd[:` '].{0,4}(?:Operation not permitted|failed)|"
                                                    r"pidfd_open.{0,4}(?:Operation not permitted|failed)",
        ("RuntimeError: pidfd_getfd: Operation not permitted",
         "RuntimeError: Failed: Assertion error /x/symmetric.hpp:232 'local_fd >= 0 and \"`pidfd_getfd` failed\"'"),
        "a process may not take over another process's GPU memory handle (pidfd_getfd was denied)",
        "torch with expandable_segments, and DeepEP, share GPU memory this way. The kernel permits it for processes "
        "that may trace each other: containers without SYS_PTRACE, or kernel.yama.ptrace_scope, deny it.",
        (Fix("Allow it for the container.", ("docker run --cap-add=SYS_PTRACE ...",)),
         Fix("Or do without expandable segments.", ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",))),
        "https://man7.org/linux/man-pages/man2/pidfd_getfd.2.html"),
    Row("log_memory_report_failed", "secondary", "cuda",
        r"NVML_SUCCESS == (?:r|DriverAPI::get\(\)->nvml\w+\([^)]*\)) INTERNAL ASSERT FAILED",
        ('RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":1016, '
         "please report a bug to PyTorch.",),
        "a GPU's memory is full, and torch could not report by whom: NVML does not work here",
        "torch asks NVML who uses the memory only after an allocation has failed. NVML then failed itself (driver and "
        "library differ, a MIG slice, a container without `utility`).",
        (Fix("Treat it as out of memory: a smaller batch, or a sharded model.", ("nvidia-smi", "mgpu configure")),
         Fix("Repair NVML, to see the numbers.", ("nvidia-smi -L", "mgpu doctor --only driver"))),
        "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp"),
    Row("log_efa_not_found", "secondary", "nccl", r"fi_getinfo: provider efa (?:output empty list|returned -61\b)",
        ("libfabric:85:1747438790::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa output empty list",
         "libfabric:85:core:core:fi_getinfo_():964<info> fi_getinfo: provider efa returned -61 (No data available)"),
        "libfabric finds no EFA device in this container or on this node",
        "The AWS plugin needs EFA. The devices were not passed to the container, EFA is not enabled on the instance, "
        "or the image's libfabric or EFA driver is older than the instance's. NCCL then fails or uses TCP.",
        (Fix("Pass the devices to the container, and check that libfabric sees them.",
             ("fi_info -p efa", "ls /dev/infiniband", "docker run --device=/dev/infiniband/uverbs0 ...",
              "mgpu doctor --only efa_plugin_missing")),
         Fix("In Kubernetes, request the devices.", ("vpc.amazonaws.com/efa: 1",))),
        "https://github.com/aws/aws-ofi-nccl/issues/889"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
