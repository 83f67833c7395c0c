"""The test suite against old and new versions of what it builds on: `make compat`.

    nox                    the sets without torch, and the built archives
    nox -s torch           the sets with torch; its wheels bring several GB of CUDA libraries
    nox -s builds          each build of OpenCV, alone and with a second one on top of it
    nox -t oldest          one set; what follows -- goes to pytest
    nox -s nightly         the long tests: changed files, kills, full disks, soaks, speed; the sets
    nox -s release         the archives of a release and their bill of materials

Each set is a file of constraints in tests/compat. Its Python must be on the path.
"""

import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["core", "package"]
nox.options.envdir = ".venv-compat"

BUILDS = (
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
OPENCV = ("4.10.0.84", "4.14.0.94", "5.0.0.93")  # the oldest, the last of version 4, the newest


def run(session: nox.Session, versions: str, extras: str) -> None:
    """Install `extras` at the versions of the set, then run pytest."""
    tools = ("pytest", "hypothesis", "build", "hatchling")
    session.install("-e", f".[{extras}]", *tools, "-c", f"tests/compat/{versions}.txt")
    session.run("python", "tools/headless.py")
    session.run("python", "-m", "pip", "list", "--format=freeze")
    # Compiled code of one version is not for another.
    cache = os.path.join(session.virtualenv.location, "numba")
    session.run("python", "-m", "pytest", *session.posargs, env={"NUMBA_CACHE_DIR": cache})


@nox.session
@nox.parametrize(
    "python,versions",
    [
        nox.param("3.10", "oldest", id="oldest", tags=["oldest"]),
        nox.param("3.12", "middle", id="middle", tags=["middle"]),
        nox.param("3.13", "newest", id="newest", tags=["newest"]),
    ],
)
def core(session: nox.Session, versions: str) -> None:
    run(session, versions, "cli,features,sfm,cluster,retrieval")


@nox.session
@nox.parametrize(
    "python,versions",
    [
        nox.param("3.11", "oldest-torch", id="oldest-torch", tags=["oldest-torch"]),
        nox.param("3.13", "newest-torch", id="newest-torch", tags=["newest-torch"]),
    ],
)
def torch(session: nox.Session, versions: str) -> None:
    run(
        session,
        versions,
        "cli,features,export" if versions == "newest-torch" else "cli,features,torch",
    )


@nox.session(python="3.11")
def nightly(session: nox.Session) -> None:
    """The tests that are too long for every change, a soak, and then the sets of versions."""
    session.install("-e", ".[all]", "pytest", "hypothesis", "psutil", "build", "hatchling")
    session.run("python", "tools/headless.py")
    session.run("python", "-m", "pytest", "-m", "nightly", *session.posargs)
    session.run("python", "-m", "experiments", "soak")
    session.run("python", "-m", "experiments", "bench", "detector", "sift", "kornia", "--quick")
    for name in ("core", "builds"):
        session.notify(name)


@nox.session(python="3.11")
@nox.parametrize("archive", ["*.whl", "*.tar.gz"], ids=["wheel", "sdist"])
def package(session: nox.Session, archive: str) -> None:
    """The wheel and the sdist, each in an empty environment, away from the checkout."""
    folder = session.create_tmp()
    session.install("build")
    session.run("python", "-m", "build", "--outdir", folder, ".")
    (path,) = Path(folder).glob(archive)
    session.run("python", "-m", "pip", "uninstall", "--yes", "build")
    session.install(f"{path.resolve()}[cli]", "pytest", "hypothesis")
    tests = Path(folder) / "tests"
    shutil.copytree("tests", tests, dirs_exist_ok=True)
    session.chdir(folder)
    session.run("kd-cv", "match", "-o", "matches.png")
    # Without the path of pytest's settings: they are those of the checkout, and it is the checkout.
    session.run("python", "-m", "pytest", "-o", "pythonpath=", "tests/witness")


@nox.session(python="3.11")
def release(session: nox.Session) -> None:
    """dist/: wheel and sdist with checked metadata; sbom/: what the wheel brings with it."""
    for folder in ("dist", "sbom"):
        shutil.rmtree(folder, ignore_errors=True)
    session.install("build", "twine", "cyclonedx-bom")
    session.run("python", "-m", "build")
    archives = sorted(Path("dist").glob("*"))
    session.run("python", "-m", "twine", "check", "--strict", *map(str, archives))
    # What is installed beside the wheel, and nothing of this session's tools.
    empty = Path(session.create_tmp()).resolve() / "empty"
    session.run("python", "-m", "venv", str(empty))
    (wheel,) = Path("dist").glob("*.whl")
    session.run(str(empty / "bin" / "pip"), "install", "--quiet", str(wheel), external=True)
    session.run(
        str(empty / "bin" / "pip"), "uninstall", "--yes", "pip", "setuptools", external=True
    )
    Path("sbom").mkdir()
    output = f"sbom/{wheel.stem}.cdx.json"
    session.run("cyclonedx-py", "environment", str(empty / "bin" / "python"), "-o", output)


@nox.session(python="3.11")
@nox.parametrize("build", BUILDS, ids=BUILDS)
def builds(session: nox.Session, build: str) -> None:
    """A build of OpenCV at home already, at each version: kept, and mended if pip adds another.

    The commands are those of the documentation, and those that the warning says.
    """
    check = ("python", "-W", "error::UserWarning:kd_cv", "tools/opencv_builds.py", build)
    session.install("numpy", "scipy", "numba")
    session.install("--no-deps", ".")
    for version in OPENCV:
        session.install(f"{build}=={version}")
        session.run(*check)
        session.install("opencv-python>=5")  # as `pip install kd-cv` asks for it
        if build == "opencv-python":
            session.run(*check)
            continue
        said = (
            session.run(
                "python", "-W", "always", "-c", "from kd_cv import KDDescriptor", silent=True
            )
            or ""
        )
        assert said.count("UserWarning") == 1, said
        commands = said.split("Keep one: ")[1].splitlines()[0]
        for command in commands.split(" && "):
            session.run("python", "-m", *command.split())
        session.run(*check)
        session.run("python", "-m", "pip", "check", success_codes=[0, 1])  # one is missed
