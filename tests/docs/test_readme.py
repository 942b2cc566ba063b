"""What README promises and no other test runs."""

import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_two_commands_are_targets_and_ci_runs_the_second() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.findall(r"```console\n(make \w+)\n```", README) == ["make demo", "make test"]
    assert re.search(r"^demo: ", makefile, re.MULTILINE)
    (recipe,) = re.findall(r"^test: .*\n\t(.*)$", makefile, re.MULTILINE)
    assert {"deployed", "lint", "types", "unit", "infra", "packaging"} < set(recipe.split())
    assert "demonstrated" in recipe  # the demo, after the deployed suite
    assert "exec make test\n" in (ROOT / ".ci/run").read_text("utf-8")


def test_make_test_ends_as_the_readme_says() -> None:
    (said,) = re.findall(r"ends with\n\n```text\n(.*)\n```", README)
    assert f'echo "{said}"' in (ROOT / "Makefile").read_text("utf-8")


def test_watching_a_folder_works_as_shown(tmp_path: Path) -> None:
    (snippet,) = re.findall(
        r'```python\n(import trainwarden\n\n.*job="my-first-run".*)\n```', README
    )
    script = tmp_path / "script.py"
    script.write_text(f"{TRAINING}\n{snippet}\ntrain(model, optimizer, loss_fn)\n", "utf-8")
    subprocess.run([sys.executable, script.name], check=True, cwd=tmp_path, timeout=120)
    (command,) = re.findall(r"```console\n(trainwarden check)\n```", README)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("trainwarden")), *command.split()[1:]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("my-first-run:")
    assert "VanishingGradient" in done.stdout


TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()


def train(model, optimizer, loss_fn):
    inputs = torch.randn(96, 8)
    labels = (inputs @ torch.randn(8, 3)).argmax(1)
    for _ in range(60):
        optimizer.zero_grad()
        loss_fn(model(inputs), labels).backward()
        optimizer.step()
"""


def test_every_page_that_the_documentation_links_to_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert missing == []


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in found}


def test_every_heading_that_the_documentation_links_to_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page in pages
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8"))
        if anchor not in headings(page.parent / target if target else page)
    ]
    assert missing == []


def test_every_extra_that_the_readme_names_exists() -> None:
    (listed,) = re.findall(r"^Extras: (.*?)\. ", README, re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", listed)) - {"trainwarden"}
    assert {"cli", "torch", "embedded"} <= named
    assert named <= set(metadata("trainwarden").get_all("Provides-Extra") or ())


def test_the_one_line_of_the_readme_watches_a_model(tmp_path: Path) -> None:
    namespace: dict[str, object] = {
        "model": nn.Linear(4, 2),
        "loss_fn": nn.CrossEntropyLoss(),
    }
    model = namespace["model"]
    assert isinstance(model, nn.Linear)
    namespace["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    shown = "trainwarden.watch(model, optimizer, loss_fn)\n"
    assert f"import trainwarden\n\n{shown}" in README
    line = shown.strip()[:-1] + f", out={str(tmp_path)!r}, job='shown')"
    exec(f"import trainwarden\nhook = {line}\nhook.close()", namespace)  # noqa: S102 (our own page)
    assert (tmp_path / "jobs" / "shown" / "manifest.tw").is_file()
