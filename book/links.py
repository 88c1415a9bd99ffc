"""From the repository to the book: where a file stands there, and how links to it are written."""

import os
import re
from pathlib import Path, PurePosixPath

LINK = re.compile(r"(?<=\]\()([^)#\s]*)(#[^)\s]*)?(?=[)\s])|(?<=src=\")([^\"#]+)(?=\")")
FENCE = re.compile(r"^(```|~~~)[\s\S]*?^\1[ ]*$|^(?: {4}|\t).*$|`[^`\n]+`", re.M)


def place_of(path: PurePosixPath, is_folder: bool = False) -> PurePosixPath:
    """Where a file of the repository stands in the book.

    >>> [str(place_of(PurePosixPath(path))) for path in ("README.md", "docs/a.md", "CONTRIBUTING.md", "src/a.py")]
    ['index.md', 'a.md', 'CONTRIBUTING.md', 'files/src/a.py.md']
    >>> str(place_of(PurePosixPath("docs/decisions"), is_folder=True))
    'decisions/index.md'
    """
    inside = path.relative_to("docs") if path.is_relative_to("docs") else path
    if is_folder:
        return (inside if inside != path else "files" / path) / "index.md"
    if path.name == "README.md":
        return inside.parent / "index.md"
    if inside != path or path.suffix == ".md":
        return inside
    return "files" / path.parent / f"{path.name}.md"


def rewrite_links(text: str, page: PurePosixPath, root: Path) -> tuple[str, set[PurePosixPath]]:
    """A page's text with its relative links as the book has them; and the files and folders that it links to.

    Links to nothing stay as they are: the strict build refuses them. Code is not looked at.
    """
    linked: set[PurePosixPath] = set()
    here = place_of(page).parent

    def replace(match: re.Match[str]) -> str:
        target, anchor = match[1] or match[3] or "", match[2] or ""
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        found = PurePosixPath(os.path.normpath(page.parent / target))
        if not (root / found).exists():
            return match[0]
        linked.add(found)
        return os.path.relpath(place_of(found, (root / found).is_dir()), here) + anchor

    parts, last = [], 0
    for code in FENCE.finditer(text):
        parts += [LINK.sub(replace, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, LINK.sub(replace, text[last:])]), linked
