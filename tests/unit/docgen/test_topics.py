"""The specification as a text: every clause on one page, with the cases that test it and how proxies stand."""

from collections import Counter

import pytest

from kproxy.conformance.subjects.subject import DOCUMENTED_SUBJECTS, load_subject
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.topics import TOPICS, topic_of_clause
from tools.docgen import topics

PAGES = {topic: topics.page(topic) for topic in TOPICS}
TEXT = "\n".join(PAGES.values())


def test_every_clause_is_on_one_page_and_the_index_counts_them() -> None:
    reported = Counter(clause.id for topic in TOPICS for clause in topics.clauses_of(topic))
    assert reported == Counter(list(CLAUSES))
    assert all(f'<a name="{id}"></a>' in PAGES[topic_of_clause(id).name] for id in CLAUSES)
    assert all(f"[{topic}]({topic}.md)" in topics.index() for topic in PAGES)


@pytest.mark.parametrize("name", DOCUMENTED_SUBJECTS)
def test_every_known_deviation_is_reported_with_its_link(name: str) -> None:
    of_cases = (
        d for d in load_subject(name, name).deviations if d.excuses
    )  # those of universes alone have docs/findings
    deviations = [d for d in of_cases if {e.case for e in d.excuses} != {"fuzz.*"}]
    assert [d.text for d in deviations if d.text not in TEXT or d.link not in TEXT] == []


def test_a_deviation_is_reported_where_its_clause_is_and_of_its_modes_only() -> None:
    section = TEXT.split("`conntrack.udp.stays-over-restart`\n")[1].split("\n## ")[0]
    assert "- kproxy: holds it in iptables, nftables, ipvs and userspace\n" in section
    assert "- kube-proxy: holds it in iptables and nftables\n" in section
    assert "kube-proxy in ipvs, `restart.udp-flows-stay-where-policy-leaves-nothing`" in section


def test_what_a_mode_does_not_claim_is_no_deviation() -> None:
    section = TEXT.split("`node-port.localhost.enabled.served`\n")[1].split("\n## ")[0]
    assert "- kube-proxy: holds it in iptables\n" in section
    assert "  - kube-proxy in ipvs does not claim localhostNodePorts\n" in section


def test_no_clause_is_listed_as_shown_by_a_case_that_does_not_cite_it() -> None:
    assert all(
        clause.id in case.clauses for clause in CLAUSES.values() for case in topics.cases_about(clause)
    )
