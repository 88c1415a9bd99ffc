"""The server's part of a deployed run: agree, train row by row, judge, write the record; killed, it goes on."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from apiece import files
from apiece.deploy.agree import Agreed, Surveys, agree_on
from apiece.deploy.config import ServerConfig, hash_of
from apiece.deploy.place import stand_in_arena, stand_in_federation
from apiece.deploy.roster import Roster
from apiece.deploy.site import QUESTIONS
from apiece.deploy.survey import add_measures, read_measure, read_survey
from apiece.deploy.welcome import Welcome
from apiece.engines.remote.exchange import Exchange, Pace, Tell
from apiece.engines.remote.ledger import Ledger
from apiece.engines.remote.letter import Terms, minor_version
from apiece.engines.remote.networked import Networked
from apiece.engines.remote.post import Post
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment import checkpoint, measure, tables
from apiece.experiment.baseline import alone_among, choose_baseline
from apiece.experiment.bench import Bench
from apiece.experiment.conclude import make_record, recommended
from apiece.experiment.constant import constants_beside
from apiece.experiment.folder import RunFolder, name_file, write_record
from apiece.experiment.judge import Outcome, judge
from apiece.experiment.metric import METRICS
from apiece.experiment.privacy import refuse_public_noise
from apiece.experiment.product import Product, describe_product, write_product
from apiece.experiment.record import Record
from apiece.experiment.secure import secure_of
from apiece.experiment.spec import Spec, make_spec, read_values
from apiece.experiment.train import spent, train
from apiece.experiment.world import participation_of
from apiece.machine import peak_memory_mb
from apiece.protocol import Tree

WELCOMED = "welcomed.json"  # in the server's state: which newcomers have which models
KEPT = "personal models stay at the sites; this folder has the server's state, from which newcomers get theirs"


def read_run(path: Path) -> Spec:
    """The spec of a run: its rows are not tuned, and are trained in the order in which they stand."""
    values = read_values(path)
    return make_spec({**values, "tune": 1}, str(path))


class Server:
    """A run over a post, with all that it keeps in one folder.

    Args:
        folder: the server's. config: how long to wait. spec: what to run. roster: who is who, now;
            the sites that train are those of the beginning.
    """

    def __init__(
        self,
        folder: Path,
        config: ServerConfig,
        spec: Spec,
        roster: Callable[[], Roster],
        post: Post,
        tell: Tell,
    ) -> None:
        self.folder, self.config, self.spec, self.roster, self.tell = folder, config, spec, roster, tell
        self.names = roster().names[: roster().population]
        refuse_unfit(spec)
        if spec.train.secure is not None and config.buffer:
            raise UserError("train.secure goes with rounds: masks cancel among sites that answer together; set buffer "
                            "= 0 in server.toml")  # fmt: skip
        waits = {name: getattr(config, name) for name in ("deadline", "goal", "least", "again", "patience", "buffer")}
        terms = Terms(minor_version(), config.run, "")
        self.exchange = Exchange(post, terms, Pace(**waits), tell)
        self.run = RunFolder(folder / "run")
        self.state = folder / "state"

    def serve(self) -> Record:
        """The whole run; what a killed server had done is found on its disk."""
        surveys, agreed = self._agree()
        place = stand_in_arena(stand_in_federation(self.config.run, self.names, surveys, agreed), self.spec)
        self._publish(place)
        files.write_toml(self.run.spec, self._written())
        trials: dict[str, dict[int, Outcome]] = {}
        benches = {
            name: Bench(place, row.method, row.options | row.points(1)[0], self.spec.train)
            for name, row in self.spec.rows.items()
        }
        bring = lambda name, seed, late: self._bring(name, benches[name], seed, late)
        welcome = Welcome(self.state / WELCOMED, self.roster, self.exchange.post, self.tell, bring)
        for name, bench in benches.items():
            trials[name] = {}
            for seed in self.spec.seeds:
                trials[name][seed] = self._trial(name, bench, seed)
                welcome.trained(name, seed)
        record = self._conclude(place, trials)
        welcome.wait(self.config.welcome)
        self._finish()
        return record

    # Before the first round.

    def _agree(self) -> tuple[Surveys, Agreed]:
        """The sites' surveys and what follows from them; from the disk if that was found before."""
        kept = self.state / "agreed.json"
        if kept.exists():
            known = files.read_json(kept)
            surveys = {int(i): one for i, one in known["surveys"].items()}
            measure: Callable[..., Tree] = _from_list(known["measured"])
        else:
            self.exchange.pace = _patient(self.exchange.pace)
            surveys = self._survey()
            measured: list[Any] = []
            measure = lambda *asked: _noted(measured, self._measure(*asked))
        scale = setup.scaling_wanted(self.spec.data)
        labels = {one["label_column"] for one in surveys.values() if one.get("label_column")}
        agreed = agree_on(surveys, self.names, labels.pop() if len(labels) == 1 else "label", measure, scale)
        if not kept.exists():
            files.write_json(kept, {"surveys": {str(i): one for i, one in surveys.items()}, "measured": measured})
            self.tell("surveyed", sites=len(surveys), task=agreed.task, classes=list(agreed.classes)[:20])
        self.exchange.pace = self.exchange.pace.__class__(**{**vars(self.exchange.pace), "least": self.config.least})
        return surveys, agreed

    def _survey(self) -> dict[int, dict[str, Any]]:
        everybody = range(len(self.names))
        found = self._asked("survey", {i: {} for i in everybody})
        return {i: read_survey(body, self.names[i]) for i, (_, body) in sorted(found.items())}

    def _measure(self, question: str, of: str, message: Any, rules: Mapping[str, Any] | None) -> Tree:
        """The sum of all sites' answers."""
        about = {"question": question, "of": of, "rules": rules}
        about |= {} if isinstance(message, tuple) and not message else {"message": np.asarray(message).tolist()}
        found = self._asked("measure", {i: about for i in range(len(self.names))})
        names = self.names
        total = add_measures({names[i]: read_measure(body, names[i]) for i, (_, body) in sorted(found.items())})
        return total if len(total) > 1 else total[0]

    def _asked(self, task: str, about: dict[int, dict[str, Any]]) -> dict[int, tuple[dict[str, Any], bytes]]:
        """The answers of everybody; who does not agree is told in the error, with its reason."""
        said: dict[int, str] = {}
        tell, self.exchange.tell = self.exchange.tell, lambda event, **told: _overheard(event, told, said, self.tell)
        try:
            found = self.exchange.ask(task, "", dict.fromkeys(about, b""), about, strict=True)
        finally:
            self.exchange.tell = tell
        if lost := [i for i in about if i not in found]:
            names = ", ".join(f"'{self.names[i]}'" for i in lost)
            why = next((f": {said[i]}" for i in lost if i in said), "; it must be running once, before the first round")
            raise UserError(f"before the first round all sites agree, and {names} did not answer{why}")
        return found

    def _publish(self, place: setup.Arena) -> None:
        """Tell every site what was agreed, and the spec; each says yes, or why not."""
        self.product = self._product(place)
        proposal = {**self.product.plain(), "packages": {}}
        self.exchange.introduction = json.dumps(proposal).encode()
        bare = self.exchange.terms._replace(spec="")
        self.exchange.terms = bare._replace(spec=hash_of(proposal))
        done = self.state / "published"
        if done.exists() and done.read_text() == self.exchange.terms.spec:
            return  # whoever forgot it since is told again when it says so
        everybody = {i: self.exchange.introduction for i in range(len(self.names))}
        said: dict[int, str] = {}
        tell, self.exchange.tell = self.exchange.tell, lambda event, **told: _overheard(event, told, said, self.tell)
        found = self.exchange.ask("propose", "", everybody, {i: {} for i in everybody}, strict=True)
        self.exchange.tell = tell
        if lost := [i for i in everybody if i not in found]:
            raise UserError(f"'{self.names[lost[0]]}' does not agree: {said.get(lost[0], 'it did not answer')}")
        with files.replace_file(done) as temporary:
            temporary.write_text(self.exchange.terms.spec)
        self.tell("published", spec=self.exchange.terms.spec, methods=list(self.product.methods))

    def _product(self, place: setup.Arena) -> Product:
        chosen = {name: row.points(1)[0] for name, row in self.spec.rows.items()}
        return describe_product(self.spec, place, chosen, list(self.spec.rows)[-1])

    # The run.

    def _trial(self, name: str, bench: Bench, seed: int) -> Outcome:
        """One method and seed, trained and judged; from its file if it was finished before."""
        done, keep = self.run.outcome(name, seed), self.run.checkpoint(name, seed)
        if done.exists():
            return checkpoint.load_outcome(done)
        place, plan = bench.place, bench.plan.model_copy(update={"checkpoint_seconds": 0.0})
        engine, hyper = self._engine(name, bench, seed)
        state, curve, seconds = train(engine, place, hyper, seed, plan, keep=keep)
        judged, arrays = judge(engine, place, state)
        costs = {**spent(engine, state, curve), "seconds": seconds, "peak_memory_mb": peak_memory_mb()}
        outcome = Outcome(judged, arrays, curve, costs, KEPT)
        arrays_kept = files.arrays_by_path("server", state.server) | files.arrays_by_path("initial", state.params)
        about = {"clients": [], "round": state.round, "seed": seed, "visits": engine.visits(state)}
        files.write_arrays(self.run.models(name, seed), arrays_kept, about)
        checkpoint.save_outcome(done, outcome)
        keep.unlink(missing_ok=True)
        self.tell("trained", row=f"{name}~{seed}", round=state.round, seconds=round(seconds, 3), refused=state.refused)
        return outcome

    def _engine(self, name: str, bench: Bench, seed: int) -> tuple[Networked, dict[str, float]]:
        place, plan = bench.place, bench.plan
        build, hyper = setup.method_of(place, bench.method, bench.options, plan)
        weights = None if plan.weights == "examples" else _given_weights(plan.weights, place.population)
        x, y = np.zeros((1, *place.x.shape[1:]), place.x.dtype), np.zeros((1, *place.y.shape[1:]), place.y.dtype)
        parts = {part: place.sizes(part) for part in place.splits}
        engine = Networked(
            build,
            (x, y),
            place.sizes("train"),
            exchange=self.exchange,
            ledger=Ledger(self.state / f"{name_file(name)}-{seed}"),
            row=f"{name}~{seed}",
            parts=parts,
            population=place.population,
            participation=participation_of(plan),
            weights=weights,
            questions=QUESTIONS,
            secure=secure_of(plan, place.population),
        )
        return engine, hyper

    def _conclude(self, place: setup.Arena, trials: dict[str, dict[int, Outcome]]) -> Record:
        """Record, tables, product and page, as a simulated run leaves them."""
        from apiece.report.page import write_report

        constants = constants_beside(place, next(iter(trials.values())))
        # Not against constants: their errors are not paired with anybody's, since nobody sent an example.
        baseline = choose_baseline(place, trials, alone_among(self.spec.rows), {})
        clients = tables.client_rows(place, trials, baseline)
        means = tables.means_of_clients(clients, place.criterion.metric)
        tuning: dict[str, list[dict[str, Any]]] = {
            name: [{"options": row.points(1)[0], "validation_loss": None}] for name, row in self.spec.rows.items()
        }
        notes = [
            f"deployed on {place.population} sites: outcomes are sums that each site made of its own examples",
            KEPT,
        ]
        for name, by_seed in trials.items():
            notes += measure.fallen_note(name, measure.fallen_clients(place, by_seed))
        record = make_record(self.spec, place, trials, tuning, notes, means, constants, baseline, None, [])
        tables.write_table(self.run.rounds, tables.round_rows(trials))
        tables.write_table(self.run.clients, clients)
        product = self.product.model_copy(update={"recommended": recommended(record)})
        write_product(self.run.product, product)
        write_record(self.run.path, record)
        write_report(self.run.path)
        return record

    def _bring(self, name: str, bench: Bench, seed: int, late: list[int]) -> list[int]:
        """Give these newcomers a model by a method that is trained, from the server's state in its file; who has it."""
        engine, hyper = self._engine(name, bench, seed)
        state = engine.start(bench.place.model.init, seed, hyper)
        arrays, about = files.read_arrays(self.run.models(name, seed))
        server = engine.take_in(files.rebuild_tree("server", state.server, arrays))
        half = engine._server(dataclasses.replace(state, server=server, round=about["round"]))
        asked = {"round": half.round, "visits": about["visits"], "parts": ["validation", "test"]}
        bodies = {i: half.message(i) for i in late}
        return list(self.exchange.ask("judge", engine.row, bodies, dict.fromkeys(late, asked)))

    def _finish(self) -> None:
        """Tell the sites that it is over; who does not hear it finds out by itself."""
        there = [i for i in range(len(self.roster().names)) if i in self.exchange.post.present()]
        short = {**vars(self.exchange.pace), "deadline": min(20.0, self.exchange.pace.deadline), "least": 0.001}
        self.exchange.pace = Pace(**short)
        about = {"rounds": self.spec.train.rounds}
        self.exchange.ask("finish", "", dict.fromkeys(there, b""), dict.fromkeys(there, about), strict=True)
        with files.replace_file(self.state / "finished") as temporary:
            temporary.write_text(self.exchange.terms.spec)
        self.tell("finished", sites=len(there))

    def _written(self) -> dict[str, Any]:
        from apiece.experiment.written import written_spec

        return written_spec(self.spec)


