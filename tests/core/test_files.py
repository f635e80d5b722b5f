"""Files: read whole or not at all, replaced at once, refused in one line."""

import os
import threading

import pytest

from taskflow.core import files
from tests.refusals import assert_refused


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    assert_refused("is no regular file", lambda: files.read_text(path))


def test_a_file_has_a_largest_size(tmp_path):
    path = tmp_path / "file"
    files.replace_file(path, "x" * 100, largest_bytes=100)
    assert files.read_text(path, 100) == "x" * 100
    assert_refused("is larger than 99 bytes", lambda: files.read_text(path, 99))
    message = f"file '{path}': would be larger than 99 bytes"
    assert_refused(message, lambda: files.replace_file(path, "y" * 100, largest_bytes=99))
    assert path.read_text() == "x" * 100


def test_a_reader_beside_a_writer_sees_whole_files(tmp_path):
    path, texts = tmp_path / "file", ["a" * 100_000, "b" * 200_000]
    files.replace_file(path, texts[0])
    writer = threading.Thread(
        target=lambda: [files.replace_file(path, texts[k % 2]) for k in range(50)]
    )
    writer.start()
    seen = {files.read_text(path)}
    while writer.is_alive():
        seen.add(files.read_text(path))
    assert seen <= set(texts)
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.replace_file(path, "old")
    monkeypatch.setattr(
        files.os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space"))
    )
    with pytest.raises(OSError, match="No space") as caught:
        files.replace_file(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_links_and_modes_stay(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    files.replace_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_what_is_no_file_is_written_to(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    files.replace_file(path, "text")
    assert os.read(handle, 10) == b"text"
    os.close(handle)


def test_a_message_is_one_line_of_bounded_length():
    with pytest.raises(ValueError, match="is not") as caught, files.naming("file 'x'"):
        raise ValueError("is not\n\x1b[31m" + "x" * 5000)
    assert (
        str(caught.value).startswith("file 'x': is not\\n\\x1b[31mxxx")
        and len(str(caught.value)) < 1100
    )


def test_depth_is_counted_whatever_the_stack():
    assert files.parse_json("[" * 32 + "]" * 32)
    assert_refused("is nested deeper than 32 levels", lambda: files.parse_json("[" * 33 + "]" * 33))
    assert files.parse_toml(f"a = {'[' * 31}{']' * 31}")
    assert_refused(
        "is nested deeper than 32 levels", lambda: files.parse_toml(f"a = {'[' * 32}{']' * 32}")
    )


def test_numbers_may_be_infinite_where_they_are_asked_for():
    assert files.parse_json("[1e999, -Infinity]", is_finite=False) == [float("inf"), -float("inf")]
    assert_refused("the number -Infinity is not finite", lambda: files.parse_json("[-Infinity]"))
