"""Which line of a log is the cause, if several lines are causes by themselves?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

CASES = {
    "the kernel's line proves why a process got SIGKILL": (
        """\
Traceback (most recent call last):
  File "/home/u/run.py", line 12, in main
    subprocess.run(cmd, check=True)
subprocess.CalledProcessError: Command '['torchrun', 'train.py']' died with <Signals.SIGKILL: 9>.
[12345.678901] Memory cgroup out of memory: Killed process 99 (python) total-vm:1kB, anon-rss:1kB
""",
        "log_killed_for_memory",
    ),
    "a GPU that fell off the bus stops programs on other GPUs": (
        """\
[1.1] NVRM: Xid (PCI:0000:1b:00): 43, pid=1896, name=python, Ch 00000008
[2.1] NVRM: Xid (PCI:0000:2b:00): 79, pid=1896, GPU has fallen off the bus.
""",
        "log_xid_bus",
    ),
    "an NVLink fault comes before the cleanup": (
        """\
[1.0] NVRM: Xid (PCI:0000:1b:00): 45, pid=1896, name=python, Ch 00000010
[1.1] NVRM: Xid (PCI:0000:1b:00): 145, RLW_REMAP Fatal XC0 i0 Link 08
""",
        "log_xid_nvlink",
    ),
    "a module that was not loaded explains the missing package": (
        """\
Lmod has detected the following error: The following module(s) are unknown: "conda/4"
slurm_script: line 37: activate: No such file or directory
Traceback (most recent call last):
  File "run.py", line 12, in <module>
    import torch
ModuleNotFoundError: No module named 'torch'
""",
        "log_module_not_loaded",
    ),
    "a module that was not loaded does not explain the script's own error": (
        """\
bash: module: command not found
Traceback (most recent call last):
  File "/home/u/run.py", line 12, in <module>
    main()
ValueError: batch size must be positive
""",
        "log_exception",
    ),
    "a service mesh closes the rendezvous": (
        """\
