"""Did a run with rewards learn nothing, although it ended without an error?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log

_LEAST = 10  # logged steps: a difficult batch has no successful completion, ten in a row are no accident
_LENGTH = re.compile(r"['\"](?:completions/mean_length|completion_length)['\"]: ['\"]?(?P<tokens>\d+(?:\.\d+)?)")
_REWARD = re.compile(r"['\"]reward['\"]: ['\"]?(?P<mean>-?\d[\d.e+-]*)")


@check(
    Severity.ERROR,
    source="https://huggingface.co/docs/trl/main/en/grpo_trainer#computing-the-advantage",
    role="root",
    kind="script",
    tags=("precise",),
)
def log_rewards_never_differ(log: Log) -> Answer:
    """All completions of a prompt got the same reward in every logged step: the model did not change.

    Why: GRPO and its relatives compare the rewards within a group. If all of them are equal (reward_std is 0), every
    advantage is 0, and so are loss and gradient.

    Fix: Print some completions and their rewards. Often they are cut before the answer, or the reward function does
    not find the answer.
    """
    same = next((one for one in log.shows if one.name == "rewards_same"), None)
    if same is None or same.times < _LEAST:
        return Ok("no steps in which all rewards are equal")
    if any(one.name == "rewards_differ" for one in log.shows):
        return Ok("rewards differ in other steps")
    if any(not one.caught for one in log.raised):
        return Ok("the log has an error")
    length, reward = _LENGTH.search(same.text), _REWARD.search(same.text)
    mean = f" (reward {reward['mean']})" if reward else ""
    cut = f" The completions of the first such step have {length['tokens']} tokens on average." if length else ""
    return Problem(
        f"the model learned nothing: all rewards of a group are equal in each of {same.times} logged steps{mean}",
        "reward_std and grad_norm are 0 in every one of them. The advantage of a completion is its reward compared "
        f"with the others of its group: with equal rewards, advantage, loss and gradient are 0.{cut} If that is the "
        "limit of their length, they are cut before the answer, and the reward function finds none.",
        (
            Fix(
                "Print some completions with their rewards, and call the reward function with a correct answer.",
                ("GRPOConfig(..., log_completions=True)",),
            ),
            Fix(
                "If they are cut, allow longer ones. A model that thinks first needs thousands of tokens, or thinking "
                "turned off in its chat template.",
                ("GRPOConfig(..., max_completion_length=2048)",),
            ),
            Fix("If the answers are complete, use easier prompts, more completions per prompt, or partial rewards."),
        ),
        {"line": same.text, "times": same.times},
        place=Place(same.file, same.line),
    )
