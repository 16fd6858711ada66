"""The house: imports go one way and in no circle, at the top of modules, and no room is overcrowded.

`python tests/test_house.py` prints what is not so.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import ClusterState, Policy
from tests.house_tokens import CAPABILITIES, capabilities, tokens_below
from tests.tables import printed

# Each may import itself and those before it; what uses the library may import all of them.
PACKAGES = ("throughputs", "formulations", "allocator")
USERS = ("benchmarks", "notebooks", "tests")

MOST_MODULES = 12
"""Modules in one folder; `__init__` and `__main__` are not counted."""

# To load one of these takes about as long as `import allocator` may take, or it is an extra.
LOADED_LATE = (
    "clarabel",
    "cvxpy",
    "ecos",
    "highspy",
    "interpret",
    "lightgbm",
    "matplotlib",
    "numba",
    "pandas",
    "pulp",
    "pyarrow",
    "ray",
    "rich",
    "scipy",
    "scs",
    "typer",
)


class House:
    """The modules under a root folder and what they import."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {top: self._files(top) for top in (*PACKAGES, *USERS)}
        known = {name for files in self.files.values() for name in files}
        checked = (*PACKAGES, "benchmarks")
        parsed = {name: ast.parse(path.read_text()) for top in checked for name, path in self.files[top].items()}
        # (imported module, whether inside a function); without those for type checkers alone
        self.imports = {name: set(_imports(tree, known)) for name, tree in parsed.items()}

    def _files(self, top: str) -> dict[str, Path]:
        """Files of a package by dotted name."""
        paths = sorted((self.root / top).rglob("*.py"))
        names = (".".join(path.relative_to(self.root).with_suffix("").parts) for path in paths)
        return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}

    def modules(self, *tops: str) -> list[str]:
        return [name for top in tops for name in self.files[top]]

    def wrong_directions(self) -> Iterator[str]:
        later = {package: (*PACKAGES[place:], *USERS) for place, package in enumerate(PACKAGES, 1)}
        for top, forbidden in (later | {"benchmarks": ("notebooks", "tests")}).items():
            for name in self.modules(top):
                for target in sorted({target for target, _ in self.imports[name]}):
                    if _is_of(target, forbidden):
                        yield f"direction: {name} -> {target}"

    def circles(self) -> Iterator[str]:
        """Modules that reach each other, wherever in them the imports stand."""
        names = self.modules(*PACKAGES)
        within = set(names)
        graph = {name: {target for target, _ in self.imports[name]} & within for name in names}
        place = {name: k for k, name in enumerate(names)}
        edges = [(place[name], place[target]) for name in names for target in graph[name]]
        links = coo_array((np.ones(len(edges)), tuple(np.array(edges).T)), (len(names), len(names)))
        circle = connected_components(links, connection="strong")[1]
        for number in np.flatnonzero(np.bincount(circle) > 1).tolist():
            yield f"circle: {', '.join(sorted(np.array(names)[circle == number]))}"

    def crowded_folders(self) -> Iterator[str]:
        paths = [path for top in (*PACKAGES, "benchmarks") for path in self.files[top].values()]
        counts = Counter(path.parent for path in paths if path.stem not in ("__init__", "__main__"))
        for folder, count in sorted(counts.items()):
            if count > MOST_MODULES:
                yield f"folder: {folder.relative_to(self.root).as_posix()} has {count} modules"

    def late_imports(self) -> Iterator[str]:
        """Imports inside of functions, except of packages that take long to load."""
        for name in self.modules(*PACKAGES):
            for target in sorted({target for target, inside in self.imports[name] if inside}):
                if not _is_of(target, LOADED_LATE):
                    yield f"late: {name} -> {target}"

    def violations(self) -> list[str]:
        return [*self.wrong_directions(), *self.circles(), *self.crowded_folders(), *self.late_imports()]


def _is_of(module: str, packages: tuple[str, ...]) -> bool:
    return module.partition(".")[0] in packages


def _imports(node: ast.AST, known: set[str], inside: bool = False) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            # `from package import name` is of the module of that name, where there is one.
            for whole in (f"{child.module}.{alias.name}" for alias in child.names):
                yield (whole if whole in known else str(child.module)), inside
        elif isinstance(child, ast.If) and _for_types(child.test):
            for other in child.orelse:
                yield from _imports(ast.Module([other], []), known, inside)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, known, inside or function)


