"""MkDocs hook: run the notebooks of docs/notebooks and make pages of them, outputs included.

A notebook is a Python file of cells (``# %%``), so that it is linted and compared like all code.
One that fails, fails the build. The pages hold pictures and HTML, no script: nothing is fetched
from elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

LONGEST = 600  # seconds for a cell


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page, and its pictures, for each notebook."""
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.py")):
        for name, content in rendered(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def rendered(path: Path) -> dict[str, str | bytes]:
    """Run a notebook; return the files of its page by name."""
    notebook = jupytext.read(path)
    NotebookClient(notebook, timeout=LONGEST, kernel_name="python3").execute()
    resources = {"output_files_dir": path.stem}
    page, made = MarkdownExporter().from_notebook_node(notebook, resources=resources)
    links = f"[Notebook]({path.stem}.ipynb) · [source]({path.name})\n\n"
    title, rest = page.split("\n", 1)
    return {
        f"{path.stem}.md": f"{title}\n\n{links}{rest}",
        f"{path.stem}.ipynb": jupytext.writes(notebook, "ipynb"),
        **made["outputs"],
    }
