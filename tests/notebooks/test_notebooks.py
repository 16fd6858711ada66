"""The notebooks run from top to bottom on their small setting, draw what they promise, and are stored small."""

from __future__ import annotations

import ast
import base64
import io
import re
from pathlib import Path

import matplotlib.image
import nbformat
import numpy as np
import pandas as pd
import pytest

from benchmarks.studies import FOLDER as STUDIES
from notebooks.run import (
    STORED_BYTES,
    TABLE,
    cleaned,
    execute,
    findings,
    notebooks,
    pictures,
    question,
    read,
    with_table,
    write,
)
from tests.reference.tiers import tiered
from throughputs import InputError

# Pictures of each notebook.
PICTURES = {
    "deadlines": 5,
    "estimation": 2,
    "finish_time_fairness": 2,
    "goodput": 2,
    "goodput_adaptivity": 2,
    "goodput_scale": 2,
    "goodput_sia": 2,
    # of Gavel, which draws its jobs; the others need data that are fetched
    "headlines": 1,
    "hierarchical": 2,
    "las_multi_gpu": 2,
    "las_single_gpu": 2,
    "lucid": 3,
    "makespan": 1,
    "mechanism_fidelity": 1,
    "policy_runtimes": 1,
    "priorities": 1,
    "restarts": 2,
    "shockwave_canonical": 2,
    "shockwave_contention": 2,
    "shockwave_fairness_rows": 2,
    "shockwave_scale": 2,
    "shockwave_tradeoff": 2,
}

SHORTEST = "policy_runtimes"


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def test_every_study_has_a_notebook():
    names = {path.stem for path in notebooks()}
    assert names == set(PICTURES)
    assert names >= {path.stem for path in STUDIES.glob("*.toml")}


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_what_a_notebook_imports_is_there(path):
    cells = (cell.source for cell in read(path).cells if cell.cell_type == "code")
    imports = [
        node for cell in cells for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert imports
    for node in imports:
        exec(ast.unparse(node), {})


@pytest.mark.parametrize("name", tiered(PICTURES, gate=[SHORTEST]))
def test_notebook_runs_and_draws(name, results):
    (path,) = notebooks([name])
    before = path.read_bytes()
    executed = execute(path, small=True, out=results)
    drawn = list(pictures(executed))
    assert len(drawn) == PICTURES[name]
    for picture in drawn:
        pixels = matplotlib.image.imread(io.BytesIO(picture))[..., :3]
        assert pixels.std() > 0.03  # an empty panel has little but white
    assert any("text/html" in output.get("data", {}) for cell in executed.cells for output in cell.get("outputs", ()))
    table = results / "small" / name / "results.parquet"
    assert table.exists() == (STUDIES / f"{name}.toml").exists()
    if table.exists():
        assert set(pd.read_parquet(table)["status"]) <= {"completed", "saturated"}
    assert path.read_bytes() == before
    assert len(nbformat.writes(cleaned(executed, outputs=True))) < STORED_BYTES


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_stored_notebook_is_small_and_clean(path):
    notebook = read(path)
    assert path.stat().st_size < STORED_BYTES
    assert cleaned(notebook, outputs=True) == notebook
    text = path.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert sum("parameters" in cell.metadata.get("tags", ()) for cell in notebook.cells) == 1
    title, asked, compare = question(notebook)
    assert title
    assert asked.endswith("?")
    assert re.search(r"20\d\d", compare)
    assert len(findings(notebook)) > 300


def test_the_page_of_notebooks_lists_them_all_with_what_is_stored():
    page = TABLE.read_text(encoding="utf-8")
    assert page == with_table(page), "python notebooks/run.py --table writes it anew"
    for path in notebooks():
        assert f"(../notebooks/{path.name})" in page


def test_a_notebook_without_a_question_is_told():
    with pytest.raises(InputError, match="Question"):
        question(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title")]))
    assert findings(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])) == ""


def gradient() -> bytes:
    """A PNG with more colours than a palette holds."""
    u, v = np.meshgrid(np.linspace(0, 1, 120), np.linspace(0, 1, 80))
    noise = np.random.default_rng(0).normal(0, 0.01, (80, 120, 3))
    target = io.BytesIO()
    matplotlib.image.imsave(target, np.clip(np.stack([u, v, (u + v) / 2], axis=-1) + noise, 0, 1), format="png")
    return target.getvalue()


def test_cleaning_keeps_pictures_and_tables_only(tmp_path):
    stream = nbformat.v4.new_output("stream", name="stderr", text="1 of 6 ...")
    drawn = base64.b64encode(gradient()).decode()
    picture = nbformat.v4.new_output(
        "display_data", {"image/png": drawn, "text/plain": "<Figure>"}, metadata={"image/png": {"width": 3}}
    )
    number = nbformat.v4.new_output("execute_result", {"text/plain": "3"}, execution_count=7)
    cell = nbformat.v4.new_code_cell("x", outputs=[stream, picture, number], execution_count=7)
    cell.metadata = nbformat.from_dict({"execution": {"iopub.status.busy": "now"}, "tags": ["parameters"]})
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": {"name": "mine", "display_name": "Mine"}})

    kept = cleaned(notebook, outputs=True).cells[0]
    assert [list(output.data) for output in kept.outputs] == [["image/png"], ["text/plain"]]
    (smaller,) = pictures(cleaned(notebook, outputs=True))
    assert len(smaller) < len(gradient())
    before, after = (matplotlib.image.imread(io.BytesIO(png))[..., :3] for png in (gradient(), smaller))
    assert np.abs(after - before).mean() < 0.05
    assert kept.execution_count is None
    assert kept.metadata == {"tags": ["parameters"]}
    assert cleaned(notebook, outputs=False).cells[0].outputs == []
    assert len(notebook.cells[0].outputs) == 3  # a copy was cleaned

    write(tmp_path / "one.ipynb", cleaned(notebook, outputs=True))
    assert read(tmp_path / "one.ipynb") == cleaned(notebook, outputs=True)


def test_unknown_notebook_is_told():
    with pytest.raises(InputError, match="las_single_gpu"):
        notebooks(["las"])
