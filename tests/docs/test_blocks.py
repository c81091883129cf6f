"""The runner of the pages' blocks, on small pages: each mark, and each way in which a block can be wrong."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from docs_runner import SCRIPT, docs_blocks, run

# Serves the path of readiness, and nothing of Headrace. It ends with status 0 at SIGTERM.
SERVE = """
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""
SERVER = f"<!-- file: ready.py -->\n```python{SERVE}```\n\n<!-- server -->\n```bash\npython ready.py 8000 one\n```\n"


@pytest.fixture
def page(tmp_path):
    """page(text, *options) runs a page of this text. `page.path` is the file."""

    def run_page(text, *options):
        run_page.path.write_text(text)
        return run(*options, run_page.path)

    run_page.path = tmp_path / "page.md"
    return run_page


def passes(done) -> bool:
    assert done.returncode == 0, done.stderr
    return True


def fails(done, *words) -> bool:
    """Whether the page failed with one message, which has these words."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr.partition("\n")[0]
    assert all(word in done.stderr for word in words), done.stderr
    return True


def bash(text: str, *marks: str) -> str:
    return "".join(f"<!-- {mark} -->\n" for mark in marks) + f"```bash\n{text}\n```\n"


def python(text: str, *marks: str) -> str:
    return "".join(f"<!-- {mark} -->\n" for mark in marks) + f"```python\n{text}\n```\n"


def output(text: str, mark: str = "output") -> str:
    return f"<!-- {mark} -->\n```text\n{text}\n```\n"


def test_blocks_run_in_order_in_one_folder_with_the_examples(page):
    assert passes(page(bash("x=1; echo $x >file") + "\n" + bash('test "$(cat file)" = 1; test -z "$x"; ls examples')))


def test_the_command_is_a_fork_in_a_page_that_is_one_and_a_new_process_elsewhere(tmp_path):
    policy = "print(open('/proc/self/comm').read())"
    words = "headrace simulate --policy here:Nobody"
    text = f"<!-- file: here.py -->\n```python\n{policy}\n```\n"
    text += bash(words, "fails: 2") + output("headrace-worker")
    text += bash(f"PAGE_CONTROL= {words}", "fails: 2") + output("headrace")
    text += bash("headrace simulate --requests 1000000 & sleep 0.2; kill $!; wait $!", f"fails: {128 + signal.SIGTERM}")
    (tmp_path / "page.md").write_text(text)
    assert passes(run(tmp_path / "page.md", forked=True))


def test_python_blocks_of_such_a_page_have_no_names_but_their_own(tmp_path):
    path = tmp_path / "page.md"
    own = "sorted(name for name in globals() if not name.startswith('__'))"
    words = python(f"class A:\n    pass\nprint({own}, __name__, A.__module__)")
    named = "['A'] __main__ __main__"
    path.write_text(
        words + "\n" + output(named) + "\n" + python("import sys\nassert 'torch' in sys.modules\ntorch.zeros(1)")
    )
    assert fails(run(path, forked=True), "page.md:15: status NameError: torch.zeros(1)")
    path.write_text(python("import os\nos._exit(3)"))
    assert fails(run(path, forked=True), "page.md:1", "the interpreter ended with 3")


def test_commands_are_those_of_the_virtual_environment(page):
    text = bash("test $(dirname $(which python)) = $(dirname $(which headrace))") + python("import sys, headrace")
    assert passes(page(text))


def test_python_blocks_share_names_and_may_pickle_their_classes(page):
    first = "import pickle\nclass Point:\n    def __init__(self, x): self.x = x"
    assert passes(page(python(first) + python("print(pickle.loads(pickle.dumps(Point(3))).x)") + output("3")))


def test_a_python_block_sees_its_source_and_files_of_the_folder(page):
    text = "<!-- file: other/mine.py -->\n```python\nA = 5\n```\n"
    text += python("import inspect\nfrom other.mine import A\ndef twice(x):\n    return 2 * x")
    text += python("print(A, inspect.getsource(twice).splitlines()[1])")
    assert passes(page(text + output("5     return 2 * x")))


def test_a_file_may_have_any_language_and_is_not_run(page):
    text = "<!-- file: a.toml -->\n```toml\nx = 1\n```\n<!-- file: b.py -->\n```python\nraise ValueError\n```\n"
    assert passes(page(text + bash("cat a.toml; test -f b.py") + output("x = 1")))


def test_a_failing_command_is_named_with_its_line_and_stderr(page):
    done = page("# Title\n\n" + bash("echo fine\nls no-such-file\necho later"))
    assert fails(done, "page.md:5: status 2: ls no-such-file\n", "cannot access 'no-such-file'")


def test_a_failing_python_line_is_named(page):
    done = page("# Title\n\n" + python("x = 0\n") + python("def f(x):\n    return 1 / x\nprint(f(x))"))
    assert fails(done, "page.md:9: status ZeroDivisionError: return 1 / x", "page.md", "line 10", "division by zero")


def test_wrong_syntax_is_named(page):
    assert fails(page(python("x = 1\nif x\n")), "page.md:3: status SyntaxError: if x")


def test_a_python_process_that_ends_is_a_failure(page):
    assert fails(page(python("import os\nos._exit(3)")), "page.md:1", "the interpreter ended with 3")


def test_the_pages_after_a_broken_one_still_run(tmp_path):
    (tmp_path / "a.md").write_text(bash("false"))
    (tmp_path / "b.md").write_text(bash("echo"))
    done = run(tmp_path / "a.md", tmp_path / "b.md")
    assert fails(done, "a.md:2: status 1: false", "b.md: 1 blocks")


def test_other_output_fails(page):
    done = page(bash("echo one; echo two") + "Text.\n" + output("one\nthree"))
    assert fails(done, "page.md:6: other output", "-three\n+two")


def test_only_stdout_is_output_and_spaces_at_ends_of_lines_do_not_count(page):
    assert passes(page(bash("echo note >&2; printf 'a  \\n\\n  b\\n\\n'") + output("a\n\n  b")))


def test_json_is_an_output_too(page):
    assert passes(page(bash("echo '{}'") + "<!-- output -->\n```json\n{}\n```\n"))


@pytest.mark.parametrize("printed", ["3 requests in 12.5 ms", "a    b\n---------\n1  1,200\n-2  1e-5"])
def test_numbers_may_vary_with_their_widths(page, printed):
    shown = printed.replace("12.5", "1,234").replace("1,200", "7").replace("b\n---------", " b\n-----")
    assert passes(page(bash(f"echo '{printed}'") + output(shown, "output: numbers vary")))


def test_words_may_not_vary_and_numbers_of_names_may_not(page):
    assert fails(page(bash("echo 3 requests") + output("3 replies", "output: numbers vary")), "-3 replies\n+3 requests")
    assert fails(page(bash("echo resnet50") + output("resnet18", "output: numbers vary")), "other output")


def test_numbers_of_an_exact_output_may_not_vary(page):
    assert fails(page(bash("echo 3") + output("4")), "-4\n+3")


def test_update_rewrites_outputs_and_nothing_else(page):
    of_item = textwrap.indent(bash("echo 1; echo; echo 2") + "\n" + output("3"), "  ")
    sum_of_ones = bash("echo $((1 + 1))", "quick: 1 + 1 => 1", "slow") + output("8", "output: numbers vary")
    text = f"# T\n\n- item\n\n{of_item}\n{sum_of_ones}End.\n"
    assert passes(page(text, "--update"))
    updated = page.path.read_text()
    assert updated == text.replace("text\n  3\n", "text\n  1\n\n  2\n").replace("text\n8\n", "text\n2\n")
    assert passes(page(updated, "--slow"))


def test_update_leaves_a_page_that_fails(page):
    text = bash("echo 1") + output("2") + bash("false")
    assert fails(page(text, "--update"), "status 1")
    assert page.path.read_text() == text


def test_slow_blocks_and_their_outputs_are_left_out(page):
    text = bash("echo ran; false", "slow") + output("other") + bash("echo quick")
    done = page(text)
    assert passes(done) and "page.md: 1 blocks" in done.stderr
    assert fails(page(text, "--slow"), "page.md:3: status 1")


def test_the_quick_form_replaces_texts_and_its_output_is_not_compared(page):
    marks = "quick: 1 2 => 3", "quick: cat => cp file copy; cat", "quick: -n =>"
    text = bash("echo -n 1 2 >file\ncat file", *marks) + output("1 2")
    assert passes(page(text + bash("test -f copy; cat copy") + output("3")))
    assert fails(page(text + bash("test ! -f copy; cat file") + output("3"), "--slow"), "-3\n+1 2")


def test_a_block_that_is_not_run_is_not(page):
    assert passes(page(bash("false", "not run: needs a card") + python("raise", "not run: needs a GPU")))


def test_a_status_is_expected(page):
    assert passes(page(bash("exit 2", "fails: 2")))
    assert fails(page(bash("exit 1", "fails: 2")), "status 1 in place of 2")
    assert fails(page(bash("true", "fails: 2")), "status 0 in place of 2")


def test_a_failure_shows_its_message_as_output(page):
    assert passes(page(bash("echo wrong >&2; exit 2", "fails: 2") + output("wrong")))


def test_an_exception_is_expected(page):
    assert passes(page(python("int('x')", "fails: ValueError")))
    assert fails(page(python("int('x')", "fails: KeyError")), "status ValueError in place of KeyError")


def test_a_warning_fails_unless_the_page_expects_it(page):
    warns = "echo 'warning: a rate beyond capacity' >&2"
    assert fails(page(bash(warns)), "page.md:1: it warns", "beyond capacity")
    assert passes(page(bash(warns, "warns: beyond capacity")))
    assert fails(page(bash("echo fine >&2", "warns: beyond capacity")), "does not have the warning")


@pytest.mark.parametrize(
    "text, message",
    [
        ("<!-- slow -->\n\n" + bash("true"), "page.md:1: a mark must stand directly before"),
        (bash("true") + "<!-- output -->\n", "page.md:4: a mark must stand directly before"),
        ("```bash\ntrue\n", "page.md:1: the block has no closing fence"),
        ("```\ntrue\n```\n", "page.md:1: the fence says ''"),
        ("```sh\ntrue\n```\n", "page.md:1: the fence says 'sh'; write bash"),
        ("```{code-block} bash\ntrue\n```\n", "a directive with code"),
        (bash("true", "not run"), "page.md:2: the mark 'not run' needs a value"),
        (bash("true", "slow: very"), "the mark 'slow' takes no value"),
        (bash("true", "quick: truth => x"), "does not have the text"),
        (bash("true", "quick: true"), "does not have the text"),
        (bash("true", "fails: yes"), "has an exit status"),
        (bash("true; true", "server"), "one command"),
        (bash("true\ntrue", "server"), "one command"),
        (bash("true &", "server"), "one command"),
        (python("1", "server"), "one command"),
        (output("1"), "page.md:2: no block that is run"),
        (bash("echo", "not run: needs root") + output("1"), "no block that is run"),
        (bash("echo", "output"), "an output is a text or json block"),
        (bash("echo") + output("1", "output: words vary"), "an output has the mark"),
        ("<!-- slow -->\n```toml\nx = 1\n```\n", "a block in toml is not run"),
        ("<!-- file: ../x -->\n```toml\nx = 1\n```\n", "stands in the scratch folder"),
        ("<!-- file: /tmp/x -->\n```toml\nx = 1\n```\n", "stands in the scratch folder"),
        ("<!-- file: examples/x -->\n```toml\nx = 1\n```\n", "not in its examples"),
    ],
)
def test_a_wrong_mark_is_refused(text, message):
    with pytest.raises(docs_blocks.PageError, match=re.escape(message)):
        docs_blocks.read_blocks(text, "page.md")


def test_other_comments_and_languages_are_left_alone():
    text = "<!-- a note -->\n```text\n<!-- slow -->\n```\n\n````text\n```bash\nfalse\n```\n````\n"
    assert [block.language for block in docs_blocks.read_blocks(text, "page.md")] == ["text", "text"]


def test_a_server_answers_until_the_end_of_the_page(page):
    ask = 'test "$(curl -s http://127.0.0.1:8000/)" = one'
    assert passes(page(SERVER + bash(ask) + "Text.\n" + bash(ask)))


def test_a_later_server_at_the_same_address_replaces_the_first(page):
    later = bash("# Again:\nWORD=two python ready.py \\\n    8000 two", "server")
    assert passes(page(SERVER + later + bash("curl -s http://127.0.0.1:8000/") + output("two")))


def test_a_server_at_another_address_is_waited_for_there(page):
    other = bash("python ready.py 9009 --http=127.0.0.1:9009", "server")
    assert passes(page(SERVER + other + bash("curl -s http://127.0.0.1:9009/") + output("--http=127.0.0.1:9009")))


def test_pages_run_side_by_side_with_the_same_ports(tmp_path):
    pages = []
    for word in ("first", "second"):
        pages.append(tmp_path / f"{word}.md")
        again = bash("sleep 0.5\ncurl -s http://127.0.0.1:8000/") + output(word)
        pages[-1].write_text(SERVER.replace("8000 one", f"8000 {word}") + again)
    running = [subprocess.Popen([sys.executable, SCRIPT, path], stderr=subprocess.PIPE, text=True) for path in pages]
    for process in running:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr


def test_a_server_that_ends_at_once_is_a_failure(page):
    done = page(bash("python -c 'raise SystemExit(\"no port\")'", "server"))
    assert fails(done, "page.md:2: the server ended with status 1", "no port")


def test_a_server_that_never_becomes_ready_is_a_failure_and_is_ended(page):
    marker = "sleep 987.6"
    done = page(bash(marker, "server"), "--ready-s", 0.5)
    assert fails(done, "page.md:2: the server did not answer at http://127.0.0.1:8000/v2/health/ready within 0.5 s")
    assert not running(marker)


def test_a_server_that_dies_later_is_a_failure(page):
    text = bash("curl -s http://127.0.0.1:8000/die || true") + bash("sleep 0.2") + bash("true")
    assert fails(page(SERVER + text), "the server ended: python ready.py 8000 one")


def test_a_block_without_an_end_is_ended(page):
    marker = "sleep 876.5"
    assert fails(page(bash(f"{marker} &\n{marker}"), "--block-s", 0.5), "page.md:1: status none after 0.5 s: sleep")
    assert not running(marker)
    assert fails(page(python("import time\ntime.sleep(876)"), "--block-s", 0.5), "page.md:1: status none after 0.5 s")


@pytest.mark.parametrize("last", ["true", "false"])
def test_nothing_runs_on_after_the_page(page, last):
    marker = "sleep 765.4"
    text = SERVER + bash(f"setsid {marker} >&2 &") + python(f"import subprocess\nsubprocess.Popen('{marker}'.split())")
    assert page(text + bash(last)).returncode == (last == "false")
    assert not running(marker) and not running("ready.py 8000 one")


def test_a_signal_ends_the_page_and_its_processes(page):
    marker = "sleep 654.3"
    page.path.write_text(SERVER + bash(marker))
    process = subprocess.Popen([sys.executable, SCRIPT, page.path], stderr=subprocess.PIPE)
    while not running(marker):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGTERM
    assert not running(marker) and not running("ready.py 8000 one")


def test_without_a_namespace_a_taken_port_is_a_reason_not_to_run(page):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8001))
            taken.listen()
        except OSError:
            pass  # another program has it, which is what the test needs
        done = page(bash("true"), "--shared-network")
    assert done.returncode == docs_blocks.CANNOT_RUN and "uses port 800" in done.stderr


def test_without_a_namespace_runs_wait_for_each_other(page, tmp_path):
    with docs_blocks.alone(60):
        done = page(bash("true"), "--shared-network", "--wait-s", 0.3)
    assert done.returncode == docs_blocks.CANNOT_RUN and "another run of pages goes on after 0.3 s" in done.stderr


def test_a_page_that_is_not_there_is_bad_usage(tmp_path):
    assert run(tmp_path / "none.md").returncode == 2


def running(command: str) -> bool:
    """Whether a process has this command line, or one that ends with it."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if file.read_text().replace("\0", " ").strip().endswith(command):
                return True
    return False
