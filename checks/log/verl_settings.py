"""Which sizes, options or data does verl refuse, or the servers that it starts?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_TRAINER = "https://github.com/verl-project/verl/blob/main/verl/trainer/ppo/ray_trainer.py"
_PROTOCOL = "https://github.com/verl-project/verl/blob/main/verl/protocol.py"
_ACTOR = "https://github.com/verl-project/verl/blob/main/verl/workers/config/actor.py"
_ROLLOUT = "https://github.com/verl-project/verl/blob/main/verl/workers/config/rollout.py"
_SERVER = "https://github.com/verl-project/verl/blob/main/verl/workers/rollout/sglang_rollout/http_server_engine.py"
_BUCKETS = (
    "https://github.com/verl-project/verl/blob/main/verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
)
_LENGTHS = "https://github.com/verl-project/verl/blob/main/verl/utils/seqlen_balancing.py"

# fmt: off
ROWS = (
    Row("log_fewer_samples_than_parts", "root", "script",
        r"number of items:\[(?P<samples>\d+)\] ?< ?k_partitions:\[(?P<parts>\d+)\]",
        ("AssertionError: number of items:[4] < k_partitions:[8]",),
        "a batch has {samples} samples, but is divided into {parts} parts, one for each rank or micro-batch",
        "verl balances the samples over the ranks (balance_batch) or micro-batches, and each needs at least one. The "
        "batch is smaller than the number of ranks: a small train or validation batch, or samples that were filtered "
        "out.",
        (Fix("Use a larger batch, a multiple of the number of ranks.",
             ("data.train_batch_size=64 actor_rollout_ref.rollout.n=8", "data.val_batch_size=64")),
         Fix("Or do not balance.", ("trainer.balance_batch=False",))),
        "https://github.com/verl-project/verl/blob/main/verl/utils/seqlen_balancing.py",
        summary="A batch has fewer samples than the parts into which it is divided."),
    Row("log_verl_no_batches", "root", "script", r"(?P<which>Train|Validation) dataloader is empty",
        ("AssertionError: Train dataloader is empty!", "AssertionError: Validation dataloader is empty!"),
        "verl's dataset gives no batch ({which})",
        "The last incomplete batch is dropped: with fewer prompts than data.train_batch_size (data.val_batch_size) "
        "none "
        "is left. filter_overlong_prompts can remove all prompts if max_prompt_length is small.",
        Fix("Use a smaller batch or more data, and look how many prompts the filter keeps.",
            ("data.train_batch_size=32 data.max_prompt_length=2048", "data.filter_overlong_prompts=False",
             "python -c \"import pandas as pd; print(len(pd.read_parquet('train.parquet')))\"")), _TRAINER,
        summary="verl's dataset gives no batch."),
    Row("log_verl_mini_batch_does_not_divide", "root", "launcher",
        r"AssertionError: (?:\d+) % (?:\d+) != 0|Got batch_size_per_dp=\d+ and num_mini_batch=\d+|"
        r"Got mini_batch_size=\d+ and self\.engine\.get_data_parallel_size\(\)=\d+",
        ("AssertionError: 60 % 8 != 0", "AssertionError: Got batch_size_per_dp=6 and num_mini_batch=8"),
        "a batch cannot be divided into equal mini-batches on each GPU",
        "verl divides train_batch_size x rollout.n by the data-parallel GPUs, then into mini-batches of "
        "ppo_mini_batch_size x rollout.n / GPUs. Both must be whole.",
        Fix("Choose powers of two: train_batch_size >= ppo_mini_batch_size >= GPUs.",
            ("data.train_batch_size=128 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
             "actor_rollout_ref.rollout.n=8",)), _PROTOCOL),
    Row("log_verl_batches_of_two_sizes", "root", "script",
        r"key (?:\w+) length \d+ is not equal to batch size \d+|Two tensor dict must have identical batch size|"
        r"Not all the tensor in tensors have the same batch size",
        ("AssertionError: key raw_prompt_ids length 512 is not equal to batch size 256",
         "AssertionError: Two tensor dict must have identical batch size. Got torch.Size([256]) and torch.Size([512])"),
        "two parts of verl's batch have different numbers of samples",
        "One part was repeated rollout.n times (or padded, or filtered) and the other was not: a reward, a tool or an "
        "agent loop of your own that returns another number of rows, or a setting of n in one place only.",
        Fix("Return one row for each input row, in the same order, and set n only in rollout.n.",
            ("batch = batch.repeat(repeat_times=config.actor_rollout_ref.rollout.n, interleave=True)",)), _PROTOCOL),
    Row("log_verl_resume_path", "root", "launcher",
        r"(?:resume ckpt|resume_from_path) must (?:specify the global_steps|be str type)",
        ("AssertionError: resume ckpt must specify the global_steps",),
        "verl's resume path does not name a step",
        "resume_from_path must be the folder of one step, whose name contains global_step_.",
        Fix("Name that folder, or let verl find the latest one.",
            ("trainer.resume_mode=resume_path trainer.resume_from_path=CHECKPOINTS/global_step_100",
             "trainer.resume_mode=auto")), _TRAINER),
    Row("log_verl_micro_batch_below_gpus", "root", "launcher",
        r"ppo_micro_batch_size \((?:\d+)\) \* \S*ulysses\S* \(\d+\) must be >= n_gpus \((?:\d+)\)|"
        r"ppo_micro_batch_size \* \S*ulysses\S* .*n_gpus",
        ("ValueError: ppo_micro_batch_size (8) * ulysses_sequence_parallel_size (1) must be >= n_gpus (16)",),
        "verl's micro batch has less than one sample per GPU",
        "ppo_micro_batch_size counts all GPUs together, and is deprecated.",
        Fix("Set the size per GPU instead.",
            ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
             "actor_rollout_ref.actor.ppo_micro_batch_size=null",)),
        _ACTOR),
    Row("log_verl_two_micro_batches", "root", "launcher",
        r"You have set both '(?P<old>[\w.]+)' AND '(?P<new>[\w.]+)'",
        ("ValueError: [actor] You have set both 'actor.ppo_micro_batch_size' AND 'actor.ppo_micro_batch_size_per_gpu'. "
         "Please remove 'actor.ppo_micro_batch_size'",),
        "verl's config sets the same size twice: {old} and {new}",
        "The first one counts all GPUs together and is deprecated.",
        Fix("Set {old} to null, and keep {new}."), _ACTOR, summary="verl's config sets the same size twice."),
    Row("log_verl_padding_not_removed", "root", "launcher",
        r"Error: .*(?:sequence parallelism .*must enable|requires?) `?use_remove_padding",
        ("ValueError: When using sequence parallelism for actor/ref policy, you must enable `use_remove_padding`.",),
        "an option of verl needs use_remove_padding, which is off",
        "Ulysses, dynamic context parallelism and router replay work on packed sequences without padding.",
        Fix("Turn it on, or leave the option out.",
            ("actor_rollout_ref.model.use_remove_padding=True",
             "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1")), _ACTOR),
    Row("log_weights_exceed_bucket", "root", "launcher",
        r"Weight \S+?\(.*\) is too large to fit in the bucket",
        ("AssertionError: Weight model.embed_tokens.weight(torch.Size([152064, 5120]), torch.bfloat16) is too large to "
         "fit in the bucket.Please increase rollout.update_weights_bucket_megabytes(512 MB).",),
        "one weight of the model is larger than the buffer that sends weights to the inference engine",
        "Weights are sent in buckets of update_weights_bucket_megabytes, and a single tensor (the embedding, fp32, "
        "fused "
        "experts) must fit.",
        Fix("Enlarge the bucket.", ("actor_rollout_ref.rollout.update_weights_bucket_megabytes=4096",)), _BUCKETS),
    Row("log_verl_tokens_below_sequence", "root", "launcher",
        r"max_token_len must be greater than the sequence length",
        ("AssertionError: max_token_len must be greater than the sequence length. Got max_token_len=4096 and "
         "max_seq_len=8192",),
        "verl's limit of tokens per GPU is less than one sequence",
        "With use_dynamic_bsz, ppo_max_token_len_per_gpu must hold at least one prompt with its response (times the "
        "Ulysses size it is divided by).",
        Fix("Raise it to at least max_prompt_length + max_response_length, for every role.",
            ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 "
             "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=16384",)), _LENGTHS),
    Row("log_verl_sync_mode_removed", "root", "launcher", r"Rollout mode 'sync' has been removed",
        ("ValueError: Rollout mode 'sync' has been removed. Please set `actor_rollout_ref.rollout.mode=async`",),
        "this release of verl has no synchronous rollout",
        "The script or recipe is older than the installed verl: rollouts run in servers now.",
        Fix("Set the mode to async, or install the release that the recipe was written for.",
            ("actor_rollout_ref.rollout.mode=async", "pip show verl")), _ROLLOUT),
    Row("log_rollout_server_died", "secondary", "launcher",
        r"Server process terminated unexpectedly during (?:startup|cache flush)|"
        r"Server failed to become healthy within timeout|Server cache flush failed within timeout|"
        r"^(?:Exception|RuntimeError): Server process terminated unexpectedly\.?$",
        ("RuntimeError: Server process terminated unexpectedly during startup",
         "TimeoutError: Server failed to become healthy within timeout period"),
        "the inference server that the trainer started ended, or did not become ready in time",
        "Its own output has the reason: GPU memory that training still holds, a model that it does not support, a port "
        "in use. A large model on a slow disk can also load longer than the limit.",
        Fix("Read the server's lines above, and give it less memory.",
            ("actor_rollout_ref.rollout.gpu_memory_utilization=0.5", "nvidia-smi")), _SERVER,
        because_of=("log_gpu_memory_full", "log_sglang_memory_full", "log_vllm_memory_full", "log_port_taken")),
    Row("log_verl_reward_gpus", "root", "launcher",
        r"Not enough GPUs to run the reward model\. world_size \((?:\d+)\) < rollout_world_size "
        r"\((?:\d+)\)|"
        r"split_size must (?:sum up to|be a divisor of) world_size",
        ("AssertionError: Not enough GPUs to run the reward model. world_size (4) < rollout_world_size (8).",
         "AssertionError: split_size must sum up to world_size"),
        "a pool of verl has fewer GPUs than the models in it need",
        "Each pool has nnodes x n_gpus_per_node GPUs. The engines in it need tensor x data x pipeline parallel size "
        "each.",
        Fix("Enlarge the pool, or lower the parallel sizes.",
            ("trainer.nnodes=1 trainer.n_gpus_per_node=8", "reward.reward_model.rollout.tensor_model_parallel_size=1")),
        _TRAINER),
    Row("log_verl_column_missing", "root", "script",
        r"^KeyError: ['\"](?P<column>data_source|raw_prompt_ids)['\"]",
        ("KeyError: 'data_source'", "KeyError: 'raw_prompt_ids'"),
        "verl's dataset has no column {column}",
        "verl reads parquet files with the columns data_source, prompt, ability, reward_model (with ground_truth) and "
        "extra_info. A file that was written for another trainer lacks them, and reward code of another release can "
        "read other ones.",
        Fix("Write the file as verl's preprocessing examples do.",
            ("python examples/data_preprocess/gsm8k.py --local_save_dir ~/data/gsm8k",
             "python -c \"import pandas as pd; print(pd.read_parquet('train.parquet').columns)\"")),
        "https://verl.readthedocs.io/en/latest/preparation/prepare_data.html",
        summary="verl's dataset lacks a column."),
    Row("log_verl_lora_without_bridge", "root", "launcher", r"LoRA/PEFT only supported via Megatron-Bridge",
        ("AssertionError: LoRA/PEFT only supported via Megatron-Bridge",),
        "verl's Megatron backend has LoRA only with Megatron-Bridge, which this run does not use",
        "LoRA is on (lora.rank above 0 in the model's config), and the worker was built without a bridge, or with "
        "mbridge, the other package (vanilla_mbridge).",
        (Fix("Turn Megatron-Bridge on, with the same settings of the reference (ref) and the critic, and install it.",
             ("actor_rollout_ref.actor.megatron.use_mbridge=True "
              "actor_rollout_ref.actor.megatron.vanilla_mbridge=False", "pip show megatron-bridge")),
         Fix("Train without LoRA, or with the FSDP backend, which has its own LoRA.",
             ("actor_rollout_ref.model.lora.rank=0",
              "actor_rollout_ref.actor.strategy=fsdp actor_rollout_ref.model.lora_rank=32"))),
        "https://github.com/verl-project/verl/blob/main/verl/workers/megatron_workers.py"),
    Row("log_memory_saver_missing", "root", "library",
        r"Cannot find torch_memory_saver dynamic library|No module named 'torch_memory_saver'|"
        r"torch_memory_saver.{0,40} must be installed",
        ("FileNotFoundError: Cannot find torch_memory_saver dynamic library. Please make sure torch_memory_saver is "
         "properly installed.",),
        "torch_memory_saver, which frees GPU memory between rollout and training, is not installed",
        "SGLang and slime preload its library to release weights and KV cache while the trainer uses the GPU. It is "
        "compiled for one CUDA version.",
        Fix("Install it in the environment of all workers.",
            ("pip install --no-build-isolation torch-memory-saver", "pip show sglang torch-memory-saver torch")),
        "https://github.com/THUDM/slime/blob/main/slime/ray/actor_group.py"),
    Row("log_response_without_tokens", "root", "script",
        r"(?:[Ee]xpected|must contain) at least one valid token|response_mask must contain at least one",
        ("AssertionError: Expected at least one valid token in response_mask",
         "ValueError: response_mask must contain at least one valid token (1)."),
        "a batch has no response token that counts",
        "Every response is empty or masked: the prompt fills the whole length, the engine returns nothing, or a mask "
        "of an agent loop removes all tokens.",
        Fix("Print prompts and responses of the batch, and leave room for the response.",
            ("data.max_prompt_length=1024 data.max_response_length=2048",)),
        "https://github.com/verl-project/verl/blob/main/verl/trainer/ppo/rollout_corr_helper.py"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
