"""``kproxy conformance``: run the catalogue, generate cases, judge a cluster, compare results, list and show cases."""

from __future__ import annotations

import argparse
import sys

from kproxy.cli.arguments import Commands, add_command, add_commands, build_options
from kproxy.options.option import OptionUser
from kproxy.options.table import with_new_names


def add_conformance_command(commands: Commands) -> None:
    """Add the command, its actions and their options."""
    actions = add_commands(commands, "conformance")
    add_command(actions, OptionUser.RUN, _run)
    add_command(actions, OptionUser.FUZZ, _fuzz)
    add_command(actions, OptionUser.CLUSTER, _cluster)
    report = add_command(actions, OptionUser.REPORT, _report)
    report.set_defaults(error=report.error)
    add_command(actions, OptionUser.VERIFY, _verify)
    add_command(actions, OptionUser.LIST, _list)
    add_command(actions, OptionUser.SHOW, _show)


def _run(options: argparse.Namespace) -> int:
    from kproxy.conformance import command
    from kproxy.conformance.options import RunOptions

    maxfail = options.maxfail or int(options.exit_first)
    return command.run_conformance(
        build_options(RunOptions, options, **_chosen_form(options), maxfail=maxfail)
    )


def _chosen_form(options: argparse.Namespace) -> dict[str, str]:
    """``-o FORM --output FILE`` as the option of that form: ``--FORM FILE``."""
    return {} if options.form == "text" else {options.form: options.output}


def _fuzz(options: argparse.Namespace) -> int:
    import secrets
    from dataclasses import replace

    from kproxy.conformance.generate import command
    from kproxy.conformance.options import RunOptions

    run = build_options(RunOptions, options, mode=options.mode or "iptables")
    mode = options.against_mode or run.mode
    other = replace(run, proxy=options.against or options.proxy, binary=options.against_binary, mode=mode)
    return command.run_fuzz(
        build_options(
            command.FuzzOptions,
            options,
            run=run,
            seed=secrets.randbelow(10**6) if options.seed is None else options.seed,
            other_run=other if options.against or options.against_mode else None,
            shrink=not options.no_shrink,
            arguments=with_new_names(sys.argv[3:]),
        )
    )


def _cluster(options: argparse.Namespace) -> int:
    from kproxy.conformance.options import RunOptions
    from kproxy.conformance.testbeds.cluster import command

    run = build_options(RunOptions, options, testbed="cluster", **_chosen_form(options))
    return command.run_in_cluster(build_options(command.ClusterOptions, options, run=run))


def _report(options: argparse.Namespace) -> int:
    from kproxy.conformance.reports import command
    from kproxy.conformance.reports.outputs import Outputs

    if options.schema:
        return command.print_results_schema()
    if not options.files:
        options.error("give at least one FILE.json, or --schema")
    return command.report_files(options.files, build_options(Outputs, options, **_chosen_form(options)))


def _verify(options: argparse.Namespace) -> int:
    from kproxy.conformance.reports import command

    return command.verify_file(options.file, options.form)


def _list(options: argparse.Namespace) -> int:
    from kproxy.conformance import command

    return command.list_cases(
        tuple(options.globs), tuple(options.regression), tuple(options.skips), form=options.form
    )


def _show(options: argparse.Namespace) -> int:
    from kproxy.conformance import command

    return command.print_case(options.case, options.form)
