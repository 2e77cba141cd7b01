"""The harness: cases as values, testbeds that carry them out, verdicts, reports.

=========================  ====================================================================================
``case``                   the language of cases: steps, targets, expectations, all in names
``cases``                  the catalogue
``binding``                ``bind``: names to addresses; ``world``, ``kubernetes_objects``, ``lab_objects``: steps to
                           API objects
``testbed``                the protocol of testbeds; ``testbeds`` has them: simulator, namespaces, a real cluster
``subjects``               proxies under test: how they are started, features they claim, known deviations
``engine``                 ``runner``: the cases of one lab, round by round; ``judging``: their observations;
                           ``session``: all labs, merged into a report
``reports``                results, in every form in which they are printed, written and read
``generate``               random cases, and cases from a cluster's dump
``command``, ``options``   ``kproxy conformance``; ``pytest_items``: the catalogue as items of pytest
=========================  ====================================================================================
"""
