"""A headless Chromium for the tests that look at a report as a reader does."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

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


class Opened:
    """A page, with all that it said and asked for since it was opened."""

    def __init__(self, page):
        self.page = page
        self.complaints = []
        self.requests = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def texts(self, selector):
        """Return the text of every element that a selector finds and that is shown."""
        return [
            each.inner_text() for each in self.page.locator(selector).all() if each.is_visible()
        ]


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


def open_page(browser, path, *, width=1400, **context):
    """Open a file at a width, and return it with what it says and asks for."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **context)
    opened = Opened(page)
    page.goto(path.as_uri())
    return opened
