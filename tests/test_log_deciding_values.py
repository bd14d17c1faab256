"""Numbers, names and frames of a log that decide between several causes: only the one that holds is shown.

All logs are written here, in the form of the programs that print them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import SCRIPT, explained, traceback

PLANNER = "torch/distributed/checkpoint/default_planner.py"
CHECKPOINT_ERROR = (
    "[rank0]: torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following "
    "tensors have different metadata than during the forward pass.\n[rank0]: tensor at position 3:\n"
    "[rank0]: saved metadata: {{'shape': torch.Size([2, 64]), 'dtype': torch.{0}, 'device': device(type='cuda')}}\n"
    "[rank0]: recomputed metadata: {{'shape': torch.Size([2, 64]), 'dtype': torch.{1}, 'device': "
    "device(type='cuda')}}\n"
)
RAY_DIED = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "        class_name: Runner\nThe actor is dead because its worker process has died. Worker exit type: "
    "SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. {}"
)
STORE = "torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"
NO_CLIENT = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect"
RAY_TABLE = (
    "(autoscaler +3s) Error: No available node types can fulfill resource request defaultdict(<class 'float'>, "
    "{{'GPU': 4.0}}). Add suitable node types to this cluster to resolve this issue.\nResources\n---\nUsage:\n"
    " 0.0/16.0 CPU\n {}/{} GPU\n"
)
SERVICE_PORT = "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:{} (errno: 98 - Address already "
BINARY = "Could not find the bitsandbytes CUDA binary at PosixPath('{}/bitsandbytes/libbitsandbytes_cuda124.so')\n"


def with_function(text: str, function: str) -> str:
    """A traceback whose last frame is in this function."""
    before, _, after = text.rpartition(" in run")
    return f"{before} in {function}{after}"


@pytest.mark.parametrize(
    ("text", "row", "title", "words", "absent"),
    [
        # Sizes of a parameter: a flat shard has no shape.
        (traceback("ValueError: Size mismatch between saved torch.Size([64, 32]) and current: torch.Size([512]) for "
                   "model.embed.weight", SCRIPT, PLANNER), "log_checkpoint_sizes_differ",
         "whole parameters, and the run reads flat pieces of FSDP", "64 x 32 = 4 x 512", "other configuration"),
        (traceback("ValueError: Size mismatch between saved torch.Size([512]) and current: torch.Size([64, 32]) for "
                   "model.embed.weight", SCRIPT, PLANNER), "log_checkpoint_sizes_differ",
         "flat pieces of FSDP, and the run reads whole parameters", "64 x 32 = 4 x 512", "other configuration"),
        (traceback("ValueError: Size mismatch between saved torch.Size([64, 32]) and current: torch.Size([16, 32]) for "
                   "model.fc.weight", SCRIPT, PLANNER), "log_checkpoint_sizes_differ",
         "has another size than in the model", "exactly 4 times", "flat pieces"),
        # A small one can be of another layer.
        ("RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for mlp.weight: copying a param with "
         "shape torch.Size([64, 32]) from checkpoint, the shape in current model is torch.Size([512]).",
         "log_checkpoint_sizes_differ", "has another size than in the model", "configuration", "FSDP"),
        # A mesh that torchtitan's own code requests.
        (with_function(traceback(
            "ValueError: Mesh 'cp' is not available. Ensure the corresponding parallelism dimension is enabled "
            "(size > 1).", "/x/torchtitan/torchtitan/models/qwen3/infra/parallelize.py",
            "/x/torchtitan/torchtitan/distributed/parallel_dims.py", raised=True), "get_mesh"),
         "log_settings_rejected", "context parallelism is off",
         "parallelism.context_parallel_degree", "fields that the message names"),
        # What Ray reports of a pod.
        (RAY_DIED.format("The worker may have exceeded K8s pod memory limits."), "log_ray_worker_died",
         "memory limit of its pod", "kubectl describe pod", "dmesg"),
        (RAY_DIED.format(""), "log_ray_worker_died", "its own output has the reason", "dmesg", "kubectl"),
        # The process that cannot connect is the server, or the name is a container's.
        (with_function(traceback(f"{NO_CLIENT} to (node7, 41331).", STORE), "_create_tcp_store_server"),
         "log_master_unreachable", "cannot reach its own store", "--standalone", "belongs to another node"),
        (traceback(f"{NO_CLIENT} to (0a1b2c3d4e5f, 29500).", SCRIPT, "torch/distributed/rendezvous.py"),
         "log_master_unreachable", "the name of a container", "--network=host", "prepares data"),
        # Only the dtype differs.
        (CHECKPOINT_ERROR.format("float32", "bfloat16"), "log_recomputation_differs",
         "float32 in the forward pass, bfloat16 when it was repeated", "torch_dtype", "use_cache"),
        # Tokens and features of images.
        ("ValueError: Image features and image tokens do not match: tokens: 0, features 324", "log_image_tokens_differ",
         "has no image token", "placeholder", "max_length"),
        ("ValueError: Image features and image tokens do not match: tokens: 200, features 324",
         "log_image_tokens_differ", "124 image tokens are missing", "max_length", "no placeholder"),
        ("ValueError: Image features and image tokens do not match, tokens: 648, features: 324",
         "log_image_tokens_differ", "twice as many image tokens as features", "twice", "max_length"),
        ("ValueError: Mismatch in `image` token count between text and `input_ids`. Got ids=[100] and text=[200].",
         "log_image_tokens_differ", "100 image tokens are missing", "max_length", "twice"),
        ("ValueError: The number of image tokens is 0 while the number of image given to the model is 1.",
         "log_image_tokens_differ", "has no image token", "The sample has 1 image,", "max_length"),
        # Which of two conditions does not hold.
        (traceback("AssertionError: Tensor dimensions are not compatible for FP8 execution: (3584 % 8 != 0, "
                   "1912 % 16 != 0)", SCRIPT, "transformer_engine/pytorch/utils.py", raised=True),
         "log_settings_rejected", "1912 is not a multiple of 16", "1920", "3584 is not"),
        (traceback("AssertionError: FP8 block scaled GEMM requires Hopper and CUDA >= 12.9.", SCRIPT,
                   "transformer_engine/pytorch/fp8.py", raised=True),
         "log_settings_rejected", "requires Hopper and CUDA >= 12.9", "torch.version.cuda", "setting that the message"),
        # A folder that is there, and was to be made only if it is not.
        (traceback("FileExistsError: [Errno 17] File exists: 'out/step_10'", SCRIPT)
         .replace("call()", "os.makedirs(path, exist_ok=True)"), "log_cache_raced",
         "is not a folder in the view of this node", "ls -ld", "main_process_first"),
        # Both the caller and the function are in a clone.
        (traceback("TypeError: Sender.send_chunks() got an unexpected keyword argument 'metadata'",
                   "/tmp/ray/working_dir_files/_ray_pkg_3a5/verl/workers/fsdp_worker.py"),
         "log_argument_not_accepted", "two files of the verl source tree probably do not fit", "git status",
         "pip install"),
        (traceback("TypeError: Sender.send_chunks() got an unexpected keyword argument 'metadata'",
                   "verl/workers/fsdp_worker.py"),
         "log_argument_not_accepted", "the installed verl does not fit", "pip install", "git status"),
        # The process at the other end of a pipe.
        (traceback("EOFError", SCRIPT, "/x/lib/python3.11/multiprocessing/connection.py", raised=True)
         .replace("call()", "reply = self.remote.recv()").replace("raise problem", "raise EOFError"), "log_exception",
         "the process at the other end of the pipe", "host memory", "inspect this rank's batch"),
        # The limit is derived from the message.
        ("ValueError: The decoder prompt (length 16476) is longer than the maximum model length of 16384.",
         "log_prompts_too_long", "16476", "max_model_len=17408", "verl"),
        ("NotImplementedError: sequence_length=3011 is larger than max_length=2048", "log_prompts_too_long", "3011",
         "data.max_prompt_length=3072", "max_model_len"),
        # A port that below 1024.
        (f"{SERVICE_PORT.format(22)}in use).\n", "log_port_taken", "below 1024",
         "env | grep", "Every run uses 29500"),
        (f"{SERVICE_PORT.format(29500)}in use).\n", "log_port_taken", "the rendezvous port is already in use",
         "29500", "below 1024"),
        # What Ray has, and what of it is used.
        (RAY_TABLE.format("0.0", "1.0"), "log_ray_request_too_large", "fewer GPUs than the job requests", "nvidia-smi",
         "Stop an old cluster"),
        (RAY_TABLE.format("6.0", "8.0"), "log_ray_request_too_large", "other tasks hold", "ray list actors",
         "--num-gpus"),
        # Objects that no process of this run has.
        ("megatron.core.dist_checkpointing.core.CheckpointingException: Invalid access pattern: 36 ShardedObject are "
         "missing.", "log_checkpoint_objects_missing", "36", "--pipeline-model-parallel-size", "names nothing"),
        # A source tree of bitsandbytes without its library.
        (BINARY.format("/work/bitsandbytes"), "log_bitsandbytes_without_cuda", "source tree", "cmake",
         "pip install --upgrade"),
        (BINARY.format("/x/site-packages"), "log_bitsandbytes_without_cuda", "no library for this torch's CUDA",
         "pip install --upgrade", "cmake"),
        ("WARNING: BNB_CUDA_VERSION=124 environment variable detected; loading libbitsandbytes_cuda124.so.\n"
         + BINARY.format("/x/site-packages"), "log_bitsandbytes_without_cuda", "BNB_CUDA_VERSION",
         "unset BNB_CUDA_VERSION", "cmake"),
        # torchrun's line alone reports as little as its table.
        ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 33375) of "
         "binary: /opt/env/bin/python\n", "log_child_failed", "does not report why", "record", "{"),
    ],
)  # fmt: skip
def test_the_value_in_the_log_decides(tmp_path: Path, text: str, row: str, title: str, words: str, absent: str) -> None:
    found, shown, rest = explained(tmp_path, text)
    assert found == row
    assert title in shown, shown
    assert words in rest, rest
    assert absent not in f"{shown} | {rest}", rest
