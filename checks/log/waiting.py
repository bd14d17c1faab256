"""Did ranks wait for one that never joined: timeouts and closed connections?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import shown, within
from ._differing_calls import COMPARE_STACKS, explain_calls
from ._first_exchange_cases import FIRST_COLLECTIVE, SCATTERED

_NCCL = "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
_GLOO = "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/pair.cc"
_STALLS = "https://github.com/horovod/horovod/blob/master/horovod/common/stall_inspector.cc"
_DIST = "https://pytorch.org/docs/stable/distributed.html"
# fmt: off
_FIRST = Fix("Find the rank whose log differs: the first error, the lowest SeqNum, or the oldest last line.",
             ("mgpu doctor --log rank0.log rank1.log ...",))
_RECORD = Fix("Let torch record which collective each rank was in.",
              ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 mgpu launch train.py",))
_TRANSPORT = Fix("If it never worked (SeqNum 1 or 2), test the transport alone.", ("mgpu smoke-test",))
# fmt: on


def _at_rendezvous(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return the meaning of a closed connection if torchrun's agent lost it, before or between the ranks' runs."""
    of_agent = raised is not None and (
        (raised.place or "").startswith(("torchrun:", "accelerate:"))
        or raised.type.endswith("RendezvousConnectionError")
    )
    if not of_agent:
        return None
    return Meaning(
        "the main node accepted torchrun's connection and closed it",
        "Its agent exited (its own ranks failed, or it was started later than its peers wait), another program or a "
        "proxy listens on that port, or the nodes have different versions of torch.",
        (
            Fix("Read the main node's log first: its agent may have failed or finished."),
            Fix(
                "Compare the versions of torch, and check what listens on the port.",
                ("python -c 'import torch; print(torch.__version__)'", "ss -ltnp 'sport = :29500'"),
            ),
            Fix("In Kubernetes, keep a service mesh out of the pods.", ('sidecar.istio.io/inject: "false"',)),
        ),
    )


# fmt: off
_HOROVOD_CALLS_DIFFER = Case(
    shown("horovod_lacks_broadcast", "horovod_lacks_allreduce"),
    "ranks call different collectives of Horovod, and wait for each other: a broadcast on some, an allreduce on others",
    "Each list has what that rank has not submitted: the rank with the broadcast's tensors already trains, and the one "
    "with the allreduce's still waits in the broadcast of the first weights. Probably only some ranks make that "
    "broadcast: a callback or hook that one rank adds, a checkpoint that one rank restores, or another order of calls.",
    Fix("Broadcast on all ranks or on none, right after the weights are made or restored.",
        ("hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
         "hvd.broadcast_optimizer_state(optimizer, root_rank=0)")),
    "W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or "
    "broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
    "Missing ranks:\n0: [broadcast.conv1.weight, broadcast.conv2.weight ...]\n"
    "1: [allreduce.conv1.weight, allreduce.conv2.weight ...]\n",
    "https://github.com/google/automl/issues/563")
_MISMATCH = (
    "[rank1]: Traceback (most recent call last):\n{}[rank1]: RuntimeError: Detected mismatch between collectives on "
    "ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE, "
    "TensorShape=[195812480]), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=3104, "
    "OpType=ALLREDUCE, TensorShape=[51123456])")
_WITHOUT_IMAGES = Case(
    shown("multimodal_model"),
    "the ranks called different collectives, in a model that also reads images: probably one rank's batch had none",
    "A rank with a text-only batch skips the vision encoder, and has no gradients and no gathers for its parameters.",
    (Fix("Do not mix text-only samples into batches with images, or add a small blank image to them."),
     COMPARE_STACKS),
    "Loading Qwen2.5-VL-7B-Instruct\n" + _MISMATCH.format('[rank1]:   File "/home/ada/train.py", line 7, in main\n'),
    "https://github.com/modelscope/ms-swift/pull/9443")
_METRICS_DIFFER = Case(
    within(r"(?:lightning|pytorch_lightning)/(?:.*/)?(?:logger_connector|result)\b"),
    "the ranks called different collectives while Lightning reduced logged values: probably they log different keys",
    "log and log_dict with sync_dist=True run one collective per key. A rank that logs another set of keys, or the "
    "same keys in another order, is out of step.",
    Fix("Log the same keys in the same order on all ranks, with a default where a batch has no value.",
        ("self.log_dict({{key: values.get(key, 0.0) for key in sorted(keys)}}, sync_dist=True)",)),
    _MISMATCH.format('[rank1]:   File "/x/site-packages/lightning/pytorch/trainer/connectors/logger_connector/'
                     'result.py", line 7, in compute\n'), "https://github.com/Lightning-AI/pytorch-lightning/issues/19106")
