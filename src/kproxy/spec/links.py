"""Where clauses come from: links to Kubernetes documentation, proposals, tests and reports.

Data and the functions that spell a link out; the clauses in `kproxy.spec.clauses` cite them.
"""

from __future__ import annotations

_DOCS = "https://kubernetes.io/docs"
_ENHANCEMENTS = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network"
_KUBERNETES = "https://github.com/kubernetes/kubernetes"

SERVICE = f"{_DOCS}/concepts/services-networking/service/"
SERVICE_HEADLESS = f"{SERVICE}#headless-services"
SERVICE_EXTERNAL_NAME = f"{SERVICE}#externalname"
SERVICE_EXTERNAL_IPS = f"{SERVICE}#external-ips"
SERVICE_NODE_PORT = f"{SERVICE}#type-nodeport"
SERVICE_IP_MODE = f"{SERVICE}#load-balancer-ip-mode"
SERVICE_NO_NODE_PORTS = f"{SERVICE}#load-balancer-nodeport-allocation"
SERVICE_MIXED_PROTOCOLS = f"{SERVICE}#load-balancers-with-mixed-protocol-types"
SERVICE_API = f"{_DOCS}/reference/kubernetes-api/service-resources/service-v1/"
SLICE_API = f"{_DOCS}/reference/kubernetes-api/service-resources/endpoint-slice-v1/"
SLICES = f"{_DOCS}/concepts/services-networking/endpoint-slices/"
SLICES_DUPLICATES = f"{SLICES}#duplicate-endpoints"
LABELS = f"{_DOCS}/reference/labels-annotations-taints/"
LABEL_PROXY_NAME = f"{LABELS}#servicekubernetesioservice-proxy-name"
LABEL_HEADLESS = f"{LABELS}#servicekubernetesioheadless"
VIRTUAL_IPS = f"{_DOCS}/reference/networking/virtual-ips/"
USERSPACE_PROXY = f"{_KUBERNETES}/blob/v1.25.0/pkg/proxy/userspace/proxysocket.go"
USERSPACE_BALANCER = f"{_KUBERNETES}/blob/v1.25.0/pkg/proxy/userspace/roundrobin_test.go"
MIN_SYNC_PERIOD = f"{VIRTUAL_IPS}#minsyncperiod"
SYNC_PERIOD = f"{VIRTUAL_IPS}#syncperiod"
PROGRAMMING_LATENCY = (
    "https://github.com/kubernetes/community/blob/main/sig-scalability/slos/network_programming_latency.md"
)
PROGRAMMING_LATENCY_TESTED = "https://github.com/kubernetes/perf-tests/issues/2407"
TRAFFIC_POLICIES = f"{VIRTUAL_IPS}#traffic-policies"
INTERNAL_POLICY = f"{VIRTUAL_IPS}#internal-traffic-policy"
EXTERNAL_POLICY = f"{VIRTUAL_IPS}#external-traffic-policy"
TERMINATING = f"{VIRTUAL_IPS}#traffic-to-terminating-endpoints"
AFFINITY = f"{VIRTUAL_IPS}#session-affinity"
TOPOLOGY = f"{_DOCS}/concepts/services-networking/topology-aware-routing/"
DUAL_STACK = f"{_DOCS}/concepts/services-networking/dual-stack/"
SOURCE_IP = f"{_DOCS}/tutorials/services/source-ip/"
DEBUG_HAIRPIN = (
    f"{_DOCS}/tasks/debug/debug-application/debug-service/#a-pod-fails-to-reach-itself-via-the-service-ip"
)
CHANGES_IN_API = f"{_DOCS}/reference/using-api/api-concepts/#efficient-detection-of-changes"
XT_RECENT = "https://github.com/torvalds/linux/blob/v6.1/net/netfilter/xt_recent.c"
PROTOCOLS = f"{_DOCS}/reference/networking/service-protocols/"
PROXY_CONFIGURATION = f"{_DOCS}/reference/config-api/kube-proxy-config.v1alpha1/"
PROXY_COMMAND = f"{_DOCS}/reference/command-line-tools-reference/kube-proxy/"
FEATURE_GATES = f"{_DOCS}/reference/command-line-tools-reference/feature-gates/"


def kep(directory: str) -> str:
    """The directory of an enhancement proposal of SIG Network."""
    return f"{_ENHANCEMENTS}/{directory}"


