"""Cases of a full GPU in the steps of a run: forward pass, loss, backward pass, optimizer, generation, evaluation."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Applies, Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import (
    either,
    ends_within,
    every,
    last_did,
    message,
    never,
    own_line,
    raised_in,
    shown,
    source_line,
    through,
    within,
)
from ._gpu_memory import ENGINE, GIANT, OUT_OF_MEMORY, TUNING, Numbers, numbers, read_numbers, trace
from ._gpu_memory_before_steps import OFFLOAD

_TUNING = "https://huggingface.co/docs/transformers/perf_train_gpu_one"
_REDUCING = "https://huggingface.co/docs/trl/reducing_memory_usage"
_ZERO_KEYS = "https://www.deepspeed.ai/docs/config-json/"
_VOCABULARY = re.compile(r"\bvocab(?:_size)?['\"]?\s?[=:]\s?(\d{3,7})\b")
_LENGTH = re.compile(r"\b(?:max_)?seq(?:uence)?_len(?:gth)?['\"]?\s?[=:]\s?(\d{2,7})\b")
_ROUNDED = 0.006  # GiB: torch prints two decimals
_LARGE, _SMALL = 1.0, 0.1  # GiB in one allocation


def _is_giant(read: Numbers) -> bool:
    return read.tried is not None and read.tried >= GIANT and not (read.total and read.tried > 2 * read.total)


def _has_size_of_logits(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the request has exactly the size of logits of whole sequences: the log has the length and the vocabulary.

    The backward pass has no frame that shows which operation failed.
    """
    tried = read_numbers(raised.message).tried if raised is not None else None
    text = next((one.text for one in log.shows if one.name == "language_model"), "")
    vocabulary, length = _VOCABULARY.search(text), _LENGTH.search(text)
    if not tried or not vocabulary or not length:
        return False
    for bytes_each in (2, 4):
        sequence = int(vocabulary[1]) * int(length[1]) * bytes_each / 2**30
        count = round(tried / sequence) if sequence > 10 * _ROUNDED else 0  # else every size is a multiple
        if count and abs(tried - count * sequence) <= _ROUNDED:
            return True
    return False


def _in_output_layer(log: Log, raised: UncaughtException | None) -> bool:
    """Whether a linear layer failed that the language model itself calls, not one of its layers: the output layer."""
    frames = raised.frames if raised is not None else ()
    models = [frame for frame in frames if _MODEL.search(frame)]
    return len(models) == 1 and frames[-1].endswith("torch/nn/modules/linear.py in forward")


