import pytest

from allocator.report import render_report
from allocator.report.colours import policy_colour, policy_looks
from tests.report.synthetic import changed, make_result

# What is left of linear red, green and blue without one kind of cones (Machado, Oliveira, Fernandes, TVCG 2009).


def test_settings_and_company_do_not_change_the_colour() -> None:
    assert policy_colour("elasticflow:admission=repair") == policy_colour("elasticflow")
    one, two = policy_looks(["elasticflow", "elasticflow:admission=repair"])
    assert one.light == policy_colour("elasticflow")
    assert two.colour != one.colour
    alone, beside = policy_looks(["fifo"])[0], policy_looks(["a new one", "fifo"])[1]
    assert alone == beside


@pytest.mark.published
def test_the_page_colours_a_policy_by_its_name_whatever_it_is_called_there() -> None:
    result = changed(make_result("themis", n_jobs=4, hours=1), settings={"preset": "elasticflow"})
    page = render_report([result])
    assert "themis (Themis)" in page
    assert f"--c0: {policy_colour('themis')};" in page
