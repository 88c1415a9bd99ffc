"""FFGG when nobody waits for the slow.

The FFGG paper proves that asynchronous FFGG converges if one theta suits everybody, for steps up to
1/(2 L sqrt(2 A d)), A clients at work and replies up to d versions late; it has no experiment on this that could be
repeated. Its listing hands the new theta to a client drawn uniformly ("new"), its text to the one that has just
answered ("same"). Ours: 16 clients with F_m(theta) = J_m (theta - o_m) in 10 dimensions after an exact fine-tuning of 4
private parameters, about half of J_m's eigenvalues zero and the others uniform in [0.05, 1]; 8 clients at work, visits
of an exponential time of mean 1 for half of the clients and 10 for the other half, step 0.1, 4000 replies. The optima
o_m are one and the same, or apart by a normal of standard deviation 0.5 in each coordinate. Independent repetitions
have problems and arrivals of their own. The synchronous run waits for a cohort of 8, and steps by 1/L. The theorem's
rate is judged at the theorem's step, which the longest delay of each run makes about eight times smaller.
"""

import numpy as np
from numpy.typing import NDArray

from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import POLICIES
from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.ffgg.private_quadratics import Problems
from apiece.reproduce.ffgg.slow_clients import (
    ACTIVE,
    CLIENTS,
    PRIVATE,
    SHARED,
    SMOOTHNESS,
    Federation,
    Trace,
    best,
    delay_of,
    mean_square,
    problems,
    pull,
)
from apiece.reproduce.verdict import Claim, Reproduction, effect, mean_of, within
from apiece.theory.ffgg import late_bound, late_step

STEP = 0.1
OPTIMA = ("shared", "apart")
EXACT = 1e-12
NEAR = 1e-6  # what both ways, waiting and not, are timed to


def run(quick: bool, watch: Watch) -> Reproduction:
    """Both policies and waiting, on shared optima and optima apart."""
    count, replies, rounds = (4, 3000, 150) if quick else (12, 4000, 200)
    made = problems(count)
    federation = Federation(made.f)
    engines: dict[str, Asynchronous | Vectorized] = {
        "new": federation.late("new", 100),
        "same": federation.late("same", 200),
        "waiting": federation.waiting(5),
    }
    traces: dict[tuple[str, str], list[Trace]] = {}
    for done, (way, optima) in enumerate((way, optima) for way in engines for optima in OPTIMA):
        watch(f"{way}, optima {optima}", done, len(engines) * len(OPTIMA))
        # Slow clients who go on themselves are heard rarely: it takes more replies to the end.
        lengths = {"new": replies, "same": replies * (3 if optima == "shared" else 1), "waiting": rounds}
        lr = 1 / SMOOTHNESS if way == "waiting" else STEP
        first = OPTIMA.index(optima) * count
        traces[way, optima] = [federation.trace(engines[way], first + k, k, lengths[way], lr) for k in range(count)]
    pulls = {
        (way, optima): np.array([
            [pull(made, OPTIMA.index(optima) * count + k, theta) for theta in trace.theta]
            for k, trace in enumerate(found)
        ])
        for (way, optima), found in traces.items()
    }  # fmt: skip
    claims = [
        *_shared_claims(pulls, traces),
        *_apart_claims(pulls, traces, made),
        *_step_claims(pulls, traces),
        *_rate_claims(federation, engines, made, count, replies),
        *_clock_claims(pulls, traces),
    ]
    settings = {
        "clients": CLIENTS, "at work": ACTIVE, "shared": SHARED, "private": PRIVATE, "step": STEP, "replies": replies,
        "rounds of waiting": rounds, "step of waiting": 1 / SMOOTHNESS, "repetitions": count,
    }  # fmt: skip
    note = "With policy 'same' the eight clients that start are the only ones heard, and the fast of them most often."
    return Reproduction(claims, _figure(pulls, traces), settings, (note,))


