"""Can torch read and write a file of weights, a sharded checkpoint or a tensor between processes?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import counts, said

_LOAD = "https://github.com/pytorch/pytorch/blob/main/torch/serialization.py"
_DCP = "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html"
_FSDP = "https://docs.pytorch.org/docs/stable/fsdp.html"
_FLAT = "https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/_flat_param.py"


def _same_size(sizes: Sequence[str]) -> bool:
    """Whether FSDP expected the flat form of the very tensor that it found."""
    return int(sizes[0]) == math.prod(map(int, sizes[1].split(", ")))


# fmt: off
_ONE_RANK = Case(
    counts(r"Expects torch\.Size\(\[(\d+)\]\) but got torch\.Size\(\[(\d+(?:, \d+)+)\]\)", _same_size),
    "FSDP runs on one rank, where it does not shard (NO_SHARD), and cannot convert its parameters there",
    "With a single rank FSDP 1 keeps whole parameters in their own shape. accelerate and trainers convert the flat "
    "parameter to fp32 for mixed precision, and FSDP then finds the shape of the parameter where it expects the flat "
    "one. With two ranks or more the same script works.",
    (Fix("Without a second GPU, do not use FSDP.", ("accelerate launch --num_processes 1 ...", "mgpu configure")),
     Fix("Or start as many ranks as there are GPUs, or use FSDP 2.",
         ("mgpu launch train.py", "accelerate launch --fsdp_version 2 ...")),
     Fix("Or load the weights in fp32, so that nothing is converted.",
         ("from_pretrained(..., torch_dtype=torch.float32)",))),
    "RuntimeError: Cannot writeback when the parameter shape changes\n"
    "Expects torch.Size([517996544]) but got torch.Size([126464, 4096])\n",
    "https://github.com/pytorch/pytorch/issues/151223")
_GRADIENT_RESHAPED = Case(
    said(r"Cannot writeback when the gradient shape changes"),
    "FSDP found a gradient of another shape than its parameter",
    "With use_orig_params, FSDP writes gradients back into its flat parameter. The gradient was made while the "
    "parameter was whole (no_sync(), an evaluation with summon_full_params, CPU offload), or a hook or optimizer "
    "replaced it.",
    (Fix("Clear gradients before weights are gathered or loaded, and do not accumulate with no_sync().",
         ("optimizer.zero_grad(set_to_none=True)", "accelerate launch --gradient_accumulation_steps 1 ...")),
     Fix("Or use FSDP 2, which has no flat parameters.", ("accelerate launch --fsdp_version 2 ...",))),
    "RuntimeError: Cannot writeback when the gradient shape changes\n", _FLAT)

ROWS = (
    Row("log_image_format_unknown", "root", "script",
        r"\bunknown file extension: (?P<extension>\.(?:tmp|temp|part|partial|bak|incomplete|lock)\w*)\s*$",
        ("ValueError: unknown file extension: .tmp",),
        "Pillow cannot save an image: the ending of its name ({extension}) is not that of an image format",
        "image.save(path) takes the format from the ending of the name. A temporary name (.tmp, .part), or a name "
        "without an ending, has none.",
        Fix("Give the format, or let the temporary name end with that of the image.",
            ("image.save(path, format='PNG')", "image.save(path + '.tmp.png'); os.replace(path + '.tmp.png', path)")),
        "https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.save",
        summary="Pillow cannot save an image under this name."),
    Row("log_checkpoint_of_more_gpus", "root", "script",
        r"Attempting to deserialize object on (?P<device>.+?) but torch\.\w+\.device_count\(\) is (?P<count>\d+)",
        ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2. Please "
         "use torch.load with map_location to map your storages to an existing device.",),
        "the file was saved from {device}, and the number of GPUs that this process sees is {count}",
        "torch.load puts each tensor on the GPU it was saved from, by its number. The run that saved it used a GPU "
        "with a higher number: another machine, another choice of GPUs, or a rank of several, each of which may see "
        "only its own GPU here (CUDA_VISIBLE_DEVICES).",
        (Fix("Load to the CPU, then move.",
             ("state = torch.load(path, map_location='cpu', weights_only=True)",)),
         Fix("Save from the CPU, or with safetensors, so that no device is stored.",
             ("accelerator.save_model(model, FOLDER)",))), _LOAD,
        summary="A file was saved from a GPU that this process does not see."),
    Row("log_file_is_torchscript", "root", "script",
        r"is a zip archive \(did you mean to use torch\.jit\.load\(\)\?\)|"
        r"appears to be a TorchScript archive",
        ("RuntimeError: model.pt is a zip archive (did you mean to use torch.jit.load()?)",),
        "the file is of a newer format than this torch reads, or a TorchScript model",
        "Since torch 1.6 files are zip archives. Older releases and old forks (in a pinned environment) do not read "
        "them, and a file of torch.jit.save() holds a program, not a state_dict.",
        Fix("Load it with a newer torch, or with torch.jit.load.",
            ("python -c 'import torch; print(torch.__version__)'", "unzip -l FILE | head",
             "torch.save(state, path, _use_new_zipfile_serialization=False)  # for the old reader")), _LOAD),
    Row("log_file_of_other_device_type", "root", "script",
        r"don't know how to (?:restore|determine) data location of .*",
        ("RuntimeError: don't know how to restore data location of torch.storage.UntypedStorage (tagged with npu:0)",),
        "the file was saved from a kind of device that this torch does not know",
        "The tag at the end names it: npu, xla, hpu, xpu, privateuseone. The extension for it is not installed here.",
        Fix("Load it to the CPU.", ("torch.load(path, map_location='cpu')",)), _LOAD),
    Row("log_dtensors_not_imported", "root", "script",
        r"``?torch\.distributed\.tensor``? must be imported to load DTensors",
        ("_pickle.UnpicklingError: ``torch.distributed.tensor`` must be imported to load DTensors",),
        "the file holds sharded tensors (DTensor): it is one rank's part, saved with torch.save from FSDP 2",
        "state_dict() of an FSDP 2 model has DTensors. torch.save then stores this rank's shard, which needs a process "
        "group of the same size to load.",
        (Fix("Import the module before loading, in a run with as many ranks.", ("import torch.distributed.tensor",)),
         Fix("Save whole or sharded checkpoints with torch's own functions instead.",
             ("torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
              "options=StateDictOptions(full_state_dict=True, cpu_offload=True))",))), _LOAD),
    Row("log_tensor_of_graph_sent", "root", "script",
        r"Cowardly refusing to serialize non-leaf tensor which requires_grad",
        ("RuntimeError: Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not "
         "support crossing process boundaries.",),
        "a tensor with gradients was sent to another process",
        "A Dataset or collate function in a worker, a queue, or spawn() passes a computed tensor that requires "
        "gradients (an embedding, model output). A graph does not cross processes.",
        Fix("Detach it, or compute it in the training process.", ("x = x.detach()", "with torch.no_grad():")),
        "https://github.com/pytorch/pytorch/blob/main/torch/multiprocessing/reductions.py"),
    Row("log_download_hash_wrong", "root", "script", r"invalid hash value \(expected ",
        ('RuntimeError: invalid hash value (expected "0676ba61", got "e3b0c442")',),
        "a downloaded file of weights does not have the expected hash: it is incomplete, or another file",
        "torch.hub checks the file's hash. The download was interrupted, a proxy or a login page returned something "
        "else, or several ranks or runs wrote the same file at once.",
        (Fix("Delete the file, and start again.", ("ls -la ~/.cache/torch/hub/checkpoints",)),
         Fix("With several ranks, let one of each node download it first.",
             ("with accelerator.local_main_process_first(): model = build_model()",))),
        "https://github.com/pytorch/pytorch/blob/main/torch/hub.py"),
    Row("log_sharded_checkpoint_exists", "root", "script", r"Checkpoint already exists and self\.overwrite",
        ("RuntimeError: Checkpoint already exists and self.overwrite=False.",),
        "the folder already holds a sharded checkpoint, and the writer may not replace it",
        "A restarted run saves to the same step, or all saves use one name.",
        Fix("Save each step to its own folder, or allow replacing.",
            ("dcp.save(state, checkpoint_id=f'out/step-{{step}}')",
             "torch.distributed.checkpoint.FileSystemWriter(FOLDER, overwrite=True)")), _DCP),
    Row("log_checkpoint_process_died", "root", "script",
        r"Checkpoint (?:background )?process (?:is dead|died unexpectedly)|"
        r"Timed out after \S+ while waiting for response from checkpointer process|"
        r"Checkpoint commit timed out after",
        ("RuntimeError: Checkpoint background process is dead. Exit code: -9",
         "RuntimeError: [rank0] Checkpoint process died unexpectedly. Check logs for OOM or other errors in the "
         "checkpoint subprocess."),
        "the process that writes checkpoints in the background died or does not respond",
        "Asynchronous saving copies the state into host memory and writes it from another process. Exit code -9 means "
        "it was killed, almost always because host memory ran out: the copy needs the size of the state per rank.",
        (Fix("Check memory and the disk, and save synchronously until then.",
             ("free -g; df -h .", "sudo dmesg -T | grep -i 'killed process' | tail", "dcp.save(state, ...)")),), _DCP),
    Row("log_async_save_without_cpu_backend", "root", "script",
        r"A CPU backend must be enabled for async save",
        ("AssertionError: A CPU backend must be enabled for async save; try initializing process group with "
         "'cpu:gloo,cuda:nccl'",),
        "asynchronous checkpoints need a gloo group for CPU tensors, and the process group has NCCL only",
        "The ranks coordinate the save from host memory while training goes on with NCCL.",
        Fix("Create the process group with both backends.",
            ("torch.distributed.init_process_group('cpu:gloo,cuda:nccl')",)), _DCP),
    Row("log_fsdp_optimizer_states_missing", "root", "script",
        r"FSDP currently requires each rank to have at least the optimizer states needed by rank 0|"
        r"`?optim_state_dict`? must have the keys",
        ("RuntimeError: FSDP currently requires each rank to have at least the optimizer states needed by rank 0's "
         "optimizer but some ranks are missing some of those states",),
        "a rank has no optimizer state for a parameter that rank 0 has one for",
        "FSDP saves the optimizer's state of all ranks together. A parameter got no gradient on some ranks yet "
        "(experts, frozen or skipped layers, a rank without data), so its state does not exist there.",
        Fix("Let every parameter get a gradient before the first save: a dummy term in the loss.",
            ("loss = loss + 0.0 * sum(p.sum() for p in model.parameters() if p.requires_grad)",)), _FSDP),
    Row("log_optimizer_not_consolidated", "root", "script",
        r"Optimizer state has not been consolidated on this rank",
        ("RuntimeError: Optimizer state has not been consolidated on this rank. Please call "
         "`consolidate_state_dict(to=0)` on all ranks beforehand if you meant to save the global state.",),
        "the state of ZeroRedundancyOptimizer was saved before the ranks had put it together",
        "Each rank keeps a part of the optimizer's state. consolidate_state_dict(to=RANK) collects it on one rank, and "
        "is a collective: all ranks must call it, and only that rank may save.",
        Fix("Call it on all ranks before rank 0 saves.",
            ("optimizer.consolidate_state_dict(to=0)", "if rank == 0: torch.save(optimizer.state_dict(), path)")),
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/optim/zero_redundancy_optimizer.py"),
    Row("log_fsdp_parameter_replaced", "root", "script",
        r"Cannot writeback when the \S+ shape changes|FSDP does not support changing the parameters between|"
        r"Changing shared parameters is not supported yet",
        ("RuntimeError: Cannot writeback when the parameter shape changes",
         "AssertionError: FSDP does not support changing the parameters between forward and backward",
         "NotImplementedError: Changing shared parameters is not supported yet"),
        "a parameter was replaced or resized after FSDP had flattened it",
        "FSDP 1 with use_orig_params writes a changed parameter back into its flat one, which works for the same shape "
        "and outside of a step only. resize_token_embeddings(), tying weights, LoRA, merging adapters, a `.data` "
        "assignment or quantization after wrapping do that.",
        (Fix("Change the model before it is wrapped (before prepare()).",
             ("model.resize_token_embeddings(len(tokenizer)); model = accelerator.prepare(model)",
              "mgpu doctor --script train.py")),
         Fix("Later changes need the whole parameters.",
             ("with FSDP.summon_full_params(model, writeback=True): ...",))),
        _FLAT, cases=(_ONE_RANK, _GRADIENT_RESHAPED)),
    Row("log_fsdp_offloaded_model_moved", "root", "script",
        r"parameter CPU offloading enabled has parameters on|"
        r"Expects the `FlatParameter` to be on CPU when parameter CPU offloading",
        ("RuntimeError: An FSDP-managed module with parameter CPU offloading enabled has parameters on cuda:0. Make "
         "sure to not move the module from CPU when offloading parameters.",),
        "the model was moved to the GPU after FSDP with CPU offload had wrapped it",
        "With offload, FSDP keeps the shards in host memory and copies each layer itself. model.to('cuda') or "
        "model.cuda() after wrapping, also by a library, breaks that.",
        Fix("Remove the move, or turn offload off.",
            ("accelerate launch --fsdp_offload_params false ...", "mgpu doctor --script train.py")), _FSDP),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
