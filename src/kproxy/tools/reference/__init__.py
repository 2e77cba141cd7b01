"""``kproxy spec show``: everything that the code has on one clause, case, behaviour, regression or topic.

Nothing is kept by hand: `places` finds where an ID is cited in the installed package, `mutants` reads the mutants of a
clone of the repository, `entries` puts them together with the specification's data, `command` prints.
"""
