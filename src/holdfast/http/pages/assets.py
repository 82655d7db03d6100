"""Files that pages need: styles, scripts, fonts. Each is served under a name with its own digest in it, and cached for ever.

Nothing here comes from another server. What others wrote stands in `static/vendor`, with `manifest.json` beside it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from holdfast.http.call import Call, Given
from holdfast.http.refusals import Refusal

HERE = Path(__file__).with_name("static")
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_LINK = re.compile(r"""(url\(|from ")(\./)?([\w./-]+\.(?:woff2|js|css|svg))""")


class Asset(NamedTuple):
    url: str
    media_type: str
    content: bytes
    packed: bytes | None
    integrity: str


class Assets:
    def __init__(self, folder: Path = HERE) -> None:
        self._folder = folder
        self._by_path: dict[str, Asset] = {}
        self._by_name: dict[str, Asset] = {}

    def __getitem__(self, path: str) -> Asset:
        """Return a file by its path below the folder."""
        if path not in self._by_path:
            made = self._read(path)
            self._by_path[path] = made
            self._by_name[made.url.rpartition("/")[2]] = made
        return self._by_path[path]

    def named(self, name: str) -> Asset | None:
        """Return a file by the name under which it is served. Names of files that have changed stand for none."""
        if name not in self._by_name:
            for path in self._folder.rglob("*"):
                if path.suffix in TYPES:
                    self[path.relative_to(self._folder).as_posix()]
        return self._by_name.get(name)

    def _read(self, path: str) -> Asset:
        file = self._folder / path
        content = file.read_bytes()
        if file.suffix in {".css", ".js"} and "vendor" not in file.parts:  # they name one another
            text = content.decode()
            content = _LINK.sub(lambda found: found[1] + self[_beside(path, found[3])].url, text).encode()
        digest = hashlib.sha256(content).hexdigest()[:16]
        integrity = base64.b64encode(hashlib.sha384(content).digest()).decode()
        packed = None if file.suffix == ".woff2" else gzip.compress(content, 9, mtime=0)
        url = f"/static/{file.stem}.{digest}{file.suffix}"
        return Asset(url, TYPES[file.suffix], content, packed, f"sha384-{integrity}")


def _beside(path: str, name: str) -> str:
    return (Path(path).parent / name).as_posix()


ASSETS = Assets()


async def asset(call: Call) -> Given:
    found = ASSETS.named(call.path["file"])
    if found is None:
        raise Refusal("unknown")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in call.headers.get("accept-encoding", ""):
        return Given(
            found.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.media_type
        )
    return Given(found.content, headers=headers, media_type=found.media_type)
