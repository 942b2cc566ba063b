"""``cdk synth`` as users run it: the real command, no credentials, no Docker."""

from __future__ import annotations

import json

from tests.infra.command import Assembly, Command


def test_synth_needs_neither_credentials_nor_docker(assembly: Assembly) -> None:
    manifest = json.loads((assembly.folder / "manifest.json").read_text("utf-8"))
    stack = manifest["artifacts"]["Trainwarden"]
    # Neither account nor region was asked for: the template fits all of them.
    assert stack["environment"] == "aws://unknown-account/unknown-region"


def test_values_of_the_command_line_reach_the_template(assembly: Assembly) -> None:
    subscribed = [
        resource["Properties"]["Endpoint"]
        for resource in assembly.template["Resources"].values()
        if resource["Type"] == "AWS::SNS::Subscription"
        and resource["Properties"].get("FilterPolicy")
    ]
    assert sorted(subscribed) == ["ada@example.org", "grace@example.org"]


def test_a_second_synth_builds_nothing_again(assembly: Assembly, cdk: Command) -> None:
    assert "Bundling asset" in assembly.said
    assert "Bundling asset" not in cdk.synth(emails="ada@example.org,grace@example.org").said


def test_a_misspelt_key_stops_the_synth_with_one_clear_line(cdk: Command) -> None:
    done = cdk.run("synth", "--quiet", emials="ada@example.org")
    assert done.returncode != 0
    assert (
        "trainwarden.emials: there is no such key; did you mean trainwarden.emails?" in done.stdout
    )
    assert "Traceback" not in done.stdout
