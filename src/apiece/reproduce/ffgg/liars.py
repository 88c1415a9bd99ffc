"""FFGG's problems for clients that lie: every rule under every attack, in few compiled programs."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from apiece.aggregate import Rule
from apiece.methods import CATALOG
from apiece.protocol import Data, Method, Params, Tree
from apiece.reproduce.ffgg.private_quadratics import Problems, Quadratics, loss, shared_and_apart, times
from apiece.reproduce.repeat import repeated
from apiece.split import split
from apiece.wrap import attacked, robust
from apiece.wrap.attacks import Attack, Scene
from apiece.wrap.attacks import attack as attack_named

SHARED, PRIVATE, STEP, ROUNDS, LOOK = 10, 4, 0.3, 400, 5
OPTIMA = ("shared", "apart")


class World(NamedTuple):
    """How many clients, of whom the last ones lie, and where the eigenvalues of the J_m are."""

    clients: int
    liars: int
    spectrum: tuple[float, float]

    @property
    def honest(self) -> slice:
        """The others."""
        return slice(self.clients - self.liars)

    @property
    def lying(self) -> tuple[int, ...]:
        """Who lies."""
        return tuple(range(self.clients - self.liars, self.clients))


MANY = World(20, 4, (0.5, 1.5))  # liars: far more than the proof allows
FEW = World(40, 2, (0.6, 1.4))  # as many as it allows
CLIENTS, LIARS, HONEST = MANY.clients, MANY.lying, MANY.honest


def target_flip() -> Attack:
    """The label flip of least squares: negated targets.

    >>> mine = Data(x=None, y=(np.array([1.0, -2.0]),), start=0, size=2)
    >>> [y.tolist() for y in target_flip().data(mine).y]
    [[-1.0, 2.0]]
    """
    return Attack(data=lambda data: dataclasses.replace(data, y=jax.tree.map(lambda y: -y, data.y)))


ATTACKS: dict[str, Attack] = {
    "sign flip": attack_named("sign_flip", scale=3.0, of="honest"),
    "ALIE": attack_named("alie"),
    "inner product": attack_named("inner_product", eps=0.5),
    "noise": attack_named("noise", scale=10.0),
    "mimic": attack_named("mimic"),
    "target flip": target_flip(),
}


def one_of(attacks: Mapping[str, Attack], which: Any) -> Attack:
    """The attack of that number, which may be traced: all attacks share one compiled program.

    >>> both = one_of({"noise": attack_named("noise"), "flip": attack_named("sign_flip")}, 1)
    >>> rows, liar = jnp.array([[1.0], [5.0]]), jnp.array([False, True])
    >>> both.forge(Scene(rows, ~liar, liar, jnp.arange(2), jax.random.key(0)), both.init(rows[0], None))[0].tolist()
    [[-1.0], [-5.0]]
    """
    every = list(attacks.values())

    def forge(scene: Scene, memories: Tree) -> tuple[jax.Array, Tree]:
        asis = lambda scene, memory: (scene.rows, memory)
        made = [(one.forge or asis)(scene, memory) for one, memory in zip(every, memories, strict=True)]
        rows = jnp.stack([jnp.broadcast_to(row, scene.rows.shape) for row, _ in made])
        return rows[which], tuple(memory for _, memory in made)

    def spoil(data: Data) -> Data:
        seen = [one.data(data).y if one.data else data.y for one in every]
        return dataclasses.replace(data, y=jax.tree.map(lambda *leaves: jnp.stack(leaves)[which], *seen))

    remember = lambda row, key: tuple(one.init(row, key) if one.init else () for one in every)
    return Attack(forge, spoil if any(one.data for one in every) else None, remember)


BASES: dict[str, dict[str, Any]] = {
    "Krum": {"name": "krum", "byzantine": len(LIARS)},
    "median": {"name": "median"},
    "geometric median": {"name": "geometric_median", "steps": 8},
    "trimmed mean": {"name": "trimmed_mean", "trim": len(LIARS)},
    "centered clipping": {"name": "centered_clipping", "radius": 1.0},
}
BUCKETED = {f"{name}, buckets": {"name": "bucketing", "size": 2, "rule": base} for name, base in BASES.items()}
MIXED = {"Krum after mixing": {"name": "nearest_neighbour_mixing", "byzantine": len(LIARS), "rule": BASES["Krum"]}}
RULES: dict[str, dict[str, Any]] = {"mean": {"name": "plain_mean"}, **BUCKETED, **MIXED, **BASES}


def rule_of(rules: list[Rule], which: Any) -> Rule:
    """The rule of that number, which may be traced.

    >>> from apiece.aggregate import rule
    >>> both = rule_of([rule("median"), rule("plain_mean")], 1)
    >>> both(jnp.array([1.0, 2.0, 9.0]), jnp.ones(3)).item()
    4.0
    """
    combine = lambda *seen: jnp.stack([one.combine(*seen) for one in rules])[which]
    return Rule(combine, remembers=any(one.remembers for one in rules))


def problems(instances: int, world: World = MANY) -> tuple[Problems, NDArray]:
    """All instances with the optima shared, then all with the optima apart; and the honest optimum of each.

    >>> made, best = problems(2)
    >>> made.f.t.shape, best.shape, bool(np.allclose(best[:2], best[2:], atol=1e-6))
    ((4, 20, 10), (4, 10), False)
    """
    sizes = world.clients, SHARED, PRIVATE
    made = shared_and_apart(instances, sizes, lambda rng, shape: rng.uniform(*world.spectrum, shape))
    forces = times(made.j, made.optima)[:, world.honest].mean(1)
    return made, np.linalg.solve(made.j[:, world.honest].mean(1), forces[..., None])[..., 0]


def errors(rules: list[Rule], attacks: Mapping[str, Attack], instances: int) -> NDArray:
    """The distance to the honest optimum, [rules, attacks, shared or apart, instances, looks]."""
    made, best = problems(instances)
    found = distances(rules, attacks, made.f, best, np.full((len(rules), len(best)), STEP), MANY, ROUNDS)
    return found.reshape(*found.shape[:2], len(OPTIMA), instances, -1)


def distances(
    rules: list[Rule],
    attacks: Mapping[str, Attack],
    f: Quadratics,
    best: NDArray,
    steps: NDArray,
    world: World,
    rounds: int,
) -> NDArray:
    """The distance to `best` [problems, d], [rules, attacks, problems, looks]; steps [rules, problems]."""
    shape = len(rules), len(attacks), len(best)
    each = lambda part: np.broadcast_to(part, shape[:2] + part.shape).reshape(-1, *part.shape[1:])
    reply = lambda params: split(params, "w")[0]

    def build(hyper: dict[str, Any], round: Any) -> Method:
        base = CATALOG["ffgg"](loss, private="w", start="zero", inner_steps=1, inner_lr=1.0, lr=hyper["lr"], batch=0)
        defended = robust(base, rule_of(rules, hyper["rule"]), reply=reply)
        return attacked(defended, one_of(attacks, hyper["attack"]), clients=world.lying, reply=reply)

    def look(server: Tree, models: Params, given: Tree) -> Tree:
        return jnp.linalg.norm(server.inner.inner["theta"] - given)

    x, y = jax.tree.map(each, f.examples())
    of_rule, of_attack, of_problem = (grid.ravel() for grid in np.indices(shape))
    hyper = {"rule": of_rule, "attack": of_attack, "lr": steps[of_rule, of_problem]}
    found = repeated(build, f.start(), x, y, look, rounds=rounds, every=LOOK, given=each(best), hyper=hyper)
    return found.reshape(*shape, -1)
