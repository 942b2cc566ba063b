from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from trainwarden import rules
from trainwarden.errors import ConfigError
from trainwarden.grouping import circles
from trainwarden.model import Json, Rule, RuleMeta, Severity, Tier
from trainwarden.rules import build, find, parameters, registry, runbook
from trainwarden.rules._pages import pages
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.stats.derived import STATISTICS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "layers/core/python/trainwarden/rules"
CODES = {
    "Threshold": "CUS001",
    "DeadRelu": "ACT001",
    "SaturatedActivation": "ACT002",
    "SimilarAcrossRuns": "CMP001",
    "ClassImbalance": "DAT001",
    "Confusion": "DAT002",
    "NotNormalizedData": "DAT003",
    "CheckInputImages": "DAT004",
    "BadInput": "DAT005",
    "BadLabels": "DAT006",
    "DataOrder": "DAT007",
    "DistributionShift": "DAT008",
    "VanishingGradient": "GRD001",
    "ExplodingGradient": "GRD002",
    "MissingGradient": "GRD003",
    "GradientClipping": "GRD004",
    "PoorWeightInitialization": "INI001",
    "InitialLoss": "INI002",
    "GradientsNotZeroed": "LOP001",
    "OptimizerNotStepping": "LOP002",
    "WrongMode": "LOP003",
    "LossNotDecreasing": "LOS001",
    "Overfit": "LOS002",
    "Overtraining": "LOS003",
    "EarlyStopping": "LOS004",
    "LossSpike": "LOS005",
    "NLPSequenceRatio": "NLP001",
    "TokenImbalance": "NLP002",
    "ExplodingTensor": "NUM001",
    "LowPrecision": "NUM002",
    "LossMisuse": "OBJ001",
    "OutputRange": "OBJ002",
    "HighLearningRate": "OPT001",
    "LearningRateTooHigh": "OPT002",
    "LearningRateTooLow": "OPT003",
    "LearningRateSchedule": "OPT004",
    "OverRegularization": "OPT005",
    "Collapse": "OUT001",
    "StalledTrainingRule": "SYS001",
    "TensorVariance": "TNS001",
    "AllZero": "TNS002",
    "UnchangedTensor": "UPD001",
    "WeightUpdateRatio": "UPD002",
    "TreeDepth": "XGB001",
    "FeatureImportanceOverweight": "XGB002",
    "TargetLeakage": "XGB003",
    "CreateXgboostReport": "XGB004",
}
LOUD = {"ExplodingTensor", "VanishingGradient", "StalledTrainingRule"}


