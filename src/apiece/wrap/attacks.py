"""What Byzantine clients do: to their data, or to the replies they send.

An `Attack` is made by a factory (`alie()`, `noise(scale=3.0)`); `apiece.wrap.attacked` lets chosen clients of a
method carry it out. Attacks on replies may be omniscient: they see what the honest clients of the round send (a
`Scene`). All of it runs inside the compiled program; who is honest and who takes part may be traced.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from apiece.aggregate import plain_mean
from apiece.errors import UserError, suggest
from apiece.protocol import Data, Tree
from apiece.registry import Registry

Memory = Tree


class Scene(NamedTuple):
    """A round as the attackers see it: replies as rows of a matrix, who is honest, who attacks, whose row it is, a key.

    Who is neither honest nor an attacker is absent, and its row zero. An attacker's row is the work it has really done.

    >>> rows = jnp.array([[1.0], [3.0], [9.0]])
    >>> scene = Scene(rows, jnp.array([True, True, False]), jnp.array([False, False, True]), jnp.arange(3), None)
    >>> sign_flip(of="honest").forge(scene, ())[0].tolist()
    [-2.0]
    """

    rows: jax.Array
    honest: jax.Array
    byzantine: jax.Array
    ids: jax.Array
    key: Tree


class Attack(NamedTuple):
    """`forge`: (scene, memory) -> (a row for all attackers, or a row for each place; memory). `data`: what is done to
    one's own data instead. `init`: (a row of zeros, key) -> the memory of an attack that has one. `omniscient`: what is
    forged is made of what the honest send.

    >>> noise().data is None and label_flip(classes=10).forge is None
    True
    >>> [name for name in ("noise", "sign_flip", "alie", "mimic") if attack(name).omniscient]
    ['alie', 'mimic']
    """

    forge: Callable[[Scene, Memory], tuple[jax.Array, Memory]] | None = None
    data: Callable[[Data], Data] | None = None
    init: Callable[[jax.Array, Tree], Memory] | None = None
    omniscient: bool = False


def sign_flip(*, scale: Tree = 1.0, of: str = "own") -> Attack:
    """Sends -scale times its own reply (of="own"), or -scale times the mean of the honest ones (of="honest").

    >>> attacks = jnp.array([False, True])
    >>> scene = Scene(jnp.array([[1.0], [5.0]]), ~attacks, attacks, jnp.arange(2), None)
    >>> sign_flip(scale=2.0).forge(scene, ())[0][1].tolist()
    [-10.0]
    >>> sign_flip(scale=2.0, of="honest").forge(scene, ())[0].tolist()
    [-2.0]
    """
    if of not in ("own", "honest"):
        raise UserError(f"option 'of' of the attack 'sign_flip' is unknown: '{of}'; {suggest(of, ('own', 'honest'))}")
    if of == "own":
        return _forging(lambda scene: -scale * scene.rows)
    return _forging(lambda scene: -scale * _honest_mean(scene), omniscient=True)


def scaled(*, scale: Tree = 10.0) -> Attack:
    """Sends `scale` times its own reply.

    >>> attacks = jnp.array([False, True])
    >>> scene = Scene(jnp.array([[1.0], [5.0]]), ~attacks, attacks, jnp.arange(2), None)
    >>> scaled(scale=3.0).forge(scene, ())[0][1].tolist()
    [15.0]
    """
    return _forging(lambda scene: scale * scene.rows)


def label_flip(*, classes: int) -> Attack:
    """Takes the label y of its own examples for classes - 1 - y, and works honestly on that.

    >>> mine = Data(x=jnp.zeros(3), y=jnp.array([0, 1, 9]), start=0, size=3)
    >>> label_flip(classes=10).data(mine).y.tolist()
    [9, 8, 0]
    """

    def flip(data: Data) -> Data:
        if not jnp.issubdtype(jnp.result_type(data.y), jnp.integer):
            raise UserError("the attack 'label_flip' needs labels that are whole numbers: it is for classification")
        return dataclasses.replace(data, y=classes - 1 - data.y)

    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise UserError(f"option 'classes' of the attack 'label_flip' is a whole number of at least 2, not {classes!r}")
    return Attack(data=flip)


def alie(*, z: Tree | None = None) -> Attack:
    """A Little Is Enough: as far from the honest as their own spread hides (Baruch et al. 2019).

    Sends mean - z std of the honest replies, coordinate by coordinate (std with n - f - 1 in the denominator). Without
    `z` it is `most_hidden_z` of the present n, of whom f attack.

    >>> rows = jnp.array([[1.0], [3.0], [0.0]])
    >>> scene = Scene(rows, jnp.array([True, True, False]), jnp.array([False, False, True]), jnp.arange(3), None)
    >>> alie(z=1.0).forge(scene, ())[0].item().__round__(4)
    0.5858
    """

    def forge(scene: Scene) -> jax.Array:
        honest = scene.honest.sum()
        center = _honest_mean(scene)
        apart = jnp.where(scene.honest[:, None], scene.rows - center, 0)
        spread = jnp.sqrt((apart**2).sum(axis=0) / jnp.maximum(honest - 1, 1))
        far = most_hidden_z(honest + scene.byzantine.sum(), scene.byzantine.sum()) if z is None else z
        return center - far * spread

    return _forging(forge, omniscient=True)


def most_hidden_z(n: Tree, byzantine: Tree) -> jax.Array:
    """ALIE's z: Phi^-1((n - f - s) / (n - f)), s = floor(n / 2 + 1) - f, the honest whom a majority still needs.

    Where that is undefined (two or fewer, or a majority of attackers), the nearest argument that is.

    >>> most_hidden_z(25, 5).item().__round__(4), most_hidden_z(10, 2).item()
    (0.2533, 0.0)
    """
    honest = jnp.maximum(jnp.asarray(n) - byzantine, 1)
    needed = jnp.asarray(n) // 2 + 1 - byzantine
    half_a_client = 0.5 / honest
    return ndtri(jnp.clip((honest - needed) / honest, half_a_client, 1 - half_a_client))


def inner_product(*, eps: Tree = 0.1) -> Attack:
    """Inner-product manipulation: sends -eps times the mean of the honest replies (Xie et al. 2020).

    A small eps shortens the step unseen, one above 1 tries to turn it round.

    >>> attacks = jnp.array([False, True])
    >>> scene = Scene(jnp.array([[1.0], [5.0]]), ~attacks, attacks, jnp.arange(2), None)
    >>> inner_product(eps=0.5).forge(scene, ())[0].tolist()
    [-0.5]
    """
    return _forging(lambda scene: -eps * _honest_mean(scene), omniscient=True)


class Mimicry(NamedTuple):
    """What `mimic` remembers: the direction, the rounds it has learned for, the client it copies (-1: none yet).

    >>> Mimicry._fields
    ('z', 'rounds', 'target')
    """

    z: jax.Array
    rounds: jax.Array
    target: jax.Array


def mimic(*, warmup: int = 50) -> Attack:
    """All attackers copy one honest client, so that it is counted too often (Karimireddy et al. 2022).

    While learning, for `warmup` rounds (t = 0, 1, ...): z <- normalized(t / (1 + t) z + 1 / (1 + t) pull), where pull
    is sum_i (g_i - m) <g_i - m, z>, normalized, over the honest replies g_i of mean m: a power iteration for the
    direction in which they differ most. The copied client is the one of largest <g_i, z>; after the warm-up it stays
    the same one, and while that one is absent, the largest of those present is copied.

    >>> rows = jnp.array([[1.0, 0.0], [9.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> honest = jnp.array([True, True, True, False])
    >>> attack = mimic(warmup=1)
    >>> memory = attack.init(jnp.zeros(2), jax.random.key(0))
    >>> row, memory = attack.forge(Scene(rows, honest, ~honest, jnp.arange(4), None), memory)
    >>> row.tolist(), int(memory.target)
    ([9.0, 0.0], 1)
    """
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise UserError(f"option 'warmup' of the attack 'mimic' is a whole number of at least 0, not {warmup!r}")

    def init(row: jax.Array, key: Tree) -> Mimicry:
        return Mimicry(_normalized(jax.random.normal(key, row.shape, row.dtype)), jnp.int32(0), jnp.int32(-1))

    def forge(scene: Scene, memory: Mimicry) -> tuple[jax.Array, Mimicry]:
        rows, honest, ids = scene.rows, scene.honest, scene.ids
        learns = (memory.rounds < warmup) & honest.any()
        apart = jnp.where(honest[:, None], rows - _honest_mean(scene), 0)
        pull = _normalized((apart @ memory.z) @ apart)
        t = memory.rounds.astype(rows.dtype)
        z = _normalized(t / (1 + t) * memory.z + 1 / (1 + t) * pull)
        z = jnp.where(learns & (pull != 0).any(), z, memory.z)
        largest = jnp.argmax(jnp.where(honest, rows @ z, -jnp.inf))
        target = jnp.where(learns, ids[largest], memory.target).astype(jnp.int32)
        is_target = honest & (ids == target)
        copied = rows[jnp.where(is_target.any(), jnp.argmax(is_target), largest)]
        return jnp.where(honest.any(), copied, 0), Mimicry(z, memory.rounds + learns, target)

    return Attack(forge, init=init, omniscient=True)


def noise(*, scale: Tree = 1.0) -> Attack:
    """Each attacker sends its own N(0, scale^2) noise.

    >>> scene = Scene(jnp.zeros((2, 3)), jnp.zeros(2, bool), jnp.ones(2, bool), jnp.arange(2), jax.random.key(0))
    >>> noise(scale=2.0).forge(scene, ())[0].shape
    (2, 3)
    """

    def forge(scene: Scene) -> jax.Array:
        draw = lambda i: jax.random.normal(jax.random.fold_in(scene.key, i), scene.rows.shape[1:], scene.rows.dtype)
        return scale * jax.vmap(draw)(scene.ids)

    return _forging(forge)


def not_a_number() -> Attack:
    """Sends NaN everywhere.

    >>> scene = Scene(jnp.zeros((2, 3)), jnp.zeros(2, bool), jnp.ones(2, bool), jnp.arange(2), None)
    >>> not_a_number().forge(scene, ())[0].tolist()
    [nan, nan, nan]
    """
    return _forging(lambda scene: jnp.full_like(scene.rows[0], jnp.nan))


ATTACKS = Registry("attack", group="apiece.attacks", values="factory").add(
    sign_flip=sign_flip,
    scaled=scaled,
    label_flip=label_flip,
    alie=alie,
    inner_product=inner_product,
    mimic=mimic,
    noise=noise,
    not_a_number=not_a_number,
)


def attack(name: str, **options: Any) -> Attack:
    """The attack of this name, as a spec writes it.

    >>> try: attack("mimick")
    ... except UserError as error: print(error)
    unknown attack 'mimick': did you mean 'mimic'?
    """
    return ATTACKS.make(name, options)


def _forging(forge: Callable[[Scene], jax.Array], omniscient: bool = False) -> Attack:
    return Attack(lambda scene, memory: (forge(scene), memory), omniscient=omniscient)


def _honest_mean(scene: Scene) -> jax.Array:
    return plain_mean(scene.rows, scene.honest.astype(scene.rows.dtype))


def _normalized(vector: jax.Array) -> jax.Array:
    return vector / jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)