def _for_types(test: ast.expr) -> bool:
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    return name == "TYPE_CHECKING"


@pytest.fixture(scope="module")
def violations() -> set[str]:
    return set(House(Path(__file__).resolve().parents[1]).violations())


ROOT = Path(__file__).resolve().parents[1]
RULES = ("direction", "circle", "folder", "late")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.exhaustive
def test_the_rules_of_the_house(rule: str, violations: set[str]) -> None:
    found = {line for line in violations if line.startswith(f"{rule}: ")}
    assert not found


MOST_TOKENS = {
    room: int(most)
    for room, most in re.findall(r"^\| `([\w/]+)` \| (\d+) \|", (ROOT / "docs/architecture.md").read_text(), re.M)
}
"""Thousands of them (without comments, docstrings and imports), and why so many: docs/architecture.md."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("room", MOST_TOKENS)
def test_a_room_keeps_to_its_size(room: str) -> None:
    assert len(MOST_TOKENS) == 15
    assert tokens_below(room) <= 1000 * MOST_TOKENS[room]


@pytest.mark.exhaustive
def test_what_capabilities_cost_is_told() -> None:
    """To two thousand tokens: the table is made anew now and then, by ``python -m tests.tables capabilities``."""
    told, made = (
        [int(n) for n in re.findall(r"\| (\d+) \|", text)] for text in (printed("capabilities"), capabilities())
    )
    assert len(told) == len(CAPABILITIES)
    assert np.abs(np.subtract(told, made)).max() <= 2


MOST_FIELDS = {MechanismSettings: 12, Policy: 8, ClusterState: 10}


@pytest.mark.parametrize("kind", MOST_FIELDS)
def test_what_all_systems_share_has_few_fields(kind: type) -> None:
    assert len(kind.__annotations__) <= MOST_FIELDS[kind]


PUBLISHED = ROOT / "allocator" / "published"


def _said(code: ast.AST) -> Iterator[str]:
    """Names and words of a module, without what describes it."""
    described = {id(node.value) for node in ast.walk(code) if isinstance(node, ast.Expr)}
    for node in ast.walk(code):
        for name in ("id", "attr", "name", "module"):
            yield str(getattr(node, name, ""))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.value


@pytest.mark.parametrize("room", ["mechanism", "protocol"])
def test_the_core_names_no_system(room: str) -> None:
    names = sorted({path.stem for path in PUBLISHED.iterdir()} - {"__init__", "__pycache__", "logs"})
    assert len(names) >= 7
    systems = re.compile("|".join(names), re.IGNORECASE)
    for path in (ROOT / "allocator" / room).rglob("*.py"):
        assert not [said for said in _said(ast.parse(path.read_text())) if systems.search(said)], path


def test_only_entry_points_know_the_published_systems() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "allocator.published" in text and not path.is_relative_to(PUBLISHED):
                assert not any("allocator.published" in said for said in _said(ast.parse(text))), path


def test_every_rule_finds_what_breaks_it(tmp_path: Path) -> None:
    files = {
        "throughputs/__init__.py": "",
        "throughputs/a.py": "import scipy.sparse\nfrom formulations import f\n",
        "throughputs/b.py": "def g():\n    import json, scipy\n    from throughputs.c import x\n",
        "throughputs/c.py": "from throughputs import InputError, b\n",
        "throughputs/d.py": "import typing\nif typing.TYPE_CHECKING:\n    import allocator\nelse:\n    import re\n",
        "formulations/__init__.py": "",
        "allocator/__init__.py": "from throughputs import a\nclass A:\n    from formulations import solve\n",
        "benchmarks/__init__.py": "import allocator\nimport tests.worlds\n",
    } | {f"allocator/full/m{i}.py": "" for i in range(MOST_MODULES + 1)}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert House(tmp_path).violations() == [
        "direction: throughputs.a -> formulations",
        "direction: benchmarks -> tests.worlds",
        "circle: throughputs.b, throughputs.c",
        "folder: allocator/full has 13 modules",
        "late: throughputs.b -> json",
        "late: throughputs.b -> throughputs.c",
    ]


if __name__ == "__main__":
    print("\n".join(House(Path(__file__).resolve().parents[1]).violations()))
