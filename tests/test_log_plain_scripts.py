"""What stops scripts without a framework: samples of other shapes, arguments, files, names of hosts, downloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

SCRIPT = "/home/ada/fit.py"
MAIN = (SCRIPT, "main", "fit(args)")


def raised(message: str, *calls: tuple[str, str, str]) -> str:
    return frames(MAIN, *calls) + f"{message}\n"


def stacked(one: str, other: str, *calls: tuple[str, str, str]) -> str:
    message = f"RuntimeError: stack expects each tensor to be equal size, but got [{one}] at entry 0 and [{other}] at "
    return raised(f"{message}entry 3", *calls)


@pytest.mark.parametrize(
    ("one", "other", "title", "words"),
    [
        ("705600, 2", "705600, 1", "mono and stereo sound", "x.mean(dim=1"),
        ("1, 16000", "2, 16000", "mono and stereo sound", "x.mean(dim=0"),
        ("3, 224, 224", "1, 224, 224", "images have 1 and 3 channels", "convert('RGB')"),
        ("480, 640, 4", "480, 640, 3", "images have 3 and 4 channels", "convert('RGB')"),
        ("3, 224, 224", "3, 224, 298", "different sizes", "Resize((224, 224))"),
        ("512", "417", "different lengths", "pad_sequence"),
        ("3, 4", "2, 4", "different sizes", "boxes or objects"),
        ("1024, 3", "1024, 4", "different sizes", "other numbers of columns"),
        ("1, 37", "1, 52", "a batch: [1, 37] and [1, 52]", "longest - x.shape[-1]"),
        ("1, 80, 431", "1, 80, 345", "different sizes", "spectrograms"),
        ("3, 17, 2", "1, 17, 2", "different sizes", "Resize"),
        ("3, 32, 32", "32, 32", "different sizes", "gray images without a channel"),
    ],
)
def test_the_sizes_of_samples_show_what_differs(tmp_path: Path, one: str, other: str, title: str, words: str) -> None:
    found, said, reason = explained(tmp_path, stacked(one, other))
    assert found == "log_samples_of_different_size" and title in said and words in reason
    assert ("DataCollatorWithPadding" in reason) == ("different lengths" in said or "return_tensors" in reason)


def test_samples_without_sizes_have_the_general_reason(tmp_path: Path) -> None:
    found, title, _ = explained(tmp_path, raised("RuntimeError: stack expects each tensor to be equal size"))
    assert (found, title) == (
        "log_samples_of_different_size",
        "samples of different sizes cannot be stacked into a batch",
    )


@pytest.mark.parametrize(
    "message",
    ["KeyError: slice(0, 30, None)", "TypeError: unhashable type: 'slice'",
     "pandas.errors.InvalidIndexError: (slice(None, None, None), 0)"],
)  # fmt: skip
def test_a_slice_of_a_dict_is_not_a_fault_of_a_package(tmp_path: Path, message: str) -> None:
    in_package = ("trl/trainer/own_trainer.py", "_prepare_inputs", "ids = ids[process_slice]")
    for text in (raised(message), raised(message, in_package)):
        found, title, words = explained(tmp_path, text)
        look = "df.iloc[:, 1]" if "pandas" in message else ".keys()"
        assert found == "log_dict_sliced" and "sliced" in title and look in words


def test_a_dataset_without_a_split_says_so_itself(tmp_path: Path) -> None:
    text = raised("KeyError: 'Invalid key: slice(None, 9, None). Please first select a split.'")
    assert cause(text, tmp_path) != "log_dict_sliced"


@pytest.mark.parametrize("message", ["only length-1 arrays can be converted", "only size-1 arrays can be converted"])
def test_an_array_that_is_not_one_number(tmp_path: Path, message: str) -> None:
    text = raised(f"TypeError: {message} to Python scalars", ("/home/ada/data.py", "__init__", "score = float(scores)"))
    found, title, words = explained(tmp_path, text)
    assert found == "log_array_not_one_value" and "used as one number" in title and "print(x.shape)" in words


def test_a_file_of_numpy_without_a_dict(tmp_path: Path) -> None:
    message = "ValueError: can only convert an array of size 1 to a Python scalar"
    call = ("/home/ada/data.py", "__init__", "labels = np.load(path, allow_pickle=True).item()")
    assert "expects a pickled dict" in explained(tmp_path, raised(message, call))[1]
    other = ("/home/ada/data.py", "__init__", "score = scores.item()")
    assert "pickled dict" not in explained(tmp_path, raised(message, other))[1]


def test_an_argument_that_is_given_twice(tmp_path: Path) -> None:
    message = "TypeError: Fitter.__init__() got multiple values for argument 'batch_size'"
    _, title, words = explained(tmp_path, raised(message, (SCRIPT, "fit", "Fitter(model, 8, batch_size=8)")))
    assert "passes batch_size twice to Fitter()" in title and "class Fitter" in words
    in_package = raised(message, ("trl/trainer/x.py", "train", "Fitter(model, 8, batch_size=8)"))
    assert "twice" not in explained(tmp_path, in_package)[1]


@pytest.mark.parametrize(
    ("name", "settings", "package"),
    [("predict_with_generate", "Seq2SeqTrainingArguments", "transformers"), ("packing", "SFTConfig", "trl"),
     ("num_generations", "GRPOConfig", "trl")],
)  # fmt: skip
def test_an_argument_of_a_derived_class(tmp_path: Path, name: str, settings: str, package: str) -> None:
    call = (SCRIPT, "fit", f"args = TrainingArguments({name}=1)")
    text = raised(f"TypeError: TrainingArguments.__init__() got an unexpected keyword argument '{name}'", call)
    found, title, words = explained(tmp_path, text)
    assert found == "log_argument_not_accepted" and f"{settings} of {package} has it" in title
    assert f"from {package} import {settings}" in words


@pytest.mark.parametrize(
    ("arguments", "twice"),
    [("python -m torch.distributed.launch --nproc_per_node=3 codes/train.py", True), ("torchrun train.py", True),
     ("--lr 3 nohup python train.py", True), ("--python 3", False), ("--shell bash", False), ("--bf17", False)],
)  # fmt: skip
def test_a_command_among_the_arguments(tmp_path: Path, arguments: str, twice: bool) -> None:
    found, title, _ = explained(tmp_path, f"usage: t.py [-h]\nt.py: error: unrecognized arguments: {arguments}\n")
    assert found == "log_argument_unknown" and ("second command" in title) == twice


@pytest.mark.parametrize(
    ("text", "relative"),
    [("python: can't open file 'src/fit.py': [Errno 2] No such file or directory\n", True),
     ("process 71 spawned with command: ['/usr/bin/python3', '-u', './train_net.py', '--local_rank=0']\n"
      "/usr/bin/python3: can't open file '/home/ada/jobs/./train_net.py': [Errno 2] No such file or directory\n", True),
     ("/usr/bin/python3: can't open file '/data/fit.py': [Errno 2] No such file or directory\n", False),
     ("process 71 spawned with command: ['/usr/bin/python3', '-u', '/data/fit.py', '--local_rank=0']\n"
      "/usr/bin/python3: can't open file '/data/fit.py': [Errno 2] No such file or directory\n", False),
     ("python.exe: can't open file 'C:\\\\w\\\\fit.py': [Errno 2] No such file or directory\n", False)],
)  # fmt: skip
def test_a_script_that_is_looked_up_in_another_folder(tmp_path: Path, text: str, relative: bool) -> None:
    found, title, _ = explained(tmp_path, text)
    assert found == "log_script_not_found" and ("its path is relative" in title) == relative


@pytest.mark.parametrize(
    ("line", "title"),
    [("finetune.py: error: unrecognized arguments: --epochs 3", "the script has no such option: --epochs 3"),
     ("eval_vl.py: error: unrecognized arguments: --judge gpt", "the script has no such option: --judge gpt"),
     ("run.py: error: unrecognized arguments: --nproc 3", "the script or the launcher"),
     ("torchrun: error: unrecognized arguments: --gpus 3", "the script or the launcher")],
)  # fmt: skip
def test_an_option_that_a_script_does_not_have(tmp_path: Path, line: str, title: str) -> None:
    assert title in explained(tmp_path, f"usage: x [-h]\n{line}\n")[1]


@pytest.mark.parametrize(
    "line",
    ["nslookup: can't resolve 'job-master-0': Name does not resolve", "** server can't find job-master-0: NXDOMAIN",
     "ping: job-master-0: Name or service not known", "ping: unknown host job-master-0",
     "Host job-master-0 not found: 3(NXDOMAIN)"],
)  # fmt: skip
def test_the_name_of_another_node(tmp_path: Path, line: str) -> None:
    started = "nslookup: can't resolve '(null)': Name does not resolve\n" + f"{line}\nwaiting for master\n"
    found, title, words = explained(tmp_path, started)
    assert found == "log_host_not_found" and title.endswith("job-master-0") and "getent hosts job-master-0" in words
    steps = "".join(f"step {n} loss 0.{n}\n" for n in range(1, 9))
    assert cause(started + steps, tmp_path) is None
    assert cause(started + raised("ValueError: no such split"), tmp_path) == "log_exception"


@pytest.mark.parametrize("line", ["ping: huggingface.co: Name or service not known", "Host key verification failed."])
def test_other_names_are_not_nodes(tmp_path: Path, line: str) -> None:
    assert cause(f"start\n{line}\n", tmp_path) != "log_host_not_found"


@pytest.mark.parametrize(
    "reason", ["[Errno 101] Network is unreachable", "[Errno -2] Name or service not known", "timed out"]
)
def test_a_download_with_urllib(tmp_path: Path, reason: str) -> None:
    inner = frames(("/usr/lib/python3.11/socket.py", "create_connection", "sock.connect(sa)")) + f"OSError: {reason}\n"
    text = raised(
        f"urllib.error.URLError: <urlopen error {reason}>", ("/home/ada/clip.py", "_download", "urlopen(url)")
    )
    found, title, words = explained(
        tmp_path, f"{inner}\nDuring handling of the above exception, another exception occurred:\n\n{text}"
    )
    assert found == "log_network_failed" and "no internet access" in title and "cache" in words


def test_a_file_that_a_server_does_not_have_is_not_a_missing_network(tmp_path: Path) -> None:
    text = raised("urllib.error.HTTPError: HTTP Error 404: Not Found")
    assert cause(text, tmp_path) != "log_network_failed"


def test_ninja_without_the_compilers_message(tmp_path: Path) -> None:
    call = ("torch/utils/cpp_extension.py", "_run_ninja_build", "subprocess.run(")
    text = raised("subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.", call)
    found, title, words = explained(tmp_path, text)
    assert found == "log_extension_not_built" and "extension" in title and "torch_extensions" in words
    header = "a.cu:3:10: fatal error: cuda_runtime.h: No such file or directory\n"
    assert explained(tmp_path, header + text)[0] == "log_header_missing"


@pytest.mark.parametrize("what", ["Train batch size: 0", "Micro batch size per gpu: 0", "Micro batch size per gpu: -1"])
def test_deepspeed_computes_a_batch_of_nothing(tmp_path: Path, what: str) -> None:
    found, title, words = explained(tmp_path, raised(f"AssertionError: {what} has to be greater than 0"))
    assert found == "log_deepspeed_batch_zero" and what.partition(":")[0] in title and "rounds down" in words


def test_a_value_head_that_is_not_in_the_folder(tmp_path: Path) -> None:
    repo = (
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
    )
    trl = ("trl/models/modeling_base.py", "from_pretrained", "filename = hf_hub_download(")
    found, title, words = explained(tmp_path, raised(f"{repo}'/data/ppo'.", trl))
    assert found == "log_hub_name_wrong" and "value head" in title and "ls -ld /data/ppo" in words
    assert "value head" not in explained(tmp_path, raised(f"{repo}'/data/ppo'."))[1]


def test_a_database_of_a_package_on_a_network_disk(tmp_path: Path) -> None:
    failed = "sqlite3.OperationalError: disk I/O error"
    own = explained(tmp_path, raised(failed, ("galois/_databases/_interface.py", "fetch", "self.cursor.execute(")))
    assert own[0] == "log_sqlite_locked" and "several ranks" not in own[1] and "OUTLINES" not in own[2]
    assert "several ranks" in explained(tmp_path, raised(failed, ("outlines/caching.py", "get", "cache.get(key)")))[1]
    locked = raised("sqlite3.OperationalError: database is locked")
    assert "another process or connection" in explained(tmp_path, locked)[1]
    assert "several ranks" in explained(tmp_path, f"[rank1]: ready\n{locked}")[1]


def test_a_checkpointed_part_without_gradients(tmp_path: Path) -> None:
    message = "RuntimeError: none of output has requires_grad=True, this checkpoint() is not necessary"
    found, title, words = explained(tmp_path, raised(message))
    assert found == "log_checkpointed_part_frozen" and "loss" not in title and "use_reentrant" in words


@pytest.mark.parametrize(
    ("state", "gradient", "title"),
    [(9846529, 39386113, "not sharded alike"), (39386113, 9846529, "sharded for another number of ranks")],
)
def test_the_smaller_of_state_and_gradient_decides(tmp_path: Path, state: int, gradient: int, title: str) -> None:
    message = (
        f"RuntimeError: The size of tensor a ({state}) must match the size of tensor b ({gradient}) at dimension 0"
    )
    adam = ("torch/optim/adam.py", "_single_tensor_adam", "exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)")
    assert title in explained(tmp_path, raised(message, ("torch/optim/adam.py", "step", "adam("), adam))[1]


@pytest.mark.parametrize(("device", "alone"), [("cuda:0", True), ("cuda:1", False)])
def test_all_processes_on_the_first_gpu(tmp_path: Path, device: str, alone: bool) -> None:
    shown = "".join(
        f"Num processes: 2\nProcess index: {n}\nLocal process index: {n}\nDevice: {at}\n\n"
        for n, at in enumerate(("cuda:0", device))
    )
    found, title, _ = explained(
        tmp_path, f"{shown}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n"
    )
    assert found == "log_ranks_share_a_gpu" and ("they see only one GPU" in title) == alone


@pytest.mark.parametrize(("call", "first"), [(("torch/distributed/distributed_c10d.py", "barrier"), True),
                                             (("/home/ada/fit.py", "check"), False)])  # fmt: skip
def test_nccl_in_a_process_that_uses_its_gpu(tmp_path: Path, call: tuple[str, str], first: bool) -> None:
    message = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1197, unhandled cuda error, NCCL "
        "version 2.18.3\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 'initialization error'"
    )
    found, title, words = explained(tmp_path, raised(message, (*call, "work = group.barrier()")))
    assert found == "log_nccl_initialized_after_fork"
    assert ("could not set up its first communicator" in title and "NCCL_NVLS_ENABLE=0" in words) == first


def test_a_message_whose_first_line_says_little(tmp_path: Path) -> None:
    text = (
        frames((SCRIPT, "main", "raise ValueError(text)"))
        + "ValueError: bye\nNo results file of:\nbash run.sh "
        + "x" * 99
    )
    title = explained(tmp_path, text + "\n")[1]
    assert title.endswith("bye No results file of: bash run.sh ...")


def test_a_server_of_the_run_is_not_the_internet(tmp_path: Path) -> None:
    refused = raised("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>")
    assert cause(refused, tmp_path) != "log_network_failed"


def test_a_resource_that_is_not_nltks(tmp_path: Path) -> None:
    for line in ("Resource /api/v1/users not found.", "Resource gpu_pool not found. Using the default."):
        assert cause(f"{line}\n", tmp_path) != "log_nltk_data_missing"
    found, title, words = explained(tmp_path, raised("LookupError: \n  Resource omw-1.4 not found.\n  Please use the"))
    assert found == "log_nltk_data_missing" and "omw-1.4" in title and "nltk_data omw-1.4" in words
