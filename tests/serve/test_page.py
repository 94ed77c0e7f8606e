"""The page in a real browser, on the bundled target: what it shows is what was decoded."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from torch import Tensor

from decoders.options import DecodeOptions
from models.config import TargetConfig
from models.target import CopyBatch
from serve.api import build_api
from serve.app import open_service
from serve.backends import LocalBackend
from serve.config import ServeConfig
from serve.keys import VARIABLE, fresh_key
from serve.service import Service
from tests.serve.browser import CONTRAST, UNNAMED, chromium
from tests.serve.listening import listening

LIMIT = 20
SLOW = 60_000
"""Milliseconds in which an answer is there, on a busy machine too."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def bundled() -> Iterator[Service]:
    decode = DecodeOptions(method="order", budget=8, cap=0.9, max_new_tokens=LIMIT)
    service = open_service(ServeConfig(target=TargetConfig(path="sdar-tiny"), decode=decode))
    yield service
    service.backend.close()


@pytest.fixture(scope="module")
def base(bundled: Service) -> Iterator[str]:
    with listening(build_api(bundled)) as url:
        yield url


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(SLOW)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext, base: str) -> Page:
    return open_page(context, base)


@pytest.fixture(scope="module")
def finished(browser: Browser, base: str) -> Iterator[Page]:
    """Both methods have answered; tests leave it at the last forward."""
    opened = browser.new_context(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(SLOW)
    page = open_page(opened, base)
    page.evaluate(
        "() => { window.said = []; new MutationObserver(() => said.push(1)).observe("
        "document.getElementById('status'), { childList: true, characterData: true }) }"
    )
    page.click("#run")
    page.wait_for_selector("#certificate:not([hidden])")
    yield page
    opened.close()


def open_page(context: BrowserContext, url: str) -> Page:
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#run:not([disabled])")
    return page


def forwards_of(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".big strong").all_inner_texts()]


def plain_answer(base: str, page: Page, method: str) -> dict[str, Any]:
    prompt = page.input_value("#prompt")
    body = {
        "model": "sdar-tiny",
        "messages": [{"role": "user", "content": prompt}],
        "seed": 0,
        "maskahead": {"method": method},
    }
    return httpx.post(f"{base}/v1/chat/completions", json=body, timeout=60).json()


def test_two_methods_stand_side_by_side_with_a_certificate(finished: Page, base: str) -> None:
    expect(finished.locator("#model")).to_contain_text("sdar-tiny · float32 · blocks of 32")
    assert finished.locator("article h2").all_inner_texts() == ["order", "standard"]
    expect(finished.locator("#certificate")).to_have_class("certificate exact")
    expect(finished.locator("#certificate")).to_contain_text(
        f"order and standard wrote the same {LIMIT} tokens"
    )
    answers = [plain_answer(base, finished, method) for method in ("order", "standard")]
    shown = [text.rstrip() for text in finished.locator(".text").all_inner_texts()]
    assert shown == [answer["choices"][0]["message"]["content"].rstrip() for answer in answers]
    nfe = [answer["usage"]["maskahead"]["nfe"] for answer in answers]
    assert forwards_of(finished) == nfe
    assert nfe[0] < nfe[1]
    notes = finished.locator(".note").all_inner_texts()
    assert notes[0] == f"{nfe[1]} without drafts", "a draft-free run fills one position a forward"


def test_the_replay_goes_through_the_forwards_with_the_keyboard(finished: Page) -> None:
    slider = finished.get_by_label("Forward", exact=True)
    slider.focus()
    last = int(slider.input_value())
    assert last == max(forwards_of(finished))
    finished.keyboard.press("Home")
    assert forwards_of(finished) == [0, 0]
    assert finished.locator(".cell.filled").count() == 0
    for k in (1, 2, 3):
        finished.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext") == f"Forward {k} of {last}"
        ours, free = finished.locator("article").all()
        assert free.locator(".cell.filled").count() == k
        new = ours.locator(".cell.new").count()
        drawn = ours.locator(".node.accepted, .node.own").count()
        assert new == drawn > 0, "what the path shows is what was filled"
        assert f"{new} filled" in ours.locator("figcaption").inner_text()
    finished.keyboard.press("End")
    expect(finished.locator(".state").first).to_have_text("stopped at the limit")


