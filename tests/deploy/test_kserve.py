"""deploy/kserve: what the manifests say is what KServe takes and what `headrace serve` understands.

SCHEMAS are written here, of the fields in use only, after KServe's API: v1alpha1.ServingRuntime and
v1beta1.InferenceService. KServe's own definitions are megabytes: KSERVE_CRDS names a folder that has them, as
config/crd/full of its repository does, and then they are asked, too."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import fastjsonschema
import pytest
import typer
import yaml

from headrace.host.cli.main import app

KSERVE = Path(__file__).parents[2] / "deploy" / "kserve"
STRING = {"type": "string", "minLength": 1}
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
COUNT = {"type": "integer", "minimum": 1}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
QUANTITY = {"type": "string", "pattern": "^[0-9]+(m|Mi|Gi)?$"}
PROTOCOL = {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}


def obj(required: dict, optional: dict | None = None) -> dict:
    """An object of these fields and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def array(of: dict) -> dict:
    return {"type": "array", "items": of, "minItems": 1}


def manifest(version: str, kind: str, spec: dict) -> dict:
    head = {"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": obj({"name": NAME})}
    return obj({**head, "spec": spec})


PROBE = obj({"httpGet": obj({"path": STRING, "port": PORT})}, {"periodSeconds": COUNT, "failureThreshold": COUNT})
AMOUNTS = obj({"cpu": QUANTITY, "memory": QUANTITY})
CONTAINER = obj(
    {"name": {"const": "kserve-container"}, "image": STRING, "args": array(STRING)},
    {
        "ports": array(obj({"containerPort": PORT}, {"name": NAME, "protocol": {"enum": ["TCP"]}})),
        "startupProbe": PROBE,
        "readinessProbe": PROBE,
        "livenessProbe": PROBE,
        "resources": obj({}, {"requests": AMOUNTS, "limits": AMOUNTS}),
    },
)
FORMAT = obj({"name": STRING}, {"version": STRING, "autoSelect": {"type": "boolean"}})
MODEL = obj(
    {"modelFormat": obj({"name": STRING}, {"version": STRING})},
    {"runtime": NAME, "protocolVersion": PROTOCOL, "storageUri": STRING},
)
PREDICTOR = {"minReplicas": COUNT, "maxReplicas": COUNT, "terminationGracePeriodSeconds": COUNT}
SCHEMAS = {
    "serving-runtime.yaml": manifest(
        "serving.kserve.io/v1alpha1",
        "ServingRuntime",
        obj(
            {"containers": array(CONTAINER)},
            {"supportedModelFormats": array(FORMAT), "protocolVersions": array(PROTOCOL)},
        ),
    ),
    "inference-service.yaml": manifest(
        "serving.kserve.io/v1beta1", "InferenceService", obj({"predictor": obj({"model": MODEL}, PREDICTOR)})
    ),
}


def read(name: str) -> dict:
    return yaml.safe_load((KSERVE / name).read_text())


@pytest.fixture
def container() -> dict:
    return read("serving-runtime.yaml")["spec"]["containers"][0]


@pytest.fixture
def options(container) -> dict:
    """What `headrace serve` makes of the runtime's arguments; it refuses those that it does not know."""
    serve = typer.main.get_command(app).get_command(None, "serve")
    return serve.make_context("serve", list(container["args"])).params


def test_there_is_a_schema_for_each_manifest():
    assert {file.name for file in KSERVE.iterdir()} == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_manifests_are_as_kserve_takes_them(name):
    fastjsonschema.compile(SCHEMAS[name])(read(name))


@pytest.mark.skipif("KSERVE_CRDS" not in os.environ, reason="KSERVE_CRDS is not set")
@pytest.mark.parametrize("name", SCHEMAS)
def test_kserves_own_definitions_take_them(name):
    found = read(name)
    plural = f"{found['kind'].lower()}s"
    definition = yaml.safe_load(Path(os.environ["KSERVE_CRDS"], f"serving.kserve.io_{plural}.yaml").read_text())
    versions = {each["name"]: each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"]}
    valid = fastjsonschema.compile(closed(versions[found["apiVersion"].partition("/")[2]]))
    valid(found)
    found["spec"]["container"] = []
    with pytest.raises(fastjsonschema.JsonSchemaValueException, match="container"):
        valid(found)


def closed(schema: object) -> object:
    """A cluster drops fields that it does not know; here they are errors. Of the metadata a definition says nothing."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return {**found, "additionalProperties": False} if isinstance(found.get("properties"), dict) else found


def test_the_service_asks_for_what_the_runtime_offers():
    runtime, service = read("serving-runtime.yaml"), read("inference-service.yaml")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [(each["name"], each["version"]) for each in runtime["spec"]["supportedModelFormats"]]
    assert (model["modelFormat"]["name"], model["modelFormat"]["version"]) in formats


def test_the_network_is_named_as_the_service_is_and_found_where_kserve_puts_it(options):
    assert options["model"] == ["{{.Name}}=/mnt/models/model.pt2"]


def test_probes_and_port_are_where_the_server_listens(container, options):
    served = urlsplit(f"//{options['http']}")
    assert (served.hostname, options["insecure"]) == ("0.0.0.0", True)
    assert [port["containerPort"] for port in container["ports"]] == [served.port]
    paths = {"startupProbe": "ready", "readinessProbe": "ready", "livenessProbe": "live"}
    for probe, of in paths.items():
        assert container[probe]["httpGet"] == {"path": f"/v2/health/{of}", "port": served.port}


def test_a_pod_ends_after_its_requests_did(options):
    predictor = read("inference-service.yaml")["spec"]["predictor"]
    assert predictor["terminationGracePeriodSeconds"] > options["drain_s"]
