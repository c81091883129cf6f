"""`headrace simulate` for models that decode: settings, files, results, and what it refuses."""

import json
from pathlib import Path

import pytest
from command import headrace_here

import headrace
from headrace.batching.steps.registry import STEP_POLICIES

TRACE = Path(__file__).parents[3] / "examples" / "llm_trace.csv"
STEPS = "prefill_tokens,cached_tokens,decode_requests,context_tokens,ms\n100,0,0,0,10\n,,1,10,5\n,,2,20,5\n"
FEW = ("--requests", "30", "--json")
OWN = """
class Second:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 1.0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.csv").write_text(STEPS)
    (tmp_path / "own_second.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def simulated(*words):
    done = headrace_here("simulate", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("folder")
def test_the_result_is_that_of_python_with_the_fixed_keys():
    found = simulated(
        "--step-model", "steps.csv", "--kv-blocks", "500", "--replay", str(TRACE), "--slo-ttft-ms", "50", "--json"
    )
    requests = headrace.token_requests(headrace.read_token_trace(TRACE), ttft_s=0.05)
    result = headrace.simulate_decoding(requests, "steps.csv", kv_blocks=500, seed=0).as_dict()
    assert set(found) == {*result, "kv_blocks", "settings", "warnings"}
    assert {"ttft_ms", "tpot_ms", "goodput_rps"} <= set(found)
    for name in set(result) - {"wall_s"}:
        assert found[name] == result[name], name
    assert found["settings"]["policy"] == "continuous" and found["kv_blocks"] == 500


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("policy", STEP_POLICIES)
def test_every_step_policy_runs_with_its_settings(policy):
    words = ("--policy", policy, "--set", "max_num_seqs=4", "--max-num-batched-tokens", "16384")
    found = simulated("--step-model", "own_second:Second", "--kv-blocks", "2000", "--rate-rps", "0.01", *words, *FEW)
    assert found["finished"] == 30 and found["settings"]["max_num_seqs"] == 4
    assert found["tpot_ms"]["p50"] >= 999 and found["batch_size_mean"] <= 4


def test_a_named_model_runs_on_a_gpu_and_more_gpus_are_faster():
    pytest.importorskip("aiconfigurator_core")
    one, four = (
        simulated("--model", "llama-3.1-8b", "--accelerator", "h200", "--tp", tp, "--rate-rps", "2", *FEW)
        for tp in ("1", "4")
    )
    assert four["tpot_ms"]["mean"] < one["tpot_ms"]["mean"] and four["kv_blocks"] > one["kv_blocks"]
    assert one["settings"]["accelerator"] == "h200" and one["warnings"] == []


def test_a_config_json_is_a_model_too(folder):
    pytest.importorskip("aiconfigurator_core")
    sizes = {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
    (folder / "config.json").write_text(json.dumps(sizes))
    found, named = (simulated("--model", model, *FEW) for model in ("config.json", "llama-3.1-8b"))
    assert found["latency_ms"] == named["latency_ms"]


@pytest.mark.usefixtures("folder")
def test_images_are_encoded_in_steps_or_on_a_device_of_their_own():
    words = ("--step-model", "own_second:Second", "--kv-blocks", "9000", "--rate-rps", "0.01", "--output-tokens", "1")
    words += ("--tokens-sigma", "0", "--images-per-request", "2", "--image-tokens", "100", "--encoder-ms", "500")
    in_steps = simulated(*words, *FEW)
    assert in_steps["ttft_ms"]["p50"] == pytest.approx(1500, rel=1e-3)
    own = simulated(*words, "--encoder-token-us", "1000", "--encoder-device", *FEW)
    assert own["ttft_ms"]["p50"] == pytest.approx(1700, rel=1e-3)


@pytest.mark.usefixtures("folder")
def test_settings_of_networks_have_no_effect_and_are_named():
    done = headrace_here(
        "simulate", "--step-model", "steps.csv", "--kv-blocks", "900", "--npus", "2", "--tp", "2", *FEW
    )
    assert done.returncode == 0
    assert "--npus has no effect with --policy continuous, --step-model" in done.stderr
    assert "--tp has no effect" in done.stderr
    network = headrace_here("simulate", "--model", "resnet50", "--tp", "2", "--requests", "10", "--rate-rps", "10")
    assert network.returncode == 0 and "--tp has no effect with --policy lazy" in network.stderr


@pytest.mark.usefixtures("folder")
def test_a_load_above_the_capacity_is_told():
    words = ("--step-model", "own_second:Second", "--kv-blocks", "900", "--rate-rps", "100", "--requests", "200")
    done = headrace_here("simulate", *words)
    assert done.returncode == 0 and "the queue grows to the end of the run" in done.stderr


@pytest.mark.usefixtures("folder")
def test_requests_that_never_fit_are_told():
    words = ("--step-model", "own_second:Second", "--kv-blocks", "2", "--rate-rps", "1", "--requests", "20")
    done = headrace_here("simulate", *words)
    assert done.returncode == 0
    assert "20 requests were refused, because the KV cache of 32 tokens is too small" in done.stderr


def test_settings_stand_in_a_file_and_a_grid_runs_every_combination(folder):
    settings = 'step_model = "steps.csv"\nkv_blocks = 900\nrequests = 40\n'
    (folder / "run.toml").write_text(settings + '[policy]\nname = "continuous"\nmax_num_seqs = 3\n')
    found = simulated("--config", "run.toml", "--json")
    assert found["settings"]["max_num_seqs"] == 3 and found["finished"] == 40
    (folder / "grid.toml").write_text(
        settings + 'policy = ["continuous", "token-deadline"]\nrate_rps = [1.0, 5.0]\nseeds = 2\n'
    )
    runs = simulated("--grid", "grid.toml", "--json")
    assert len(runs) == 8 and all(each["failed"] is None for each in runs)
    alone = simulated(
        "--step-model", "steps.csv", "--kv-blocks", "900", "--requests", "40", "--policy", "token-deadline",
        "--rate-rps", "5", "--seed", "1", "--json",
    )  # fmt: skip
    assert runs[-1]["result"]["ttft_ms"] == alone["ttft_ms"]
    table = headrace_here("simulate", "--grid", "grid.toml", "--out", "out")
    assert table.returncode == 0 and "goodput/s" in table.stdout and (folder / "out" / "runs.parquet").exists()
    again = headrace_here("simulate", "--grid", "grid.toml", "--out", "out")
    assert "8 runs are in" in again.stderr and again.stdout == table.stdout


def test_a_trace_of_the_steps_is_written(folder):
    done = headrace_here(
        "simulate", "--step-model", "steps.csv", "--kv-blocks", "900", "--requests", "5", "--trace", "t.pftrace"
    )
    assert done.returncode == 0 and b"prefill" in (folder / "t.pftrace").read_bytes()


LLAMA = ("--model", "llama-3.1-8b")
CSV = ("--step-model", "steps.csv", "--kv-blocks", "900")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--step-model", "steps.csv"), "--step-model tells no memory; give --kv-blocks, too"),
        (("--step-model", "none.csv", "--kv-blocks", "9"), "none.csv"),
        (("--step-model", "nothing", "--kv-blocks", "9"), "--step-model 'nothing': there is no such step model"),
        ((*CSV, "--policy", "preba"), "--policy 'preba': there is no such policy for models that decode"),
        ((*CSV, "--set", "coverage=0.5"), "--set coverage: continuous has no setting 'coverage'"),
        ((*CSV, "--max-num-seqs", "0"), "--max-num-seqs 0: give 1 to 65536"),
        ((*CSV, "--max-num-batched-tokens", "100"), "--max-num-batched-tokens 100 is below --max-num-seqs 256"),
        ((*CSV, "--slo-ms", "100"), "--slo-ms: give --slo-ttft-ms and --slo-tpot-ms"),
        ((*CSV, "--lengths", "speech"), "--lengths: give --prompt-tokens and --output-tokens"),
        ((*CSV, "--servers", "2"), "--servers: one replica is simulated"),
        ((*CSV, "--slo-ttft-ms", "-1"), "--slo-ttft-ms -1: give a number above 0"),
        ((*CSV, "--prompt-tokens", "9000"), "--longest-tokens 8192 is below the median"),
        ((*CSV, "--images-per-request", "1"), "--images-per-request needs the time of an encoder"),
        ((*CSV, "--images-per-request", "0:0.5", "--encoder-ms", "1"), "give a number, shares such as 0:0.7,1:0.3"),
        ((*CSV, "--images-per-request", "many", "--encoder-ms", "1"), "--images-per-request 'many': give a number"),
        ((*CSV, "--images-per-request", "trace", "--encoder-ms", "1"), "--images-per-request trace is for --replay"),
        ((*CSV, "--replay", "none.csv"), "--replay"),
        ((*CSV, "--replay", str(TRACE), "--rate-rps", "5"), "--replay brings its own arrivals; leave out --rate-rps"),
        ((*CSV, "--replay", "steps.csv"), "the first line is that of no known trace"),
        ((*CSV, "--replay-speed", "2"), "--replay-speed is for --replay; leave it out"),
        ((*LLAMA, "--accelerator", "npu"), "--accelerator 'npu': for a model that decodes, choose from a100-80gb"),
        ((*LLAMA, "--weight-precision", "int3"), "--weight-precision 'int3': choose from bf16"),
        ((*LLAMA, "--tp", "3"), "tp: 3 GPUs cannot share a model"),
        (("--model", "none.json"), "--model"),
        (("--model", "llama-3.1-70b"), "leaves no memory for the KV cache; give more GPUs by --tp"),
        (("--policy", "continuous"), "it is for models that decode; give such a model"),
    ],
    ids=lambda each: " ".join(each)[-50:] if isinstance(each, tuple) else "",
)
def test_bad_input_is_refused_with_what_to_change(words, message):
    if "llama-3.1" in " ".join(words):
        pytest.importorskip("aiconfigurator_core")
    done = headrace_here("simulate", *words)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_both_kinds_of_policies_are_listed_and_explained():
    listed = json.loads(headrace_here("policies", "--json").stdout)
    steps = [each["name"] for each in listed if each["tasks"] == "steps"]
    assert steps == list(STEP_POLICIES)
    both = json.loads(headrace_here("policies", "lazy", "--json").stdout)
    assert both["tasks"] == "nodes" and both["of_steps"]["tasks"] == "steps"
    assert "max_num_seqs" in {each["name"] for each in both["of_steps"]["settings"]}
    alone = json.loads(headrace_here("policies", "continuous", "--json").stdout)
    assert alone["tasks"] == "steps" and "of_steps" not in alone and "vLLM" in alone["paper"]
    assert "for models that decode" in headrace_here("policies").stdout
    assert headrace_here("policies", "lazy").stdout.count("Its tasks are ") == 2


SHARED = '{"timestamp": %d, "input_length": 1100, "output_length": 4, "hash_ids": [0, 1, %d]}\n'


@pytest.mark.usefixtures("folder")
def test_prompts_that_a_trace_tells_to_be_the_same_are_found_in_the_cache():
    Path("shared.jsonl").write_text("".join(SHARED % (100_000 * number, 2 + number) for number in range(4)))
    words = ("--step-model", "own_second:Second", "--kv-blocks", "500", "--replay", "shared.jsonl", "--json")
    found = simulated(*words)
    assert found["prefix_cache"]["hit_rate"] == pytest.approx(3 * 1024 / (4 * 1100))
    assert found["prefix_cache"]["tokens_not_computed"] == 3 * 1024
    assert found["settings"]["prefix_caching"] is True and not found["warnings"]
    assert simulated(*words, "--no-prefix-caching")["prefix_cache"] is None
    # Half of the requests: the first and the third one.
    assert simulated(*words, "--replay-every", "2")["prefix_cache"]["tokens_not_computed"] == 1024


@pytest.mark.usefixtures("folder")
def test_a_system_prompt_and_conversations_are_found_in_the_cache():
    words = ("--step-model", "own_second:Second", "--kv-blocks", "5000", "--rate-rps", "0.01", *FEW)
    words += ("--tokens-sigma", "0", "--prompt-tokens", "100")
    found = simulated(*words, "--system-tokens", "64")
    assert found["prefix_cache"]["tokens_not_computed"] == 29 * 64
    assert found["prefix_cache"]["hit_rate"] == pytest.approx(29 * 64 / (30 * 164))
    assert simulated(*words, "--turns", "5")["prefix_cache"]["hit_rate"] > 0.5
    assert simulated(*words)["prefix_cache"] is None
    assert simulated(*words, "--prefix-caching")["warnings"] == [
        "--prefix-caching has no effect with --policy continuous, --step-model"
    ]


def test_images_in_conversations_are_refused():
    done = headrace_here(
        "simulate", "--model", "llama-3.1-8b", "--turns", "2", "--images-per-request", "1", "--encoder-ms", "1"
    )
    assert done.returncode == 2 and "conversations and system prompts have no images" in done.stderr


def test_the_cache_takes_by_default_what_the_server_takes():
    blocks = {
        kernels: simulated("--model", "llama-3.1-8b", "--kernels", kernels, *FEW)["kv_blocks"]
        for kernels in ("trtllm", "vllm", "sglang")
    }
    for kernels, found in blocks.items():
        assert found == headrace.StepLatency("llama-3.1-8b", "h100", kernels).kv_tokens() // 16
    assert len(set(blocks.values())) == 3
    shared = simulated("--model", "llama-3.1-8b", "--memory-share", "0.5", *FEW)["kv_blocks"]
    assert shared == headrace.StepLatency("llama-3.1-8b", "h100", "vllm").kv_tokens(0.5) // 16
