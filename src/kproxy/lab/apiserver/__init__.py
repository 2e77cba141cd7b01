"""Small Kubernetes API server of the lab: list, watch, bookmarks, selectors, and injected faults.

    resources, versions --> store --> lists, watch, writes --> server
    selectors, options, routes, discovery, status, faults beside them

The harness holds an `ApiServer`, writes to its `ObjectStore`, and gives a proxy a `kubeconfig`.
"""

from kproxy.lab.apiserver.faults import Faults, Refuse, SlowStream, StallBookmarks, StallRequests
from kproxy.lab.apiserver.kubeconfig import kubeconfig
from kproxy.lab.apiserver.resources import ResourceKind
from kproxy.lab.apiserver.routes import Verb
from kproxy.lab.apiserver.server import ApiServer, RecordedRequest, url_of
from kproxy.lab.apiserver.store import ObjectStore

__all__ = [
    "ApiServer",
    "Faults",
    "ObjectStore",
    "RecordedRequest",
    "Refuse",
    "ResourceKind",
    "SlowStream",
    "StallBookmarks",
    "StallRequests",
    "Verb",
    "kubeconfig",
    "url_of",
]
