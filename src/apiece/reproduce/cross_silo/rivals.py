"""The methods that compete on a cross-silo federation, each with a small grid around the same step sizes and pulls."""

from typing import Any, NamedTuple

from apiece.experiment.contest import Rival

STEPS, TUNE_STEPS = 10, 20  # of all examples each: a silo has few rows and no hurry
PULLS = (0.03, 0.3, 3.0)
# Those of a quick run, and those of the pictures.
FEW = ("local", "fed_avg", "ditto")
SHOWN = (*FEW, "rtfa", "pfedme", "apfl", "fed_clup")
RIDGE = ("rtfa", "ditto", "pfedme")
IMPERSONAL = ("local", "fed_avg", "scaffold")  # no model of one's own, or nothing shared


class Sizes(NamedTuple):
    """Step sizes that fit a federation's curvature: of the training, of a full gradient, of pFedMe's inner solve."""

    lrs: tuple[float, ...]
    full: tuple[float, ...]
    prox: float


def rivals(sizes: Sizes) -> dict[str, Rival]:
    """By name; every client makes ten steps a round, except where a method's own rule says how many.

    The contest names its rivals itself, so that it stays the one that was published: a method that came to the catalog
    later has no place here until somebody enters it and runs the contest again. Left out of those before: `all_for_one`
    (a model for one client), `al2sgd` (the problem of `fed_clup` and `l2gd`), `fed_adam` (the problem of `fed_avg`),
    and the splits by layer, as these models have one layer.

    >>> sorted(rivals(Sizes((0.1,), (1.0,), 0.05))["ditto"].grid)
    ['lam', 'lr']
    """
    lrs, middle = sizes.lrs, sizes.lrs[len(sizes.lrs) // 2]
    work = dict(steps=STEPS, batch=0)
    after: dict[str, Any] = dict(tune_epochs=None, tune_steps=TUNE_STEPS)
    lr, pulled = dict(lr=lrs), dict(lr=lrs, lam=PULLS)
    split: dict[str, Any] = dict(private="b", batch=0, start="kept", **after)
    return {
        "local": Rival("local", work, lr),
        "fed_avg": Rival("fed_avg", work, lr),
        "fed_prox": Rival("fed_prox", work, pulled),
        "scaffold": Rival("scaffold", work, lr),
        "ftfa": Rival("ftfa", {**work, **after}, dict(lr=lrs, tune_lr=lrs)),
        "rtfa": Rival("rtfa", {**work, **after}, dict(tune_lr=lrs, **pulled)),
        "maml_fl": Rival("maml_fl", {**work, **after}, dict(lr=lrs, tune_lr=lrs)),
        "ditto": Rival("ditto", work, pulled),
        "pfedme": Rival("pfedme", {**work, "prox_lr": sizes.prox}, dict(lam=(1.0, 5.0, 15.0))),
        "apfl": Rival("apfl", work, dict(lr=lrs, mix=(0.25, 0.5, 0.75))),
        "fed_clup": Rival("fed_clup", work, pulled),
        "dynamic_lambda": Rival("dynamic_lambda", {**work, "alone_steps": 100}, lr),
        "l2gd": Rival("l2gd", dict(batch=0, p=1 / STEPS), pulled),
        "chen_two_stage": Rival("chen_two_stage", {**work, **after}, dict(tune_lr=lrs, **pulled)),
        "self_fl": Rival("self_fl", dict(rule="bayes", batch=0, tune_lr=middle), lr),
        "all_for_all": Rival(
            "all_for_all", dict(steps=1, batch=0, by="gradients", warmup=5), dict(lr=sizes.full, eps=(0.3, 1.0, 3.0))
        ),
        "partial": Rival("partial", {**work, "private": "b"}, lr),
        "ffgg": Rival("ffgg", {**split, "inner_lr": middle}, dict(lr=sizes.full)),
        "local_ffgg": Rival("local_ffgg", {**split, "steps": STEPS, "inner_lr": middle}, lr),
    }
