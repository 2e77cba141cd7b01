"""The one convention for what a program reads: ``-o FORM`` and ``--output FILE``, of every command that prints data.  Pure."""

from __future__ import annotations

from kproxy.options.option import CommandOption, Front

_RESULTS = Front.RUN | Front.CLUSTER
_DOCUMENTS = (
    Front.LIST
    | Front.SHOW
    | Front.SPEC_SHOW
    | Front.EXPLAIN
    | Front.COMPARE
    | Front.FUZZ
    | Front.SIMULATE
    | Front.LAB_DOCTOR
    | Front.LAB_UP
    | Front.LAB_KERNEL_BUILD
    | Front.LAB_KERNEL_FETCH
    | Front.LAB_CLUSTER_UP
    | Front.LAB_CLUSTER_FETCH
    | Front.LAB_CLUSTER_KUBECONFIG
    | Front.VERSION
)
RESULT_FORMS = ("json", "yaml", "junit", "markdown", "html")
"""Forms of results, each also by an option of its own, so that a run can write several."""

_ROWS = (
    *(
        CommandOption(
            name="--format",
            short="-o",
            fronts=fronts,
            choices=forms,
            default="text",
            field="form",
            help=f"form of the output{more}",
        )
        for fronts, forms, more in (
            (_DOCUMENTS, ("text", "json", "yaml"), ""),
            (
                Front.TRACE,
                ("text", "short", "json", "yaml"),
                "; `short`: text without the rules as their tool writes them",
            ),
            (_RESULTS | Front.REPORT, ("text", *RESULT_FORMS), "; another than `text` replaces the tables"),
            (
                Front.VERIFY,
                ("text", "json", "yaml", "svg", "shields"),
                "; `svg`: a badge; `shields`: the endpoint that shields.io makes one of",
            ),
        )
    ),
    CommandOption(
        name="--output",
        fronts=_DOCUMENTS | Front.TRACE | _RESULTS | Front.REPORT | Front.VERIFY | Front.COMPLETION,
        metavar="FILE",
        default="-",
        default_text="standard output",
        help="where the output goes; messages go to standard error",
    ),
)

OUTPUT_GROUPS = {"output": _ROWS}
"""All rows, by the heading that ``--help`` gives them."""
