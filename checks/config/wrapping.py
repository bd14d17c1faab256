"""What does fsdp_config wrap: which layers become FSDP units of their own?"""

from __future__ import annotations

from mgpu.check import Answer, Edit, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Config

from ._config_file import PLUGINS, place_of
from ._schema import FSDP, entries, fsdp_settings, has_fsdp, policy
from ._spelling import shown


@check(Severity.ERROR, source=PLUGINS)
def config_fsdp_layer_unreadable(config: Config) -> Answer:
    """fsdp_transformer_layer_cls_to_wrap is no comma-separated text of class names.

    Why: The plugin splits the text at commas and takes each piece literally; every worker stops.
    More: Blanks included, among the model's classes. A list arrives as the text "['A', 'B']"; an empty text is looked
    for as well: "Could not find the transformer layer class".

    Fix: class names with commas and no blanks between them; nothing at all to take the model's own list.
    """
    values = fsdp_settings(config)
    if policy(values) != "TRANSFORMER_BASED_WRAP" or "fsdp_transformer_layer_cls_to_wrap" not in values:
        return Skip("no layer class is asked for")
    value = values["fsdp_transformer_layer_cls_to_wrap"]
    at = entries(config, FSDP)["fsdp_transformer_layer_cls_to_wrap"]
    if value is None:
        return Ok("the model's own list")
    if isinstance(value, str) and value and all(name and name == name.strip() for name in value.split(",")):
        return Ok(value)
    names = value if isinstance(value, list) else str(value).split(",")
    clean = [str(name).strip() for name in names if isinstance(name, str) and name.strip()]
    edit = Edit("set", at, ",".join(clean)) if clean else Edit("delete", at)
    what = "is a list" if isinstance(value, list) else "names no class" if not clean else "has blanks or empty names"
    return Problem(
        f"{at}: {shown(value)} {what}",
        fix=Fix(
            f"Write {','.join(clean)}." if clean else "Delete it: the model's own _no_split_modules are then taken.",
            edits=(edit,) if clean or not value else (),
        ),
        place=place_of(config, at),
    )


@check(Severity.WARNING, source=PLUGINS, given=has_fsdp)
def config_fsdp_layer_unused(config: Config) -> Answer:
    """fsdp_config names what to wrap, and no policy that wraps it.

    Why: fsdp_transformer_layer_cls_to_wrap counts only with TRANSFORMER_BASED_WRAP, fsdp_min_num_params only with
    SIZE_BASED_WRAP. Without, the whole model is one unit: all its weights are gathered at once, and little memory is
    saved.

    Fix: the policy that reads the key.
    """
    values = fsdp_settings(config)
    chosen, dotted = policy(values), entries(config, FSDP)
    if chosen == "SIZE_BASED_WRAP" and str(values.get("fsdp_min_num_params", 1)) == "0":
        return _no_wrap(
            config, dotted["fsdp_min_num_params"], ": 0 wraps nothing", "Write the size of a layer: 1000000."
        )
    readers = {"fsdp_transformer_layer_cls_to_wrap": "TRANSFORMER_BASED_WRAP", "fsdp_min_num_params": "SIZE_BASED_WRAP"}
    for key, reader in readers.items():
        if chosen == "NO_WRAP" and values.get(key):
            absent = "fsdp_auto_wrap_policy" not in values
            edits = (Edit("set", "fsdp_config.fsdp_auto_wrap_policy", reader),) if absent else ()
            title = f" is not applied without fsdp_auto_wrap_policy: {reader}"
            return _no_wrap(config, dotted[key], title, f"Write fsdp_auto_wrap_policy: {reader}.", edits)
    return Ok(f"fsdp_auto_wrap_policy {chosen}")


def _no_wrap(config: Config, at: str, words: str, fix: str, edits: tuple[Edit, ...] = ()) -> Problem:
    return Problem(
        f"{at}{words}",
        "The whole model is one FSDP unit: every rank gathers all weights at once.",
        Fix(fix, edits=edits),
        place=place_of(config, at),
    )


@check(Severity.INFO, source=PLUGINS, given=has_fsdp)
def config_fsdp_layer_unnamed(config: Config) -> Answer:
    """fsdp_config leaves it to the model what is wrapped.

    Why: Models of transformers name their layers; a model that does not is gathered whole.
    More: Without a policy the whole model is one unit. With TRANSFORMER_BASED_WRAP and no class the model's own
    _no_split_modules are taken; where there are none it is one unit again, without a word.

    Fix: For your own model write fsdp_transformer_layer_cls_to_wrap: with the class of its layers.
    More: Models of transformers need nothing.
    """
    values = fsdp_settings(config)
    named = values.get("fsdp_transformer_layer_cls_to_wrap") is not None  # whether it can be read asks another check
    if named or policy(values) == "SIZE_BASED_WRAP" or values.get("fsdp_auto_wrap_policy") is not None:
        if named or policy(values) != "TRANSFORMER_BASED_WRAP":
            return Ok(f"fsdp_auto_wrap_policy {policy(values)}")
        words = "no layer class is named: the model's own _no_split_modules are wrapped"
        at = entries(config, FSDP)["fsdp_auto_wrap_policy"]
    elif values.get("fsdp_min_num_params"):
        return Ok("config_fsdp_layer_unused says more")
    else:
        words, at = "fsdp_config has no fsdp_auto_wrap_policy: the whole model is one FSDP unit", "fsdp_config"
    return Problem(words, place=place_of(config, at))
