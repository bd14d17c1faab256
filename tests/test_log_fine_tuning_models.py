"""What fine-tuning programs refuse: latents of another model, bf16, modules that load on first use, their own rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

TRAIN = (SCRIPT, "main", "trainer.train()")
UNET = (SCRIPT, "main", "model_pred = unet(noisy_latents, timesteps, hidden)")
LAYER = (SCRIPT, "forward", "x = self.neck(features)")
CONV = ("torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(")
FACTORY = ("/work/LLaMA-Factory/src/llamafactory/hparams/parser.py", "get_train_args", "raise ValueError(")
EMBED = ("sentence_transformers/losses/CosineSimilarityLoss.py", "forward", "x = self.model(f)['sentence_embedding']")
LAZY = ("trl/import_utils.py", "_get_module", "raise RuntimeError(")
IMPORT = (SCRIPT, "<module>", "from trl import GRPOTrainer")
SKIP = (SCRIPT, "forward", "mask = self.unet(x)")
UNETS = ("diffusers/models/unets/unet_2d_condition.py", "get_aug_embed", "if 'text_embeds' not in added_cond_kwargs:")
LOAD = (SCRIPT, "main", "pipe = Pipeline.from_pretrained(path)")
PADS = ("transformers/tokenization_utils_base.py", "pad", "raise ValueError(")
FAILED = "Failed to import {} because of the following error (look up to see its traceback):\n"
SHAPES = (
    "RuntimeError: Given groups=1, weight of size [{}, 3, 3], expected input[{}] to have {} channels, but got {} "
    "channels instead"
)


@pytest.mark.parametrize(
    ("calls", "error", "title", "words", "not_said"),
    [
        ((UNET, CONV), SHAPES.format("320, 4", "1, 16, 64, 64", 4, 16), "expects latents with 4 channels, but got 16",
         "of another family", "alpha"),
        ((UNET, CONV), SHAPES.format("320, 9", "1, 4, 64, 64", 9, 4), "expects latents with 9 channels", "inpainting",
         "convert('RGB')"),
        ((UNET, CONV), SHAPES.format("320, 8", "1, 4, 64, 64", 8, 4), "expects latents with 8 channels", "editing",
         "convert('RGB')"),
        ((UNET, CONV), SHAPES.format("320, 4", "1, 3, 512, 512", 4, 3), "a picture with 3", "vae.encode", "alpha"),
        ((LAYER, CONV), SHAPES.format("64, 3", "8, 224, 224, 3", 3, 224), "channels of the input [8, 224, 224, 3]",
         "x.movedim(-1, 1)", "alpha"),
        ((LAYER, CONV), "RuntimeError: Given groups=1, weight of size [64, 80, 3], expected input[4, 200, 80] to have "
         "80 channels, but got 200 channels instead", "in its last dimension", "x.movedim(-1, 1)", "alpha"),
        ((LAYER, CONV), SHAPES.format("256, 512", "2, 2048, 16, 16", 512, 2048), "expects 512 channels, but got 2048",
         "backbone", "alpha"),
        ((SKIP, CONV), SHAPES.format("512, 1024", "2, 512, 32, 32", 1024, 512), "expects 1024 channels, but got 512",
         "backbone", "latents"),
        ((SKIP, CONV), SHAPES.format("32, 4", "2, 3, 96, 96", 4, 3), "expects", "channels", "VAE"),
        ((LAYER, CONV), SHAPES.format("64, 3", "8, 1, 224, 224", 3, 1), "the model expects images with 3 channels",
         "convert('RGB')", "latents"),
    ],
)  # fmt: skip
def test_channels_of_pictures_latents_and_layers(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, not_said: str, tmp_path: Path
) -> None:
    name, found, said = explained(tmp_path, f"{frames(*calls)}{error}\n")
    assert (name, title in found, words in said, not_said in said) == ("log_channels_differ", True, True, False), found


@pytest.mark.parametrize(
    ("calls", "error", "wanted", "title", "words"),
    [
        ((FACTORY,), "ValueError: Please launch distributed training with `llamafactory-cli` or `torchrun`.",
         "log_llamafactory_single_process", "one process that sees several GPUs", "FORCE_TORCHRUN=1"),
        ((TRAIN,), "ValueError: unhandled prompt tokenization strategy: sharegpt ", "log_axolotl_dataset_type",
         "does not know the dataset type sharegpt", "chat_template"),
        ((TRAIN,), "swift.llm.template.base.MaxLengthError: Current length of row(2100) is larger than the "
         "max_length(2048).", "log_swift_sample_too_long", "a sample has 2100 tokens", "--max_length 2100"),
        ((TRAIN, EMBED), "KeyError: 'sentence_embedding'", "log_sentence_model_without_pooling", "no pooling layer",
         "models.Pooling"),
        ((UNET, UNETS), "ValueError: <class 'diffusers.UNet2DConditionModel'> has the config param "
         "`addition_embed_type` set to 'text_time' which requires the keyword argument `time_ids` to be passed in "
         "`added_cond_kwargs`", "log_unet_of_sdxl", "the UNet needs time_ids", "train_text_to_image_lora_sdxl.py"),
        ((LOAD,), "ValueError: Cannot load <class 'diffusers.AutoencoderKL'> from /models/vae because the following "
         "keys are missing: \n encoder.x.weight. \n Please make sure to pass `low_cpu_mem_usage=False`",
         "log_diffusion_weights_differ", "do not fit the model", "ls -la"),
        ((LOAD,), "ValueError: Cannot load  because conv_in.weight expected shape tensor(..., device='meta', size=(3, "
         "9, 3, 3)), but got torch.Size([320, 4, 3, 3]).", "log_diffusion_weights_differ", "do not fit the model",
         "inpainting"),
        ((LOAD,), "ValueError: Pipeline <class 'diffusers.x.FluxPipeline'> expected ['vae', 'transformer'], but only "
         "{'vae'} were passed.", "log_pipeline_parts_missing", "all parts of FluxPipeline", "model_index.json"),
        ((TRAIN, PADS), "ValueError: You should supply an encoding or a list of encodings to this method that includes "
         "input_ids, but you provided ['label']", "log_samples_without_input_ids", "they have only ['label']",
         "remove_unused_columns"),
        ((TRAIN,), "RuntimeError: Full bf16 training is not supported on this hardware.", "log_gpu_lacks_bf16",
         "do not support it", "fp16"),
        ((TRAIN,), "pydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlInputConfig\n  Value "
         "error, bf16 requested, but AMP is not supported on this GPU. Requires Ampere series or above. "
         "[type=value_error, input_value={'a': 1}, input_type=dict]", "log_gpu_lacks_bf16", "do not support it",
         "fp16"),
        ((IMPORT, LAZY), f"RuntimeError: {FAILED.format('trl.trainer.grpo_trainer')}"
         f"{FAILED.format('trl.extras.vllm_client')}No module named 'vllm_ascend'", "log_transformers_import_failed",
         "not installed in this environment: vllm_ascend", "pip install"),
        ((IMPORT, LAZY), f"RuntimeError: {FAILED.format('trl.trainer.kto_trainer')}No module named "
         "'transformers.trainer_old'", "log_submodule_missing", "no module transformers.trainer_old", "transformers"),
        ((IMPORT, LAZY), f"RuntimeError: {FAILED.format('diffusers.loaders.ip_adapter')}[Errno 13] Permission "
         "denied: '/opt/x.json'", "log_transformers_import_failed",
         "diffusers could not import its module diffusers.loaders.ip_adapter: [Errno 13]", "first exception"),
    ],
)  # fmt: skip
def test_what_a_program_refused(
    calls: tuple[tuple[str, str, str], ...], error: str, wanted: str, title: str, words: str, tmp_path: Path
) -> None:
    name, found, said = explained(tmp_path, f"{frames(*calls)}{error}\n")
    assert (name, title in found, words in said) == (wanted, True, True), (found, said)


def test_the_reason_of_a_failed_import_is_its_cause(tmp_path: Path) -> None:
    first = (
        f"{frames(IMPORT)}ModuleNotFoundError: No module named 'einops'\n\nThe above exception was the direct cause "
    )
    later = f"of the following exception:\n\n{frames(IMPORT, LAZY)}RuntimeError: {FAILED.format('trl.models.x')}"
    name, title, _ = explained(tmp_path, f"{first}{later}No module named 'einops'\n")
    assert name == "log_module_missing" and "einops" in title


def test_a_release_of_diffusers_has_no_mistake_if_conditions_are_missing(tmp_path: Path) -> None:
    text = f"{frames(UNET, UNETS)}TypeError: argument of type 'NoneType' is not iterable\n"
    assert explained(tmp_path, text)[0] != "log_framework_failed"


def test_a_row_without_that_column_is_not_a_model_without_pooling(tmp_path: Path) -> None:
    _, title, _ = explained(tmp_path, f"{frames(TRAIN)}KeyError: 'sentence_embedding'\n")
    assert "pooling" not in title, title
