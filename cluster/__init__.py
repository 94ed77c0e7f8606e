"""The cluster that everything runs on: session, placement, tracking."""

import os

# Read when Ray is imported. A call to a cluster that has ended must fail, not start another one.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
