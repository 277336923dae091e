"""Model folders: what is written is read back; anything else is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from isostep.base.errors import InputError
from isostep.base.files import sha256
from isostep.model.folder import CARD, WEIGHTS, load_folder, save_model
from isostep.model.lookup import list_models, load_model
from isostep.model.model import Model
from isostep.model.released.convert import import_released, load_released
from isostep.process import VE, VP, Bridge, make_process
from tests.conftest import FIXTURES

MOL, GRAPH = FIXTURES / "grum" / "mol.pth", FIXTURES / "grum" / "graph.pth"


def outputs(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    state = model.prior(torch.arange(3), seed=5)
    with torch.no_grad():
        return model.network(state["X"], state["A"], state.mask, torch.tensor([0.1, 0.5, 0.9]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import_released(MOL, tmp_path / "model", "raw")
    return tmp_path / "model"


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads((folder / CARD).read_text())
    edit(record)
    (folder / CARD).write_text(json.dumps(record))


def change_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the weights and write their new checksum into the card."""
    weights = load_file(folder / WEIGHTS)
    edit(weights)
    save_file(weights, folder / WEIGHTS)
    change(folder, lambda record: record.update(sha256=sha256(folder / WEIGHTS)))


# --- round trips --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [MOL, GRAPH])
@pytest.mark.parametrize("weights", ["raw", "ema"])
def test_an_imported_folder_gives_the_outputs_of_the_file(tmp_path: Path, file: Path, weights: str) -> None:
    info = import_released(file, tmp_path / "m", weights)
    loaded, direct = load_folder(tmp_path / "m"), load_released(file, weights)
    assert loaded.info == info
    assert loaded.info.model_copy(update={"sha256": direct.info.sha256}) == direct.info
    assert direct.info.sha256 == sha256(file)
    assert direct.info.sha256 in loaded.info.provenance.source
    for ours, theirs in zip(outputs(loaded), outputs(direct), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["random_graph", "random_mol", "random_subvp"])
def test_random_gdss_files_survive_the_import(tmp_path: Path, name: str) -> None:
    check_import(FIXTURES / "gdss_random" / f"{name}.pth", tmp_path)


@pytest.mark.parametrize("name", ["qm9", "zinc250k_v2", "enzymes"])
def test_released_gdss_files_survive_the_import(shared: Path, tmp_path: Path, name: str) -> None:
    check_import(shared / "checkpoints" / "gdss" / f"gdss_{name}.pth", tmp_path)


def check_import(file: Path, tmp_path: Path) -> None:
    import_released(file, tmp_path / "m")
    for ours, theirs in zip(outputs(load_folder(tmp_path / "m")), outputs(load_released(file)), strict=True):
        assert torch.equal(ours, theirs)


def test_half_precision_halves_the_file_and_hardly_moves_the_outputs(tmp_path: Path, folder: Path) -> None:
    import_released(MOL, tmp_path / "half", "raw", half=True)
    assert (tmp_path / "half" / WEIGHTS).stat().st_size < 0.6 * (folder / WEIGHTS).stat().st_size
    for short, full in zip(outputs(load_folder(tmp_path / "half")), outputs(load_folder(folder)), strict=True):
        assert 0 < (short - full).norm() / full.norm() < 1e-2


