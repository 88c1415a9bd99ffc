"""Federations made by a formula, whose best models are therefore known (`Federation.truth`).

Every generator draws the validation and test examples from the same law as the training examples of the same client.
`truth["center"]` is the model at the centre, `truth["personal"]` the true model of each client.
"""

from collections.abc import Callable, Sequence

import numpy as np

from apiece.data.federation import Federation
from apiece.data.ids import number_clients
from apiece.data.sources.checked import checked
from apiece.data.splits import Split, offsets_of
from apiece.errors import UserError


@checked
def quadratics() -> Federation:
    """Three clients with the losses w'Hw/2 - b'w in two parameters: x holds H, y holds b, one "example" each.

    `truth` has the minimum of each client ("personal"), of the plain mean ("center"), of the mean with the weights "p"
    ("center_p"), and the weights themselves.

    >>> quadratics().truth["center_p"].round(6).tolist()
    [0.426573, 0.881119]
    """
    h = np.array([[[2.0, 0], [0, 1]], [[1, 0.5], [0.5, 1]], [[1, 0], [0, 3]]])
    b = np.array([[2.0, 1], [0, 0.5], [-1, 3]])
    p = np.array([0.5, 0.25, 0.25])
    split = Split(h, b, np.arange(4))
    truth = {
        "center": np.linalg.solve(h.mean(0), b.mean(0)),
        "center_p": np.linalg.solve(np.tensordot(p, h, 1), p @ b),
        "personal": np.linalg.solve(h, b[..., None])[..., 0],
        "p": p,
    }
    return Federation("quadratics", number_clients(3), split, split, split, task="custom", truth=truth)


