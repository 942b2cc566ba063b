from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pytest

from tests.unit.rules.runs import Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.data_order import DataOrder

RULE = DataOrder()
NAME = "label/0"
Draw = Callable[[np.random.Generator], npt.ArrayLike]


def saved(every: int) -> Iterable[int]:
    return [*range(10), *range(10, 400, every)] if every > 1 else range(200)


def run_of(
    batch_at: Callable[[int], npt.ArrayLike], *, every: int = 10, mode: Mode = Mode.TRAIN
) -> list[Observation]:
    run = []
    for step in saved(every):
        labels, counts = np.unique(np.asarray(batch_at(step)), return_counts=True)
        table = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        run.append(Script().step(step, labels={NAME: table}, mode=mode))
    return run


def epochs(labels: npt.ArrayLike, size: int) -> Callable[[int], npt.ArrayLike]:
    """Batches of ``size`` in the order given, over and over."""
    rows = np.asarray(labels)
    many = len(rows) // size
    return lambda step: rows[(step % many) * size : (step % many) * size + size]


def drawn(draw: Draw) -> Callable[[int], npt.ArrayLike]:
    rng = np.random.default_rng(0)
    return lambda _: draw(rng)


TEN = np.repeat(np.arange(10), 120)


@pytest.mark.parametrize(
    ("labels", "size", "kind", "step"),
    [
        pytest.param(TEN, 32, "blocks", 5, id="ten-classes"),
        pytest.param(TEN, 16, "blocks", 20, id="small-batches"),
        pytest.param(TEN, 200, "neighbours", 40, id="batches-larger-than-a-class"),
        pytest.param(np.repeat([4, 0, 9, 2, 7], 100), 40, "blocks", 8, id="in-any-order"),
        pytest.param(np.repeat([0, 1], 160), 32, "blocks", 8, id="two-classes"),
    ],
)
def test_sorted_data_is_told_early(labels: npt.ArrayLike, size: int, kind: str, step: int) -> None:
    (finding,) = fold(RULE, run_of(epochs(labels, size)))[1]
    assert finding.evidence["kind"] == kind
    assert finding.step <= step
    assert (finding.tensor, finding.first_step) == (NAME, 0)


@pytest.mark.parametrize("every", [1, 10, 50])
def test_sorted_data_is_told_at_every_save_interval(every: int) -> None:
    assert len(fired(RULE, run_of(epochs(TEN, 32), every=every))) == 1


def balanced(_: np.random.Generator) -> npt.ArrayLike:
    return [*range(10)] * 3


def metric(rng: np.random.Generator) -> npt.ArrayLike:
    return np.repeat(rng.choice(10, 2, replace=False), 16)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda rng: rng.integers(0, 10, 32), id="shuffled"),
        pytest.param(lambda rng: rng.integers(0, 10, 4), id="tiny-batches"),
        pytest.param(lambda rng: rng.integers(0, 10, 1), id="batches-of-one"),
        pytest.param(lambda rng: rng.integers(0, 2, 2), id="batches-of-two"),
        pytest.param(lambda rng: (rng.random(64) < 0.02).astype(int), id="rare-positives"),
        pytest.param(lambda rng: np.minimum(rng.zipf(1.7, 16), 30), id="frequent-ones-first"),
        pytest.param(balanced, id="balanced"),
        pytest.param(metric, id="two-classes-drawn-anew"),
        pytest.param(lambda rng: np.repeat(rng.choice(100, 4), 8), id="four-of-a-hundred"),
    ],
)
@pytest.mark.parametrize("every", [1, 10])
def test_batches_that_were_drawn_are_fine(draw: Draw, every: int) -> None:
    assert fired(RULE, run_of(drawn(draw), every=every)) == []


def test_batches_of_real_and_of_generated_samples_in_turn_are_no_blocks() -> None:
    assert fired(RULE, run_of(lambda step: [step % 2] * 32, every=1)) == []