def test_cells_are_walked_with_arrows_and_say_what_they_hold(finished: Page) -> None:
    grid = finished.get_by_role("grid", name="Positions").first
    cells = grid.get_by_role("gridcell")
    positions = [cell.get_attribute("aria-label") or "" for cell in cells.all()]
    assert len(positions) == len({text.split(":")[0] for text in positions})
    assert grid.locator("[tabindex='0']").count() == 1
    grid.locator("[tabindex='0']").focus()
    finished.keyboard.press("End")
    finished.keyboard.press("ArrowLeft")
    focused = finished.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == positions[-2]
    filled = grid.locator(".cell.filled").first.get_attribute("aria-label") or ""
    assert "forward 1, number 1 of its block, confidence " in filled
    assert finished.locator(".inspector").first.inner_text() == focused


def test_everything_has_a_name_and_announcements_are_few(finished: Page) -> None:
    assert finished.evaluate(UNNAMED) == []
    assert finished.locator("html").get_attribute("lang") == "en"
    ids = finished.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    assert finished.evaluate("said.length") <= 3, "begin, end, certificate: no flood"
    announced = finished.get_by_role("status")  # the only live region but for alerts
    expect(announced).to_contain_text("Exact. order and standard wrote")
    pictures = finished.locator("svg[role=img]").all()
    assert all("Path: " in (each.get_attribute("aria-label") or "") for each in pictures)


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_every_text_stands_out(finished: Page, theme: str) -> None:
    finished.locator("#theme label", has_text=theme).click()
    finished.wait_for_timeout(400)  # colours have a transition
    texts = finished.evaluate(CONTRAST)
    assert len(texts) > 80
    assert [text for text in texts if text["ratio"] < text["least"]] == []


def test_a_chosen_theme_stays_and_motion_can_be_reduced(context: BrowserContext, base: str) -> None:
    page = open_page(context, base)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    dark = page.evaluate(paper)
    assert light != dark
    page.get_by_label("Light").check(force=True)
    page.reload()
    assert page.evaluate(paper) == light
    motion = "matchMedia('(prefers-reduced-motion: reduce)').matches"
    assert page.evaluate(motion)
    page.click("#run")
    page.locator(".bar i").first.wait_for(state="attached")
    moving = "getComputedStyle(document.querySelector('.bar i')).transitionProperty"
    assert page.evaluate(moving) == "none"


def test_the_keyboard_reaches_controls_in_reading_order(page: Page) -> None:
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.name || document.activeElement.textContent")
        )
    expected = ["Skip to the results", "theme", "prompt", "a word problem", "a function", "form"]
    expected += ["method", "beside", "budget", "cap", "temperature", "seed", "max_tokens"]
    assert reached[: len(expected)] == expected


BLOCKED = "Object.defineProperty(window, 'localStorage', { get() { throw Error('blocked'); } })"
"""A browser that lets pages keep nothing."""


def test_nothing_is_fetched_from_elsewhere(context: BrowserContext, base: str) -> None:
    context.add_init_script(BLOCKED)
    asked: list[str] = []
    problems: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: problems.append(str(error.error)))
    page = open_page(context, base)
    page.on("console", lambda message: problems.append(message.text))
    page.select_option("[name=beside]", "")
    page.click("#run")
    expect(page.locator(".state")).to_have_text("stopped at the limit")
    assert {url.startswith(base) for url in asked} == {True}
    assert problems == []
    assert "default-src 'self'" in httpx.get(base).headers["Content-Security-Policy"]


def test_methods_by_other_rules_are_called_approximate(page: Page) -> None:
    page.select_option("[name=method]", "threshold")
    page.fill("[name=tau]", "0.305")
    page.click("#run")
    page.wait_for_selector("#certificate:not([hidden])")
    expect(page.locator("#certificate")).to_have_class("certificate approximate")
    expect(page.locator("#certificate")).to_contain_text("commit by different rules")
    expect(page.locator(".note").first).to_contain_text("at one position a forward")


def test_a_refusal_is_shown_where_the_answer_would_stand(page: Page) -> None:
    page.fill("[name=max_tokens]", "99999")
    page.fill("[name=cap]", "7")  # threshold has none: what is hidden stops nobody
    page.select_option("[name=method]", "threshold")
    page.select_option("[name=beside]", "")
    page.click("#run")
    expect(page.get_by_role("alert").last).to_contain_text(
        "max_tokens 99999: an answer to this prompt may have"
    )
    expect(page.locator(".state")).to_have_text("failed")