DUAL_STACK_KEP = kep("563-dual-stack")
SCTP_KEP = kep("614-SCTP-support")
SLICES_KEP = kep("0752-endpointslices")
MIXED_PROTOCOLS_KEP = kep("1435-mixed-protocol-lb")
PROXY_TERMINATING_KEP = kep("1669-proxy-terminating-endpoints")
TERMINATING_KEP = kep("1672-tracking-terminating-endpoints")
IP_MODE_KEP = kep("1860-kube-proxy-IP-node-binding")
NO_NODE_PORTS_KEP = kep("1864-disable-lb-node-ports")
SERVICE_CIDRS_KEP = kep("1880-multiple-service-cidrs")
INTERNAL_POLICY_KEP = kep("2086-service-internal-traffic-policy")
HINTS_KEP = kep("2433-topology-aware-hints")
PROXY_NAME_KEP = kep("2447-Make-kube-proxy-service-abstraction-optional")
DETECT_LOCAL_KEP = kep("2450-Remove-knowledge-of-pod-cluster-CIDR-from-iptables-rules")
SAME_NODE_KEP = kep("3015-prefer-same-node")
IPTABLES_CLEANUP_KEP = kep("3178-iptables-cleanup")
NFTABLES_KEP = kep("3866-nftables-proxy")
DRAINING_KEP = kep("3836-kube-proxy-improved-ingress-connectivity-reliability")
NODE_PREDICATES_KEP = kep("3458-remove-transient-node-predicates-from-service-controller")
TRAFFIC_DISTRIBUTION_KEP = kep("4444-service-traffic-distribution")
EXTERNAL_IPS_KEP = kep("5707-deprecate-service-externalips")


def e2e_test(file: str) -> str:
    """A file of upstream's end-to-end network tests."""
    return f"{_KUBERNETES}/blob/master/test/e2e/network/{file}.go"


def unit_test(file: str) -> str:
    """A file of upstream's unit tests of the proxy."""
    return f"{_KUBERNETES}/blob/master/pkg/proxy/{file}_test.go"


def kube_proxy_source(file: str) -> str:
    """A file of upstream's proxy, for what it alone documents."""
    return f"{_KUBERNETES}/blob/v1.36.0/{file}.go"


def kubernetes_issue(number: int) -> str:
    """An upstream issue or pull request."""
    return f"{_KUBERNETES}/issues/{number}"


E2E_SERVICE = e2e_test("service")
E2E_NETWORKING = e2e_test("networking")
E2E_CONNTRACK = e2e_test("conntrack")
E2E_KUBE_PROXY = e2e_test("kube_proxy")
E2E_DUAL_STACK = e2e_test("dual_stack")
E2E_SLICES = e2e_test("endpointslice")
E2E_LOAD_BALANCER = e2e_test("loadbalancer")
E2E_TRAFFIC_DISTRIBUTION = e2e_test("traffic_distribution")
E2E_NO_SNAT = e2e_test("no_snat")
E2E_SERVICE_CIDRS = e2e_test("service_cidrs")
E2E_LEADING_ZEROS = e2e_test("funny_ips")
UNIT_IPTABLES = unit_test("iptables/proxier")
UNIT_NFTABLES = unit_test("nftables/proxier")
UNIT_TOPOLOGY = unit_test("topology")
UNIT_SERVICE_MAP = unit_test("servicechangetracker")
UNIT_ENDPOINTS_MAP = unit_test("endpointschangetracker")
UNIT_CONNTRACK = unit_test("conntrack/cleanup")
UNIT_HEALTH = unit_test("healthcheck/healthcheck")
UNIT_RUNNER = unit_test("runner/bounded_frequency_runner")
UNIT_DETECT_LOCAL = unit_test("util/localdetector")
SOURCE_NODE_PORT_ADDRESSES = kube_proxy_source("pkg/proxy/util/nodeport_addresses")
SOURCE_IPTABLES = kube_proxy_source("pkg/proxy/iptables/proxier")
SOURCE_NFTABLES = kube_proxy_source("pkg/proxy/nftables/proxier")
SOURCE_HEALTH = kube_proxy_source("pkg/proxy/healthcheck/service_health")
SOURCE_PROXY_HEALTH = kube_proxy_source("pkg/proxy/healthcheck/proxy_health")
SOURCE_ENDPOINTS_MAP = kube_proxy_source("pkg/proxy/endpointschangetracker")
SOURCE_META_PROXIER = kube_proxy_source("pkg/proxy/metaproxier/meta_proxier")
SOURCE_IPVS = kube_proxy_source("pkg/proxy/ipvs/proxier")
UNIT_NODE_PORT_ADDRESSES = unit_test("util/nodeport_addresses")
