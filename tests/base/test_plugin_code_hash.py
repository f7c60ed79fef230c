"""The user's files that a plugin imports are part of the ids of its runs, wherever they lie; libraries are not."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_plugins import loaded_plugins

from staleharness.base.plugin_code_hash import LIBRARIES, code_hash, meaning_hash
from staleharness.base.plugin_files import KINDS, plugin_files
from staleharness.base.plugins import builtin_folder
from staleharness.running.plan import plan
from staleharness.study import sweep_request

NUMBERS = "CAP = 1.2\n"
HELPERS = "import my_numbers\n\ndef weight(ratio):\n    return ratio.clamp(max=my_numbers.CAP)\n"
HEAD = "from dataclasses import dataclass\nfrom my_helpers import weight\n"
PLUGINS = {
    "algorithm": f"""{HEAD}
from staleharness.algorithm import ALGORITHMS, Algorithm

@ALGORITHMS.register("helped")
@dataclass(frozen=True)
class Helped(Algorithm):
    def policy_loss(self, d):
        return weight(d.advantage)
""",
    "environment": f"""{HEAD}
from staleharness.control.task import ControlTask
from staleharness.task import ENVS

@ENVS.register("helped")
class Helped(ControlTask):
    ids = {{"Helped-v0": "one line"}}

    def make(self, env, num_envs, threads):
        import gymnasium

        self.scale = weight
        return gymnasium.make_vec("CartPole-v1", num_envs)
""",
    "lag": f"""{HEAD}
from staleharness.lag import LAGS, LagModel

@LAGS.register("helped")
@dataclass(frozen=True)
class Helped(LagModel):
    def assign(self, draw):
        return weight(draw)

    def probabilities(self, phase, capacity):
        return {{phase: 1.0}}
""",
    "mismatch": f"""{HEAD}
from staleharness.mismatch import MISMATCHES, Mismatch

@MISMATCHES.register("helped")
@dataclass(frozen=True)
class Helped(Mismatch):
    def matrix(self, matrix, place):
        return weight(matrix)
""",
    "gymnasium id": f"""{HEAD}
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Helped(CartPoleEnv):
    force = weight

gymnasium.register("Helped-v1", Helped)
""",
}
ASKED = {
    "algorithm": {"algo": "helped"},
    "environment": {"env": "Helped-v0"},
    "lag": {"lag": "helped"},
    "mismatch": {"mismatch": "helped"},
    "gymnasium id": {"env": "Helped-v1"},
}


def write(folder: Path, **files: str) -> Path:
    """Write Python files, of which `a__b` is a/b.py; return the path of the last one."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python searches, as with PYTHONPATH; modules from it are forgotten at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize("kind", PLUGINS)
def test_an_edit_of_what_a_plugin_imports_expires_its_runs(kind: str, folder: Path) -> None:
    file = write(folder, my_numbers=NUMBERS, my_helpers=HELPERS, plugin=PLUGINS[kind])

    def run_id() -> str:
        with loaded_plugins(file):
            (run,) = plan(
                sweep_request(**{"env": "Hopper", "algo": "ppo_clip", "k": "2", "seeds": "1"} | ASKED[kind])
            ).runs
        return run.run_id

    first = run_id()
    write(folder, my_numbers=f"# a comment\n{NUMBERS}", my_other="CAP = 3\n", my_helpers=f'"""Words."""\n{HELPERS}')
    assert run_id() == first
    write(folder, my_helpers=HELPERS.replace("max", "min"))
    second = run_id()
    write(folder, my_numbers="CAP = 1.3\n")
    assert len({first, second, run_id()}) == 3


METHOD = """
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss
from staleharness.objectives import importance_ratio as weight

@ALGORITHMS.register("helped")
@dataclass(frozen=True)
class Helped(Algorithm):
    def policy_loss(self, d):
        return PolicyLoss(-weight(d.target_logp, d.behaviour_logp) * d.advantage, {})
"""
CHILD = """
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS

@ALGORITHMS.register("child")
@dataclass(frozen=True)
class Child(ALGORITHMS["helped"]):
    pass
"""
LAG = """
from dataclasses import dataclass
from staleharness.lag import LAGS, LagModel, read_lag

@LAGS.register("helped")
@dataclass(frozen=True)
class Helped(LagModel):
    def assign(self, draw):
        return draw.phase - draw.rng.integers(2, size=draw.shape)

    def probabilities(self, phase, capacity):
        return {phase: 1.0}
"""
AROUND = """
from dataclasses import dataclass
from staleharness.lag import LAGS, LagModel, read_lag

@LAGS.register("around")
@dataclass(frozen=True)
class Around(LagModel):
    of: str = ""

    def assign(self, draw):
        return read_lag(self.of).assign(draw)

    def probabilities(self, phase, capacity):
        return {phase: 1.0}
"""
TABLE = """
from dataclasses import dataclass
from staleharness.mismatch import MISMATCHES, Mismatch, option

@MISMATCHES.register("helped")
@dataclass(frozen=True)
class Helped(Mismatch):
    table: str = option("", path=True)

    def matrix(self, matrix, place):
        return matrix.clone()
"""
PARTIAL = """
import functools
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Line(CartPoleEnv):
    force = 1

gymnasium.register("Helped-v2", functools.partial(Line))
"""
WRAPPED = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.registration import WrapperSpec