def refuse_unfit(spec: Spec) -> None:
    """What only a simulation has: a world that is drawn by chance.

    >>> try: refuse_unfit(make_spec({"train": {"faults": {"dropout": 0.1}}}))
    ... except UserError as error: print(error)
    train.faults is of a simulated world; real sites have their own: leave it out
    """
    for name in ("faults", "availability", "attack", "arrivals"):
        if getattr(spec.train, name) is not None:
            raise UserError(f"train.{name} is of a simulated world; real sites have their own: leave it out")
    if spec.metrics or (spec.rank is not None and spec.rank in METRICS):
        raise UserError("metrics that need single examples (auc, f1, one's own) cannot be made of sums; leave "
                        "'metrics' and 'rank' out")  # fmt: skip
    if spec.train.stop is not None or spec.train.until_rest:
        raise UserError("a deployed run has a number of rounds: leave train.stop and train.until_rest out")
    refuse_public_noise(spec.train)


def _patient(pace: Pace) -> Pace:
    """Before the first round everybody must be there."""
    return Pace(**{**vars(pace), "least": 1.0})


def _given_weights(weights: Any, population: int) -> dict[int, float]:
    return dict.fromkeys(range(population), 1.0) if weights == "uniform" else dict(enumerate(map(float, weights)))


def _overheard(event: str, told: dict[str, Any], said: dict[int, str], tell: Tell) -> None:
    if event == "refused" and "client" in told:
        said[told["client"]] = str(told.get("why", ""))
    tell(event, **told)


def _noted(measured: list[Any], found: Tree) -> Tree:
    measured.append(files.as_plain(found if isinstance(found, tuple) else [found]))
    return found


def _from_list(measured: list[Any]) -> Callable[..., Tree]:
    """The answers that were kept, one after the other."""
    left = iter(measured)

    def measure(*asked: Any) -> Tree:
        found = tuple(np.asarray(one) for one in next(left))
        return found if len(found) > 1 else found[0]

    return measure
