"""Asymptotic risks of seven linear estimators.

Cheng, Chadha and Duchi 2021 derive what FedAvg, FTFA, RTFA, MAML-FL, pFedMe and training alone (with and without a
ridge) lose on linear clients with fewer examples than parameters, as both grow. Here every formula meets a simulation:
400 features and 200 clients, four covariances, each method at the point where it ends (the closed forms); and on a
small federation the library's methods run until they are there.

The printed formulas (15) to (18) fail; the corrected ones hold. The paper publishes no numbers for linear models, so
the settings are ours. The centre is estimated from 200 clients, which adds up to 3% to the risks of methods that use
it: hence 5%, and a check with the true centre. Intervals are over clients. Clients share one
centre, and under a covariance other than the identity its direction shifts the two rows "alone" for all of them.

The paper allows clients that differ in covariance, size, radius and noise (covariate and label shift). Two federations
of two kinds of clients, as many of each, ask whether the limits then hold client by client: `risks_of_kinds`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from apiece.data.sources import synthetic
from apiece.engines.simulation.vectorized import Vectorized
from apiece.experiment.train import Watch
from apiece.methods import CATALOG
from apiece.protocol import Batch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.tuned_averaging.linear_clients import Setting, risks, unlike_risks
from apiece.reproduce.verdict import Claim, Reproduction, effect, mean_of, ratio_of, within
from apiece.theory import asymptotics, linear, printed
from apiece.theory.crossovers import worth_of_the_centre

SEVEN = ("fed_avg", "ftfa", "rtfa", "maml_fl", "pfedme", "local", "local_ridge")
SETTINGS = (
    Setting("identity, d/n = 2", 2.0, 2.0, 1.0, 1.0),
    Setting("identity, d/n = 4", 4.0, 0.5, 1.5, 1.0),
    Setting("eigenvalues 0.5, 2", 2.0, 0.3, 1.0, 0.7, values=(0.5, 2.0), weights=(0.5, 0.5)),
    Setting("eigenvalues 0.2, 1, 3", 2.0, 0.3, 1.0, 0.7, values=(0.2, 1.0, 3.0), weights=(0.3, 0.4, 0.3)),
)
UNLIKE = {  # two federations of two kinds of clients each: covariate shift and sizes, then radius and noise as well
    "covariances and sizes differ": (
        Setting("a", 2.0, 0.5, 1.0, 0.5),
        Setting("b", 4.0, 0.5, 1.0, 0.5, values=(0.5, 2.0), weights=(0.5, 0.5)),
    ),
    "all differ": (
        Setting("a", 1.5, 0.3, 0.7, 0.5, values=(0.2, 1.0, 3.0), weights=(0.3, 0.4, 0.3)),
        Setting("b", 4.0, 0.3, 1.8, 1.2, values=(0.5, 2.0), weights=(0.5, 0.5)),
    ),
}
RATIOS = (1.25, 1.6, 2.0, 2.5, 4.0, 5.0)
NOISES = (0.3, 0.5, 0.6, 0.8, 0.9, 1.2)


def run(quick: bool, watch: Watch) -> Reproduction:
    """Settings, then sweeps, then the engine."""
    features, clients = (160, 240) if quick else (400, 200)
    few = 100 if quick else 200  # features of a sweep
    sweeps = [plain._replace(gamma=gamma) for gamma in RATIOS] + [plain._replace(noise=noise) for noise in NOISES]
    jobs = [(setting, features, clients) for setting in SETTINGS] + [(setting, few, few) for setting in sweeps]
    found = []
    for k, job in enumerate(jobs):
        watch("simulated settings", k, len(jobs))
        found.append(risks(*job, seed=k))
    main, sweep = found[: len(SETTINGS)], found[len(SETTINGS) :]
    claims = [claim for setting, seen in zip(SETTINGS, main, strict=True) for claim in _against_theory(setting, seen)]
    claims += _orders(main) + _crossing(sweep[len(RATIOS) :]) + _worth_of_the_centre(features, clients)
    claims += _unlike_clients(features, clients)
    watch("methods on the engine", len(jobs), len(jobs))
    claims += _where_methods_end()
    settings = dict(
        features=features, clients=clients, sweep_features=few, sweep_clients=few, norm=1.0, maml_alpha=0.05
    )
    by_setting = {s.name: {"gamma": s.gamma, "lam": s.lam, "radius": s.radius, "noise": s.noise} for s in SETTINGS}
    return Reproduction(claims, _figure(sweep), settings | by_setting)


plain = SETTINGS[0]._replace(lam=0.5)  # what the sweeps vary


def _theory(setting: Setting, **more: Any) -> dict[str, float]:
    spectrum = asymptotics.IDENTITY if len(setting.values) == 1 else setting.spectrum()
    found = asymptotics.risks(setting.gamma, setting.lam, setting.radius, setting.noise, setting.rho, spectrum, **more)
    return {name: float(risk.total) for name, risk in found.items()}


def _against_theory(setting: Setting, seen: dict[str, np.ndarray]) -> list[Claim]:
    """One setting: the seven, FedAvg with the correction for so many clients, the true centre, the printed formulas."""
    theory, clients = _theory(setting), len(seen["fed_avg"])
    where = f"({setting.name})"
    rows = [within(f"{m} {where}: risk, to 5%", theory[m], mean_of(seen[m]), 0.05, source="theory") for m in SEVEN]
    lengths, spectrum = (setting.radius, setting.noise), setting.spectrum()
    counted = float(asymptotics.centre(setting.gamma, *lengths, clients, spectrum).total)
    name = f"fed_avg {where}: risk, with what finitely many clients add, to 2%"
    rows.append(within(name, counted, mean_of(seen["fed_avg"]), 0.02, source="theory"))
    for method in ("ftfa", "rtfa"):
        name = f"{method} {where}: risk with the true centre, to 5%"
        rows.append(within(name, theory[method], mean_of(seen[f"true_{method}"]), 0.05, source="theory"))
    as_printed = {
        "ftfa": ("(15)-(16)", printed.ridgeless(setting.gamma, *lengths, spectrum)),
        "rtfa": ("(17)-(18)", printed.ridge(setting.gamma, setting.lam, *lengths, spectrum)),
    }
    for method, (number, risk) in as_printed.items():
        name = f"{method} {where}: risk by the formula {number} as printed, to 5%"
        rows.append(within(name, float(risk.total), mean_of(seen[method]), 0.05))
    return rows


def _orders(found: list[dict[str, np.ndarray]]) -> list[Claim]:
    """Who equals whom, and whom RTFA is never worse than; over all settings, clients being compared with themselves."""
    rows = []
    for one, other in (("ftfa", "maml_fl"), ("rtfa", "pfedme")):
        ratios = [ratio_of(seen[one], seen[other]) for seen in found]
        worst = max(ratios, key=lambda ratio: abs(ratio.value - 1))
        rows.append(within(f"{one} and {other} have the same risk, to 1%: the ratio furthest from 1", 1.0, worst, 0.01))
    for other in ("fed_avg", "ftfa", "best_local_ridge"):
        gaps = [mean_of(seen["best_rtfa"] - seen[other]) for seen in found]
        worst = max(gaps, key=lambda gap: gap.interval[1])
        who = "local_ridge at its best lam" if other == "best_local_ridge" else other
        name = f"rtfa at the best lam is better than {who}: difference of risks, the largest"
        rows.append(effect(name, "below 0", worst, below=0))
    return rows


def _crossing(found: list[dict[str, np.ndarray]]) -> list[Claim]:
    """FTFA against FedAvg on both sides of the noise at which theory has them change places."""
    limit = asymptotics.tuning_pays_below(plain.gamma, plain.radius)
    rows = []
    for noise, seen in zip(NOISES, found, strict=True):
        gap = mean_of(seen["ftfa"] - seen["fed_avg"])
        better = noise < limit
        above, below = (None, 0.0) if better else (0.0, None)
        name = f"ftfa minus fed_avg at noise {noise} (they cross at {limit:.3f}): difference of risks"
        rows.append(effect(name, "below 0" if better else "above 0", gap, above=above, below=below))
    return rows


def _worth_of_the_centre(features: int, clients: int, norm: float = 0.5) -> list[Claim]:
    """RTFA at its best minus ridge alone at its best is -C (rho^2 - r^2) to first order, and rho^2 - r^2 = norm^2."""
    gamma, radius, noise = 2.0, 1.0, 1.0
    near = 1e-4
    risk = lambda length: asymptotics.best_risk(gamma, length, noise)
    slope = (risk(radius) - risk(np.sqrt(radius**2 + near))) / near
    first, last = (-worth_of_the_centre(gamma, length, noise) for length in (radius, np.hypot(radius, norm)))
    seen = risks(Setting("", gamma, 1.0, radius, noise, norm), features, clients, seed=100)
    gap = mean_of((seen["true_best_rtfa"] - seen["best_local_ridge"]) / norm**2)
    name = "rtfa minus local_ridge, both at the best lam, by rho^2 - r^2 (d/n = 2, r = noise = 1):"
    return [
        within(f"{name} C", -0.674437, first, by=5e-7, source="reference"),
        within(f"{name} of the formulas, rho near r", first, slope, by=1e-4, source="theory"),
        within(f"{name} simulated, true centre, rho^2 - r^2 = {norm**2:g}, to 5%", (first + last) / 2, gap, 0.05,
               source="theory"),
    ]  # fmt: skip


def _unlike_clients(features: int, clients: int) -> list[Claim]:
    """Clients of two kinds in one federation: the limits hold client by client, and so for their mean."""
    rows = []
    for k, (what, kinds) in enumerate(UNLIKE.items()):
        seen = unlike_risks(kinds, features, clients, seed=200 + k)
        theory = asymptotics.risks_of_kinds(
            [asymptotics.Kind(0.5, s.gamma, s.radius, s.noise, s.rho, s.spectrum()) for s in kinds], kinds[0].lam
        )
        # Kinds are strata: the mean of two clients, one of each kind, is a repetition.
        for method in (*SEVEN, "true_ftfa", "true_rtfa"):
            plain_name = method.removeprefix("true_")
            knows = " with the true centre" if method.startswith("true_") else ""
            name = f"{plain_name} (unlike clients: {what}): mean risk{knows}, to 5%"
            expected = float(theory[plain_name].total)
            rows.append(within(name, expected, mean_of(seen[method].mean(0)), 0.05, source="theory"))
        for s, own in zip(kinds, seen["true_ftfa"], strict=True):
            name = f"ftfa (unlike clients: {what}), kind {s.name} alone: risk with the true centre, to 5%"
            expected = float(asymptotics.ridgeless(s.gamma, s.radius, s.noise, s.spectrum()).total)
            rows.append(within(name, expected, mean_of(own), 0.05, source="theory"))
        gap = mean_of((seen["best_rtfa"] - np.minimum(seen["fed_avg"], seen["ftfa"])).mean(0))
        name = f"rtfa at each client's best lam (unlike clients: {what}) less the better of fed_avg and ftfa there"
        rows.append(effect(name, "below 0", gap, below=0, source="here"))
    return rows


def half_squared_error(w: Any, batch: Batch, key: Any) -> Any:
    """Linear regression without intercept: the parameters are one vector."""
    return (batch.weight * (batch.x @ w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def _where_methods_end(features: int = 16, examples: int = 8, clients: int = 10, lam: float = 2.0) -> list[Claim]:
    """The largest distance between a method run on the engine and the closed form that the simulation used."""
    made = synthetic.linear(clients, examples, features, held_out=0, dtype="float64", seed=3)
    xs, ys = np.split(made.train.x, clients), np.split(made.train.y, clients)
    steep = max(np.linalg.eigvalsh(x @ x.T / examples)[-1] for x in xs)
    lr, alpha = 1 / steep, 0.3 / steep
    one = dict(steps=1, lr=lr)
    tuned = dict(tune_epochs=None, tune_steps=2000)
    start = linear.maml(xs, ys, alpha)
    ends: dict[str, tuple[int, dict, np.ndarray]] = {
        "fed_avg": (300, one, np.tile(linear.fed_avg(xs, ys), (clients, 1))),
        "ftfa": (300, one | tuned | dict(tune_lr=lr), linear.ftfa(xs, ys)),
        "rtfa": (300, one | tuned | dict(tune_lr=1 / (steep + lam), lam=lam), linear.rtfa(xs, ys, lam)),
        "maml_fl": (
            300,
            one | tuned | dict(order="exact", tune_lr=alpha, tune_steps=6000),
            np.array([linear.fine_tuned(x, y, start) for x, y in zip(xs, ys, strict=True)]),
        ),
        "pfedme": (
            150,
            dict(lam=lam, steps=1, lr=1 / lam, prox_steps=80, prox_lr=1 / (steep + lam)),
            linear.centre(xs, ys, lam)[1],
        ),
        "local": (2, dict(steps=1000, lr=lr), linear.local(xs, ys)),
    }
    rows = []
    for name, (rounds, options, expected) in ends.items():
        build = lambda hyper, round, name=name, options=options: CATALOG[name](half_squared_error, batch=0, **options)
        engine = Vectorized(build, made.train.x, made.train.y, made.train.offsets, block=rounds)
        begun = engine.start(lambda key: jnp.zeros(features), 0)
        if name == "rtfa":  # before any round the centre is zero, and what is tuned from there is the ridge alone
            alone = engine.personal(begun, np.arange(clients))
            rows.append(_ends("local_ridge", alone, linear.local_ridge(xs, ys, lam)))
        rows.append(_ends(name, engine.personal(engine.advance(begun, rounds), np.arange(clients)), expected))
    return rows


def _ends(name: str, models: np.ndarray, expected: np.ndarray) -> Claim:
    away = float(np.abs(models - expected).max())
    return within(f"{name}, run on the engine, ends at its closed form: distance", 0.0, away, by=1e-6, source="theory")


def _figure(found: list[dict[str, np.ndarray]]) -> Figure:
    """Risks against d / n, formulas as lines and simulations as dots; and against the noise."""
    across, noisy = found[: len(RATIOS)], found[len(RATIOS) :]
    fine, loud = np.geomspace(RATIOS[0], RATIOS[-1], 60), np.linspace(NOISES[0], NOISES[-1], 60)
    lengths, beside = (plain.radius, plain.noise), 1.03 * np.array(RATIOS)

    def dots(name: str, places: Any, seen: list[dict[str, np.ndarray]], style: int, called: str = "") -> Line:
        means = [mean_of(one[name]) for one in seen]
        low, high = zip(*(mean.interval for mean in means), strict=True)
        return Line(f"{called or name}, simulated", places, [mean.value for mean in means], low, high, "dots", style)

    by_ratio = [_theory(plain._replace(gamma=float(gamma))) for gamma in fine]
    line = lambda name, style: Line(f"{name}, theory", fine, [risk[name] for risk in by_ratio], style=style)
    noise_lines = {
        "fed_avg": np.full(60, plain.radius**2),
        "ftfa": asymptotics.ridgeless(plain.gamma, plain.radius, loud).total,
        "best_rtfa": asymptotics.best_risk(plain.gamma, plain.radius, loud),
    }
    called = {"best_rtfa": "rtfa, best lam"}
    ratio, risk = "features per example, d / n", "risk (squared error)"
    panels = [
        Panel("Fine-tuned", ratio, risk, [
            line("fed_avg", 0), dots("fed_avg", RATIOS, across, 0), line("ftfa", 1), dots("ftfa", RATIOS, across, 1),
            dots("maml_fl", beside, across, 3),
            Line("ftfa, as printed", fine, printed.ridgeless(fine, *lengths).total, style=2)], log_x=True, log_y=True),
        Panel(f"Ridge-tuned, lam = {plain.lam}", ratio, risk, [
            line("rtfa", 1), dots("rtfa", RATIOS, across, 1), dots("pfedme", beside, across, 3),
            Line("rtfa, as printed", fine, printed.ridge(fine, plain.lam, *lengths).total, style=2)],
            log_x=True, log_y=True),
        Panel("Alone", ratio, risk, [
            line("local", 4), dots("local", RATIOS, across, 4),
            line("local_ridge", 5), dots("local_ridge", RATIOS, across, 5)], log_x=True, log_y=True),
        Panel(f"When does tuning pay? d / n = {plain.gamma:g}", "noise (standard deviation)", risk, [
            part for style, (name, values) in enumerate(noise_lines.items())
            for part in (Line(f"{called.get(name, name)}, theory", loud, values, style=(0, 1, 5)[style]),
                         dots(name, NOISES, noisy, (0, 1, 5)[style], called.get(name, "")))]),
    ]  # fmt: skip
    caption = (
        "Identity covariance, radius 1, noise 1 (but in the last panel), |centre| = 1. Whiskers: 95% over clients. "
        "The printed formulas are those of the paper; the lines called theory have its misprints corrected. "
        "maml_fl and pfedme are drawn a little to the right: they fall on ftfa and rtfa."
    )
    return Figure("Risks of linear estimators: formulas and simulations", caption, panels)