@checked
def linear(
    clients: int = 20,
    examples: int = 50,
    features: int = 10,
    radius: float = 1.0,
    noise: float = 1.0,
    norm: float = 1.0,
    spectrum: Sequence[float] | np.ndarray | None = None,
    held_out: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
) -> Federation:
    """Linear regression around a centre: theta_i = theta_0 + radius u_i, u_i a unit vector orthogonal to theta_0.

    x ~ N(0, diag(spectrum)), y = x'theta_i + noise N(0, 1), |theta_0| = norm, so |theta_i|^2 = norm^2 + radius^2. A
    short `spectrum` is repeated in equal blocks up to `features`; the default is all ones. Each client has `examples`
    training examples and `held_out` (default: a third of that) in validation and in test.

    Cheng, Chadha and Duchi, Federated Asymptotics, 2021, section 4.

    >>> truth = linear(clients=4, features=6, radius=0.5).truth
    >>> np.linalg.norm(truth["personal"] - truth["center"], axis=1).round(6).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    _at_least(1, clients=clients, examples=examples, features=features)
    if radius and norm and features < 2:
        raise UserError("deviations orthogonal to the centre need features >= 2 (or radius=0)")
    values = _eigenvalues(spectrum, features)
    rng = np.random.default_rng(seed)
    center = norm * _unit(rng.standard_normal(features))
    away = rng.standard_normal((clients, features))
    if norm:
        away -= np.outer(away @ center, center) / (norm * norm)
    personal = center + radius * _unit(away)

    def draw(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((len(owner), features)) * np.sqrt(values)
        return x, np.einsum("ij,ij->i", x, personal[owner]) + noise * rng.standard_normal(len(owner))

    truth = {"center": center, "personal": personal, "spectrum": values, "noise": np.array(noise)}
    return _regression("linear", np.full(clients, examples), held_out, draw, truth, dtype)


@checked
def linear_spectrum(
    clients: int = 10,
    examples: int = 60,
    features: int = 8,
    mu: float = 0.1,
    L: float = 1.0,
    radius: float = 0.5,
    noise: float = 1.0,
    held_out: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
) -> Federation:
    """Linear regression with an exact condition number: every client's X'X/n has eigenvalues geomspace(mu, L).

    X = sqrt(n) Q diag(sqrt(eigenvalues)) V', Q and V random orthogonal; w_i = w_0 + dev_i with sum dev_i = 0 and
    max |dev_i| = radius; y = X w_i + noise N(0, 1). So the loss |Xw - y|^2 / (2n) is exactly mu-strongly convex and
    L-smooth. `truth` also has the minima of the training losses: "personal_fit", and "center_fit" of their plain mean.

    >>> x, _ = linear_spectrum(dtype="float64").train.client(0)
    >>> np.linalg.eigvalsh(x.T @ x / 60)[[0, -1]].round(12).tolist()
    [0.1, 1.0]
    """
    _at_least(1, clients=clients, features=features)
    if examples < features:
        raise UserError(f"an exact spectrum needs examples >= features, got {examples} < {features}")
    if not 0 < mu <= L:
        raise UserError(f"the spectrum needs 0 < mu <= L, got mu={mu}, L={L}")
    rng = np.random.default_rng(seed)
    values = np.geomspace(mu, L, features)
    center = rng.standard_normal(features)
    away = rng.standard_normal((clients, features))
    away -= away.mean(0)
    away *= radius / max(np.linalg.norm(away, axis=1).max(), np.finfo(float).tiny)
    personal = center + away
    v = np.linalg.qr(rng.standard_normal((clients, features, features)))[0]
    root = np.sqrt(values)[:, None] * v.transpose(0, 2, 1)

    def draw(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        z = rng.standard_normal((clients, len(owner) // clients, features))
        if train:
            z = np.sqrt(examples) * np.linalg.qr(z)[0]
        x = (z @ root).reshape(len(owner), features)
        return x, np.einsum("ij,ij->i", x, personal[owner]) + noise * rng.standard_normal(len(owner))

    truth = {"center": center, "personal": personal, "spectrum": values, "noise": np.array(noise)}
    made = _regression("linear_spectrum", np.full(clients, examples), held_out, draw, truth, dtype)
    x = made.train.x.reshape(clients, examples, features).astype(np.float64)
    gram = x.transpose(0, 2, 1) @ x / examples
    xy = np.einsum("cnf,cn->cf", x, made.train.y.reshape(clients, examples).astype(np.float64)) / examples
    made.truth["personal_fit"] = np.linalg.solve(gram, xy[..., None])[..., 0]
    made.truth["center_fit"] = np.linalg.solve(gram.mean(0), xy.mean(0))
    return made


@checked
def logistic(
    clients: int = 100,
    examples: int = 50,
    features: int = 10,
    radius: float = 0.5,
    norm: float = 1.0,
    shift: float = 1.0,
    held_out: int | None = None,
    seed: int = 0,
) -> Federation:
    """Two classes: x ~ N(v_k, diag(j^-1.2)), v_k ~ shift N(0, 1), y ~ Bernoulli(sigmoid(w_k'x)), no intercept.

    w_k = w_0 + radius u_k, |w_0| = norm, |u_k| = 1 and sum_k u_k = 0. The labels are drawn, not thresholded:
    thresholded labels are separable, and then no finite minimum exists to compare with. `radius` is a length, not a
    variance.

    >>> truth = logistic(clients=5, radius=2.0).truth
    >>> np.abs(truth["personal"].mean(0) - truth["center"]).max() < 1e-9
    np.True_
    """
    _at_least(1, clients=clients, examples=examples, features=features)
    rng = np.random.default_rng(seed)
    center = norm * _unit(rng.standard_normal(features))
    personal = center + (radius * _balanced_directions(rng, clients, features) if radius else np.zeros((clients, 1)))
    mean = shift * rng.standard_normal((clients, features))
    scale = np.arange(1, features + 1) ** -0.6

    def draw(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        x = mean[owner] + scale * rng.standard_normal((len(owner), features))
        logit = np.einsum("ij,ij->i", x, personal[owner])
        return x.astype(np.float32), (logit > rng.logistic(size=len(owner))).astype(np.int32)

    parts = _splits(np.full(clients, examples), held_out, draw)
    truth = {"center": center, "personal": personal, "personal_mean": mean}
    return Federation(
        "logistic", number_clients(clients), *parts, task="classification", classes=("0", "1"), truth=truth
    )


@checked
def two_level_gaussian(
    clients: int = 20,
    center: float = 1.6,
    between: float = 1.0,
    within: float = 0.1,
    smallest: int = 10,
    largest: int = 200,
    held_out: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
) -> Federation:
    """Means of means: theta_m ~ N(center, between), samples ~ N(theta_m, within); both are variances.

    Client m has n_m training samples, uniform in smallest..largest. x is the constant 1 and y the sample, so linear
    regression without intercept estimates theta_m; `truth["personal_variance"]` is within / n_m, that of its own mean.

    >>> two_level_gaussian(clients=3, between=0.0).truth["personal"].ravel().tolist()
    [1.6, 1.6, 1.6]
    """
    _at_least(1, clients=clients, smallest=smallest)
    if largest < smallest or min(between, within) < 0:
        raise UserError("two_level_gaussian needs smallest <= largest and variances that are not negative")
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, largest + 1, clients)
    personal = center + np.sqrt(between) * rng.standard_normal((clients, 1))

    def draw(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        y = personal[owner, 0] + np.sqrt(within) * rng.standard_normal(len(owner))
        return np.ones((len(owner), 1)), y

    truth = {
        "center": np.array([center]),
        "personal": personal,
        "personal_variance": within / sizes,
        "between": np.array(between),
        "within": np.array(within),
    }
    return _regression("two_level_gaussian", sizes, held_out, draw, truth, dtype)


@checked
def bernoulli_means(
    clients: int = 100,
    examples: int = 1000,
    clusters: int = 0,
    held_out: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
) -> Federation:
    """Mean estimation: client i draws coins with p_i ~ U[0, 1], or, with clusters, p_i one of evenly spaced values.

    x is the constant 1 and y the coin (0 or 1), a regression whose best model is p_i. With `clusters` the values are
    (2j + 1) / (2 clusters), and `truth["personal_cluster"]` says which client has which.

    >>> sorted(set(bernoulli_means(clients=8, examples=5, clusters=4).truth["personal"].ravel().tolist()))
    [0.125, 0.375, 0.625, 0.875]
    """
    _at_least(1, clients=clients, examples=examples)
    if not 0 <= clusters <= clients:
        raise UserError(f"clusters must lie in 0..{clients} (the number of clients), got {clusters}")
    rng = np.random.default_rng(seed)
    if clusters:
        cluster = rng.permutation(np.arange(clients) % clusters)
        p = (2 * cluster + 1) / (2 * clusters)
    else:
        cluster, p = np.arange(clients), rng.random(clients)

    def draw(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((len(owner), 1)), (rng.random(len(owner)) < p[owner]).astype(np.float64)

    truth = {"center": np.array([p.mean()]), "personal": p[:, None], "personal_cluster": cluster}
    return _regression("bernoulli_means", np.full(clients, examples), held_out, draw, truth, dtype)


@checked
def many(
    clients: int = 1_000_000,
    examples: int = 10,
    features: int = 64,
    classes: int = 10,
    held_out: int = 1,
    seed: int = 0,
) -> Federation:
    """A large and cheap federation of uint8 "images", to measure scale: about a byte per feature and example.

    x = half noise, half the pattern of its class. Half of a client's labels are its favourite class, the others any.

    >>> federation = many(clients=1000, features=16)
    >>> federation.train.x.shape, str(federation.train.x.dtype)
    ((10000, 16), 'uint8')
    """
    _at_least(1, clients=clients, examples=examples, features=features, classes=classes)
    rng = np.random.default_rng(seed)
    pattern = rng.integers(0, 128, (classes, features), dtype=np.uint8)
    favourite = rng.integers(0, classes, clients, dtype=np.int32)

    def draw(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, classes, len(owner), dtype=np.int32)
        y = np.where(rng.random(len(owner), np.float32) < 0.5, favourite[owner], y)
        # Whole 64-bit words are several times faster to draw than bounded bytes.
        words = rng.integers(0, 2**64, (len(owner) * features + 7) // 8, dtype=np.uint64, endpoint=False)
        x = words.view(np.uint8)[: len(owner) * features].reshape(len(owner), features)
        x >>= 1
        for start in range(0, len(owner), 1 << 18):  # in pieces: pattern[y] as a whole would double the memory
            x[start : start + (1 << 18)] += pattern[y[start : start + (1 << 18)]]
        return x, y

    parts = _splits(np.full(clients, examples), held_out, draw)
    names = tuple(str(c) for c in range(classes))
    truth = {"personal_favourite": favourite}
    return Federation("many", number_clients(clients), *parts, task="classification", classes=names, truth=truth)


Draw = Callable[[np.ndarray, bool], tuple[np.ndarray, np.ndarray]]  # (client of each row, training?) -> x, y


def _splits(sizes: np.ndarray, held_out: int | None, draw: Draw) -> tuple[Split, Split, Split]:
    if held_out is not None and held_out < 0:
        raise UserError(f"held_out must be at least 0, got {held_out}")
    held = np.maximum(sizes // 3, 1) if held_out is None else np.full(len(sizes), held_out)

    def split(size: np.ndarray, train: bool) -> Split:
        return Split(*draw(np.repeat(np.arange(len(size)), size), train), offsets_of(size))

    return split(sizes, True), split(held, False), split(held, False)


def _regression(
    name: str, sizes: np.ndarray, held_out: int | None, draw: Draw, truth: dict[str, np.ndarray], dtype: str
) -> Federation:
    if dtype not in ("float32", "float64"):
        raise UserError(f"dtype must be float32 or float64, got '{dtype}'")

    def cast(owner: np.ndarray, train: bool) -> tuple[np.ndarray, np.ndarray]:
        x, y = draw(owner, train)
        return x.astype(dtype), y.astype(dtype)

    return Federation(name, number_clients(len(sizes)), *_splits(sizes, held_out, cast), task="regression", truth=truth)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _eigenvalues(spectrum: Sequence[float] | np.ndarray | None, features: int) -> np.ndarray:
    values = np.ones(1) if spectrum is None else np.asarray(spectrum, np.float64)
    if values.ndim != 1 or not 0 < len(values) <= features or not (values >= 0).all() or not np.isfinite(values).all():
        raise UserError(f"spectrum must be 1 to {features} (= features) eigenvalues, none negative")
    return np.repeat(values, [len(block) for block in np.array_split(np.arange(features), len(values))])


def _balanced_directions(rng: np.random.Generator, clients: int, features: int) -> np.ndarray:
    """Unit vectors that sum to zero: centre and normalize in turn until both hold."""
    u = _unit(rng.standard_normal((clients, features)))
    if features == 1:
        u = rng.permutation(np.where(np.arange(clients) % 2, -1.0, 1.0))[:, None]
    for _ in range(1000):
        if np.abs(u.mean(0)).max() < 1e-14:
            return u
        away = u - u.mean(0)
        length = np.linalg.norm(away, axis=1, keepdims=True)
        if length.min() == 0:
            break
        u = away / length
    if np.abs(u.mean(0)).max() < 1e-12:
        return u
    raise UserError(f"{clients} deviations of equal length in {features} dimension(s) cannot sum to zero; add a client")


def _at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise UserError(f"{name} must be at least {least}, got {value}")