def test_a_failure_amid_an_answer_is_told(
    page: Page, bundled: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(bundled.backend, LocalBackend)
    break_after(3, bundled.backend, monkeypatch)
    page.select_option("[name=method]", "standard")
    page.select_option("[name=beside]", "")
    page.click("#run")
    expect(page.locator("article .problem")).to_contain_text("out of memory")
    assert page.locator(".cell.filled").count() > 0, "what came stays"
    page.evaluate(
        "() => { window.told = 0; new MutationObserver(() => told++).observe("
        "document.querySelector('article .problem'), { childList: true }) }"
    )
    page.get_by_label("Forward", exact=True).press("Home")
    expect(page.locator(".cell.filled")).to_have_count(0)
    assert page.evaluate("told") == 0, "read out once, whatever is looked at afterwards"


def break_after(count: int, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    target = backend.batching.engine.target
    whole: Callable[[CopyBatch], Tensor] = target.forward
    made = iter(range(count))

    def forward(batch: CopyBatch) -> Tensor:
        if next(made, None) is None:
            raise RuntimeError("out of memory")
        return whole(batch)

    monkeypatch.setattr(target, "forward", forward)


def test_stop_ends_the_answer_and_its_forwards(page: Page, base: str) -> None:
    page.fill("[name=max_tokens]", "400")
    page.select_option("[name=beside]", "")
    page.locator("#run").focus()
    page.keyboard.press("Enter")
    page.locator(".cell.filled").nth(2).wait_for()
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".state")).to_have_text("stopped")
    expect(page.locator("#run")).to_be_focused()
    for _ in range(100):
        if httpx.get(f"{base}/readyz").json()["running"] == 0:
            return
        page.wait_for_timeout(50)
    raise AssertionError("the answer still runs")


def test_an_endpoint_that_has_gone_is_named(context: BrowserContext, bundled: Service) -> None:
    with listening(build_api(bundled)) as url:
        page = open_page(context, url)
    page.click("#run")
    expect(page.locator("article .problem").first).to_contain_text("does not answer")


KEPT = (
    "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])"
)
"""All that outlives a page."""


def test_a_key_is_asked_for_only_where_one_is_needed(
    context: BrowserContext, bundled: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = fresh_key()
    monkeypatch.setenv(VARIABLE, key)
    with listening(build_api(bundled)) as url:
        page = context.new_page()
        page.goto(url)
        problem, field = page.get_by_role("alert").first, page.get_by_label("API key")
        expect(problem).to_contain_text("asks for an API key")
        expect(field).to_be_focused()
        expect(page.get_by_label("Method")).to_be_hidden()  # nothing to choose from
        field.fill(f"{key}x")
        page.keyboard.press("Enter")
        expect(problem).to_have_text("The endpoint does not accept this API key.")
        expect(field).to_be_focused()
        assert field.get_attribute("aria-invalid") == "true"
        assert page.evaluate(UNNAMED) == []
        for theme in ("Light", "Dark"):
            page.get_by_label(theme).check(force=True)
            page.wait_for_timeout(400)  # colours have a transition
            assert [each for each in page.evaluate(CONTRAST) if each["ratio"] < each["least"]] == []
        field.fill(key)
        field.press("Enter")
        expect(page.locator("#model")).to_contain_text("sdar-tiny")
        expect(page.get_by_label("Method")).to_be_visible()
        page.wait_for_selector("#certificate:not([hidden])")
        assert field.get_attribute("aria-invalid") is None
        assert key not in page.evaluate(KEPT)
        page.reload()
        expect(problem).to_contain_text("asks for an API key")
        assert field.input_value() == ""


LAYOUT = """async (rounds) => {
  const { layout } = await import("/page/layout.js");
  return rounds.map((round) => layout(round));
}"""


def test_in_the_drawn_tree_no_node_hides_another_and_the_path_is_straight(page: Page) -> None:
    fill = [[7, 1, "a"]]
    nodes = [
        {"parent": None, "fills": fill, "mass": 0.9, "accepted": False},
        {"parent": None, "fills": fill, "mass": 0.5, "accepted": True},
        {"parent": 0, "fills": fill, "mass": 0.4, "accepted": False},
        {"parent": 1, "fills": fill, "mass": 0.3, "accepted": True},
        {"parent": 1, "fills": fill, "mass": None, "accepted": False},
    ]
    rounds = [
        {"tree": nodes, "steps": [fill, fill, fill]},
        {"tree": [], "steps": [fill]},
        {"tree": [], "steps": [fill, fill]},
    ]
    for drawn in page.evaluate(LAYOUT, rounds):
        places = [(node["depth"], node["row"]) for node in drawn]
        assert len(set(places)) == len(places)
        path = [node for node in drawn if node["kind"] in ("root", "accepted", "own")]
        assert {node["row"] for node in path} == {0}
        assert sorted(node["depth"] for node in path) == list(range(len(path)))