_OUT_OF_STEP = (_METRICS_DIFFER, _WITHOUT_IMAGES)
# fmt: on


def _calls_of_ranks(log: Log, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain the two calls that a line names; None if a case knows more about the program."""
    if any(case.when(log, raised) for case in _OUT_OF_STEP):
        return None
    return explain_calls(log, groups, raised)


# fmt: off
ROWS = (
    Row("log_collective_timed_out", "secondary", "timeout",
        r"(?:(?:Watchdog c|C)aught collective operation timeout: |^\s*)WorkNCCL\((?:SeqNum=\d+, )?OpType=(?P<op>\w+)",
        ("[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
         "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for "
         "600060 milliseconds before timing out.",
         "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], "
         "Timeout(ms)=1800000) ran for 1804523 milliseconds before timing out.",
         "RuntimeError: [Rank 1] Caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=BROADCAST, "
         "TensorShape=[], Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out.",
         "WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 1800600 milliseconds before timing out.",
         "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=BROADCAST, Timeout(ms)=1800"
         "000) ran for 1804406 milliseconds before timing out."),
        "a rank waited for the others in {op} until NCCL's timeout",
        "Another rank did not join: it died, took another path in the script, or still works alone (rank 0 saves, "
        "downloads, evaluates). The rank that reports the timeout is not the cause.",
        (_FIRST, _TRANSPORT, _RECORD,
         Fix("If one rank really works alone for that long, raise the timeout.",
             ("InitProcessGroupKwargs(timeout=timedelta(hours=2))",), kind="stopgap",
             caveat="A real hang then takes that long to be detected.")),
        "https://github.com/pytorch/pytorch/issues/118369",
        summary="A rank waited for the others in a collective until NCCL's timeout.",
        cases=(SCATTERED, FIRST_COLLECTIVE)),
    Row("log_timeout_line_cut", "secondary", "timeout",
        r"Watchdog caught collective(?: operation(?: timeout:?(?: WorkNCCL\(?)?)?)?\s*$",
        ("[rank6]:[E ProcessGroupNCCL.cpp:563] [Rank 6] Watchdog caught collective",
         "[Rank 2] Watchdog caught collective operation timeout:"),
        "a rank waited for the others in a collective until NCCL's timeout (the line is cut)",
        "Another rank did not join: it died, took another path in the script, got fewer batches, waits for its data "
        "loader, or still works alone (rank 0 saves, downloads, evaluates). The rest of the line, which is not in this "
        "log, names the collective (SeqNum, OpType).",
        (_FIRST, _RECORD), "https://github.com/Lightning-AI/litData/issues/340",
        because_of=("log_collective_timed_out",)),
    Row("log_watchdog_stuck", "secondary", "timeout",
        r"Heartbeat monitor timed out|watchdog got stuck for \d+ seconds",
        ("[E] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
         "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
         "collectives."),
        "NCCL's watchdog itself is stuck in a CUDA or NCCL call",
        "The GPU or its driver does not respond, or a thread holds Python's GIL. torch stops the process.",
        (Fix("Check whether the GPU is healthy.", ("mgpu doctor --only xid,cuda_hangs", "nvidia-smi")), _FIRST),
        "https://github.com/pytorch/pytorch/pull/116267"),
    Row("log_desynchronised", "secondary", "timeout",
        r"Some NCCL operations have failed or timed out|To avoid data inconsistency, we are taking the entire process|"
        r"Exception \(either an error or timeout\) detected by watchdog|failure detected by watchdog at work sequence|"
        r"Timeout at NCCL work: |Received a (?:global )?timeout signal|Observed flight recorder dump signal|"
        r"Received a dump signal|Terminating the process after attempting to dump debug info|"
        r"NCCL communicator was aborted on rank",
        ("[Rank 4] Some NCCL operations have failed or timed out.",
         "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.",
         "[E] To avoid data inconsistency, we are taking the entire process down.",
         "[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: "
         "1579, last enqueued NCCL work: 1580, last completed NCCL work: 1579.",
         "[Rank 1] Timeout at NCCL work: 3, last enqueued NCCL work: 3, last completed NCCL work: 2.",
         "[PG ID 0 PG GUID 0 Rank 0] Received a dump signal due to a collective timeout from rank 3 and we will try "
         "our best to dump the debug info."),
        "torch stopped a rank after a collective failed or timed out",
        "It follows a timeout or the failure of another rank.", (_FIRST, _RECORD), _NCCL,
        because_of=("log_collective_timed_out", "log_timeout_line_cut")),
    Row("log_collectives_differ", "root", "script",
        r"(?:Cannot apply desired operation due to shape mismatches|Detected mismatch between collectives on ranks|"
        r"Received data size doesn't match expected size|op\.preamble\.length <= op\.nbytes|"
        r"Mismatch between collective operation types)(?P<calls>(?:\. Rank \d+ is running collective: .+)?)",
        ("accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape "
         "mismatches.", "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
         "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE",
         "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length "
         "<= op.nbytes. 8 vs 4", "Received data size doesn't match expected size. Is there a mismatch?"),
        "the ranks called different collectives, or the same one with different shapes",
        "The cause is an `if` on the rank around a collective, a loop of different length, a last batch of a "
        "different size, or a part of the model that one rank skips (a batch without images).",
        (Fix("Make all ranks run the same calls. Pad before you gather.",
             ("accelerator.pad_across_processes(tensor, dim=0)", "mgpu doctor --script train.py")),
         Fix("Find where the ranks diverge.", ("TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch train.py",))),
        "https://github.com/huggingface/accelerate/blob/main/docs/source/basic_tutorials/troubleshooting.md",
        explain_in=_calls_of_ranks, cases=_OUT_OF_STEP),
    Row("log_rank_missed_barrier", "secondary", "timeout",
        r"Ranks? (?P<who>[\d, ]+) failed to pass monitoredBarrier",
        ("RuntimeError: Rank 1 failed to pass monitoredBarrier in 30000 ms",
         "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1800000 ms"),
        "rank {who} did not reach a barrier",
        "It died, hangs, or took another path in the script.", _FIRST, _DIST,
        summary="A rank did not reach a barrier."),
    Row("log_horovod_rank_missing", "secondary", "timeout",
        r"\[missing ranks: ?(?P<missing>\d[\d, ]*)\]",
        ("HorovodBroadcast_fully_connected_weights_0 [missing ranks: 0]", "allreduce.fc.weight [missing ranks: 1, 3]"),
        "rank {missing} never submitted a tensor to Horovod that the other ranks wait for",
        "It ended, hangs, still does work of its own (a download, an evaluation), or takes another path in the script: "
        "all ranks must make the same calls. If the run goes on later, it only came late.",
        (Fix("Read the end of the missing rank's own output.", ("mgpu doctor --log rank0.log rank1.log ...",)),
         Fix("Make collective calls on all ranks, never inside of `if hvd.rank() == 0`.",
             ("hvd.broadcast_parameters(model.state_dict(), root_rank=0)",))), _STALLS,
        summary="A rank never submitted a tensor to Horovod that the others wait for.", tags=("precise",)),
    Row("log_horovod_stalled", "secondary", "timeout",
        r"[Oo]ne or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
        ("W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or "
         "broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",),
        "ranks wait in Horovod for tensors that other ranks have not submitted",
        "The next lines name, for each rank, the tensors that it has not submitted. Such a rank ended, hangs, still "
        "does work of its own (a download, an evaluation), or takes another path in the script. If the run goes on "
        "later, it only came late.",
        (Fix("Read the end of that rank's own output.", ("mgpu doctor --log rank0.log rank1.log ...",)),
         Fix("Make collective calls on all ranks, in the same order, never inside of `if hvd.rank() == 0`.")), _STALLS,
        because_of=("log_horovod_rank_missing",), cases=(_HOROVOD_CALLS_DIFFER,)),
    Row("log_gloo_timed_out", "secondary", "timeout",
        r"Timed out waiting \d+ms for (?:send|recv) operation",
        ("[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation "
         "to complete",),
        "a rank waited for another until gloo's timeout",
        "The other rank did not join the collective: it hangs, took another path in the script, or still works alone "
        "(rank 0 saves, downloads, evaluates).",
        (_FIRST, Fix("Find where the ranks diverge.",
                     ("TORCH_DISTRIBUTED_DEBUG=DETAIL mgpu launch train.py",))), _GLOO),
    Row("log_gloo_mesh_failed", "secondary", "network",
        r"[Cc]onnect ?[Ff]ull ?[Mm]esh(?: fa|\s*$)|"
        r"gloo/transport/tcp/.*connect.*(?:No route to host|Connection timed out|Network is unreachable)",
        ("RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
         "Connect full mesh failed", "RuntimeError: Gloo connectFullMesh fai", "RuntimeError: Gloo connectFullMesh",
         "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:220] result >= 0. -1 vs "
         "0. connect [172.17.0.1]:1234: No route to host"),
        "the ranks could not connect to each other over gloo",
        "Each rank announces the address of its host name or of GLOO_SOCKET_IFNAME. With several nodes it is often a "
        "loopback address (127.0.1.1 in /etc/hosts), or belongs to a network that does not connect the nodes.",
        (Fix("Set the interface that connects the nodes.",
             ("export GLOO_SOCKET_IFNAME=IFACE", "mgpu doctor --only hostname_is_loopback,network")), _FIRST), _GLOO),
    Row("log_peer_gone", "secondary", "network",
        r"gloo/transport/tcp/\S+ (?:Read error \S+ )?Connection (?:closed|reset) by peer|"
        r"Application timeout caused pair closure|Read error \[\S+\]:\S* Connection reset by peer|"
        r"gloo/transport/tcp/\S+ .*(?:Broken pipe|Connection refused)",
        ("[/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:45485.",
         "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
         "[127.0.0.1]:4257: Connection reset by peer. This is typically caused by a remote worker hanging",
         "RuntimeError: Application timeout caused pair closure"),
        "the connection (gloo) to another rank was lost",
        "The process at the other end exited. That rank has the cause.", _FIRST, _GLOO,
        because_of=("run_rank_left_early",)),
    Row("log_gloo_uv_aborted", "root", "network", r"gloo/transport/uv/\S+ (?P<call>uv_\w+): (?P<why>.{1,80})",
        ("[/Users/runner/work/pytorch/third_party/gloo/gloo/transport/uv/libuv.h:596] uv_accept: invalid argument",),
        "gloo's transport for macOS and Windows aborted a rank: {call}: {why}",
        "gloo ends the process if a call of its network library (libuv) fails. A firewall, a VPN or the interface that "
        "gloo selected causes that, or a bug of this release. It is not in the training code.",
        Fix("Bind gloo to the loopback interface if all ranks are on this machine, or change the release of torch.",
            ("export GLOO_SOCKET_IFNAME=lo0", "pip install --upgrade torch")),
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/uv/libuv.h",
        summary="gloo's transport for macOS and Windows aborted a rank."),
    Row("log_gloo_interface_missing", "root", "network",
        r"GlooDeviceFactory::make\w+\(\): |Unable to find address for|"
        r"makeDeviceFor(?:Interface|Hostname)\(\): unsupported gloo device|"
        r"Unable to resolve hostname to a \(local\) address|Unable to find interface for: ",
        ("RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable "
         "to find address for: eth7", "RuntimeError: makeDeviceForHostname(): unsupported gloo device",
         "RuntimeError: [enforce fail at device.cc:210] rp != nullptr. Unable to find address for: node1",
         "RuntimeError: GlooDeviceFactory::makeUVDevice(): interface or hostname can't be empty"),
        "gloo finds no address for the configured interface or host name",
        "GLOO_SOCKET_IFNAME names an interface that does not exist here, or the node's own name is empty or does not "
        "resolve to one of its addresses. On Windows, some releases of torch find no device at all.",
        Fix("Unset it or set an existing interface. Make the host name resolvable.",
            ("unset GLOO_SOCKET_IFNAME", "ip -br addr; getent hosts $(hostname)",
             "mgpu doctor --only hostname_unresolvable,hostname_is_elsewhere")),
        "https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/device.cc"),
    Row("log_main_pod_closed_connection", "secondary", "launcher",
        r"SocketImpl\(.*remote=\[[^\]]*\.svc\b[^\]]*\]:\d+\).*(?:got 0 bytes|[Cc]onnection reset|Broken pipe)",
        ("[W822 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=15, addr=[j-node-0-1.j.team.svc.cluster."
         "local]:60560, remote=[j-node-0-0.j.team.svc.cluster.local]:29500): failed to recv, got 0 bytes",),
        "the connection to the main pod was closed: by a sidecar (Istio), or because that pod exited",
        "A service mesh's proxy accepts the connection and closes it, as it does not know the rendezvous protocol. If "
        "the run had started, the main pod failed first and has the cause.",
        (Fix("Before the first step: keep the sidecar out of the run's pods (a label of the pod template; annotation "
             "in older versions), or use a namespace without injection.",
             ('sidecar.istio.io/inject: "false"', "kubectl get pod POD -o jsonpath='{{.spec.containers[*].name}}'")),
         Fix("Afterwards: read the main pod's log.", ("kubectl logs MAIN_POD --previous",))),
        "https://github.com/kubeflow/trainer/issues/2794"),
    Row("log_store_gone", "secondary", "network",
        r"^(?!.*remote=\[[^\]]*\.svc\b)"
        r".*(?:Connection was likely closed\. Did the remote server shutdown|failed to recv, got 0 bytes|"
        r"Failed to (?:recv|send), (?:got|sent) 0 bytes|(?:recvValue|sendBytes|recvBytes|recvVector)\S* failed on|"
        r"Failed to check the \"should dump\" flag on TCPStore|DistNetworkError: Connection (?:reset|closed))",
        ("torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the "
         "remote server shutdown or crash?", "[rank1]:[W] Failed to check the \"should dump\" flag on TCPStore, (maybe "
         "TCPStore server has shut down too early), with error: Broken pipe",
         "recvValue failed on SocketImpl(fd=63, addr=[node1]:40000, remote=[node0]:29500): Connection reset by peer"),
        "rank 0, which hosts the store, disappeared",
        "The store runs in the process of rank 0 (or its launcher). That process exited first.",
        Fix("Read rank 0's own log.", ("mgpu doctor --log LOGS...",)),
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp",
        effect_of="store_exit", because_of=("log_main_pod_closed_connection",), explain=_at_rendezvous),
    Row("log_first_rank_not_ready", "secondary", "timeout",
        r"retrieving ncclUniqueId from \[(?P<first>\d+)\] via c10d key-value store",
        ("torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
         "via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
         "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key "
         "'default_pg/0//cuda//0:0', but store->get got error: wait timeout after 600000ms"),
        "rank {first} did not reach the first collective in time, or exited before it",
        "The others wait for its NCCL id. It still prepares data, downloads or loads the model, or it failed.",
        (_FIRST, Fix("Do long work before init_process_group, or raise its timeout.",
                     ("InitProcessGroupKwargs(timeout=timedelta(hours=2))",
                      "torch.distributed.init_process_group(timeout=timedelta(hours=2))"))),
        "https://github.com/bytedance/HLLM/issues/20", summary="A rank did not reach the first collective in time."),
    Row("log_store_wait_timed_out", "secondary", "timeout",
        r"wait timeout after \d+ms, keys: |DistStoreError: (?:Socket Timeout|wait timeout)|"
        r"RuntimeError: Socket Timeout|Timeout waiting for key: |StoreTimeoutError",
        ("torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
         "RuntimeError: Socket Timeout", "torch.distributed.DistStoreError: Socket Timeout"),
        "a rank waited at the rendezvous for another rank's entry, which never came",
        "The other rank died or hangs before its first collective (import, download, loading the model).",
        (_FIRST, Fix("Let rank 0 prepare data and models before the others start.",
                     ("HF_HUB_OFFLINE=1 mgpu launch train.py",))), _DIST),
    Row("log_cpp_exception", "wrapper", "timeout",
        r"terminate called after throwing an instance of '(?!std::bad_alloc)[\w:]+'|"
        r"Process group watchdog thread terminated with exception",
        ("terminate called after throwing an instance of 'c10::DistBackendError'",
         "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1]"),
        "a C++ exception that nothing caught ended a process; its message is in the next lines",
        "A library of compiled code threw it. With several ranks it is mostly NCCL's watchdog, which reports a "
        "timeout, or a CUDA error of an earlier kernel.",
        _FIRST, _NCCL),
    Row("log_rank_out_of_step", "root", "script",
        r"Detected at least one rank that exhausted inputs|Rank \d+ exhausted all inputs",
        ("RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks.",),
        "the ranks have different numbers of batches",
        "An IterableDataset or a custom sampler gives one rank more batches. The others have already finished "
        "when it starts its next collective.",
        Fix("Give every rank the same number of steps.",
            ("DataLoader(..., drop_last=True)", "with accelerator.join_uneven_inputs([model], even_batches=False):",
             "mgpu doctor --script train.py")),
        "https://pytorch.org/docs/stable/distributed.algorithms.join.html"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
