"""What do general rows mean in a run whose samples are no text: images, volumes, sound, measurements?"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import counts, either, every, never, own_line, said, shown, through, within

_SIZES = r"tensors? a? ?\((\d+)\) must match the (?:size of tensor b|existing size) \((\d+)\)"
_BROADCAST = "https://docs.pytorch.org/docs/stable/notes/broadcasting.html"
_ANOMALY = "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection"
_NUMPY = "https://numpy.org/doc/stable/release/1.24.0-notes.html"
_SAVED = "https://docs.pytorch.org/docs/stable/notes/serialization.html"
NO_TEXT = never(
    either(
        shown("language_model"),
        through("transformers", "trl", "peft", "megatron", "llamafactory", "axolotl", "verl", "torchtune", "fairseq"),
        said(r"\{'loss': "),  # Trainer's
    )
)


def _alpha(sizes: Sequence[str]) -> bool:
    return sorted(map(int, sizes)) == [3, 4]


def _rounded(sizes: Sequence[str]) -> bool:
    small, large = sorted(map(int, sizes))
    return large - small == 1 and small > 4


# fmt: off
DEVICE_IN_WORDS = Case(
    said(r"Invalid CUDA 'device=(?:auto|gpu)' requested"),
    "this release of Ultralytics does not accept device={device}: it takes numbers of GPUs, or cpu",
    "It takes any other word for a list of GPUs. With torch.cuda.is_available(): False below the message, torch sees "
    "no GPU either, and only cpu is possible as long as that is so.",
    (Fix("Give the number of a GPU, or cpu.",
         ("model.train(data='data.yaml', device=0 if torch.cuda.is_available() else 'cpu')",
          "yolo train data=data.yaml model=yolo11n.pt device=0")),
     Fix("If there is a GPU that torch does not see, find out why.",
         ("mgpu doctor --only torch_is_cpu_build,torch_sees_fewer_gpus", "nvidia-smi -L"))),
    "ValueError: Invalid CUDA 'device=auto' requested. Use 'device=cpu' or pass valid CUDA device(s) if available, "
    "i.e. 'device=0' or 'device=0,1,2,3' for Multi-GPU.",
    "https://docs.ultralytics.com/modes/train/#train-settings")
_OF_IMAGES = either(
    shown("ultralytics"), shown("mmengine"), through("torchvision", "timm", "monai", "kornia", "detectron2", "mmcv"),
    within(r"^torch/nn/functional\.py in (?:mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy\w*|"
           r"interpolate|grid_sample|conv\w*|pad)$|^torch/nn/modules/conv\.py "))
# By a transform or by hand. A last batch of 3 samples also differs from one of 4.
_NORMALIZES = either(within(r"^torchvision/|^albumentations/|(?i:normali[sz]e)"),
                     own_line(r"(?i:normali[sz]e)\w*\(|[-/] ?(?:\w+\.)?(?:\w+_)?(?:mean|std)\b(?!\()"))
# The mask and the scores of an attention differ by a token, and have no strides.
_OF_ATTENTION = own_line(r"(?i:\batt\b|attn|scores?\b|softmax|causal|pos(?:itional)?_?(?:emb|enc)|cls_token)")
_PRINT = Fix("Print both shapes before that line.", ("print(a.shape, b.shape)",))
SIZES_DIFFER = (
    Case(every(NO_TEXT, counts(_SIZES, _alpha), said(r"non-singleton dimension [01]\b"), _NORMALIZES),
         "two tensors have 3 and 4 channels: probably an image with an alpha channel (RGBA)",
         "PNG files can have a fourth channel for transparency. The mean and the deviation of a normalization, or the "
         "model, are for the three of RGB.",
         (Fix("Convert each image when it is read.", ("Image.open(path).convert('RGB')",
                                                      "cv2.imread(path, cv2.IMREAD_COLOR)")), _PRINT),
         'Traceback (most recent call last):\n  File "/w/fit.py", line 7, in main\n    x = normalize(x)\n'
         '  File "/opt/env/lib/python3.11/site-packages/torchvision/transforms/_functional_tensor.py", line 923, in '
         "normalize\n    return tensor.sub_(mean).div_(std)\n"
         "RuntimeError: The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0\n",
         _BROADCAST),
    Case(every(NO_TEXT, counts(_SIZES, _rounded), never(_OF_ATTENTION),
               either(_OF_IMAGES, said(r"non-singleton dimension [234]"))),
         "two tensors differ by one element: probably a size that is not a multiple of the model's strides",
         "Layers with a stride round odd sizes: what is made smaller and larger again is then one off (a skip "
         "connection of a U-Net, a mask, an upsampled output). Another reason is an index that is counted from 1.",
         (Fix("Pad or resize the input to a multiple of the product of all strides, or resize one to the other.",
              ("x = F.interpolate(x, size=skip.shape[2:])", "F.pad(x, (0, -w % 32, 0, -h % 32))")), _PRINT),
         "RuntimeError: The size of tensor a (256) must match the size of tensor b (255) at non-singleton dimension "
         "3\n", _BROADCAST),
    Case(every(NO_TEXT, _OF_IMAGES),
         "two tensors have different sizes, and the operation cannot stretch either: see the numbers in the message",
         "Shapes are compared from the last dimension to the first, and each pair must be equal or contain a 1. "
         "Usual reasons: the output and the target have another layout or size, a dimension is missing (unsqueeze), "
         "the last batch is smaller than a buffer made for a full one, or positions were made for another image size.",
         (_PRINT, Fix("If only the last batch is smaller, leave it out.", ("DataLoader(..., drop_last=True)",))),
         'Traceback (most recent call last):\n  File "/w/fit.py", line 7, in main\n    loss = criterion(a, b)\n'
         '  File "/opt/env/lib/python3.11/site-packages/monai/losses/ds_loss.py", line 86, in get_loss\n'
         "    return self.loss(input, target)\n"
         '  File "/opt/env/lib/python3.11/site-packages/torch/nn/functional.py", line 3365, in l1_loss\n'
         "    expanded_input, expanded_target = torch.broadcast_tensors(input, target)\n"
         "RuntimeError: The size of tensor a (64) must match the size of tensor b (40) at non-singleton dimension "
         "0\n", _BROADCAST),
)
_FIND = Fix("Find the first operation with NaN.",
            ("torch.autograd.set_detect_anomaly(True)", "assert torch.isfinite(images).all()  # the input, too"))
_STEADY = Fix("Lower the learning rate, add a warmup, clip the gradients, and turn off fp16 to compare.",
              ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
               "torch.autocast('cuda', dtype=torch.bfloat16)"))
_WHY_NAN = (
    "Usual reasons: a learning rate that is too high, fp16 that overflows, a division by 0 in the loss (no object, an "
    "empty mask, a class without samples), log or sqrt of 0, or NaN in the data. ")
STOPPED_AT_NAN = Case(
    NO_TEXT, "training stopped because its loss or output is NaN or infinite", _WHY_NAN, (_STEADY, _FIND),
    "Epoch: [0]  [ 120/5000]  eta: 1:02:01  lr: 0.0001  loss: 7.1\nLoss is nan, stopping training\n", _ANOMALY)
WENT_ON_WITH_NAN = Case(
    NO_TEXT, "the loss is NaN: the model no longer learns",
    _WHY_NAN + "The weights are NaN after the first such step, so that no later step is better.",
    (Fix("Go back to the last checkpoint before it.", ()), _STEADY, _FIND),
    "Iters: 10/80000 || Lr: 0.019998 || Task Loss: nan || KD Loss: nan ||\n", _ANOMALY)
ARRAYS_DIFFER = Case(
    every(said(r"inhomogeneous shape"), NO_TEXT, either(own_line(r"\b(?:array|asarray|stack|vstack|zeros_like)\("),
                                                        within(r"^numpy/"))),
    "a list of arrays of different sizes was made into one array of numpy",
    "Rows of an array have equal lengths. Since 1.24, numpy refuses other lists, of which it had made an array of "
    "objects before: detections or points per image, images of different sizes, a tuple of an array and a number.",
    (Fix("Keep the list, join the arrays, or ask for an array of objects.",
         ("np.concatenate(boxes)", "np.array(boxes, dtype=object)")),
     Fix("If the code is a package's, upgrade it, or use the numpy that it was written for.",
         ("pip install 'numpy<1.24'",))),
    'Traceback (most recent call last):\n  File "/w/fit.py", line 7, in main\n    rows = np.array(boxes)\n'
    "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 "
    "dimensions. The detected shape was (8,) + inhomogeneous part.\n", _NUMPY)


def _class_of_checkpoint(module: str) -> Case:
    return Case(
        within(r"^torch/serialization\.py in (?:find_class|_?load|_legacy_load|load)|^pickle\.py in |^joblib/|"
               r"^dill/"),
        "the file holds objects of classes whose module Python cannot find here",
        "It was saved whole (torch.save(model), pickle), so that reading it imports the modules of the code that saved "
        "it. Here they have another name, are not on Python's path, or another package of that name hides them.",
        (Fix("Read it with the code that saved it on the path, and another folder of that name not before it.",
             ("export PYTHONPATH=/path/to/that/repository",)),
         Fix("There, save the weights alone.", ("torch.save(model.state_dict(), 'weights.pt')",))),
        'Traceback (most recent call last):\n  File "/w/fit.py", line 7, in main\n    ck = torch.load(path)\n'
        '  File "/opt/env/lib/python3.11/site-packages/torch/serialization.py", line 1415, in find_class\n'
        f"    return super().find_class(mod_name, name)\nModuleNotFoundError: No module named '{module}'\n", _SAVED)


CLASS_OF_CHECKPOINT, CLASS_OF_OTHER_PROJECT = map(_class_of_checkpoint, ("models.yolo", "models"))
# fmt: on
