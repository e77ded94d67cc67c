"""What importing the package costs, and needs."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import counters

EXTRAS = {"firebase_admin", "firebase_functions", "flask", "functions_framework", "matplotlib", "numpy"}
EXTRAS |= {"pytest", "rich", "typer", "hypothesis"}
OUTSIDE_THE_CORE = {"functions"}
"""Modules of an extra: they may need more."""

CORE = [path.stem for path in Path(counters.__file__).parent.glob("*.py") if path.stem != "__init__"]
CORE = sorted(set(CORE) - OUTSIDE_THE_CORE)


def python(script, *arguments):
    """What a fresh interpreter prints, by line."""
    command = [sys.executable, "-c", dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def loaded_by(*modules):
    """The top-level packages, and our own packages, that importing ``modules`` loads."""
    script = """
        import importlib, sys
        before = set(sys.modules)
        for name in sys.argv[1:]:
            importlib.import_module(name)
        for name in set(sys.modules) - before:
            print(name.partition(".")[0] if not name.startswith("counters.") else name)
    """
    return set(python(script, *modules))


def test_importing_the_package_loads_no_sdk_until_a_name_is_used():
    assert loaded_by("counters").isdisjoint({"google", "grpc", "asyncio"})


def test_using_the_package_loads_nothing_of_its_extras():
    loaded = loaded_by("counters.public")
    assert "google" in loaded
    assert loaded.isdisjoint(EXTRAS)
    assert not {name for name in loaded if name.startswith(("counters.cli", "counters.testing"))}


def test_the_plugin_that_every_pytest_loads_loads_no_sdk():
    assert loaded_by("counters.testing.plugin").isdisjoint({"google", "grpc"})


def test_the_core_needs_google_cloud_firestore_and_nothing_else():
    """Imported where everything that it does not itself require is out of reach."""
    script = r"""
        import importlib, re, sys
        from importlib import metadata

        def closure(name, extras, found):
            if (name, extras) not in found:
                found.add((name, extras))
                for requirement in installed(name):
                    wanted, of, _, marker = re.match(PATTERN, requirement).groups()
                    extra = re.search(r"extra == [\"'](\w+)", marker or "")
                    if not extra or extra[1] in extras:
                        closure(normal(wanted), (of or "").strip("[]"), found)
            return {name for name, _ in found}

        PATTERN = r"([\w.-]+)(\[[\w,]+\])?([^;]*)(;.*)?"

        def installed(name):
            try:
                return metadata.requires(name) or []
            except metadata.PackageNotFoundError:  # not for this platform
                return []

        def normal(name):
            return re.sub(r"[-_.]+", "-", name).lower()

        allowed = closure("google-cloud-firestore", "", set())
        packages = metadata.packages_distributions()

        class OutOfReach:
            def find_spec(self, name, path=None, target=None):
                owners = {normal(owner) for owner in packages.get(name.partition(".")[0], [])}
                if owners and owners.isdisjoint(allowed) and not name.startswith("counters"):
                    raise ImportError(f"{name} is out of reach")

        sys.meta_path.insert(0, OutOfReach())
        for name in sys.argv[1:]:
            importlib.import_module(f"counters.{name}")
        try:
            import pytest
        except ImportError:
            print("pytest was out of reach")
    """
    assert python(script, *CORE) == ["pytest", "was", "out", "of", "reach"]


@pytest.mark.parametrize("missing", ["flask", "firebase_functions"])
def test_functions_without_their_extra_say_how_to_get_it(missing):
    script = """
        import sys
        sys.modules[sys.argv[1]] = None
        try:
            import counters.functions
        except ModuleNotFoundError as error:
            print(error.name, error.__cause__ is not None, error)
    """
    assert " ".join(python(script, missing)) == (
        f"{missing} True counters.functions needs {missing}: pip install 'firestore-counters[functions]'"
    )


def test_every_module_can_be_imported_first():
    """So there is no circle that only works in one order."""
    script = """
        import importlib, sys
        for name in sys.argv[1:]:
            for loaded in [module for module in sys.modules if module.startswith("counters")]:
                del sys.modules[loaded]
            importlib.import_module(f"counters.{name}")
            print(name)
    """
    assert python(script, *CORE) == CORE
