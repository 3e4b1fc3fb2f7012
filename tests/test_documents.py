"""What the README and the pages of docs/ show works: their Python runs, their commands exist.

A block runs in names of its own, or in those of the block before where it begins with
`# continued`. After the comment
`<!-- needs a hub: run with the embedded model -->` the hub's names in a block give way to the
embedded model's folder; after `<!-- needs an endpoint: run against a local one -->` its URLs do to
that of a small server in the tests.
"""

import contextlib
import io
import itertools
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pettingzoo
import pytest
from openai_stub import KEY, OpenAIStub

from motet import agents, algos, envs
from motet.agents import pocket_path
from motet.algos.cli import main
from motet.algos.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# where they are imported from, which is not beside the tests where a wheel is tested
PACKAGES = {
    each.__name__.partition(".")[2]: Path(each.__path__[0]) for each in (agents, algos, envs)
}
NEEDS_HUB = "<!-- needs a hub: run with the embedded model -->"
NEEDS_ENDPOINT = "<!-- needs an endpoint: run against a local one -->"
ENDPOINT = re.compile(r'"https?://[^"]+/v1"')
HUB_MODEL = re.compile(r"(?<=[ =])[\w.-]+/[\w.-]*\d[\w.-]*(?= |$)")
HUB_NAME = re.compile(r'"[\w-]+/[\w.-]+"')
CONTINUED = "# continued"
SHELLS = ("bash", "sh", "shell", "console")
MOTET = "motet "
# Commands of a first visit that need a network or change the shell; there is nothing to look up.
UNCHECKED = ("git clone", "cd ", "source ", ". ")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the number of its first line in the document."""

    document: Path
    language: str
    line: int
    text: str
    needs: str

    @property
    def needs_hub(self) -> bool:
        return self.needs == NEEDS_HUB

    @property
    def needs_endpoint(self) -> bool:
        return self.needs == NEEDS_ENDPOINT

    def code(self, endpoint: str = "") -> Any:
        """The block compiled, with the document's own line numbers in tracebacks."""
        text = HUB_NAME.sub(repr(str(pocket_path())), self.text) if self.needs_hub else self.text
        if self.needs_endpoint:
            text = ENDPOINT.sub(repr(endpoint), text)
        return compile("\n" * (self.line - 1) + text, str(self.document), "exec")


def read_blocks(text: str, document: Path = DOCUMENTS[0]) -> list[Block]:
    """Return the fenced blocks, in order."""
    blocks: list[Block] = []
    lines = text.splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if start is None and line.startswith("```"):
            start = number
        elif start is not None and line.strip() == "```":
            blocks.append(
                Block(
                    document=document,
                    language=lines[start][3:].strip(),
                    line=start + 2,
                    text="\n".join(lines[start + 1 : number]),
                    needs=lines[start - 1].strip() if start > 0 else "",
                )
            )
            start = None
    assert start is None, f"the block of line {start} does not end"
    return blocks


def scripts(blocks: list[Block]) -> list[list[Block]]:
    """Return the Python blocks, those that are continued together with what continues them."""
    joined: list[list[Block]] = []
    for block in blocks:
        if block.language != "python":
            continue
        if block.text.startswith(CONTINUED):
            joined[-1].append(block)
        else:
            joined.append([block])
    return joined


def commands(blocks: list[Block]) -> list[str]:
    """Return the lines of the shell blocks without prompts and comments."""
    lines = []
    for block in blocks:
        if block.language in SHELLS:
            for line in block.text.replace("\\\n", " ").splitlines():
                command = " ".join(shlex.split(line, comments=True, posix=False))
                if command:
                    lines.extend(command.removeprefix("$ ").split(" && "))
    return lines


def read_documents() -> list[Block]:
    return [
        block
        for document in DOCUMENTS
        for block in read_blocks(document.read_text(encoding="utf-8"), document)
    ]


def place_of(script: list[Block]) -> str:
    return f"{script[0].document.name} line {script[0].line}"


@pytest.fixture
def own_registries() -> Iterator[None]:
    """Forget the tasks that a block or a script registers."""
    registries: tuple[dict[str, Any], ...] = (envs.registry, pettingzoo.parallel_registry)
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def check_make(command: str) -> None:
    targets = [word for word in shlex.split(command)[1:] if "=" not in word]
    assert targets
    assert set(targets) <= make_targets(), command


