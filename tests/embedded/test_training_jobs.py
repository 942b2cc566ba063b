from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.embedded.conftest import Lab, alive, until
from trainwarden.embedded import jobs, logs
from trainwarden.errors import BadInputError
from trainwarden.model import Json

SLEEP = "import time\nprint('started', flush=True)\ntime.sleep(60)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
FAMILY = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("pids", os.getpid(), child.pid, "end", flush=True)
child.wait()
"""
CHATTY = """
import time
while True:
    print("still here", flush=True)
    time.sleep(0.05)
"""
SHOW = """
import json, os, sys
keep = ("SM_", "TRAINING_", "AWS_", "SAGEMAKER_", "MY_")
print(json.dumps({
    "env": {k: v for k, v in os.environ.items() if k.startswith(keep)},
    "argv": sys.argv[1:], "cwd": os.getcwd(),
    "files": {name: json.load(open(os.path.join(os.environ["SM_INPUT_CONFIG_DIR"], name)))
              for name in sorted(os.listdir(os.environ["SM_INPUT_CONFIG_DIR"]))},
}))
"""


def pids(lab: Lab, job: str) -> list[int]:
    until(lambda: "end" in lab.log(job))
    return [int(word) for word in lab.log(job).split()[1:3]]


def request(lab: Lab, job: str, **changes: Json) -> dict[str, Json]:
    full = {
        "TrainingJobName": job,
        "RoleArn": "arn:aws:iam::000000000000:role/training",
        "AlgorithmSpecification": {"TrainingImage": "any", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://models/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "HyperParameters": {
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": json.dumps(str(lab.folder)),
        },
    }
    return {**full, **changes}


def refused(lab: Lab, job: str, **changes: Json) -> dict[str, str]:
    # Without botocore's own checks, as another SDK would send it.
    client = lab.server.client("sagemaker", parameter_validation=False)
    with pytest.raises(ClientError) as caught:
        client.create_training_job(**request(lab, job, **changes))
    error: dict[str, str] = caught.value.response["Error"]  # type: ignore[assignment]
    return error


def test_a_script_that_ends_well_makes_a_completed_job_with_sagemakers_transitions(
    lab: Lab,
) -> None:
    found = lab.run("print('done')")
    assert found["TrainingJobStatus"] == "Completed"
    assert [t["Status"] for t in found["SecondaryStatusTransitions"]] == [
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]
    assert all(t["EndTime"] >= t["StartTime"] for t in found["SecondaryStatusTransitions"])


def test_a_script_finds_sagemakers_environment_files_and_arguments(lab: Lab) -> None:
    job = lab.start(
        SHOW, hyperparameters={"epochs": "3", "b": "x y"}, environment={"MY_KEY": "mine"}
    )
    arn = lab.ended(job)["TrainingJobArn"]
    seen = json.loads(lab.log(job))
    env, base = seen["env"], lab.server.state / "jobs" / job
    assert env["TRAINING_JOB_NAME"] == job
    assert env["TRAINING_JOB_ARN"] == arn
    assert env["SAGEMAKER_BASE_DIR"] == str(base)
    assert env["SM_MODEL_DIR"] == str(base / "model")
    assert json.loads(env["SM_HPS"]) == {"epochs": 3, "b": "x y"}
    assert (env["SM_HP_EPOCHS"], env["SM_HP_B"]) == ("3", "x y")
    assert env["AWS_REGION"] == "us-east-1"
    assert env["AWS_ENDPOINT_URL"] == lab.server.endpoint
    assert env["MY_KEY"] == "mine"
    assert seen["argv"] == ["-b", "x y", "--epochs", "3"]
    assert seen["files"]["hyperparameters.json"]["epochs"] == "3"
    assert seen["files"]["resourceconfig.json"]["hosts"] == ["algo-1"]
    assert seen["files"]["inputdataconfig.json"] == {}


def test_debugger_configuration_lies_where_the_hook_of_sagemaker_reads_it(lab: Lab) -> None:
    lab.script(SHOW)
    hook = {"S3OutputPath": "s3://models/tensors"}
    lab.sagemaker.create_training_job(**request(lab, "debugged", DebugHookConfig=hook))
    lab.ended("debugged")
    assert json.loads(lab.log("debugged"))["files"]["debughookconfig.json"] == hook
    assert lab.describe("debugged")["DebugHookConfig"] == hook


def test_a_failing_script_makes_a_failed_job_that_says_why(lab: Lab) -> None:
    found = lab.run("raise ValueError('no such learning rate')")
    assert found["TrainingJobStatus"] == "Failed"
    assert found["FailureReason"].startswith("AlgorithmError: Traceback")
    assert found["FailureReason"].endswith("no such learning rate, exit code: 1")


def test_the_failure_file_says_why_when_the_script_wrote_one(lab: Lab) -> None:
    found = lab.run(
        "import os, pathlib, sys\n"
        "pathlib.Path(os.environ['SM_OUTPUT_DIR'], 'failure').write_text('disk full')\n"
        "sys.exit(7)\n"
    )
    assert found["FailureReason"] == "AlgorithmError: disk full, exit code: 7"


def test_stop_sends_sigterm_to_the_script_and_the_job_ends_stopped(lab: Lab) -> None:
    job = lab.start(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saving', flush=True), sys.exit(0)))\n"
        + SLEEP
    )
    lab.says(job, "started")
    lab.sagemaker.stop_training_job(TrainingJobName=job)
    assert lab.describe(job)["TrainingJobStatus"] in ("Stopping", "Stopped")
    assert lab.ended(job)["TrainingJobStatus"] == "Stopped"
    assert "saving" in lab.log(job)


def test_a_script_that_ignores_sigterm_is_killed_after_the_grace_period(lab: Lab) -> None:
    job = lab.start(STUBBORN)
    lab.says(job, "started")
    lab.sagemaker.stop_training_job(TrainingJobName=job)
    found = lab.ended(job)
    assert found["TrainingJobStatus"] == "Stopped"
    stopping = found["SecondaryStatusTransitions"][-3]
    assert stopping["Status"] == "Stopping"
    assert (stopping["EndTime"] - stopping["StartTime"]).total_seconds() >= 1.0


def test_all_processes_of_a_stopped_job_are_gone(lab: Lab) -> None:
    job = lab.start(FAMILY)
    parent, child = pids(lab, job)
    lab.sagemaker.stop_training_job(TrainingJobName=job)
    lab.ended(job)
    until(lambda: not alive(parent) and not alive(child))


def test_a_process_that_a_script_leaves_running_ends_with_the_job(lab: Lab) -> None:
    job = lab.start(FAMILY.replace("child.wait()", ""))
    _, child = pids(lab, job)
    assert lab.ended(job)["TrainingJobStatus"] == "Completed"
    until(lambda: not alive(child))


def test_a_script_whose_output_can_no_longer_be_logged_is_not_left_running(lab: Lab) -> None:
    job = lab.start(FAMILY.replace("child.wait()", CHATTY))
    parent, child = pids(lab, job)
    lab.server.client("logs").delete_log_group(logGroupName="/aws/sagemaker/TrainingJobs")
    found = lab.ended(job)
    assert found["TrainingJobStatus"] == "Failed"
    assert "ResourceNotFoundException" in found["FailureReason"]
    until(lambda: not alive(parent) and not alive(child))


def test_a_job_over_its_maximum_runtime_is_stopped(lab: Lab) -> None:
    found = lab.run(SLEEP, max_runtime_s=1)
    assert found["TrainingJobStatus"] == "Stopped"
    assert found["SecondaryStatus"] == "MaxRuntimeExceeded"


def test_an_ended_job_cannot_be_stopped(lab: Lab) -> None:
    job = lab.start("")
    lab.ended(job)
    with pytest.raises(ClientError, match=r"ValidationException.*in status Completed"):
        lab.sagemaker.stop_training_job(TrainingJobName=job)


@pytest.mark.parametrize("operation", ["describe_training_job", "stop_training_job"])
def test_an_unknown_job_is_refused_as_aws_refuses_it(lab: Lab, operation: str) -> None:
    with pytest.raises(ClientError, match=r"ValidationException.*resource not found"):
        getattr(lab.sagemaker, operation)(TrainingJobName="nobody")


def test_output_is_in_cloudwatch_logs(lab: Lab) -> None:
    job = lab.start("print('one')\nprint('two', end='')")
    lab.ended(job)
    found = logs.of_job(lab.server, job)
    assert [entry["message"] for entry in found] == ["one", "two"]


def test_a_model_is_uploaded_to_the_output_path(lab: Lab) -> None:
    s3 = lab.server.client("s3")
    s3.create_bucket(Bucket="models")
    lab.script(
        "import os, pathlib\npathlib.Path(os.environ['SM_MODEL_DIR'], 'm.bin').write_text('w')\n"
    )
    lab.sagemaker.create_training_job(**request(lab, "with-model"))
    artifact = lab.ended("with-model")["ModelArtifacts"]["S3ModelArtifacts"]
    assert artifact == "s3://models/out/with-model/output/model.tar.gz"
    body = s3.get_object(Bucket="models", Key="out/with-model/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert "./m.bin" in archive.getnames()


def test_a_model_that_cannot_be_uploaded_fails_the_job(lab: Lab) -> None:
    lab.script(
        "import os, pathlib\npathlib.Path(os.environ['SM_MODEL_DIR'], 'm.bin').write_text('w')\n"
    )
    output = {"S3OutputPath": "s3://no-such-bucket/out"}
    lab.sagemaker.create_training_job(**request(lab, "homeless", OutputDataConfig=output))
    found = lab.ended("homeless")
    assert found["TrainingJobStatus"] == "Failed"
    assert "NoSuchBucket" in found["FailureReason"]


def test_code_and_data_come_from_s3_as_the_sdk_puts_them_there(lab: Lab, tmp_path: Path) -> None:
    s3 = lab.server.client("s3")
    s3.create_bucket(Bucket="inputs")
    packed = io.BytesIO()
    source = tmp_path / "main.py"
    source.write_text(
        "import os\nprint(open(os.path.join(os.environ['SM_CHANNEL_TRAIN'], 'sub/a.txt')).read())\n"
    )
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(source, arcname="main.py")
    s3.put_object(Bucket="inputs", Key="code/sourcedir.tar.gz", Body=packed.getvalue())
    s3.put_object(Bucket="inputs", Key="data/train/sub/a.txt", Body=b"seven")
    where = {"S3DataType": "S3Prefix", "S3Uri": "s3://inputs/data/train/"}
    lab.sagemaker.create_training_job(
        **request(
            lab,
            "from-s3",
            HyperParameters={
                "sagemaker_program": "main.py",
                "sagemaker_submit_directory": "s3://inputs/code/sourcedir.tar.gz",
            },
            InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": where}}],
        )
    )
    assert lab.ended("from-s3")["TrainingJobStatus"] == "Completed"
    assert lab.log("from-s3") == "seven\n"


def test_a_job_without_a_script_fails_and_says_what_is_missing(lab: Lab) -> None:
    lab.sagemaker.create_training_job(**request(lab, "scriptless", HyperParameters={}))
    found = lab.ended("scriptless")
    assert found["TrainingJobStatus"] == "Failed"
    assert "sagemaker_program" in found["FailureReason"]


def test_names_are_unique(lab: Lab) -> None:
    lab.script("")
    lab.sagemaker.create_training_job(**request(lab, "only-one"))
    assert refused(lab, "only-one")["Code"] == "ResourceInUse"
    lab.ended("only-one")


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"job": "no_underscores"}, "ValidationException", "trainingJobName"),
        ({"job": "x" * 64}, "ValidationException", "less than or equal to 63"),
        ({"RoleArn": "training"}, "ValidationException", "roleArn"),
        ({"ResourceConfig": {}}, "ValidationException", "ResourceConfig"),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 0}},
            "ValidationException",
            "maxRuntimeInSeconds",
        ),
        ({"Tags": [{"Key": "a", "Value": "né; ok"}]}, "ValidationException", "tags.1.member"),
        ({"Tags": [{"Key": "aws:a", "Value": "b"}]}, "ValidationException", "aws:"),
        (
            {
                "ResourceConfig": {
                    "InstanceType": "ml.m5.large",
                    "InstanceCount": 2,
                    "VolumeSizeInGB": 1,
                }
            },
            "ResourceLimitExceeded",
            "1 instance",
        ),
    ],
)
def test_a_request_that_aws_would_refuse_is_refused(
    lab: Lab, changes: dict[str, Json], code: str, says: str
) -> None:
    error = refused(lab, **{"job": "refused", **changes})
    assert error["Code"] == code
    assert says in error["Message"]


def test_tags_can_be_added_replaced_listed_and_deleted(lab: Lab) -> None:
    arn = lab.run("", tags={"trainwarden:stop": "allow", "team": "a"})["TrainingJobArn"]
    lab.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "b"}])
    lab.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["trainwarden:stop"])
    assert lab.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "b"}]


def test_jobs_are_listed_by_name_and_status_page_by_page(lab: Lab) -> None:
    names = ["list-a", "list-b", "list-c"]
    lab.script("")
    for name in names:
        lab.sagemaker.create_training_job(**request(lab, name))
    for name in names:
        lab.ended(name)
    pages = lab.sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains="LIST-",
        StatusEquals="Completed",
        SortBy="Name",
        SortOrder="Ascending",
        PaginationConfig={"PageSize": 2},
    )
    listed = [[job["TrainingJobName"] for job in page["TrainingJobSummaries"]] for page in pages]
    assert listed == [["list-a", "list-b"], ["list-c"]]


def test_every_change_of_state_is_an_event_on_the_default_bus_with_the_tags(lab: Lab) -> None:
    sqs, events = lab.server.client("sqs"), lab.server.client("events")
    url = sqs.create_queue(QueueName="changes")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"Tags": {"trainwarden:test": ["events"]}},
    }
    events.put_rule(Name="changes", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="changes", Targets=[{"Id": "q", "Arn": arn["QueueArn"]}])
    job = lab.start("", tags={"trainwarden:test": "events"}, hyperparameters={"lr": "0.1"})
    described = lab.ended(job)
    seen: dict[str, dict[str, Json]] = {}

    def all_seen() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages", []
        ):
            event = json.loads(message["Body"])
            seen[event["detail"]["SecondaryStatus"]] = event
        return "Completed" in seen

    until(all_seen)
    assert {"Starting", "Training", "Completed"} <= seen.keys()
    last = seen["Completed"]
    assert last["source"] == "aws.sagemaker"
    assert last["account"] == "000000000000"
    assert last["resources"] == [described["TrainingJobArn"]]
    detail = last["detail"]
    assert detail["TrainingJobName"] == job
    assert detail["TrainingJobStatus"] == "Completed"
    assert detail["HyperParameters"]["lr"] == "0.1"
    assert detail["Tags"] == {"trainwarden:test": "events"}
    assert detail["CreationTime"] == int(described["CreationTime"].timestamp() * 1000)


def test_a_script_that_is_not_there_is_refused_before_the_job_exists(lab: Lab) -> None:
    with pytest.raises(BadInputError, match="no file"):
        jobs.submit(lab.server, jobs.Submission(lab.folder / "missing.py"))
