"""Do the shapes, types and devices of tensors, labels and batches fit the model and each other?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from . import _plain_torch_cases
from ._channels import explain_channels
from ._einsum_operands import explain_einsum
from ._embedding_cases import IDS_IN_16_BITS, VALUES_IN_16_BITS
from ._file_call_cases import NOT_COPIED, NOT_SAVED
from ._image_cases import ARRAYS_DIFFER
from ._library_cases import ONE_CLASS_PER_SAMPLE
from ._objects_in_batches import LISTS_DIFFER, NOT_SENT, OWN_GENERATOR, not_collated
from ._own_arguments import index_of_array
from ._plain_script_cases import in_plain_script, joined_in_plain_script, product_in_plain_script
from ._reshaped_tensors import compared, layer_dimensions, reshaped, rows_of_loss, split
from ._sizes import sizes
from ._system_cases import ODD_SIZE, PAIR_OF_RESET
from ._unsupported_types import not_for_numpy, operation_of_type, type_of_labels

_LOSS = "https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html"
_LINEAR = "https://pytorch.org/docs/stable/generated/torch.nn.Linear.html"
_DATA = "https://pytorch.org/docs/stable/data.html"
_MULTIPROCESSING = "https://docs.python.org/3/library/multiprocessing.html#programming-guidelines"
_TENSOR = "https://pytorch.org/docs/stable/tensors.html"
_AUTOGRAD = "https://pytorch.org/docs/stable/notes/autograd.html"


def _matrices(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    rows, columns = groups["c"], groups["d"]
    if "1" in (rows, columns) and int(rows) * int(columns) > 1 << 16:
        return Meaning(
            f"a 4-bit weight was used as if it were a plain one: it is packed into {rows}x{columns}",
            "bitsandbytes stores 4-bit weights in one column. Only its own layers can unpack them.",
            (
                Fix(
                    "Upgrade the packages, and do not call the weight yourself (F.linear, merged or wrapped layers).",
                    ("pip install --upgrade bitsandbytes peft transformers",),
                ),
            ),
        )
    if "0" in (rows, columns):
        return Meaning(
            "a weight is empty: ZeRO-3 or FSDP had probably sharded it when it was used",
            "Outside the wrapped model's forward pass, a rank has only its own shard, or nothing.",
            (
                Fix(
                    "Use weights only through the wrapped model, or gather them first.",
                    ("with deepspeed.zero.GatheredParameters(params):",),
                ),
            ),
        )
    return product_in_plain_script(groups, raised)


def _reshaped(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    return _adapter(groups, raised) or reshaped(groups, raised)


def _adapter(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    if raised is None or [one for one in raised.packages if one != "torch"][-1:] != ["peft"]:
        return None
    return Meaning(
        "an adapter's weight has another size than PEFT expects: probably only this rank's shard of it",
        "FSDP and ZeRO-3 divide weights among the ranks. PEFT used one outside of the layer's forward pass, as with "
        "target_parameters, DoRA or merging.",
        (
            Fix("Use FSDP 2 with a newer PEFT, which gathers it.", ("pip install --upgrade peft accelerate",)),
            Fix("Or target layers instead of parameters.", ("LoraConfig(target_modules='all-linear')",)),
        ),
    )


# fmt: off
_SHAPES = Fix("Print the shapes of the batch just before that line.",
              ("print({{k: v.shape for k, v in batch.items()}})",))

ROWS = (
    Row("log_operation_lacks_dtype", "root", "script",
        r"\"(?!nll_loss)(?P<op>\w+)\" not implemented for '(?P<dtype>(?!Half|BFloat16|Float8)\w+)'",
        ("RuntimeError: \"bitwise_and_cuda\" not implemented for 'Float'",
         "RuntimeError: \"index_select_cpu\" not implemented for 'Bits8'",
         "NotImplementedError: \"addmm_cuda\" not implemented for 'Long'"),
        "an operation ({op}) got a tensor of the type {dtype}, for which torch has no code",
        "Masks must be bool for &, | and ~, ids must be integers for an index or an embedding, and layers need "
        "floating "
        "point. The tensor was made or loaded in another type: by numpy, by a collate function, or by a division.",
        (Fix("Convert it before the operation.", ("mask = mask.bool()", "ids = ids.long()", "x = x.float()")),
         Fix("Print the types just before that line.", ("print({{k: v.dtype for k, v in batch.items()}})",))),
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
        summary="An operation got a tensor of a type for which torch has no code.", explain=operation_of_type),
    Row("log_pattern_does_not_fit", "root", "script",
        r"(?P<said>einsum\(\): (?:subscript .+|the number of subscripts .+|operands do not broadcast.*)|"
        r"EinopsError: +Error while processing \S+ pattern)",
        ("einops.EinopsError:  Error while processing rearrange-reduction pattern \"b (h w) c -> b h w c\".",
         "RuntimeError: einsum(): subscript c has size 16 for operand 1 which does not broadcast with previously seen "
         "size 8"),
        "the pattern of einsum or einops does not fit the shape of a tensor",
        "A letter stands for two different sizes, a size does not divide, or the tensor has more or fewer dimensions "
        "than "
        "the pattern: another image or sequence length, a missing batch dimension, or sizes per rank (tensor "
        "parallelism). The lines after the message have the shape.",
        Fix("Print the shapes just before that line, and compare them with the pattern.", ("print(x.shape, y.shape)",)),
        "https://einops.rocks/api/rearrange/", explain=explain_einsum),
    Row("log_layer_input_size", "root", "script",
        r"mat1 and mat2 shapes cannot be multiplied \((?P<a>\d+)x(?P<b>\d+) and (?P<c>\d+)x(?P<d>\d+)\)",
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x1024 and 768x2)",),
        "a layer expects {c} input features, but got {b}",
        "The input is {a}x{b}, the weight {c}x{d}. The layer was built for another model, image size or concatenation, "
        "or the input was flattened or transposed in another way.",
        (Fix("Build the layer from the size of its input.", ("torch.nn.Linear(model.config.hidden_size, num_labels)",)),
         _SHAPES), _LINEAR, summary="A layer got input with another number of features than it expects.",
        explain=_matrices),
    Row("log_reshape_invalid", "root", "script",
        r"shape '\[(?P<shape>[-\d, ]+)\]' is invalid for input of size (?P<size>\d+)",
        ("RuntimeError: shape '[4, -1, 512]' is invalid for input of size 1000",),
        "a tensor of {size} elements cannot be reshaped to [{shape}]",
        "A size is written as a number and does not fit this batch: the last, smaller batch, another sequence length "
        "or image size, or sizes per rank instead of in total (tensor parallelism, gathered batches).",
        (Fix("Take sizes from the tensor, or drop the last batch.",
             ("x.view(x.shape[0], -1, x.shape[-1])", "DataLoader(..., drop_last=True)")), _SHAPES), _TENSOR,
        summary="A tensor cannot be reshaped.", explain=_reshaped, cases=(
            *_plain_torch_cases.ATTENTION, _plain_torch_cases.OF_ANOTHER_TENSOR),
        remark=sizes(r"shape '\[(?P<a>[\d, ]+)\]' is invalid for input of size (?P<b>\d+)")),
    Row("log_split_sizes_wrong", "root", "script",
        r"split_with_sizes expects split_sizes to sum exactly to (?P<size>\d+).*split_sizes=\[(?P<parts>[\d, ]+)\]",
        ("RuntimeError: split_with_sizes expects split_sizes to sum exactly to 128 (input tensor's size at dimension "
         "-1), but got split_sizes=[64, 96]",),
        "a dimension of {size} was split into [{parts}], which has another sum",
        "The code computes the parts from another configuration than the tensor has: other heads or groups, another "
        "hidden size, a fused layer (QKV, gate and up) of another release, or sizes per rank instead of in total.",
        (Fix("Compare the model's config with the one that the code expects.", ("cat MODEL/config.json",)), _SHAPES),
        "https://docs.pytorch.org/docs/stable/generated/torch.split.html",
        summary="A tensor was split into parts that have another sum.", explain=split),
    Row("log_labels_not_per_prediction", "root", "script",
        r"Expected input batch_size \((?P<a>\d+)\) to match target batch_size \((?P<b>\d+)\)",
        ("ValueError: Expected input batch_size (32) to match target batch_size (16).",),
        "the loss got {a} predictions and {b} labels",
        "One of them was flattened over the sequence and the other was not, they were cut or padded to different "
        "lengths (images or prompts inserted into one only), or they come from different ranks' batches.",
        (Fix("Pad and shift labels exactly like the input ids.", ("assert labels.shape == input_ids.shape",)), _SHAPES),
        _LOSS, summary="The loss got different numbers of predictions and labels.",
        cases=(ONE_CLASS_PER_SAMPLE,), explain=rows_of_loss,
        remark=sizes(r"batch_size \((?P<a>\d+)\) to match target batch_size \((?P<b>\d+)\)")),
    Row("log_label_shapes_differ", "root", "script",
        r"Target size \(torch\.Size\((?P<a>\[[^\]]*\])\)\) must be the same as input size "
        r"\(torch\.Size\((?P<b>\[[^\]]*\])\)\)",
        ("ValueError: Target size (torch.Size([8])) must be the same as input size (torch.Size([8, 1]))",),
        "labels have the shape {a}, but predictions {b}",
        "This loss compares element by element. A dimension of size 1 is missing, or the labels are class numbers "
        "where one value per class is expected.",
        Fix("Give both the same shape.", ("loss_fn(logits.squeeze(-1), labels.float())",
                                          "torch.nn.functional.one_hot(labels, num_classes).float()")),
        "https://pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",
        summary="Labels and predictions have different shapes.", explain=compared),
    Row("log_label_type_wrong", "root", "script",
        r"\"nll_loss\w*\" not implemented for '|"
        r"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long",
        ("RuntimeError: \"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for 'Int'",
         "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
         "Int; but got torch.cuda.FloatTensor instead"),
        "labels or ids have a dtype that cannot be an index",
        "Class labels and ids must be int64. A collator, numpy or a table made them int32 or float.",
        Fix("Convert them in the collator.", ("labels = labels.long()", "input_ids = input_ids.long()")), _LOSS,
        cases=(VALUES_IN_16_BITS, IDS_IN_16_BITS), explain=type_of_labels),
    Row("log_label_not_float", "root", "script",
        r"Found dtype Long but expected Float|result type Float can't be cast to the desired output type Long",
        ("RuntimeError: Found dtype Long but expected Float",
         "RuntimeError: result type Float can't be cast to the desired output type Long"),
        "a loss got integer labels, but compares float values",
        "With one label (num_labels=1) or multi-label classification, models compute a regression or binary loss, "
        "which needs float labels.",
        Fix("Convert the labels, or set the number of classes.",
            ("labels = labels.float()", "from_pretrained(..., num_labels=2)")), _LOSS, explain=in_plain_script,
        cases=(_plain_torch_cases.INTEGER_LABELS,)),
    Row("log_not_a_single_value", "root", "script",
        r"Boolean value of Tensor with more than one value is ambiguous|"
        r"only one element tensors can be converted to Python scalars|"
        r"a Tensor with \d+ elements cannot be converted to Scalar",
        ("RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
         "ValueError: only one element tensors can be converted to Python scalars",
         "RuntimeError: a Tensor with 8 elements cannot be converted to Scalar"),
        "a tensor with several values is used as a single one",
        "gather() and nn.DataParallel return one value per GPU where one process returns one. item(), float() and `if` "
        "need one.",
        Fix("Reduce it first.", ("accelerator.gather(loss).mean().item()",)), _TENSOR, explain=in_plain_script),
    Row("log_tensor_not_contiguous", "root", "script",
        r"Error: (?:\w+ )?[Tt]ensors must be contiguous|trying to save a non contiguous tensor",
        ("RuntimeError: Tensors must be contiguous", "ValueError: Tensors must be contiguous",
         "ValueError: You are trying to save a non contiguous tensor: `transformer.weight` which is not allowed."),
        "a tensor that is exchanged or saved is not contiguous",
        "A slice, a transposed or permuted tensor (also a transposed weight) has gaps in memory. NCCL and safetensors "
        "need it in one piece.",
        Fix("Copy it before.", ("tensor = tensor.contiguous()",
                                "for p in model.parameters(): p.data = p.data.contiguous()")), _TENSOR),
    Row("log_input_dimensions_wrong", "root", "script",
        r"Expected (?P<few>\d)D \(unbatched\) or (?P<many>\d)D \(batched\) input to (?P<layer>\w+), but got input of "
        r"size: (?P<size>\[[\d, ]*\])",
        ("RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [8, 10, 3, "
         "224, 224]",),
        "{layer} got input of the size {size}, which has too many or too few dimensions",
        "The batch dimension is missing or doubled: a collator that stacks twice, several images per sample, or a "
        "DataLoader with batch_size=None.",
        (Fix("Flatten or add the dimension.", ("x.flatten(0, 1)", "x.unsqueeze(0)")), _SHAPES),
        "https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html",
        summary="A layer got input with too many or too few dimensions.", explain=layer_dimensions),
    Row("log_index_beyond_tensor", "root", "script",
        r"index (?P<index>-?\d+) is out of bounds for (?P<kind>dimension|axis) (?P<axis>\d+) with size (?P<size>\d+)",
        ("IndexError: index 512 is out of bounds for dimension 0 with size 512",
         "IndexError: index 80 is out of bounds for axis 0 with size 64"),
        "an index is too large: {index}, but the dimension has {size} elements",
        "It was computed for another or a larger tensor: a position beyond the model's maximum length, an id or a "
        "label beyond the size of a table, or an index into the whole data where the tensor is a part of it.",
        (Fix("Compare the index with the size before that line.",
             ("assert index < tensor.shape[{axis:number}], (index, tensor.shape)",)),
         Fix("If it is the position of a token, shorten the samples.",
             ("tokenizer(text, truncation=True, max_length=512)",))),
        _TENSOR, summary="An index exceeds the size of a tensor or array.", explain=index_of_array),
    Row("log_lengths_differ_in_batch", "root", "script",
        r"expected sequence of length \d+ at dim \d+ \(got \d+\)|"
        r"setting an array element with a sequence\. The requested array has an inhomogeneous shape",
        ("ValueError: expected sequence of length 55 at dim 1 (got 59)",
         "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 "
         "dimensions. The detected shape was (2,) + inhomogeneous part."),
        "the samples of one batch have different lengths, and nothing pads them",
        "The default collator stacks samples as they are. With a batch size of 1 the error does not appear. Labels and "
        "own columns are not padded by DataCollatorWithPadding. In compute_metrics, the model returned a tuple.",
        (Fix("Use a collator that pads inputs and labels.",
             ("DataCollatorForSeq2Seq(tokenizer, padding=True)",
              "DataCollatorForLanguageModeling(tokenizer, mlm=False)")),
         Fix("Or cut and pad all samples to one length.",
             ("tokenizer(text, truncation=True, padding='max_length', max_length=1024)",)),
         Fix("In compute_metrics, keep the logits only.",
             ("Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits[0].argmax(-1))",))),
        "https://huggingface.co/docs/transformers/main_classes/data_collator",
        because_of=("log_batch_not_padded",), cases=(PAIR_OF_RESET, ARRAYS_DIFFER, LISTS_DIFFER)),
    Row("log_mask_shape_wrong", "root", "script",
        r"Attention mask should be of size \(?[^)]+\)?, but is torch\.Size|"
        r"The shape of the (?:\d\w )?attn_mask is torch\.Size",
        ("ValueError: Attention mask should be of size (4, 1, 512, 1024), but is torch.Size([4, 1, 512, 512])",),
        "the attention mask has another shape than the attention expects",
        "A cache of keys is on during training (gradient checkpointing then counts them twice), or code that builds "
        "or patches the mask was written for another transformers release.",
        (Fix("Turn off the cache.", ("model.config.use_cache = False",)),
         Fix("Install the transformers that the code was tested with.", ("pip show transformers", "pip check"))),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py",
        explain=in_plain_script),
    Row("log_sequence_bounds_wrong", "root", "script",
        r"cu_seqlens_[qk] must have shape|RuntimeError: batch size must be positive$",
        ("RuntimeError: cu_seqlens_q must have shape (batch_size + 1)", "RuntimeError: cu_seqlens_k must have shape "
         "(batch_size + 1)", "RuntimeError: batch size must be positive"),
        "FlashAttention got sequence boundaries that do not fit the batch",
        "They are computed from position_ids or the attention mask. A patch or a model was written for another "
        "transformers release (4.54.0 itself had this fault), position_ids have a dimension that the code does not "
        "expect, or a batch is all padding.",
        (Fix("Upgrade transformers and the package that patches the attention, together.",
             ("pip install --upgrade transformers", "pip show transformers flash-attn")),
         Fix("Or use PyTorch's attention, without packing.",
             ("from_pretrained(..., attn_implementation='sdpa')",))),
        "https://github.com/huggingface/transformers/pull/39653"),
    Row("log_channels_differ", "root", "script",
        r"expected input\[(?P<shape>[\d, ]+)\] to have (?P<a>\d+) channels, but got (?P<b>\d+) channels",
        ("RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 224, 224] to have 3 "
         "channels, but got 1 channels instead",),
        "the model expects images with {a} channels, but got {b}",
        "Images are gray or have an alpha channel, or the channels are in the last dimension.",
        Fix("Convert them when they are loaded.", ("image = image.convert('RGB')", "x = x.permute(0, 3, 1, 2)")),
        "https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html",
        summary="Images have another number of channels than the model expects.", explain=explain_channels),
    Row("log_joined_sizes_differ", "root", "script",
        r"Sizes of tensors must match except in dimension \d",
        ("RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 512 but got size 498 for "
         "tensor number 1 in the list.",),
        "tensors of different sizes are concatenated",
        "Batches or features have different lengths: samples padded only within their own batch, the last batch, or "
        "image features of another resolution.",
        (Fix("Pad to one length before joining.", ("accelerator.pad_across_processes(tensor, dim=1)",
                                                   "torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)")),
         _SHAPES), "https://pytorch.org/docs/stable/generated/torch.cat.html",
        because_of=("log_batches_of_different_size",), cases=(ODD_SIZE,), explain=joined_in_plain_script),
    Row("log_tensor_to_numpy", "root", "script",
        r"(?P<what>can't convert \w+(?::\d+)? device type tensor to numpy|"
        r"Can't call numpy\(\) on Tensor that requires grad|Got unsupported ScalarType \w+)",
        ("TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
         "memory first.", "RuntimeError: Can't call numpy() on Tensor that requires grad. Use "
                          "tensor.detach().numpy() instead.", "TypeError: Got unsupported ScalarType BFloat16"),
        "a tensor cannot be converted to numpy: it is on a GPU, requires gradients, or is bf16",
        "numpy knows neither GPUs nor bf16.",
        Fix("Convert it first.", ("tensor.detach().float().cpu().numpy()",)), _TENSOR, explain=not_for_numpy),
    Row("log_view_not_contiguous", "root", "script",
        r"view size is not compatible with input tensor's size and stride",
        ("RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans "
         "across two contiguous subspaces). Use .reshape(...) instead.",),
        "view() was called on a tensor that is not contiguous",
        "It was transposed or permuted, or is in channels_last format.",
        Fix("Use reshape().", ("x.reshape(x.shape[0], -1)",)), _TENSOR),
    Row("log_leaf_changed", "root", "script", r"a leaf Variable that requires grad is being used in an in-place",
        ("RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",),
        "a tensor that requires gradients (a parameter, or an input) was modified in place while these were recorded",
        "An update by hand, initialization, EMA or clamping of weights must not be part of the graph. "
        "enable_input_require_grads() on an embedding whose output is then written to causes it too.",
        Fix("Do it without gradients, or on a copy.", ("with torch.no_grad():", "x = x.clone()")),
        _AUTOGRAD),
    Row("log_copy_of_graph", "root", "script",
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy",
        ("RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at "
         "the moment.",),
        "what is copied with deepcopy is a tensor of a graph, or holds one",
        "It was computed from parameters: an output or a loss, or an attribute of a model that keeps one, which "
        "weight_norm does, too. EMA and reference models are made with deepcopy.",
        (Fix("Copy a tensor without its graph.", ("x.detach().clone()",)),
         Fix("Copy a model before its first forward pass, or load its state into a new one.",
             ("copy.load_state_dict(model.state_dict())",))), _AUTOGRAD),
    Row("log_gradient_of_unused", "root", "script",
        r"One of the differentiated Tensors appears to not have been used in the graph",
        ("RuntimeError: One of the differentiated Tensors appears to not have been used in the graph. Set "
         "allow_unused=True if this is the desired behavior.",),
        "torch.autograd.grad was asked for the gradient of a tensor that the output does not depend on",
        "A parameter is not used in this pass, the tensor was detached or copied after it was listed, or a first "
        "derivative no longer depends on it (that of a linear part is constant).",
        Fix("Leave it out, or allow it.", ("torch.autograd.grad(loss, params, allow_unused=True)",)), _AUTOGRAD),
    Row("log_not_pickled", "root", "script",
        r"Can't (?:pickle|get) local object |cannot pickle '[\w.]+' object|"
        r"PicklingError: Can't pickle|h5py objects cannot be pickled",
        ("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
         "AttributeError: Can't get local object 'main.<locals>.<lambda>'",
         "TypeError: cannot pickle 'generator' object",
         "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f>: attribute lookup <lambda> failed"),
        "an object cannot be sent to another process: Python cannot pickle it",
        "DataLoader workers and ranks that are started with spawn (and map(num_proc=...), gather_object()) get a "
        "pickled copy of the dataset, collator or function. Lambdas, nested functions, open files, generators, locks "
        "and CUDA or client objects have none.",
        (Fix("Define functions at the top of the module, and open files inside the worker.",
             ("functools.partial(collate, tokenizer=tokenizer)",)),
         Fix("To find the object, load without workers.", ("DataLoader(..., num_workers=0)",))), _MULTIPROCESSING,
        cases=(NOT_SAVED, NOT_COPIED, NOT_SENT)),
    Row("log_gpu_tensor_pinned", "root", "script", r"annot pin '?[\w.]+'? only dense CPU tensors can be pinned",
        ("RuntimeError: cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",),
        "the DataLoader pins memory, but the dataset returns GPU tensors",
        "The dataset or the collator moves samples to the GPU, or torch.set_default_device('cuda') is on.",
        Fix("Return CPU tensors, or turn off pinning.",
            ("DataLoader(..., pin_memory=False)", "TrainingArguments(dataloader_pin_memory=False)")), _DATA),
    Row("log_generator_on_other_device", "root", "script",
        r"Expected a '?(?P<wanted>\w+)(?::\d+)?'? (?:device type for generator|generator device) but found "
        r"'?(?P<found>\w+)",
        ("RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",),
        "a random generator is on {found}, but torch expects {wanted}",
        "torch.set_default_device or set_default_tensor_type('torch.cuda...') is on, and the DataLoader shuffles with "
        "a CPU generator.",
        (Fix("Remove the default device, and move batches yourself.", ("torch.set_default_device('cpu')",)),
         Fix("Or give the DataLoader a generator on that device.",
             ("DataLoader(..., generator=torch.Generator(device='cuda'))",))),
        "https://pytorch.org/docs/stable/generated/torch.set_default_device.html",
        summary="A random generator is on another device than torch expects.", cases=(OWN_GENERATOR,)),
    Row("log_sampler_and_shuffle", "root", "script",
        r"sampler option is mutually exclusive with|"
        r"DataLoader with IterableDataset: expected unspecified \w+ option",
        ("ValueError: sampler option is mutually exclusive with shuffle",
         "ValueError: DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True"),
        "a DataLoader got options that exclude each other: shuffle or batch_size next to a sampler, or for a stream",
        "A DistributedSampler shuffles by itself. An IterableDataset has no indices to shuffle or sample.",
        (Fix("Let the sampler shuffle.", ("DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=True))",
                                          "sampler.set_epoch(epoch)")),
         Fix("Shuffle a stream in the dataset.", ("dataset = dataset.shuffle(buffer_size=10_000, seed=0)",))), _DATA),
    Row("log_workers_wanted", "root", "script",
        r"prefetch_factor option could only be specified|--dataloader_prefetch_factor can only be set when|"
        r"persistent_workers option needs num_workers|multiprocessing_context can only be used with",
        ("ValueError: prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
         "multiprocessing, otherwise set prefetch_factor to None.",
         "ValueError: persistent_workers option needs num_workers > 0"),
        "the DataLoader has options for workers, but no workers",
        "prefetch_factor and persistent_workers need num_workers > 0.",
        Fix("Set workers, or remove the option.", ("DataLoader(..., num_workers=4)",
                                                   "TrainingArguments(dataloader_num_workers=4)")), _DATA),
    Row("log_batch_not_collated", "root", "script",
        r"default_collate: batch must contain tensors.*found (?P<type><class '[^']+'>|\S+)",
        ("TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class "
         "'NoneType'>",),
        "the dataset returns {type}, which cannot be put into a batch",
        "Images and other objects must become tensors first. None is a sample that could not be read.",
        Fix("Return tensors, and leave out samples that failed.", ("transforms.ToTensor()",)), _DATA,
        summary="The dataset returns objects that cannot be put into a batch.", explain=not_collated),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