def _shared_claims(pulls: dict, traces: dict) -> list[Claim]:
    ends = {policy: float(pulls[policy, "shared"][:, -1].max()) for policy in POLICIES}
    # The slow runs of policy 'same' are three times as long; this is where those of policy 'new' end.
    replies = int(traces["new", "shared"][0].heard.sum())
    done = [values[len(values) // 3] < EXACT for values in pulls["same", "shared"]]
    assert 3 * replies == traces["same", "shared"][0].heard.sum()
    said = {"new": "'new'", "same": "'same' (named in the prose only)"}
    return [
        *(effect(f"optimum shared, policy {said[policy]}: |F| at the end (largest of all repetitions)", "0", end,
                 below=EXACT) for policy, end in ends.items()),
        within("optimum shared, policy 'same': share of repetitions there after as many replies as 'new' has", 1.0,
               float(np.mean(done)), source="reference"),
    ]  # fmt: skip


def _apart_claims(pulls: dict, traces: dict, made: Problems) -> list[Claim]:
    """Where it stalls: |F| averaged over the last third, and whose optimum the mean theta of that time is near."""
    claims, stalls, far = [], {}, {}
    everybody, fast_half = np.full(CLIENTS, 1 / CLIENTS), np.where(np.arange(CLIENTS) < CLIENTS // 2, 2 / CLIENTS, 0)
    for policy, reference in zip(POLICIES, (0.088, 0.35), strict=True):
        found, last = traces[policy, "apart"], pulls[policy, "apart"].shape[1] // 3
        thetas = [trace.theta[-last:].mean(0) for trace in found]
        heard = [trace.heard / trace.heard.sum() for trace in found]

        def distance(weights: list[NDArray], thetas: list[NDArray] = thetas) -> NDArray:
            pairs = enumerate(zip(thetas, weights, strict=True), start=len(thetas))
            return np.array([np.linalg.norm(theta - best(made, k, weight)) for k, (theta, weight) in pairs])

        stalls[policy] = pulls[policy, "apart"][:, -last:].mean(1)
        far[policy] = distance([fast_half] * len(found)) / distance([everybody] * len(found))
        stall = mean_of(stalls[policy])
        fast = mean_of([shares[: CLIENTS // 2].sum() for shares in heard])
        evenly = policy == "new"
        name = f"optima apart, policy '{policy}'"
        claims += [
            effect(f"{name}: stalls at |F|, above 0.01", "above 0", stall, above=0.01, source="reference"),
            effect(f"{name}: |F|, up to a factor of 3", reference, stall, above=reference / 3, below=3 * reference,
                   source="reference"),
            effect(f"policy '{policy}': share of replies from the fast half", 0.5 if evenly else "above 0.5", fast,
                   above=0.48 if evenly else 0.5, below=0.52 if evenly else None, source="theory"),
        ]  # fmt: skip
        if not evenly:
            nearer = mean_of(np.log(distance(heard) / distance([everybody] * len(found))))
            what = f"{name}: log of (distance to the optimum of clients weighted by replies / to the true one)"
            claims.append(effect(what, "below 0", nearer, below=0, source="reference"))
    more, toward = (mean_of(np.log(of["same"] / of["new"])) for of in (stalls, far))
    own = mean_of(np.log(far["same"]))
    return [
        *claims,
        effect("optima apart, policy 'same': log of (distance to the fast half's optimum / to the true one)", "below 0",
               own, below=0, source="reference"),
        effect("optima apart: log of (|F| of policy 'same' / of 'new')", "above 0", more, above=0, source="reference"),
        effect("optima apart: log of (distance to the fast half's optimum / to the true one), policy 'same' less 'new'",
               "below 0", toward, below=0, source="reference"),
    ]  # fmt: skip


def _step_claims(pulls: dict, traces: dict) -> list[Claim]:
    delay = max(trace.delay for trace in traces["new", "shared"])
    proved = late_step(SMOOTHNESS, ACTIVE, delay)
    end = pulls["new", "shared"][:, -1].max()
    return [
        within("the proved step at delays up to 95", 0.0128, late_step(SMOOTHNESS, ACTIVE, 95), by=5e-5,
               source="reference"),
        effect("a step above the proved one converges, too (times the proved one), above 3", "far above 1",
               float(STEP / proved) if end < EXACT else 0.0, above=3, source="reference"),
    ]  # fmt: skip


def _rate_claims(federation: Federation, engines: dict, made: Problems, count: int, replies: int) -> list[Claim]:
    """Theorem 7 at its own step: the mean of |F_m|^2 over versions and clients, over its bound, at the worst R."""
    claims = []
    for policy in POLICIES:
        engine, over = engines[policy], []
        for k in range(count):
            delay = delay_of(engine, k, replies)
            trace = federation.trace(engine, k, k, replies, late_step(SMOOTHNESS, ACTIVE, delay))
            # Looked at when a block begins, where they are larger than later in it.
            seen = np.array([mean_square(made, k, theta) for theta in trace.theta[:-1]])
            ends = engine.block * np.arange(1, len(seen) + 1)
            start = float(np.linalg.norm(made.optima[k, 0]))
            bound = late_bound(SMOOTHNESS, start, ends, ACTIVE, delay)
            over.append(np.cumsum(seen) / np.arange(1, len(seen) + 1) / bound)
        worst = int(np.mean(over, axis=0).argmax())
        said = "" if policy == "new" else " (the proof needs 'new')"
        name = f"optimum shared, policy '{policy}'{said}, proved step: mean |F_m|^2 over R versions, over its bound"
        found = mean_of(np.array(over)[:, worst])
        claims.append(effect(f"{name} (worst R)", "below 1", found, below=1, source="paper" if not said else "here"))
    return claims


def _clock_claims(pulls: dict, traces: dict) -> list[Claim]:
    """How long until |F| is, and stays, below 1e-6, in the simulated world."""

    def reached(way: str) -> NDArray:
        found = []
        for trace, values in zip(traces[way, "shared"], pulls[way, "shared"], strict=True):
            k = np.flatnonzero(values >= NEAR)[-1]
            late, early = np.log(values[k : k + 2] / NEAR) if k + 1 < len(values) else (1.0, np.nan)
            found.append(np.interp(0, [-late, -early], trace.clock[k : k + 2]) if early < 0 else np.inf)
        return np.array(found)

    ratio = mean_of(reached("waiting") / reached("new"))
    name = f"time to |F| below {NEAR:.0e}: waiting for a cohort, over not waiting"
    return [effect(name, "above 1", ratio, above=1, source="here")]


def _figure(pulls: dict, traces: dict) -> Figure:
    panels = []
    for optima in OPTIMA:
        lines = []
        for way in ("new", "same", "waiting"):
            clocks = [trace.clock for trace in traces[way, optima]]
            # Repetitions have clocks of their own: each is read off at common times.
            times = np.linspace(0, min(clock[-1] for clock in clocks), 80)
            logs = np.array([np.interp(times, clock, np.log(np.maximum(values, 1e-18)))
                             for clock, values in zip(clocks, pulls[way, optima], strict=True)])  # fmt: skip
            name = "waiting for 8 of 16" if way == "waiting" else f"asynchronous, {way} client"
            lines.append(Line(name, times, *np.exp([np.median(logs, axis=0), logs.min(axis=0), logs.max(axis=0)])))
        panels.append(Panel(f"Optima {optima}", "simulated time (a fast client's visit = 1)", "|F|", lines, log_y=True))
    caption = (
        "FFGG with exact inner solves; half of the clients take ten times as long. Median and range of repetitions."
    )
    return Figure("Asynchronous FFGG", caption, panels)
