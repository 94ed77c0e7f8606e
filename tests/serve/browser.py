"""A headless Chromium, and what is asked of every page that it shows."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; skips the test that asks for it where none is installed."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine; on Debian and Ubuntu: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=Path(found), args=ARGUMENTS)
        yield browser
        browser.close()


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const sibling = at.localName === "text" && at.parentElement.querySelector(":scope > rect");
      const color = sibling ? getComputedStyle(sibling).fill : getComputedStyle(at).backgroundColor;
      if (rgba(color)[3] === 255) return rgba(color);
    }
    return rgba("white");
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility()) continue;
    if (element.closest(".hidden, script, title, :disabled, option")) continue;
    const style = getComputedStyle(element);
    const color = element.localName === "text" ? style.fill : style.color;
    const [a, b] = [luminance(rgba(color)), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    found.push({ text: node.data.trim(), ratio, least });
  }
  return found;
}"""
"""Every visible text with its contrast to what it stands on, and the least that WCAG AA asks."""

UNNAMED = """() => [...document.querySelectorAll(
  "button, input, select, textarea, section, [role=img], [role=grid], [role=gridcell], " +
  "[tabindex='0']"
)].filter((element) => element.checkVisibility()).filter((element) => {
  const labels = [...(element.labels ?? [])].map((label) => label.textContent.trim()).join("");
  const own = element.localName === "button" ? element.textContent.trim() : "";
  return !(element.getAttribute("aria-label") || labels || own);
}).map((element) => element.outerHTML.slice(0, 120))"""
"""What a screen reader would have to announce without a name."""
