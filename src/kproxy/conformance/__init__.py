"""The harness: cases as values, testbeds that carry them out, verdicts, reports.

case --> cases (the catalogue)          probes and expectations, in names
bind, documents, world, surroundings    names to addresses, steps to API objects
testbed --> testbeds/                   what carries the steps out: simulator, netns, cluster
run --> session --> report, command     phases, judging, profiles side by side, results
"""
