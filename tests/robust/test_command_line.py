"""The command line: whatever it is given, one printable line says what is wrong."""

import json

import cv2
import pytest
from small_image import IMAGE

pytest.importorskip("typer")
pytest.importorskip("rich")

from kd_cv.cli import main

# {name} stands for a path in the folder of the test; see `folder`.
REFUSED = [
    "match {photo}", "match {photo} {photo} {photo}", "match {photo} /no.png",
    "match {photo} {cut}", "match {text} {photo}", "match {empty} {empty}",
    "match {photo} {folder}", "match {photo} /dev/null", "match {photo} {steering}",
    "match {photo} {photo} --ratio nan", "match {photo} {photo} --ratio 2",
    "match {photo} {photo} --ratio x", "match {photo} {photo} --threshold -1",
    "match {photo} {photo} --threshold inf", "match {photo} {photo} --ratio",
    "match {photo} {photo} --max-keypoints 0", "match {photo} {photo} --descriptor surf",
    "match {photo} {photo} --detector x", "match {photo} {photo} --weights mars",
    "match {photo} {photo} --weights {cut}", "match {photo} {photo} --weights no.npz",
    "match {photo} {photo} -o {photo}", "match {photo} {photo} -o /nowhere/m.png",
    "match {photo} {photo} -o m.xyz", "match {photo} {photo} -o {folder}",
    "match {photo} {photo} --report {photo}", "match {photo} {photo} --save-homography H.exe",
    "match {null} {photo}", "match {long} {photo}", "nonsense", "--nonsense", "match -- --help",
    "explain {photo} {photo} --match -1", "explain {photo} {photo} --at x 1",
    "eval nonsense", "extract /nowhere -o {folder}/f.h5", "extract {photo}", "extract",
    "export -o /nowhere/m.onnx", "bench --only nonsense", "fit /nowhere -o {folder}/w.npz",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Names and paths: a photograph, what is none, and names that are no names."""
    folder = tmp_path_factory.mktemp("hostile")
    cv2.imwrite(str(folder / "a.png"), IMAGE)
    (folder / "cut.png").write_bytes((folder / "a.png").read_bytes()[:200])
    (folder / "text.png").write_text("not a picture")
    (folder / "no.png").touch()
    files = {"photo": "a.png", "cut": "cut.png", "text": "text.png", "empty": "no.png"}
    return {
        **{name: str(folder / file) for name, file in files.items()},
        "folder": str(folder),
        "steering": str(folder / "\x1b[31mred\n.png"),
        "null": "a\0b",
        "long": "x" * 5000,
    }


@pytest.mark.parametrize("line", REFUSED)
def test_it_ends_in_one_line(folder, capsys, line):
    assert main([word.format(**folder) for word in line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("kd-cv: error: ")
    assert err.count("\n") == 1 and err[:-1].isprintable()


@pytest.mark.parametrize("options", [(), ("--max-keypoints", "9" * 40)], ids=["plain", "999..."])
def test_it_matches_what_it_can(folder, capsys, options):
    assert main(["match", folder["photo"], folder["photo"], "--json", *options]) in (0, 1)
    assert isinstance(json.loads(capsys.readouterr().out)["matches"], int)
