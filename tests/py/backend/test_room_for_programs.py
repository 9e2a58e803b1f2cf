"""A process near the kernel's limit of memory maps gets an error, and is not ended by LLVM."""

from pathlib import Path

import pytest

from shardc.backend import room_for_programs
from shardc.backend.room_for_programs import check_room_for
from shardc.errors import InputError


def test_too_many_programs_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "max_map_count"
    limit.write_text("1000\n")
    maps = tmp_path / "maps"
    maps.write_text("region\n" * 950)
    monkeypatch.setattr(room_for_programs, "LIMIT", limit)
    monkeypatch.setattr(room_for_programs, "MAPS", maps)
    check_room_for(3)
    with pytest.raises(InputError, match="950 of 1,000 memory maps, and 4 more") as caught:
        check_room_for(4)
    assert caught.value.code == "SHARDC-265"


def test_without_a_limit_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(room_for_programs, "LIMIT", tmp_path / "nothing")
    check_room_for(10**9)
