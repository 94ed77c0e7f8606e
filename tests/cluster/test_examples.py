"""The examples in ``configs/cluster``, checked by Ray's own schemas and against pyproject.toml."""

import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary
from ray.serve.schema import ServeDeploySchema

from cluster.config import RAY_ENVIRONMENT
from serve.app import build_application
from serve.config import ServeConfig

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "configs" / "cluster"


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / name).read_text())


def dockerfile() -> str:
    return (EXAMPLES / "Dockerfile").read_text()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_launcher_file_is_what_ray_takes() -> None:
    config = read("launcher.yaml")
    ready = prepare_config(config)
    validate_config(ready)
    [nodes] = ready["available_node_types"].values()
    assert nodes["min_workers"] == len(config["provider"]["worker_ips"])
    with pytest.raises(jsonschema.ValidationError, match="head_start_commands"):
        validate_config(ready | {"head_start_commands": []})


def test_every_example_starts_ray_as_the_program_does() -> None:
    launcher = read("launcher.yaml")
    starts = {
        "head": launcher["head_start_ray_commands"][-1],
        "worker": launcher["worker_start_ray_commands"][-1],
        "image": dockerfile(),
    }
    for name, text in starts.items():
        set_there = dict(re.findall(r"\b(RAY_\w+)=(\w+)", text))
        asked = {} if name == "image" else {"RAY_AUTH_MODE": "token"}
        assert set_there == RAY_ENVIRONMENT | asked, name


def test_the_service_is_what_ray_serve_takes_and_builds() -> None:
    spec = read("rayservice.yaml")["spec"]
    deployed = ServeDeploySchema.model_validate(yaml.safe_load(spec["serveConfigV2"]))
    [application] = deployed.applications
    assert application.import_path == f"serve.app:{build_application.__name__}"
    config = ServeConfig.model_validate(application.args)
    assert (config.target.path, config.decode.method) == ("sdar-tiny", "chain")
    built = call_user_app_builder_with_args_if_necessary(build_application, application.args)
    names = [deployment.name for deployment in application.deployments]
    assert names == [built._bound_deployment.name]
    # A worker without a replica never gets ready in KubeRay.
    [deployment] = application.deployments
    [workers] = spec["rayClusterConfig"]["workerGroupSpecs"]
    assert deployment.max_replicas_per_node == 1
    assert deployment.num_replicas == workers["replicas"]


def test_the_service_and_its_image_have_one_ray_that_the_program_takes_with_tokens_on() -> None:
    cluster = read("rayservice.yaml")["spec"]["rayClusterConfig"]
    needed = map(Requirement, project()["project"]["dependencies"])
    [taken] = [each.specifier for each in needed if each.name == "ray"]
    assert cluster["rayVersion"] in taken
    assert re.findall(r"\bray==(\S+)", dockerfile()) == [cluster["rayVersion"]]
    assert cluster["authOptions"] == {"mode": "token"}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            assert container["image"] == "maskahead:latest"


def test_the_image_holds_all_that_is_installed_on_a_python_that_fits() -> None:
    text = dockerfile()
    copied = {word for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for word in line.split()}
    built = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    about = project()["project"]
    files = {about["readme"], *about["license-files"], *built["include"], "pyproject.toml"}
    assert copied == {*built["packages"], *files, "configs"}
    version = re.search(r"^FROM python:3\.(\d+)", text, re.M)
    least = re.fullmatch(r">=3\.(\d+)", about["requires-python"])
    assert version
    assert least
    assert int(version[1]) >= int(least[1])
    assert all((ROOT / name).exists() for name in copied)
