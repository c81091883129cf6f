"""docs/reference/ is what the code gives, and names all that the code has."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.batching.settings import setting, settings
from headrace.sim.studies import simulate

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "docs_reference.py"
PAGES = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def reference():
    """Return the script as a module. Its folder is on the path only as long as it is imported."""
    before = set(sys.modules)
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import docs_reference

        yield docs_reference
    finally:
        sys.path.remove(str(SCRIPT.parent))
        for name in set(sys.modules) - before:
            if name.split(".")[0] in ("docs_reference", "draw_policies", "reference"):
                del sys.modules[name]


def test_pages_and_pictures_in_the_repository_are_what_the_code_gives():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_region_that_was_changed_by_hand_is_stale_and_written_again(reference, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        f"# A page\n\n<!-- generated: settings graph -->\nby hand\n{reference.END}\n\nText that was written by hand.\n"
    )
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    assert reference.stale_pages([page], write=False) == ["page.md"]
    assert "by hand\n<!--" in page.read_text()
    assert reference.stale_pages([page], write=True) == ["page.md"]
    assert "| `window_ms`<br>number, ms" in page.read_text() and page.read_text().endswith(
        "Text that was written by hand.\n"
    )
    assert reference.stale_pages([page], write=True) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- generated: no-such-part -->\n<!-- end of generated part -->\n", "there is no generator 'no-such-part'"),
        ("<!-- generated: commands -->\n", "needs one <!-- end of generated part -->"),
    ],
)
def test_a_wrong_region_is_refused_by_name(reference, text, problem):
    with pytest.raises(SystemExit, match=re.escape(problem)):
        reference.filled(text, "page.md")


def test_a_page_that_is_missing_is_named(reference, monkeypatch):
    monkeypatch.setitem(reference.command_line.COMMANDS, "fly", "Fly.")
    assert reference.missing() == ["cli/fly.md"]


def test_each_page_of_a_command_has_its_options_an_example_and_its_exit_statuses(reference):
    for name in reference.command_line.COMMANDS:
        text = (PAGES / "cli" / f"{name}.md").read_text()
        subcommands = ("preprocess image", "preprocess audio") if name == "preprocess" else (name,)
        assert all(f"<!-- generated: options {each} -->" in text for each in subcommands), name
        assert "```bash" in text and "## Exit status" in text, name


def test_each_page_of_a_policy_has_its_settings_picture_source_and_examples(reference):
    for name in reference.policies.NAMES:
        text = (PAGES / "policies" / f"{name}.md").read_text()
        for part in ("policy", "timeline", "settings"):
            assert f"<!-- generated: {part} {name} -->" in text
        assert all(f"\n## {heading}\n" in text for heading in ("How it works", "When to choose it", "Try it"))
        assert f"--policy {name} " in text and "```python" in text
        assert re.search(r"\| source \| .*\]\(https://", text), name


def test_all_public_names_stand_in_the_python_reference(reference):
    import headrace

    text = (PAGES / "python.md").read_text()
    missing = [name for name in headrace.__all__ if f"headrace.{name}" not in text]
    assert missing == []


def test_every_docstring_section_of_the_public_names_becomes_a_list(reference):
    prose = reference.python_api.prose(
        "Return a thing.\n\n"
        "Args:\n    name: What it is called, which may\n        take two lines.\n    m, k: Two sizes.\n\n"
        "Raises:\n    UsageError: It is wrong."
    )
    assert "- `name`: What it is called, which may take two lines.\n- `m, k`: Two sizes.\n" in prose
    assert "**Raises**\n\n- `UsageError`: It is wrong.\n" in prose


def test_a_setting_that_is_added_in_one_place_is_a_row_of_the_reference(reference):
    @settings()
    class Patient:
        patience_ms: float = setting(default=2.5, help="Longest wait.", ge=0, le=50)

    row = "| `patience_ms`<br>number, ms, 0 to 50<br>default: `2.5` | Longest wait. |"
    assert row in reference.settings.of_class(Patient)


def test_an_option_of_a_command_is_shown_with_value_unit_range_and_default(reference):
    options = reference.command_line.options("serve")
    assert "| `--max-body-mib`<br>whole number, MiB, 1 to 2047<br>default: `64` | Largest request (MiB). |" in options
    assert "| `--damaged`<br>`strict`, `lenient`<br>default: `strict` |" in options
    assert "--sla-ms" not in options  # a former name


def test_all_metrics_that_a_server_gives_are_listed(reference):
    """The names come from the source of the metrics, so that none can hide from the script."""
    source = (ROOT / "host" / "server" / "observe" / "metrics.py").read_text()
    named = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"headrace_\w+", node.value)
    }
    text = reference.served.metrics()
    assert len(named) > 10
    assert [name for name in named if f"`{name}`" not in text and f"`{name}_total`" not in text] == []


def test_all_statuses_with_which_the_http_server_refuses_are_listed(reference):
    text = reference.served.refusals()
    assert {int(status) for status in re.findall(r"^\| (\d{3}) \|", text, re.MULTILINE)} == {
        400,
        405,
        408,
        413,
        417,
        431,
        501,
        503,
    }


def test_the_result_keys_on_the_page_are_those_of_a_run():
    text = (PAGES / "file_formats.md").read_text()
    section = text.partition("## Result keys")[2].partition("\n## ")[0]
    table = section.partition("| key | unit | meaning |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    result = simulate("resnet50", policy="serial", requests=5).to_dict()
    assert listed == [key for key in result if key not in ("settings", "warnings")]


def test_the_page_of_smdp_tables_has_all_keys():
    source = ast.parse((ROOT / "host" / "cli" / "smdp.py").read_text())
    (function,) = (node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "_as_json")
    (keys,) = (node.value.keys for node in function.body if isinstance(node, ast.Return))
    section = (PAGES / "file_formats.md").read_text().partition("## Tables of smdp")[2].partition("\n## ")[0]
    assert [key.value for key in keys if f"`{key.value}`" not in section] == []


def test_the_columns_of_csv_files_on_the_page_are_those_that_are_read():
    from headrace.sim.workload import images, replay

    text = (PAGES / "file_formats.md").read_text()
    columns = [*replay.TRACE_COLUMNS[0], *replay.TRACE_COLUMNS[1:]]
    assert [column for column in columns if f"`{column}`" not in text] == []
    assert f"`{','.join(images.COLUMNS)}`" in text


def test_every_path_of_the_http_server_stands_on_the_page_of_the_protocol():
    source = (ROOT / "host" / "server" / "transport" / "http" / "endpoints.py").read_text()
    text = (PAGES / "protocol.md").read_text()
    words = {
        node.value.value
        for case in ast.walk(ast.parse(source))
        if isinstance(case, ast.MatchSequence | ast.MatchOr | ast.MatchValue)
        for node in ast.walk(case)
        if isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant)
    }
    assert {"v2", "ready", "repository"} <= words
    assert [word for word in words if word and not re.search(rf"/{word}\b", text)] == []


FENCE = re.compile(r"```python\n(.*?)```\n(?:\n<!-- output -->\n```text\n(.*?)```)?", re.DOTALL)


def test_the_python_examples_of_the_policies_give_the_output_that_stands_there(reference, capsys):
    """The runner of the pages runs them in `make test-all`, each page in an interpreter of its own."""
    for name in reference.policies.NAMES:
        (found,) = FENCE.finditer((PAGES / "policies" / f"{name}.md").read_text())
        exec(compile(found[1], f"{name}.md", "exec"), {})
        assert capsys.readouterr().out == found[2], name
