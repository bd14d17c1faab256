"""Did an inference engine in the training's own process get a second model, or a request without room for an answer?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_VLLM_LAYER = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/attention/attention.py"
_SAMPLING = "https://github.com/vllm-project/vllm/blob/main/vllm/sampling_params.py"
_SWIFT = "https://github.com/modelscope/ms-swift/blob/main/swift/infer_engine/vllm_engine.py"
_LENGTHS = (
    "Templates, system prompts and the earlier turns of a conversation count as prompt. max_model_len is the limit "
    "for prompt and answer together."
)
# fmt: off
_ROOM = (
    Fix("Raise the engine's context, if the model allows it.",
        ("max_model_len=8192", "--vllm_max_model_len 8192", "--max-model-len 8192")),
    Fix("Or drop or shorten the prompts that leave no room.",
        ("GRPOConfig(max_prompt_length=1536, max_completion_length=512)", "--max_length 1536 --truncation_strategy "
                                                                          "delete",
         "data.max_prompt_length=1536 data.filter_overlong_prompts=True")),
)

ROWS = (
    Row("log_engine_built_twice", "root", "script",
        r"Duplicate layer name: (?P<layer>[\w.-]+)",
        ("ValueError: Duplicate layer name: model.layers.0.self_attn.attn",
         "RuntimeError: Duplicate layer name: model.layers.0.attn"),
        "vLLM builds a second model in the same process: the layer {layer} exists there already",
        "vLLM registers every attention layer of a process by its name. The script loads the model twice "
        "(fast_inference, two LLM objects, a notebook cell that ran again), or a first attempt to start the engine "
        "failed, and the same process tried again.",
        (Fix("Load the model once per process, and pass it on. In a notebook, restart the kernel.",
             ("grep -nE 'from_pretrained|LLM[(]|fast_inference' train.py",)),
         Fix("If an error of the engine is further up in the log (usually memory), fix that one first.",
             ("gpu_memory_utilization=0.5",))), _VLLM_LAYER,
        summary="vLLM builds a second model in a process that has one already."),
    Row("log_prompt_leaves_no_room", "root", "script",
        r"max_model_len\((?P<most>\d+)\) - num_tokens\((?P<got>\d+)\) < max_tokens\(\d+\)\. Setting max_tokens: -\d",
        ("[WARNING:swift] max_model_len(4096) - num_tokens(4801) < max_tokens(512). Setting max_tokens: -705",),
        "a prompt is longer than the inference engine's context: {got} tokens, and max_model_len is {most}",
        f"Nothing is left for the answer: max_tokens becomes negative, and vLLM rejects the request. {_LENGTHS}",
        _ROOM, _SWIFT, summary="A prompt is longer than the inference engine's context."),
    Row("log_no_token_left", "root", "script",
        r"max_(?:tokens|new_tokens|completion_tokens) must be (?:at least 1|greater than 0|positive|> ?0), (?:but "
        r")?got "
        r"(?P<left>-?\d+)",
        ("ValueError: max_tokens must be at least 1, got -705.", "ValueError: max_tokens must be at least 1, got 0."),
        "the engine is asked for {left} tokens: the prompt leaves no room for an answer, or the setting is wrong",
        f"Trainers compute max_tokens as the context minus the prompt. It is 0 or negative if a prompt is longer. "
        f"{_LENGTHS}",
        _ROOM, _SAMPLING, because_of=("log_prompt_leaves_no_room",),
        summary="An inference engine is asked for no or a negative number of tokens."),
    Row("log_server_answered_with_error", "secondary", "script",
        r"(?:HTTPStatusError: Server error '|HTTPError: |ClientResponseError: |InternalServerError: (?:Error code: )?)"
        r"(?P<code>50[0234])\b(?!.*(?:huggingface|hf\.co|pypi|github|wandb|amazonaws|googleapis))",
        ("httpx.HTTPStatusError: Server error '500 Internal Server Error' for url 'http://10.0.0.7:3333/generate'",
         "requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: http://127.0.0.1:30000/generate",
         "aiohttp.client_exceptions.ClientResponseError: 500, message='Internal Server Error', url='http://n1:8000/v1'",
         "openai.InternalServerError: Error code: 500 - {'error': {'message': 'EngineCore died'}}"),
        "a server that the run uses answered with an error ({code})",
        "Usually the inference engine (vLLM, SGLang) of the rollouts, or a server of rewards or tools. Its own log has "
        "the reason: memory, a crashed worker, or a request that it cannot handle. 502 to 504: it had stopped, or a "
        "proxy did not reach it.",
        Fix("Read the first exception in the server's log.", ("mgpu doctor --log SERVER.log",)),
        "https://docs.sglang.io/references/faq.html", summary="A server that the run uses answered with an error."),
    Row("log_sent_from_another_gpu", "root", "script",
        r"this nccl communicator is created to work on (?P<own>\w+:\d+), but the input tensor is on (?P<other>\w+:\d+)",
        ("AssertionError: this nccl communicator is created to work on cuda:0, but the input tensor is on cuda:1",),
        "a weight on {other} was to be sent to the vLLM server by a communicator of {own}",
        "device_map spread the model over several GPUs of one process, or the process did not select its own GPU. The "
        "trainer sends all weights through the first one.",
        (Fix("Put the whole model on one GPU per process (remove device_map), and shard it with ZeRO-3 or FSDP.",
             ("accelerate launch --num_processes 7 train.py", "from_pretrained(MODEL)  # without device_map")),
         Fix("Select the rank's GPU first.", ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",))),
        "https://github.com/huggingface/trl/issues/3424",
        summary="A weight was to be sent from another GPU than the communicator's."),
    Row("log_engine_weights_not_updated", "root", "library",
        r"[Ff]ailed to update (?:the )?(?:parameter|weight)s? (?:online|from \w+)\b|"
        r"\"POST /(?:update_weights\w*|init_weights_update_group) HTTP/[\d.]+\" [45]\d\d",
        ("Failed to update parameter online: start out of range (expected to be in range of [-8, 8])",
         '"POST /update_weights_from_distributed HTTP/1.1" 400 Bad Request',
         '"POST /update_weights_from_tensor HTTP/1.1" 500 Internal Server Error'),
        "the rollout engine could not take over the trainer's weights",
        "After each step, the trainer sends its weights to the engine (SGLang, vLLM). The engine's tensors did not fit "
        "what came: other parallel sizes (TP, EP, DP) than the trainer expects, a layout that the engine changes after "
        "loading (quantized or fused expert weights), or releases that do not belong together. The message after the "
        "colon has the details.",
        (Fix("Compare the engine's parallel sizes, dtype and quantization with what the trainer's example sets, and "
             "run once with a size of 1.", ("--rollout-num-gpus-per-engine 1", "--sglang-expert-parallel-size 1")),
         Fix("Use the engine's release that the trainer was tested with.", ("pip show sglang vllm",))),
        "https://github.com/sgl-project/sglang/issues/26032"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