[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=15, addr=[j-1.j.u.svc.cluster.local]:60560, \
remote=[j-0.j.u.svc.cluster.local]:29500): failed to recv, got 0 bytes
[W TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host j-0.j:29500 - retrying (try=0, \
timeout=60000ms, delay=1000ms): failed to recv, got 0 bytes
""",
        "log_main_pod_closed_connection",
    ),
    "cuMem host memory before the missing peer access that it needs": (
        """\
n1:774:854 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 217 'peer access is not supported between these two devices'
""",
        "log_nccl_host_memory_path",
    ),
    "a name before each line": (
        """\
worker-1: ncclUnhandledCudaError: Call to CUDA function failed.
worker-1: Last error:
worker-1: Cuda failure 'initialization error'
""",
        "log_nccl_initialized_after_fork",
    ),
    "the build of a package without torch": (
        """\
ModuleNotFoundError: No module named 'torch'
ERROR: Failed to build 'flash-attn' when getting requirements to build wheel
""",
        "log_build_isolated",
    ),
    "an address with a netmask is not resolved": (
        """\
torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (10.0.0.5/24, \
29500). The IPv6 network addresses of (10.0.0.5/24, 29500) cannot be retrieved (gai error: -2 - Name or service not \
known).
""",
        "log_master_address_malformed",
    ),
    "an image that was not imported, not the container": (
        """\
slurmstepd: error: pyxis: child 10028 failed with error code: 1
slurmstepd: error: pyxis: failed to import docker image
slurmstepd: error: pyxis: couldn't start container
srun: error: compute-0: task 0: Exited with exit code 1
""",
        "log_image_import_failed",
    ),
    "loopback on one node is no fault of the network": (
        """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 9, in <module>
[rank1]:     loss.backward()
[rank1]: ValueError: no loss
n1:1:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 127.0.0.1<40001> failed : Connection refused
""",
        "log_exception",
    ),
    "NCCL's shared memory, not a container": (
        """\
n1:1:2 [0] os/linux.cc:132 NCCL WARN Error: failed to create shared memory file /dev/shm/nccl-Ab1, error No space left \
on device (28)
[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error
[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
[rank0]: Last error:
[rank0]: Error: failed to create shared memory file /dev/shm/nccl-Ab1, error No space left on device (28)
""",
        "log_shm_full_for_nccl",
    ),
    "NCCL's network plugin, not a container's network": (
        """\
[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, invalid usage, NCCL version 2.21.5
[rank0]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
[rank0]: Last error:
[rank0]: Error: network AWS-OFI not found.
""",
        "log_network_named_not_there",
    ),
    "a backend without a collective did not lose a rank": (
        """\
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in main
    dist.gather(t, parts)
RuntimeError: ProcessGroupNCCL does not support gather
""",
        "log_collective_not_in_backend",
    ),
    "a package's check that says what is wrong is no mistake of its release": (
        """\
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in main
    layer(x)
  File "/venv/lib/python3.11/site-packages/transformer_engine/pytorch/module/base.py", line 100, in get_method
    raise KeyError(f"Given layer name {name} does not exist.")
KeyError: 'Given layer name qkv does not exist.'
""",
        "log_exception",
    ),
    "torch.compile's backend, not that of a process group": (
        "torch._dynamo.exc.InvalidBackend: Invalid backend: 'inducto', see `torch._dynamo.list_backends()` for "
        "available backends.\n",
        "log_compile_backend_unknown",
    ),
    "a store that answers wrongly once is asked again": (
        """\
[W TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host 127.0.0.1:30325 - retrying (try=0, \
timeout=600000ms, delay=385ms): Ping failed, invalid value returned from server. Expected: 297731, Got: 68681728
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in main
    step()
ValueError: no loss
""",
        "log_exception",
    ),
    "shards of one rank in their own shape": (
        """\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/distributed/fsdp/_flat_param.py", line 2341, in _writeback_tensor
    raise RuntimeError(
RuntimeError: Cannot writeback when the parameter shape changes
Expects torch.Size([20]) but got torch.Size([5, 4])
""",
        "log_fsdp_parameter_replaced",
    ),
}


def _first(text: str, folder: Path) -> root_cause.Cause:
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None
    return first


@pytest.mark.parametrize("name", CASES)
def test_the_cause_comes_first(name: str, tmp_path: Path) -> None:
    text, wanted = CASES[name]
    assert _first(text, tmp_path).id == wanted


def test_nccls_own_message_is_in_the_title(tmp_path: Path) -> None:
    text = "[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n[rank1]: Last error:\n"
    cause = _first(f"{text}[rank1]: Blocking and nonblocking communicators are not allowed\n", tmp_path)
    assert cause.outcome.problem is not None
    title = "NCCL rejected a call: Blocking and nonblocking communicators are not allowed"
    assert (cause.id, cause.outcome.problem.title) == ("log_nccl_invalid_usage", title)


@pytest.mark.parametrize("address, loopback", [("127.0.0.1", True), ("10.0.0.1", False)])
def test_a_rank_that_waits_at_its_own_node(address: str, loopback: bool, tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/home/u/t.py", line 191, in main\n    return TCPStore(\n'
    message = f"TimeoutError: The client socket has timed out after 1800s while trying to connect to ({address}, 42649)"
    cause = _first(f"{text}{message}.\n", tmp_path)
    assert cause.id == "log_master_unreachable" and cause.outcome.problem is not None
    assert ("loopback" in cause.outcome.problem.title) is loopback


def test_torchruns_agent_lost_the_main_node(tmp_path: Path) -> None:
    frames = "".join(
        f'  File "/x/{path}", line {line}, in {name}\n    {code}\n'
        for path, line, name, code in (
            ("bin/torchrun", 8, "<module>", "sys.exit(main())"),
            ("site-packages/torch/distributed/run.py", 879, "main", "run(args)"),
            ("site-packages/torch/distributed/launcher/api.py", 132, "__call__", "return launch_agent(config)"),
            (
                "site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py",
                117,
                "_call_store",
                "x()",
            ),
        )
    )
    error = "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"
    cause = _first(f"Traceback (most recent call last):\n{frames}{error}\n", tmp_path)
    assert cause.outcome.problem is not None
    assert cause.outcome.problem.title == "the main node accepted torchrun's connection and closed it"


def test_what_the_script_did_while_it_handled_an_exception_is_not_the_cause(tmp_path: Path) -> None:
    first = frames((SCRIPT, "main", "out = model(x, mask)"))
    second = frames((SCRIPT, "main", "out = model(x)"))
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    error = "TypeError: Decoder.forward() missing 1 required positional argument: 'mask'\n"
    name, title, words = explained(tmp_path, f"{first}RuntimeError: shapes differ\n{chain}{second}{error}")
    assert name == "log_exception" and title.startswith("RuntimeError: shapes differ") and "TypeError" in title
    assert "Start with the first exception" in words
    expected = explained(tmp_path, f"{first}KeyError: 'mask'\n{chain}{second}{error}")[1]
    assert "does not pass 'mask'" in expected  # a lookup that fails is a normal course


@pytest.mark.parametrize(
    ("above", "cause"),
    [
        ("/usr/bin/ld: cannot find -lcurand: No such file or directory\n", "log_library_not_linked"),
        ("/bin/sh: 1: nvcc: not found\n", "log_command_not_found"),
        ("", "log_extension_not_built"),
    ],
)
def test_a_failed_command_gives_way_to_what_it_printed(above: str, cause: str, tmp_path: Path) -> None:
    text = (
        f"{above}{frames((SCRIPT, 'main', 'build()'))}subprocess.CalledProcessError: Command '['ninja', '-v']' returned"
    )
    name, title, words = explained(tmp_path, f"{text} non-zero exit status 1.\n")
    assert name == cause, title
    assert above or "the compiler's first error" in title
    title, words = explained(tmp_path, f"{text.replace('ninja', './build.sh')} non-zero exit status 1.\n")[1:]
    assert above or ("./build.sh -v (exit code 1)" in title and "Run it by itself" in words)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("PossibleUserWarning: The `srun` command is available on your system but is not used.\n",
         "log_lightning_without_srun"),
        ('[rank1]:[W510 13:52:58.2 ProcessGroupNCCL.cpp:1771] Failed to check the "should dump" flag on TCPStore\n',
         "log_store_gone"),
        ("> /home/ada/fit.py(202)main()\n-> loss.backward()\n(Pdb) \n", "log_debugger_waits"),
        ("> /home/ada/fit.py(202)main()\n(Pdb) c\nstep 1 loss 0.3\nstep 2 loss 0.2\nstep 3 loss 0.2\n", None),
    ],
)  # fmt: skip
def test_what_the_end_of_an_excerpt_shows(text: str, cause: str | None, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert (first.id if first else None) == cause


TAKEN = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 21.99 GiB "
    "of which 543.75 MiB is free. Process 62344 has {held} GiB memory in use. Including non-PyTorch memory, this "
    "process has {own} GiB memory in use.\n"
)


def test_another_process_is_the_cause_if_it_holds_much(tmp_path: Path) -> None:
    step = frames((SCRIPT, "main", "optimizer.step()"), ("torch/optim/adamw.py", "step", "state['exp_avg_sq'] = z"))
    name, title, words = explained(tmp_path, step + TAKEN.format(held="4.10", own="17.34"))
    assert "optimizer's step" in title and "another process (pid 62344) holds 4.10 GiB of the GPU's 21.99" in words
    name, title, words = explained(tmp_path, step + TAKEN.format(held="9.10", own="12.34"))
    assert name == "log_gpu_memory_taken" and "another process (pid 62344) uses 9.10 GiB" in title
    replica = "torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.\nOriginal Traceback"
    rest = frames(("torch/nn/parallel/parallel_apply.py", "_worker", "output = module(*input)"))
    text = f"{step}{replica} {rest}{TAKEN.format(held='20.10', own='1.34')}"
    assert explained(tmp_path, text)[0] == "log_gpu_memory_taken"  # and not that DataParallel needs more on GPU 0


def test_a_package_that_calls_compiled_code_did_not_check_its_input(tmp_path: Path) -> None:
    error = "RuntimeError: The engine stopped because a plane was not aligned there\n"
    calls = frames((SCRIPT, "main", "run()"), ("verl/core.py", "step", "if not finite(norm):"))
    assert "checked what it was given" not in explained(tmp_path, calls + error)[2]
    refused = frames((SCRIPT, "main", "run()"), ("verl/core.py", "step", "raise RuntimeError("))
    assert "verl checked what it was given" in explained(tmp_path, refused + error)[2]


def test_another_line_with_the_message_and_more_is_quoted(tmp_path: Path) -> None:
    text = frames((SCRIPT, "check", "raise Exception('Dataset not found.')")) + "Exception: Dataset not found.\n"
    for whole in (
        f"{text}WARNING: Dataset not found, nonexistent paths: ['/d/val']\n",
        f"Dataset not found: /d/val\n{text}",
    ):
        words = explained(tmp_path, whole)[2]
        assert "Elsewhere, the program printed: " in words and "/d/val" in words
    assert "Elsewhere" not in explained(tmp_path, text)[2]


def test_steps_that_worked_are_told(tmp_path: Path) -> None:
    check = frames((SCRIPT, "main", "assert not args.visual"), prefix="[rank6]: ") + "[rank6]: AssertionError\n"
    ranks = "".join(f"[rank{rank}]: ready\n" for rank in range(8))
    steps = "".join(f"(step={step:07}) loss 0.{step}\n" for step in range(51, 61))
    words = explained(tmp_path, ranks + steps + check)[2]
    assert 'the last is "(step=0000060) loss 0.60"' in words and "Only this rank raised it" in words
    assert "came after steps" not in explained(tmp_path, ranks + check)[2]
    bar = " 4%|4  | 500/9000 [02:34<1:01:57,  3.63it/s]"
    words = explained(tmp_path, f"{bar}/opt/x/warn.py:3: odd\n{frames((SCRIPT, 'main', 'f(x)'))}ValueError: odd\n")[2]
    assert f'the last is "{bar.strip()}"' in words  # and not what another program printed into its line
    missing = frames((SCRIPT, "main", "frob()")) + "NameError: name 'frob' is not defined\n"
    assert "came after steps" not in explained(tmp_path, steps + missing)[2]  # does not depend on the data


def test_an_empty_list_in_a_package_and_a_flat_parameter(tmp_path: Path) -> None:
    error = "IndexError: list index out of range\n"
    own = (SCRIPT, "main", "inputs = processor(text=[text], images=images_of_turn)")
    nested = (
        "transformers/image_transforms.py",
        "group",
        "device = images[0][0].device if nested else images[0].device",
    )
    _, title, words = explained(tmp_path, frames(own, nested) + error)
    assert title.startswith("images is empty in transformers") and "images=images_of_turn" in words
    several = ("transformers/image_transforms.py", "group", "device = images[0][places[0]]")
    assert "is empty" not in explained(tmp_path, frames(own, several) + error)[1]
    shape = ("deepspeed/containers/gptneox.py", "heads", "self.module.attention.weight.shape[1]")
    _, title, words = explained(tmp_path, frames(own, shape) + "IndexError: tuple index out of range\n")
    assert title.startswith("self.module.attention.weight has no dimension 1") and "ZeRO-3" in words
    shape = (SCRIPT, "main", "x.shape[3]")
    _, title, words = explained(tmp_path, frames(shape) + "IndexError: tuple index out of range\n")
    assert title.startswith("x has no dimension 3") and "ZeRO-3" not in words


def test_a_message_that_rich_wrapped(tmp_path: Path) -> None:
    box = "\u2502    894                        \u2502\n\u2570" + "\u2500" * 30 + "\n"
    text = (
        "AssertionError: Check batch related parameters. train_batch_size is not\nequal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 64 != 4 *\n8 * 1\n"
    )
    assert explained(tmp_path, box + text)[0] == "log_deepspeed_batch_wrong"


def test_the_end_of_the_output_is_an_exception_of_a_thread(tmp_path: Path) -> None:
    thread = "Exception in thread Thread-2 (results_loop):\n" + frames((SCRIPT, "loop", "raise e")) + "KeyError: 'x'\n"
    path = tmp_path / "run.log"
    for more, cause in (("", "log_exception"), ("step 8\n" * 20, None), ("{'train_runtime': 8.1}\n", None)):
        path.write_text(f"step 7\n{thread}{more}", "utf-8")
        first = root_cause.find_cause(read.read_logs([path]), None).first
        assert (first.id if first else None) == cause
    for end in ("{'train_runtime': 8.1}\n", "26-05-12 18:04:37.203 - INFO: End of training.\n"):
        path.write_text(end + thread, "utf-8")
        assert root_cause.find_cause(read.read_logs([path]), None).first is None


def test_a_traceback_of_torchrun_that_is_cut_is_no_cause(tmp_path: Path) -> None:
    wrapper = ("torch/distributed/elastic/multiprocessing/errors/__init__.py", "wrapper", "return f(*args, **kwargs)")
    path = tmp_path / "run.log"
    path.write_text(frames(("/opt/v/bin/torchrun", "<module>", "sys.exit(main())"), wrapper), "utf-8")
    log = read.read_logs([path])
    assert log.cut == () and root_cause.find_cause(log, None).first is None


def test_a_key_at_the_end_of_several_indices(tmp_path: Path) -> None:
    line = "print(f\"Sample: {samples['train'][index]['text']}\")"
    words = explained(tmp_path, frames((SCRIPT, "main", line)) + "KeyError: 'text'\n")[2]
    assert "samples['train'][index] has no key 'text'" in words


def test_an_iterator_that_ends_is_not_an_empty_one(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", "x, y = next(batches)")) + "StopIteration\n")
    assert title.startswith("batches has no more items") and "yields its data once" in words


@pytest.mark.parametrize(
    ("option", "what", "title", "words"),
    [
        ("--port/--main_port", "invalid int value: ''", "got no value", "not set in this job"),
        ("--data", "expected one argument", "got no value", "set -u"),
        ("--epochs", "invalid int value: 'epochs'", "got the name of a value", "the $ is missing"),
        ("--lr", "invalid float value: '$LR'", "got the name of a value", "single quotes"),
        ("--lr", "invalid float value: '1e-3x'", "rejects the argument", "--help"),
    ],
)
def test_a_rejected_value_shows_where_it_comes_from(
    option: str, what: str, title: str, words: str, tmp_path: Path
) -> None:
    found = explained(tmp_path, f"usage: fit.py [-h]\nfit.py: error: argument {option}: {what}\n")
    assert found[0] == "log_argument_value_rejected" and title in found[1] and words in found[2], found
