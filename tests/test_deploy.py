"""The files of deploy/ are what their programs take, and name what there is.

Kubernetes is checked against its own schemas, which a package brings. For compose none of the
packages has the schema, so that its structure is checked here; neither is run.
"""

from pathlib import Path
from typing import Any

import pytest

from kemem.serve.cli.commands import places
from kemem.settings import Settings
from tests.conftest import NOT_RUN

DEPLOY = Path(__file__).parents[1] / "deploy"
VERSIONS = ("1.30", "1.37")  # of Kubernetes
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
COMPOSE = {  # what a service may have, and the type of it
    **{"image": str, "build": dict, "environment": dict, "volumes": list, "restart": str},
    **{"healthcheck": dict, "depends_on": dict, "command": list, "ports": list, "deploy": dict},
}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}

try:
    import kubernetes_validate
    import yaml
except ImportError:
    pytest.skip(f"{NOT_RUN}: kubernetes-validate is missing", allow_module_level=True)


def is_setting(name: str) -> bool:
    return name.removeprefix("KEMEM_").lower() in Settings.model_fields


def is_command(words: list[str]) -> bool:
    return words[0] == "kemem" and words[1] in places()


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict[str, Any]]:
    """What the manifest declares, by kind and name."""
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))
    declared = {(it["kind"], it["metadata"]["name"]): it for it in documents}
    assert len(declared) == len(documents)
    return declared


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_is_valid(objects: dict[Any, dict[str, Any]], version: str) -> None:
    """By the strict schemas: a field that Kubernetes does not know fails."""
    for each in objects.values():
        kubernetes_validate.validate(each, version, strict=True)
        assert each["metadata"]["namespace"] == "kemem"


def test_the_parts_of_the_manifest_belong_together(objects: dict[Any, dict[str, Any]]) -> None:
    """A service that finds its pods, probes that have an answer, a job that makes the tables."""
    server = objects["Deployment", "kemem-server"]["spec"]
    labels = server["template"]["metadata"]["labels"]
    assert server["selector"]["matchLabels"] == labels
    assert "replicas" not in server  # the autoscaler says how many
    assert objects["Service", "kemem"]["spec"]["selector"] == labels
    budget = objects["PodDisruptionBudget", "kemem-server"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    scaled = objects["HorizontalPodAutoscaler", "kemem-server"]["spec"]
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["name"]) in objects
    assert scaled["minReplicas"] > budget["minAvailable"]
    (container,) = server["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == Settings.model_fields["port"].default
    assert objects["Service", "kemem"]["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe, path in PROBES.items():
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    specs = [it.get("spec", {}) for it in objects.values()]
    pods = [it["template"]["spec"] for it in specs if "template" in it]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert is_command(pod["containers"][0]["command"])
    assert all(map(is_setting, objects["ConfigMap", "kemem"]["data"]))


def test_the_services_of_compose_belong_together() -> None:
    """Every volume, service and setting that one names is there."""
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert composed.keys() == {"name", "x-kemem", "services", "volumes"}
    services = composed["services"]
    assert services.keys() == {"database", "migration", "server", "worker"}
    for service in services.values():
        assert all(isinstance(value, COMPOSE[key]) for key, value in service.items())
        assert {it.split(":")[0] for it in service["volumes"]} <= composed["volumes"].keys()
        for name, needed in service.get("depends_on", {}).items():
            assert name in services and needed["condition"] in CONDITIONS
        assert is_command(service.get("command", ["kemem", "serve"]))
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert all(map(is_setting, service["environment"]))
    assert services["server"]["deploy"]["replicas"] == 2
