from collections import Counter

import pytest

from tests.mutants.mutants import ROOT, Mutant, read_mutants

MUTANTS = read_mutants()


def test_each_applies_changes_the_program_and_has_its_tests():
    for mutant in MUTANTS:
        mutant.check(ROOT)


def test_ids_are_unique_and_so_are_changes():
    assert max(Counter(mutant.id for mutant in MUTANTS).values()) == 1
    assert max(Counter((mutant.file, mutant.old, mutant.new) for mutant in MUTANTS).values()) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"old": "x", "new": "y"}, "found"),
        ({"old": "read_text", "new": "read_text"}, "read_text"),
        ({"old": "import tomllib", "new": "import  tomllib"}, "the same"),
        ({"old": "import tomllib", "new": "import json", "noticed_by": "tests/nowhere"}, "tests/nowhere"),
    ],
)
def test_one_that_no_longer_fits_is_named(change, named):
    entry = {"id": "stale", "file": "tests/mutants/mutants.py", "kind": "sign", "noticed_by": "tests/mutants"} | change
    with pytest.raises(ValueError, match="stale") as error:
        Mutant("room", **entry).check(ROOT)
    assert named in str(error.value)
