"""Clauses of the topic objects: which Services, IP families and packets are a proxy's business at all."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

PACKET = (
    must(
        "objects.headless.untouched",
        "A Service whose clusterIP is None is not proxied, whatever else it lists.",
        DOCS,
        links.SERVICE_HEADLESS,
        of="obj.headless",
    ),
    must(
        "objects.without-cluster-ip.untouched",
        "A Service that has no cluster IP (yet) is not proxied.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        of="obj.no-cip",
    ),
    must(
        "objects.external-name.untouched",
        "A Service of type ExternalName is not proxied, even if it still has a cluster IP.",
        DOCS,
        links.SERVICE_EXTERNAL_NAME,
        links.E2E_SERVICE,
        of="obj.externalname",
    ),
    must(
        "objects.proxy-name-label.untouched",
        "A Service with the label service.kubernetes.io/service-proxy-name is left to another proxy.",
        KEP,
        links.PROXY_NAME_KEP,
        links.LABEL_PROXY_NAME,
        of="obj.service-proxy-name",
    ),
    must(
        "objects.single-family.other-family-untouched",
        "A Service with a cluster IP of one family only is not served at all in the other family.",
        KEP,
        links.DUAL_STACK_KEP,
        links.DUAL_STACK,
        of="ds.single-on-dual",
    ),
    should(
        "objects.dual-stack.node-of-one-family.served",
        "On a node whose kernel has IPv6 switched off, Services of both families are served in IPv4.",
        OBSERVED,
        links.kube_proxy_source("cmd/kube-proxy/app/server_linux"),
        links.DUAL_STACK_KEP,
        of="ds.capability",
    ),
    should(
        "objects.addresses.leading-zeros-decimal",
        "IPv4 octets with leading zeros are read as decimal, never as octal.",
        E2E,
        links.E2E_LEADING_ZEROS,
        of="ds.sloppy-ip eip.invalid",
    ),
    must(
        "traffic.not-for-a-service.untouched",
        "A packet to no Service's address is left alone and keeps its source.",
        E2E,
        links.E2E_NO_SNAT,
        of="masq.nonservice lb.status-removed",
    ),
    should(
        "traffic.own-source-from-outside.dropped",
        "A packet that comes from outside with an address of the node, or of loopback, as its source is not "
        "served (IPv4).",
        OBSERVED,
        links.kubernetes_issue(92315),
        of="np.martian-guard",
    ),
    may(
        "traffic.two-services-one-address.either",
        "When two Services list the same external address and port, either may answer.",
        OBSERVED,
        links.kubernetes_issue(69599),
        of="eip.basic",
    ),
)
"""Clauses that the outcome of one first packet shows."""
