"""Which assertion without a message failed? The log has only its line of code.

Assertions that no row knows are put into words by `_conditions.py`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import shown, source_line
from ._divided_quantities import of_assertion

_ASSERT = "https://docs.python.org/3/reference/simple_stmts.html#the-assert-statement"
_DATASET = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/gpt_dataset.py"
_INDEXED = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py"
_SAMPLERS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/datasets/data_samplers.py"
_VLLM_MODELS = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/llama.py"
_ARGUMENTS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py"
_TENSOR_RANKS = r"(?:\w+\.)*\w*(?:tp_size|tp_world_size|tensor_model_parallel_\w+|tensor_parallel_\w+|\btp|mp_size)\b"

# fmt: off
_MULTIPLES = (
    Case(
        source_line(r"assert \(?current_epoch_samples % self\.micro_batch_times_data_parallel_size"),
        "the checkpoint's position in the data does not fit the batch of this run: {what}",
        "Megatron's cyclic loader counts consumed samples, which must be a multiple of micro batch x data-parallel "
        "ranks. The checkpoint was written with another micro batch or another number of GPUs.",
        (Fix("Resume with the micro batch and the data-parallel size that wrote the checkpoint, or choose sizes whose "
             "product divides the consumed samples."),
         Fix("Or start the data again, with the weights of the checkpoint.", ("--finetune",))),
        "Traceback (most recent call last):\n"
        '  File "/w/megatron/training/datasets/data_samplers.py", line 180, in __iter__\n'
        "    assert current_epoch_samples % self.micro_batch_times_data_parallel_size == 0\nAssertionError\n",
        _SAMPLERS),
    Case(
        source_line(rf"assert \(?[\w.]*heads\w* ?% ?{_TENSOR_RANKS}|assert \(?{_TENSOR_RANKS} ?% ?[\w.]*kv_heads"),
        "the model's attention heads cannot be divided over the tensor-parallel ranks: {what}",
        "Tensor parallelism gives each rank whole heads. The attention heads, and the key-value heads or the ranks "
        "(if there are fewer heads than ranks), must be a multiple of the other.",
        Fix("Choose a tensor parallel size that divides num_attention_heads and num_key_value_heads.",
            ("python -c \"from transformers import AutoConfig as C; c = C.from_pretrained('MODEL'); "
             "print(c.num_attention_heads, c.num_key_value_heads)\"",)),
        "Traceback (most recent call last):\n"
        '  File "/opt/env/lib/python3.11/site-packages/vllm/model_executor/models/llama.py", line 140, in __init__\n'
        "    assert self.total_num_heads % tp_size == 0\nAssertionError\n",
        _VLLM_MODELS),
    Case(
        source_line(r"assert \(?[\w.]*(?:hidden_size|hidden_dim|embed_dim|d_model|n_embd|\bdim|inner_dim)"
                    r" ?% ?[\w.]*(?:heads?|groups?)\b"),
        "the model's width is not a multiple of its number of heads or groups: {what}",
        "Each head has an equal part of the hidden size. The number of ranks is not the cause.",
        Fix("Change one of the two in the model's config or arguments, or take both from a published model."),
        "Traceback (most recent call last):\n"
        '  File "/w/megatron/training/arguments.py", line 1340, in validate_args\n'
        "    assert args.hidden_size % args.num_attention_heads == 0\nAssertionError\n",
        _ARGUMENTS),
    Case(
        source_line(r"assert \(?[\w.]*(?:interval|freq\w*|every\w*|period) ?% ?[\w.]*(?:interval|freq|every|period)"),
        "one interval is not a multiple of the other: {what}",
        "Both count steps, and the longer one must include whole shorter ones. The number of ranks is not the cause.",
        Fix("Make the first interval a multiple of the second."),
        "Traceback (most recent call last):\n"
        '  File "/w/megatron/training/arguments.py", line 1710, in validate_args\n'
        "    assert args.save_retain_interval % args.save_interval == 0\nAssertionError\n",
        _ARGUMENTS),
)

_OF_WARP = Case(
    shown("warp_without_driver"),
    "the run needs a GPU, and Warp found no CUDA driver in this process: it has only the CPU",
    "Warp looks for libcuda, which comes with NVIDIA's driver. The node has no GPU or no driver, the container was "
    "started without its GPUs, or the driver does not start.",
    (Fix("Check whether this process has a driver and GPUs.",
         ("nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"", "ldconfig -p | grep libcuda.so", "mgpu doctor")),
     Fix("Request GPUs from Slurm or the container.", ("sbatch --gpus-per-node=1 ...", "docker run --gpus all")),
     Fix("Without a GPU, choose another backend than Warp, if the program has one.")),
    "Warp 1.10.0 initialized:\n   CUDA driver not found or failed to initialize\n   Devices:\n     \"cpu\"\n"
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    env = make()\n'
    "RuntimeError: The simulation requires CUDA.\n",
    "https://nvidia.github.io/warp/installation.html")
ROWS = (
    Row("log_assertion_of_multiples", "root", "script", r"^\s*assert \(?(?P<what>[^=,(]+ ?% ?[^=]+ ?== ?0)\)?$",
        ("    assert width % patch == 0", "    assert args.batch_size % len(devices) == 0",
         "    assert (num_experts % ep_size == 0)"),
        "a size is not a multiple of another one, as the script requires: {what}",
        "The assertion has no message. The first value must be a multiple of the second: the size of an image of its "
        "patches or strides, features of heads or groups, batches of the ranks or the micro batch, layers and experts "
        "of the parallel size.",
        Fix("Print both values, and change one of them so that it divides.", ()), _ASSERT,
        summary="A size is not a multiple of another one, as the script requires.", cases=_MULTIPLES,
        explain=lambda groups, raised: of_assertion(groups["what"], raised)),
    Row("log_positions_fewer_than_sequence", "root", "launcher",
        r"assert [\w.]*max_position_embeddings >= [\w.]+|"
        r"max_position_embeddings \(\d+\) must be greater than or equal to seq_length",
        ("    assert args.max_position_embeddings >= args.seq_length",
         "AssertionError: max_position_embeddings (4096) must be greater than or equal to seq_length (8192)."),
        "the sequence is longer than the model's positions: max_position_embeddings is less than the sequence length",
        "Megatron requires --max-position-embeddings for every kind of position, and at least the sequence length.",
        Fix("Set both to the same length, or shorten the sequence.",
            ("--seq-length 4096 --max-position-embeddings 4096",)), _ARGUMENTS,
        summary="Megatron's sequence length is larger than --max-position-embeddings."),
    Row("log_megatron_index_incomplete", "root", "script",
        r"assert self\.(?:index\.)?(?:sequence_lengths\.shape\[0\]|sizes\.shape\[0\]|_?len\w*) == |"
        r"assert \w+ == \w*_HEADER, |bad header, cannot read: |"
        r"Index file doesn't match expected format\. Make sure that --dataset-impl",
        ("    assert self.index.sequence_lengths.shape[0] == self.index.document_indices[-1]",
         "AssertionError: bad header, cannot read: /data/corpus_text_document.idx",
         "AssertionError: Index file doesn't match expected format. Make sure that --dataset-impl is configured "
         "properly."),
        "Megatron's index file of the dataset (.idx) is incomplete, or is not an index",
        "preprocess_data.py writes the .idx file at its very end. It was stopped early, the copy is incomplete, the "
        "pair of .bin and .idx does not belong together, or --data-path names another file.",
        (Fix("Check both files, and write them again.",
             ("ls -l /data/corpus_text_document.bin /data/corpus_text_document.idx",
              "python tools/preprocess_data.py --input corpus.jsonl --output-prefix /data/corpus --workers 8 "
              "--append-eod ...")),
         Fix("Pass --data-path without the extension.", ("--data-path /data/corpus_text_document",))), _INDEXED),
    Row("log_megatron_epochs_do_not_add_up", "root", "script",
        r"assert num_samples_from_final_epoch (?:>=|<=)|assert last_epoch_num_samples (?:>=|<)",
        ("    assert num_samples_from_final_epoch >= 0",
         "    assert num_samples_from_final_epoch <= num_samples_per_epoch + 1"),
        "Megatron cannot build the order of the samples: the split of the dataset has too few tokens, or overflows",
        "It computes how many epochs the requested samples need. A split with fewer tokens than one sequence (a small "
        "validation or test part, a tiny file for a test) makes the numbers contradict each other.",
        (Fix("Give the split at least one sequence of tokens, or no split.",
             ("--split 99,1,0", "--seq-length 1024 --eval-iters 1")),
         Fix("Delete the cached indices: they can be from another run.", ("rm -r /data/cache/GPTDataset_indices",))),
        _DATASET),
    Row("log_megatron_weights_of_blend", "root", "launcher",
        r"assert len\((?:self\.)?datasets\) == len\((?:self\.)?weights\)|assert all\(map\(lambda _: _ > 0, weights\)\)|"
        r"assert len\(self\.\w+_data_paths\) == len\(self\.\w+_data_weights\)|"
        r"weight per dataset must be float|could not convert string to float: '/[^']+_document'",
        ("    assert len(datasets) == len(weights)",
         "ValueError: could not convert string to float: '/data/wiki_text_document'"),
        "the weights and the datasets of --data-path do not pair up",
        "With several datasets, --data-path is a list of weight and prefix in turn: 0.3 A 0.7 B. A weight or a prefix "
        "is missing, a weight is 0, or a path contains a space.",
        Fix("Write a positive weight before each prefix, or no weight at all.",
            ("--data-path 0.7 /data/a_text_document 0.3 /data/b_text_document",)),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/blended_dataset.py"),
    Row("log_assertion_of_launch", "root", "launcher",
        r"^\s*assert (?:torch\.distributed|dist)\.is_initialized\(\)|"
        r"^\s*assert (?:self\.)?world_size (?:> ?1|>= ?2)\b",
        ("    assert torch.distributed.is_initialized()", "    assert world_size > 1"),
        "the code needs a group of connected ranks, which this process is not in, or in which it is alone",
        "The script was started without a launcher, init_process_group() was not called before this line, or the "
        "launcher started one process where several are required.",
        (Fix("Start one process per GPU, and initialize the process group first.",
             ("mgpu launch train.py", "torchrun --nproc-per-node=8 train.py",
              "torch.distributed.init_process_group('nccl')")),
         Fix("To run on one GPU, start one process with a launcher, if the code only needs the group.",
             ("torchrun --nproc-per-node=1 train.py",))),
        "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.is_initialized"),
    Row("log_assertion_of_numbers", "root", "script",
        r"^\s*assert (?!.*[Ll]oss is (?:nan|NaN|inf))"
        r"(?:not |all\(|\()*(?:(?:torch|math|np|numpy|jnp)\.)?(?:isnan|isfinite|isinf)\(|"
        r"(?:AssertionError|RuntimeError|ValueError|FloatingPointError|Exception): (?:nan|NaN|inf|[Nn]on-?finite) "
        r"(?:loss|gradients?)\b",
        ("    assert not torch.isnan(loss)", "    assert torch.isfinite(losses).all(), step",
         "    assert not math.isnan(total_loss.item())", "AssertionError: NaN loss",
         "FloatingPointError: nan gradients"),
        "training stopped because a value is NaN or infinite, which the script checks",
        "Usual reasons: a learning rate that is too high, fp16 that overflows, a division by 0 in the loss (no object, "
        "an empty mask, a class without samples), log or sqrt of 0, or NaN in the data.",
        (Fix("Lower the learning rate, clip the gradients, and turn off fp16 to compare.",
             ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
              "torch.autocast('cuda', dtype=torch.bfloat16)")),
         Fix("Find the first operation with NaN.", ("torch.autograd.set_detect_anomaly(True)",))),
        "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection"),
    Row("log_assertion_of_gpu", "root", "launcher",
        r"^\s*assert torch\.cuda\.is_available\(\)|(?:Assertion|Runtime|Value|OS|Environment)Error: (?!fp16 )"
        r".{0,60}\b(?:requires? "
        r"CUDA|CUDA is required|requires? (?:a|at least one) (?:CUDA )?GPU)[.!]?$",
        ("    assert torch.cuda.is_available()", "AssertionError: Megatron requires CUDA.",
         "RuntimeError: This script requires CUDA."),
        "the run needs a GPU, and torch sees none in this process",
        "The job got no GPU, CUDA_VISIBLE_DEVICES hides them, the container was started without them, torch was "
        "installed without CUDA, or its CUDA is newer than the driver supports.",
        (Fix("Check what this process sees.",
             ("nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"",
              "python -c 'import torch; print(torch.version.cuda, torch.cuda.device_count())'", "mgpu doctor")),
         Fix("Request GPUs from Slurm or the container.", ("sbatch --gpus-per-node=8 ...", "docker run --gpus all"))),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/initialize.py",
        cases=(_OF_WARP,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
