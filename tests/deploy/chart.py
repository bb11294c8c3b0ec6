"""The chart as Helm renders it, and what Kubernetes says of the form of each object. Helm is built with this machine's Go, as the object
store of the tests is; the form comes with the Go module of Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jsonschema import Draft7Validator

from scribengin.core.cache import cache_folder
from scribengin.core.storage import replace
from scribengin.embedded.go_programs import built, require_go, run_go

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "scribengin"
CASES = sorted(file.name.removesuffix("-values.yaml") for file in (CHART / "ci").glob("*-values.yaml"))
RELEASE, NAMESPACE = "scribengin", "flows"
KUBERNETES = "1.35.4"
_HELM, _HELM_VERSION = "helm.sh/helm/v4/cmd/helm", "v4.3.2"
_MODULE = f"k8s.io/kubernetes@v{KUBERNETES}"
_TEXT_OR_NUMBER = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}


def provide(tell: Callable[[str], None] = lambda _line: None) -> None:
    """Have Helm and the form of objects there, so that no test waits for them. Raises EnvironmentFault: there is no Go, or it fails."""
    built(_HELM, _HELM_VERSION, tell)
    _form_file()


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm; it reads and writes nothing of the user's."""
    with tempfile.TemporaryDirectory() as home:
        folders = {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ["PATH"], "HOME": home, **folders}
        return subprocess.run([built(_HELM, _HELM_VERSION), *words], env=environment, capture_output=True, text=True, check=False)


def values_of(case: str) -> Path:
    return CHART / "ci" / f"{case}-values.yaml"


def template(case: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Render the chart with the values of a case, and with further options."""
    return helm(
        "template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES, "--values", str(values_of(case)), *words
    )


@cache
def objects(case: str, *words: str) -> list[dict[str, Any]]:
    """The objects of the chart."""
    rendered = template(case, *words)
    assert rendered.returncode == 0, rendered.stderr
    return [each for each in yaml.safe_load_all(rendered.stdout) if each is not None]


def of_kind(case: str, kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in objects(case) if each["kind"] == kind}


def worker_template(case: str) -> dict[str, Any]:
    """The template of the pods of workers, which is the text of a ConfigMap."""
    (holder,) = of_kind(case, "ConfigMap").values()
    found = yaml.safe_load(holder["data"]["pod-template.yaml"])
    assert isinstance(found, dict)
    return found


def pods(case: str) -> dict[str, dict[str, Any]]:
    """The specifications of all pods that there are of the chart, by component."""
    sets = of_kind(case, "StatefulSet").values()
    servers = {each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"] for each in sets}
    return servers | {"worker": worker_template(case)["spec"]}


def _form_file() -> Path:
    """The description of Kubernetes' API, as OpenAPI. It is taken out of the module once."""
    path = cache_folder() / "kubernetes" / f"swagger-{KUBERNETES}.json"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:  # no module around it
            words = ["mod", "download", "-json", _MODULE]
            answer = json.loads(run_go(require_go("the API of Kubernetes"), words, Path(folder), f"fetch {_MODULE}"))
        with zipfile.ZipFile(answer["Zip"]) as module:
            replace(path, module.read(f"{_MODULE}/api/openapi-spec/swagger.json"))
    return path


@cache
def _forms() -> tuple[dict[tuple[str, str], str], dict[str, Any]]:
    """((apiVersion, kind) → the name of its definition; all definitions, which allow no field that they do not name)."""
    definitions = json.loads(_form_file().read_bytes())["definitions"]
    kinds = {}
    for name, each in definitions.items():
        if "properties" in each:
            each.setdefault("additionalProperties", False)
        for found in each.get("x-kubernetes-group-version-kind", ()):
            kinds["/".join(filter(None, (found["group"], found["version"]))), found["kind"]] = name
    return kinds, definitions | _TEXT_OR_NUMBER


def faults_of_form(found: dict[str, Any]) -> list[str]:
    """What Kubernetes would not accept in an object: unknown and missing fields, and wrong types."""
    kinds, definitions = _forms()
    name = kinds.get((found["apiVersion"], found["kind"]))
    if name is None:
        return [f"Kubernetes {KUBERNETES} has no {found['kind']} of {found['apiVersion']}"]
    validator = Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": definitions})
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(found)]
