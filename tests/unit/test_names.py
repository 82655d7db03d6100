"""Names are the dotted module and the function, the same whichever way code is run. A reload is not a second
definition."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import step, workflow
from holdfast.errors import DefinitionError, UnknownWorkflow
from holdfast.workflow import registry

SHOP = """
from holdfast import step, workflow

@step
def charge(cents: int) -> int:
    return cents

@charge.undo
def refund(done: int | None, cents: int) -> None: ...

@workflow
async def order(cents: int) -> int:
    return await charge(cents)
"""
PRINT_NAMES = """
from holdfast.workflow import registry
print(*sorted(registry.steps), *(name for name, _ in registry.workflows))
"""


def run(folder: Path, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, input=text, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Write `shop/billing/app.py`, in packages."""
    (tmp_path / "shop" / "billing").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "billing" / "__init__.py").touch()
    (tmp_path / "shop" / "billing" / "app.py").write_text(SHOP + PRINT_NAMES)
    return tmp_path


@pytest.mark.parametrize(
    "started",
    [
        ["-m", "shop.billing.app"],
        ["-c", "import shop.billing.app"],
        ["shop/billing/app.py"],
        ["-m", "cProfile", "-o", "/dev/null", "shop/billing/app.py"],
        ["-m", "runpy", "shop.billing.app"],
        ["-c", "from holdfast.commands.program import load; load('shop/billing/app.py')"],
        ["-c", "from holdfast.commands.program import load; load('shop.billing.app')"],
    ],
    ids=["module", "import", "path", "profiled", "runpy", "cli-file", "cli-module"],
)
def test_a_module_of_a_package_has_one_name_however_it_is_run(package: Path, started: list[str]) -> None:
    """Otherwise the processes of one application would not know each other's runs."""
    names = "shop.billing.app.charge shop.billing.app.refund shop.billing.app.order"
    assert run(package, *started) == names


@pytest.mark.parametrize(
    "started",
    [
        ["app.py"],
        ["./lone/../app.py"],
        ["-m", "app"],
        ["-c", "import app"],
        ["-c", "import multiprocessing.spawn as s; s._fixup_main_from_path('app.py')"],
        ["-c", "from holdfast.commands.program import load; load('lone/../app.py')"],
    ],
)
def test_a_lone_file_is_named_by_its_stem(tmp_path: Path, started: list[str]) -> None:
    """It does not matter in which folder it is."""
    (tmp_path / "lone").mkdir()
    (tmp_path / "app.py").write_text(SHOP + PRINT_NAMES)
    assert run(tmp_path, *started) == "app.charge app.refund app.order"


def test_a_folder_that_cannot_be_imported_is_no_package(tmp_path: Path) -> None:
    """An `__init__.py` alone does not make `my-app` a name."""
    folder = tmp_path / "my-app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "app.py").write_text(SHOP + PRINT_NAMES)
    assert run(tmp_path, "my-app/app.py") == "app.charge app.refund app.order"


def test_two_workflows_may_end_alike_and_then_want_their_full_name() -> None:
    """The last parts of its name find a workflow while only one workflow has them."""

    @workflow(name="billing.app.placing")
    async def one() -> None: ...

    @workflow(name="mailing.app.placing")
    async def other() -> None: ...

    assert registry.find_workflow("billing.app.placing") is one
    with pytest.raises(
        UnknownWorkflow, match=r"may be billing\.app\.placing or mailing\.app\.placing: give the full name"
    ):
        registry.find_workflow("placing")
    with pytest.raises(UnknownWorkflow, match="give the full name"):
        registry.find_workflow("app.placing")


