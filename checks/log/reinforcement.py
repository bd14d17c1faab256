"""Did a trainer that generates with vLLM (TRL, verl, OpenRLHF, ms-swift) lose its server, its reward or its batches?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._checkpoint_cases import WEIGHT_NAMES
from ._circumstances import every, said, shown
from ._local_servers import LOCAL_HOST, TRL_SERVER, explain_server
from ._sample_sizes import explain_image_tokens, explain_length
from ._server_cases import NOT_TRLS_SERVER

_TRL_VLLM = "https://huggingface.co/docs/trl/main/en/vllm_integration"
_TRL_GRPO = "https://github.com/huggingface/trl/blob/main/trl/trainer/grpo_config.py"
_TRL_CLIENT = "https://github.com/huggingface/trl/blob/main/trl/generation/vllm_client.py"
_TRL_REWARD = "https://huggingface.co/docs/trl/main/en/grpo_trainer#using-a-custom-reward-function"
_VERL_CONFIG = "https://github.com/verl-project/verl/blob/main/verl/utils/config.py"
_VERL_DATA = "https://verl.readthedocs.io/en/latest/preparation/prepare_data.html"
_VERL_REWARD = "https://verl.readthedocs.io/en/latest/preparation/reward_function.html"
_OPENRLHF = "https://github.com/OpenRLHF/OpenRLHF/blob/main/openrlhf/cli/train_ppo_ray.py"

# fmt: off
SEPARATE_GPUS = Fix("Give the vLLM server and the trainer different GPUs.",
                    ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model MODEL",
                     "CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes 3 train.py"))


def explain_shared_gpu(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a refused NCCL call of a trainer that connects to its vLLM server."""
    packages = set(raised.packages) if raised else set()
    if not ("vllm" in packages and packages & {"trl", "swift", "openrlhf"}):
        return None
    return Meaning(
        "the trainer and its vLLM server probably use the same GPU",
        "They form one NCCL group to send weights, and NCCL refuses two ranks on one GPU. The server takes the first "
        "visible GPUs, and so does the trainer.",
        (SEPARATE_GPUS, Fix("Check NCCL's own message.", ("NCCL_DEBUG=WARN mgpu launch train.py",))),
    )


QUANTIZED_FOR_ENGINE = Case(
    every(shown("weights_quantized"), said(r"loaded_weight|Attempted to load weight")),
    "quantized weights are sent to the inference engine, which expects them whole: the base model is loaded in 4 or "
    "8 bit",
    "bitsandbytes packs a weight into one column of bytes. The trainer sends it as it is after every step, and the "
    "engine's parameter has the shape of the unquantized weight.",
    (Fix("Load the base model in bf16 for training with vLLM. LoRA can stay.",
         ("ModelConfig(load_in_4bit=False, use_peft=True)", "from_pretrained(..., torch_dtype=torch.bfloat16)")),
     Fix("Or generate without vLLM.", ("GRPOConfig(use_vllm=False)",))),
    "ModelConfig(load_in_4bit=True)\n[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/x/site-packages/vllm/model_executor/parameter.py", line 9, in load_column_parallel_weight\n'
    "[rank0]:     assert self.data.shape == loaded_weight.shape\n"
    "[rank0]: AssertionError: assert param_data.shape == loaded_weight.shape",
    "https://huggingface.co/docs/trl/main/en/vllm_integration")
_EXPANDED_TWICE = Case(
    said(r"image tokens is [1-9]\d\d+ while the number of image given to the model is [1-9]\b"),
    "the image placeholder was expanded twice, probably because the installed transformers is older than the "
    "framework expects",
    "The message counts hundreds of image tokens for a few images: the framework's template already wrote one token "
    "for each patch, and this release of transformers would do it again inside the model. No sample is wrong.",
    (Fix("Upgrade transformers, or use the framework's release for it.",
         ("pip install --upgrade transformers", "pip show transformers llamafactory ms-swift")),),
    "ValueError: The input provided to the model are wrong. The number of image tokens is 576 while the number of "
    "image given to the model is 1. This prevents correct indexing and breaks batch generation.",
    "https://github.com/hiyouga/LlamaFactory/issues/5344")
