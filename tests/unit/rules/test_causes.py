"""What real ill runs set off at once is told as one group, by its root cause."""

from __future__ import annotations

import pytest

from trainwarden.grouping import Standing, causes
from trainwarden.rules import explained


@pytest.mark.parametrize(
    ("root", "symptoms"),
    [
        pytest.param(
            "LearningRateTooHigh",
            {"ExplodingGradient": 5, "LossSpike": 5, "LossNotDecreasing": 0, "DeadRelu": 6,
             "TensorVariance": 6, "WeightUpdateRatio": 2},
            id="a-rate-that-kills-units",
        ),
        pytest.param(
            "PoorWeightInitialization",
            {"LearningRateTooHigh": 2, "ExplodingGradient": 2, "LossSpike": 1,
             "ExplodingTensor": 3},
            id="residual-blocks-that-amplify",
        ),
        pytest.param(
            "ExplodingGradient",
            {"InitialLoss": 0, "SaturatedActivation": 3, "GradientClipping": 4},
            id="a-recurrent-net-that-amplifies",
        ),
        pytest.param(
            "LearningRateSchedule",
            {"LearningRateTooHigh": 4, "LossSpike": 9, "LossNotDecreasing": 0, "DeadRelu": 10,
             "TensorVariance": 20, "VanishingGradient": 8},
            id="a-rate-that-grows",
        ),
        pytest.param(
            "NotNormalizedData",
            {"LearningRateTooHigh": 1, "ExplodingGradient": 1, "DeadRelu": 1, "InitialLoss": 0},
            id="raw-columns",
        ),
        pytest.param(
            "GradientsNotZeroed",
            {"LearningRateTooHigh": 3, "ExplodingGradient": 9, "LossSpike": 7, "Collapse": 20},
            id="gradients-that-add-up",
        ),
        pytest.param(
            "LossMisuse", {"ExplodingGradient": 160, "ExplodingTensor": 170, "LossSpike": 165},
            id="a-loss-without-a-bound",
        ),
    ],
)  # fmt: skip
def test_one_root_cause_is_one_group(root: str, symptoms: dict[str, int]) -> None:
    standing = [Standing(name, name, since) for name, since in {root: 1, **symptoms}.items()]
    assert causes(standing, explained()) == dict.fromkeys(symptoms, root)


def test_two_root_causes_stay_two_groups() -> None:
    since = {"LearningRateTooHigh": 0, "BadLabels": 3, "DeadRelu": 1}
    standing = [Standing(name, name, step) for name, step in since.items()]
    assert causes(standing, explained()) == {"DeadRelu": "LearningRateTooHigh"}
