"""Which lines look like a failure but are not? A line that matches one of these is not searched for others."""

from __future__ import annotations

from mgpu.check import Fix, Kind
from mgpu.signature import Row, signatures

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_ELASTIC = "https://pytorch.org/docs/stable/elastic/errors.html"
_DIST = "https://pytorch.org/docs/stable/distributed.html"


def _row(name: str, kind: Kind, pattern: str, samples: tuple[str, ...], title: str, why: str, source: str) -> Row:
    return Row(name, "noise", kind, pattern, samples, title, why, Fix("No action needed.", ()), source)


# fmt: off
ROWS = (
    _row("log_hub_request_repeated", "network", r"' thrown while requesting (?:GET|HEAD|PUT|POST) https?://",
         ("[huggingface_hub.utils._http][WARNING] - '(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', "
          "port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1f-2)')' thrown while requesting HEAD "
          "https://huggingface.co/a/b/resolve/main/config.json",),
         "a request to the Hugging Face Hub that failed once",
         "huggingface_hub tries again, or takes the file from the cache. If it gives up, an exception follows.",
         "https://github.com/huggingface/huggingface_hub/blob/main/src/huggingface_hub/utils/_http.py"),
    _row("log_p2p_disabled_note", "nccl", r"P2P is disabled between connected GPUs",
         ("NCCL INFO P2P is disabled between connected GPUs 2 and 1. You can repress this message with "
          "NCCL_IGNORE_DISABLED_P2P=1.",),
         "GPUs without peer access", "Informational on PCIe and GeForce nodes.", _NCCL),
    _row("log_no_net_plugin", "nccl",
         r"NET/Plugin ?:? ?(?:No plugin found|Could not find: libnccl-net\.so|Failed to find nccl\w+Plugin)|"
         r"(?:TUNER|PROFILER|NET|ENV)/Plugin ?: (?!.*: version `).*(?:Could not find|Failed to find|load returned|"
         r"dlerror|not find)|"
         r"NCCL INFO .*cannot open shared object file|NCCL INFO dlvsym failed on ",
         ("NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
          "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
          "NCCL INFO TUNER/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such "
          "file or directory : when loading libnccl-tuner.so",
          "NCCL INFO TUNER/Plugin: Failed to find ncclTunerPlugin_v2, using internal tuner instead.",
          "NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object "
          "file: No such file or directory"),
         "no vendor plugin", "Normal. NCCL has a built-in transport.", "https://github.com/NVIDIA/nccl/issues/259"),
    _row("log_bitsandbytes_load_reported", "library", r"Configured ROCm binary not found at \S*bitsandbytes",
         ("RuntimeError: Configured ROCm binary not found at /x/bitsandbytes/libbitsandbytes_rocm82.so",),
         "bitsandbytes has no library for this ROCm", "bitsandbytes reports it when it is imported, and goes on. An "
         "operation that needs the library fails later, with an error of its own.",
         "https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/cextension.py"),
    _row("log_no_libibverbs", "nccl", r"Failed to open libibverbs\.so|NET/IB : No device found",
         ("NCCL WARN Failed to open libibverbs.so[.1]", "NCCL INFO NET/IB : No device found."),
         "no InfiniBand", "Normal on nodes without it.", "https://github.com/NVIDIA/nccl/issues/259"),
    _row("log_ras_port", "nccl", r"NCCL WARN .*\bRAS\b|RAS failed to establish|"
         r"RAS client listening|RAS handled inability",
         ("node1:1:2 [0] NCCL WARN RAS failed to establish a listening socket at localhost<28028>: Address already in "
          "use", "node1:1:2 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>"),
         "NCCL's RAS port is in use", "A second job runs on the node. Nothing else depends on this port.", _NCCL),
    _row("log_nccl_info_retry", "nccl", r"NCCL INFO .*(?:, retrying|retrying after sleep)",
         ("node1:1:2 [0] NCCL INFO socketStartConnect: Connect to 10.0.0.1<40001> failed : Connection refused, "
          "retrying",
          "node1:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying"),
         "a connection is retried", "Normal while the other rank is starting.", _NCCL),
    _row("log_master_addr_ignored", "launcher", r"master_addr is only used for static rdzv_backend",
         ("W run.py:855] master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified.",),
         "torchrun ignores --master_addr", "Harmless on a single node.",
         "https://github.com/pytorch/pytorch/issues/124380"),
    _row("log_omp_default", "launcher", r"Setting OMP_NUM_THREADS environment variable for each process to be",
         ("Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",),
         "one OpenMP thread per rank", "torchrun's default.", "https://pytorch.org/docs/stable/elastic/run.html"),
    _row("log_barrier_device_unknown", "nccl", r"devices? used by this process (?:is|are) currently unknown",
         ("using GPU 0 to perform barrier as devices used by this process are currently unknown. This can potentially "
          "cause a hang", "using GPU 0 as device used by this process is currently unknown."),
         "the process group was created without a device",
         "A warning from torch, which nearly always guesses the right device.",
         "https://github.com/huggingface/accelerate/issues/3551"),
    _row("log_group_not_destroyed", "nccl", r"destroy_process_group\(\) was not called",
         ("WARNING: destroy_process_group() was not called before program exit, which can leak resources",),
         "the process group was not destroyed", "Often printed after the real failure.", _DIST),
    _row("log_sibling_ended", "launcher",
         r"exitcode\s*:? ?-15\b|Signal 15 \(SIGTERM\)|closing signal SIGTERM|closing signal SIGKILL|"
         r"exits with return code = -15\b|Killing subprocess \d",
         ("  exitcode  : -15 (pid: 25777)  (SIGTERM)", "Signal 15 (SIGTERM) received by PID 25777",
          "[INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711",
          "[ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = -15",
          "W1121 10:00:00.000 4711 api.py:1010] Sending process 27001 closing signal SIGTERM",
          "Unable to shutdown process 27001 via 15, forcefully exiting via 9; closing signal SIGKILL"),
         "the launcher stopped the other ranks", "It does so when one has failed.", _ELASTIC),
    _row("log_port_taken_and_replaced", "launcher", r"Port `\d+` is already in use\. Accelerate will attempt",
         ("UserWarning: Port `29500` is already in use. Accelerate will attempt to launch in a standalone-like mode",),
         "accelerate uses another port", "On a single node it picks a free one automatically.",
         "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py"),
    _row("log_tokenizers_forked", "library", r"process just got forked, after parallelism has already been used",
         ("huggingface/tokenizers: The current process just got forked, after parallelism has already been used.",),
         "tokenizers were used before a fork", "The library turns its threads off.",
         "https://github.com/huggingface/tokenizers/blob/main/tokenizers/src/utils/parallelism.rs"),
    _row("log_client_name_unknown", "network", r"hostname of the client socket cannot be retrieved",
         ("[W socket.cpp:464] [c10d] The hostname of the client socket cannot be retrieved. err=-3",),
         "a client without a host name", "Only the log message lacks it.",
         "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/socket.cpp"),
    _row("log_gradient_strides", "script", r"Grad strides do not match bucket view strides",
         ("UserWarning: Grad strides do not match bucket view strides.",),
         "gradients with a different memory layout", "DDP makes a copy.",
         "https://pytorch.org/docs/stable/notes/ddp.html"),
    _row("log_unused_search_needless", "script",
         r"find_unused_parameters=True was specified in DDP constructor, but did",
         ("[W reducer.cpp:1457] Warning: find_unused_parameters=True was specified in DDP constructor, but did not "
          "find any unused parameters in the forward pass.",),
         "find_unused_parameters is not needed", "The search costs time in each step.",
         "https://pytorch.org/docs/stable/notes/ddp.html"),
    _row("log_libaio_note", "library", r"async_io requires the dev libaio|please install the libaio|"
         r"If libaio is already installed",
         ("[WARNING]  async_io requires the dev libaio .so object and headers but these were not found.",
          "[WARNING]  async_io: please install the libaio-dev package with apt"),
         "DeepSpeed cannot offload to disk", "It prints this on every import.",
         "https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/async_io.py"),
    _row("log_deepspeed_accelerator_note", "library",
         r"Setting accelerator to CPU|[Uu]nable to find any of \['?triton|sparse_attn requires|"
         r"NVIDIA Inference is only supported|using untested triton version|fp_quantizer requires|"
         r"DeepSpeed deprecated feature",
         ("[WARNING] [real_accelerator.py:209:get_accelerator] Setting accelerator to CPU. If you have GPU or other "
          "accelerator, we were unable to detect it.", "[WARNING]  sparse_attn requires a torch version >= 1.5 and < "
                                                       "2.0 but detected 2.6"),
         "DeepSpeed's messages on import", "They name operators that are not used.",
         "https://github.com/deepspeedai/DeepSpeed/tree/master/op_builder"),
    _row("log_attention_dtype_warning", "script",
         r"only supports? torch\.float16 and torch\.bfloat16 dtypes, but the current dy?t?y?pe in ",
         ("Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in "
          "Qwen2ForCausalLM is torch.float32. You should run training or inference using Automatic Mixed-Precision",
          "Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the current dtype in "
          "LlamaModel is torch.float32."),
         "transformers warns that a model is in fp32", "Under autocast the attention gets bf16 or fp16.",
         "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"),
    _row("log_recompile_limit", "script", r"torch\._dynamo hit config\.(?:cache_size_limit|recompile_limit|"
                                          r"accumulated)",
         ("W torch/_dynamo/convert_frame.py:1016] [0/8] torch._dynamo hit config.recompile_limit (8)",),
         "torch.compile stopped recompiling a function", "The function runs uncompiled: slower, but correct.",
         "https://pytorch.org/docs/stable/torch.compiler_troubleshooting.html"),
    _row("log_tensorflow_note", "library",
         r"Unable to register cu\w+ factory|Could not find TensorRT|Could not load dynamic library 'lib|"
         r"This TensorFlow binary is optimized|Skipping registering GPU devices",
         ("E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: "
          "Attempting to register factory for plugin cuDNN when one has already been registered",
          "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library "
          "'libnvinfer.so.7'"),
         "messages from TensorFlow", "TensorBoard imports it; torch does not use it.",
         "https://github.com/tensorflow/tensorflow/issues/62075"),
    _row("log_backend_probed", "library",
         r"(?<!Error: )Unable to initialize backend '[a-z_]+': (?!.*JAX_PLATFORM)",
         ("Unable to initialize backend 'rocm': module 'jaxlib.xla_extension' has no attribute 'GpuAllocatorConfig'",
          "xla_bridge.py:895] Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: "
          "cannot open shared object file: No such file or directory"),
         "JAX has no support for a kind of device", "JAX tries all kinds when it starts, and reports those that it "
         "does not find.", "https://github.com/google-deepmind/alphafold3/issues/172"),
    _row("log_gpu_memory_full_handled", "library", r"\bOutOfMemoryError in \w+, using CPU",
         ("WARNING \u26a0\ufe0f CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU",),
         "a step of the loss was computed on the CPU", "Ultralytics does so if the GPU has no memory for it, and goes "
         "on, more slowly. A smaller batch avoids it.",
         "https://github.com/ultralytics/ultralytics/blob/main/ultralytics/utils/tal.py"),
    _row("log_autotuning_choice_ignored", "library",
         r"select_algorithm\.py:\d+\] .*(?:OutOfResources|No valid triton configs|Runtime error during autotuning)",
         ("E0106 16:56:21.639000 4711 torch/_inductor/select_algorithm.py:2100] [7/0] No valid triton configs. "
          "OutOfResources: out of resource: shared memory, Required: 245760, Hardware limit: 232448.",),
         "one of the kernels to choose from does not run on this GPU", "torch.compile ignores this choice, and takes "
         "another one.", "https://github.com/pytorch/pytorch/blob/main/torch/_inductor/select_algorithm.py"),
    _row("log_visdom_unreachable", "network",
         r"port=8097\): Max retries exceeded with url: /(?:env|events|update|win_\w+|save|close|delete_env)\b",
         ("requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8097): Max retries exceeded "
          "with url: /env/main (Caused by NewConnectionError('<x>: Failed to establish a new connection: [Errno 111] "
          "Connection refused'))",),
         "visdom's server does not run", "The client prints the exception of each plot, and the run goes on without "
         "plots.", "https://github.com/fossasia/visdom/blob/master/py/visdom/__init__.py"),
    _row("log_http_retry", "network",
         r"Retrying (?:in \S+s|\(Retry\()|urllib3\.connectionpool.*Retrying|\(will retry\)|Retry succeeded|"
         r"retry succeeded|wandb: Network error .* entering retry loop",
         ("WARNING:urllib3.connectionpool:Retrying (Retry(total=2, connect=None, read=None, redirect=None, "
          "status=None)) after connection broken by 'ReadTimeoutError': /x",
          "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\"))' thrown "
          "while requesting GET x Retrying in 1s [Retry 1/5].", "wandb: Network error (ConnectTimeout), entering retry "
                                                          "loop."),
         "a download is retried", "It fails only if all retries fail.",
         "https://urllib3.readthedocs.io/en/stable/reference/urllib3.util.html"),
    _row("log_exception_ignored", "library", r"^Exception ignored in: |^Exception in thread \S*tqdm",
         ("Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f>",),
         "an exception was raised while an object was destroyed", "It follows the real one.",
         "https://docs.python.org/3/library/sys.html#sys.unraisablehook"),
    _row("log_semaphore_leak", "library", r"resource_tracker: There appear to be \d+ leaked",
         ("/x/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked "
          "semaphore objects to clean up at shutdown",),
         "a semaphore was not closed", "It follows the exit of a process.",
         "https://docs.python.org/3/library/multiprocessing.shared_memory.html"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
