"""FedCLUP on synthetic logistic regression: personalization, heterogeneity and rounds.

The FedCLUP paper draws x ~ N(v_k, diag(j^-1.2)), v_k ~ N(0, I), for 100 and 1,000 clients of which 10% take part in a
round, R in [0, 3] (.5 and 2 in the figures), and runs lam = .02, .1, .5 (high, medium, low personalization) from a cold
start; the error is mean_i |w_i - w*_i|^2. Not published: sizes (ours: 50 examples, 5 features), seeds, local steps.

Three things cannot be done as printed, and two rows below show it. Labels y = argmax separate every client's classes,
so that no finite w_i exists to compare with: ours are drawn, y ~ Bernoulli(sigmoid(w_k'x)). w_k ~ N(0, R) has no
centre to share: ours are w_k = w_0 + R u_k, |w_0| = |u_k| = 1, sum u_k = 0. R is then a length, not a variance.

Steps: the theory's, gamma = 1/(2 L_g), lr = 1/(lam + L) and a number of local steps that falls with lam, for L the
largest lambda_max(X_i'X_i/n)/4 of all federations of a size, and a nominal mu = .25, because logistic losses are not
strongly convex. A client that has not taken part yet is judged after training alone from the server's model. Local
trains for 2,500 full gradients, because for some clients of a large R no finite optimum exists; Global is fed_avg with
one step and everybody.

The paper's public program has 200 examples of 10 features, 150 local steps whatever lam is, and a server that takes the
mean of the models, gamma = 1/lam. Full runs have these settings too, and draw the error against local updates (the
paper's Figure 2).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.fedclup.logistic_runs import CURVATURE, LEG, Bench, Clients, draw, thresholded
from apiece.reproduce.verdict import Claim, Mean, Reproduction, effect, mean_of, weakest, within
from apiece.theory.clup import lam_by_corollary

EXAMPLES, FEATURES = 50, 5
LAMS, CALLED = (0.02, 0.1, 0.5), ("high", "medium", "low")
LOOKS = (1, 2, 3, 5, 8, 12, 20, 30, 45, 70, 100)
ALIKE, APART = 0.5, 2.0  # the R of the paper's figures
ERROR = "mean squared error of the models"


class Errors(NamedTuple):
    """Of one R and number of clients, over seeds."""

    clup: np.ndarray  # [lam, seeds, looks]
    start: np.ndarray  # [seeds], of zeros
    local: np.ndarray
    shared: np.ndarray
    growing: np.ndarray  # the share of clients whose own fit has grown by a tenth since its first 500 steps


Found = dict[tuple[int, float], Errors]  # by number of clients and R


class Setting(NamedTuple):
    """Sizes of a client, and local steps a round (0: the theory's steps throughout)."""

    name: str
    examples: int
    features: int
    steps: int


OURS = Setting("", EXAMPLES, FEATURES, 0)
PROGRAM = Setting(", n = 200, d = 10, K = 150, gamma = 1/lam", 200, 10, 150)  # the author's public program


def run(quick: bool, watch: Watch) -> Reproduction:
    """Quick: 100 clients, three radii, three seeds, 40 rounds; Local for 1,000 steps; our sizes only."""
    radii = (0.0, ALIKE, APART) if quick else (0.0, 0.25, ALIKE, 1.0, APART, 3.0)
    looks, alone = ((1, 3, 8, 20, 40), 2) if quick else (LOOKS, 5)
    seeds = 3 if quick else 8
    plan = [(OURS, 100, R, seeds) for R in radii]
    plan += [] if quick else [(OURS, 1000, R, 5) for R in (ALIKE, APART)]
    plan += [] if quick else [(PROGRAM, 100, R, seeds) for R in (0.0, ALIKE, APART)]
    made = {
        (how, m, R): [draw(m, how.examples, how.features, R, seed) for seed in range(seeds)]
        for how, m, R, seeds in plan
    }
    sizes = {(how, m) for how, m, _ in made}
    L = {
        size: max(one.smoothness for (how, m, _), row in made.items() if (how, m) == size for one in row)
        for size in sizes
    }
    benches: dict[tuple[Setting, int], Bench] = {}
    found: dict[Setting, Found] = {OURS: {}, PROGRAM: {}}
    for done, ((how, clients, R), row) in enumerate(made.items()):
        watch(f"{clients} clients, R = {R:g}{how.name}", done, len(plan))
        if (how, clients) not in benches:
            benches[how, clients] = Bench(row[0], clients // 10, L[how, clients], how.steps)
        found[how][clients, R] = errors_of(benches[how, clients], row, looks, alone if clients == 100 else 0)
    watch("done", len(plan), len(plan))

    ours = found[OURS]
    claims = [*_personalization(ours), *_rounds(ours, looks), _rule(ours), *_as_printed(benches[OURS, 100])]
    if found[PROGRAM]:
        claims += [*_personalization(found[PROGRAM], PROGRAM.name), *_rounds(found[PROGRAM], looks, PROGRAM.name)]
    settings: dict[str, Any] = dict(
        examples=EXAMPLES, features=FEATURES, lam=LAMS, L={m: L[OURS, m] for how, m in sizes if how == OURS},
        mu=CURVATURE, radii=radii, rounds=looks[-1], share_taking_part=0.1, local_steps=LEG * alone,
        runs=[dict(clients=clients, R=R, seeds=count, examples=how.examples) for how, clients, R, count in plan],
    )  # fmt: skip
    for how, by in found.items():
        settings |= (
            {f"errors after the last round, and rounds to a settled one{how.name}": _table(by, looks)} if by else {}
        )
    growing = ours[100, APART].growing.mean()
    notes = (
        f"At R = {APART:g}, the own fit of {growing:.0%} of the clients grows by a tenth or more from {LEG} to "
        f"{LEG * alone:,} steps: no finite optimum, or one far away. They dominate the mean error of Local.",
        "An error has settled when nine tenths of its fall from the start (zeros) to its end are done. Rounds are read "
        f"off where models were looked at: {_listed(looks)}.",
        *(
            f"In another measure, until it is within a tenth of its end, the error at R = {R:g} takes "
            f"{_listed(_settled(ours[100, R], looks, by_end=True).mean(1))} rounds for lam = .02, .1, .5."
            for R in (ALIKE, APART)
        ),
    )
    figure = _figure(ours, looks)
    updates = {how: [benches[how, 100].local_updates(lam) for lam in LAMS] for how in found if found[how]}
    panels = [_by_updates(found[how][100, ALIKE], looks, updates[how], how) for how in updates]
    return Reproduction(claims, figure._replace(panels=[*figure.panels, *panels]), settings, notes)


def _by_updates(errors: Errors, looks: tuple[int, ...], updates: list[int], how: Setting) -> Panel:
    """The paper's Figure 2: the error against local updates, rounds times local steps."""
    lines = []
    for j, (lam, steps) in enumerate(zip(LAMS, updates, strict=True)):
        means = [mean_of(column) for column in errors.clup[j].T]
        lines.append(_line(f"lam = {lam:g} (K = {steps})", np.array(looks) * steps, means, style=j))
    title = f"R = {ALIKE:g}{how.name or ', the theory' + chr(39) + 's steps'}"
    return Panel(title, "local updates of a client that takes part", ERROR, lines, True, True)


def errors_of(bench: Bench, made: list[Clients], looks: tuple[int, ...], alone: int) -> Errors:
    """FedCLUP on every federation, one seed each; and Local, `alone` times LEG steps, and Global (0: neither)."""
    error = lambda models, c: ((models - c.truth) ** 2).sum(-1).mean(-1)
    clup = np.array([[error(bench.fed_clup(c, lam, looks, s), c) for s, c in enumerate(made)] for lam in LAMS])
    start = np.array([error(0.0, c) for c in made])
    if not alone:
        return Errors(clup, start, *np.zeros((3, 0)))
    fits = [bench.local(c, (1, alone)) for c in made]
    grows = [np.mean(np.linalg.norm(late, axis=-1) > 1.1 * np.linalg.norm(early, axis=-1)) for early, late in fits]
    local = [error(late, c) for (_, late), c in zip(fits, made, strict=True)]
    shared = [error(bench.fed_avg(c, 100), c) for c in made]
    return Errors(clup, start, np.array(local), np.array(shared), np.array(grows))


def _personalization(found: Found, where: str = "") -> list[Claim]:
    """Final errors: from Local to Global with lam where clients are alike; the other way round where they are not."""
    claims = []
    for R in (0.0, ALIKE):
        errors = found[100, R]
        name = f"R = {R:g}: error falls from Local over lam = .02, .1, .5 to Global{where}"
        path = [errors.local, *errors.clup[:, :, -1], errors.shared]
        claims.append(_ordered(name, path[::-1]))
    for (clients, R), errors in found.items():
        if R in (ALIKE, APART):
            final = errors.clup[:, :, -1]
            falls = R == ALIKE
            name = f"R = {R:g}, {clients} clients: error {'falls' if falls else 'grows'} with lam{where}"
            claims.append(_ordered(name, final[::-1] if falls else final))
            times = mean_of(final[0] / final[-1] if falls else final[-1] / final[0])
            better, worse = ("low", "high") if falls else ("high", "low")
            name = f"R = {R:g}, {clients} clients: error of {worse} over that of {better} personalization{where}"
            claims.append(effect(name, "above 1", times, above=1))
    return claims


def _table(found: Found, looks: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """A row for each number of clients and R."""
    rows = {}
    for (clients, R), errors in found.items():
        ends, rounds = errors.clup[:, :, -1].mean(1), _settled(errors, looks).mean(1)
        middle = lambda values: float(np.mean(values)) if len(values) else float("nan")
        row = {"Local": middle(errors.local)} | {f"lam = {lam:g}": float(e) for lam, e in zip(LAMS, ends, strict=True)}
        row |= {"Global": middle(errors.shared)}
        row |= {f"rounds, lam = {lam:g}": float(r) for lam, r in zip(LAMS, rounds, strict=True)}
        rows[f"R = {R:g}, {clients} clients"] = row
    return rows


def _ordered(name: str, path: Sequence[np.ndarray] | np.ndarray) -> Claim:
    """That errors [seeds] grow along the path: the least of the ratios of neighbours, in logarithms."""
    least = weakest([mean_of(np.log(after / before)) for before, after in pairwise(path)])
    return effect(f"{name}, least log-ratio", "above 0", least, above=0)


def _rounds(found: Found, looks: tuple[int, ...], where: str = "") -> list[Claim]:
    """Rounds to a settled error, and who is the first at a target."""
    claims = []
    for (clients, R), errors in found.items():
        if R not in (ALIKE, APART):
            continue
        needed = _settled(errors, looks)
        here = f"R = {R:g}, {clients} clients"
        more = weakest([mean_of(step) for step in np.diff(needed, axis=0)])
        name = f"{here}: rounds to a settled error grow with lam{where}, least difference"
        claims.append(effect(name, "above 0", more, above=0))
        more = mean_of(needed[-1] - needed[0])
        name = f"{here}: rounds that low personalization needs more than high{where}"
        claims.append(effect(name, "above 0", more, above=0))
        if R == ALIKE:
            # Whoever has the least error at a round has reached that error as the first.
            early, late = (np.log(errors.clup[-1, :, at] / errors.clup[0, :, at]) for at in (0, -1))
            first = weakest([mean_of(early), mean_of(-late)])
            name = f"{here}: the smallest lam leads at first, the largest at the end{where}, lesser log-ratio"
            claims.append(effect(name, "above 0: every target has a lam of its own", first, above=0))
    return claims


def _settled(errors: Errors, looks: tuple[int, ...], by_end: bool = False) -> np.ndarray:
    """[lam, seeds]: rounds until a tenth of the fall from zeros is left; `by_end`: until within a tenth of the end."""
    end = errors.clup[:, :, -1:]
    target = 1.1 * end if by_end else end + 0.1 * (errors.start[:, None] - end)
    reached = np.where(errors.clup <= target, np.array(looks, float), np.inf)
    return reached.min(-1)


def _rule(found: Found) -> Claim:
    """Corollary 1 (share if R <= 1/sqrt(n), else lam <= rho^2/(n mu R^2)) against the best of the three lams."""
    radii = np.array([R for clients, R in found if clients == 100])
    chosen = np.array([np.array(LAMS)[np.argmin(found[100, R].clup[:, :, -1], axis=0)] for R in radii])
    mu, L, rho2 = curvature_and_noise(draw(100, EXAMPLES, FEATURES, APART, 0))
    rule = lam_by_corollary(L, mu, rho2, EXAMPLES, 100 * EXAMPLES, radii)
    assert (np.diff(rule.lam) < 0).all() and bool(rule.at_least[0])  # the rule itself falls
    falls = mean_of(np.log(chosen[0] / chosen[list(radii).index(APART)]))
    name = (
        f"the best lam falls as R grows, as the rule of Corollary 1 does: log of that at R = 0 over that at {APART:g}"
    )
    return effect(name, "above 0", falls, above=0)


def curvature_and_noise(clients: Clients) -> tuple[float, float, float]:
    """(mu, L, rho2) at the true models: the median client's smallest curvature, L, and mean |(sigmoid(z) - y) x|^2.

    >>> mu, L, rho2 = curvature_and_noise(draw(20, 50, 5, 0.5, 0))
    >>> 0 < mu < rho2 < L
    True
    """
    p = 1 / (1 + np.exp(-np.einsum("cni,ci->cn", clients.x, clients.truth)))
    hessian = np.einsum("cni,cnj,cn->cij", clients.x, clients.x, p * (1 - p)) / p.shape[1]
    noise = ((p - clients.y) ** 2 * (clients.x**2).sum(-1)).mean()
    return float(np.median(np.linalg.eigvalsh(hessian)[:, 0])), clients.smoothness, float(noise)


def _as_printed(bench: Bench) -> list[Claim]:
    """What the printed description of the data leads to."""
    drawn = draw(100, EXAMPLES, FEATURES, ALIKE, 0)
    growth = []
    for made in (drawn, thresholded(drawn)):
        early, late = np.linalg.norm(bench.local(made, (2, 10)), axis=-1)
        growth.append(float(np.median(late / early)))
    share = mean_of([common_share(np.random.default_rng(s).normal(0, ALIKE**0.5, (100, FEATURES))) for s in range(20)])
    ours = common_share(drawn.truth)
    name = "{}: norm of the median client's own fit, 5,000 steps over 1,000"
    center = "{}: share of mean |w_k|^2 that is common to the clients"
    return [
        effect(name.format("labels y = argmax, as printed"), "1 (a finite optimum)", growth[1], below=1.1,
               source="here"),
        effect(name.format("labels drawn"), "1 (a finite optimum)", growth[0], below=1.1, source="theory"),
        effect(center.format("w_k ~ N(0, .5), as printed"), "a centre to share: above 0.5", share, above=0.5,
               source="here"),
        within(center.format("w_k = w_0 + .5 u_k"), 0.8, ours, by=1e-9, source="theory"),
    ]  # fmt: skip


def common_share(models: np.ndarray) -> float:
    """|mean_k w_k|^2 / mean_k |w_k|^2.

    >>> common_share(np.array([[1.0, 1.0], [1.0, -1.0]]))
    0.5
    """
    return float((models.mean(0) ** 2).sum() / (models**2).sum(-1).mean())


def _listed(values: Sequence[float] | np.ndarray) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _figure(found: Found, looks: tuple[int, ...]) -> Figure:
    spread = lambda samples: [mean_of(column) for column in np.asarray(samples).T]
    named = [f"lam = {lam:g} ({called} personalization)" for lam, called in zip(LAMS, CALLED, strict=True)]
    panels = []
    for R in (ALIKE, APART):
        lines = []
        for j, name in enumerate(named):
            lines.append(_line(name, looks, spread(found[100, R].clup[j]), style=j))
            if (1000, R) in found:
                dots = spread(found[1000, R].clup[j])
                lines.append(_line(f"lam = {LAMS[j]:g}, 1,000 clients", looks, dots, style=j, kind="dots"))
        panels.append(Panel(f"R = {R:g}, 100 clients, 10% a round", "communication rounds", ERROR, lines, True, True))
    radii = [R for clients, R in found if clients == 100]
    at = lambda pick: spread(np.array([pick(found[100, R]) for R in radii]).T)
    ends = [_line(name, radii, at(lambda e, j=j: e.clup[j, :, -1]), style=j) for j, name in enumerate(named)]
    ends += [
        _line("local", radii, at(lambda e: e.local), style=3),
        _line("fed_avg", radii, at(lambda e: e.shared), style=4),
    ]
    panels.append(Panel("After the last round, 100 clients", "heterogeneity R", ERROR, ends, False, True))
    caption = (
        "Squared distance to the true models, mean over clients and seeds, of fed_clup from zeros; bands and whiskers "
        "are 95% intervals over seeds."
    )
    return Figure("FedCLUP on logistic regression", caption, panels)


def _line(name: str, x: object, means: list[Mean], style: int, kind: str = "line") -> Line:
    values = [m.value for m in means]
    # A logarithmic axis has no place for an end below zero.
    low = [max(m.interval[0], m.value / 5) for m in means]
    return Line(name, x, values, low, [m.interval[1] for m in means], kind, style)
