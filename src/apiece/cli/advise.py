"""`apiece advise`: should one personalize, how much, with whom, by which method."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.flags import (
    ClientColumn,
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
    SplitColumn,
    Standardize,
    values_of,
)
from apiece.cli.terminal import Json, err, plain_errors, progress, ready, show_result


def advise(
    data: Annotated[str, typer.Argument(help="A source (see: apiece data list), file or folder.")],
    model: ModelName = None,
    hidden: Hidden = None,
    model_option: ModelOptions = None,
    adapter: Annotated[
        int | None, typer.Option(help="Give the network low-rank adapters of this rank: a part that may stay private.")
    ] = None,
    metric: Metrics = None,
    budget: Annotated[
        str | None, typer.Option(help="Seconds that it may take, as in 60s, or a number of gradients.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Folds of four that are held out: 1, 2 or 4; default: 4, or 2 of many rows.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the folds, and of the run that follows.")] = 0,
    private: Annotated[
        float | None,
        typer.Option(help="An epsilon: what clients answer is clipped, noised and accounted for.", metavar="EPSILON"),
    ] = None,
    delta: Annotated[float, typer.Option(help="With --private: the chance that the promise does not hold.")] = 1e-5,
    explain: Annotated[bool, typer.Option("--explain", help="Also what each number means.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="The answer in three sentences, and no more.")] = False,
    engine: EngineName = None,
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
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the answer; an interrupted advice there goes on.")
    ] = Path("runs/advice"),
    json: Json = False,
) -> None:
    """Say how much to personalize, with whom, by which method. From a cheap pilot; writes a spec that runs it."""
    given: dict[str, Any] = dict(locals())
    with plain_errors():
        from apiece.advise import advise as ask_for_advice
        from apiece.experiment import build as setup
        from apiece.experiment.spec import make_spec
        from apiece.report.advice import show_advice

        values = values_of(given)
        if adapter is not None:
            values["model"] = {"name": "auto", **values.get("model", {}), "adapter": {"rank": adapter}}
        ready()
        try:
            with progress() as watch:
                watch("reading the data", 0, 100)
                spec = make_spec(values)
                found = ask_for_advice(
                    setup.federation_of(spec.data), values.get("model"), metric=values.get("rank"), budget=budget,
                    seed=seed, folds=folds, out=out, watch=watch, engine=spec.train.engine, data=values["data"],
                    private=private, delta=delta,
                )  # fmt: skip
        except KeyboardInterrupt:
            err.print(f"\nstopped; the same command goes on from {escape(str(out))}", soft_wrap=True)
            raise typer.Exit(130) from None
        show_result(found.plain(), json, show_advice(found, explain, brief))
        err.print(f"[dim]wrote[/] {escape(str(out))}/  [dim](advice.json, spec.toml)[/]", soft_wrap=True)
