"""docs/record.schema.json, generated from the types of the record: `make docs`."""

import json
from typing import Any

from apiece.experiment.record import Record


def schema() -> dict[str, Any]:
    """The JSON schema of record.json.

    >>> schema()["required"][0]
    'format'
    """
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "record.json of apiece"}
    return {**about, **_without_noise(Record.model_json_schema())}


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
    print(json.dumps(schema(), indent=1, ensure_ascii=False))
