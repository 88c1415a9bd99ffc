"""Does a built page load anything from elsewhere? Links that a reader may follow are no loads."""

import re
from pathlib import Path

LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data|srcset)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|prev|next))[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|url\([\"']?((?:https?:)?//[^\"')]+)|@import\s+[\"']((?:https?:)?//[^\"']+)",
    re.I,
)


def loads(text: str) -> list[str]:
    """What a page or a style sheet fetches from other hosts.

    >>> loads('<a href="https://a.org">a</a><script src="https://b.org/c.js"></script><img src="d.png">')
    ['https://b.org/c.js']
    """
    return [next(part for part in found if part) for found in LOADS.findall(text)]


def check_offline(site: Path) -> None:
    """Every page and style sheet of a built book; a load from elsewhere ends the build."""
    files = [file for file in sorted(site.rglob("*")) if file.suffix in (".html", ".css")]
    found = [
        f"{file.relative_to(site)} loads {url}" for file in files for url in loads(file.read_text(encoding="utf-8"))
    ]
    if found:
        raise SystemExit("\n".join(["the book needs the network:", *found]))
