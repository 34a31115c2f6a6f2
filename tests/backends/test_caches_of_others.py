# SPDX-License-Identifier: BSD-3-Clause
"""Cache files that others may have written are not loaded: a pickle runs code."""

import os
import pickle
import stat
from pathlib import Path

import pytest

from particlemesh.backends import folders
from particlemesh.backends.jit import _CacheFile

CASES = {
    "folder of all": ("", stat.S_IWOTH, {}, "all users may write to it"),
    "index of all": (".nbi", stat.S_IWOTH, {}, "loop.nbi: all users may write to it"),
    "code of all": (".nbc", stat.S_IWOTH, {}, "all users may write to it"),
    "folder of a group": ("", stat.S_IWGRP, {stat.ST_GID: 2}, "a group may write to it"),
    "folder of another user": ("", 0, {stat.ST_UID: 65534}, "another user owns it"),
    "index of another user": (".nbi", 0, {stat.ST_UID: 65534}, "another user owns it"),
    "code of another user": (".nbc", 0, {stat.ST_UID: 65534}, "another user owns it"),
}


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


@pytest.mark.parametrize("case", CASES)
def test_code_that_others_may_have_written_is_not_loaded(case, tmp_path, monkeypatch):
    suffix, right, changed, reason = CASES[case]
    mark, folder = tmp_path / "ran", tmp_path / "cache"
    folder.mkdir(mode=0o700)
    file = _CacheFile(str(folder), "loop", "stamp")
    file.save("key", "code")
    for path in folder.iterdir():
        path.chmod(0o600)
    assert file.load("key") == "code"
    if suffix:
        (path,) = folder.glob(f"*{suffix}")
        path.write_bytes(pickle.dumps(Trap(mark)))
    else:
        path = folder
        for inside in folder.iterdir():
            inside.write_bytes(pickle.dumps(Trap(mark)))
    path.chmod(path.stat().st_mode | right)
    facts_of = Path.stat

    def stat_of(asked, **options):  # changing an owner is for a privileged user
        facts = facts_of(asked, **options)
        numbers = list(facts)
        for place, number in changed.items() if asked == path else ():
            numbers[place] = number
        return os.stat_result(numbers)

    monkeypatch.setattr(Path, "stat", stat_of)
    monkeypatch.setattr(folders, "_distrusted", set())
    folders.warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"{reason}.*NUMBA_CACHE_DIR") as warned:
        loaded = [file.load("key") for _ in range(3)]
    assert loaded == [None] * 3 and len(warned) == 1
    assert not mark.exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o700])
def test_a_folder_is_used_if_only_the_user_writes_to_it(mode, tmp_path, monkeypatch):
    tmp_path.chmod(mode)
    monkeypatch.setattr(folders.os, "geteuid", lambda: tmp_path.stat().st_uid)
    assert (folders.unwritable(tmp_path) is None) == (mode == 0o700 or (mode == 0o770 and tmp_path.stat().st_gid == 0))
