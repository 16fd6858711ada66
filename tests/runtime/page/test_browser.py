"""The page in a real browser, where there is one."""

from __future__ import annotations

import json

import pytest

from allocator.runtime.page.door import DoorSettings
from allocator.runtime.records.journal import Event
from allocator.runtime.watching import Told
from tests.runtime.page.chromium import CHROMIUM, opened
from tests.runtime.page.clusters import certificate, live, make_service, submission

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

HOSTILE = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The page, entered by a link with the token."""
    folder = tmp_path_factory.mktemp("page")
    settings = DoorSettings("127.0.0.1:0", *certificate(folder))
    with live(make_service(folder / "state"), settings) as one, opened(folder / "profile") as tab:
        tab.call("Page.navigate", url=f"{one.door.url}/")
        tab.until("document.querySelector('input[name=token]') !== null")
        assert tab.value("document.getElementById('queue')") is None
        tab.call("Page.navigate", url="about:blank")
        tab.call("Page.navigate", url=f"{one.door.url}/#token={one.token}")
        tab.until("document.getElementById('link')?.className === 'live'")
        assert tab.value("location.hash") == ""
        yield one, tab
        refused = [text for text in tab.complaints if "401" not in text and '"verbose"' not in text]
        assert not refused, refused


def text_of(tab, selector, *words):
    """The text of a part of the page, once some words are in it."""
    wanted = json.dumps(words)
    tab.until(f"{wanted}.every((word) => document.querySelector('{selector}').innerText.includes(word))")
    return tab.text(selector)


def test_the_page_follows_what_happens(shown):
    one, tab = shown
    text_of(tab, "#running", "Nothing runs.")
    jobs = one.do(lambda: one.service.submit([submission(f"train {k}", gpus=2) for k in range(3)]))
    text_of(tab, "#running", "train 0", "train 1", "2 × v100", "2 × k80")
    text_of(tab, "#queue", "train 2", "not its turn")
    text_of(tab, "#nodes", "one", "two", "v100")
    assert tab.value("document.querySelectorAll('.gpu.busy').length") == 4
    text_of(tab, "#tiles", "4 / 4")
    text_of(tab, "#decisions", "ms")
    one.do(lambda: one.service.watching.tell(jobs[0], Told(50.0, one.service.clock(), metrics={"loss": "0.25"})))
    text_of(tab, "#running", "50 % of 100", "loss 0.25")
    measured = {"pool": jobs[0].pool, "gpus": 2, "rate": 12.5}
    one.do(lambda: one.service.record([Event("measured", jobs[0].uuid, data=measured)]))
    text_of(tab, "#speeds", "12.5")
    text_of(tab, "#running", "about 4 s")
    text_of(tab, "#queue", "in about 4 s")
    one.do(lambda: one.service.cancel(jobs[:2]))
    one.wait(one.service.adapter.stop(jobs[0].uuid, 1))
    text_of(tab, "#running", "train 2")
    text_of(tab, "#finished", "train 0", "cancelled")
    text_of(tab, "#happenings", "cancelled")
    one.do(lambda: one.service.drain("two", True))
    text_of(tab, "#nodes", "k80, drained")


def test_names_are_text_and_nothing_else(shown):
    one, tab = shown
    one.do(lambda: one.service.submit([submission(HOSTILE, gpus=9, user=HOSTILE)]))
    text_of(tab, "#queue", "<img src=x", "needs 9 GPUs")
    assert "broken" not in tab.value("document.title")
    assert tab.value("document.images.length + document.querySelectorAll('td script').length") == 0


def test_the_policy_of_the_page_holds(shown):
    _, tab = shown
    before = len(tab.complaints)
    assert (
        tab.value("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set'; } catch { return 'no'; } })()")
        == "no"
    )
    tab.value("document.body.append(Object.assign(document.createElement('img'), {src: 'https://127.0.0.1:1/x.png'}))")
    tab.until("true")
    assert "broken" not in tab.value("document.title")
    tab.value("document.images[0].remove()")
    del tab.complaints[before:]


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_screens_of_any_width(shown, width, dark):
    _, tab = shown
    tab.show(width, 800, dark=dark)
    assert tab.until("window.innerWidth", lambda found: found == width) == width
    assert tab.value("document.documentElement.scrollWidth") <= width
    ground = tab.value("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 21, 26)" if dark else "rgb(244, 245, 248)")


def test_it_says_when_the_service_is_gone(tmp_path):
    settings = DoorSettings("127.0.0.1:0", *certificate(tmp_path))
    with opened(tmp_path / "profile") as tab:
        with live(make_service(tmp_path / "state"), settings) as one:
            tab.call("Page.navigate", url=f"{one.door.url}/#token={one.token}")
            tab.until("document.getElementById('link')?.className === 'live'")
        tab.until("document.getElementById('link').className === 'lost'")
        assert "no answer" in tab.text("#link")
