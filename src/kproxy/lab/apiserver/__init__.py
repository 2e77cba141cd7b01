"""The lab's small Kubernetes API server: list, watch, bookmarks, selectors, and injected faults.

    resources, versions --> store --> lists, watch, writes --> server
    selectors, options, routes, discovery, status, faults beside them

The harness holds an `ApiServer`, writes to its `Store`, and gives a proxy a `kubeconfig`.
"""

from kproxy.lab.apiserver.faults import Faults, Hold, Refuse, SlowStream, StallBookmarks
from kproxy.lab.apiserver.kubeconfig import kubeconfig
from kproxy.lab.apiserver.resources import Kind
from kproxy.lab.apiserver.routes import Verb
from kproxy.lab.apiserver.server import ApiServer, Request, url_of
from kproxy.lab.apiserver.store import Store

__all__ = [
    "ApiServer",
    "Faults",
    "Hold",
    "Kind",
    "Refuse",
    "Request",
    "SlowStream",
    "StallBookmarks",
    "Store",
    "Verb",
    "kubeconfig",
    "url_of",
]