def test_several_optimizers_tokens_pixels_and_evaluation_are_not_judged() -> None:
    run = run_of(epochs(TEN, 32))
    assert fired(RULE, run_of(epochs(TEN, 32), mode=Mode.EVAL)) == []
    adversaries = {"optimizer": {"lr_0": 0.1, "1.lr_0": 0.1}}
    script = Script(tensor(NAME, "labels", (8, 8)))
    plain = Script()
    assert (
        fired(RULE, [plain.step(o.step, labels=o.labels, scalars=adversaries) for o in run]) == []
    )
    assert fired(RULE, [script.step(o.step, labels=o.labels) for o in run]) == []
    flat = {"batch": {"input/0.samples": 2.0}}
    assert fired(RULE, [plain.step(o.step, labels=o.labels, scalars=flat) for o in run]) == []


@pytest.mark.parametrize(
    ("accuracy", "loss", "classes", "width", "fires"),
    [
        pytest.param(1.0, 0.01, 10.0, 10, [15], id="certain"),
        pytest.param(0.2, 0.01, 10.0, 10, [], id="not-learned"),
        pytest.param(1.0, 2.0, 10.0, 10, [], id="a-loss-that-is-high"),
        pytest.param(1.0, 0.01, 2.0, 2, [], id="two-classes-one-of-them-rare"),
        pytest.param(1.0, 0.01, 10.0, 16, [], id="a-contrastive-loss-whose-labels-are-all-alike"),
    ],
)
def test_a_single_class_that_is_learned_with_certainty_is_sorted_or_wrong(
    accuracy: float, loss: float, classes: float, width: int, fires: list[int]
) -> None:
    script = Script(tensor("output/0", "outputs", (width,)))
    facts = {"cross_entropy.accuracy": accuracy, "cross_entropy.classes": classes}
    run = [
        script.step(i, labels={NAME: {3: 64}}, loss=loss, scalars={"objective": facts})
        for i in range(30)
    ]
    assert fired(RULE, run) == fires


def targets(values: Callable[[int], npt.ArrayLike]) -> list[Observation]:
    script = Script(tensor(NAME, "labels", (16,)))
    row = Script(tensor("label/0", "labels", ()))
    run = []
    for step in [*range(10), *range(10, 100, 10)]:
        obs = script.step(step, {NAME: values(step)})
        run.append(Observation(step, Mode.TRAIN, step, 1e9, row.layout, obs.stats, obs.scalars))
    return run


def test_sorted_targets_of_a_regression() -> None:
    rng = np.random.default_rng(0)
    ordered = np.sort(rng.normal(size=16 * 20))
    (finding,) = fold(RULE, targets(lambda i: ordered[16 * (i % 20) :][:16]))[1]
    assert finding.evidence["kind"] == "sorted_targets"
    assert finding.step == 8
    assert fired(RULE, targets(lambda _: rng.normal(size=16))) == []
    waves = np.sin(np.arange(2000) / 7)
    assert fired(RULE, targets(lambda i: waves[16 * i :][:16])) == []


BOTH = {NAME: {0: 16, 1: 16}}


def repeated(
    *, rows: int, validation: float, size: float = 32.0, varied: bool = False
) -> list[Observation]:
    one, run = Script(tensor("input/0", "inputs", (8,))), []
    told = {"batch": {"input/0.samples": size}}
    for i in range(12):
        values, loss = {"input/0": np.arange(8.0) + i * varied}, 2.0 * 0.7**i
        run.append(one.step(i, values, loss=loss, scalars=told, labels=BOTH))
        run.append(one.step(i, loss=validation, mode=Mode.EVAL, labels={NAME: {0: rows}}))
    return run


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(repeated(rows=500, validation=1.5), [8], id="a-loader-that-is-stuck"),
        pytest.param(repeated(rows=32, validation=1.5), [], id="the-whole-data-set-each-step"),
        pytest.param(repeated(rows=500, validation=0.01), [], id="validation-as-good"),
        pytest.param(repeated(rows=500, validation=1.5, size=300.0), [], id="a-large-batch"),
        pytest.param(repeated(rows=500, validation=1.5, varied=True), [], id="other-batches"),
    ],
)
def test_the_same_batch_at_every_step(run: list[Observation], fires: list[int]) -> None:
    assert fired(RULE, run) == fires
    kinds = [finding.evidence["kind"] for finding in fold(RULE, run)[1]]
    assert kinds == ["same_batch"] * len(fires)