kwargs = {"func": lambda reward: 1 * reward}
wrapper = WrapperSpec("TransformReward", "gymnasium.wrappers:TransformReward", kwargs)
gymnasium.register("Helped-v3", lambda: CartPoleEnv(), additional_wrappers=(wrapper,))
"""
INDIRECT = {  # files, what is asked, the file that is edited, its text before and after
    "a renamed import": ({"plugin": METHOD}, {"algo": "helped"}, "plugin", ("importance_ratio as", "kl_k2 as")),
    "a base": ({"a": METHOD, "plugin": CHILD}, {"algo": "child"}, "a", ("* d.adv", "* 2 * d.adv")),
    "a lag within": ({"a": LAG, "plugin": AROUND}, {"lag": "helped/around"}, "a", ("integers(2,", "integers(1,")),
    "a partial": ({"plugin": PARTIAL}, {"env": "Helped-v2"}, "plugin", ("force = 1", "force = 2")),
    "a keyword": ({"plugin": WRAPPED}, {"env": "Helped-v3"}, "plugin", ("1 * reward", "2 * reward")),
    "a file": ({"table": "1", "plugin": TABLE}, {"mismatch": "helped[table={folder}/table.py]"}, "table", ("1", "2")),
}


NAMING = [  # imports that give a plugin another `g`, each beside a use of it that stays as it is
    "import numpy as g",
    "import torch as g",
    "from math import g",
    "from numpy import g",
    "from torch.nn.functional import g",
    "from staleharness.objectives import g",
    "from scipy.special import g",
    "from scipy.special import expit as g",
    "try:\n    from scipy import g\nexcept ImportError:\n    from math import g\n",
]
USUAL = [  # imports whose names stand for nothing else
    "",
    "from __future__ import annotations\nimport torch\nfrom torch import Tensor, nn",
    "import numpy as np\nimport torch.nn.functional as F\nfrom typing import Any\nimport scipy.special",
    "from staleharness.algorithm import ALGORITHMS, Algorithm",
]


def test_another_meaning_of_a_name_is_another_hash(tmp_path: Path) -> None:
    def hashes(imports: list[str], use: str) -> set[str]:
        files = [write(tmp_path / f"{i}", plugin=f"{text}\n{use}\n") for i, text in enumerate(imports)]
        return {code_hash(file, bases=[]) for file in files}

    assert len(hashes(NAMING, "x = g")) == len(NAMING)
    assert hashes([*USUAL, *NAMING], "x = 1") == {meaning_hash(b"x = 1\n")}
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from math import g\n"
    assert hashes([*USUAL, for_types], "x: g = 1") == {meaning_hash(b"x: g = 1\n")}


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize("case", INDIRECT)
def test_an_edit_of_what_a_plugin_rests_on_expires_its_runs(case: str, folder: Path) -> None:
    texts, choice, edited, (before, after) = INDIRECT[case]
    write(folder, **texts)
    ids = []
    for form in (before, before + "  ", after):
        write(folder, **{edited: texts[edited].replace(before, form.rstrip()), "other": "x = 1"})
        words = {name: text.format(folder=folder) for name, text in choice.items()}
        with loaded_plugins(*(folder / f"{name}.py" for name in texts if name != "table")):
            (run,) = plan(sweep_request(**{"env": "Hopper", "algo": "ppo_clip", "k": "2", "seeds": "1"} | words)).runs
        ids.append(run.run_id)
    assert ids[0] == ids[1] != ids[2]


EDITED = {  # import statements of a plugin in the folder my_lab, which has the files my_lab/a.py and my_lab/in/b.py
    "from a module": "from my_lab.a import x",
    "of a module": "import my_lab.a",
    "under another name": "import my_lab.a as other",
    "of a module from its package": "from my_lab import a",
    "of all names": "from my_lab.a import *",
    "from beside it": "from .a import x",
    "of a module beside it": "from . import a",
    "in a function": "def f():\n    from my_lab.a import x\n",
    "for one system": "import sys\nif sys.platform == 'x':\n    import my_lab.a\n",
    "through a package": "from my_lab.inner import b",
    "through another file": "from my_lab.inner.b import y",
    "of a file beside it that Python does not find": "import a",
}


@pytest.mark.parametrize("regular", [True, False], ids=["regular package", "namespace package"])
@pytest.mark.parametrize("case", EDITED)
def test_every_form_of_import_is_found(case: str, regular: bool, folder: Path) -> None:
    packages = {"my_lab____init__": "", "my_lab__inner/__init__": ""} if regular else {}
    files = packages | {"my_lab__a": "x = 1", "my_lab__inner/b": "from ..a import x as y", "my_lab__c": "x = 1"}
    plugin = write(folder, **files, my_lab__plugin=f"{EDITED[case]}\nz = 1\n")
    first = code_hash(plugin)
    write(folder, my_lab__c="x = 2", my_lab__d="x = 3", c="x = 4")
    assert code_hash(plugin) == first
    write(folder, my_lab__a="x = 2")
    assert code_hash(plugin) != first


def test_the_init_file_of_a_package_counts(folder: Path) -> None:
    plugin = write(folder, my_lab____init__="", my_lab__a="x = 1", plugin="from my_lab.a import x\n")
    first = code_hash(plugin)
    write(folder, my_lab____init__="import torch\n\ntorch.set_default_dtype(torch.float64)\n")
    assert code_hash(plugin) != first


def test_an_import_of_another_of_the_users_functions_counts(folder: Path) -> None:
    write(folder, a="x = 1\ny = 2\n", b="x = 1\ny = 2\n")
    texts = ("from a import x", "from a import y as x", "from b import x", "x = 1", "from math import e as x")
    hashes = [code_hash(write(folder, plugin=f"{text}\nz = x\n")) for text in texts]
    assert len(set(hashes[:4])) == 4 and hashes[4] == meaning_hash(b"z = x")


def test_the_order_of_imports_does_not_count(folder: Path) -> None:
    write(folder, a="x = 1\n", b="from a import x\n")
    lines = ["import math", "import b", "from a import x"]
    forms = ["\n".join(lines), "\n".join(lines[::-1]), "\n".join(lines[1:])]
    assert len({code_hash(write(folder, plugin=form)) for form in forms}) == 1


def test_files_that_import_each_other_count_once(folder: Path) -> None:
    files = {"a": "import b\nx = 1\n", "b": "import plugin, a, b\n", "plugin": "import a\n"}
    first = code_hash(plugin := write(folder, **files))
    write(folder, a="import b\nx = 2\n")
    assert code_hash(plugin) != first


def test_a_moved_folder_has_the_same_hash(tmp_path: Path) -> None:
    files = {"lab__a": "from . import b\n", "lab__b": "x = 1\n", "lab__idea": "from .a import b\n"}
    assert code_hash(write(tmp_path / "one", **files)) == code_hash(write(tmp_path / "two" / "more", **files))


def test_an_installed_plugin_counts_with_its_package_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "lib" / "site-packages"
    monkeypatch.syspath_prepend(site)
    text = "import other_lab, own_lab.a\nfrom . import b\n"
    plugin = write(site, other_lab="x = 1\n", own_lab__a="x = 1\n", own_lab__b="x = 1\n", own_lab__plugin=text)
    mine = write(folder, mine="import other_lab, own_lab.a\n")
    hashes = [code_hash(plugin)]
    for name in ("other_lab", "own_lab__a", "own_lab__b"):
        write(site, **{name: "x = 2\n"})
        hashes.append(code_hash(plugin))
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3
    assert code_hash(mine) == meaning_hash(mine.read_bytes()), "installed packages count in no file of the user's"


@pytest.mark.parametrize("text", ["import none_of_this_name", "from .... import x", "import", "import __main__, a.b"])
def test_imports_that_find_nothing_do_not_count(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "deep", plugin=text)
    assert code_hash(file) == meaning_hash(file.read_bytes())


def test_built_in_plugins_import_libraries_alone() -> None:
    files = [
        file
        for kind in KINDS
        if kind in ("algorithms", "envs", "lags", "mismatches")
        for file in plugin_files(builtin_folder(kind), kind)
    ]
    assert len(files) > 50
    for file in files:
        nodes = [*ast.walk(ast.parse(file.read_text()))]
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {f"{'.' * node.level}{node.module}" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in names} <= LIBRARIES, file
        assert code_hash(file) == meaning_hash(file.read_bytes())
