"""What do TensorFlow and Keras refuse: elements that do not fit into one batch, symbolic tensors as values?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._own_objects import Meaning
from ._refusal import Refusal

_DIFFERENT = re.compile(
    r"Cannot batch tensors with different shapes in component (?P<component>\d+)\. First element had shape "
    r"\[(?P<first>[\d, ]*)\] and element (?P<number>\d+) had shape \[(?P<other>[\d, ]*)\]"
)
_SMALLEST_BATCH = 2
# fmt: off
_ALL = (
    Refusal("TypeError", r"You are passing KerasTensor\(",
            "the loss or a metric of fit() is computed from the model's symbolic tensors, not from the batch{at}",
            "A KerasTensor is what layers return while a model is built: it has no values. The loss reads such a "
            "tensor from outside (z_mean and z_log_var of an autoencoder, an input, a layer's output) instead of its "
            "arguments y_true and y_pred, or add_loss() or add_metric() got it.",
            (Fix("Compute that part of the loss in the call() of a layer of the model, which add_loss() adds.",
                 ("self.add_loss(kl_loss(z_mean, z_log_var))  # in call(self, z_mean, z_log_var)",)),
             Fix("Or write a keras.Model with a train_step() of its own, which calls the layers on the batch.",
                 ("def train_step(self, data): ...",))), of_code=True,
            within=r"keras/(?:src/)?engine/training\w*\.py in (?:fit|evaluate|(?:tf__)?(?:train|test)_function)$"),
    Refusal("InternalError UnknownError", r"Blas x?(?:GEMM|GEMV)\w* launch failed",
            "cuBLAS could not multiply two matrices on the GPU{at}: TensorFlow's CUDA is older than the GPU, or the "
            "GPU has no memory left",
            "The sizes in the message fit each other. TensorFlow was built for CUDA releases that do not know a newer "
            "GPU (compute capability 8 needs CUDA 11, so TensorFlow 2.4 or later; an older one also takes minutes to "
            "start), or it could not get memory for cuBLAS: another process has it, or one layer is very large.",
            (Fix("Compare the GPU with TensorFlow's CUDA, and install a TensorFlow for it.",
                 ("nvidia-smi --query-gpu=name,compute_cap,memory.used,memory.total --format=csv",
                  "pip show tensorflow tensorflow-gpu")),
             Fix("If they fit, let TensorFlow take memory as needed, end other programs on the GPU, or make the layer "
                 "smaller.",
                 ("config.gpu_options.allow_growth = True  # TensorFlow 1: tf.ConfigProto()",
                  "tf.config.experimental.set_memory_growth(gpu, True)  # TensorFlow 2"))), of_code=True),
    Refusal("TypeError", r"You are passing KerasTensor\(",
            "a function that needs values got a symbolic tensor of a Keras model{at}",
            "A KerasTensor is what layers return while a model is built: it has no values yet. Many functions of "
            "TensorFlow, and all of numpy, cannot use it.",
            (Fix("Call the function inside of a layer, which gets the values later.",
                 ("x = layers.Lambda(lambda t: tf.map_fn(f, t))(x)",)),), of_code=True),
)
# fmt: on


def refused_by_tensorflow(one: UncaughtException) -> Meaning | None:
    """Return what TensorFlow or Keras refused; None if no entry has the message."""
    return _different_shapes(one) or next((meant for known in _ALL if (meant := known.read(one, one.message))), None)


def _different_shapes(one: UncaughtException) -> Meaning | None:
    """Explain a batch of tf.data whose elements differ: they are batches themselves, or samples of several sizes."""
    found = _DIFFERENT.search(one.message)
    if found is None:
        return None
    first, other = ([int(size) for size in re.findall(r"\d+", found[name])] for name in ("first", "other"))
    shapes = f"[{found['first']}] and [{found['other']}]"
    at = at_place(one)
    again = (
        Fix(
            "If the elements are batches, call batch() once. In a notebook, run the cell that makes the data set again "
            "before the one that batches it.",
            ("print(train_ds.element_spec)", "train_ds = train_ds.unbatch().batch(64)"),
        ),
    )
    pad = (
        Fix(
            "If they are single samples, bring them to one shape before batch().",
            ("train_ds = train_ds.padded_batch(64)", "image = tf.image.resize(image, (224, 224))"),
        ),
    )
    if not _can_be_batches(first, other):
        return Meaning(
            f"tf.data cannot put samples of different shapes into one batch: {shapes}{at}",
            "batch() needs elements of one shape. The samples have other sizes or numbers of dimensions: images or "
            "recordings that were not resized or cut, sequences that were not padded.",
            pad,
            of_code=False,
        )
    return Meaning(
        f"batch() of tf.data got elements of different shapes, {shapes}: probably they are batches already{at}",
        f"They differ only in the first dimension, and element {found['number']} has fewer than the {first[0]} of the "
        "first one, as the last, incomplete batch of a data set has. So batch() is probably called on a data set that "
        "another call, another function or an earlier run of the notebook's cell has batched. Samples of different "
        "lengths look the same.",
        (*again, *pad),
        of_code=False,
    )


def _can_be_batches(first: list[int], other: list[int]) -> bool:
    """Whether two shapes can be those of a full batch, whose sizes are mostly powers of two, and of its rest."""
    if len(first) != len(other) or len(first) < _SMALLEST_BATCH or first[1:] != other[1:]:
        return False
    return first[0] > other[0] > 0 and (first[0] & (first[0] - 1) == 0 or first[0] % 10 == 0)
