"""Rules of adaptation: those that come with the package, a reader for others, and ladders of batch sizes."""

from __future__ import annotations

import json

import pytest

from throughputs import InputError
from throughputs.training import CriticalWindow, default_rules, read_rules

SMALL = """
accordion_start = 0.25
[models.Net]
samples_per_epoch = 100
largest_batch_size = 40
[models.Net.critical.profile]
otherwise = [{ first = 0, end = 2 }]
[models.Net.critical.course]
10 = []
otherwise = [{ first = 1, end = 3, every = 10, before = 25 }, { first = 50, end = 51 }]
[models.Net.doublings]
10 = { 1 = [3, 7, 9], 2 = [4] }
"""


def written(folder, text):
    path = folder / "rules.toml"
    path.write_text(text)
    return path


def test_switches_of_the_published_table(public_data):
    published = json.loads(public_data("shockwave/gns_schedule.json").read_text())
    rules = default_rules()
    for key, entry in published.items():
        name, size, gpus = key.split("|")
        model = rules.models[name]
        doublings = model.doublings.get((int(size), int(gpus)), ())
        switches = [[0, int(size)], *([e, int(size) << i] for i, e in enumerate(doublings, start=1))]
        assert switches == entry["switches"], key
        assert switches[-1][1] <= model.largest_batch_size
    known = {(name, *key) for name, model in rules.models.items() for key in model.doublings}
    assert known <= {(name, int(size), int(gpus)) for name, size, gpus in (key.split("|") for key in published)}


def test_default_rules():
    rules = default_rules()
    samples = [model.samples_per_epoch for model in rules.models.values()]
    assert sorted(samples) == [6287, 10_000, 50_000, 59_675, 100_000, 117_907]
    recommendation = rules.models["Recommendation"]
    assert [window.first for window in recommendation.windows(2048, "profile")] == [0, 60, 80]
    assert recommendation.windows(4096, "course") == (CriticalWindow(0, 10),)
    assert rules.models["Transformer"].windows(32, "profile") is None


def test_a_file_of_ones_own(tmp_path):
    path = written(tmp_path, SMALL)
    rules = read_rules(path)
    assert rules.accordion_start == 0.25
    net = rules.models["Net"]
    assert (net.samples_per_epoch, net.largest_batch_size) == (100, 40)
    assert net.doublings == {(10, 1): (3, 7, 9), (10, 2): (4,)}
    assert net.windows(10, "course") == ()
    assert net.windows(20, "course") == (CriticalWindow(1, 3, 10, 25), CriticalWindow(50, 51))
    assert net.windows(20, "profile") == (CriticalWindow(0, 2),)


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        ("samples_per_epoch = 100", "samples_per_epoch = 1.5", "models.Net.samples_per_epoch", "whole number"),
        ("largest_batch_size = 40", "largest_batch_size = true", "models.Net.largest_batch_size", "whole number"),
        ("largest_batch_size", "largest_batchsize", "models.Net", "did you mean 'largest_batch_size'?"),
        ("10 = []", "10 = 3", "models.Net.critical.course.10", "a list"),
        ("end = 3", "end = 1", "models.Net.critical.course.otherwise[0].end", "at least 2"),
        ("every = 10", "every = 2", "models.Net.critical.course.otherwise[0].every", "at least 3"),
        ("[3, 7, 9]", "[3, 3]", "models.Net.doublings.10.1[1]", "at least 4"),
        ("accordion_start = 0.25", "accordion_start = 30", "accordion_start", "from 0 to 1"),
        ("accordion_start = 0.25", "extra = 3", "top level", "one of source"),
    ],
)
def test_bad_files(old, new, field, expected, tmp_path):
    assert old in SMALL
    with pytest.raises(InputError) as error:
        read_rules(written(tmp_path, SMALL.replace(old, new)))
    assert error.value.field == field
    assert expected in error.value.expected
    assert error.value.source.endswith("rules.toml")


@pytest.mark.parametrize(("text", "line"), [("source = 'x'\nmodels == 3\n\n", 2), ("", None), ("[models]\n", None)])
def test_not_toml_and_empty(text, line, tmp_path):
    with pytest.raises(InputError) as error:
        read_rules(written(tmp_path, text))
    assert error.value.line == line
