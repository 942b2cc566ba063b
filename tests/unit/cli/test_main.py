import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from torch import nn

import trainwarden
from trainwarden.cli import place
from trainwarden.cli.main import main
from trainwarden.cli.render import Output
from trainwarden.hook.config import LOCAL_OUT
from trainwarden.rules import names, registry


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    _, out, _ = run(capsys, *argv, "--json")
    return json.loads(out)


def test_check_fails_a_pipeline_when_a_run_went_wrong(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "check", str(runs))
    assert code == 1
    assert "VanishingGradient" in out
    assert "mean |gradient| falls from" in out


def test_check_can_be_told_not_to_fail(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", str(runs), "--exit-zero")[0] == 0


def test_check_passes_a_healthy_run(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "jobs" / "healthy", tmp_path / "jobs" / "healthy")
    code, out, _ = run(capsys, "check", str(tmp_path))
    assert (code, " IssuesFound" in out) == (0, False)


def test_check_takes_one_run_of_several(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = run_json(capsys, "check", str(runs / "jobs" / "healthy"))
    assert [one["job"] for one in judged] == ["healthy"]


def test_check_judges_runs_of_one_name_in_two_folders(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in "ab":
        shutil.copytree(runs / "jobs" / "sick", tmp_path / seed / "jobs" / "sick")
    judged = run_json(capsys, "check", str(tmp_path), "--exit-zero")
    assert [one["job"] for one in judged] == ["sick", "sick"]


def test_check_judges_every_rule_of_every_run(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = run_json(capsys, "check", str(runs))
    assert [run["job"] for run in judged] == ["healthy", "sick"]
    for one in judged:
        assert {verdict["rule"] for verdict in one["verdicts"]} == set(names())
    statuses = {verdict["rule"]: verdict["status"] for verdict in judged[1]["verdicts"]}
    assert statuses["VanishingGradient"] == "IssuesFound"
    assert statuses["Overfit"] == "not evaluated"


def test_check_says_what_a_folder_should_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "check", str(tmp_path))
    assert code == 2
    assert "expected jobs/<job>/manifest.tw" in err


def test_a_misspelt_rule_of_the_script_is_told_with_the_nearest_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainwarden.watch(
        model, optimizer, job="misspelt", out=str(tmp_path), rules={"Overfitt": {}}
    ):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    _, out, _ = run(capsys, "check", str(tmp_path))
    assert "not understood: script" in out
    assert "did you mean Overfit?" in out
    [judged] = run_json(capsys, "check", str(tmp_path))
    assert "Overfitt" in judged["problems"][0]
    assert "Overfitt" in run(capsys, "verdicts", "misspelt", "--at", str(tmp_path))[1]


def test_findings_of_a_rule_that_the_job_does_not_have_are_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "findings", "sick", "--rule", "overfit", "--at", str(runs))
    assert code == 2
    assert "it has" in err
    assert "Overfit" in err


def test_explain_shows_the_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "explain", "StalledTrainingRule")
    assert "Parameters" in out
    assert "floor" in out


def test_the_region_is_read_where_lambda_and_the_aws_cli_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    seen: list[str | None] = []

    def outputs(session: boto3.Session, *_: object) -> dict[str, str]:
        seen.append(session.region_name)
        return {"TableName": "t", "BucketName": "b"}

    monkeypatch.setattr(place, "stack_outputs", outputs)
    found = place.resolve("aws", stack=None, region=None, profile=None)
    assert seen == ["eu-west-3"]
    assert found.client("s3").meta.region_name == "eu-west-3"


def test_jobs_lists_runs_with_their_worst_verdict(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {row["job"]: row for row in run_json(capsys, "jobs", "--at", str(runs))}
    assert rows["healthy"]["verdict"] == "NoIssuesFound"
    assert rows["sick"]["verdict"] == "IssuesFound"
    assert "VanishingGradient" in rows["sick"]["rules"]
    assert rows["sick"]["status"] == "Closed"


def test_verdicts_can_fail_a_pipeline(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--at", str(runs))
    assert run(capsys, "verdicts", "sick", *place)[0] == 0
    assert run(capsys, "verdicts", "sick", "--fail", *place)[0] == 1
    assert run(capsys, "verdicts", "healthy", "--fail", *place)[0] == 0


def test_findings_give_the_evidence(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "findings", "sick", "--rule", "VanishingGradient", "--at", str(runs))
    assert [row["rule"] for row in found] == ["VanishingGradient"]
    assert found[0]["tensor"].startswith("gradient/")
    assert found[0]["first_step"] <= found[0]["step"]
    assert found[0]["remedies"]


def test_an_unknown_job_is_answered_with_the_known_ones(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "verdicts", "sikc", "--at", str(runs))
    assert code == 2
    assert "it knows healthy, sick" in err


def test_watch_follows_a_run_to_its_end_and_tells_each_thing_once(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "watch", "sick", "--at", str(runs), "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [e["kind"] for e in events].count("job") == 1
    assert "VanishingGradient" in {e.get("rule") for e in events if e["kind"] == "finding"}
    assert len({json.dumps(e, sort_keys=True) for e in events}) == len(events)


def test_watch_tells_issues_line_by_line_and_the_rest_by_name_at_the_end(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "watch", "sick", "--at", str(runs))
    lines = out.splitlines()
    told = [line.split(" since")[0] for line in lines if line.startswith("verdict ")]
    assert "verdict VanishingGradient: IssuesFound" in told
    assert all(line.endswith(": IssuesFound") for line in told)
    assert [line.partition(":")[0] for line in lines if not line.startswith("  ")][-2:] == [
        "no issues",
        "not evaluated, nothing to look at",
    ]
    assert (
        "  FeatureImportanceOverweight, TargetLeakage, TreeDepth: for boosted trees only" in lines
    )


@pytest.mark.parametrize("name", ["VanishingGradient", "vanishinggradient", "GRD001"])
def test_explain_takes_a_rule_by_name_or_code(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "explain", name)
    assert code == 0
    assert "GRD001" in out
    assert "Remedy" in out


def test_explain_offers_the_nearest_rule(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "explain", "DeadRelus")
    assert code == 2
    assert "did you mean DeadRelu?" in err


def test_rules_lists_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "rules")
    assert [row["rule"] for row in rows] == sorted(registry())
    assert all(row["what"] for row in rows)
    _, out, _ = run(capsys, "rules")
    assert "ExplodingTensor" in out


def test_a_folder_announces_nothing_and_so_cannot_be_muted(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "mute", "sick", "--at", str(runs))
    assert code == 2
    assert "nothing announces it" in err


def test_doctor_looks_at_a_recorded_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = run_json(capsys, "doctor", "sick", "--at", str(runs))
    assert {check["check"]: check["result"] for check in checks} == {
        "place": "ok",
        "data": "ok",
        "ledger": "warning",
    }
    (unseen,) = [check["found"] for check in checks if check["result"] == "warning"]
    assert "Overfit" in unseen
    assert "TreeDepth" not in unseen  # this is no run of boosted trees: nothing is amiss


def test_doctor_says_what_to_do_when_a_job_sent_nothing(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = run_json(capsys, "doctor", "nobody", "--at", str(runs))
    data = next(check for check in checks if check["check"] == "data")
    assert data["result"] == "fail"
    assert "trainwarden.watch(model, optimizer)" in data["do"]


def test_no_embedded_aws_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "jobs", "--at", "local")
    assert code == 2
    assert "trainwarden local up" in err


def test_no_region_says_so_and_where_runs_of_this_folder_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    code, _, err = run(capsys, "jobs", "--at", "aws")
    assert code == 2
    assert "--region" in err
    assert "runs recorded here" not in err
    (tmp_path / LOCAL_OUT).mkdir(parents=True)
    _, _, err = run(capsys, "jobs", "--at", "aws")
    assert f"for runs recorded here: --at {LOCAL_OUT}" in err


def test_help_and_version_come_from_the_installed_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainwarden.cli.main", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("trainwarden ")
    assert "wire 1" in done.stdout


def test_help_speaks_to_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "``" not in said
    assert "a training run has gone wrong" in said


def test_check_ends_with_how_many_runs_have_issues(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "check", str(runs))
    assert out.splitlines()[-1] == "2 runs, 1 with issues: sick (exit status 1)"
    shutil.copytree(runs / "jobs/healthy", tmp_path / "jobs/healthy")
    _, out, _ = run(capsys, "check", str(tmp_path))
    assert out.splitlines()[-1] == "1 run, none with issues (exit status 0)"
    _, out, _ = run(capsys, "check", str(runs), "--exit-zero")
    assert out.splitlines()[-1] == "2 runs, 1 with issues: sick (exit status 0)"


def test_check_says_once_what_to_capture_for_all_runs(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "check", str(runs))
    assert out.count("not evaluated, nothing to look at:") == 1
    assert len(re.findall(r"^  TokenImbalance: capture token counts", out, re.MULTILINE)) == 1


def test_what_boosted_trees_need_is_not_asked_of_other_runs(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "check", str(runs))
    assert "FeatureImportanceOverweight, TargetLeakage, TreeDepth: for boosted trees only" in out
    assert "XGBoostCallback" not in out


def test_check_looks_where_watch_writes_by_itself(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs, tmp_path / LOCAL_OUT)
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "check")[1].splitlines()[-1].startswith("2 runs, 1 with issues: sick")
    assert "1 of 2 with issues" in run(capsys, "replay", "--exit-zero")[1]
    assert "report.html: healthy" in run(capsys, "report", "--job", "healthy")[1]


def test_lines_in_a_pipe_do_not_wrap_and_are_not_filled_up(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["rules"], ["check", str(runs)], ["findings", "sick", "--at", str(runs)]):
        lines = run(capsys, *command)[1].splitlines()
        assert [line for line in lines if line != line.rstrip()] == []
    catalogue = run(capsys, "rules")[1].splitlines()
    assert len(catalogue) == 1 + len(registry())


def test_check_says_what_was_set_aside_and_why(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "jobs/healthy", tmp_path / "jobs/healthy")
    first = min((tmp_path / "jobs/healthy/steps/0000").iterdir())
    first.write_bytes(first.read_bytes()[:200])
    said = f"jobs/healthy/steps/0000/{first.name} was set aside: expected "
    assert said in run(capsys, "check", str(tmp_path))[1]
    [judged] = run_json(capsys, "check", str(tmp_path))
    assert judged["incidents"][0].startswith(said)
    assert f"healthy: {said}" in run(capsys, "replay", str(tmp_path))[1]


def test_a_full_disk_is_said_and_is_no_verdict(runs: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "trainwarden.cli.main", "check", str(runs)],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("trainwarden: ")
    assert "Traceback" not in done.stderr


def test_a_terminal_that_cannot_print_all_letters_gets_what_it_can() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainwarden.cli.main", "explain", "Overfit"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    assert b"LOS002 ? warning" in done.stdout


def test_infinities_in_a_document_are_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).document([{"gap": math.inf, "limit": 2.0, "at": Path("a")}])
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert said[0]["gap"] == "Infinity"
    assert said[0]["limit"] == 2.0


def test_a_command_works_with_its_output_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["rules"]) == 0
