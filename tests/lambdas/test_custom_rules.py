"""The function of custom rules as it is packed: it starts without AWS, and answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from infra import packing
from tests.unit.pipeline.world import obs
from trainwarden.custom.protocol import Question, read_answer, write_question
from trainwarden.engine import RuleSpec

FOLDER = packing.ROOT / "examples" / "custom_rule" / "rules"
OLD = packing.ROOT / "tests" / "deployed" / "custom_rules" / "old_style.py"
RUN = """
import json, sys
from lambdas.custom_rules.handler import handler
json.dump(handler(json.load(sys.stdin), None), sys.stdout)
heavy = {"boto3", "botocore", "aws_lambda_powertools"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""


def test_the_function_answers_as_it_is_packed(tmp_path: Path) -> None:
    packing.copy(packing.function("custom_rules"), packing.ROOT, tmp_path)
    packing.copy(packing.custom_rules(FOLDER), FOLDER, tmp_path / "rules")
    packing.copy([OLD], OLD.parent, tmp_path / "rules")
    packing.copy(packing.core(), packing.PACKAGE.parent, tmp_path)
    assert not list(tmp_path.rglob("test_*"))
    old = RuleSpec("old", "LossStaysAbove", {"limit": 0.0, "patience": 2})
    specs = (RuleSpec("one", "OneLayerLearns"), old)
    question = Question("advance", specs, {}, (obs(0), obs(1)))
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        input=write_question(question),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = read_answer(done.stdout, question)
    assert [answer["one"].state for answer in answers] == [[0, -1], [0, -1]]
    assert [[found.step for found in answer["old"].findings] for answer in answers] == [[], [1]]
    assert json.loads(done.stdout)["version"] == 1
