"""Run folders made of random numbers: small, quick, and as odd as a test needs.

Their records are of format 1, before there was a ranking: who reads them makes it from the table of clients.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from apiece.evaluate import hurt, interval, summarize

METHODS = ("local", "fed_avg", "ditto")
TESTS = 20  # examples of each client


def fake_run(
    folder: Path,
    *,
    task: str = "classification",
    methods: tuple[str, ...] = METHODS,
    seeds: int = 3,
    clients: int = 12,
    ids: list[str] | None = None,
    diverged: tuple[str, ...] = (),
    new: int = 0,
    name: str = "toy",
    sampling_error: float = 0.0,
    binary: bool = False,
    profile: bool = False,
) -> dict[str, Any]:
    """Write record.json, rounds.parquet and clients.parquet; the record, as it was before JSON.

    `profile`: and what later versions add, profile.parquet and verdicts.parquet.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(clients)
    ids = ids or [f"c{k}" for k in range(clients + new)]
    sizes = np.round(10 * np.exp(rng.normal(1, 1, clients + new))).astype(int) + 1
    old = np.arange(clients + new) < clients
    found, rounds, rows = {}, [], []
    errors = {m: _errors(rng, task, k, seeds, clients + new, m in diverged) for k, m in enumerate(methods)}
    for method in methods:
        per_seed = []
        for seed in range(seeds):
            score = errors[method][seed].mean(axis=1)
            per_seed.append(_metrics(score, old, task, sizes, binary))
            rounds += _rounds(method, seed, method in diverged, sampling_error)
            gain = 100 * (errors["local"][seed].mean(axis=1) - score) if "local" in methods else None
            rows.append(_client_rows(method, seed, ids, old, sizes, score, task, gain))
        found[method] = {
            "options": {"lr": 0.125, "steps": 20, "epochs": None},
            "tuning": _tuning(method in diverged),
            "seeds": [{"seed": s, "metrics": m, "costs": _costs(method)} for s, m in enumerate(per_seed)],
            "summary": _over_seeds(per_seed),
            "newcomers": _newcomers(errors[method], old, task, new),
            "hurt": _hurt(errors, method, old),
            "against": {},
        }
    record = {
        "environment": {"python": "3.11.0", "platform": "Linux", "packages": {"jax": "0.10.2"}, "devices": ["cpu:cpu"]},
        "revision": None,
        "spec": {"data": {"source": f"data/{name}.csv"}, "train": {"rounds": 30}, "seeds": [*range(seeds)], "tune": 2},
        "model": "softmax 4-2",
        "federation": {"name": name, "task": task, "clients": clients, "new_clients": new,
                       "examples": {"train": int(sizes.sum()), "validation": 9, "test": TESTS * (clients + new)},
                       "train_examples_per_client": {"min": 1, "median": 9.0, "max": 99}},
        "methods": found,
        "notes": [],
    }  # fmt: skip
    (folder / "record.json").write_text(json.dumps(_plain(record), allow_nan=False), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rounds), folder / "rounds.parquet")
    pq.write_table(pa.concat_tables(rows), folder / "clients.parquet")
    if profile:
        _write_profile(folder, rng, ids, old, sizes, methods)
    return record


def _write_profile(folder, rng, ids, old, sizes, methods):
    """Three groups of clients around three corners, five kinds of labels, and some beliefs."""
    count, group = len(ids), np.sort(rng.integers(0, 3, len(ids)))
    group[: min(3, count)] = np.arange(min(3, count))
    places = np.array([[3.0, 0.0], [-2.0, 2.5], [-2.0, -2.5]])[group] + rng.normal(0, 0.5, (count, 2))
    unit = places / np.linalg.norm(places, axis=1, keepdims=True)
    near = [[ids[(k + 1) % count], ids[(k + 2) % count]] for k in range(count)]
    columns = {
        "client": ids,
        "new": ~old,
        **{f"{part}_examples": sizes for part in ("train", "validation", "test")},
        "labels": [rng.multinomial(size, rng.dirichlet([0.5] * 5)).tolist() for size in sizes],
        "group": group.astype(np.int32),
        "map_x": places[:, 0],
        "map_y": places[:, 1],
        "partners": near,
        "partner_similarity": [[0.9, 0.8]] * count,
    }
    if count <= 300:
        columns["similarity"] = (unit @ unit.T).tolist()
    groups = [[0.9 if i == j else -0.4 for j in range(3)] for i in range(3)]
    about = {"classes": list("abcde"), "likeness_of": "models of local, seed 0", "groups": groups}
    table = pa.table(columns).replace_schema_metadata({"apiece": json.dumps(about)})
    pq.write_table(table, folder / "profile.parquet")
    beliefs = [
        pa.table({"method": [name] * count, "client": ids, "believed_gain": rng.normal(3, 2, count),
                  "risk": rng.random(count), "proved": np.zeros(count, bool), "degree": rng.random(count)})
        for name in methods
    ]  # fmt: skip
    pq.write_table(pa.concat_tables(beliefs), folder / "verdicts.parquet")


