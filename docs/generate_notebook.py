"""docs/first_study.ipynb: the cells of docs/first_study.py, executed, with their output and figures.

    python docs/generate_notebook.py

Executed here and not by Jupyter, so that nothing has to be installed; it takes a minute. A test asserts that the cells
are those of the script.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().with_name("first_study.py")
NOTEBOOK = SCRIPT.with_suffix(".ipynb")


def cells() -> list[tuple[str, str]]:
    """(heading, code) of each cell of the script; the text above the first one is a heading without code."""
    head, *parts = re.split(r"^# %% *", SCRIPT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parsed = [("\n".join(line.removeprefix("# ").removeprefix("#") for line in head.strip().splitlines()), "")]
    for part in parts:
        title, _, code = part.partition("\n")
        parsed.append((f"## {title.strip()}", code.strip()))
    return parsed


def notebook(outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The notebook as JSON, with the outputs of each cell."""
    notebook_cells: list[dict[str, Any]] = []
    for i, ((heading, code), cell_outputs) in enumerate(zip(cells(), outputs, strict=True)):
        notebook_cells.append({"cell_type": "markdown", "id": f"text-{i}", "metadata": {}, "source": lines(heading)})
        if code:
            entry = {"cell_type": "code", "id": f"code-{i}", "metadata": {}, "source": lines(code)}
            notebook_cells.append({**entry, "execution_count": i, "outputs": cell_outputs})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": notebook_cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run() -> list[list[dict[str, Any]]]:
    """Execute the cells one after the other in an empty folder. Returns the output and open figures of each."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    scope: dict[str, Any] = {"__name__": "__main__"}
    outputs: list[list[dict[str, Any]]] = []
    for _, code in cells():
        printed, cell_outputs = io.StringIO(), list[dict[str, Any]]()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(SCRIPT), "exec"), scope)
        if printed.getvalue():
            cell_outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
        for number in plt.get_fignums():
            stream = io.BytesIO()
            plt.figure(number).savefig(stream, format="png", dpi=100, metadata={"Software": None})
            data = {"image/png": base64.b64encode(stream.getvalue()).decode()}
            cell_outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        plt.close("all")
        outputs.append(cell_outputs)
    return outputs


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = run()
    NOTEBOOK.write_text(json.dumps(notebook(outputs), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("STALEHARNESS_PLUGINS", "")
    main()
