"""The report in a real browser: its charts are drawn, nothing fails, and the tree is searched."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shardc.report.page.page import Report
from tests.py.report.test_page import of_many_layers
from tests.py.report.test_reading import planned

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE = "412,915"
GREETING = re.compile(r"\[bokeh [\d.]+\] (setting log level|document idle)")

# Types a layout into the search field of a drawn page, and writes down what is to be seen then.
PROBE = """
<script>
const inside = (each) =>
  each.matches("canvas") ? 1 : each.shadowRoot ? canvases(each.shadowRoot) : 0;
const canvases = (root) =>
  [...root.querySelectorAll("*")].reduce((sum, each) => sum + inside(each), 0);
addEventListener("load", () => setTimeout(() => {
  const nodes = [...document.querySelectorAll("details.node")];
  const input = document.querySelector("input[data-tree]");
  input.value = "WORD";
  input.dispatchEvent(new Event("input"));
  const seen = {
    charts: Bokeh.documents.reduce((sum, each) => sum + each.roots().length, 0),
    canvases: canvases(document),
    nodes: nodes.length,
    shown: nodes.filter((each) => !each.hidden).map((each) => each.firstChild.textContent),
    wider: document.documentElement.scrollWidth - innerWidth,
  };
  document.body.innerHTML = `<pre id="probe"></pre>`;
  document.getElementById("probe").textContent = JSON.stringify(seen);
}, 3000));
</script>
"""


def seen(html: str, word: str, folder: Path) -> dict[str, object]:
    """What a browser shows of a page on a phone when `word` is searched; no error is said."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} (apt-get install chromium)")
    page = folder / "page.html"
    page.write_text(html.replace("</body>", PROBE.replace("WORD", word) + "</body>"))
    flags = "--headless=new --no-sandbox --disable-gpu --enable-logging=stderr --dump-dom".split()
    run = subprocess.run(
        [
            browser,
            *flags,
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={PHONE}",
            "--virtual-time-budget=20000",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in said if not GREETING.search(line)] == []
    probe = re.search(r'<pre id="probe">(.*?)</pre>', run.stdout, re.DOTALL)
    assert probe is not None, run.stdout[-2000:]
    found: dict[str, object] = json.loads(probe[1])
    return found


@pytest.mark.slow
def test_a_pipeline_is_drawn(tmp_path: Path) -> None:
    report = Report((("mine", planned("", 2, 4)),))
    found = seen(report.html, "stage 1", tmp_path)
    assert found["charts"] == report.html.count("data-root-id")
    assert found["canvases"] >= found["charts"]  # type: ignore[operator]
    assert found["wider"] <= 0  # type: ignore[operator]


@pytest.mark.slow
def test_96_layers_on_1024_devices_are_drawn_and_searched(tmp_path: Path) -> None:
    found = seen(Report((("large", of_many_layers()),)).html, "part0", tmp_path)
    assert found["wider"] <= 0  # type: ignore[operator]
    shown = found["shown"]
    assert isinstance(shown, list)
    layers = {f"{12 * stage}-{12 * stage + 11}" for stage in range(8)}
    assert {str(each).split()[0] for each in shown} == {"model", "stage", "h", "part0-11"} | layers