ROWS = (
    Row("log_vllm_server_unreachable", "root", "launcher",
        r"(?:(?:vLLM|[Rr]ollout|[Gg]eneration) [Ss]erver (?:can't|cannot|could not) be reached(?: at)?|"
        r"Timed out after \S+ waiting for vLLM server at) (?P<address>\S+)",
        ("ConnectionError: The vLLM server can't be reached at 0.0.0.0:8000 after 240.0 seconds. Make sure the server "
         "is running by running `trl vllm-serve`.",
         "ConnectionError: The vLLM server can't be reached at http://node1:8000 after 120.0 seconds."),
        "the trainer does not reach its vLLM server at {address}",
        "The server was not started, failed, is still loading the model, or runs at another address or port. On "
        "another node, 0.0.0.0 and localhost do not lead to it.", TRL_SERVER, _TRL_CLIENT,
        summary="The trainer does not reach its vLLM server."),
    Row("log_vllm_server_not_up", "secondary", "timeout", r"Server is not up yet\. Retrying in",
        ("INFO - trl.extras.vllm_client - Server is not up yet. Retrying in 2.0 seconds...",),
        "the trainer waits for its vLLM server, which does not answer",
        "With vllm_mode='server' a server must run before training starts, on other GPUs. It was not started, failed, "
        "or listens at another address or port.", TRL_SERVER, _TRL_CLIENT),
    Row("log_local_server_unreachable", "root", "launcher",
        rf"(?:\bHTTPConnectionPool\(host='|Cannot connect to host )(?P<host>{LOCAL_HOST})(?:', port=|:)(?P<port>\d+)"
        r"(?:\): Max retries exceeded| ssl:)(?P<url>(?: with url: \S+)?)(?P<why>.*)",
        ("requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=7070): Max retries exceeded "
         "with url: /upload (Caused by ProtocolError('Connection aborted.', RemoteDisconnected('Remote end closed "
         "connection without response')))",
         "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8000): Max retries exceeded "
         "with url: /generate/ (Caused by NewConnectionError('<x>: Failed to establish a new connection: [Errno 111] "
         "Connection refused'))",
         "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:30000 ssl:default [Connect "
         "call failed ('127.0.0.1', 30000)]"),
        "a local server at {host}:{port} does not answer",
        "A server that generates, scores, stores or logs for this run was not started, has failed, or listens "
        "elsewhere. localhost is this node only. With http_proxy set, the proxy gets the request.",
        Fix("Check that it runs and answers from this node.",
            ("ss -ltnp 'sport = :{port:number}'", "env | grep -i proxy", "export no_proxy=localhost,127.0.0.1")),
        _TRL_VLLM, summary="A local server does not answer.", explain_in=explain_server),
    Row("log_generation_server_failed", "secondary", "script",
        r"Exception: Request failed: (?P<code>[45]\d\d), ",
        ("Exception: Request failed: 500, Internal Server Error",),
        "the vLLM server answered with an error ({code})",
        "The server's own log has the reason: a prompt that is too long, memory, an engine that died, or an argument "
        "that its version does not accept.",
        Fix("Read the first exception in the server's log.", ("mgpu doctor --log server.log",)), _TRL_CLIENT,
        summary="The vLLM server answered with an error.", cases=(NOT_TRLS_SERVER,)),
    Row("log_image_tokens_differ", "root", "script",
        r"(?:Image|Videos?) features and (?:image|video) tokens do not match|Mismatch in `(?:image|video)` token count|"
        r"number of image tokens is \d+ while the number of image given|"
        r"number of (?:images|videos|audios) does not match the number of .+ tokens",
        ("ValueError: Image features and image tokens do not match: tokens: 1024, features 1280",
         "ValueError: Mismatch in `image` token count between text and `input_ids`. Got ids=[100] and text=[200].",
         "ValueError: The input provided to the model are wrong. The number of image tokens is 0 while the number of "
         "image given to the model is 1.",
         "ValueError: The number of images does not match the number of <image> tokens in messages."),
        "a sample has another number of image tokens than images",
        "Truncation (max_length, cutoff_len) cut image tokens off, the text lacks the image placeholder, or a "
        "placeholder is in the text of a sample without an image.",
        Fix("Do not truncate samples with images; shrink the images, and check the placeholders.",
            ("SFTConfig(max_length=8192)", "cutoff_len: 8192  # LLaMA-Factory", "AutoProcessor.from_pretrained(MODEL, "
             "max_pixels=512*28*28)")),
        "https://huggingface.co/docs/trl/main/en/sft_trainer#training-vision-language-models",
        explain=explain_image_tokens, cases=(_EXPANDED_TWICE,)),
    Row("log_vllm_weight_group_timeout", "root", "launcher",
        r"(?:connect to|to host) [(\[]?(?P<host>[^\s,:)\]]+)(?:, |:)51216\b",
        ("torch.distributed.DistNetworkError: The client socket has timed out after 300000ms while trying to connect "
         "to (0.0.0.0, 51216).",
         "The client socket has timed out after 60000ms while trying to connect to (10.0.0.4, 51216)."),
        "the trainer and its vLLM server cannot form the group that sends the weights ({host}, port 51216)",
        "The server answers, but the second port (vllm_group_port, 51216 by default) does not: it is closed or used, "
        "the host is not the server's address, or the server still has the group of an earlier trainer.",
        (Fix("Restart the server before each run, and open the port between the nodes.",
             ("ss -ltnp 'sport = :51216'", "nc -vz HOST 51216")),
         Fix("Set the server's own address.", ("GRPOConfig(vllm_server_host='HOST', vllm_group_port=51216)",))),
        _TRL_VLLM, summary="The trainer and its vLLM server cannot form the group that sends the weights."),
    Row("log_vllm_weight_group_exists", "root", "launcher", r"[Ww]eight update group already initialized",
        ("RuntimeError: Weight update group already initialized. Call close_communicator first.",),
        "the vLLM server still has the weight group of an earlier trainer",
        "The earlier trainer ended without closing it.", Fix("Restart the server.", ("trl vllm-serve --model MODEL",)),
        _TRL_VLLM),
    Row("log_vllm_server_on_trainers_gpu", "root", "launcher",
        r"Attempting to use the same CUDA device for multiple distinct roles|"
        r"trainer is using different devices than vLLM server",
        ("RuntimeError: Attempting to use the same CUDA device for multiple distinct roles/ranks within the same "
         "communicator. This setup is unsupported and will likely lead to program hangs or incorrect behavior.",),
        "the trainer and its vLLM server use the same GPU",
        "They form one NCCL group to send weights, and NCCL refuses two ranks on one GPU.", SEPARATE_GPUS, _TRL_CLIENT),
    Row("log_trl_mode_on_other_ranks", "root", "library",
        r"vllm_mode must be either 'server' or 'colocate', got '(?P<mode>server|colocate)'",
        ("ValueError: vllm_mode must be either 'server' or 'colocate', got 'server'.",),
        "a fault of this TRL version: all ranks but the first reject vllm_mode='{mode}'",
        "Only the main process took the branch for the server, and the others fell through to the error.",
        Fix("Upgrade TRL to a release.", ("pip install --upgrade trl", "pip show trl")),
        "https://github.com/huggingface/trl/issues/3885",
        summary="A fault of a TRL version: all ranks but the first reject the vLLM mode."),
    Row("log_generations_do_not_divide", "root", "script",
        r"(?P<what>(?:The (?:global|effective) (?:train|eval) batch size|generation_batch_size|"
        r"[Gg]eneration batch size|effective_gbs"
        r"|per_device_\w+_batch_size)\b.*\bdivisible by (?:the )?(?:number of generations|num_generations|`?trl\."
        r"num_generations|global batch size).*)",
        ("ValueError: The global train batch size (6 x 2) must be evenly divisible by the number of generations per "
         "prompt (8). Given the current train batch size, the valid values are: [2, 3, 4, 6, 12].",
         "ValueError: generation_batch_size (12) must be divisible by num_generations (8).",
         "GRPO: generation batch size must be divisible by `trl.num_generations`. Got effective_gbs=6"),
        "the batch of all ranks does not contain whole groups of generations: {what}",
        "GRPO compares the num_generations answers to one prompt. GPUs x per_device_train_batch_size x accumulation "
        "steps must be a multiple of num_generations, and it changes with the number of GPUs.",
        Fix("Change one of them.", ("GRPOConfig(per_device_train_batch_size=8, num_generations=8)",)), _TRL_GRPO,
        summary="GRPO's batch does not contain whole groups of generations."),
    Row("log_too_few_generations", "root", "script", r"requires (?:at least 2 generations|`?trl\.num_generations >= 2)",
        ("ValueError: GRPO requires at least 2 generations per prompt to calculate the advantages. You provided 1",),
        "GRPO needs at least 2 generations per prompt",
        "The advantage of an answer is its reward compared with the other answers to the same prompt.",
        Fix("Generate more.", ("GRPOConfig(num_generations=8)",)), _TRL_GRPO),
    Row("log_reward_needs_columns", "root", "script",
        r"TypeError: (?P<function>\w*(?:reward|score|verify)\w*)\(\) missing \d+ required (?:positional|keyword-only) "
        r"arguments?: (?P<names>.+)",
        ("TypeError: accuracy_reward() missing 1 required positional argument: 'solution'",
         "TypeError: compute_score() missing 1 required positional argument: 'extra_info'"),
        "the reward function {function} needs {names}, which it does not get",
        "TRL passes prompts, completions and every other column of the dataset by name; verl passes data_source, "
        "solution_str, ground_truth and extra_info. The dataset has no such column, or it was removed or renamed "
        "before.",
        Fix("Add the column to the dataset, or give the argument a default and accept the others.",
            ("print(dataset.column_names)", "def reward(completions, solution=(), **kwargs):")), _TRL_REWARD,
        summary="A reward function needs arguments that it does not get."),
    Row("log_reward_rejects_arguments", "root", "script",
        r"TypeError: (?P<function>\w*[Rr]eward\w*)\(\) (?:takes (?:from \d+ to )?\d+ positional "
        r"arguments? but \d+|got an unexpected keyword argument '\w+')",
        ("TypeError: format_reward() takes 1 positional argument but 2 were given",
         "TypeError: my_reward() got an unexpected keyword argument 'completion_ids'"),
        "the trainer calls the reward function {function} with other arguments than it accepts",
        "Each trainer, and each of its versions, passes different arguments: one answer or a batch, by position or by "
        "name. EasyR1 chooses with worker.reward.reward_type (sequential or batch).",
        Fix("Write it as the trainer's documentation shows, with **kwargs for the rest.",
            ("def reward(completions, **kwargs):", "worker.reward.reward_type=sequential  # EasyR1")), _TRL_REWARD,
        summary="The trainer calls a reward function with other arguments than it accepts."),
    Row("log_reward_source_unknown", "root", "script",
        r"NotImplementedError: Reward function is not implemented for (?:data_source=)?(?P<source>.+)",
        ("NotImplementedError: Reward function is not implemented for data_source='my/data'",),
        "verl has no reward function for the data source {source}",
        "It chooses the function by the data_source column, and knows only its own examples.",
        Fix("Pass a function of your own.",
            ("custom_reward_function.path=reward.py custom_reward_function.name=compute_score",)), _VERL_REWARD,
        summary="verl has no reward function for a data source."),
    Row("log_verl_batch_too_small", "root", "script",
        r"ppo_mini_batch_size \d+ should be larger than 0 after normalization|"
        r"normalized ppo_mini_batch_size \d+ should be|train_batch_size\S* >= \S*ppo_mini_batch_size|"
        r"train_batch_size \(\d+\) must be >= actor\.ppo_mini_batch_size",
        ("AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization",
         "AssertionError: assert config.data.train_batch_size >= config.actor_rollout_ref.actor.ppo_mini_batch_size",
         "ValueError: train_batch_size (16) must be >= actor.ppo_mini_batch_size (128)"),
        "verl's batch sizes do not fit each other or the number of GPUs",
        "verl multiplies ppo_mini_batch_size by rollout.n and divides it by the number of data-parallel GPUs: less "
        "than one sample per GPU is left, or the mini-batch is larger than data.train_batch_size.",
        Fix("Keep train_batch_size >= ppo_mini_batch_size >= GPUs, each a multiple of the next.",
            ("data.train_batch_size=64 actor_rollout_ref.actor.ppo_mini_batch_size=32",
             "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1")), _VERL_CONFIG),
    Row("log_verl_micro_batch_missing", "root", "script",
        r"Please set at least one of '[\w.]*micro_batch_size|micro_batch_size_per_gpu` and `?\w*micro_batch_size`? "
        r"should not be None",
        ("ValueError: [actor] Please set at least one of 'actor.ppo_micro_batch_size' or "
         "'actor.ppo_micro_batch_size_per_gpu' if use_dynamic_bsz is not enabled.",),
        "verl's config does not set a micro-batch size",
        "It is required for actor, critic, ref and rollout unless use_dynamic_bsz is on.",
        Fix("Set them, or let verl pack by tokens.",
            ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
             "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
             "actor_rollout_ref.actor.use_dynamic_bsz=True")), _VERL_CONFIG),
    Row("log_prompts_too_long", "root", "script",
        r"(?P<what>Prompt length \d+ is longer than \d+|"
        r"[Pp]rompt \(length \d+\) is longer than the maximum model length of \d+|"
        r"sequence_length=\d+ is larger than (?:self\.)?max_length=\d+)",
        ("RuntimeError: Prompt length 1311 is longer than 1024.",
         "ValueError: The decoder prompt (length 16476) is longer than the maximum model length of 16384. Make sure "
         "that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
         "NotImplementedError: sequence_length=3011 is larger than max_length=2048",
         "ValueError: sequence_length=9120 is larger than self.max_length=8192"),
        "a sample is longer than the configured maximum: {what}",
        "One sample of the dataset has more tokens. Images add hundreds to thousands of tokens each.",
        Fix("Drop or truncate long prompts, or raise the limit.",
            ("data.filter_overlong_prompts=True data.truncation=left  # verl",
             "data.max_prompt_length=4096", "LLM(..., max_model_len=16384)")), _VERL_DATA,
        summary="A sample is longer than the configured maximum.", explain=explain_length),
    Row("log_verl_sizes_do_not_divide", "root", "launcher",
        r"(?P<what>real_train_batch_size \(\d+\) must be divisible by.*|"
        r"only support equal chunk\. Got size of DataProto \d+ and chunk \d+|"
        r"rollout world_size: \d+ is not divisible by infer_tp: \d+|n_gpus \(\d+\) must be divisible by "
        r"model_parallel_size.*|gpus_per_node should be divisible by (?:vllm_)?tensor_(?:model_)?parallel_size|"
        r"tensor_parallel_size \(\d+\) must divide world size \(\d+\)|"
        r"Global batch size \d+ is not divisible by dp size \d+)",
        ("AssertionError: real_train_batch_size (60) must be divisible by minimal possible batch size (8)",
         "AssertionError: only support equal chunk. Got size of DataProto 512 and chunk 6.",
         "AssertionError: rollout world_size: 1 is not divisible by infer_tp: 2",
         "AssertionError: n_gpus (6) must be divisible by model_parallel_size (4) times context_parallel_size (1)",
         "AssertionError: Global batch size 60 is not divisible by dp size 8"),
        "the batch or the parallel size does not fit the number of GPUs: {what}",
        "nnodes x n_gpus_per_node must be a multiple of the rollout's tensor parallel size, and every batch "
        "(train_batch"
        "_size x rollout.n, also the last one of validation) a multiple of the data-parallel GPUs.",
        Fix("Change the batch, the parallel size or the number of GPUs.",
            ("data.train_batch_size=64 actor_rollout_ref.rollout.n=8",
             "actor_rollout_ref.rollout.tensor_model_parallel_size=1", "trainer.nnodes=1 trainer.n_gpus_per_node=8")),
        _VERL_CONFIG, summary="verl's batch or parallel size does not fit the number of GPUs."),
    Row("log_yaml_after_local_rank", "root", "launcher",
        r"'--local_rank=\d+', '(?P<file>[^']+\.ya?ml)'\] exits with return code",
        ("[2024-11-19 16:11:45,823] [ERROR] [launch.py:325:sigkill_handler] ['/opt/env/bin/python3.10', '-u', "
         "'src/train.py', '--local_rank=0', 'examples/llama3_lora_sft_ds3.yaml'] exits with return code = 2",),
        "the deepspeed launcher put --local_rank before {file}, so the script did not read the file",
        "LLaMA-Factory and scripts with HfArgumentParser read a YAML file only if it is the one argument.",
        Fix("Start it with torchrun, which passes the rank in the environment.",
            ("FORCE_TORCHRUN=1 llamafactory-cli train {file:path}", "torchrun --nproc-per-node=8 train.py "
                                                                    "{file:path}")),
        "https://github.com/hiyouga/LlamaFactory/issues/6075",
        summary="The deepspeed launcher put --local_rank before the script's YAML file.", tags=("precise",)),
    Row("log_openrlhf_gpus_unequal", "root", "launcher",
        r"must be equal to vllm_num_engines \* vllm_tensor_parallel_size|"
        r"placement group bundle index \d+ is invalid\. Valid placement group indexes",
        ("AssertionError: actor_num_nodes * actor_num_gpus_per_node must be equal to vllm_num_engines * "
         "vllm_tensor_parallel_size, got 4 and 8",
         "ValueError: placement group bundle index 6 is invalid. Valid placement group indexes: 0-4"),
        "the vLLM engines need another number of GPUs than the actors have, whose GPUs they share",
        "With colocated models, nodes x GPUs per node of the actor must equal vLLM engines x their tensor parallel "
        "size.",
        Fix("Make the products equal.",
            ("--actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2",)),
        _OPENRLHF),
    Row("log_weights_names_differ", "root", "library",
        r"There is no module or parameter named '(?P<name>[^']+)' in (?P<model>\w+)",
        ("ValueError: There is no module or parameter named 'base_model' in Qwen2ForCausalLM",
         "ValueError: There is no module or parameter named 'model' in Qwen3_5ForConditionalGeneration"),
        "vLLM does not know the weight {name} that it was sent: its {model} has other names",
        "The trainer sends weights by name. LoRA prefixes (base_model, lora_A), a model that is wrapped or loaded with "
        "another class, or another version of transformers or vLLM change the names.",
        (Fix("Upgrade the trainer, vLLM and transformers together, to versions that list each other.",
             ("pip show trl verl vllm transformers", "pip install --upgrade trl vllm")),
         Fix("Without LoRA adapters in vLLM, merge them before sending.", ())), _TRL_VLLM,
        summary="vLLM does not know a weight that the trainer sent."),
    Row("log_weights_types_differ", "root", "script",
        r"mismatch dtype: src (?:torch\.)?(?P<sent>\w+), dst (?:torch\.)?(?P<own>\w+)",
        ("AssertionError: mismatch dtype: src torch.float32, dst torch.bfloat16",),
        "the trainer sends weights as {sent}, but vLLM's model has {own}",
        "LoRA adapters and master weights are often fp32. The trainer must convert them before it sends them.",
        Fix("Use one type for both, merge LoRA, or upgrade the trainer.",
            ("pip install --upgrade openrlhf", "LLM(..., dtype='bfloat16')")),
        "https://github.com/OpenRLHF/OpenRLHF/issues/1349",
        summary="The trainer sends weights of another type than vLLM's model has."),
    Row("log_weight_name_unknown", "root", "library",
        r"^KeyError: ['\"](?P<name>(?!(?:\w+\.)*lm_head\.)(?:\w+\.){2,}(?:weight|bias|weight_scale\w*|"
        r"qweight))['\"]$",
        ("KeyError: 'visual.patch_embed.proj.weight'",),
        "a weight has a name that the code which loads it does not know: {name}",
        "The names of a model's weights differ between releases: transformers renamed those of several models "
        "(4.52: Qwen2.5-VL and other vision models), and an inference engine (vllm, SGLang) or converter maps only "
        "those that it knows. A prefix that a wrapper adds (LoRA, FSDP, torch.compile) has the same effect. The "
        "checkpoint is probably intact.",
        (Fix("Install releases that were tested together: usually a newer vllm, or an older transformers.",
             ("pip show vllm transformers", "pip install --upgrade vllm", "pip check")),
         Fix("If it began with an upgrade of transformers, return to the release before.",
             ("pip install 'transformers<4.52'",))),
        "https://github.com/vllm-project/vllm/pull/19054",
        summary="The code that loads the weights does not know the name of one.", cases=WEIGHT_NAMES),
    Row("log_no_gpu_left_for_vllm", "root", "script",
        r"requested device for vllm \((?P<device>[\w:]+)\) is not available",
        ("ValueError: The requested device for vllm (cuda:1) is not available. You are likely using vLLM without "
         "restricting the number of GPUs for training. Set the `--num_processes` argument to a value lower than the "
         "number of GPUs available on your machine",),
        "no GPU is left for vLLM: it should run on {device}, which does not exist, because training uses all GPUs",
        "trl gives vLLM the GPU after those of the training processes. With one GPU in all, the message's own advice "
        "(one process fewer) is not possible: vLLM must share that GPU.",
        (Fix("Several GPUs: start one process fewer, or show the run one GPU more.",
             ("accelerate launch --num_processes 7 train.py", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")),
         Fix("One GPU: let vLLM share it.",
             ("GRPOConfig(use_vllm=True, vllm_device='cuda:0', vllm_gpu_memory_utilization=0.3)",
              "GRPOConfig(use_vllm=True, vllm_mode='colocate')  # trl 0.18 and newer"))),
        "https://github.com/huggingface/trl/issues/2826",
        summary="No GPU is left for vLLM."),
    Row("log_batch_chunks_uneven", "root", "script",
        r"AssertionError: len\(\w+\) \((?P<got>\d+)\) != (?:chunks|num_chunks|n_chunks) \((?P<wanted>\d+)\)",
        ("AssertionError: len(batch_lst) (14) != chunks (15)",),
        "a batch cannot be split into {wanted} equal chunks: it made {got}",
        "The batch is probably not a multiple of the micro batch size: chunk() makes parts of one size, rounded up, "
        "and therefore fewer parts.",
        Fix("Make the batch (prompts x samples per prompt, divided by the ranks) a multiple of the micro batch size.",
            ("actor_rollout_ref.rollout.micro_batch_size=4", "data.train_batch_size=128")),
        "https://github.com/verl-project/verl/issues/3933",
        summary="A batch cannot be split into equal chunks."),
    Row("log_weights_shapes_differ", "root", "library",
        r"Attempted to load weight \(torch\.Size.+?\) into parameter \(torch\.Size|"
        r"assert param(?:_data)?\.(?:shape|size\(\)) == loaded_weight\.(?:shape|size\(\))|"
        r"assert loaded_weight\.shape\[output_dim\] == self\.org_vocab_size",
        ("AssertionError: Attempted to load weight (torch.Size([151936, 896])) into parameter "
         "(torch.Size([151665, 896]))", "AssertionError: assert param_data.shape == loaded_weight.shape",
         "AssertionError: assert loaded_weight.shape[output_dim] == self.org_vocab_size"),
        "a weight has another shape than the inference engine's parameter",
        "The vocabulary was resized in only one of them (added tokens, padding), the config of the saved model does "
        "not fit its weights, the weights are quantized, or ZeRO-3 sent a shard instead of the whole weight.",
        Fix("Start the engine from the same checkpoint as the trainer, with the same vocab_size in config.json.",
            ("python -c \"from transformers import AutoConfig as C; print(C.from_pretrained('MODEL').vocab_size)\"",)),
        "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/model_loader/weight_utils.py",
        cases=(QUANTIZED_FOR_ENGINE,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