def test_an_interrupted_replacement_is_not_taken_for_a_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the new weights and the new card there must be no old card."""
    model = load_folder(folder)

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isostep.model.folder.write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        save_model(folder, model.info, model.network.state_dict())
    assert CARD in refusal(folder)


# --- cards --------------------------------------------------------------------------------------------------------

BAD_CARDS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another version": (lambda r: r.update(format=2), "format"),
    "unknown key": (lambda r: r.update({"extra\nkey": 1}), "extra key"),
    "unknown sampler key": (lambda r: r["sampler"].update(stepz=3), "sampler.stepz"),
    "no network": (lambda r: r.pop("network"), "network"),
    "family": (lambda r: r.update(family="digress"), "family"),
    "name": (lambda r: r.update(name="../x"), "name"),
    "huge graphs": (lambda r: r.update(max_nodes=10**9), "max_nodes"),
    "huge counts": (lambda r: r.update(node_counts=[[9, 10**400]]), "node_counts"),
    "no counts": (lambda r: r.update(node_counts=[]), "node_counts"),
    "nodes beyond the slots": (lambda r: r.update(node_counts=[[500, 1]]), "node_counts"),
    "atoms": (lambda r: r.update(atoms=["C", "N"]), "2 atoms for 4 features"),
    "elements": (lambda r: r.update(atoms=["C", "N", "O", "Xx"]), "Xx"),
    "twice an element": (lambda r: r.update(atoms=["C", "N", "O", "O"]), "different element"),
    "scale": (lambda r: r.update(scale=0), "scale"),
    "infinite scale": (lambda r: r.update(scale=float("inf")), "scale"),
    "process": (lambda r: r["process"]["A"].update(type="cosine"), "cosine"),
    "process list": (lambda r: r["process"]["A"].update(type=["VP"]), "VP"),
    "process component": (lambda r: r["process"].update(E={}), "components X and A"),
    "process setting": (lambda r: r["process"]["A"].update(t_end=7), "t_end"),
    "process number": (lambda r: r["process"]["A"].update(sigma_0=float("nan")), "sigma_0"),
    "process size": (lambda r: r["process"]["A"].update(sigma_0=10**400), "sigma_0"),
    "process sign": (lambda r: r["process"]["A"].update(sigma_0=-1), "sigma_0=-1"),
    "huge network": (lambda r: r["network"].update(n_layers=10**9), "n_layers"),
    "wide network": (lambda r: r["network"]["hidden_dims"].update(dx=65_536), "shape"),
    "network setting": (lambda r: r["network"].pop("hidden_dims"), "hidden_dims"),
    "features": (lambda r: r.update(features=5, atoms=None), "5 node features"),
}


@pytest.mark.parametrize("case", BAD_CARDS)
def test_a_bad_card_is_refused_with_the_place(folder: Path, case: str) -> None:
    edit, place = BAD_CARDS[case]
    change(folder, edit)
    assert place in refusal(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"a": NaN}', "[" * 100_000, '"\\ud800"', "\xff"])
def test_a_card_that_is_not_a_record_is_refused(folder: Path, text: str) -> None:
    (folder / CARD).write_bytes(text.encode("latin-1"))
    refusal(folder)


def test_a_huge_card_is_not_read(folder: Path) -> None:
    with open(folder / CARD, "ab") as file:
        file.truncate(65 * 2**20)
    assert "bytes" in refusal(folder)


# --- weights ------------------------------------------------------------------------------------------------------


def test_changed_weights_are_refused(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    assert "copy it again" in refusal(folder)
    (folder / WEIGHTS).unlink()
    assert "incomplete" in refusal(folder)


def test_weights_without_checksum_are_refused(folder: Path) -> None:
    change(folder, lambda record: record.update(sha256=None))
    assert "copy it again" in refusal(folder)


@pytest.mark.parametrize("content", [b"", b"x" * 100, (2**40).to_bytes(8, "little") + b"{}"])
def test_weights_in_another_format_are_refused(folder: Path, content: bytes) -> None:
    (folder / WEIGHTS).write_bytes(content)
    change(folder, lambda record: record.update(sha256=sha256(folder / WEIGHTS)))
    assert "safetensors" in refusal(folder)


def test_weights_that_do_not_fit_or_are_not_finite_are_refused(folder: Path) -> None:
    change_weights(folder, lambda weights: weights["mlp_out_X.2.bias"].fill_(float("nan")))
    assert "not finite" in refusal(folder)
    change_weights(folder, lambda weights: weights.pop("mlp_out_X.2.bias"))
    assert "mlp_out_X.2.bias" in refusal(folder)


def test_a_folder_without_card_or_of_other_weights_is_told(folder: Path, tmp_path: Path) -> None:
    assert CARD in refusal(tmp_path)
    with pytest.raises(InputError, match="holds raw weights"):
        load_model(folder, weights="ema")
    with pytest.raises(InputError, match="--preset"):
        load_model(folder, preset="grum-qm9")


# --- names, processes, lists --------------------------------------------------------------------------------------


def test_processes_are_made_from_their_settings() -> None:
    assert make_process({"type": "VP", "beta_min": 0.2, "beta_max": 2}) == VP(beta_min=0.2, beta_max=2)
    assert make_process({"type": "VE", "sigma_max": 3.0}) == VE(sigma_max=3.0)
    bridge = make_process({"type": "bridge", "sigma_0": 1.0, "sigma_1": 0.1, "drift_coeff": 1})
    assert bridge == Bridge(sigma_0=1.0, sigma_1=0.1, drift_coeff=1)


def test_an_unknown_model_is_told_what_there_is() -> None:
    with pytest.raises(InputError, match="gdss_qm9"):
        load_model("no such model")
    with pytest.raises(InputError, match="unknown device 'tpu'"):
        load_model(MOL, device="tpu")


def test_the_list_shows_good_and_bad_folders_and_known_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISOSTEP_DATA")
    import_released(GRAPH, tmp_path / "broken")
    (tmp_path / "broken" / CARD).write_text("{}")
    rows = {row.name: row for row in list_models([tmp_path])}
    assert (rows["mol"].where, rows["mol"].dataset, rows["mol"].path) == ("imported", "qm9", str(folder))
    assert "model.json" in (rows["broken"].problem or "")
    assert len([row for row in rows.values() if row.where == "known"]) == 7
    assert rows["gdss_grid"].weights == "ema"
    assert rows["gdss_qm9"].path is None
    assert rows["rings-and-stars"].where == "embedded"
