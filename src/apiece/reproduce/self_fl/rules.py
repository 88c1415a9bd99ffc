"""Self-FL's two rules and where Algorithm 1 ends: what is printed against what comes out."""

import jax.numpy as jnp
import numpy as np

from apiece.estimate import variance as watched
from apiece.reproduce.self_fl.gaussian_clients import CENTRE, DRAWN, LR, Clients, drawn, matched, played, self_fl
from apiece.reproduce.verdict import Claim, Mean, effect, mean_of, ratio_of, within
from apiece.theory import self_fl as theory
from apiece.theory.formulas import whole_steps


def numbers_of_steps() -> list[Claim]:
    """The l_m of all clients in all repetitions."""
    claims = []
    for case, (least, most, middle) in {1: (3, 4, 4), 2: (21, 183, 36)}.items():
        every = drawn(case, 1.0, DRAWN, 0)
        others = theory.hierarchy(every.variance, every.spread, "paper").others
        steps = np.asarray(whole_steps(every.variance, others, LR / every.variance, 1000))
        for word, wanted, got in (
            ("fewest", least, steps.min()),
            ("most", most, steps.max()),
            ("median of the", middle, np.median(steps)),
        ):
            claims.append(within(f"case {case}: {word} local steps of Self-FL", wanted, got, source="reference"))
    return claims


def rules(printed_errors: np.ndarray, bayes_errors: np.ndarray, quick: bool) -> list[Claim]:
    """Is the printed "FL-optimal" estimate the best one under the paper's own model?

    Both [cases, repetitions]: the own errors of self_fl with the two rules when everybody takes part.
    """
    rng, ones = np.random.default_rng(0), np.ones(100)
    theta = CENTRE + rng.standard_normal((400, 100))
    z = theta + rng.standard_normal((400, 100))
    off = lambda found: mean_of(np.mean((found - theta) ** 2, axis=1))
    printed, bayes = (off(theory.posterior(z, ones, np.float64(1), rule)[0]) for rule in ("paper", "bayes"))
    believed = [float(theory.posterior(z[0], ones, 1.0, rule)[1][0]) for rule in ("paper", "bayes")]
    squares = lambda found: np.mean((found - theta) ** 2, axis=1)
    alone = ratio_of(squares(z), squares(theory.posterior(z, ones, np.float64(1), "paper")[0]))
    gain, sure = float(theory.gain(ones, 1.0, "paper")[0]), float(theory.gain([0.01, 1.0], 1.0, "paper")[1])
    least = theory.printed_gain_bound(1.0, 0.01)
    what = "100 clients, all variances 1"
    claims = [
        within(f"{what}: squared error of the printed rule, to 5%", believed[0], printed, 0.05),
        within(f"{what}: of the Bayes rule, to 5%", believed[1], bayes, 0.05, source="theory"),
        independent(f"{what}: printed rule, measured", 0.978, printed),
        independent(f"{what}: Bayes rule, measured", 0.5035, bayes),
        within(f"{what}: GAIN of the printed rule over training alone, to 10%", gain, alone, 0.1),
        effect(
            "GAIN beside a client of a hundredth of one's variance, spread 1", f"above {least:g}", sure, above=least
        ),
    ]
    if not quick:
        claims += by_algorithm_2(what)
    for case, shared_error, printed_error, bayes_error, alone_error in (
        (1, 0.0171, 0.0293, 0.0281, 0.0665),
        (2, 0.1757, 0.0377, 0.0294, 0.0294),
    ):
        every = drawn(case, 1.0, DRAWN, 0)
        away = lambda found, theta=every.theta: np.abs(found - theta).mean(axis=1)
        known = every.z, every.variance, every.spread
        local, ideal = away(every.z), away(theory.posterior(*known)[0])
        first = printed_errors.shape[-1]
        ratio = ratio_of(printed_errors[case - 1], local[:first])
        reached = ratio_of(bayes_errors[case - 1], ideal[:first])
        claims += [
            matched(f"case {case}: shared error of the posterior mean of the centre", shared_error,
                    np.abs(theory.global_estimate(*known)[0] - CENTRE)),
            matched(f"case {case}: own error of the FL-optimal estimates", printed_error,
                    away(theory.posterior(*known, "paper")[0])),
            matched(f"case {case}: own error of training alone", alone_error, local),
            matched(f"case {case}: own error of the posterior mean", bayes_error, ideal),
            effect(f"case {case}, C = 1: own error of self_fl over training alone", "below 1", ratio, below=1),
            within(
                f"case {case}, C = 1: that of self_fl (bayes) over the posterior mean's", 1, reached, 0.02, 0, "theory"
            ),
        ]  # fmt: skip
    return claims


