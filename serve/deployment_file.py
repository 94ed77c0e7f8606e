"""A file for ``serve deploy``: the endpoint on a cluster of any size, without this command."""

from pathlib import Path
from typing import Any

import yaml

from serve.app import Endpoint, build_application, for_other_processes
from serve.config import ServeConfig
from serve.keys import check_reach
from serve.moves import ServedSettings
from serve.running import APPLICATION, SPARE_SECONDS

HEAD = """\
# Made by `maskahead serve --write-config`. On a machine of the cluster: serve deploy {name}
# Deploying it again after a change of user_config alone restarts nothing. The code, the target
# and its drafter lie at the same paths on every node; the keys stand here as hashes.
"""


def deployment_values(config: ServeConfig, host: str, port: int) -> dict[str, Any]:
    """What Ray Serve's schema of a deployment file holds for ``config``."""
    config = for_other_processes(config)
    values = config.model_dump(mode="json", exclude_unset=True)
    # What the file says of it is what counts: nobody may have exported other keys there.
    keyless = not config.serve.api_key_hashes
    values["serve"]["allow_no_keys"] = keyless and config.serve.allow_no_keys
    values["serve"]["loopback_only"] = keyless and not config.serve.allow_no_keys
    return {
        "proxy_location": "EveryNode",
        "http_options": {
            "host": host,
            "port": port,
            "request_timeout_s": config.serve.request_seconds + SPARE_SECONDS,
        },
        "applications": [
            {
                "name": APPLICATION,
                "route_prefix": "/",
                "import_path": f"{build_application.__module__}:{build_application.__name__}",
                "args": values,
                "deployments": [
                    {
                        "name": Endpoint.__name__,
                        "user_config": ServedSettings.of(config).values(),
                    }
                ],
            }
        ],
    }


def write_deployment(config: ServeConfig, host: str, port: int, file: Path) -> None:
    """Write the file. Raises ``ValueError`` for an endpoint that others could use without a key."""
    check_reach(host, config.serve)
    text = yaml.safe_dump(deployment_values(config, host, port), sort_keys=False)
    file.write_text(HEAD.format(name=file.name) + text, encoding="utf-8")