class TestTwice:
    """Two functions of one name in one file are refused at the second one. The same one again is not."""

    def test_a_second_definition_is_refused_with_both_lines(self) -> None:
        @step
        def charge() -> None: ...

        with pytest.raises(
            DefinitionError, match=r"defined twice, in .*test_names\.py, line \d+ and in .*, line \d+"
        ):

            @step
            def charge() -> None: ...

    def test_a_second_workflow_is_refused(self) -> None:
        @workflow
        async def order() -> None: ...

        with pytest.raises(DefinitionError, match="defined twice"):

            @workflow
            async def order() -> None: ...

    def test_a_second_one_behind_the_same_decorator_of_ones_own_is_refused(self) -> None:
        """This holds for a function that wraps `step`, and for a `step(retry=1)` that is used many times."""
        mine = step(retry=1)

        @mine
        def pack() -> None: ...

        with pytest.raises(DefinitionError, match="defined twice"):

            @mine
            def pack() -> None: ...

    def test_a_function_that_declares_may_be_called_again(self) -> None:
        """Tests and factories do that."""

        def make() -> Any:
            @step
            def made() -> None: ...

            return made

        assert make().name == make().name

    def test_a_reload_is_no_second_definition(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """This holds for the same file, and for the file after it was changed."""
        monkeypatch.syspath_prepend(tmp_path)
        file = tmp_path / "reloaded_shop.py"
        file.write_text(SHOP)
        module = importlib.import_module("reloaded_shop")
        module = importlib.reload(module)
        file.write_text("\n\n# other lines\n" + SHOP.replace("return cents", "return cents + 100"))
        importlib.invalidate_caches()
        module = importlib.reload(module)
        assert registry.steps["reloaded_shop.charge"].fn(1) == 101

    def test_a_file_that_runs_and_is_imported_too_is_one_place(self, tmp_path: Path) -> None:
        """This happens if `python app.py` imports something that imports `app`."""
        (tmp_path / "app.py").write_text(f"import neighbour\n{SHOP}{PRINT_NAMES}")
        (tmp_path / "neighbour.py").write_text("import app\n")
        assert run(tmp_path, "app.py").splitlines()[-1] == "app.charge app.refund app.order"

    def test_two_functions_of_one_name_in_one_file_are_refused(self) -> None:
        """This holds if the name was given, too."""

        @step(name="given-twice")
        def one() -> None: ...

        with pytest.raises(DefinitionError, match="defined twice"):

            @step(name="given-twice")
            def other() -> None: ...


class TestSessions:
    """In notebooks, prompts and `exec` there is no file, and code that is executed again replaces what was there."""

    def cell(self, number: int, source: str, names: dict[str, Any]) -> None:
        """Execute a cell as IPython does: each time under another file name, which does not exist."""
        exec(compile(source, f"/tmp/ipykernel_77/{number}.py", "exec"), names)

    def test_an_edited_cell_keeps_its_names(self) -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        self.cell(1, SHOP, names)
        first = names["charge"].name
        self.cell(2, SHOP.replace("return cents", "return cents + 7"), names)
        assert (first, names["charge"].name) == ("__main__.charge", "__main__.charge")
        assert registry.steps["__main__.charge"].fn(1) == 8

    def test_a_notebook_that_is_known_gives_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two notebooks on one store do not share names."""
        names: dict[str, Any] = {"__name__": "__main__", "__vsc_ipynb_file__": "/home/ada/prices.ipynb"}
        self.cell(1, SHOP, names)
        assert names["charge"].name == "prices.charge"
        monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/sales.ipynb")
        names = {"__name__": "__main__"}
        self.cell(1, SHOP, names)
        assert names["charge"].name == "sales.charge"

    def test_two_in_one_cell_are_refused(self) -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        twice = "@step\ndef packing() -> None: ...\n"
        with pytest.raises(DefinitionError, match="defined twice"):
            self.cell(1, f"from holdfast import step\n{twice}{twice}", names)

    def test_exec_without_any_name(self) -> None:
        for cents in (1, 2):
            names: dict[str, Any] = {}
            exec(f"from holdfast import step\n@step\ndef bare() -> int:\n    return {cents}\n", names)
            assert names["bare"].name == "__main__.bare"

    def test_a_prompt_after_a_file_goes_on_with_its_names(self, tmp_path: Path) -> None:
        """After `python -i app.py`, what is typed replaces what the file declared."""
        (tmp_path / "app.py").write_text(SHOP)
        typed = f"@step\ndef charge(cents: int) -> int: return 5\n\n{PRINT_NAMES}\nprint(charge.fn(1))\n"
        assert run(tmp_path, "-i", "app.py", text=typed).split() == [
            "app.charge", "app.refund", "app.order", "5",
        ]  # fmt: skip

    def test_doctests_may_declare_the_same_example(self, tmp_path: Path) -> None:
        example = ">>> from holdfast import step\n    >>> @step\n    ... def sample() -> None: ...\n"
        source = "".join(f'def fn{n}():\n    """\n    {example}    """\n\n' for n in (1, 2))
        (tmp_path / "docs_of_it.py").write_text(source)
        run(tmp_path, "-m", "doctest", "docs_of_it.py")

    def test_a_step_without_a_file_cannot_be_isolated(self) -> None:
        """Its process could not import it."""
        with pytest.raises(DefinitionError, match="imports it from its file"):
            self.cell(
                1,
                "from holdfast import step\n@step(isolate=True)\ndef apart() -> None: ...\n",
                {"__name__": "__main__"},
            )


class TestOrigins:
    """The application that code comes from."""

    def of(self, folder: Path, file: str, *, app: str | None = None) -> str:
        """Return the origin of the step that a file declares."""
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("from holdfast import step\n@step\ndef work() -> None: ...\n")
        load = f"from holdfast.commands.program import load; load({file!r})"
        show = f"print(list(registry.steps.values())[0].place.origin({app!r}, 'a session'))"
        return run(folder, "-c", f"{load}\nfrom holdfast.workflow import registry\n{show}")

    def test_a_given_application_counts(self, tmp_path: Path) -> None:
        assert self.of(tmp_path, "app.py", app="shop") == "shop"

    def test_a_lone_file_is_its_own_application(self, tmp_path: Path) -> None:
        assert self.of(tmp_path, "app.py") == str(tmp_path.resolve() / "app.py")

    def test_a_package_in_a_project_is_the_projects(self, tmp_path: Path) -> None:
        """It does not matter in which folder the project is. Its name is that of its distribution."""
        (tmp_path / "pyproject.toml").write_text('[project]\nname = "My.Shop"\n')
        (tmp_path / "src" / "shop").mkdir(parents=True)
        (tmp_path / "src" / "shop" / "__init__.py").touch()
        assert self.of(tmp_path, "src/shop/app.py") == "my-shop"
        assert self.of(tmp_path, "tools/app.py") == "my-shop:tools/app.py"

    def test_a_pyproject_without_a_name_says_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
        assert self.of(tmp_path, "app.py") == str(tmp_path.resolve() / "app.py")
        (tmp_path / "pyproject.toml").write_text("not toml")
        assert self.of(tmp_path, "app.py") == str(tmp_path.resolve() / "app.py")

    @pytest.mark.parametrize("module", ["acme", "acme_billing"])
    def test_what_is_installed_is_its_distributions(self, tmp_path: Path, module: str) -> None:
        """This holds if the module has another name than the distribution, too."""
        site = tmp_path / "site-packages"
        (site / module).mkdir(parents=True)
        (site / module / "__init__.py").write_text(
            "from holdfast import step\n@step\ndef work() -> None: ...\n"
        )
        info = site / "Acme_Billing-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Acme_Billing\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{module}/__init__.py,,\n")
        program = (
            f"import sys; sys.path.insert(0, {str(site)!r}); import {module}\n"
            f"print({module}.work.place.origin(None, ''))"
        )
        assert run(tmp_path, "-c", program) == "acme-billing"

    def test_code_of_a_session_is_the_sessions(self) -> None:
        """This holds unless the notebook is known."""
        names: dict[str, Any] = {"__name__": "__main__"}
        exec("from holdfast import step\n@step\ndef sessional() -> None: ...\n", names)
        assert names["sessional"].place.origin(None, "here") == "here"
        names["__vsc_ipynb_file__"] = "/home/ada/prices.ipynb"
        assert names["sessional"].place.origin(None, "here") == "/home/ada/prices.ipynb"

    def test_the_digest_is_of_the_code_and_not_of_where_it_is(self, tmp_path: Path) -> None:
        """It is the same in every process. Lines and folders do not matter, a changed helper does."""
        helper = "def helper() -> int: return {cents}\n"
        code = "from holdfast import step\n@step\ndef work() -> bool: return helper() in {1, 2, 'x', 'y'}\nprint(work.place.digest())\n"
        for folder, text in (("a", helper + code), ("b", "\n# moved\n" + helper + code)):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "app.py").write_text(text.replace("{cents}", "1"))
        one = run(tmp_path, "a/app.py")
        assert run(tmp_path, "b/app.py") == one
        (tmp_path / "a" / "app.py").write_text((helper + code).replace("{cents}", "2"))
        assert run(tmp_path, "a/app.py") != one
