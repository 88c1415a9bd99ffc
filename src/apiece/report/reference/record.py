"""docs/record.schema.json, product.schema.json and advice.schema.json, generated from their types: `make docs`."""

import json
import sys
from typing import Any

import pydantic

from apiece.advise.advice import Advice
from apiece.experiment.product import Product
from apiece.experiment.record import Record

FILES: dict[str, type[pydantic.BaseModel]] = {"record": Record, "product": Product, "advice": Advice}


def schema(file: str = "record") -> dict[str, Any]:
    """The JSON schema of record.json, of product.json or of advice.json.

    >>> schema()["required"][0], schema("product")["title"]
    ('format', 'product.json of apiece')
    """
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{file}.json of apiece"}
    return {**about, **_without_noise(FILES[file].model_json_schema())}


def _without_noise(value: Any) -> Any:
    """Without what repeats the key or is so by default; versions of pydantic differ in it, too."""
    if isinstance(value, list):
        return [_without_noise(one) for one in value]
    if not isinstance(value, dict):
        return value.partition("\n\n>>>")[0] if isinstance(value, str) else value  # a text without its example
    noise = [key for key in value if (key == "title" and isinstance(value[key], str))
             or (key == "additionalProperties" and value[key] is True)]  # fmt: skip
    return {key: _without_noise(inner) for key, inner in value.items() if key not in noise}


if __name__ == "__main__":
    print(json.dumps(schema(*sys.argv[1:]), indent=1, ensure_ascii=False))
