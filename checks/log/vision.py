"""Did a package for images, detection or scenes refuse: torchvision, OpenMMLab, Ultralytics, timm, splatting?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from ._image_cases import DEVICE_IN_WORDS
from ._plain_script_cases import in_plain_script

_TORCHVISION = "https://github.com/pytorch/vision#installation"
_MMCV = "https://mmcv.readthedocs.io/en/latest/get_started/installation.html"
_ULTRALYTICS = "https://docs.ultralytics.com/datasets/detect/"
_LOSS = "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html"
_SPLATTING = "https://github.com/graphdeco-inria/gaussian-splatting#processing-your-own-scenes"

_TRANSFORMS = "https://docs.pytorch.org/vision/stable/transforms.html"

# fmt: off
ROWS = (
    Row("log_transform_gets_other_kind", "root", "script",
        r"(?:Input tensor should be a float tensor\. Got|pic should be PIL Image or ndarray\. Got|"
        r"[Ii]mg should be PIL Image\. Got|pic should be Tensor or ndarray\. Got|"
        r"img should be Tensor Image\. Got|Input img should be Tensor Image\. Got) (?P<kind>.+?)\.?$",
        ("TypeError: Input tensor should be a float tensor. Got torch.uint8.",
         "TypeError: pic should be PIL Image or ndarray. Got <class 'torch.Tensor'>",
         "TypeError: img should be PIL Image. Got <class 'numpy.ndarray'>"),
        "a transform of torchvision got another kind of image than it accepts: {kind}",
        "Transforms run in order: those for images (PIL) first, then ToTensor, which makes a float tensor from 0 to 1, "
        "then those for tensors (Normalize). One is missing, doubled or in the wrong place, or the image was read with "
        "another library (OpenCV and read_image make arrays and uint8 tensors).",
        (Fix("Put them in that order, ToTensor once.",
             ("T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(mean, std)])",)),
         Fix("Or convert the image first.", ("Image.fromarray(array)", "image.float() / 255"))), _TRANSFORMS,
        summary="A transform of torchvision got another kind of image than it accepts."),
    Row("log_crop_beyond_image", "root", "script",
        r"Required crop size (?P<crop>\(\d+, \d+\)) is larger than input image size (?P<image>\(\d+, \d+\))",
        ("ValueError: Required crop size (256, 256) is larger than input image size (200, 300)",),
        "an image of {image} is smaller than the crop of {crop}",
        "RandomCrop takes its part from inside the image, and this one is smaller (height, width).",
        Fix("Resize before it, let it pad, or leave small images out.",
            ("T.Resize(288), T.RandomCrop(256)", "T.RandomCrop(256, pad_if_needed=True)")), _TRANSFORMS,
        summary="An image is smaller than the part that is to be cut out of it."),
    Row("log_stride_negative", "root", "script",
        r"At least one (?:of the strides|stride) in the given numpy array is negative",
        ("ValueError: At least one stride in the given numpy array is negative, and tensors with negative strides are "
         "not currently supported. (You can probably work around this by making a copy of your array  with "
         "array.copy().)",),
        "an array that was flipped without a copy cannot become a tensor",
        "numpy flips by reading backwards: [::-1], np.flip, np.fliplr, np.rot90 and [..., ::-1] for BGR to RGB. torch "
        "cannot.",
        Fix("Copy it after the flip, or flip the tensor.",
            ("torch.from_numpy(image[:, ::-1].copy())", "torch.flip(tensor, dims=[-1])")),
        "https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html"),
    Row("log_torchvision_without_cuda", "root", "library",
        r"Could not run 'torchvision::(?P<name>\w+)' with arguments from the 'CUDA' backend",
        ("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend. This could be "
         "because the operator doesn't exist for this backend",),
        "the installed torchvision was built without CUDA: {name} runs on the CPU only",
        "torch has CUDA, torchvision does not: it came from another index, from conda's CPU channel, or was compiled "
        "on "
        "a machine without a GPU.",
        Fix("Install both together, from the same index.",
            ("pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cu126",
             "python -c 'import torch, torchvision; print(torch.__version__, torchvision.__version__)'")), _TORCHVISION,
        summary="The installed torchvision was built without CUDA."),
    Row("log_mmcv_without_operators", "root", "library",
        r"No module named 'mmcv\._ext'|_impl\w*: implementation for device \w+:\d+ not found",
        ("ModuleNotFoundError: No module named 'mmcv._ext'",
         "RuntimeError: ms_deform_attn_impl_forward: implementation for device cuda:0 not found."),
        "the installed mmcv has no compiled operators for this device",
        "mmcv-lite, and mmcv before 2.0 without -full, have none. pip also builds an mmcv without them if it finds no "
        "wheel for this torch and CUDA, and no compiler.",
        (Fix("Install the wheel that was built for this torch and CUDA.",
             ("pip uninstall -y mmcv mmcv-lite mmcv-full", "pip install -U openmim", "mim install 'mmcv>=2.0.0'")),
         Fix("If there is none, build it with nvcc, or install a torch that has one.",
             ("MMCV_WITH_OPS=1 FORCE_CUDA=1 pip install --no-build-isolation --no-binary mmcv mmcv",))), _MMCV),
    Row("log_openmmlab_versions_differ", "root", "library",
        r"(?P<package>MM[A-Za-z\d]+)==(?P<version>\S+) is used but incompatible\. Please install (?P<wanted>\S.*?)\.?$",
        ("AssertionError: MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0rc4, <2.2.0.",),
        "the installed {package} {version} does not fit: {wanted} is required",
        "Packages of OpenMMLab check each other's release when they are imported. The newest release often exceeds a "
        "limit "
        "that was not raised yet.",
        (Fix("Install a release in that range.", ("mim install {wanted:text}", "pip list | grep -i '^mm'")),
         Fix("Or upgrade the package that checks, if a newer release allows it.", ("pip install -U mmdet "
            "mmsegmentation",))),
        "https://mmdetection.readthedocs.io/en/latest/notes/faq.html",
        summary="Releases of two OpenMMLab packages do not fit."),
    Row("log_dataset_registered_twice", "root", "script",
        r"Dataset '?[^'\s]+'? is already registered!",
        ("AssertionError: Dataset 'my_train' is already registered!",),
        "a dataset is registered twice under one name",
        "The module that registers it was imported under two names (as a script and as a module), a notebook cell ran "
        "again, or two files use one name. detectron2's own datasets are registered when it is imported.",
        Fix("Register it once, or remove the older one first.",
            ("if name not in DatasetCatalog.list(): register_coco_instances(name, {{}}, 'train.json', 'images')",
             "DatasetCatalog.remove(name); MetadataCatalog.remove(name)")),
        "https://detectron2.readthedocs.io/en/latest/tutorials/datasets.html"),
    Row("log_boxes_wrong", "root", "script",
        r"Expected [xy]_m(?:in|ax) for bbox .{1,200} to be in the range \[0\.0, 1\.0\]|"
        r"[xy]_max is less than or equal to [xy]_min for bbox|All bounding boxes should have positive height and width",
        ("ValueError: Expected x_max for bbox [0.9 0.1 1.0026 0.4 1.] to be in the range [0.0, 1.0], got 1.0026.",
         "ValueError: x_max is less than or equal to x_min for bbox (0.5, 0.1, 0.5, 0.4, 1).",
         "AssertionError: All bounding boxes should have positive height and width. Found invalid box [100.0, 50.0, "
         "100.0, 80.0] for target at index 0."),
        "a box of an annotation is outside of its image, or has no area",
        "The annotations have such a box, an augmentation cut it off or rounded it, or the boxes are in another format "
        "than the code says: x, y, width, height (COCO) in place of two corners (Pascal VOC), pixels in place of "
        "shares.",
        (Fix("Check the format first. Then cut boxes at the image's border, and drop those without area.",
             ("boxes = boxes.clamp(min=0); keep = (boxes[:, 2:] - boxes[:, :2] >= 1).all(1)",
              "A.BboxParams(format='pascal_voc', label_fields=['labels'], clip=True, min_area=1)")),
         Fix("Find the annotations once, without training: print the image's name where it is raised.")),
        "https://albumentations.ai/docs/3-basic-usage/bounding-boxes-augmentations/"),
    Row("log_class_weights_wrong", "root", "script",
        r"weight tensor should be defined either for all (?P<classes>\d+) (?:classes )?or no classes but got weight "
        r"tensor "
        r"of shape: \[(?P<given>\d+)\]",
        ("RuntimeError: weight tensor should be defined either for all 19 classes or no classes but got weight tensor "
         "of shape: [20]",),
        "the loss has weights for {given} classes, and the model predicts {classes}",
        "One of the two counts the background or the ignored class and the other does not, or the weights are of "
        "another dataset. If the numbers are a batch or an image size, the predictions have their classes in another "
        "dimension than 1.",
        Fix("Make the number of classes one setting that both use.",
            ("print(logits.shape, weight.shape)",
             "weight = torch.ones(num_classes)  # one per output of the model, in its order")), _LOSS,
        summary="The loss has weights for another number of classes than the model predicts."),
    Row("log_masks_have_channels", "root", "script",
        r"only batches of spatial targets supported \(3D tensors\) but got targets of (?:dimension|size)\b",
        ("RuntimeError: only batches of spatial targets supported (3D tensors) but got targets of dimension: 4",
         "RuntimeError: only batches of spatial targets supported (3D tensors) but got targets of size: : [8, 512, "
         "512, 3]"),
        "the masks have a channel dimension; the loss expects one class number per pixel (N, H, W)",
        "They were read as RGB images, have an extra dimension of size 1, or are one-hot.",
        Fix("Remove it where the mask is made.",
            ("mask = torch.as_tensor(np.array(Image.open(path)), dtype=torch.long)  # modes P and L hold class numbers",
             "mask = mask[..., 0]  # RGB of which all channels hold the class number",
             "mask = mask.squeeze(1)", "mask = mask.argmax(1)  # one-hot")), _LOSS,
        summary="The masks have a channel dimension, and the loss expects class numbers."),
    Row("log_image_too_small", "root", "script",
        r"Kernel size can't be greater than actual input size|Calculated output size: \([^)]*\)\. Output size is too "
        r"small",
        ("RuntimeError: Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't be "
         "greater than actual input size",
         "RuntimeError: Given input size: (512x1x1). Calculated output size: (512x0x0). Output size is too small"),
        "the input has become smaller than the kernel of a layer",
        "Each layer with a stride halves height and width: the images are too small for the depth of the model "
        "(32 x 32 for a model of 224 x 224), or the dimensions are in another order, so that channels count as width.",
        Fix("Print the shape, and resize the images, or use fewer layers with a stride.",
            ("print(x.shape)  # N, C, H, W", "transforms.Resize((224, 224))")),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html", explain=in_plain_script),
    Row("log_yolo_images_missing", "root", "script",
        r"images not found .{0,6}missing paths? ['\"]?(?P<path>[^'\"]+)['\"]?",
        ("FileNotFoundError: Dataset 'data.yaml' images not found \u26a0\ufe0f, missing path "
         "'/data/yolo/valid/images'",),
        "the data file names a folder of images that does not exist: {path}",
        "Relative paths in the YAML are relative to its path: key, and that to the datasets_dir of Ultralytics' own "
        "settings, not to the current folder. Exports name the folder val, valid or test.",
        (Fix("Write the absolute path into the data file.", ("path: /data/my_dataset", "ls {path:path}")),
         Fix("Or set where Ultralytics looks.", ("yolo settings datasets_dir=/data", "yolo settings"))), _ULTRALYTICS,
        summary="Ultralytics' data file names a folder of images that does not exist."),
    Row("log_yolo_without_labels", "root", "script",
        r"No (?:valid images|labels|images) found in (?P<path>\S+?)[,.]? ?(?:Images with incorrectly|[Cc]an ?not start|"
        r"HELP_URL|training may not|See )",
        ("RuntimeError: No valid images found in /data/train/labels.cache. Images with incorrectly formatted labels "
         "are "
         "ignored. See https://docs.ultralytics.com/datasets for dataset formatting guidance.",
         "AssertionError: train: No labels found in /data/labels/train.cache. Can not start training."),
        "Ultralytics found no images there, or none with a usable label: {path}",
        "If the message says \"No images found\", the path in the data file is wrong or has no images. Ultralytics "
        "derives the label's path from the image's: the last images/ becomes labels/, the suffix .txt. No such file, "
        "boxes in pixels, or class numbers beyond nc make it skip the image. The .cache file remembers the result.",
        Fix("Compare one image with its label, and delete the cache after a correction.",
            ("ls /data/images/train | head -n 2; ls /data/labels/train | head -n 2",
             "head -n 2 /data/labels/train/NAME.txt  # class x y width height, from 0 to 1",
             "ls -l /data/labels/*.cache  # then remove only the one of this data set")), _ULTRALYTICS,
        summary="Ultralytics found no images there, or none with a usable label."),
    Row("log_yolo_device_invisible", "root", "script",
        r"Invalid CUDA 'device=(?P<device>[^']*)' requested",
        ("ValueError: Invalid CUDA 'device=0,1' requested. Use 'device=cpu' or pass valid CUDA device(s) if available, "
         "i.e. 'device=0' or 'device=0,1,2,3' for Multi-GPU.",),
        "torch does not see the GPUs that the run asks for: device={device}",
        "The lines after the message say what it sees. With is_available(): False, torch has no CUDA, or the driver or "
        "the container hides the GPUs. Else there are fewer GPUs than named, or CUDA_VISIBLE_DEVICES renumbers them "
        "from 0.",
        Fix("Check what torch sees, in this environment.",
            ("python -c 'import torch; print(torch.__version__, torch.cuda.device_count())'; nvidia-smi -L",
             "mgpu doctor --only torch_is_cpu_build,torch_sees_fewer_gpus")),
        "https://docs.ultralytics.com/modes/train/#multi-gpu-training", cases=(DEVICE_IN_WORDS,),
        summary="Ultralytics is asked for GPUs that torch does not see."),
    Row("log_class_folders_missing", "root", "script",
        r"Couldn't find any class folder in \S|Found no valid file for the classes|"
        r"Found 0 files in subfolders of: ",
        ("FileNotFoundError: Couldn't find any class folder in /data/train.",
         "FileNotFoundError: Found no valid file for the classes cat, dog. Supported extensions are: .jpg, .jpeg, .png",
         "RuntimeError: Found 0 files in subfolders of: /data/val"),
        "ImageFolder found no folder per class with images in it",
        "It expects FOLDER/CLASS/image.jpg. The path is one level too high or too low, the images are not in folders "
        "per "
        "class (ImageNet's validation set is not), they are still in an archive, or have another suffix.",
        Fix("Look at the folder.", ("find DATA/train -maxdepth 2 | head", "find DATA/train -type f | head -n 3")),
        "https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html"),
    Row("log_dataset_not_downloaded", "root", "script", r"Dataset not found(?: or corrupted)?\. ?You can use "
                                                        r"download=True",
        ("RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
         "RuntimeError: Dataset not found. You can use download=True to download it"),
        "torchvision's dataset is not in the folder, or its files are incomplete",
        "Only download=True fetches it, and compute nodes often have no internet. A download that was broken off, or "
        "several ranks that download at once, leave files that do not match their checksum.",
        Fix("Download it once, on a node with internet, before the run.",
            ("python -c \"from torchvision.datasets import CIFAR10; CIFAR10('./data', download=True)\"", "ls -la "
            "./data")),
        "https://docs.pytorch.org/vision/stable/datasets.html"),
    Row("log_timm_name_unknown", "root", "script",
        r"RuntimeError: Unknown model \([^)]+\)|No pretrained weights exist for |"
        r"Cannot find callable \w+ in hubconf",
        ("RuntimeError: Unknown model (vit_x)", "RuntimeError: No pretrained weights exist for vit_tiny. Use "
         "`pretrained=False` for random init.", "RuntimeError: Cannot find callable resnet50_x in hubconf"),
        "the model zoo (timm, torch.hub) has no model or no weights of this name",
        "Names and weights change between releases of timm: a newer one has more models, an older one other names "
        "(vit_deit_... became deit_...). A model of the project itself must be imported before create_model().",
        Fix("List the names that the installed release has.",
            ("python -c \"import timm; print(timm.__version__, timm.list_models('*vit*', pretrained=True)[:20])\"",
             "pip install -U timm")),
        "https://huggingface.co/docs/timm/models"),
    Row("log_github_limit", "root", "network", r"HTTPError: HTTP Error 403: rate limit exceeded",
        ("urllib.error.HTTPError: HTTP Error 403: rate limit exceeded",),
        "GitHub refuses torch.hub more requests from this address",
        "Without a token, GitHub allows 60 requests per hour and address. All ranks and all users of a cluster share "
        "it.",
        Fix("Load once, skip the check, or use a token. Later loads come from the cache.",
            ("torch.hub.load('pytorch/vision', 'resnet50', skip_validation=True)", "export GITHUB_TOKEN=...",
             "ls ~/.cache/torch/hub")),
        "https://docs.pytorch.org/docs/stable/hub.html"),
    Row("log_results_of_other_images", "root", "script", r"Results do not correspond to current coco set",
        ("AssertionError: Results do not correspond to current coco set",),
        "predictions have image ids that the annotation file does not have",
        "The ids come from file names or from a counter, or the annotation file is of another split than the images "
        "that were evaluated.",
        Fix("Compare the ids, and use those of the annotation file.",
            ("print({{r['image_id'] for r in results}} - set(coco.getImgIds()))",)),
        "https://github.com/cocodataset/cocoapi/blob/master/PythonAPI/pycocotools/coco.py"),
    Row("log_raster_not_decoded", "root", "script",
        r"(?P<path>[^\s'\",]+), band \d+: IReadBlock failed at X offset (?P<x>\d+), Y offset (?P<y>\d+)",
        ("ERROR 1: /data/scenes/B04.tif, band 1: IReadBlock failed at X offset 0, Y offset 512: "
         "TIFFReadEncodedStrip() failed.",
         "rasterio.errors.RasterioIOError: tiles/a.tif, band 3: IReadBlock failed at X offset 2, Y offset 9: "
         "TIFFReadEncodedTile() failed."),
        "GDAL cannot decode {path}: the file is damaged or incomplete (block {x}, {y})",
        "Its beginning can be read, and a later block cannot: a copy or download was interrupted, a disk was full, or "
        "two processes wrote the file. Of a file behind an address (/vsicurl/, /vsis3/), the server can have sent a "
        "part only. GDAL prints this and goes on, so samples of that file can have zeros. Other lines can name more "
        "files.",
        (Fix("Read the whole file, and copy or download it again if that fails.", ("gdalinfo -checksum {path:path}",)),
         Fix("Make again what was cut out of it.")),
        "https://gdal.org/en/stable/drivers/raster/gtiff.html", summary="GDAL cannot decode a block of an image."),
    Row("log_scene_not_recognized", "root", "script", r"Could not recognize scene type!|Colmap camera model not "
                                                      r"handled",
        ("AssertionError: Could not recognize scene type!",
         "AssertionError: Colmap camera model not handled: only undistorted datasets (PINHOLE or SIMPLE_PINHOLE "
         "cameras) "
         "supported!"),
        "the folder is not a scene that Gaussian splatting can read",
        "It looks for sparse/0 (COLMAP) or transforms_train.json (Blender) in the folder of -s. The path is one level "
        "off, COLMAP has not run or found no cameras, or its cameras have lens distortion.",
        Fix("Look at the folder. COLMAP's result must be undistorted, which convert.py does.",
            ("ls SCENE SCENE/sparse/0", "python convert.py -s SCENE", "python train.py -s SCENE")), _SPLATTING),
    Row("log_tinycudann_for_other_gpu", "root", "library",
        r"Could not find compatible tinycudann extension for compute capability (?P<capability>\d+)",
        ("OSError: Could not find compatible tinycudann extension for compute capability 89.",),
        "tiny-cuda-nn was built for another GPU: this one has the compute capability {capability}",
        "Its build takes the GPU of the machine on which it runs, unless TCNN_CUDA_ARCHITECTURES is set.",
        Fix("Build it again, for this GPU.",
            ("TCNN_CUDA_ARCHITECTURES={capability:number} pip install --no-cache-dir --force-reinstall --no-deps "
             "--no-build-isolation 'git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch'",)),
        "https://github.com/NVlabs/tiny-cuda-nn#pytorch-extension",
        summary="tiny-cuda-nn was built for another GPU."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
