"""Did Trainer or accelerate refuse the script's arguments, dataset, model or optimizer?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from . import _loading_cases
from ._circumstances import said, within
from ._library_cases import HEADLESS, STREAM_ENDED, best_metric
from ._missing_settings import other_option
from ._one_process_cases import (
    LOOP_OVER_NUMBER,
    LOSS_NOT_REDUCED,
    RESULT_NOT_COMPUTED,
    SCALER_NOT_UPDATED,
    SCHEDULER_RAN_OUT,
)

_TRAINER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
_ACCELERATOR = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"
_STATE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"
_HOOKS = "https://huggingface.co/docs/accelerate/usage_guides/big_modeling"
# fmt: off
_ONE_LOSS = Case(
    within(r"trainer\w*\.py in prediction_step$"),
    "an overridden compute_loss returns only the loss, but Trainer's evaluation unpacks a loss and outputs",
    "In prediction_step, Trainer calls compute_loss(..., return_outputs=True) and expects two values. The training "
    "steps use only the loss, so the first evaluation fails. The class that overrides compute_loss was written for "
    "another release of transformers, or does not look at return_outputs.",
    (Fix("Return both values if return_outputs is set.", ("return (loss, outputs) if return_outputs else loss",)),
     Fix("If the class belongs to a package: use releases that fit each other, or train without evaluation.",
         ("pip show transformers", "TrainingArguments(eval_strategy='no')"))),
    'Traceback (most recent call last):\n  File "/v/lib/python3.11/site-packages/transformers/trainer.py", line 7, in '
    "prediction_step\n    loss, outputs = self.compute_loss(model, inputs, return_outputs=True)\n  File "
    '"/v/lib/python3.11/site-packages/torch/_tensor.py", line 9, in __iter__\n    raise TypeError("iteration over")\n'
    "TypeError: iteration over a 0-d tensor\n",
    _TRAINER)
_ONLY_LOGITS = Case(
    said(r"only the following keys: logits(?:,(?:past_key_values|hidden_states|attentions))*\. .*"
         r"inputs it received are (?:\w+,)*labels\b"),
    "the batches have labels, but the model returned only logits and no loss",
    "A classifier of transformers computes no loss if problem_type of its config is another text than regression, "
    "single_label_classification or multi_label_classification. Or a forward() of your own ignores the labels, or has "
    "a branch without a loss.",
    (Fix("See which class it is, and its problem_type.", ("print(type(model), model.config.problem_type)",)),
     Fix("If each sample has one class, of any number of classes, use this type, or leave it out.",
         ("from_pretrained(MODEL, num_labels=5, problem_type='single_label_classification')",)),
     Fix("In a class of your own, return the loss under the key 'loss' or as the first item of a tuple.")),
    "ValueError: The model did not return a loss from the inputs, only the following keys: logits. For reference, the "
    "inputs it received are input_ids,attention_mask,labels.",
    "https://github.com/huggingface/transformers/blob/main/src/transformers/models/bert/modeling_bert.py")
_LABELS_RECEIVED = Case(
    said(r"inputs it received are (?:\w+,)*labels?\b"),
    "the batches have labels, but the model's forward() returned no loss",
    "The message lists labels among the inputs. A forward() of your own returned only the other keys: in a branch "
    "without a loss (inference, a batch that it treats otherwise), or it names the loss in another way.",
    (Fix("Look at forward(): every branch that training reaches must return the loss, under the key 'loss' or as the "
         "first item of a tuple."),
     Fix("Or compute the loss in the Trainer.",
         ("def compute_loss(self, model, inputs, return_outputs=False, **kwargs): ...",))),
    "ValueError: The model did not return a loss from the inputs, only the following keys: scores. For reference, the "
    "inputs it received are input_ids,labels.", "https://github.com/CarperAI/trlx/issues/216")
_OPTION_OF_MEGATRON = Case(
    within(r"(?:^|/)megatron/|^megatron\w*/"),
    "the code reads the option {name}, which Megatron's parser of the command line does not define",
    "The script and the package that defines the options (Megatron-LM: megatron/training/arguments.py) are from "
    "different versions, a newer version renamed or removed the option, or the script reads it before it adds it.",
    (Fix("Use the script and the package from one commit: examples of a repository fit only its own version.",
         ("git -C Megatron-LM log -1 --oneline", "pip show megatron-core")),
     Fix("Or define the option.", ("parser.add_argument('--OPTION')", "getattr(args, 'OPTION', False)"))),
    'Traceback (most recent call last):\n  File "/w/Megatron-LM/megatron/training/training.py", line 7, in pretrain\n'
    "    if args.apply_layernorm_1p:\nAttributeError: 'Namespace' object has no attribute 'apply_layernorm_1p'\n",
    "https://github.com/NVIDIA/Megatron-LM/issues/3432")
ROWS = (
    Row("log_single_tensor_unpacked", "root", "script", r"iteration over a 0-d tensor",
        ("TypeError: iteration over a 0-d tensor",),
        "code unpacks or loops over a tensor that has only one value",
        "A function returned a single tensor, such as the loss, and its caller expects several values or a batch.",
        Fix("Compare the return statement with the line that calls it: `a, b = f(x)` needs two values."),
        "https://github.com/pytorch/pytorch/blob/main/torch/_tensor.py", cases=(_ONE_LOSS, LOOP_OVER_NUMBER)),
    Row("log_option_not_defined", "root", "script", r"'Namespace' object has no attribute '(?P<name>\w+)'",
        ("AttributeError: 'Namespace' object has no attribute 'apply_layernorm_1p'",),
        "the code reads the option {name}, which the parser of the command line does not define",
        "The script and the file that defines the options are from different versions, one of them was changed by "
        "hand, the option has another name there, or the script reads it before it adds it.",
        (Fix("Look for a definition of it.",
             ("grep -rn --include='*.py' -e --{name:name} .", "grep -rn --include='*.py' args.{name:name} .")),
         Fix("If there is none, define the option, or read it with a default.",
             ("parser.add_argument('--OPTION')", "getattr(args, 'OPTION', False)"))),
        "https://docs.python.org/3/library/argparse.html#the-namespace-object",
        summary="The code reads an option that the parser of the command line does not define.",
        explain=other_option, cases=(_OPTION_OF_MEGATRON,)),
    Row("log_eval_dataset_missing", "root", "script",
        r"you didn't (?:pass|provide) an `eval_dataset`|valuation requires (?:specifying )?an eval_dataset",
        ("ValueError: You have set `args.eval_strategy` to steps but you didn't pass an `eval_dataset` to `Trainer`.",
         "ValueError: Trainer: evaluation requires an eval_dataset."),
        "Trainer is asked to evaluate, but has no eval_dataset",
        "eval_strategy, load_best_model_at_end or a scheduler needs an evaluation.",
        (Fix("Pass one, or do not evaluate.", ("Trainer(..., eval_dataset=dataset['validation'])",
                                               "TrainingArguments(eval_strategy='no')")),), _TRAINER),
    Row("log_loss_not_returned", "root", "script", r"The model did not return a loss from the inputs",
        ("ValueError: The model did not return a loss from the inputs, only the following keys: logits. For "
         "reference, the inputs it received are input_ids,attention_mask.",),
        "the batches have no labels, so the model returns no loss",
        "Models compute a loss only if they get `labels`. The dataset has no such column, its labels are text (which "
        "the default collator leaves out), the collator does not make any, or Trainer removed a column with another "
        "name.",
        (Fix("Rename the column, or let the collator make labels.",
             ("dataset = dataset.rename_column('label', 'labels')",
              "DataCollatorForLanguageModeling(tokenizer, mlm=False)")),
         Fix("Keep the columns that your model names otherwise.",
             ("TrainingArguments(remove_unused_columns=False, label_names=['my_labels'])",))), _TRAINER,
        cases=(*HEADLESS, _ONLY_LOGITS, _LABELS_RECEIVED)),
    Row("log_model_without_head", "root", "script",
        r"cannot be used as is for training: it only computes hidden states",
        ("ValueError: The model you have picked (BertModel) cannot be used as is for training: it only computes hidden "
         "states and does not accept any labels.",),
        "the model has no head: it computes hidden states, and no loss",
        "AutoModel loads the bare model.",
        Fix("Load it with the class for your task.", ("AutoModelForCausalLM.from_pretrained(MODEL)",
                                                      "AutoModelForSequenceClassification.from_pretrained(MODEL)")),
        _TRAINER),
    Row("log_best_metric_missing", "root", "script",
        r"`metric_for_best_model` training argument is set to '[^']+', which is not found|"
        r"^KeyError: 'eval_(?!\w*(?:batch|step|strateg|data|file|split|size|freq|interval|every|iter|conf))\w+'$",
        ("KeyError: \"The `metric_for_best_model` training argument is set to 'eval_f1', which is not found in the "
         "evaluation metrics.", "KeyError: 'eval_loss'"),
        "the metric that selects the best checkpoint is not among the results of the evaluation",
        "metric_for_best_model names a metric that compute_metrics does not return. eval_loss is missing if the "
        "evaluation batches have no labels.",
        Fix("Return it from compute_metrics, or choose another one.",
            ("TrainingArguments(metric_for_best_model='eval_loss')", "TrainingArguments(label_names=['labels'])")),
        _TRAINER, explain=best_metric, cases=(RESULT_NOT_COMPUTED,)),
    Row("log_checkpoint_to_resume_missing", "root", "script",
        r"(?:Can't find a valid checkpoint at|No valid checkpoint found in output directory|"
        r"Tried to find(?= \S+ but folder does not exist)) \(?(?P<path>[^\s()]+)",
        ("ValueError: Can't find a valid checkpoint at out/checkpoint-500",
         "ValueError: No valid checkpoint found in output directory (out)",
         "ValueError: Tried to find out/checkpoint_3 but folder does not exist"),
        "there is no complete checkpoint to resume from in {path}",
        "The folder is empty, is not mounted on this node, was left by an interrupted save, or has another format "
        "(DeepSpeed, FSDP, adapter only) than this run.",
        (Fix("Check which files exist, on every node.", ("ls -la {path:path}",)),
         Fix("Resume from an earlier checkpoint, or start again.", ("trainer.train(resume_from_checkpoint=False)",))),
        _TRAINER, summary="There is no complete checkpoint to resume from.", cases=_loading_cases.NOT_RESUMABLE),
    Row("log_checkpoint_folder_taken", "root", "script",
        r"Checkpoint directory (?P<path>\S+) \((?P<number>\d+)\) already exists",
        ("ValueError: Checkpoint directory out/checkpoints/checkpoint_0 (0) already exists. Please manually override "
         "`self.save_iteration` with what iteration to start with.",),
        "the checkpoint folder {path} exists already",
        "With automatic names, accelerate counts from 0 in every run. After resuming, the count must go on, or the run "
        "uses the folder of an earlier one.",
        (Fix("Continue the count after load_state().",
             ("accelerator.project_configuration.iteration = {number:number} + 1",)),
         Fix("Or use another project_dir.")), _ACCELERATOR,
        summary="A checkpoint folder with the next automatic name exists already."),
    Row("log_optimizer_passed_to_fsdp", "root", "script", r"Passing `optimizers` is not allowed if",
        ("RuntimeError: Passing `optimizers` is not allowed if PyTorch FSDP is enabled. You should subclass `Trainer` "
         "and override the `create_optimizer_and_scheduler` method.",),
        "an optimizer was passed to Trainer, but FSDP replaces the parameters that it holds",
        "The optimizer must be created after FSDP has sharded the model.",
        Fix("Let Trainer create it, or override create_optimizer().",
            ("TrainingArguments(optim='adamw_torch')",
             "Trainer(..., optimizer_cls_and_kwargs=(MyAdam, dict(lr=1e-5)))")),
        _TRAINER),
    Row("log_batch_empty", "root", "script",
        r"The batch received was empty, your model won't be able|Batch does not contain any data \(",
        ("ValueError: The batch received was empty, your model won't be able to train on it. Double-check that your "
         "training dataset contains keys expected by the model: input_ids,labels.",
         "ValueError: Batch does not contain any data (`None`). At the end of all iterable data available before "
         "expected stop iteration."),
        "a rank got an empty batch",
        "The columns of the dataset are not the model's arguments, so that nothing is left. Or an IterableDataset has "
        "fewer samples than all ranks together need for a step.",
        (Fix("Keep the columns, and print one batch.", ("TrainingArguments(remove_unused_columns=False)",
                                                        "print(next(iter(trainer.get_train_dataloader())))")),
         Fix("With an IterableDataset, drop the incomplete batch.",
             ("DataLoader(..., drop_last=True)", "DataLoaderConfiguration(dispatch_batches=False)"))), _TRAINER,
        cases=(STREAM_ENDED,)),
    Row("log_loss_on_other_gpu", "root", "script",
        r"Calculated loss must be on the original device: (?P<first>\S+) but device in use is (?P<other>[\w:]+)",
        ("ValueError: Calculated loss must be on the original device: cuda:0 but device in use is cuda:1",),
        "the loss is on {other}, but Trainer adds up losses on {first}",
        "device_map spread the model across GPUs in one process, and the last layers are on another GPU.",
        (Fix("Put the whole model on one GPU per rank.",
             ("mgpu launch train.py", "from_pretrained(MODEL)  # without device_map")),
         Fix("If it is too large for one GPU, use FSDP or ZeRO-3 instead of device_map.", ("mgpu configure",)),
         Fix("If device_map must stay, move the loss.", ("return loss.to(self.args.device)",))), _TRAINER,
        summary="The loss is on another GPU than Trainer's sum of losses."),
    Row("log_save_options_exclude", "root", "script",
        r"can't be used with `save_only_model` along with `load_best_model_at_end`|"
        r"save_only_model option is not compatible with FSDP",
        ("ValueError: DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`.",
         "ValueError: save_only_model option is not compatible with FSDP state dict type 'SHARDED_STATE_DICT'"),
        "save_only_model does not work with this kind of sharding and the other save options",
        "Without the state of the engine, sharded weights cannot be loaded again.",
        Fix("Save everything, or whole models.", ("TrainingArguments(save_only_model=False)",
                                                  "accelerate launch --fsdp_state_dict_type FULL_STATE_DICT ...")),
        _TRAINER),
    Row("log_gpu_lacks_tf32", "root", "script", r"--tf32 requires Ampere or a newer GPU arch",
        ("ValueError: --tf32 requires Ampere or a newer GPU arch, cuda>=11 and torch>=1.7",),
        "tf32 was requested, but the GPUs do not support it, or torch sees no GPU",
        "tf32 needs Ampere (compute capability 8.0).",
        Fix("Check the GPUs, or turn it off.", ("mgpu doctor --only gpu,pytorch", "TrainingArguments(tf32=False)")),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py"),
    Row("log_two_models_prepared", "root", "script",
        r"can't use same `Accelerator\(\)` instance with multiple models|Only one model is supported when using FSDP2",
        ("AssertionError: You can't use same `Accelerator()` instance with multiple models when using DeepSpeed",
         "ValueError: Only one model is supported when using FSDP2"),
        "two models were passed to prepare(), but DeepSpeed and FSDP2 accept one",
        "Teachers, reference models, VAEs and text encoders are not trained and need no wrapper.",
        (Fix("Prepare only the trained model, and move frozen ones yourself.",
             ("teacher.requires_grad_(False).to(accelerator.device)",)),
         Fix("If both are trained with DeepSpeed, give each its own plugin and Accelerator.",
             ("Accelerator(deepspeed_plugins=dict(first=plugin1, second=plugin2))",))),
        "https://huggingface.co/docs/accelerate/usage_guides/deepspeed_multiple_model"),
    Row("log_accelerate_state_missing", "root", "script",
        r"'?`?(?:Accelerator|Partial)State`?'? object has no attribute [`']\w+|"
        r"initialize your accelerator via `accelerator = Accelerator\(\)`",
        ("AttributeError: `AcceleratorState` object has no attribute `distributed_type`. This happens if "
         "`AcceleratorState._reset_state()` was called and an `Accelerator` or `PartialState` was not reinitialized.",
         "AttributeError: 'AcceleratorState' object has no attribute 'deepspeed_plugin'",
         "ValueError: Please make sure to properly initialize your accelerator via `accelerator = Accelerator()` "
         "before using any functionality from the `accelerate` library."),
        "accelerate's state was not created in this process, or was reset",
        "An Accelerator (or TrainingArguments) was used before it was created, was pickled into another process, or "
        "_reset_state() ran between two runs.",
        Fix("Create the Accelerator, or TrainingArguments, first in every process, and once.",
            ("accelerator = Accelerator()",)), _STATE),
    Row("log_offloaded_model_moved", "root", "script",
        r"can't move a model that has some modules offloaded|need an `offload_dir` to dispatch|"
        r"(?:please provide|please pass along) an `offload_folder`|"
        r"current `device_map` had weights offloaded to the disk",
        ("RuntimeError: You can't move a model that has some modules offloaded to cpu or disk.",
         "ValueError: At least one of the model submodule will be offloaded to disk, please pass along an "
         "`offload_folder`.",
         "ValueError: The current `device_map` had weights offloaded to the disk. Please provide an `offload_folder` "
         "for them."),
        "device_map put a part of the model on the CPU or the disk, because it does not fit on the GPUs",
        "device_map='auto' offloads what does not fit. Such a model can be used, but not trained or moved. Other "
        "processes, or other ranks, may use the memory.",
        (Fix("Check who uses the GPUs, and load the model without device_map.",
             ("nvidia-smi", "mgpu doctor --only gpu", "mgpu doctor --script train.py")),
         Fix("If it is too large for one GPU, use FSDP or ZeRO-3.", ("mgpu configure",))), _HOOKS),
    Row("log_no_batch_size_fits", "root", "script", r"No executable batch size found, reached zero",
        ("RuntimeError: No executable batch size found, reached zero.",),
        "no batch size fits: auto_find_batch_size went down to zero",
        "Even one sample needs more GPU memory than is free. Or an error that is not about memory looked like it: the "
        "first exception of the run is the cause then.",
        (Fix("Shard the model, shorten the samples, or turn on gradient checkpointing.",
             ("mgpu configure", "TrainingArguments(gradient_checkpointing=True)")),
         Fix("Run once with a fixed batch size, to see the first error.",
             ("TrainingArguments(auto_find_batch_size=False, per_device_train_batch_size=1)",))),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/memory.py"),
    Row("log_optimizer_of_other_parameters", "root", "script",
        r"^KeyError: (?:Parameter containing|Parameter\(|Params4bit)|"
        r"optimizer does not seem to reference any FSDP parameters",
        ("KeyError: Parameter containing:", "KeyError: Parameter containing",
         "ValueError: The optimizer does not seem to reference any FSDP parameters. HINT: Make sure to create the "
         "optimizer after setting up the model"),
        "the optimizer holds a parameter that the wrapped model does not have",
        "It was built for another or a second model (text encoder and UNet; DeepSpeed and FSDP wrap one), before the "
        "model was moved, resized or wrapped, or from quantized parameters.",
        (Fix("Build it from the trained parameters of the one model that is prepared, just before prepare().",
             ("optimizer = AdamW([p for p in model.parameters() if p.requires_grad])",
              "model, optimizer = accelerator.prepare(model, optimizer)")),
         Fix("Train a second model under plain DDP, or with its own DeepSpeed plugin.", ("mgpu configure",))),
        "https://github.com/huggingface/diffusers/issues/2240"),
    Row("log_scheduler_resumed_alone", "root", "script", r"param 'initial_lr' is not specified in param_groups",
        ("KeyError: \"param 'initial_lr' is not specified in param_groups[0] when resuming an optimizer\"",),
        "the learning rate scheduler resumes at a later step, but the optimizer is new",
        "last_epoch is set, and the optimizer has no initial_lr, which its loaded state would have.",
        Fix("Create the scheduler without last_epoch, and load both states.",
            ("optimizer.load_state_dict(state['optimizer'])", "scheduler.load_state_dict(state['scheduler'])")),
        "https://github.com/pytorch/pytorch/blob/main/torch/optim/lr_scheduler.py"),
    Row("log_scheduler_ran_out", "root", "script",
        r"Tried to step (?P<step>\d+) times\. The specified number of total steps is (?P<total>\d+)",
        ("ValueError: Tried to step 1002 times. The specified number of total steps is 1000",),
        "the learning rate scheduler was stepped {step} times, but was created for {total} steps",
        "A prepared scheduler steps once per rank and optimizer step, because it assumes the steps of a single "
        "process. Or the number of steps was computed before prepare() divided the data.",
        (Fix("Count the steps of one process (times the number of ranks).",
             ("OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps * accelerator.num_processes)",)),
         Fix("Or do not pass the scheduler to prepare(), and call step() once per optimizer step.")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/scheduler.py",
        summary="The learning rate scheduler was stepped more often than it was created for.",
        cases=(SCHEDULER_RAN_OUT,)),
    Row("log_scaler_used_twice", "root", "script",
        r"(?:unscale_|step)\(\) has already been called (?:on this optimizer )?since the last update",
        ("RuntimeError: unscale_() has already been called on this optimizer since the last update().",
         "RuntimeError: step() has already been called since the last update()."),
        "gradients were unscaled or applied twice in one step",
        "clip_grad_norm_ ran twice, ran on a step that only accumulates, or is called by hand next to accelerate's.",
        Fix("Clip once, and only when gradients are complete.",
            ("if accelerator.sync_gradients: accelerator.clip_grad_norm_(model.parameters(), 1.0)",)),
        "https://pytorch.org/docs/stable/notes/amp_examples.html", cases=(SCALER_NOT_UPDATED,)),
    Row("log_no_room_for_scalar_loss", "root", "script", r"grad can be implicitly created only for scalar outputs|"
        r"loss must be a scalar tensor|[Oo]ptimizer's backward\(\) only accepts a scalar",
        ("RuntimeError: grad can be implicitly created only for scalar outputs",
         "AssertionError: loss must be a scalar tensor. If you need to pass output gradients, backward() of output "
         "tensors"),
        "backward() was called on a loss that is not a single number",
        "nn.DataParallel returns one loss per GPU (Trainer uses it if it runs with plain python on several GPUs), or "
        "the loss has reduction='none'.",
        (Fix("Start one process per GPU.", ("mgpu launch train.py",)),
         Fix("Or average the loss.", ("loss.mean().backward()",))),
        "https://pytorch.org/docs/stable/generated/torch.autograd.backward.html", cases=(LOSS_NOT_REDUCED,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
