"""What does a file mean that a model folder lacks, by its name and its folder?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import either, every, never, said, within

_HUB = "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/hub.py"
_VERL = "https://verl.readthedocs.io/en/latest/advance/checkpoint.html"

# fmt: off
_LIST = Fix("Check which files exist, on every node.", ("ls -la {folder:path}",))
_MISSING = ('Traceback (most recent call last):\n  File "/x/{frame}", line 3, in main\n    x = load(folder)\n'
            "OSError: {folder} does not appear to have a file named {file}. Checkout "
            "'https://huggingface.co/{folder}/tree/main' for available files.")
_MERGE_VERL = Fix("Merge the shards into a model first.",
                  ("python -m verl.model_merger merge --backend fsdp --local_dir global_step_20/actor --target_dir "
                   "OUT",))
# A name of the Hub, or a relative folder of two parts; that of a run's own output is a folder.
_OF_HUB = every(said(r"^(?!(?:\./)?(?:out|outputs?|results?|runs?|models?|checkpoints?|ckpts?|logs?|saved?\w*)/)"
                     r"[A-Za-z0-9][\w.-]*/[\w.-]+ does not appear to have a file named"),
                never(said(r"^\S*(?:checkpoint|global_?step|epoch)[-_]?\d|/(?:last|best|final)\b|^/")))
_SEE_FILES = Fix("See which files the repository has, and what its card says about loading it.",
                 ("python -c \"from huggingface_hub import list_repo_files as f; print(*f('ORG/MODEL'), sep='\\n')\"",))
FILES = (
    Case(said(r"but there is a file for (?:TensorFlow|Flax|PyTorch)|Use `from_(?:tf|flax|pt)=True`"),
         "{folder} has no weights for this class ({file}), but those of another library, as the message says",
         "The repository or folder was saved with TensorFlow, Flax or PyTorch alone. transformers converts the weights "
         "while it loads them, if the option asks for it and that library is installed. transformers 5 does not.",
         (Fix("Load them with the option that the message names, and save the model once in the form that you need.",
              ("AutoModel.from_pretrained(MODEL, from_tf=True).save_pretrained(FOLDER)", "pip show transformers")),),
         "OSError: org/model does not appear to have a file named pytorch_model.bin but there is a file for TensorFlow "
         "weights. Use `from_tf=True` to load this model from those weights.\n", _HUB),
    Case(every(_OF_HUB, said(r"(?i)gguf\S* does not appear")),
         "{folder} has weights in GGUF, the format of llama.cpp: it has no {file}",
         "By its name, the repository holds GGUF files only. transformers loads one of them if it is named, and "
         "converts it to full size; llama.cpp, Ollama and vLLM run it as it is.",
         (Fix("Name the file, or load the original model instead.",
              ("AutoModelForCausalLM.from_pretrained('ORG/MODEL-GGUF', gguf_file='NAME.Q4_K_M.gguf')",)), _SEE_FILES),
         "OSError: org/model-GGUF does not appear to have a file named config.json. Checkout "
         "'https://huggingface.co/org/model-GGUF/tree/main' for available files.\n",
         "https://huggingface.co/docs/transformers/gguf"),
    Case(said(r"named \S*-\d{5}-of-\d{5}\.(?:safetensors|bin)\b"),
         "a part of the weights of {folder} is missing: {file}",
         "The model has several files of weights, and its index names this one. Probably its download was broken off, "
         "or the folder was copied in part. On the Hub, an upload can still be under way.",
         (Fix("Download what is missing: files that are complete are skipped.",
              ("hf download {folder:id}", "df -h ~/.cache/huggingface")),
          _LIST),
         _MISSING.format(frame="train.py", folder="org/model", file="model-00003-of-00004.safetensors"), _HUB),
    Case(every(said(r"named \S*generation_config\.json"), within(r"in (?:_?save\w*|fit)$")),
         "a checkpoint could not be saved, because the base model {folder} has no generation_config.json",
         "The file is optional: many base models have none. The program that saves reads it without allowing for that. "
         "The weights saved before it are complete.",
         (Fix("Write a default one into the model's folder.",
              ("python -c \"from transformers import GenerationConfig as G; G().save_pretrained('MODEL')\"",)),
          Fix("Or upgrade the framework: newer releases (verl after July 2025) do without it.",
              ("pip install --upgrade verl",))),
         _MISSING.format(frame="verl/utils/checkpoint/fsdp_checkpoint_manager.py", folder="/m",
                         file="generation_config.json").replace("in main", "in save_checkpoint"),
         "https://github.com/verl-project/verl/issues/2658"),
    Case(said(r"named \S*generation_config\.json"),
         "the model {folder} has no generation_config.json, and this program does not do without",
         "The file is optional: many base models have none. The model itself is not damaged.",
         (Fix("Write a default one into the model's folder.",
              ("python -c \"from transformers import GenerationConfig as G; G().save_pretrained('MODEL')\"",)),
          Fix("Or upgrade the framework.", ("pip check",))),
         _MISSING.format(frame="infer.py", folder="/m", file="generation_config.json"),
         "https://github.com/verl-project/verl/issues/2658"),
    Case(said(r"global_step_\d+/(?:actor|critic)"),
         "{folder} is a checkpoint of verl in shards, not a model that transformers can load: it has no {file}",
         "verl saves one part per rank (model_world_size_8_rank_0.pt). Its folder huggingface/ has the config and the "
         "tokenizer, but no weights.",
         (_MERGE_VERL, Fix("To resume, name the step's folder in verl itself.",
                           ("trainer.resume_mode=resume_path trainer.resume_from_path=CHECKPOINT",))),
         _MISSING.format(frame="infer.py", folder="ckpt/global_step_20/actor", file="config.json"), _VERL),
    Case(said(r"named \S*(?:preprocessor_config|processor_config|image_processor|video_preprocessor_config)\S*\.json"),
         "{folder} has no {file}: the processor (images, audio) was not saved with the model",
         "The model's save_pretrained() writes weights and config only. A checkpoint of a training run has the "
         "processor's files only if the trainer knew the processor.",
         (Fix("Copy them from the base model, or save the processor too.",
              ("cp BASE_MODEL/*processor*.json MODEL_FOLDER/", "processor.save_pretrained(OUTPUT)",
               "Trainer(..., processing_class=processor)")),),
         _MISSING.format(frame="infer.py", folder="out/checkpoint-100", file="preprocessor_config.json"), _HUB),
    Case(said(r"named \S*(?:modeling|configuration|tokenization|processing|image_processing)_\w+\.py"),
         "{folder} has no {file}: the model's own code was not saved with it",
         "The model needs code from its repository (trust_remote_code). Checkpoints of a run have config.json, which "
         "names that code, but often not the code itself.",
         (Fix("Copy the code from the base model.", ("cp BASE_MODEL/*.py MODEL_FOLDER/",)),),
         _MISSING.format(frame="infer.py", folder="out/checkpoint-100", file="modeling_internlm2.py"), _HUB),
    Case(every(_OF_HUB,
               said(r"named (?:config\.json|\(?'?\S*(?:pytorch_model|model|weights)\S*\.(?:bin|safetensors))")),
         "{folder} has no {file}: it is not, or not only, a model that transformers loads by its name",
         "If it is a repository of the Hub: it holds an adapter (adapter_config.json), weights in another format "
         "(GGUF, a file of another library, a pipeline of diffusers with model_index.json), has the model in a "
         "subfolder, or its upload is not complete. If it is a folder of this machine: its save or copy is not "
         "complete, or it holds shards or an adapter.",
         (_SEE_FILES,
          Fix("Load what is there with the class that it is for.",
              ("PeftModel.from_pretrained(base_model, ADAPTER)", "DiffusionPipeline.from_pretrained(MODEL)",
               "from_pretrained(MODEL, subfolder='NAME')")),
          _LIST),
         "OSError: org/model does not appear to have a file named config.json. Checkout "
         "'https://huggingface.co/org/model/tree/main' for available files.\n", _HUB),
    Case(said(r"named \S*config\.json"),
         "{folder} is not a complete model: it has no config.json",
         "It is the folder above the model, holds an adapter only (adapter_config.json), holds shards of FSDP, ZeRO or "
         "Megatron (global_step*, *.distcp, mp_rank_*), or its save or download was interrupted.",
         (_LIST,
          Fix("Load an adapter through its base model, and merge shards first.",
              ("PeftModel.from_pretrained(base_model, ADAPTER)",
               "accelerate merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUTPUT",
               "python zero_to_fp32.py CHECKPOINT OUTPUT"))),
         _MISSING.format(frame="infer.py", folder="out/checkpoint-100", file="config.json"), _HUB),
    Case(said(r"named \(?'?\S*(?:pytorch_model|model|weights)\S*\.(?:bin|safetensors|pt)"),
         "{folder} has a config but no weights that transformers can load ({file})",
         "The weights are in shards (FSDP, ZeRO), belong to an adapter, or their save or download was interrupted.",
         (_LIST,
          Fix("Merge a sharded checkpoint first.",
              ("accelerate merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUTPUT",
               "python zero_to_fp32.py CHECKPOINT OUTPUT")),
          Fix("Or download the missing files.", ("hf download ORG/MODEL",))),
         _MISSING.format(frame="infer.py", folder="out/checkpoint-100", file="pytorch_model.bin"), _HUB),
)


def _opened_by_script(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the script itself opened the file: no library that loads models is among the frames."""
    return raised is not None and "" in raised.packages and not {*raised.packages} - {"", "safetensors", "torch"}


