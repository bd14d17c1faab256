"""Does a model of diffusers fit the script: its family, its files, the parts of its pipeline?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_UNET = "https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/unets/unet_2d_condition.py"
_LOADING = "https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/model_loading_utils.py"
_PIPELINE = "https://github.com/huggingface/diffusers/blob/main/src/diffusers/pipelines/pipeline_utils.py"
# fmt: off
ROWS = (
    Row("log_unet_of_sdxl", "root", "script",
        r"`addition_embed_type` set to '(?P<kind>\w+)' which requires the keyword argument `(?P<name>\w+)`",
        ("ValueError: <class 'diffusers.models.unets.unet_2d_condition.UNet2DConditionModel'> has the config param "
         "`addition_embed_type` set to 'text_time' which requires the keyword argument `text_embeds` to be passed in "
         "`added_cond_kwargs`",),
        "the UNet needs {name} besides the prompt, and the script does not pass it",
        "Its config has addition_embed_type {kind}. With text_time it is a UNet of SDXL, which also gets the pooled "
        "prompt and the sizes of the picture. Scripts for SD 1 and SD 2 do not compute them.",
        (Fix("Use the script for SDXL, or a model of SD 1 or SD 2.",
             ("accelerate launch train_text_to_image_lora_sdxl.py ...",)),
         Fix("Or pass them in your own script.",
             ("unet(x, t, prompt, added_cond_kwargs={{'text_embeds': pooled, 'time_ids': time_ids}})",))),
        _UNET, summary="The UNet needs more conditions than the script passes."),
    Row("log_diffusion_weights_differ", "root", "script",
        r"Cannot load <class '[\w.]+'> from \S+ because the following keys are missing|"
        r"Cannot load \S* ?because [\w.]+ expected shape",
        ("ValueError: Cannot load <class 'diffusers.models.unets.unet_2d_condition.UNet2DConditionModel'> from "
         "/models/x/unet because the following keys are missing: ",
         "ValueError: Cannot load /models/x/unet because conv_in.weight expected shape tensor(..., device='meta', "
         "size=(320, 9, 3, 3)), but got torch.Size([320, 4, 3, 3])."),
        "the weights in the folder do not fit the model that is built for them",
        "The config and the weights are of different models: the folder was copied from parts, an option changes the "
        "model (in_channels for inpainting, another class), or a save was interrupted.",
        (Fix("Compare config.json with the weights, and take both from one model.", ("ls -la MODEL/unet MODEL/vae",)),
         Fix("If new layers are wanted, let them be initialized.",
             ("from_pretrained(..., low_cpu_mem_usage=False, ignore_mismatched_sizes=True)",))),
        _LOADING),
    Row("log_pipeline_parts_missing", "root", "script",
        r"Pipeline <class '[\w.]+\.(?P<name>\w+)'> expected .{1,600}, but only .{0,600} were passed",
        ("ValueError: Pipeline <class 'diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion."
         "StableDiffusionPipeline'> expected {'text_encoder', 'vae', 'unet'}, but only {'vae'} were passed.",),
        "the folder does not have all parts of {name}",
        "A pipeline is saved with a folder for each part and model_index.json, which names them. The folder is of "
        "another kind of pipeline, holds a LoRA or a checkpoint of the training only, or its save was interrupted.",
        (Fix("Look at what is there.", ("ls MODEL; cat MODEL/model_index.json",)),
         Fix("Load the base model, and the trained part into it.",
             ("pipe = DiffusionPipeline.from_pretrained(BASE)", "pipe.load_lora_weights(FOLDER)"))),
        _PIPELINE, summary="A folder does not have all parts of a pipeline of diffusers."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
