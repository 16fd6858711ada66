"""Policies with settings of their own as one text."""

from __future__ import annotations

import pytest

from allocator.presets import preset
from allocator.variants import Variant, read_variants
from throughputs import InputError


def test_settings_belong_to_the_policy_before_them():
    found = read_variants(" fifo, elasticflow:admission=repair, repair_rounds = 5 ,chronus,elasticflow ")
    assert found == [
        Variant("fifo"),
        Variant("elasticflow", {"admission": "repair", "repair_rounds": "5"}),
        Variant("chronus"),
        Variant("elasticflow"),
    ]
    assert found[1].typed_settings("--policies", preset("default")) == {"admission": "repair", "repair_rounds": 5}
    assert [variant.run_label for variant in found[:2]] == [None, "elasticflow:admission=repair,repair_rounds=5"]


def test_values_with_commas_stand_in_brackets():
    one, other = read_variants('elasticflow:most_gpus={"bert":4,"gpt2":8},levels="all",elasticflow')
    assert one.typed_settings("x", preset("default")) == {"most_gpus": {"bert": 4, "gpt2": 8}, "levels": "all"}
    assert other == Variant("elasticflow")
    assert one.folder == "elasticflow-most_gpus=-bert-4,-gpt2-8-,levels=-all-"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names of policies"),
        ("admission=repair", "names of policies"),
        (":admission=repair", "names of policies"),
        ("fifo,fifo", "distinct names of policies"),
        ("elasticflow:admission=repair,elasticflow:admission=repair", "distinct names of policies"),
        ("elasticflow:", "settings of elasticflow as NAME=VALUE"),
        ("elasticflow:admission=", "settings of elasticflow as NAME=VALUE"),
        ("elasticflow:levels=all,levels=useful", "each once"),
    ],
)
def test_what_is_no_list_of_policies(text, told):
    with pytest.raises(InputError, match=told):
        read_variants(text, "--policies")
