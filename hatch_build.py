"""The README as the package index shows it, where a link into the repository leads nowhere.

`repository` in pyproject.toml (`[tool.hatch.metadata.hooks.custom]`) is where the sources can be read, such as
`https://host.example/holdfast`. With it, links become absolute, pictures are shown and the project's URLs are stated; without it,
links into the repository are shown as the words they stand on, and pictures as what they show.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def shown(readme: str, repository: str, version: str) -> str:
    """The text without a single relative link; code is left as it is."""

    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith("#"):
            return link[0]
        if not repository:
            return f"*{link['text']}*" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository.rstrip('/')}/{kind}/v{version}/{target})"

    parts = CODE.split(readme)
    return "".join(part if part.startswith("```") else LINK.sub(absolute, part) for part in parts)


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = str(self.config.get("repository", ""))
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": shown(text, repository, str(metadata["version"])),
        }
        if repository:
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository.rstrip('/')}/blob/v{metadata['version']}/docs/index.md",
                "Changelog": f"{repository.rstrip('/')}/blob/v{metadata['version']}/CHANGELOG.md",
            }
