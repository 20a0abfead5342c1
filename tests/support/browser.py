"""A headless Chromium for the tests that look at a report as a reader does."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

EXECUTABLE = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)

REASON = "no Chromium here: apt-get install chromium"

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page, with all that it said and asked for since it was opened."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def texts(self, selector):
        """Return the text of every element that a selector finds and that is shown."""
        return [
            each.inner_text() for each in self.page.locator(selector).all() if each.is_visible()
        ]


class Tab:
    """A tab in which files are opened one after the other.

    A new tab costs a process, and twice the processor time of a page in one that is there.
    """

    def __init__(self, browser):
        self._page = page = browser.new_page()
        self._opened = Opened(page)
        page.on("console", lambda message: self._opened.complaints.append(message.text))
        page.on("pageerror", lambda error: self._opened.complaints.append(str(error)))
        page.on(
            "dialog",
            lambda dialog: self._opened.complaints.append(f"dialog: {dialog.message}"),
        )
        page.on("request", lambda request: self._opened.requests.append(request.url))

    def open(self, path, *, width=1400, color_scheme="light"):
        """Open a file anew at a width, and return it with what it says and asks for."""
        # what the page before still has to say is said before this one is asked for
        self._page.goto("about:blank")
        self._opened = Opened(self._page)
        self._page.set_viewport_size({"width": width, "height": 900})
        self._page.emulate_media(media="null", color_scheme=color_scheme)
        self._page.goto(path.as_uri())
        return self._opened


@contextmanager
def chromium():
    """Start Chromium with an empty profile; end it with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