def meta(name: str, code: str) -> RuleMeta:
    return RuleMeta(code, name, Severity.WARNING, Tier.EVIDENCE, (), ("try",), "capture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug(CheckedRule[Json]):
    """A user's rule."""

    meta: ClassVar[RuleMeta] = meta("Plug", "USR901")
    share: float = param(0.5, "A share.", bounds=Bounds(gt=0, le=1))
    count: int | None = param(None, "A count.", bounds=Bounds(ge=1))
    on: bool = param(False, "A switch.")
    mode: str | None = param(None, "A choice.", choices=("TRAIN", "EVAL"))
    names: tuple[str, ...] = param((), "Some names.")
    regex: tuple[str, ...] = param((), "Some patterns.", pattern=True)


class FakeEntry:
    def __init__(self, name: str, cls: Any) -> None:
        self.name, self.value, self._cls = name, f"somewhere:{name}", cls

    def load(self) -> Any:
        return self._cls


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Any:
    def plug(*classes: Any) -> None:
        entries = [FakeEntry(str(i), cls) for i, cls in enumerate(classes)]
        monkeypatch.setattr(rules, "entry_points", lambda **_: entries)
        registry.cache_clear()

    yield plug
    registry.cache_clear()


def test_every_rule_is_there_under_its_code_for_ever() -> None:
    found = {name: cls.meta.code for name, cls in registry().items()}
    assert found.items() <= CODES.items()


def test_what_rules_explain_exists_and_goes_round_in_no_circle() -> None:
    explains = {name: cls.meta.explains for name, cls in registry().items()}
    assert {name for names in explains.values() for name in names} <= {*CODES}
    assert circles(explains) == ()


def test_severities() -> None:
    loud = {n for n, cls in registry().items() if cls.meta.severity is Severity.ERROR}
    assert loud >= LOUD


@pytest.mark.parametrize("name", registry())
def test_one_module_a_rule_named_after_it_with_a_test_beside_this_one(name: str) -> None:
    stem = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    assert (FOLDER / f"{stem}.py").is_file()
    assert (Path(__file__).parent / f"test_{stem}.py").is_file()


@pytest.mark.parametrize("name", registry())
def test_the_runbook_says_what_why_how_and_when_it_is_wrong(name: str) -> None:
    text = runbook(name)
    assert text.startswith(f"{CODES[name]} {name}: ")
    for part in ("Why it hurts", "How it is computed", "Remedy", "False alarms to expect",
                 "Missing data", "Source"):  # fmt: skip
        assert f"**{part}.**" in text
    assert "unit:" in text


@pytest.mark.parametrize("name", registry())
def test_every_parameter_and_every_need_is_documented(name: str) -> None:
    cls = find(name)
    for one in parameters(cls):
        assert one.doc.endswith("."), one
        assert one.type.startswith(("float", "int", "bool", "str", "list of str"))
    for need in cls.meta.needs:
        assert need.stat == "value" or need.stat in STATISTICS
    assert cls.meta.remedies
    assert cls.meta.capture


def test_the_pages_in_docs_are_current() -> None:
    folder = ROOT / "docs" / "rules"
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert found == dict(pages()), "run: python -m trainwarden.rules._pages docs/rules"


def test_a_plug_in_is_found(plugged: Any) -> None:
    plugged(Plug)
    assert registry()["Plug"] is Plug
    assert build("Plug") == Plug()


def test_a_plug_in_cannot_take_a_name_or_a_code(plugged: Any) -> None:
    class Name(Plug):
        meta = meta("Overfit", "USR902")

    class Code(Plug):
        meta = meta("Other", "NUM001")

    for cls, word in ((Name, "Overfit"), (Code, "NUM001")):
        plugged(cls)
        with pytest.raises(ConfigError, match=word):
            registry()


def test_a_plug_in_that_is_no_rule_is_refused(plugged: Any) -> None:
    plugged(dict)
    with pytest.raises(ConfigError, match="derived from Rule"):
        registry()


def test_a_retired_code_is_refused(plugged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RETIRED", {"USR901": "nobody read it"})
    plugged(Plug)
    with pytest.raises(ConfigError, match="nobody read it"):
        registry()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("VanishingGradients", "VanishingGradient"),
        ("overfit", "Overfit"),
        ("dead_relu", "DeadRelu"),
    ],
)
def test_an_unknown_rule_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(wrong)
    assert caught.value.remedy == f"did you mean {right}?"


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        build("Overfit", {"ratio_treshold": "0.2"})
    assert caught.value.remedy == "did you mean ratio_threshold?"


@pytest.fixture
def plug(plugged: Any) -> None:
    plugged(Plug)


@pytest.mark.usefixtures("plug")
@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"share": "0.25"}, "share", 0.25),
        ({"share": "1e-7"}, "share", 1e-7),
        ({"share": 1}, "share", 1.0),
        ({"count": "3"}, "count", 3),
        ({"count": "3.0"}, "count", 3),
        ({"count": "None"}, "count", None),
        ({"count": None}, "count", None),
        ({"on": "True"}, "on", True),
        ({"on": "no"}, "on", False),
        ({"on": 1}, "on", True),
        ({"mode": "EVAL"}, "mode", "EVAL"),
        ({"names": "losses, weights"}, "names", ("losses", "weights")),
        ({"names": ["losses"]}, "names", ("losses",)),
        ({"names": None}, "names", ()),
        ({"regex": ".*relu_output"}, "regex", (".*relu_output",)),
    ],
)
def test_values_are_cast_as_sagemaker_sends_them(
    given: dict[str, Json], field: str, value: Json
) -> None:
    found = getattr(build("Plug", given), field)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.usefixtures("plug")