def independent(name: str, wanted: float, found: Mean) -> Claim:
    """Against another mean of as many repetitions with other draws, to 5%."""
    return within(f"{name}, to 5%", wanted, found, 0.05, source="reference")


def by_algorithm_2(what: str) -> list[Claim]:
    """The same squared errors, by the method itself: one coordinate a repetition, two rounds."""
    rng, shape = np.random.default_rng(1), (400, 100)
    theta = CENTRE + rng.standard_normal(shape)
    every = Clients(
        theta, theta + rng.standard_normal(shape), np.ones(shape), np.ones(shape, int), np.ones(400),
        np.ones((400, 2, 100), bool),
    )  # fmt: skip
    claims = []
    for rule, wanted in (("paper", 0.978), ("bayes", 0.5035)):
        build = self_fl(every, rule, lr=0.01, l_max=200, tune_steps=10, augmented=True)
        found = mean_of(played(build, every, lambda x, own, theta: jnp.square(own - theta).mean(), 2))
        claims.append(independent(f"{what}: Algorithm 2, rule {rule}", wanted, found))
    return claims


def algorithms_ends() -> list[Claim]:
    """Where Algorithm 1 goes with everybody, small steps (so that rounding their number hardly matters) and time."""
    every = drawn(1, 1.0, 50, 300)
    build = self_fl(every, "paper", lr=1e-5)
    models = played(build, every, lambda x, own, theta: own, 300)
    aim = theory.posterior(every.z, every.variance, every.spread, "paper")[0]
    end = theory.fixed_point(every.z, every.variance, every.spread)[0]
    to_aim, to_end = (np.abs(models - place).max(axis=1) for place in (aim, end))
    missed = mean_of(to_aim)
    sizes, rng, gaps = np.array([20, 100, 1000]), np.random.default_rng(0), []
    for m in sizes:
        variance = 0.1 * rng.uniform(0.5, 1.5, (20, m))
        z = CENTRE + np.sqrt(0.5 + variance) * rng.standard_normal(variance.shape)
        wide = np.full(20, 0.5)
        gap = theory.fixed_point(z, variance, wide)[0] - theory.posterior(z, variance, wide, "paper")[0]
        gaps.append(np.abs(gap).max(axis=1).mean())
    slope = np.polyfit(np.log(sizes), np.log(gaps), 1)[0]
    return [
        effect("case 1: largest gap between Algorithm 1's end and the FL-optimal estimates", "below 0.001", missed,
               below=1e-3, source="here"),
        effect("case 1: the same gap to its own fixed point, over that", "below 0.1", ratio_of(to_end, to_aim),
               below=0.1, source="theory"),
        within("the gap falls with the number of clients to the power", -0.5, float(slope), by=0.15),
    ]  # fmt: skip


def running_variance() -> list[Claim]:
    """Of seven numbers: by the printed recursion, in which the mean's move is not squared, and by the library's."""
    values, seen = np.random.default_rng(3).standard_normal(7), watched.none_yet(jnp.zeros(()))
    mean = printed = 0.0
    for t, value in enumerate(values, 1):
        seen = watched.observe(seen, jnp.asarray(value))
        moved = (value - mean) / t
        mean += moved
        printed = (t - 1) / t * (printed + moved) + (value - mean) ** 2 / t
    true = float(values.var())
    return [
        within("seven numbers: variance by the printed recursion", true, printed, by=1e-9),
        within("seven numbers: variance by the corrected recursion", true, seen.variance, by=1e-9, source="theory"),
    ]
