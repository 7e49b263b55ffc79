import shutil
from types import SimpleNamespace

import pytest
from filelock import FileLock
from report.runs import make

from torchlace.report import write_report


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Runs and the report about them, made once for all processes that test."""
    base = tmp_path_factory.getbasetemp()
    # A worker of pytest-xdist has a folder of its own below the one they share.
    folder = (base.parent if base.name.startswith("popen-") else base) / "report"
    folder.mkdir(exist_ok=True)
    page = folder / "report.html"
    with FileLock(folder / "lock"):
        if not page.exists():
            runs = make(folder)
            write_report([*runs.values(), folder / "nothing"], page, method="pca", device="cpu")
        names = ("lace-0", "lace-1", "softmax-0", "unfinished", "other version")
        runs = {name: folder / name for name in names}
    return SimpleNamespace(folder=folder, page=page, runs=runs, html=page.read_text())


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if path is None:
        pytest.skip("needs Chromium: apt install chromium")
    with playwright.sync_playwright() as started:
        # Without a GPU the spheres are drawn by SwiftShader.
        options = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = started.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, made):
    """A page as a person opens it, with all that it says and asks for."""
    contexts = []

    def open_page(width=1280, height=900, path=made.page, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.requests, page.said = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.said.append((message.type, message.text)))
        page.on("pageerror", lambda error: page.said.append(("error", str(error))))
        page.on("dialog", lambda dialog: page.said.append(("error", dialog.message)))
        page.goto(path.as_uri())
        page.wait_for_function("typeof Plotly === 'object'")
        return page

    yield open_page
    for context in contexts:
        context.close()