WEIGHTS = (
    Case(said(r"global_step_\d+/(?:actor|critic)"),
         "a checkpoint of verl in shards is loaded as if it were a model: its folder huggingface/ has no weights",
         "verl saves one part per rank (model_world_size_8_rank_0.pt) next to the folder huggingface/, which has the "
         "config and the tokenizer.",
         (_MERGE_VERL,),
         'Traceback (most recent call last):\n  File "/x/infer.py", line 3, in main\n    x = load(folder)\n'
         "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5, model.ckpt.index or "
         "flax_model.msgpack found in directory ckpt/global_step_20/actor/huggingface.", _VERL),
    Case(either(said(r"-\d{5}-of-\d{5}\.safetensors"), said(r"-\d{5}-of-\d{5}\.bin")),
         "one of the model's weight files is missing, which its index lists: the download or save was interrupted",
         "model.safetensors.index.json names all parts. One of them is not here: a download that stopped, a full disk, "
         "or a copy that left files out. Other nodes may have it.",
         (Fix("Compare the parts with the index, on every node.", ("ls -la MODEL_FOLDER",)),
          Fix("Download the rest.", ("hf download ORG/MODEL --local-dir MODEL_FOLDER", "df -h MODEL_FOLDER"))),
         'Traceback (most recent call last):\n  File "/x/infer.py", line 3, in main\n    x = load(folder)\n'
         "FileNotFoundError: No such file or directory: \"/data/m/model-00001-of-00004.safetensors\"",
         "https://huggingface.co/docs/huggingface_hub/guides/download"),
    Case(_opened_by_script,
         "the safetensors file that the script opens does not exist: {the_line}",
         "The path is relative to another folder, is misspelled, or the file was not downloaded or written there.",
         (Fix("Check the folder in which the run was started, and what is there.", ("pwd; ls -l FILE",)),),
         'Traceback (most recent call last):\n  File "/home/ada/merge.py", line 7, in <module>\n'
         '    state = load_file("lora.safetensors")\n'
         '  File "/x/site-packages/safetensors/torch.py", line 381, in load_file\n    with safe_open(filename) as f:\n'
         'FileNotFoundError: No such file or directory: "lora.safetensors"',
         "https://huggingface.co/docs/safetensors/index"),
)
# fmt: on
