"""What every ObjectStore promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trainwarden.errors import ConflictError, MalformedObjectError
from trainwarden.store.listing import folders
from trainwarden.store.ports import ObjectStore

STEPS = "jobs/demo/steps/0000/"


def fill(objects: ObjectStore, *keys: str) -> None:
    for key in keys:
        objects.put(key, key.encode())


def test_a_missing_object_is_none(objects: ObjectStore) -> None:
    assert objects.get("jobs/demo/manifest.tw", max_bytes=10) is None


def test_an_object_comes_back_byte_for_byte(objects: ObjectStore) -> None:
    body = bytes(range(256)) * 40
    objects.put("jobs/demo/manifest.tw", body)
    assert objects.get("jobs/demo/manifest.tw", max_bytes=len(body)) == body


def test_an_empty_object_is_not_a_missing_one(objects: ObjectStore) -> None:
    objects.put("jobs/demo/manifest.tw", b"")
    assert objects.get("jobs/demo/manifest.tw", max_bytes=0) == b""


def test_a_second_put_overwrites(objects: ObjectStore) -> None:
    objects.put("jobs/demo/control.json", b"a longer first body")
    objects.put("jobs/demo/control.json", b"second")
    assert objects.get("jobs/demo/control.json", max_bytes=100) == b"second"
    assert list(objects.keys("jobs/")) == ["jobs/demo/control.json"]


def test_an_object_one_byte_too_large_is_refused(objects: ObjectStore) -> None:
    objects.put("jobs/demo/manifest.tw", b"x" * 101)
    with pytest.raises(MalformedObjectError, match="at most 100 bytes"):
        objects.get("jobs/demo/manifest.tw", max_bytes=100)


def test_a_prefix_of_objects_is_not_an_object(objects: ObjectStore) -> None:
    fill(objects, f"{STEPS}0000000000.tw")
    assert objects.get("jobs/demo/steps/0000", max_bytes=10) is None
    assert objects.get("jobs/demo", max_bytes=10) is None
    assert objects.get(f"{STEPS}0000000000.tw/deeper", max_bytes=10) is None


def test_keys_ascend_as_strings_across_folders(objects: ObjectStore) -> None:
    keys = [
        "jobs/a-b/manifest.tw",  # "-" sorts before "/", so a-b comes before a
        "jobs/a/end/0000.tw",
        "jobs/a/manifest.tw",
        "jobs/a/steps/0000/0000000000.tw",
        "jobs/a/steps/0000/0000000001.tw",
        "jobs/a/steps/0001/0000000000.tw",
        "jobs/a0/manifest.tw",
        "jobs/aB/manifest.tw",
    ]
    fill(objects, *reversed(keys))
    assert list(objects.keys("jobs/")) == keys == sorted(keys)
    assert list(objects.keys("")) == keys


def test_a_prefix_need_not_end_at_a_folder(objects: ObjectStore) -> None:
    keys = [f"{STEPS}000000000{n}.tw" for n in range(3)]
    fill(objects, *keys, "jobs/demo/steps/0001/0000000000.tw", "jobs/demo/manifest.tw")
    assert list(objects.keys("jobs/demo/steps/0000")) == keys
    assert list(objects.keys(f"{STEPS}0000000001")) == keys[1:2]
    assert list(objects.keys(keys[2])) == keys[2:]


def test_a_prefix_nobody_wrote_below_is_empty(objects: ObjectStore) -> None:
    fill(objects, "jobs/demo/manifest.tw")
    assert list(objects.keys("jobs/other/")) == []
    assert list(objects.keys("jobs/demo/manifest.tw/")) == []


def test_after_leaves_out_the_key_itself_and_all_before(objects: ObjectStore) -> None:
    keys = [f"jobs/demo/steps/{w:04d}/{n:010d}.tw" for w in range(3) for n in range(4)]
    fill(objects, *keys)
    for position, key in enumerate(keys):
        assert list(objects.keys("jobs/demo/steps/", after=key)) == keys[position + 1 :]
    assert list(objects.keys("jobs/demo/steps/", after="jobs/demo/steps/0001")) == keys[4:]
    assert list(objects.keys("jobs/demo/steps/", after="jobs/a")) == keys
    assert list(objects.keys("jobs/demo/steps/", after="jobs/z")) == []


def test_more_keys_than_one_page_all_come_once(objects: ObjectStore) -> None:
    keys = [f"{STEPS}{n:010d}.tw" for n in range(1_005)]
    fill(objects, *keys)
    assert list(objects.keys(STEPS)) == keys
    assert list(objects.keys(STEPS, after=keys[1])) == keys[2:]


def test_concurrent_writers_of_one_key_leave_one_whole_body(objects: ObjectStore) -> None:
    bodies = [bytes([n]) * 5_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda body: objects.put("jobs/demo/control.json", body), bodies))
    assert objects.get("jobs/demo/control.json", max_bytes=5_000) in bodies
    assert list(objects.keys("jobs/")) == ["jobs/demo/control.json"]


def test_folders_are_named_once_in_the_order_of_their_keys(objects: ObjectStore) -> None:
    long = [f"jobs/long/steps/{n:010}.tw" for n in range(200)]
    fill(objects, "jobs/a-b/manifest.tw", "jobs/a/end/0000.tw", "jobs/a/manifest.tw", *long)
    fill(objects, "jobs/notes.txt", "jobs/z/manifest.tw", "readme.txt")
    assert list(folders(objects, "jobs/")) == ["a-b", "a", "long", "z"]
    assert list(folders(objects, "")) == ["jobs"]
    assert list(folders(objects, "jobs/long/")) == ["steps"]
    assert list(folders(objects, "nothing/")) == []


def test_an_object_is_replaced_only_if_it_is_still_what_was_read(objects: ObjectStore) -> None:
    key = "jobs/demo/control.json"
    with pytest.raises(ConflictError):
        objects.replace(key, b"b", before=b"a")
    objects.replace(key, b"a", before=None)
    for before in (None, b"", b"x", b"ab"):
        with pytest.raises(ConflictError):
            objects.replace(key, b"b", before=before)
    objects.replace(key, b"bb", before=b"a")
    assert objects.get(key, max_bytes=10) == b"bb"
    assert list(objects.keys("jobs/")) == [key]


def test_of_writers_that_read_the_same_one_replaces_it(objects: ObjectStore) -> None:
    objects.put("jobs/demo/control.json", b"read by all")

    def write(number: int) -> int:
        try:
            objects.replace("jobs/demo/control.json", bytes([number]), before=b"read by all")
        except ConflictError:
            return 0
        return number

    with ThreadPoolExecutor(4) as pool:
        (won,) = filter(None, pool.map(write, range(1, 5)))
    assert objects.get("jobs/demo/control.json", max_bytes=10) == bytes([won])
