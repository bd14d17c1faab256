"""Did an Ascend NPU, its driver (CANN) or its collectives (HCCL) fail?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

_CANN = "https://www.hiascend.com/document/detail/en/canncommercial/800/troubleshooting/troubleshooting_0001.html"
_TORCH_NPU = "https://github.com/Ascend/pytorch"
_SHOW = ("npu-smi info", "ls -t ~/ascend/log/debug/plog | head")
_PLOG = (
    "ls -t ~/ascend/log/debug/plog | head",  # or in ASCEND_PROCESS_LOG_PATH
    "grep -rhE 'ERROR.*HCCL' ~/ascend/log/debug/plog | head",
)
_HCCL_CODES = {  # hccl_types.h; 9 and 11 to 14 are another rank that does not answer
    "1": "an argument is not valid",
    "2": "a pointer is empty",
    "3": "memory is missing",
    "4": "an internal error",
    "5": "the call is not supported here",
    "6": "something is not found",
    "7": "a resource is not available",
    "8": "a call of the system failed",
    "15": "a call of the runtime (CANN) failed",
    "16": "a call of the driver failed",
    "19": "the network between the NPUs failed",
}
_STREAM_TOO_SLOW = "507046"
_IN_BARRIER = re.compile(r" in (?:barrier|main_process_first|local_main_process_first|wait_for_everyone)$")
_WAITED = (
    Fix(
        "Prepare the dataset once before the training, so that no rank waits, and look at the log of rank 0.",
        ("mgpu doctor --log rank0.log",),
    ),
    Fix(
        "Or let the ranks wait longer.",
        (
            "echo $ACL_STREAM_TIMEOUT",
            "export ACL_STREAM_TIMEOUT=7200000 HCCL_EXEC_TIMEOUT=7200",
            "TrainingArguments(ddp_timeout=7200)",
        ),
    ),
)
# What the number after "error code is" means (acl/error_codes, rt_error_codes.h, aclnn).
_CODES: Mapping[str, tuple[str, str]] = {
    "161001": ("a null pointer was passed", "argument"),
    "161002": ("an argument has a wrong size, type or format", "argument"),
    "561003": ("no kernel for this operator is installed (the opp package of this NPU is missing)", "install"),
    "561103": ("an internal check of the operator failed", "argument"),
    "561107": ("the operators' package is not found (ASCEND_OPP_PATH)", "install"),
    "107002": ("the thread has no context: the device was not set in this process", "device"),
    "107003": ("a stream is not of this context: the device was changed", "device"),
    "207001": ("the NPU has no memory left", "memory"),
    "507008": ("the model, the operators or CANN are for another kind of NPU (SoC version)", "install"),
    "507010": ("the driver lost the device (no heartbeat)", "device"),
    "507011": ("a model or graph on the NPU failed", "kernel"),
    "507014": ("an AI Core kernel ran into its time limit", "kernel"),
    "507015": ("an AI Core kernel raised an exception", "kernel"),
    "507018": ("an AI CPU kernel raised an exception", "kernel"),
    "507034": ("a vector kernel ran into its time limit", "kernel"),
    "507035": ("a vector kernel raised an exception, often by an access outside of its memory", "kernel"),
    "507046": ("a stream was not finished within the time limit", "kernel"),
    "507053": ("the NPU's memory has an error that was not corrected (UCE)", "hardware"),
    "507054": ("memory of the NPU has an error that ECC could not correct", "hardware"),
    "507899": ("the driver reports an internal error", "device"),
}
# fmt: off
_FIXES: Mapping[str, tuple[Fix, ...]] = {
    "argument": (Fix("Read the message after the code (EZ1001 ...): it names the argument. Print the shapes, types "
                     "and devices of the tensors before the call.", ("print(x.shape, x.dtype, x.device)",)),),
    "memory": (Fix("Use a smaller micro-batch or shorter sequences, or give the rollout engine a smaller share.",
                   ("npu-smi info", "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True")),),
    "install": (Fix("Install the kernels (opp) package of CANN for this NPU, and load its environment.",
                    ("source /usr/local/Ascend/ascend-toolkit/set_env.sh", "npu-smi info")),),
    "device": (Fix("Check the device, and set it in every process before the first tensor.",
                   ("npu-smi info", "torch.npu.set_device(local_rank)")),),
    "kernel": (Fix("Find the operator: kernels run asynchronously, so the traceback can show a later call.",
                   ("export ASCEND_LAUNCH_BLOCKING=1", *_SHOW)),),
    "hardware": (Fix("Take the NPU out of service.", ("npu-smi info -t ecc -i 0",), who="hardware"),),
}
# fmt: on


def _of_hccl(call: str, code: str) -> Meaning:
    """Return what one of HCCL's own codes means: they are the same for all of its calls."""
    makes = call.startswith("HcclCommInit")
    what = "make its communicator" if makes else f"run {call}"
    first = (
        "It is made at the first collective of a group of ranks, which is the line in the traceback: that line is not "
        "the cause. "
        if makes
        else ""
    )
    return Meaning(
        f"HCCL, the collectives of Ascend NPUs, could not {what}: {_HCCL_CODES[code]} ({call}, error code {code})",
        f"{first}The code does not say why. CANN's log does, and lines below the message with EI.... or EJ.... if "
        "there are any. Often another process holds the NPU (an inference engine, an earlier run), two ranks use "
        "the same one, or CANN, its driver and torch_npu do not fit.",
        (
            Fix("Read the errors in CANN's log of this process.", _PLOG),
            Fix(
                "Check which processes and NPUs the run uses: each rank needs one of its own.",
                ("npu-smi info", "echo $ASCEND_RT_VISIBLE_DEVICES"),
            ),
            Fix("Compare the versions with the table of torch_npu.", ("pip show torch torch_npu", "npu-smi -v")),
        ),
    )


