"""Plans of services that have a number, from which their addresses and ports come."""

from kproxy.model.network import Family
from kproxy.proxy.plan import Exposure, Plan, ServicePlan
from tests.support.plans import frontend, plan_of, pool, service


def address(family: Family, number: int) -> str:
    return f"10.96.0.{number}" if family is Family.IPV4 else f"fd00:96::{number}"


def endpoints(family: Family, *numbers: int) -> tuple[str, ...]:
    if family is Family.IPV4:
        return tuple(f"10.0.0.{number}:80" for number in numbers)
    return tuple(f"fd00:10::{number}#80" for number in numbers)


def numbered(family: Family, number: int, *backends: int, affinity: int | None = None) -> ServicePlan:
    reached = pool(*endpoints(family, *backends))
    fronts = (
        frontend(Exposure.CLUSTER_IP, address(family, number), 80, reached),
        frontend(Exposure.NODE_PORT, None, 30000 + number, reached),
    )
    return service(*fronts, name=f"ns/svc{number}:http", affinity=affinity)


def plan(family: Family, *services: ServicePlan) -> Plan:
    return plan_of(*services, family=family, detector=None)
