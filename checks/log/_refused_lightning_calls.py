"""What does Lightning refuse of its Trainer, a LightningModule, a callback or a checkpoint?"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

# fmt: off
_STEP = Fix("Define it in the LightningModule.", ("def training_step(self, batch, batch_idx): return self.loss(batch)",
                                                  "def configure_optimizers(self): return AdamW(self.parameters())"))
OF_LIGHTNING = (
    Refusal("MisconfigurationException", r"No `(?P<name>\w+)(?:\(\))?` method defined(?: to run "
            r"`Trainer\.(?P<run>\w+)`)?",
            "the LightningModule has no {name}(){at}",
            "Lightning calls it, and its name must be exact. A plain nn.Module inside the LightningModule is not "
            "searched for it.", (_STEP,), of_code=True),
    Refusal("MisconfigurationException", r"`(?P<name>\w+_dataloader)s?` must be implemented to be used",
            "Lightning has no data: neither a loader was passed, nor is there a {name}(){at}",
            "fit() takes a DataLoader, or a LightningDataModule by its keyword. A datamodule as the second positional "
            "argument of an old release, or a method with another name, is not found.",
            (Fix("Pass it.", ("trainer.fit(model, train_dataloaders=loader, val_dataloaders=val_loader)",
                              "trainer.fit(model, datamodule=data)")),), of_code=True),
    Refusal("MisconfigurationException", r"cannot pass `train_dataloader` or `val_dataloaders` to "
            r"`trainer\.(?P<run>\w+)\(datamodule",
            "{run}() got loaders and a datamodule{at}", "Either of them gives the data.",
            (Fix("Pass one.", ("trainer.fit(model, datamodule=data)",)),), of_code=True),
    Refusal("TypeError", r"invalid dataloader was passed to `Trainer\.(?P<run>\w+)\((?P<name>\w+)=",
            "{name} of Trainer.{run}() is not a loader that can be iterated{at}",
            "It takes a DataLoader, or a list or dictionary of them. A dataset, a number or a function is none.",
            (Fix("Make a loader.", ("DataLoader(dataset, batch_size=32, num_workers=4)",)),), of_code=True),
    Refusal("MisconfigurationException", r"enable_checkpointing=False` but found `ModelCheckpoint`",
            "enable_checkpointing is False, and the callbacks contain a ModelCheckpoint{at}",
            "The two contradict each other.",
            (Fix("Remove one of them.", ("Trainer(enable_checkpointing=True, "
                                         "callbacks=[checkpoint])",)),), of_code=True),
    Refusal("MisconfigurationException", r"every_n_train_steps=.{1,80}should be mutually exclusive",
            "ModelCheckpoint has more than one interval{at}",
            "every_n_train_steps, every_n_epochs and train_time_interval exclude each other.",
            (Fix("Keep one, and use a second callback for another "
                 "one.", ("ModelCheckpoint(every_n_train_steps=1000)",)),),
            of_code=True),
    Refusal("MisconfigurationException", r"ModelCheckpoint\(save_top_k=(?P<k>-?\d+), monitor=None\) is not a valid",
            "ModelCheckpoint should keep the best {k} checkpoints, but has no metric to compare{at}",
            "Without monitor it can keep the last one (1), all (-1) or none (0).",
            (Fix("Name a metric that a step logs.",
                 ("ModelCheckpoint(monitor='val_loss', mode='min', save_top_k=3)",
                  "self.log('val_loss', loss)  # in validation_step")),), of_code=True),
    Refusal("ValueError", r"ckpt_path=\"best\"[^`]*` is set but `ModelCheckpoint` is not configured|"
            r"ckpt_path=\"best\"\)` is set but there is no",
            "ckpt_path='best' is asked for, but no checkpoint was written in this process{at}",
            "fit() did not run here or ended before the first checkpoint, save_top_k is 0, or there is no "
            "ModelCheckpoint.",
            (Fix("Name a file.", ("trainer.test(model, loader, ckpt_path='PATH.ckpt')",)),), of_code=True),
    Refusal("FileNotFoundError", r"Checkpoint file not found: (?P<path>\S+)|Checkpoint at (?P<name>\S+) not found",
            "the checkpoint {path}{name} does not exist{at}",
            "A relative path starts at the folder in which the ranks run. The run that should have written it ended "
            "before, or has another version number in its folder.",
            (Fix("Look for it, on every node.", ("find . -name '*.ckpt' | tail",)),), of_code=True,
            within=r"^(?:lightning|pytorch_lightning)/"),
    Refusal("TypeError", r"`gradient_clip_val` should be an int or a float\. Got (?P<got>\S+?)\.?$",
            "gradient_clip_val is a text: '{got}'{at}", "It was quoted in a config, or read from the command line.",
            (Fix("Make it a number.", ("Trainer(gradient_clip_val=float(value))",)),), of_code=True),
    Refusal("MisconfigurationException", r"You have passed invalid value (?P<got>\S+) for (?P<name>\w+), it has to be "
            r"in",
            "{name} is {got}: a share of the batches is between 0.0 and 1.0, and a number of batches is whole{at}",
            "1.0 means all batches and 1 means one batch. Above 1, only whole numbers are accepted.",
            (Fix("Write a share or a whole number.", ("Trainer(limit_train_batches=0.5, limit_val_batches=10)",)),),
            of_code=True),
    Refusal("MisconfigurationException", r"`?(?P<name>max_epochs|max_steps)`? must be a non-negative integer or "
            r"-1.{0,40}You passed in (?P<got>-?\d+)",
            "{name} is {got}, which Lightning does not accept{at}",
            "It was probably computed. -1 means without a limit.",
            (Fix("Print it, and use a positive number or -1.", ("Trainer(max_epochs=10)",)),), of_code=True),
    Refusal("MisconfigurationException", r"^(?P<name>fast_dev_run)=(?P<got>-?\d+) is not a valid",
            "{name} is {got}, which Lightning does not accept{at}",
            "It is the number of batches of a test run, or True for one.",
            (Fix("Use 0 or a positive number.", ("Trainer(fast_dev_run=1)",)),), of_code=True),
    Refusal("MisconfigurationException TypeError", r"`Trainer\(devices=(?P<got>\S+?)\)` value is not a valid input "
            r"using",
            "devices is {got}, which is not a number of devices above 0{at}",
            "It takes a number, -1 or 'auto', or for GPUs a list of their numbers. 0 no longer means the CPU.",
            (Fix("Name both.", ("Trainer(accelerator='gpu', devices=2)", "Trainer(accelerator='cpu', devices=1)")),),
            of_code=True),
    Refusal("MisconfigurationException TypeError", r"`devices` selected with `CPUAccelerator` should be an int",
            "devices of the CPU is not a whole number above 0{at}",
            "It is the number of processes. A list of numbers, or 0, is for GPUs only.",
            (Fix("Give a number.", ("Trainer(accelerator='cpu', devices=1)",)),), of_code=True),
    Refusal("MisconfigurationException", r"returns a dict, the 'loss' key needs to be present",
            "training_step returns a dictionary without a loss{at}",
            "Lightning calls backward() on result['loss'].",
            (Fix("Name it so, or return the loss alone.", ("return {'loss': loss, 'logits': "
                                                           "logits}",)),), of_code=True),
    Refusal("MisconfigurationException", r"`training_step` must return a Tensor, a dict, or None",
            "training_step returns something other than a loss{at}",
            "It must return a tensor with one value, a dictionary with 'loss', or None to skip the step.",
            (Fix("Return the tensor itself, not a number or text.", ("return loss  # not: "
                    "loss.item()",)),), of_code=True),
    Refusal("ValueError", r"`self\.log\((?P<name>[^,`]{1,40}), .{1,300}?\)` was called, but the tensor must have a "
            r"single",
            "self.log('{name}', ...) got a tensor of several values{at}", "A logged value is one number.",
            (Fix("Log its average.", ("self.log('name', value.mean())",)),), of_code=True),
    Refusal("ValueError", r"`self\.log\((?P<name>[^,`]{1,40}), .{1,300}?\)` was called, but `(?P<kind>\w+)` values "
            r"cannot",
            "self.log('{name}', ...) got a {kind}, and takes numbers{at}",
            "Text and lists go to the logger itself.",
            (Fix("Log a number, or use the logger.", ("self.logger.experiment.add_text(...)  # TensorBoard",)),),
            of_code=True),
    Refusal("MisconfigurationException", r"You called `self\.log\((?P<name>[^,`]{1,40}), \.\.\.\)` twice in "
            r"`(?P<step>\w+)`",
            "self.log('{name}', ...) is called twice in {step} with different options{at}",
            "The two calls differ in on_step, on_epoch or others, so that one name would have two meanings.",
            (Fix("Give the second one another name.", ("self.log('name_epoch', value, "
                                                       "on_epoch=True)",)),), of_code=True),
    Refusal("MisconfigurationException", r"could not infer the batch_size from the batch",
            "Lightning does not find the size of the batch, which it needs to average logged values{at}",
            "The batch has no tensor, or is of a class of its own.",
            (Fix("State it.", ("self.log('loss', loss, batch_size=len(labels))",)),), of_code=True),
    Refusal("RuntimeError", r"^(?P<name>\w+) is not attached to a `Trainer`",
            "self.trainer is used before {name} belongs to a Trainer{at}",
            "It exists only within fit(), validate(), test() and predict(). In a constructor, or if the model is "
            "called without Lightning, there is none.",
            (Fix("Ask first, or move the code to a hook.",
                 ("if self._trainer is not None: ...", "def on_fit_start(self): ...")),), of_code=True),
    Refusal("TypeError", r"(?P<name>\w+)\.__init__\(\) missing \d+ required (?:positional|keyword-only) arguments?: "
            r"(?P<args>.+)",
            "the checkpoint does not hold the arguments of {name}: {args}{at}",
            "load_from_checkpoint() makes the module from the values that save_hyperparameters() stored. Without that "
            "call, or with ignore=, they are not in the file.",
            (Fix("Pass them.", ("Model.load_from_checkpoint(PATH, hidden=128)",)),
             Fix("In the constructor, store them for the next run.", ("self.save_hyperparameters()",))), of_code=True,
            within=r"^(?:lightning|pytorch_lightning)/\S*core/saving\.py in "),
    Refusal("AttributeError", r"property 'hparams' of '\w+' object has no setter|can't set attribute 'hparams'",
            "self.hparams cannot be assigned{at}", "It is a property that save_hyperparameters() fills.",
            (Fix("Save them in the constructor.", ("self.save_hyperparameters(hparams)",)),), of_code=True),
    Refusal("MisconfigurationException", r"to use manual_backward, please disable automatic optimization",
            "manual_backward() is called, and automatic optimization is on{at}",
            "With it, Lightning calls backward() and step() itself.",
            (Fix("Turn it off in the constructor, and call all three.",
                 ("self.automatic_optimization = False",
                  "opt = self.optimizers(); opt.zero_grad(); self.manual_backward(loss); opt.step()")),
             Fix("Or return the loss, and leave out manual_backward().")), of_code=True),
    Refusal("MisconfigurationException", r"Automatic gradient (?P<what>clipping|accumulation) is not supported for "
            r"manual "
            r"optimization|Automatic gradient (?P<other>clipping|accumulation) is not",
            "the Trainer's gradient {what}{other} does not work with manual optimization{at}",
            "automatic_optimization is False, so that the module itself steps.",
            (Fix("Do it in training_step, and remove the option of Trainer.",
                 ("self.clip_gradients(opt, gradient_clip_val=1.0)",)),), of_code=True),
    Refusal("MisconfigurationException", r"IterableDataset for `train_dataloader`, `Trainer\(val_check_interval\)`",
            "val_check_interval is a share of an epoch, and the stream has no known length{at}",
            "With an IterableDataset it must be a whole number of batches, or 1.0.",
            (Fix("Count batches.", ("Trainer(val_check_interval=1000)",)),), of_code=True),
    Refusal("MisconfigurationException", r"Unknown configuration for model optimizers",
            "configure_optimizers() returns something that is neither an optimizer nor a list of them{at}",
            "It returns an optimizer, a dictionary with optimizer and lr_scheduler, two lists, or None.",
            (Fix("Return one of these.", ("return optimizer",
                                          "return {'optimizer': optimizer, 'lr_scheduler': "
                                          "scheduler}")),), of_code=True),
    Refusal("MisconfigurationException", r"`configure_optimizers` must include a monitor when a `ReduceLROnPlateau`",
            "ReduceLROnPlateau needs a metric, and configure_optimizers() names none{at}",
            "It lowers the learning rate when a logged metric stops improving.",
            (Fix("Name one that a step logs.",
                 ("return {'optimizer': opt, 'lr_scheduler': {'scheduler': plateau, 'monitor': 'val_loss'}}",)),),
            of_code=True),
    Refusal("MisconfigurationException", r"value for the `profiler` parameter of `Trainer`, it can only be one of "
            r"(?P<accepted>"
            r"\[[^\]]{1,120}\])",
            "profiler has a name that Lightning does not know{at}", "It accepts {accepted}.",
            (Fix("Use one of them.", ("Trainer(profiler='simple')",)),), of_code=True),
    Refusal("MisconfigurationException", r"Found invalid type for plugin (?P<got>.{1,80}?)\. Expected one of: "
            r"(?P<kinds>.+)",
            "plugins of Trainer contains {got}, which is not a plugin{at}", "It takes objects of: {kinds}",
            (Fix("Pass an object of such a class.", ("Trainer(plugins=[SLURMEnvironment()])",)),), of_code=True),
)
# fmt: on
