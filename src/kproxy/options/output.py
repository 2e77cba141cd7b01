"""The one convention for what a program reads: ``-o FORM`` and ``--output FILE``, of every command that prints data.  Pure."""

from __future__ import annotations

from kproxy.options.option import CommandOption, OptionUser

_RESULTS = OptionUser.RUN | OptionUser.CLUSTER
_DOCUMENTS = (
    OptionUser.LIST
    | OptionUser.SHOW
    | OptionUser.SPEC_SHOW
    | OptionUser.EXPLAIN
    | OptionUser.COMPARE
    | OptionUser.FUZZ
    | OptionUser.SIMULATE
    | OptionUser.LAB_DOCTOR
    | OptionUser.LAB_UP
    | OptionUser.LAB_KERNEL_BUILD
    | OptionUser.LAB_KERNEL_FETCH
    | OptionUser.LAB_CLUSTER_UP
    | OptionUser.LAB_CLUSTER_FETCH
    | OptionUser.LAB_CLUSTER_KUBECONFIG
    | OptionUser.VERSION
)
RESULT_FORMS = ("json", "yaml", "junit", "markdown", "html")
"""Forms of results, each also by an option of its own, so that a run can write several."""

_ROWS = (
    *(
        CommandOption(
            name="--format",
            short="-o",
            users=users,
            choices=forms,
            default="text",
            field="form",
            help=f"form of the output{more}",
        )
        for users, forms, more in (
            (_DOCUMENTS, ("text", "json", "yaml"), ""),
            (
                OptionUser.TRACE,
                ("text", "short", "json", "yaml"),
                "; `short`: text without the rules as their tool writes them",
            ),
            (
                _RESULTS | OptionUser.REPORT,
                ("text", *RESULT_FORMS),
                "; another than `text` replaces the tables",
            ),
            (
                OptionUser.VERIFY,
                ("text", "json", "yaml", "svg", "shields"),
                "; `svg`: a badge; `shields`: the endpoint that shields.io makes one of",
            ),
        )
    ),
    CommandOption(
        name="--output",
        users=_DOCUMENTS
        | OptionUser.TRACE
        | _RESULTS
        | OptionUser.REPORT
        | OptionUser.VERIFY
        | OptionUser.COMPLETION,
        metavar="FILE",
        default="-",
        default_text="standard output",
        help="where the output goes; messages go to standard error",
    ),
)

OUTPUT_GROUPS = {"output": _ROWS}
"""All rows, by the heading that ``--help`` gives them."""