def _errors(rng, task, k, seeds, clients, diverged):
    """[seeds, clients, examples]: mistakes or squared errors, fewer for later methods."""
    if diverged:
        return np.full((seeds, clients, TESTS), np.nan)
    level = np.clip(rng.beta(3, 9, (1, clients, 1)) - 0.04 * k, 0.01, 1)
    if task == "classification":
        return (rng.random((seeds, clients, TESTS)) < level).astype(float)
    return level * rng.chisquare(1, (seeds, clients, TESTS))


def _newcomers(errors, old, task, new):
    """As if half as many examples made twice the mistakes."""
    if not new:
        return None
    pooled = errors[:, ~old].mean(axis=(1, 2))
    score = lambda error: 1 - error if task == "classification" else error
    key = "accuracy" if task == "classification" else "error"
    return {"clients": new, "examples": [1, 3, 10],
            key: [interval(score(pooled * times))._asdict() for times in (2, 1.5, 1)]}  # fmt: skip


def _metrics(error, old, task, sizes, binary):
    parts = {"validation": old, "test": old} | ({"new_clients": ~old} if (~old).any() else {})
    result = {}
    for part, who in parts.items():
        tests = np.full(who.sum(), TESTS)
        score = 1 - error[who] if task == "classification" else error[who]
        key = "accuracy" if task == "classification" else "error"
        result[part] = {
            "loss": summarize(2 * error[who], tests, False, train_sizes=sizes[who]),
            key: summarize(score, tests, task == "classification", train_sizes=sizes[who]),
        }
        if task == "regression":
            result[part] |= {"r2": 1 - error[who].mean(), "rmse_pooled": error[who].mean() ** 0.5}
            result[part]["rmse"] = summarize(error[who] ** 0.5, tests, False)
        if binary:
            result[part] |= {"auc_pooled": 1 - error[who].mean() / 3, "false_accepts_pooled": error[who].mean()}
            result[part]["auc"] = summarize(1 - error[who] / 3, tests, True)
    return result


def _over_seeds(per_seed):
    return {
        key: _over_seeds([m[key] for m in per_seed])
        if isinstance(value, dict)
        else interval(np.array([m[key] for m in per_seed]))._asdict()
        for key, value in per_seed[0].items()
    }


def _hurt(errors, method, old):
    if method == "local" or "local" not in errors:
        return None
    some = np.flatnonzero(old)[:40]  # the bootstrap is slow, and the report only writes down what it is given
    error, alone = (errors[m][:, some].reshape(len(errors[m]), -1) for m in (method, "local"))
    if not (np.isfinite(error).all() and np.isfinite(alone).all()):
        return {"diverged": True}
    offsets = np.arange(0, TESTS * some.size + 1, TESTS)
    gain = {"gain_over_local": interval(100 * (alone - error).mean(axis=1))._asdict()}
    return hurt(error, alone, offsets, resamples=50).as_dict() | gain | {"clients": int(old.sum())}


def _tuning(diverged):
    return [
        {"options": {"lr": 0.1}, "validation_loss": None},
        {"options": {"lr": 0.125}, "validation_loss": None if diverged else 0.4321},
    ]


def _costs(method):
    sent = 0 if method == "local" else 1_500_000
    return {"rounds": 30, "bytes_up": sent, "bytes_down": 2 * sent, "bytes_final": sent, "bytes_kept_per_client": 2600,
            "gradients": 6000, "gradients_personal": 0, "seconds": 1.25, "peak_memory_mb": 345.6}  # fmt: skip


def _rounds(method, seed, diverged, sampling_error):
    sent = 0.0 if method == "local" else 5e5
    loss = lambda r: float("nan") if diverged and r > 10 else 1 / r + 0.01 * seed + 0.002 * len(method)
    return [
        {"method": method, "seed": seed, "round": r, "validation_loss": loss(r), "validation_error": loss(r) / 2,
         "sampling_error": sampling_error, "seconds": 0.1 * r, "bytes_up": sent * r, "bytes_down": sent * r,
         "gradients": 200.0 * r}
        for r in (10, 20, 30)
    ]  # fmt: skip


def _client_rows(method, seed, ids, old, sizes, error, task, gain):
    columns = {
        "method": [method] * len(ids),
        "seed": np.full(len(ids), seed),
        "client": ids,
        "new": ~old,
        "train_examples": sizes,
        "test_examples": np.full(len(ids), TESTS),
        "test_loss": 2 * error,
        "test_accuracy" if task == "classification" else "test_error": 1 - error if task == "classification" else error,
    }
    return pa.table(columns | ({} if gain is None else {"gain_over_local": gain}))


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
