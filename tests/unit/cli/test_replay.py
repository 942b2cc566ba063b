"""``trainwarden replay`` over recorded runs: a sick and a healthy one."""

from __future__ import annotations

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from moto import mock_aws

import trainwarden
from trainwarden.cli.main import main
from trainwarden.cli.recorded import Account, Run, find
from trainwarden.cli.replay import replay_one
from trainwarden.pipeline.replaying import time_of
from trainwarden.store.folder import FolderObjects


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(("replay", *argv, "--workers", "1"))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def documents(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    _, out, err = run(capsys, *argv, "--json")
    assert not err
    return {one["job"]: one for one in json.loads(out)}


def test_it_says_what_fires_when_and_what_a_stop_would_have_saved(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = documents(capsys, str(runs))
    assert found["healthy"]["fired"] == []
    assert found["healthy"]["stop"] is None
    sick = found["sick"]
    by_rule = {one["rule"]: one for one in sick["fired"]}
    stop = sick["stop"]
    assert stop["rule"] == "VanishingGradient"
    assert stop["step"] == by_rule["VanishingGradient"]["step"]
    assert stop["steps"] == sick["last_step"] - stop["step"]
    assert stop["share"] == pytest.approx(stop["steps"] / (sick["last_step"] + 1))
    assert stop["seconds"] > 0


def test_it_writes_nothing_where_the_runs_lie(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    run(capsys, str(runs))
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


@pytest.mark.parametrize(
    ("options", "fires"),
    [
        (("--rules", "DeadRelu"), set()),
        (("--rules", "VanishingGradient"), {"VanishingGradient"}),
        (("--rules", "VanishingGradient", "--set", "VanishingGradient.decades=300"), set()),
        (("--rules", "-VanishingGradient DeadRelu"), set()),
    ],
)
def test_any_rules_with_any_parameters(
    runs: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], fires: set[str]
) -> None:
    sick = documents(capsys, str(runs), "--job", "s*", *options)["sick"]
    assert {one["rule"] for one in sick["fired"]} == fires


def test_a_setting_alone_tunes_the_defaults(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = documents(capsys, str(runs))["sick"]
    tuned = documents(capsys, str(runs), "--set", "VanishingGradient.decades=300")["sick"]
    names = [{one["rule"] for one in run["fired"]} for run in (usual, tuned)]
    assert names[0] - names[1] >= {"VanishingGradient"}


def test_sagemakers_meaning(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = documents(capsys, str(runs), "--rules-profile", "sagemaker")
    assert set(found) == {"healthy", "sick"}
    assert not found["sick"]["problems"]
    usual, theirs = documents(capsys, str(runs))["healthy"], found["healthy"]
    fired = [{one["rule"] for one in run["fired"]} for run in (usual, theirs)]
    assert fired[0] == set()
    assert "ClassImbalance" in fired[1]  # SageMaker's looks at single batches of 64


def test_an_aws_profile_is_no_profile_of_rules(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = documents(capsys, str(runs), "--job", "healthy", "--profile", "sagemaker")
    assert found["healthy"]["fired"] == []


def test_rules_from_a_file_and_a_comparison_with_the_defaults(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(["Overfit"]))
    found = documents(capsys, str(runs), "--rules-file", str(rules), "--compare")["sick"]
    assert found["compared"]["new"] is None
    assert "VanishingGradient@" in found["compared"]["gone"]
    _, out, _ = run(capsys, str(runs), "--rules-file", str(rules), "--compare")
    assert "gone" in out


def test_a_file_of_rules_may_be_yaml(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("- rule: Threshold\n  key: small\n  collection: losses\n  above: -1\n")
    found = documents(capsys, str(runs), "--rules-file", str(rules))["sick"]
    assert {one["rule"] for one in found["fired"]} == {"small"}
    rules.write_text("- rule: [")
    status, _, error = run(capsys, str(runs), "--rules-file", str(rules))
    assert status == 2
    assert "as JSON or YAML" in error


def test_never_stop_saves_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert documents(capsys, str(runs), "--stop-on", "never")["sick"]["stop"] is None


def test_a_folder_of_folders_and_an_exit_code_for_a_pipeline(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs, tmp_path / "a")
    shutil.copytree(runs / "jobs" / "healthy", tmp_path / "b" / "jobs" / "healthy")
    code, out, _ = run(capsys, str(tmp_path))
    assert code == 1
    assert "1 of 3 with issues" in out
    assert run(capsys, str(tmp_path), "--exit-zero")[0] == 0
    assert run(capsys, str(tmp_path / "b"))[0] == 0


def test_a_broken_run_is_told_and_the_others_go_on(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs, tmp_path / "a")
    steps = sorted((tmp_path / "a" / "jobs" / "sick" / "steps" / "0000").iterdir())
    steps[-1].write_bytes(b"nonsense")
    (tmp_path / "a" / "jobs" / "healthy" / "manifest.tw").unlink()
    found = documents(capsys, str(tmp_path))
    assert found["sick"]["problems"]
    assert found["healthy"]["last_step"] == -1


def test_what_somebody_else_put_beside_the_steps_does_not_hide_a_stop(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs, tmp_path / "a")
    steps = tmp_path / "a" / "jobs" / "sick" / "steps" / "0000"
    (steps / "0000.notes.txt").write_text("mine")
    usual, beside = (documents(capsys, str(root))["sick"] for root in (runs, tmp_path))
    assert usual["stop"] is not None
    assert beside["stop"] == usual["stop"]


def test_a_broken_object_hides_no_later_time(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainwarden.watch(model, optimizer, job="run", out=tmp_path, strict=True) as hook:
        for step in range(10):
            optimizer.zero_grad()
            model(torch.ones(8, 4)).mean().backward()
            optimizer.step()
            if step == 4:
                assert hook.flush()
    objects = FolderObjects(tmp_path)
    first, *_, last = sorted((tmp_path / "jobs" / "run" / "steps" / "0000").iterdir())
    assert first != last
    whole = [time_of(objects, "run", step) for step in (0, 9)]
    first.write_bytes(b"nonsense")
    left = [time_of(objects, "run", step) for step in (0, 9)]
    assert left[1] == whole[1]
    assert whole[0] < left[0] < math.inf


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--rules", "Overfitt"), "did you mean Overfit?"),
        (("--set", "Overfit.patiense=3"), "patience"),
        (("--set", "Overfit"), "RULE.PARAMETER=VALUE"),
        (("--rules-file", "nowhere.json"), "nowhere.json"),
        (("--job", "nobody"), "no recorded run"),
    ],
)
def test_wrong_use_says_what_was_expected(
    runs: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capsys, str(runs), *argv)
    assert (code, out) == (2, "")
    assert said in err


def test_no_such_folder(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "nowhere")
    assert code == 2
    assert "there is no folder nowhere" in err


def test_runs_in_a_bucket_are_found_and_judged(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        for path in (runs / "jobs").rglob("*.tw"):
            client.put_object(
                Bucket="bucket", Key=str(path.relative_to(runs)), Body=path.read_bytes()
            )
        found = list(find("s3://bucket", "s*"))
        assert found == [Run("s3://bucket", "sick")]
        replayed = replay_one(found[0], ["VanishingGradient"], "error", Account())
    assert [one.rule for one in replayed.fired] == ["VanishingGradient"]
    assert replayed.stop is not None


def test_what_is_left_is_not_replayed_after_ctrl_c(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[dict[str, Any]] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, **options: Any) -> None:  # noqa: FBT001, FBT002 - as it is
            stopped.append(options)
            super().shutdown(wait, **options)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainwarden.cli.replay.ProcessPoolExecutor", Pool)
    monkeypatch.setattr("trainwarden.cli.replay.followed", interrupted)
    assert main(("replay", str(runs))) == 130
    assert stopped[0] == {"cancel_futures": True}
