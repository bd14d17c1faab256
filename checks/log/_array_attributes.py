"""Which kind of object did the script's line expect where it has a tensor or an array? The attribute's name shows it.

Python's message has only the type and the name: "'Tensor' object has no attribute 'append'".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException

from ._own_objects import NAME, Meaning

_LACKS = re.compile(
    r"^'(?P<type>(?:torch\.)?(?:\w*Tensor|nn\.Parameter|Parameter)|numpy\.ndarray)' object has no attribute "
    r"'(?P<name>\w+)'"
)
_NOT_TORCH = frozenset({"tensorflow", "keras", "tf_keras", "paddle", "mindspore", "jax", "mxnet", "oneflow"})
# Types of other frameworks: TensorFlow's, and those of quantized or sharded parameters, which say more.
_OTHER_TYPES = re.compile(r"(?:Eager|Symbolic|Keras|Ragged|Sparse|Fake|Meta|D|Sharded|\wbit)Tensor$")


class _Expected(NamedTuple):
    """A kind of object, by the names that it has and neither tensors nor arrays have."""

    what: str
    names: frozenset[str]
    why: str
    of_tensor: tuple[Fix, ...]  # none: such a name says something else of a tensor
    of_array: tuple[Fix, ...]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# fmt: off
_AS_PIL = Fix("Or let the pipeline of diffusers return images.", ("pipe(..., output_type='pil').images[0]",))
_OWN_NAME = "Give the two different names: the line that computes one from the other also replaces it."
_DICT = Fix("Print what it is. Take the item by its place, or let the dataset, the collate function or the model "
            "return a dict.", ("print(type(x), getattr(x, 'shape', None))",))
_TEXT = Fix("Decode token ids, or take the text from where it was before it was encoded.",
            ("tokenizer.batch_decode(ids, skip_special_tokens=True)", "print(type(x), x)"))
_EXPECTED = (
    _Expected("an image of PIL", _names("save show convert crop paste thumbnail getpixel putpixel getbands getdata "
                                        "rotate alpha_composite"),
              "What made it returns numbers: a pipeline with output_type='np', 'pt' or 'latent', a decoder, cv2, or a "
              "transform that ran before (ToTensor).",
              (Fix("Make an image of it. Its values are from 0 to 1, and the first dimension is the channels.",
                   ("torchvision.utils.save_image(x, 'x.png')",
                    "torchvision.transforms.functional.to_pil_image(x.clamp(0, 1).cpu())")), _AS_PIL),
              (Fix("Make an image of it; values from 0 to 1 are scaled first.",
                   ("Image.fromarray(x)  # uint8, 0 to 255", "Image.fromarray((x * 255).round().astype('uint8'))")),
               _AS_PIL)),
    _Expected("a list", _names("append extend insert remove pop index"),
              "A list of this name was replaced: np.array(x), torch.stack(x), torch.cat(x) or a function that returns "
              "one. Both have a fixed size.",
              (Fix(_OWN_NAME, ("losses.append(loss.item())", "stacked = torch.stack(outputs)")),
               Fix("Or join tensors.", ("x = torch.cat([x, y])",))),
              (Fix(_OWN_NAME, ("values.append(v)", "array = np.array(values)")),
               Fix("Or join arrays. It copies: not in every step.", ("x = np.append(x, v)",)))),
    _Expected("a dict", _names("keys items get update setdefault"),
              "A dataset, a collate function or a model returned the value itself, or a tuple that was unpacked.",
              (_DICT,), (_DICT,)),
    _Expected("a text", _names("lower upper strip lstrip rstrip startswith endswith encode decode format join replace "
                               "splitlines"),
              "It has numbers: token ids that were not decoded, or labels, or texts as an array, of which each item is "
              "one.", (_TEXT,), (_TEXT, Fix("For an array of texts, take each item.", ("[t.lower() for t in x]",)))),
    _Expected("the output object of a model", _names(
                  "logits loss last_hidden_state hidden_states pooler_output attentions past_key_values sequences "
                  "image_embeds text_embeds prev_sample latent_dist images"),
              "The model or function returned the tensor itself: one that is no model of transformers or diffusers, a "
              "call with return_dict=False, or another release.",
              (Fix("Use the tensor as it is, or ask for the object.",
                   ("print(type(outputs))", "model(**batch, return_dict=True)")),), ()),
    _Expected("a distribution or the output of a model", _names("sample rsample log_prob entropy"),
              "A policy or an encoder returned the numbers themselves (logits, a mean, latents), or the model returns "
              "no object (diffusers: return_dict=False).",
              (Fix("Make the distribution of it, or use the tensor as it is.",
                   ("torch.distributions.Categorical(logits=x).sample()", "print(type(x), x.shape)")),), ()),
    _Expected("a model or an optimizer", _names("parameters named_parameters state_dict load_state_dict zero_grad step "
                                                "eval train modules children forward"),
              "A name was probably used twice: model = model(x) or optimizer = loss(...) replaces the object.",
              (Fix("Give the result another name.", ("out = model(x)",)),), ()),
    _Expected("a table of pandas", _names("iloc loc columns to_numpy head dropna fillna groupby drop apply map "
                                          "value_counts to_csv isin iterrows"),
              "to_numpy(), .values, a scaler or a split of scikit-learn returns the numbers without the table.",
              (Fix("Keep the table under its own name, or use positions.", ("x[:, 0]",)),),
              (Fix("Keep the table under its own name, or make one again.",
                   ("x[:, 0]", "df = pd.DataFrame(x, columns=names)")),)),
    _Expected("an array of numpy", _names("astype copy tobytes tofile asnumpy fill put itemset ptp"),
              "The two have other names for the same.",
              (Fix("Use torch's name, or make an array of it.",
                   ("x.to(torch.float32)  # astype", "x.clone()  # copy", "x.detach().cpu().numpy()")),), ()),
    _Expected("one of matplotlib's axes", _names(
                  "plot imshow scatter hist bar barh boxplot errorbar fill_between axhline axvline legend axis "
                  "set_title set_xlabel set_ylabel set_xlim set_ylim set_xticks set_yticks set_xscale set_yscale"),
              "plt.subplots() with several rows or columns returns an array: of one dimension for one row or column, "
              "else of two.", (),
              (Fix("Take one of them, or make the array flat.",
                   ("axes[0, 1].plot(x)", "axes = axes.ravel()", "print(axes.shape)")),)),
)
# fmt: on


def lacks_attribute(one: UncaughtException) -> Meaning | None:
    """Explain an attribute that a tensor or an array lacks; None if its name does not show what was expected."""
    found = _LACKS.match(one.message)
    own = one.packages[-1:] in ((), ("",))
    if not found or not own or not _NOT_TORCH.isdisjoint(one.packages) or _OTHER_TYPES.search(found["type"]):
        return None
    of_array, name = found["type"] == "numpy.ndarray", found["name"]
    for kind in _EXPECTED:
        fixes = kind.of_array if of_array else kind.of_tensor
        if fixes and name in kind.names:
            is_a = "an array of numpy" if of_array else "a tensor"
            uses = f"{one.place} uses it" if one.place else "the code uses it"
            return Meaning(
                f"{_owner(one, name)} is {is_a}, and {uses} as {kind.what}: it has no {name}", kind.why, fixes
            )
    return None if of_array else _unknown(one, name)


def _owner(one: UncaughtException, name: str) -> str:
    """Return what the line reads the attribute of, if it reads it once; else "a value"."""
    owners = re.findall(rf"(?<![\w.\])])({NAME})\.{name}\b", one.code or "")
    return owners[0] if len(owners) == 1 else "a value"


def _unknown(one: UncaughtException, name: str) -> Meaning | None:
    """Explain another name that a tensor lacks; None if Python suggests one."""
    if "Did you mean" in one.message or not one.place:
        return None
    owner = _owner(one, name)
    return Meaning(
        f"{owner} is a tensor, which has no {name}, and {one.place} reads it",
        "It is another object than the code was written for: a result that replaced what had the name before, the "
        "tensor in place of the object that holds it, or a name of another framework or release of torch.",
        (
            Fix(
                "Print what it is before that line, and look where it is made.",
                (python("print(type({:dotted}), {:dotted}.shape)", owner, owner) or "print(type(x), x.shape)",),
            ),
        ),
    )
