"""Only the holder of the key can seal, only for one key of the bucket, and no bit may change."""

from __future__ import annotations

import numpy as np
import pytest

from trainwarden.errors import MalformedObjectError
from trainwarden.model import Layout, Mode, Observation, TensorInfo
from trainwarden.wire.codec import StepsObject, decode, encode
from trainwarden.wire.identity import identity
from trainwarden.wire.keys import StepsKey
from trainwarden.wire.manifest import End, Manifest
from trainwarden.wire.seal import PLACEHOLDER, fingerprint, is_sealed, seal_key, sealed

ARN = "arn:aws:sagemaker:eu-central-1:123456789012:training-job/resnet-7"
KEY = seal_key(ARN, {"lr": "0.1"}, "n1")
NAME = "jobs/resnet-7/steps/0000/0000000003.tw"
LAYOUT = Layout((TensorInfo("fc.weight", "weights", (2, 3)),))
STEPS = StepsObject(
    job="resnet-7",
    worker=0,
    seq=3,
    run='"seal":"' + "0" * 64 + '"',  # what nobody may take for the seal
    observations=(Observation(1, Mode.TRAIN, 1, 2.0, LAYOUT, np.ones((1, 32))),),
)
MANIFEST = Manifest("resnet-7", "run-1", rules={"seal": "0" * 64}, layout=LAYOUT)
END = End("resnet-7", 0, "run-1", 3)
BODIES = {
    "steps": encode(STEPS, sealable=True),
    "manifest": MANIFEST.to_bytes(sealable=True),
    "end": END.to_bytes(sealable=True),
}


@pytest.mark.parametrize("kind", BODIES)
def test_what_was_sealed_is_sealed_for_its_key_alone(kind: str) -> None:
    body = sealed(BODIES[kind], KEY, NAME)
    assert len(body) == len(BODIES[kind])
    assert is_sealed(body, KEY, NAME)
    assert not is_sealed(body, KEY, NAME.replace("3.tw", "4.tw"))
    assert not is_sealed(body, seal_key(ARN, {"lr": "0.1"}, "n2"), NAME)
    assert not is_sealed(body, b"", NAME)


@pytest.mark.parametrize("kind", BODIES)
def test_no_bit_may_change(kind: str) -> None:
    body = sealed(BODIES[kind], KEY, NAME)
    for i in range(len(body)):
        for bit in range(8):
            changed = body[:i] + bytes([body[i] ^ 1 << bit]) + body[i + 1 :]
            assert not is_sealed(changed, KEY, NAME), f"bit {bit} of byte {i}"


@pytest.mark.parametrize("kind", BODIES)
def test_cut_or_grown_it_is_not_sealed(kind: str) -> None:
    body = sealed(BODIES[kind], KEY, NAME)
    assert not any(is_sealed(body[:n], KEY, NAME) for n in range(len(body)))
    assert not is_sealed(body + b" ", KEY, NAME)
    assert not is_sealed(b" " + body, KEY, NAME)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'"seal":"',
        PLACEHOLDER,
        PLACEHOLDER[:-1],
        b" " * (1 << 20) + PLACEHOLDER,
        *BODIES.values(),
        encode(STEPS),
        MANIFEST.to_bytes(),
        END.to_bytes(),
    ],
)
def test_nothing_else_is_sealed(body: bytes) -> None:
    assert not is_sealed(body, KEY, NAME)


def test_what_has_no_place_for_a_seal_cannot_be_sealed() -> None:
    beyond = b" " * (1 << 20) + PLACEHOLDER
    taken = b'{"seal":"' + b"1" * 64 + b'",' + PLACEHOLDER + b"}"
    for body in (b"", b"{}", END.to_bytes(), beyond, taken):
        with pytest.raises(MalformedObjectError):
            sealed(body, KEY, NAME)


def test_sealed_objects_are_read_like_unsealed_ones() -> None:
    name = StepsKey("resnet-7", 0, 3)
    found = decode(sealed(BODIES["steps"], KEY, NAME), LAYOUT, key=name)
    assert encode(found) == encode(STEPS)
    assert Manifest.from_bytes(sealed(BODIES["manifest"], KEY, NAME)) == MANIFEST
    assert End.from_bytes(sealed(BODIES["end"], KEY, NAME)) == END


@pytest.mark.parametrize("seal", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, "0" * 63 + "\\n"])
def test_a_seal_of_another_shape_is_refused(seal: str) -> None:
    there, wrong = b'"seal":"' + b"0" * 64 + b'"', f'"seal":"{seal}"'.encode()
    for kind, read in (("manifest", Manifest.from_bytes), ("end", End.from_bytes)):
        with pytest.raises(MalformedObjectError):
            read(BODIES[kind].replace(there, wrong, 1))
    for other in (b"1", b"null", b"[]"):
        with pytest.raises(MalformedObjectError):
            End.from_bytes(BODIES["end"].replace(there, b'"seal":' + other, 1))
    for letter in (b"g", b"A"):
        with pytest.raises(MalformedObjectError):
            decode(
                BODIES["steps"].replace(there, b'"seal":"' + letter * 64 + b'"', 1),
                LAYOUT,
                key=StepsKey("resnet-7", 0, 3),
            )


def test_arn_hyperparameters_and_nonce_all_make_the_key_and_the_identity_is_another() -> None:
    keys = {
        seal_key(ARN, {"lr": "0.1"}, "n1"),
        seal_key(ARN, {"lr": "0.1"}),
        seal_key(ARN, {"lr": "0.2"}, "n1"),
        seal_key(ARN + "x", {"lr": "0.1"}, "n1"),
    }
    assert len(keys) == len({fingerprint(key) for key in keys}) == 4
    told = identity(ARN, {"lr": "0.1"}, "n1")
    assert told not in {KEY.hex()[:32], fingerprint(KEY)}
    assert seal_key(ARN, {"a": "1", "b": "2"}) == seal_key(ARN, {"b": "2", "a": "1"})
