"""From finished trials to the record and the product of a run."""

from typing import Any

from apiece import files
from apiece.data.unit_scale import scale_warnings
from apiece.evaluate.hurt import Hurt
from apiece.experiment import build as setup
from apiece.experiment import environment, measure, ranking, tables, tune
from apiece.experiment.baseline import Baseline
from apiece.experiment.best import plan_of
from apiece.experiment.constant import about
from apiece.experiment.converge import convergence_of
from apiece.experiment.judge import Outcome
from apiece.experiment.measure import Trials
from apiece.experiment.newcomers import newcomers_over_seeds
from apiece.experiment.partners import record_partners
from apiece.experiment.privacy import privacy_notes, privacy_of
from apiece.experiment.product import Product, describe_product
from apiece.experiment.record import FORMAT as RECORD_FORMAT
from apiece.experiment.record import (
    Candidate,
    Comparator,
    ConstantRecord,
    Federated,
    MethodRecord,
    Partners,
    Record,
    SeedRecord,
    StepSizes,
)
from apiece.experiment.spec import BASELINES, Spec
from apiece.experiment.written import written_spec
from apiece.methods import CATALOG


def make_record(
    spec: Spec,
    place: setup.Arena,
    trials: Trials,
    tuning: dict[str, list[dict[str, Any]]],
    notes: list[str],
    clients: dict[str, tables.ClientMeans],
    constants: dict[str, dict[int, Outcome]],
    baseline: Baseline | None,
    steps: StepSizes | None,
    tested: list[int],
    harms: dict[str, Hurt] | None = None,
) -> Record:
    """The record of finished trials; `tested`: after how many rounds their test was seen before; `harms` is filled."""
    gains: dict[str, Any] = {} if baseline is None else measure.gains(place, trials, baseline, harms)
    plain, chooses = files.as_plain(written_spec(spec)), place.criterion.chosen_by
    best = {name: tune.best(tuning[name], *chooses) for name in trials}
    plans = {name: plan_of(spec.rows[name].method, spec.train) for name in trials}
    rests = {n: convergence_of(mine, tuning[n], best[n], plans[n]) for n, mine in trials.items()}
    methods: dict[str, MethodRecord] = {}
    for name, by_seed in trials.items():
        per_seed = {seed: measure.metrics(place, outcome) for seed, outcome in by_seed.items()}
        tried = [Candidate.model_validate(one) for one in tuning[name]]
        row, written = spec.rows[name], plain["methods"][name].get("method", "")
        if name in gains and "diverged" not in gains[name]:
            alone = None if baseline is None else rests.get(baseline.name)
            catching = rests[name].improves if alone is None else ranking.may_close_gap(alone, rests[name])
            gains[name]["so_far"] = catching or (alone is not None and alone.improves)
        methods[name] = MethodRecord(
            method=written,
            options=CATALOG.complete(row.method, row.options | tuning[name][best[name]]["options"]),
            tuning=tried,
            seeds=[SeedRecord(seed=s, metrics=m, costs=by_seed[s].costs) for s, m in per_seed.items()],
            summary=measure.over_seeds(list(per_seed.values())),
            newcomers=newcomers_over_seeds(place, by_seed),
            hurt=gains.get(name),
            against={other: measure.against(trials, place, name, other) for other in BASELINES},
            chosen=best[name] if len(tuning[name]) > 1 else None,
            costs=ranking.mean_costs([outcome.costs for outcome in by_seed.values()]),
            beside_local=ranking.count_beside_local(clients[name]),
            fallen=measure.fallen_clients(place, by_seed),
            convergence=rests[name],
            partners=_partners(place, next(iter(by_seed.values()))),
        )
    federation, privacy = place.federation, privacy_of(spec.train, place.population)
    notes = [*notes, *privacy_notes(privacy)]
    return Record(
        format=RECORD_FORMAT,
        environment=environment.environment(),
        revision=environment.revision(),
        spec=plain,
        model=place.model.name,
        federation=Federated.model_validate(federation.summary()),
        methods=methods,
        notes=[*federation.notes, *scale_warnings(federation), *filter(None, [place.criterion.why]), *notes],
        ranking=ranking.rank(place.criterion, methods, clients, baseline.name if baseline else "local"),
        constants=_constants(place, constants),
        baseline=_comparator(place, baseline),
        tested=tested,
        metrics={metric.name: metric.higher_is_better for metric in place.metrics},
        steps=steps,
        **({} if privacy is None else {"privacy": privacy}),
    )


def make_product(spec: Spec, place: setup.Arena, record: Record) -> Product:
    """What a prediction needs, by the settings that were chosen."""
    chosen = {name: method.tuning[method.chosen or 0].options for name, method in record.methods.items()}
    return describe_product(spec, place, chosen, recommended(record))


def recommended(record: Record) -> str:
    """The method that validation chooses, which the test data did not touch; of a single one, that."""
    return record.ranking.by_validation or record.ranking.order[0]


def _partners(place: setup.Arena, outcome: Outcome) -> Partners | None:
    return record_partners(place.ids[: place.population].tolist(), outcome.curve[-1]) if outcome.curve else None


def _constants(place: setup.Arena, found: dict[str, dict[int, Outcome]]) -> dict[str, ConstantRecord]:
    told = lambda name: about(name, place.federation.task)
    summary = lambda by_seed: measure.over_seeds([measure.metrics(place, one) for one in by_seed.values()])
    return {name: ConstantRecord(about=told(name), summary=summary(one)) for name, one in found.items()}


def _comparator(place: setup.Arena, found: Baseline | None) -> Comparator | None:
    if found is None:
        return None
    by = place.criterion.metric
    return Comparator(name=found.name, constant=found.constant, metric=by, validation=found.validation)
