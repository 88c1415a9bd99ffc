"""A site's own models on its own test rows, offline."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.client.draw import whole
from apiece.deploy.site import Site, open_site
from apiece.errors import UserError


def evaluate_site(folder: Path, method: str | None = None) -> dict[str, dict[str, Any]]:
    """Loss and score of each of the site's models (or of one method's) on its test rows."""
    opened, site = open_site(folder), Site(folder)
    if site.product is None:
        raise UserError(f"nothing is agreed with the site in {folder} yet; it has not taken part in a run")
    data, found = site.parts["test"], {}
    if not data.size:
        raise UserError(f"the site in {folder} has no test rows")
    names = [method] if method is not None else list(site.product.methods)
    scaling = site.product.scaled()
    factor = 1.0 if scaling is None else scaling.target_spread**2
    for name in names:
        model = opened.personal(site.config.name, method=name)
        place = opened.maker(name).bench.place
        judge = jax.jit(lambda model, data, of=place.objective.outcomes: of(model, whole(data)))
        loss, error = (np.asarray(one)[: int(data.size)] for one in judge(model, data)[:2])
        value = float(1 - error.mean()) if place.score == "accuracy" else float(error.mean()) * factor
        kept = loss if place.score == "accuracy" else loss * factor
        found[name] = {"score": place.score, "value": value, "loss": float(kept.mean()), "examples": int(data.size)}
    return found