def check_example(command: str) -> None:
    """Ask the script for its help, which lists every flag that the document uses."""
    name, *arguments = shlex.split(command)[1:]
    script = ROOT / name
    assert script.is_file(), command
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.syspath_prepend(script.parent)  # as `python script` does
        patch.setattr("sys.argv", [name, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0, command
    flags = [word.split("=")[0] for word in arguments if word.startswith("--")]
    for flag in flags:
        assert re.search(rf"(?<![\w-]){flag}(?![\w-])", printed.getvalue()), f"{flag} in {command}"


def check_install(command: str) -> None:
    asked = re.findall(r"\[([\w,-]+)\]", command)
    assert {name for names in asked for name in names.split(",")} <= extras(), command
    words = shlex.split(command)
    for flag, value in itertools.pairwise(words):
        if flag in ("-c", "--constraint", "-r", "--requirement"):
            assert (ROOT / value).is_file(), command


def motet_commands(document: Path) -> list[str]:
    """Return what a page has for `motet`, with the embedded model where a block needs a hub."""
    found = []
    for block in read_blocks(document.read_text(encoding="utf-8"), document):
        own = [line for line in commands([block]) if line.startswith(MOTET)]
        found += [HUB_MODEL.sub("pocket", line) if block.needs_hub else line for line in own]
    return found


def run_motet(command: str) -> None:
    """Run a command in this process; one that asks a person is only asked for its help."""
    words = shlex.split(command)[1:]
    if words[0] == "play":
        words.append("--help")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(words)
    assert status == 0, f"{command}: {printed.getvalue()[-2000:]}"


def check_command(command: str) -> None:
    if command.startswith(MOTET):
        assert shlex.split(command)[1] in COMMANDS, command  # and test_motet_commands_run runs it
    elif command.startswith("make "):
        check_make(command)
    elif command.startswith(("python examples/", "python3 examples/")):
        check_example(command)
    elif re.match(r"(python3? -m )?pip install ", command):
        check_install(command)
    else:
        assert command.startswith(UNCHECKED), f"nothing checks the documents' command {command!r}"


def test_there_is_python_in_the_readme() -> None:
    shown = [block for block in read_documents() if block.document.name == "README.md"]
    assert any(block.language == "python" for block in shown)


def tale(body: dict[str, Any], index: int) -> str:
    """What the endpoint of the documents writes."""
    return "A fox met a crow. " * (1 + (len(str(body)) + index) % 5)


@pytest.mark.parametrize("script", scripts(read_documents()), ids=place_of)
@pytest.mark.usefixtures("own_registries")
def test_python_blocks_run(
    script: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.ExitStack() as opened:
        endpoint = ""
        if any(block.needs_endpoint for block in script):
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            endpoint = opened.enter_context(OpenAIStub(answer=tale)).url
        for block in script:
            exec(block.code(endpoint), names)


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if motet_commands(each)], ids=lambda each: each.name
)
@pytest.mark.usefixtures("own_registries")
def test_motet_commands_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in motet_commands(document):  # in their order: one goes on from another
        run_motet(command)


@pytest.mark.parametrize("command", sorted(set(commands(read_documents()))))
@pytest.mark.usefixtures("own_registries")
def test_commands_exist(command: str) -> None:
    check_command(command)


def test_targets_and_extras_named_in_the_text_exist() -> None:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for command in re.findall(r"`(make [^`]+)`", text):
            check_make(command)
        for command in re.findall(r"`(pip install [^`]+)`", text):
            check_install(command)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def place(folders: list[str]) -> Path:
    first, *others = folders
    return PACKAGES.get(first, ROOT / first).joinpath(*others)


def test_the_tree_names_files_that_there_are() -> None:
    _, _, tree = DOCUMENTS[0].read_text(encoding="utf-8").partition("\n```\nenvs/")
    folders: list[str] = []
    tree = "envs/" + tree.partition("```")[0]
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, *words = line.split()
        folders[depth:] = [name.rstrip("/,")]
        assert place(folders).is_dir() == name.endswith("/"), line
        assert place(folders).exists(), line
        folder = place(folders) if name.endswith("/") else place(folders[:-1])
        for word in words:
            if word.rstrip(".,:;").endswith(".py"):
                assert (folder / word.rstrip(".,:;")).is_file(), line
    for package, path in PACKAGES.items():
        for folder in (each.parent.relative_to(path) for each in path.rglob("__init__.py")):
            named = f"  {folder.name}/ " if folder.name else f"\n{package}/ "
            assert named in f"\n{tree}", folder


def test_every_metric_is_in_the_glossary() -> None:
    glossary = DOCUMENTS[0].read_text(encoding="utf-8").partition("## Metrics")[2]
    logged = {
        name
        for path in PACKAGES["algos"].rglob("*.py")
        for name in re.findall(r'"((?:train|rollout|time)/\w+)"', path.read_text(encoding="utf-8"))
    }
    assert len(logged) > 20
    assert [name for name in sorted(logged) if f"`{name}`" not in glossary] == []


# --- the reader itself ----------------------------------------------------------------------------

SAMPLE = f"""# Title

```python
x = 1
```

```python
{CONTINUED}
y = x + 1
```

{NEEDS_HUB}
```python
name = "some-one/some-model"
```

```bash
make demo test   # two of them
python examples/custom_loop.py \\
    --num-turns 3
pip install "motet[plots]" && cd somewhere
```

```
not code
```
"""


def test_the_reader_joins_continued_blocks_and_knows_those_for_a_hub() -> None:
    first, second = scripts(read_blocks(SAMPLE))
    assert [block.line for block in first] == [4, 8]
    assert [block.needs_hub for block in first + second] == [False, False, True]
    names: dict[str, Any] = {}
    for block in first:
        exec(block.code(), names)
    assert names["y"] == 2
    exec(second[0].code(), names)
    assert names["name"] == str(pocket_path())


@pytest.mark.usefixtures("own_registries")
def test_the_reader_splits_commands_and_drops_comments() -> None:
    found = commands(read_blocks(SAMPLE))
    assert found == [
        "make demo test",
        "python examples/custom_loop.py --num-turns 3",
        'pip install "motet[plots]"',
        "cd somewhere",
    ]
    for command in found:
        check_command(command)


@pytest.mark.parametrize(
    "command",
    [
        "make tea",
        "python examples/custom_loop.py --num-turn 3",
        "python examples/nothing.py",
        'pip install "motet[tea]"',
        "pip install -c nothing.txt .",
        "motet demo",
    ],
)
def test_commands_that_do_not_exist_are_found(command: str) -> None:
    with pytest.raises(AssertionError):
        check_command(command)