def _in_own_code(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the script's own line failed, or what it calls of torch."""
    called = [one for one in (raised.calls if raised is not None else ()) if one.package != "torch"]
    return bool(called) and not called[-1].package


_MODEL = re.compile(r"/modeling_\w+\.py in forward$")
_OF_MLP = re.compile(r"\b(?:gate_up_proj|gate_proj|up_proj|down_proj|c_fc|dense_h_to_4h|linear_fc1)\b")
_REPLICA = r"torch/nn/parallel/parallel_apply\.py in _worker$"


def _in_mlp(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the line of a frame calls a projection of an MLP: what failed is within it, such as an adapter."""
    return raised is not None and any(_OF_MLP.search(call.code or "") for call in raised.calls)


def _in_replica(inside: Applies) -> Applies:
    """What a replica of DataParallel raised in its own thread passes the condition. The caller raises it again."""
    of_replica, again = within(_REPLICA), message(_CAUGHT)

    def applies(log: Log, raised: UncaughtException | None) -> bool:
        inner = (one for one in log.raised if of_replica(log, one))
        own = raised if of_replica(log, raised) else next(inner, None) if again(log, raised) else None
        return own is not None and inside(log, own)

    return applies


_CAUGHT = r"^Caught \w+ in replica \d+"


# fmt: off
_RECOMPUTE = Fix("Recompute activations in the backward pass.", ("TrainingArguments(gradient_checkpointing=True)",))
_MICRO_BATCH = Fix("Use a smaller micro-batch or shorter sequences, and accumulate gradients over more steps.",
                   ("TrainingArguments(per_device_train_batch_size=1, gradient_accumulation_steps=16)",))
_ONE_PER_GPU = Fix("Start one process per GPU, which uses DDP or FSDP.", ("mgpu launch train.py",))
_SHORTER = Fix("Cut long samples, or drop them.",
               ("SFTConfig(max_length=4096)", "dataset.filter(lambda row: len(row['input_ids']) <= 4096)"))
_CHUNKED = Fix("Use a loss that never holds all logits: fused or chunked cross entropy.",
               ("pip install liger-kernel", "TrainingArguments(use_liger_kernel=True)"))
_CHUNKED_RL = Fix("Compute the log probabilities of fewer tokens at once.",
                  ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
                   "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
                   "actor_rollout_ref.model.use_fused_kernels=True  # fused loss",
                   "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True"))
_BACKWARD = within(rf"{ENGINE}| in (?:backward|_?backward_step)$")
_LOSS = every(
    either(
        ends_within(
            r" in (?:cross_entropy\w*|nll_loss\w*|\w*ForCausalLMLoss|fixed_cross_entropy|\w*log_softmax\w*|"
            r"_?get_(?:per_token|batch|sequence)_log\w+|\w*logprobs?_from_logits\w*|\w*logits_to_logprobs|"
            r"\w*entropy_from_logits\w*|\w*vocab_parallel\w*|_?lm_head\w*|compute_\w*logits\w*|"
            r"_?convert_to_fp32|float16_to_fp32|float_conversion)$", 4),
        source_line(r"(?<!router_)(?<!gate_)(?<!attn_)logits|lm_head|log_softmax|cross_entropy"),
        _in_output_layer),
    never(_BACKWARD), never(within(r"liger")), never(numbers(lambda read: (read.tried or 1.0) < _SMALL)))
_GENERATING = within(r"transformers/generation/\S+ in | in (?:generate|greedy_search|beam_search)$")
_EVALUATING = within(r" in (?:_?evaluat(?:e|ion)\w*|prediction_(?:loop|step)|predict|_?validat(?:e|ion)\w*|eval_\w+|"
                     r"_run_eval\w*)$")
_STEPPING = every(
    within(r"torch/optim/\w+\.py in (?:step|_init_group|adamw?|_?(?:multi|single)_tensor\w*|_fused\w+)$|"
           r"torch/nn/utils/clip_grad\.py in |(?:bitsandbytes|torchao)/optim\w*/|apex/optimizers/|"
           r"deepspeed/runtime/\S+ in (?:_take_model_step|_optimizer_step|unscale_and_clip_grads|"
           r"_unflatten_partitioned_parameters|_partitioned_params_swap_out|_prepare_\w*sub_group|"
           r"_prepare_fp32_grad\w*|step)$| in (?:clip_grad_norm_?|optimizer_step|_maybe_opt_step|prepare_grads)$"),
    never(within(rf"{ENGINE}| in (?:\w*closure\w*|forward)$")))

# A part of the script's own model that is not its output layer: the large tensor is not the logits.
_OTHER_LAYER = every(
    _in_own_code, within(r" in forward$"), never(_BACKWARD),
    never(own_line(r"(?i)logit|head|vocab|log_?prob|softmax|entropy|loss|criterion|out(?:put)?\w*\(|decode|classif|pred")))

# The deepest places come first: an evaluation computes a loss, and a trainer's step contains all of them.
IN_STEPS = (
    Case(every(_STEPPING, never(_GENERATING)),
         "a GPU's memory is full in the optimizer's step: gradients and optimizer states do not fit beside the model",
         "Adam allocates two values per trained parameter at the first step (8 bytes in fp32), and temporary copies. "
         "Forward and backward pass fit, so a smaller batch helps little.",
         (OFFLOAD, Fix("Use an optimizer with smaller states, or train fewer parameters (LoRA).",
                       ("TrainingArguments(optim='adamw_bnb_8bit')", "TrainingArguments(optim='adafactor')")),
          Fix("Avoid the temporary copies of all parameters at once.",
              ("torch.optim.AdamW(model.parameters(), foreach=False)",))),
         trace("transformers/trainer.py in _inner_training_loop", "accelerate/optimizer.py in step",
               "torch/optim/adamw.py in step", "torch/optim/adamw.py in _init_group"),
         _TUNING),
    Case(raised_in(r"^transformers/debug_utils\.py in "),
         "a GPU's memory is full in a check of the activations, which the option debug=underflow_overflow adds",
         "With it, each module's input and output is copied to find its largest value and infinities (abs, isinf). A "
         "copy is as large as the activation itself, so little room was left before it.",
         (Fix("Train without the check, or use it with a small batch only.",
              ("TrainingArguments(debug='')  # no --debug underflow_overflow",)), _MICRO_BATCH),
         trace("transformers/trainer.py in training_step", "transformers/models/llama/modeling_llama.py in forward",
               "transformers/debug_utils.py in forward_hook", "transformers/debug_utils.py in get_abs_min_max"),
         "https://huggingface.co/docs/transformers/debugging#underflow-and-overflow-detection"),
    Case(within(r" in (?:nested_concat|torch_pad_and_concatenate|nested_gather|gather_for_metrics|_gpu_gather\w*|"
                r"pad_across_processes|_pad_across_processes|gather_function|distributed_concat|_nested_gather)$"),
         "a GPU's memory is full while evaluation collects its predictions: it keeps all logits on the GPU",
         "With compute_metrics, the logits of every batch (sequence length times vocabulary) stay on the GPU until the "
         "end, and those of all ranks are gathered. A smaller training batch does not help.",
         (Fix("Reduce the logits at once to what the metric needs (the argmax).",
              ("Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(dim=-1))",)),
          Fix("Move them to host memory every few batches, or compute the loss only.",
              ("TrainingArguments(eval_accumulation_steps=1)", "TrainingArguments(batch_eval_metrics=True)",
               "TrainingArguments(prediction_loss_only=True)"))),
         trace("transformers/trainer.py in evaluate", "transformers/trainer.py in evaluation_loop",
               "transformers/trainer_pt_utils.py in nested_concat"),
         "https://github.com/huggingface/transformers/issues/7232"),
    Case(every(_GENERATING, either(through("deepspeed"),
                                   within(r" in (?:unwrap_model_for_generation|summon_full_params)$"))),
         "a GPU's memory is full while a sharded model generates: its whole weights are gathered for it",
         "For generation, ZeRO-3 and FSDP collect the weights of all layers on each GPU, or of one layer at a time, in "
         "addition to the KV cache of the sequences.",
         (Fix("Keep the weights sharded (slower), or generate with vLLM on other GPUs.",
              ("GRPOConfig(ds3_gather_for_generation=False)", "GRPOConfig(use_vllm=True, vllm_mode='server')")),
          Fix("Generate fewer or shorter sequences at once.", ("GRPOConfig(max_completion_length=512)",))),
         trace("trl/trainer/grpo_trainer.py in _generate_and_score_completions",
               "deepspeed/runtime/zero/partition_parameters.py in all_gather_coalesced",
               "transformers/generation/utils.py in generate"),
         "https://huggingface.co/docs/trl/grpo_trainer"),
    Case(_GENERATING,
         "a GPU's memory is full while the model generates text: the KV cache grows with every token",
         "The cache holds all tokens of all sequences of the batch, for every layer, in addition to what training "
         "keeps on the GPU.",
         (Fix("Generate shorter or fewer sequences at once.",
              ("model.generate(..., max_new_tokens=256, num_beams=1)",
               "TrainingArguments(per_device_eval_batch_size=1)")),
          Fix("Or generate with vLLM, on GPUs of its own.", ("trl vllm-serve --model ORG/MODEL",))),
         trace("train.py in main", "transformers/generation/utils.py in generate",
               "transformers/cache_utils.py in update"),
         "https://huggingface.co/docs/transformers/kv_cache"),
    Case(every(_EVALUATING, never(_BACKWARD)),
         "a GPU's memory is full during evaluation",
         "Training fits, evaluation does not: its batch size is another setting (8 by default in Trainer), and it may "
         "compute the full logits of all tokens and keep them.",
         (Fix("Use a smaller evaluation batch, and keep no logits.",
              ("TrainingArguments(per_device_eval_batch_size=1, eval_accumulation_steps=1, "
               "prediction_loss_only=True)",)),
          Fix("In a loop of your own, build no graph and free what training cached.",
              ("torch.inference_mode()", "torch.cuda.empty_cache()"))),
         trace("transformers/trainer.py in evaluate", "transformers/trainer.py in prediction_step",
               "transformers/models/llama/modeling_llama.py in forward"),
         "https://github.com/huggingface/transformers/issues/17089"),
    Case(every(_LOSS, either(through("verl"), within(r"^verl/"))),
         "a GPU's memory is full while verl computes log probabilities: the logits of all tokens do not fit",
         "Logits take tokens of a micro-batch x vocabulary x 2 or 4 bytes, several times (fp32, softmax, entropy). "
         "With 150,000 tokens in the vocabulary that is more than the layers need.",
         (_CHUNKED_RL, Fix("Allow shorter responses, or fewer tokens per GPU.",
                           ("data.max_response_length=2048",
                            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192"))),
         trace("verl/workers/actor/dp_actor.py in _forward_micro_batch",
               "verl/utils/torch_functional.py in logprobs_from_logits"),
         "https://verl.readthedocs.io/en/latest/perf/perf_tuning.html"),
    Case(every(_LOSS, within(r"/(?:dpo|kto|orpo|cpo|simpo|reward)\w*_trainer\.py in ")),
         "a GPU's memory is full in a preference loss: the logits of chosen and rejected answers do not fit",
         "One step computes the logits (tokens x vocabulary) of both answers, and of the reference model too: twice to "
         "four times the memory of supervised training.",
         (Fix("Compute the reference's log probabilities before training, and train with shorter answers.",
              ("DPOConfig(precompute_ref_log_probs=True, max_length=1024, per_device_train_batch_size=1)",)),
          _CHUNKED, OFFLOAD),
         trace("trl/trainer/dpo_trainer.py in concatenated_forward",
               "trl/trainer/utils.py in selective_log_softmax"),
         _REDUCING),
    Case(_in_replica(_LOSS),
         "a GPU's memory is full in the loss of a replica under DataParallel: the full logits (tokens x vocabulary)",
         "The replica computes the logits and the loss of its part of the batch. DDP with the same batch per GPU needs "
         "as much. DataParallel in addition gathers all outputs on GPU 0.",
         (_CHUNKED, _MICRO_BATCH, _ONE_PER_GPU),
         trace("train.py in main", "torch/nn/parallel/data_parallel.py in parallel_apply",
               message="torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.") + "\nOriginal " +
         trace("torch/nn/parallel/parallel_apply.py in _worker",
               "transformers/models/llama/modeling_llama.py in forward", "torch/nn/functional.py in cross_entropy"),
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html"),
    Case(_LOSS,
         "a GPU's memory is full in the loss: the full logits (tokens x vocabulary) do not fit",
         "Logits take batch x sequence length x vocabulary x 4 bytes, and the loss holds several copies. With a large "
         "vocabulary that exceeds all other activations, also with LoRA, FSDP and gradient checkpointing.",
         (_CHUNKED, _MICRO_BATCH),
         trace("transformers/trainer.py in compute_loss", "transformers/loss/loss_utils.py in ForCausalLMLoss",
               "torch/nn/functional.py in cross_entropy"),
         _REDUCING),
    Case(every(
             numbers(lambda read: (read.tried or 0.0) >= _LARGE),
             either(within(r" in (?:eager_attention_forward|_attn|\w*causal_mask\w*|_math_attention\w*|"
                           r"_prepare_4d\w*|scaled_dot_product_attention|sdpa_attention_forward)$"),
                    source_line(r"attn_weights|attention_(?:scores|probs)|attn_scores|attention_mask|q\w* @ k"))),
         "a GPU's memory is full in attention: its scores need memory for every pair of tokens",
         "Attention without a fused kernel (eager, or sdpa with a mask that excludes the fast kernels) allocates "
         "batch x heads x length x length. Twice the length takes four times the memory.",
         (Fix("Use FlashAttention.",
              ("pip install flash-attn --no-build-isolation",
               "from_pretrained(..., attn_implementation='flash_attention_2')")), _MICRO_BATCH, _RECOMPUTE),
         trace("train.py in main", "transformers/models/llama/modeling_llama.py in eager_attention_forward"),
         "https://huggingface.co/docs/transformers/attention_interface"),
    Case(within(r" in (?:get_(?:image|video)_features\w*|extract_feature\w*|encode_(?:images?|videos?)|"
                r"get_vision_\w+|vision_tower|image_sizes_to_\w+)$"),
         "a GPU's memory is full in the vision encoder: the images of a batch are too large or too many",
         "An image's tokens grow with its pixels, and models with native resolution take them as they are. Shorter "
         "texts do not help.",
         (Fix("Limit the pixels of an image, and the images of a micro-batch.",
              ("AutoProcessor.from_pretrained(model_id, max_pixels=512 * 512)",)), _MICRO_BATCH, _RECOMPUTE),
         trace("transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py in get_image_features"),
         "https://huggingface.co/docs/transformers/model_doc/qwen2_5_vl"),
    Case(either(within(_REPLICA), message(_CAUGHT)),
         "a GPU's memory is full in the forward pass of a replica under DataParallel: its part of the batch does not "
         "fit",
         "The activations of one GPU's samples do not fit beside the model. DDP with the same batch per GPU needs as "
         "much. DataParallel in addition gathers all outputs on GPU 0, which comes after this.",
         (_MICRO_BATCH, _RECOMPUTE, _ONE_PER_GPU),
         trace("train.py in main", "torch/nn/parallel/data_parallel.py in parallel_apply",
               message="torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.") + "\nOriginal " +
         trace("torch/nn/parallel/parallel_apply.py in _worker", "torch/nn/modules/linear.py in forward"),
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html"),
    Case(within(r"torch/nn/parallel/\w+\.py in (?:scatter\w*|replicate|_?broadcast\w*)$"),
         "a GPU's memory is full while DataParallel copies the model and the batch to the GPUs",
         "It failed before the forward pass of this step. Each GPU gets a copy of the weights and its part of the "
         "batch, beside what it has of the step before and what other programs hold. Outputs are gathered later.",
         (Fix("See how much of each GPU is in use, and keep the run off those that others use.",
              ("nvidia-smi", "CUDA_VISIBLE_DEVICES=0,1 python train.py")), _MICRO_BATCH, _ONE_PER_GPU),
         trace("train.py in main", "torch/nn/parallel/data_parallel.py in forward",
               "torch/nn/parallel/replicate.py in replicate"),
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html"),
    Case(within(r"torch/nn/parallel/\w+\.py in gather\w*$"),
         "a GPU's memory is full under DataParallel, which gathers all outputs on GPU 0",
         "One process drives all GPUs: GPU 0 also holds the model's master copy, all outputs and the loss.",
         (_ONE_PER_GPU,),
         trace("train.py in main", "torch/nn/parallel/data_parallel.py in forward",
               "torch/nn/parallel/scatter_gather.py in gather"),
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html"),
    Case(every(numbers(_is_giant), either(within(r" in _alloc_padded_unsharded_flat_param$"),
                                          within(r"_fully_shard/\S+ in (?:foreach_all_gather|all_gather_copy_in)$"))),
         "a GPU's memory is full while FSDP gathers one unit, which is very large: probably the layers are not wrapped",
         "FSDP gathers the parameters of one unit at a time. Without a wrapping policy that names the layer's class, "
         "the unit is the whole model.",
         (Fix("Wrap each transformer layer (and recompute activations).",
              ("accelerate launch --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
               "--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer --fsdp_activation_checkpointing true ...",)),),
         trace("torch/distributed/fsdp/_runtime_utils.py in _unshard",
               "torch/distributed/fsdp/_flat_param.py in _alloc_padded_unsharded_flat_param",
               message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 25.10 GiB. GPU 0 has a total "
                       "capacity of 39.39 GiB of which 13.57 GiB is free."),
         "https://docs.pytorch.org/docs/stable/fsdp.html"),
    Case(within(r"deepspeed/runtime/zero/\S+ in (?:\w*ipg\w*|average_tensor|allreduce_\w*bucket\w*|"
                r"reduce_\w*(?:grad|bucket)\w*|\w*reduce_and_partition\w*|\w*avg_scatter\w*|"
                r"copy_gradients_from_grad_partition)$"),
         "a GPU's memory is full while ZeRO reduces gradients in the backward pass: its buckets take part of the room",
         "The reduce buckets (500 million elements by default, several of them with overlap_comm) come on top of the "
         "activations and gradients.",
         (Fix("Use smaller buckets, without overlap.",
              ('"reduce_bucket_size": 50000000, "allgather_bucket_size": 50000000, "overlap_comm": false',)),
          OFFLOAD, _MICRO_BATCH),
         trace("deepspeed/runtime/engine.py in backward", "torch/autograd/__init__.py in backward",
               "deepspeed/runtime/zero/stage_1_and_2.py in average_tensor"),
         _ZERO_KEYS),
    Case(within(TUNING),
         "a GPU's memory is full while kernels are tuned (torch.compile, Triton): tuning runs them on extra copies",
         "Autotuning allocates inputs and outputs of its own, while the model's memory is in use.",
         (Fix("Compile without autotuning, or with a smaller batch.", ("torch.compile(model, mode='default')",)),
          _MICRO_BATCH),
         trace("train.py in main", "torch/_inductor/select_algorithm.py in benchmark_in_current_process"),
         "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"),
    Case(every(numbers(_is_giant), _in_mlp),
         "a GPU's memory is full in an MLP layer: the micro-batch has too many tokens",
         "A single allocation (\"Tried to allocate\" in the line) is a tensor of this layer: tokens of the micro-batch "
         "x its width x 2 or 4 bytes. It is neither the logits nor attention.",
         (_MICRO_BATCH, _SHORTER, _RECOMPUTE),
         trace("train.py in main", "transformers/models/llama/modeling_llama.py in forward",
               message=OUT_OF_MEMORY.replace("1.16 GiB", "9.60 GiB"),
               code="down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))"),
         _TUNING),
    Case(every(numbers(_is_giant), shown("language_model"), never(_OTHER_LAYER),
               either(never(_BACKWARD), _has_size_of_logits),
               never(within(r"deepspeed/runtime/zero/|fsdp/|/modeling_\w+\.py in forward$|"
                            r"/(?:mlp|moe|attention)\w*\.py"))),
         "a GPU's memory is full because of one very large tensor: probably the full logits (tokens x vocabulary)",
         "A single allocation (\"Tried to allocate\" in the line) is far larger than a layer's. In a language model "
         "that is the logits of the loss or their gradient, batch x sequence length x vocabulary x 2 or 4 bytes; "
         "otherwise attention scores without FlashAttention.",
         (_CHUNKED, _MICRO_BATCH,
          Fix("Check that attention uses a fused kernel.",
              ("from_pretrained(..., attn_implementation='flash_attention_2')",))),
         "Config: loss_fn=MaskedCrossEntropy seq_length=4096 vocab_size=201088\n" + trace(
             "train.py in main", "torch/_tensor.py in backward", "torch/autograd/graph.py in _engine_run_backward",
             message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 24.55 GiB. GPU 0 has a total "
                     "capacity of 184.31 GiB of which 9.61 GiB is free."),
         "https://github.com/NVIDIA-NeMo/Automodel/issues/3907"),
    Case(every(numbers(_is_giant), either(_BACKWARD, within(r" in forward$")),
               never(within(r"deepspeed/runtime/zero/|fsdp/"))),
         "a GPU's memory is full because of one very large tensor of a batch",
         "A single allocation (\"Tried to allocate\" in the line) is far larger than a layer's: the logits of the loss "
         "(tokens x vocabulary), attention scores without a fused kernel (length x length), large images, or wide "
         "features that the model makes of each token.",
         (_MICRO_BATCH,
          Fix("In the backward pass: see which line of the forward pass it belongs to.",
              ("torch.autograd.set_detect_anomaly(True)",)),
          _CHUNKED,
          Fix("Check that attention uses a fused kernel.",
              ("from_pretrained(..., attn_implementation='flash_attention_2')",))),
         trace("train.py in main", "torch/_tensor.py in backward",
               message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total "
                       "capacity of 79.15 GiB of which 9.61 GiB is free."),
         "https://github.com/huggingface/accelerate/issues/1864"),
    Case(every(last_did("train"), either(_BACKWARD, within(r" in forward$"))),
         "a GPU's memory is full in a later step: probably its batch has longer sequences or more images than before",
         "Many steps fitted, so the model and the optimizer do. The memory of a step follows the longest sample of its "
         "batch; a list that keeps tensors of every step (a loss without .item()) grows too.",
         (_SHORTER,
          Fix("Train with room for the longest sample: a smaller micro-batch, batches by number of tokens.",
              ("TrainingArguments(per_device_train_batch_size=1, gradient_accumulation_steps=16)",)),
          Fix("Let the allocator join free segments, since lengths vary.",
              ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",))),
         "".join(f"{{'loss': 1.2{step}, 'learning_rate': 1e-05, 'epoch': 0.{step}}}\n" for step in (1, 2)) + trace(
             "transformers/trainer.py in training_step", "transformers/models/llama/modeling_llama.py in forward"),
         "https://github.com/modelscope/ms-swift/issues/3327"),
    Case(_BACKWARD,
         "a GPU's memory is full in the backward pass: gradients come on top of the activations",
         "The forward pass fits. The backward pass adds the gradients, recomputed layers and gathered weights; it is "
         "the peak of a step. Sequence length and micro-batch decide it.",
         (_MICRO_BATCH, _RECOMPUTE, OFFLOAD),
         trace("transformers/trainer.py in training_step", "accelerate/accelerator.py in backward",
               "torch/_tensor.py in backward", "torch/autograd/__init__.py in backward"),
         _TUNING),
    Case(within(r" in forward$"),
         "a GPU's memory is full in the forward pass: the activations of a batch do not fit beside the model",
         "Activations grow with the micro-batch and the sequence length, and stay until the backward pass (an "
         "evaluation keeps none, and can fit before). Weights, gradients and optimizer states take the rest.",
         (_MICRO_BATCH, _RECOMPUTE, OFFLOAD),
         trace("transformers/trainer.py in compute_loss", "transformers/models/llama/modeling_llama.py in forward",
               "transformers/models/llama/modeling_llama.py in forward", "torch/nn/modules/linear.py in forward"),
         _TUNING),
)
# fmt: on
