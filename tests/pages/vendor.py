"""Fetches what pages and their tests need that others wrote, by npm, and writes down what it is.

.venv/bin/python -m tests.pages.vendor    # or: make vendor
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "src/holdfast/http/pages/static/vendor"
TESTS = Path(__file__).with_name("vendor")


class Wanted(NamedTuple):
    folder: Path
    file: str
    package: str
    version: str
    path: str
    """Of the file in the package."""
    licence: str
    licence_path: str


WANTED = (
    Wanted(PRODUCT, "htmx.js", "htmx.org", "4.0.1", "dist/htmx.min.js", "0BSD", "LICENSE"),
    Wanted(TESTS, "axe.js", "axe-core", "4.14.0", "axe.min.js", "MPL-2.0", "LICENSE"),
)


def digests(content: bytes) -> dict[str, str]:
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "integrity": "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode(),
    }


def _packed(package: str, version: str) -> tuple[bytes, str]:
    """Return a package as npm gives it, after comparing it with the digest that npm knows."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            ["npm", "pack", f"{package}@{version}", "--json", "--silent"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        found = json.loads(made.stdout)
        said = (found[0] if isinstance(found, list) else next(iter(found.values())))["integrity"]
        content = next(Path(folder).glob("*.tgz")).read_bytes()
    if "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode() != said:
        raise SystemExit(f"{package} {version} is not what npm says it is")
    return content, said


def main() -> None:
    packages: dict[str, tuple[bytes, str]] = {}
    lines: dict[Path, list[dict[str, Any]]] = {}
    for one in WANTED:
        if one.package not in packages:
            packages[one.package] = _packed(one.package, one.version)
        content, said = packages[one.package]
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            file, licence = (tar.extractfile(f"package/{path}") for path in (one.path, one.licence_path))
            assert file is not None
            assert licence is not None
            text, terms = file.read(), licence.read()
        text = text.partition(b"\n//# sourceMappingURL=")[0] + b"\n"  # the map is not here
        one.folder.mkdir(parents=True, exist_ok=True)
        (one.folder / one.file).write_bytes(text)
        (one.folder / f"{one.package}.LICENSE").write_bytes(terms)
        lines.setdefault(one.folder, []).append(
            {
                "file": one.file,
                "package": one.package,
                "version": one.version,
                "licence": one.licence,
                "licence_file": f"{one.package}.LICENSE",
                "path": one.path,
                "package_integrity": said,
                "changed": "the line that names the source map is left out",
                **digests(text),
            }
        )
    for folder, found in lines.items():
        (folder / "manifest.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
