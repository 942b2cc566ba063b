"""The identity that container and cloud compute independently."""

from __future__ import annotations

from trainwarden.wire.identity import identity

ARN = "arn:aws:sagemaker:eu-central-1:123456789012:training-job/resnet-7"
HYPERPARAMETERS = {"lr": "0.1", "name": '"ä"'}


def test_an_identity_is_32_hex_digits_and_never_changes() -> None:
    assert identity(ARN, HYPERPARAMETERS, "n0nce") == "52ded01eb7a059c9766daba8b4aceef5"


def test_the_order_of_hyperparameters_does_not_matter() -> None:
    turned = dict(reversed(list(HYPERPARAMETERS.items())))
    assert identity(ARN, turned) == identity(ARN, HYPERPARAMETERS)


def test_arn_hyperparameters_and_nonce_all_count() -> None:
    found = {
        identity(ARN, HYPERPARAMETERS),
        identity(ARN + "x", HYPERPARAMETERS),
        identity(ARN, {**HYPERPARAMETERS, "lr": "0.2"}),
        identity(ARN, {**HYPERPARAMETERS, "x": ""}),
        identity(ARN, HYPERPARAMETERS, "n"),
        identity("", {}, ""),
    }
    assert len(found) == 6