@pytest.mark.parametrize(
    "given",
    [
        {"share": "half"},
        {"share": "nan"},
        {"share": "inf"},
        {"share": 10**400},
        {"share": True},
        {"share": [0.5]},
        {"share": None},
        {"share": 0},
        {"share": 1.5},
        {"count": "2.5"},
        {"count": 0},
        {"on": "perhaps"},
        {"mode": "PREDICT"},
        {"mode": 3},
        {"names": 3},
        {"names": [3]},
        {"regex": "("},
        {"regex": "(a+)+$"},
        {"regex": "(a|b*)*c"},
        {"regex": "((a+))+$"},
        {"regex": "((a+)b?)*$"},
        {"regex": "(a|a)*$"},
        {"regex": "(?:[)]|a?){50}$"},
        {"regex": "(?x)(a+) + $"},
        {"regex": ".*a" * 7},
        {"regex": "a?" * 40 + "a" * 40},
        {"regex": "x" * 300},
    ],
)
def test_a_wrong_value_is_refused_by_name(given: dict[str, Json]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        build("Plug", given)


@pytest.mark.usefixtures("plug")
@pytest.mark.parametrize(
    "pattern",
    [
        ".*relu_output|.*ReLU_output",
        r"layers\.\d+\.(self_attn|mlp)\..*(weight|bias)$",
        "^((?!bias).)*$",
        r"(block\.)+conv[(+*)]{2}\(\*\+",
        "|".join(f".*{name}.*" for name in "abcdefgh"),
        ".*?a.*?b.*?c.*?d",
    ],
)
def test_a_pattern_that_ends_is_taken(pattern: str) -> None:
    assert build("Plug", {"regex": pattern}) is not None


def test_ranges_hold_in_python_too() -> None:
    with pytest.raises(ConfigError, match="share"):
        Plug(share=2.0)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("VanishingGradient", {"threshold": "0.0000001"}),
        ("ExplodingTensor", {"collection_names": "losses", "tensor_regex": ".*",
                             "only_nan": "False"}),
        ("DeadRelu", {"tensor_regex": ".*relu_output", "threshold_inactivity": "1.0",
                      "threshold_layer": "50.0"}),
        ("UnchangedTensor", {"collection_names": "losses", "tensor_regex": "", "num_steps": "3",
                             "rtol": "1e-05", "atol": "1e-08", "equal_nan": "False"}),
        ("LossNotDecreasing", {"tensor_regex": ".*", "use_losses_collection": "True",
                               "num_steps": "10", "diff_percent": "0.1", "mode": "GLOBAL"}),
        ("Overfit", {"tensor_regex": ".*", "patience": "1", "ratio_threshold": "0.1"}),
        ("ClassImbalance", {"threshold_imbalance": "10", "threshold_misprediction": "0.7",
                            "samples": "500", "argmax": "False", "labels_regex": ".*labels",
                            "predictions_regex": ".*predictions"}),
        ("SaturatedActivation", {"tensor_regex": ".*tanh_input", "threshold_tanh_min": "-9.4999",
                                 "threshold_tanh_max": "9.4999", "threshold_sigmoid_min": "-23",
                                 "threshold_sigmoid_max": "16.99999",
                                 "threshold_inactivity": "1.0", "threshold_layer": "50.0"}),
        ("PoorWeightInitialization", {"activation_inputs_regex": ".*relu_input",
                                      "threshold": "10.0", "distribution_range": "0.001",
                                      "patience": "5", "steps": "10"}),
        ("WeightUpdateRatio", {"num_steps": "None", "large_threshold": "10.0",
                               "small_threshold": "0.00000001", "epsilon": "0.000000001"}),
        ("TensorVariance", {"collection_names": "weights", "max_threshold": "10",
                            "min_threshold": "0.00001"}),
        ("AllZero", {"tensor_regex": ".*", "threshold": "100"}),
        ("StalledTrainingRule", {"threshold": "1800", "stop_training_on_fire": "False",
                                 "training_job_name_prefix": "x"}),
    ],
)  # fmt: skip
def test_what_sagemakers_users_wrote_still_builds(name: str, given: dict[str, Json]) -> None:
    assert isinstance(build(name, given), Rule)
