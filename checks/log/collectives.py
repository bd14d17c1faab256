"""Did torch refuse the arguments of a collective or of a process group?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import message, passed
from ._plain_script_cases import in_plain_script

_C10D = "https://github.com/pytorch/pytorch/blob/main/torch/distributed/distributed_c10d.py"
_DIST = "https://docs.pytorch.org/docs/stable/distributed.html"
_NCCL = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
_GLOO = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"
_SAMPLER = "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/distributed.py"
_SCRIPT = "mgpu doctor --script train.py"

# fmt: off
_GLOO_ON_GPUS = Case(
    message(r"[Gg]loo"),
    "gloo does not have the collective or the reduction that the run uses",
    "gloo is meant for CPU tensors and small exchanges. FSDP, ZeRO and tensor parallelism need reduce_scatter, "
    "all_to_all and ReduceOp.AVG, which gloo has only in newer releases of torch or not at all. A run falls back to "
    "gloo if torch has no NCCL (Windows, a CPU build) or the script names that backend.",
    (Fix("On GPUs, use NCCL.", ("torch.distributed.init_process_group('nccl')",
                                "python -c 'import torch; print(torch.distributed.is_nccl_available())'")),
     Fix("Without NCCL, use DDP: it needs all-reduce and broadcast only.", ("mgpu configure",))),
    "RuntimeError: ProcessGroupGloo does not support _reduce_scatter_base\n", _GLOO)
_OF_WRAPPER = Case(
    passed(r"deepspeed/runtime/zero/|torch/distributed/fsdp/"),
    "ZeRO or FSDP exchanged a parameter whose parts have other sizes than it planned",
    "The wrapper computes these sizes itself when it partitions the model. Probably the parameters changed after that, "
    "or are not equal on all ranks: resized embeddings, quantized or compiled layers, adapters added later, another "
    "checkpoint, or code that assigns to .data.",
    (Fix("Change the model before it is wrapped, in the same way on every rank.",
         (_SCRIPT, "model.resize_token_embeddings(len(tokenizer)); model = accelerator.prepare(model)")),
     Fix("Try without torch.compile and quantization, and with a newer release.",
         ("pip install --upgrade deepspeed accelerate",))),
    "Traceback (most recent call last):\n"
    '  File "/x/site-packages/deepspeed/runtime/zero/partition_parameters.py", line 1300, in all_gather_coalesced\n'
    "    handle = _dist_allgather_fn(a, b)\n"
    "ValueError: output tensor size must be equal to world_size times input tensor size\n",
    "https://github.com/hiyouga/LlamaFactory/issues/9194")
_SIZE_OF_OBJECTS = Case(
    passed(r"distributed_c10d\.py in (?:all_gather_object|broadcast_object_list|gather_object|recv_object_list|"
           r"scatter_object_list|_tensor_to_object)"),
    "the ranks exchanged objects, and the size that arrived is garbage",
    "all_gather_object() and broadcast_object_list() first exchange the size of each object, on the current GPU of the "
    "process. If two ranks use the same GPU (no torch.cuda.set_device) or the ranks are in different collectives, the "
    "size is read from a buffer that another call filled.",
    (Fix("Select each rank's GPU before the process group is created, and call it on all ranks in the same order.",
         ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", _SCRIPT)),
     Fix("Let torch compare the calls of the ranks.", ("TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch train.py",))),
    "Traceback (most recent call last):\n"
    '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 2500, in all_gather_object\n'
    "    current_input_tensor = torch.empty(max_object_size)\n"
    "RuntimeError: Trying to create tensor with negative dimension -4611686018427387904: [-4611686018427387904]\n",
    "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object")
_DIRECTION = Case(
    message(r"gather_list`` must|object_gather_list"),
    "gather() got its list of outputs on the wrong rank",
    "Only the destination rank passes gather_list, all others pass None. dst is the number of a rank of the whole "
    "job, also within a group: with dst=0, group rank 0 of another group is not the destination.",
    (Fix("Pass the list on the destination rank only.",
         ("gather_list=[torch.empty_like(t) for _ in range(world_size)] if rank == dst else None",)),
     Fix("Or use all_gather, which is the same on all ranks.", (_SCRIPT,))),
    "ValueError: Argument ``gather_list`` must be specified on destination rank.\n", _C10D)

ROWS = (
    Row("log_collective_not_in_backend", "root", "script",
        r"ProcessGroup(?:NCCL|Gloo|MPI)? does not support (?:\w+)|"
        r"Backend \w+ does not support (?:\w+)|Cannot use ReduceOp\.\w+ with |"
        r"cannot be used with gloo|Collective .{1,40} not supported (?:for|by) (?:backend )?(?:gloo|nccl)|"
        r"NCCL does not support all_reduce with sparse tensors|monitored_barrier is only implemented for GLOO",
        ("RuntimeError: ProcessGroupNCCL does not support gather",
         "RuntimeError: ProcessGroupGloo does not support _reduce_scatter_base",
         "RuntimeError: Backend gloo does not support reduce_scatter_tensor_coalesced",
         "ValueError: Cannot use ReduceOp.AVG with Gloo", "RuntimeError: Cannot use ReduceOp.AVG with boolean inputs",
         "RuntimeError: NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead."),
        "the group's backend does not have this collective, reduction or kind of tensor",
        "NCCL, gloo and MPI do not implement the same operations: old releases of torch have no gather and scatter for "
        "NCCL, ReduceOp.AVG is NCCL's only, BAND, BOR and BXOR are gloo's only, and NCCL exchanges dense tensors only "
        "(nn.Embedding(sparse=True) makes sparse gradients).",
        (Fix("Use an operation that the backend has.",
             ("torch.distributed.all_gather(parts, t)  # instead of gather",
              "torch.distributed.all_reduce(t); t /= world_size  # instead of AVG", "nn.Embedding(..., sparse=False)")),
         Fix("Or add the other backend for CPU tensors.",
             ("torch.distributed.init_process_group('cpu:gloo,cuda:nccl')",))),
        _DIST, cases=(_GLOO_ON_GPUS,)),
    Row("log_collective_sizes_wrong", "root", "script",
        r"(?:output|input) tensor size must be equal to world[_ ]size times (?:input|output)|"
        r"input tensor must be the same size as output size times world size|"
        r"output tensor must have the same (?:size|numel) as .*input.*world|"
        r"All tensor operands to scatter/gather must have the same number of elements|"
        r"Tensor list input to scatter/gather must match number of collective participants|"
        r"Tensor's dim 0 does not divide equally across group size|Number of tensor splits not equal to group size",
        ("RuntimeError: output tensor size must be equal to world_size times input tensor size",
         "ValueError: input tensor must be the same size as output size times world size",
         "RuntimeError: All tensor operands to scatter/gather must have the same number of elements",
         "RuntimeError: Tensor's dim 0 does not divide equally across group size"),
        "the buffers of a collective do not have the sizes that the number of ranks in the group requires",
        "all_gather_into_tensor needs an output of ranks x input, reduce_scatter_tensor an input of ranks x output, "
        "all_gather a list with one entry per rank, all of one size. The buffer was made for another number of ranks "
        "(the world instead of the group, a fixed 8), or the tensors have different sizes on the ranks (the last "
        "batch, sequences that are not padded).",
        (Fix("Compute the sizes from the group that the call uses.",
             ("n = torch.distributed.get_world_size(group)",
              "out = torch.empty(n * t.shape[0], *t.shape[1:], dtype=t.dtype, device=t.device)")),
         Fix("If the ranks have different sizes, pad first, or gather objects.",
             ("accelerator.pad_across_processes(t)", "torch.distributed.all_gather_object(parts, t)"))), _NCCL,
        cases=(_OF_WRAPPER,)),
    Row("log_collective_on_several_gpus", "root", "script",
        r"Tensor list mustn't be larger than the number of available GPUs|Tensors must be on distinct GPU devices|"
        r"Expecting one tensor only but got",
        ("RuntimeError: Tensor list mustn't be larger than the number of available GPUs",
         "RuntimeError: Expecting one tensor only but got multiple. You are probably using multiple devices under one "
         "thread."),
        "a collective got tensors of several GPUs from one process, which torch no longer supports",
        "torch 2 has no collectives for several GPUs per process any more (all_reduce_multigpu). An extension or a "
        "model that is spread over GPUs inside DDP still passes a list.",
        Fix("Use one process per GPU.", ("mgpu launch train.py", "torchrun --nproc-per-node=8 train.py")), _NCCL),
    Row("log_collective_dtypes_wrong", "root", "script",
        r"Invalid usage of tensors with different dtypes|[Tt]ensors? must have identical types?\b|"
        r"input tensor must be the same type as the output(?: tensor)?\b|"
        r"Input tensor data type is not supported for NCCL process group: (?:\w+)|"
        r"(?:RuntimeError|ValueError|TypeError): (?:Invalid scalar type|Unconvertible NCCL type)",
        ("ValueError: Invalid usage of tensors with different dtypesFound torch.bfloat16 and  torch.float32",
         "TypeError: Input tensor data type is not supported for NCCL process group: Short",
         "TypeError: output tensor must have identical type as input: tensors must have identical type",
         "RuntimeError: input tensor must be the same type as the output tensor.",
         "RuntimeError: Invalid scalar type"),
        "a collective got tensors of a dtype that it cannot exchange, or of two dtypes",
        "All tensors of one collective need one dtype. NCCL has no int16, uint16, complex or quantized types, and "
        "gloo of older releases no bf16. Often the buffer was made with torch.empty(...) in fp32, and the tensor is "
        "bf16 under autocast.",
        Fix("Make the buffer with the tensor's dtype, and convert what the backend cannot send.",
            ("torch.empty_like(t)", "t.to(torch.int32)", "torch.view_as_real(t)", "t.float()  # bf16 over gloo")),
        _NCCL),
    Row("log_collective_argument_wrong", "root", "script",
        r"Invalid function argument\. Expected parameter `(?:\w+)`|"
        r"Argument ``(?:gather|scatter)_list`` must (?:NOT )?be specified on|"
        r"(?:Must|must) provide (?:object_gather_list on dst|non-None scatter_object_input_list)|"
        r"Expected timeout argument to be of type ?datetime\.timedelta",
        ("TypeError: Invalid function argument. Expected parameter `tensor` of type torch.Tensor",
         "ValueError: Argument ``gather_list`` must be specified on destination rank.",
         "ValueError: Argument ``scatter_list`` must NOT be specified on non-source ranks.",
         "TypeError: Expected timeout argument to be of type datetime.timedelta, got 1800"),
        "a collective or init_process_group got an argument of the wrong kind",
        "Collectives exchange tensors: a float, a list or a numpy array must become a tensor on the rank's device "
        "first. A timeout is a datetime.timedelta, not a number of seconds.",
        (Fix("Pass a tensor, or use the call for objects.",
             ("t = torch.tensor(loss_value, device=local_rank)", "torch.distributed.broadcast_object_list(objects)")),
         Fix("For a timeout, pass a timedelta.", ("timeout=datetime.timedelta(minutes=30)",))),
        _C10D, cases=(_DIRECTION,)),
    Row("log_group_larger_than_job", "root", "launcher",
        r"new group's (?:world size should be less or equal|rank should be within)|"
        r"[Rr]ank (?:\d+) is out of range\. Valid ranks are|"
        r"'group_size' \((?:\d+)\) must not exceed the world size \((?:\d+)\)|"
        r"The specified group size must be (?:less|smaller) than the world size",
        ("RuntimeError: the new group's rank should be within the world_size set by init_process_group",
         "ValueError: the new group's world size should be less or equal to the world size set by init_process_group",
         "ValueError: Rank 8 is out of range. Valid ranks are 0 to 3 (world_size=4)",
         "ValueError: The arg 'group_size' (8) must not exceed the world size (4)"),
        "a process group is created with ranks that this job does not have",
        "new_group() or new_subgroups() lists more ranks than were started: the script or its config was written for "
        "8 GPUs or several nodes, or a launcher started fewer ranks than planned.",
        (Fix("Compare the number of ranks with the group sizes in the config (tensor, sequence, expert, shard group).",
             ("mgpu launch --dry-run train.py", "env | grep -E 'WORLD_SIZE|LOCAL_WORLD_SIZE'")),
         Fix("Compute the ranks of a group from the world size.",
             ("torch.distributed.new_group(list(range(torch.distributed.get_world_size())))",))), _C10D),
    Row("log_rank_not_in_group", "root", "script",
        r"(?:Global|Group) rank (?:\d+) is not part of (?:the parent )?group|"
        r"Group \S.{0,200} is not registered, please create group|"
        r"(?:Process|process) group \S.{0,200} is not initialized in the world group map|"
        r"Invalid process group specified(?: or has been destroyed)?|"
        r"The given group does not exist|Invalid process group!?$",
        ("ValueError: Global rank 5 is not part of group <torch.distributed.distributed_c10d.ProcessGroup object>",
         "ValueError: Group <ProcessGroup object at 0x7f> is not registered, please create group with "
         "torch.distributed.new_group API", "ValueError: Invalid process group specified"),
        "a rank used a process group that it is not a member of, or that was destroyed",
        "new_group() returns a placeholder on ranks outside of the group, and destroy_process_group() removes all "
        "groups. src and dst of a collective are ranks of the whole job, not positions in the group.",
        (Fix("Call new_group() on all ranks in the same order, and the collective on its members only.",
             ("if rank in members: torch.distributed.all_reduce(t, group=group)", _SCRIPT)),
         Fix("Convert a position in the group to a rank of the job.",
             ("torch.distributed.get_global_rank(group, 0)",))), _C10D),
    Row("log_sampler_of_other_job", "root", "launcher",
        r"Invalid rank (?P<rank_no>\d+), rank should be in the interval \[0, ?(?P<last>-?\d+)\]",
        ("ValueError: Invalid rank 1, rank should be in the interval [0, 0]",),
        "DistributedSampler got rank {rank_no}, but a number of replicas for which {last} is the last rank",
        "rank and num_replicas come from two sources: one from the launcher (RANK, LOCAL_RANK) and one from the config "
        "or torch.cuda.device_count(), which counts the visible GPUs of this process only.",
        Fix("Take both from the process group, or leave both out.",
            ("DistributedSampler(data)  # after init_process_group",
             "DistributedSampler(data, torch.distributed.get_world_size(), torch.distributed.get_rank())", _SCRIPT)),
        _SAMPLER, summary="DistributedSampler got a rank that its number of replicas does not have."),
    Row("log_exchanged_size_is_garbage", "root", "script",
        r"Tried to allocate more than 1EB memory|Trying to create tensor with negative dimension -\d+|"
        r"[Ss]torage size calculation overflowed",
        ("RuntimeError: Tried to allocate more than 1EB memory.",
         "RuntimeError: Trying to create tensor with negative dimension -4611686018427387904: [-4611686018427387904]",
         "RuntimeError: Storage size calculation overflowed with sizes=[8589934592, 8589934592]"),
        "a tensor of an impossible size was requested: a size is negative or garbage",
        "A size was computed wrongly or overflowed, or was received from another rank and is not what was sent.",
        Fix("Print the sizes on every rank before that line.", ("print(rank, sizes)", _SCRIPT)), _DIST,
        cases=(_SIZE_OF_OBJECTS,), explain=in_plain_script),
    Row("log_rank_zero_left_barrier", "secondary", "timeout",
        r"successfully reached monitoredBarrier, but received errors while waiting|"
        r"Rank \d+ timed out in monitoredBarrier after",
        ("RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv "
         "from rank 0. Please check rank 0 logs for faulty rank.",
         "RuntimeError: Rank 0 timed out in monitoredBarrier after 1800000 ms."),
        "a rank waited at a barrier for another one, which left it or did not come",
        "Rank 0 collects all ranks at monitored_barrier() and then answers them. It reports in its own log which rank "
        "is missing, and stops; the others then lose their connection to it.",
        Fix("Read rank 0's log: it names the missing ranks. Then read those ranks' logs.",
            ("mgpu doctor --log LOGS...",)),
        _DIST),
    Row("log_ddp_lazy_parameters", "root", "script",
        r"Modules with uninitialized parameters can't be used with `?Distributed",
        ("RuntimeError: Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a "
         "dummy forward pass to correctly initialize the modules",),
        "DDP got a model with lazy layers, whose parameters do not exist before their first input",
        "nn.LazyLinear and other lazy layers create their weights in the first forward pass. DDP must know all "
        "parameters when it wraps the model, and they must be equal on all ranks.",
        Fix("Run one batch through the model on every rank before DDP, or give the layers their sizes.",
            ("with torch.no_grad(): model(example_batch)", "model = DistributedDataParallel(model)")),
        "https://github.com/pytorch/pytorch/blob/main/torch/nn/parallel/distributed.py"),
    Row("log_gloo_address_families_mixed", "root", "network",
        r"ss1\.ss_family == ss2\.ss_family|sa\.ss_family == .{0,20}ss_family\. \d+ vs \d+",
        ("RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:276] ss1.ss_family == "
         "ss2.ss_family. 2 vs 10",),
        "gloo uses IPv4 on one rank and IPv6 on another",
        "Each rank listens at the address that its own host name resolves to: 2 is IPv4, 10 is IPv6. The nodes' "
        "/etc/hosts or DNS differ, or one interface has no IPv4 address.",
        Fix("Name the interface with the IPv4 address on every rank, and compare the host names.",
            ("export GLOO_SOCKET_IFNAME=IFACE", "getent ahosts $(hostname)", "ip -br addr")),
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/device.cc"),
    Row("log_store_answered_wrongly", "root", "launcher",
        r"^(?!.*retrying).*Ping failed, invalid value returned from server|Stop_waiting response is expected",
        ("torch.distributed.DistNetworkError: Ping failed, invalid value returned from server. Expected: 6842, Got: 0",
         "RuntimeError: Stop_waiting response is expected"),
        "the program at MASTER_ADDR and MASTER_PORT is not the store of this run, or is of another torch",
        "The port belongs to another program or to an earlier run, or the nodes have different versions of torch: the "
        "store's protocol changed with the libuv server, which is the default since torch 2.4.",
        (Fix("Use a free port, the same on every node.",
             ("ss -ltnp 'sport = :29500'", "mgpu launch --port auto train.py")),
         Fix("Use one torch on all nodes.", ("python -c 'import torch; print(torch.__version__)'",
                                             "mgpu doctor --only rank_orphaned"))),
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/TCPStore.cpp"),
    Row("log_ranks_not_distinct", "root", "launcher", r"more than one node have assigned same rank",
        ("RuntimeError: more than one node have assigned same rank at /x/torch/lib/THD/process_group/General.cpp:17",),
        "two processes joined the process group with the same rank",
        "The launcher did not give every process its own rank (a fixed --rank, a variable that is not set and has a "
        "default of 0), or processes of an earlier run still use this address and port.",
        (Fix("Start the ranks with a launcher that numbers them, and let torch read the numbers.",
             ("torchrun --nproc_per_node 8 train.py", "torch.distributed.init_process_group('nccl')  # no rank=")),
         Fix("Stop the processes of an earlier run, or use another port.",
             ("ps aux | grep train.py", "ss -ltnp 'sport = :29500'"))),
        "https://github.com/NVIDIA/apex/issues/28"),
    Row("log_rendezvous_endpoint_malformed", "root", "launcher",
        r"hostname of the rendezvous endpoint '(?:[^']*)' must be|"
        r"port number of the rendezvous endpoint '(?:[^']*)' must be|"
        r"(?:rank|endpoint) is absent in RendezvousParameters|[Pp]ort is (?:absent|missing) in endpoint|"
        r"[Ee]ndpoint is missing in endpoint",
        ("ValueError: The hostname of the rendezvous endpoint ':29500' must be a dot-separated list of labels, an IPv4 "
         "address, or an IPv6 address.",
         "ValueError: The port number of the rendezvous endpoint 'node1:' must be an integer between 0 and 65536.",
         "ValueError: endpoint is missing in endpoint. Try to add --master-addr and --master-port",
         "ValueError: Port is absent in endpoint: node1. Try launching with --master-port"),
        "torchrun got a rendezvous endpoint without a valid host name and port",
        "A variable in the command was empty ($MASTER_ADDR was not exported, scontrol is missing in the container), or "
        "holds several names: Slurm's list node[01-04], or the output of hostname -I with all addresses.",
        (Fix("Print the value on every node before torchrun starts.",
             ("echo \"[$MASTER_ADDR:$MASTER_PORT]\"", "hostname -I | awk '{{print $1}}'")),
         Fix("Take the first node's name only.",
             ("export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
              "torchrun --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:29500 ..."))),
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/utils.py"),
    Row("log_backend_not_built", "root", "launcher",
        r"Distributed package doesn't have (?:MPI|Gloo|UCC|XCCL) built in|"
        r"(?<!InvalidBackend: )Invalid backend: '|Unknown (?:c10d )?backend type (?:\w+)",
        ("RuntimeError: Distributed package doesn't have MPI built in. MPI is only included if you build PyTorch from "
         "source on a host that has MPI installed.",
         "AssertionError: Unknown c10d backend type NCLL"),
        "the installed torch does not have the backend that the script asks for",
        "torch's wheels have NCCL and gloo on Linux, and gloo on Windows and macOS. MPI, UCC and XCCL are in builds of "
        "your own or of a vendor only. mpirun does not need the MPI backend: its ranks can use NCCL.",
        Fix("Use NCCL for GPUs and gloo for CPUs.",
            ("torch.distributed.init_process_group('nccl')", "mgpu launch train.py")), _DIST,
        summary="The installed torch does not have the backend that the script asks for."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
