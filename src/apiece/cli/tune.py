"""`apiece tune`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.flags import (
    Choose,
    ClientColumn,
    Cohort,
    DataName,
    DataOptions,
    Decimal,
    Delimiter,
    EngineName,
    Excluded,
    FeatureColumns,
    Hidden,
    LabelColumn,
    Metrics,
    MissingWords,
    ModelName,
    ModelOptions,
    NewClients,
    OptimizerName,
    Out,
    Probability,
    Rounds,
    Schedule,
    Seeds,
    Settings,
    SpecFile,
    SplitColumn,
    Standardize,
    Stateless,
    choose_methods,
    listed,
    values_of,
    with_settings,
)
from apiece.cli.terminal import Json, err, plain_errors, progress, ready, show_result
from apiece.errors import UserError


def tune(
    spec: SpecFile = None,
    data: DataName = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods, comma-separated: names, or one's own, file.py:factory; default: the usual nine."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Trials of the dearest method (default 8): the gradients of these are everybody's budget."),
    ] = None,
    gradients: Annotated[
        float | None, typer.Option(help="Instead: the budget of each method, in gradient evaluations, e.g. 1e6.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="spread (points known beforehand), tpe (Optuna); default: tpe above 8 trials.")
    ] = None,
    pruner: Annotated[
        str | None, typer.Option(help="Who gives up trials of tpe on the way: median (default), hyperband or none.")
    ] = None,
    join: Annotated[
        Path | None, typer.Option(help="Go on with the tuning in this folder, also beside other processes.")
    ] = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = None,
    cohort: Cohort = None,
    probability: Probability = None,
    engine: EngineName = None,
    model: ModelName = None,
    hidden: Hidden = None,
    model_option: ModelOptions = None,
    schedule: Schedule = None,
    optimizer: OptimizerName = None,
    metric: Metrics = None,
    choose: Choose = None,
    stateless: Stateless = None,
    new_clients: NewClients = None,
    standardize: Standardize = None,
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    data_option: DataOptions = None,
    set: Settings = None,
    json: Json = False,
) -> None:
    """Tune every method with the same budget, on validation. Writes specs for compare and run."""
    given = dict(locals())
    with plain_errors():
        if join is not None:
            others = [name for name, value in given.items() if name not in ("join", "json") and value not in (None, [])]
            if others:
                raise UserError(f"--join {join}: a tuning goes on as it was begun; leave --{others[0]} out")
            join_folder(join, json)
            return
        from apiece.experiment.spec import BASELINES, make_spec
        from apiece.experiment.tuning import is_tuning, plan_search, tune_spec
        from apiece.files import find_free_path
        from apiece.methods import USUAL

        values = values_of(given)
        if methods is not None:
            values["methods"] = choose_methods(values, listed(methods), BASELINES)
        elif not values.get("methods"):
            values["methods"] = {name: {} for name in USUAL}
        asked = trials if trials is not None or gradients is not None else values.get("tune")
        plan = plan_search(asked, gradients, strategy or "auto", pruner)
        made = make_spec(with_settings(values, set))
        ready()
        folder = out or find_free_path(Path("runs/tune"))
        if is_tuning(folder):
            raise UserError(f"there is a tuning in {folder} already: go on with it by apiece tune --join {folder}, or "
                            "give another --out")  # fmt: skip
        try:
            with progress() as watch:
                found = tune_spec(made, folder, plan, watch)
        except KeyboardInterrupt:
            stopped(folder)
        show_tuning(found, json)


def join_folder(folder: Path, as_json: bool) -> None:
    """Go on with a tuning, and show what it found."""
    from apiece.experiment.tuning import join_tuning

    ready()
    try:
        with progress() as watch:
            found = join_tuning(folder, watch)
    except KeyboardInterrupt:
        stopped(folder)
    show_tuning(found, as_json)


def stopped(folder: Path) -> None:
    """The user ended it: how to go on."""
    from apiece.experiment.tuning import is_tuning

    hint = f"continue with: apiece tune --join {folder}" if is_tuning(folder) else "nothing was written"
    err.print(f"\nstopped; {escape(hint)}", soft_wrap=True)
    raise typer.Exit(130)


def show_tuning(found: Any, as_json: bool) -> None:
    """The table, and where everything lies; or that others are still at work."""
    from apiece.report.tuning import tuning_table, write_tuning

    if found.running:
        many = f"{found.running} trial{'s' if found.running != 1 else ''}"
        told = f"other processes are still at {many}; the last of them writes the results into {found.folder}"
        show_result({"folder": str(found.folder), "running": found.running}, as_json, escape(told))
        return
    files = write_tuning(found.record, found.folder)
    show_result({"folder": str(found.folder), **found.record}, as_json, tuning_table(found.record, found.folder))
    names = ", ".join(["spec.toml", "methods/", "tuning.parquet", *(file.name for file in files)])
    err.print(f"[dim]wrote[/] {escape(str(found.folder))}/  [dim]({escape(names)})[/]", soft_wrap=True)
