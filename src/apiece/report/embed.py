"""Plots into a page: their description as JSON, and Bokeh's own script beside it, so that the page opens offline."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import bokeh
from bokeh.core.serialization import Serializer
from bokeh.resources import Resources
from markupsafe import Markup

from apiece.files import as_plain
from apiece.report.look import clean

IDS = re.compile(r"p\d+")


def describe_plots(plots: Mapping[str, Any]) -> dict[str, Any]:
    """One document with all of these plots and tables: {"doc": ..., "roots": {element: id}}.

    The same plots give the same text: Bokeh's ids, which count everything that a process has made, are made anew.

    >>> from bokeh.plotting import figure
    >>> describe_plots({"a": figure()}) == describe_plots({"a": figure()})
    True
    """
    new: dict[str, str] = {}
    # What `Document.to_json` writes; a document would look for the models of all its roots again at each one.
    roots = Serializer(deferred=False).encode(list(plots.values()))
    described = {"version": bokeh.__version__, "title": "apiece", "roots": _renamed(roots, new)}
    return {"doc": described, "roots": {element: new[plot.id] for element, plot in plots.items()}}


def _renamed(value: Any, new: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(one, new) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, one in value.items():
        if key == "id" and isinstance(one, str) and IDS.fullmatch(one):
            one = new.setdefault(one, f"m{len(new)}")
        found[key] = _renamed(one, new)
    return found


@cache
def bokeh_scripts(tables: bool = True) -> tuple[Markup, ...]:
    """Bokeh's scripts, without what the page does not use; none of them can end the element it stands in."""
    components = ["bokeh", "bokeh-widgets", "bokeh-tables"] if tables else ["bokeh"]
    found = Resources(mode="inline", components=components, minified=True).js_raw
    return tuple(Markup(text.replace("</script", "<\\/script")) for text in found)


def script_safe(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in.

    >>> script_safe({"name": "</script>", "value": float("nan")})
    Markup('{"name":"\\\\u003c/script>","value":null}')
    """
    text = json.dumps(as_plain(value), allow_nan=False, separators=(",", ":"))
    return Markup(clean(text).replace("<", "\\u003c"))