def _of_code(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return what the error code means."""
    if groups["call"].startswith("Hccl") and groups["code"] in _HCCL_CODES:
        return _of_hccl(groups["call"], groups["code"])
    known = _CODES.get(groups["code"])
    if known is None:
        return None
    what, kind = known
    if groups["code"] == _STREAM_TOO_SLOW and raised and any(map(_IN_BARRIER.search, raised.frames)):
        return Meaning(
            f"a rank waited in a barrier for the others until the NPU's time limit (error code {groups['code']})",
            "Another rank did not come: it still works alone (rank 0 prepares or tokenizes the dataset, as in "
            "main_process_first), or it failed. The rank that reports the time limit is not the cause.",
            _WAITED,
        )
    return Meaning(
        f"a call of the Ascend NPU failed: {what} (error code {groups['code']}, {groups['call']})",
        "The lines below the code have CANN's own report, such as EZ1001 or EZ9999. Other ranks report timeouts as a "
        "consequence.",
        _FIXES[kind],
    )


# fmt: off
ROWS = (
    Row("log_npu_call_failed", "root", "cuda",
        r"(?:(?:NPU|HCCL|OPS) function error: (?:call )?|(?=ACL stream synchronize failed))"
        r"(?P<call>ACL stream synchronize|[\w:]+)"
        r"(?:.{0,80}?, error code is |.{0,40}?failed, error code:\s?)(?!(?:9|1[1-4])\b)(?P<code>\d+)",
        ("RuntimeError: Sync:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:325 NPU function error: "
         "c10_npu::acl::AclrtSynchronizeStreamWithTimeout(stream), error code is 500002",
         "RuntimeError: copy_between_host_and_device:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:90 NPU function "
         "error: call aclnnInplaceCopy failed, error code is 161002",
         "RuntimeError: HCCL function error: HcclCommInitRootInfo(numRanks, &id, rank, &comm), error code is 4",
         "RuntimeError: ACL stream synchronize failed, error code:507035"),
        "a call of the Ascend NPU or of HCCL, its collectives, failed: {call}, error code {code}",
        "The lines below have CANN's own report (EZ...., EE...., EI....), which names the argument, the operator or "
        "the device.",
        Fix("Read that report, and the newest log of CANN.", _SHOW), _CANN, explain=_of_code,
        because_of=("log_npu_memory_full", "log_hccl_rank_missing"),
        summary="A call of an Ascend NPU or of HCCL failed."),
    Row("log_torch_npu_does_not_load", "root", "library",
        r"\blibtorch_npu\.so: undefined symbol|"
        r"\blib(?:atb|ascendcl|hccl|opapi|runtime|torch_npu)\w*\.so\S*: cannot open shared object",
        ("ImportError: /venv/lib/python3.10/site-packages/torch_npu/lib/libtorch_npu.so: undefined symbol: "
         "_ZN3atb15CreateOperation", "ImportError: libascendcl.so: cannot open shared object file: No such file or "
                                     "directory", "ImportError: libatb.so: cannot open shared object file"),
        "torch_npu does not load: CANN, or its library ATB (nnal), is missing or of another release",
        "torch_npu is built for one torch and one release of CANN. Their libraries are found only after "
        "set_env.sh was sourced. A missing symbol means that the library is there in another release.",
        (Fix("Load the environment of CANN and of nnal in this shell and in the job script.",
             ("source /usr/local/Ascend/ascend-toolkit/set_env.sh", "source /usr/local/Ascend/nnal/atb/set_env.sh")),
         Fix("Compare the releases with the table of torch_npu.",
             ("pip show torch torch_npu", "cat /usr/local/Ascend/ascend-toolkit/latest/version.cfg"))),
        _TORCH_NPU, summary="torch_npu does not load: CANN or ATB is missing or of another release."),
    Row("log_npu_memory_full", "root", "cuda",
        r"NPU out of memory\. Tried to allocate (?P<size>[\d.]+ [KMGT]iB)",
        ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; 57.10 GiB "
         "already allocated)",),
        "the NPU's memory is full: {size} more were needed",
        "Weights, gradients, optimizer states and activations of one rank do not fit, or an inference engine on the "
        "same NPU holds the rest.",
        (Fix("Use a smaller micro-batch or shorter sequences, or recompute activations.",
             ("npu-smi info", "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True")),
         Fix("Give the engine a smaller share.", ("actor_rollout_ref.rollout.gpu_memory_utilization=0.5",))),
        _TORCH_NPU, summary="An NPU's memory is full."),
    Row("log_hccl_rank_missing", "secondary", "nccl",
        r"(?:HCCL function error: |OPS function error: Hccl).{1,160}error code is (?:9|1[1-4])\b|"
        r"Notify register times out|"
        r"EI0006: (?:\[PID: \d+\] )?(?:[-\d:. ]+ )?Getting socket times out",
        ("EI0002: [PID: 4711] The wait execution of the Notify register times out.",
         "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.",
         "RuntimeError: HCCL function error: HcclAllreduce, error code is 9"),
        "HCCL, the collectives of Ascend NPUs, waited for another rank without success",
        "Another rank failed, is far behind or does not make the same call (ranks that generate different numbers of "
        "texts), or cannot be reached: its device has no address (hccn), or a firewall closes the ports. Lines with "
        "\"Create Dest error\" name the other ranks (dst_rank).",
        (Fix("Find the rank that failed first, or that did something else at this time.",
             ("mgpu doctor --log LOGS...",)),
         Fix("If all ranks wait: check the links between the NPUs, and raise the limit for a slow start.",
             ("hccn_tool -i 0 -link -g", "export HCCL_CONNECT_TIMEOUT=1800 HCCL_EXEC_TIMEOUT=3600"))),
        _CANN, summary="HCCL waited for another rank without success."),
    Row("log_hccl_devices_busy", "root", "nccl",
        r"Failed to initialize the HCCP process",
        ("EJ0001: Failed to initialize the HCCP process. Reason: Maybe the last training process is running.",),
        "HCCL cannot use the NPUs: a process of an earlier run still holds them",
        "Each NPU has one HCCP process, which belongs to one job at a time.",
        Fix("Stop what is left of the earlier run.", ("npu-smi info", "ps aux | grep python")), _CANN),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
