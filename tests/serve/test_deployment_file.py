"""``maskahead serve --write-config`` writes what ``serve deploy`` reads."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve.app import build_application
from serve.config import ServeConfig
from serve.deployment_file import write_deployment
from serve.keys import fresh_key, hash_of, key_line
from serve.operation import OperationConfig
from tests.serve.conftest import MODEL


def written(config: ServeConfig, file: Path, host: str = "127.0.0.1") -> ServeDeploySchema:
    """The file as Ray Serve validates it, unknown keys refused."""
    write_deployment(config, host, 8123, file)
    return ServeDeploySchema.model_validate(yaml.safe_load(file.read_text()))


def operated(config: ServeConfig, **values: Any) -> ServeConfig:
    return config.model_copy(update={"serve": OperationConfig.model_validate(values)})


def test_the_file_builds_the_same_application(serve_config: ServeConfig, tmp_path: Path) -> None:
    schema = written(serve_config, tmp_path / "deploy.yaml")
    (application,) = schema.applications
    assert (schema.http_options.host, schema.http_options.port) == ("127.0.0.1", 8123)
    assert application.import_path == "serve.app:build_application"
    built: Any = build_application(application.args)
    deployment = built._bound_deployment
    assert deployment.name == application.deployments[0].name == "Endpoint"
    assert deployment.user_config == application.deployments[0].user_config
    (config,) = deployment.init_args
    assert config.decode == serve_config.decode
    assert config.model_name == MODEL
    assert Path(config.target.path).is_absolute()


def test_copies_scale_between_their_bounds(serve_config: ServeConfig, tmp_path: Path) -> None:
    scaled = operated(serve_config, replicas=1, max_replicas=3, requests_per_replica=2)
    (application,) = written(scaled, tmp_path / "deploy.yaml").applications
    built: Any = build_application(application.args)
    scaling = built._bound_deployment._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 3)
    assert scaling.target_ongoing_requests == 2
    fixed: Any = build_application(
        written(operated(serve_config, replicas=2), tmp_path / "fixed.yaml").applications[0].args
    )
    assert fixed._bound_deployment.num_replicas == 2


@pytest.mark.parametrize(
    "values", [{"replicas": 3, "max_replicas": 2}, {"requests_per_replica": 2.0}]
)
def test_copies_that_contradict_each_other_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"serve\.(max_replicas|requests_per_replica)"):
        OperationConfig.model_validate(values)


def test_keys_stand_in_the_file_as_hashes(serve_config: ServeConfig, tmp_path: Path) -> None:
    key, keys = fresh_key(), tmp_path / "keys"
    keys.write_text(key_line("ann", key))
    file = tmp_path / "deploy.yaml"
    (application,) = written(operated(serve_config, api_keys_file=keys), file, "::").applications
    operation = application.args["serve"]
    assert operation["api_key_hashes"] == [f"ann:{hash_of(key)}"]
    assert operation["allow_no_keys"] is False
    assert key not in file.read_text()


def test_without_keys_others_are_not_served(serve_config: ServeConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no API key is set"):
        write_deployment(serve_config, "0.0.0.0", 8000, tmp_path / "deploy.yaml")
    (application,) = written(serve_config, tmp_path / "deploy.yaml").applications
    built: Any = build_application(application.args)
    (config,) = built._bound_deployment.init_args
    assert not config.serve.allow_no_keys, "its Host is looked at, as the command does"
    bare = application.args | {"serve": {}}
    with pytest.raises(ValueError, match="no API key is set"):
        build_application(bare)


def test_a_file_with_an_unknown_key_is_refused_with_the_valid_ones(
    serve_config: ServeConfig, tmp_path: Path
) -> None:
    (application,) = written(serve_config, tmp_path / "deploy.yaml").applications
    with pytest.raises(ValueError, match=r"serve\.max_bodies: unknown key; valid: .*max_body"):
        build_application(application.args | {"serve": {"max_bodies": 3}})
