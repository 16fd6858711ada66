"""Runs pytest in a process that has read the packages of others already: `__main__` starts it by its path.

It is given `TREE`, `ARGUMENTS` and `OUTPUT`; the product and its tests are those of the tree.
"""

import os
import sys

os.setsid()
os.chdir(TREE)  # type: ignore[name-defined]  # noqa: F821
sys.path.insert(0, TREE)  # type: ignore[name-defined]  # noqa: F821
with open(OUTPUT, "w") as output:  # type: ignore[name-defined]  # noqa: F821
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
import pytest  # noqa: E402

code = int(pytest.main(ARGUMENTS))  # type: ignore[name-defined]  # noqa: F821
print(f"\nended with {code} after {sum(os.times()[:4]):.2f} CPU seconds", flush=True)
os._exit(0)
