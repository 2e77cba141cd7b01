"""Results of runs: as values, and in every form for people and programs.

`results` are the values, `results_document` their JSON by the published schema, `results_reader` reads it back and
`results_upgrade` brings documents of earlier formats up to date.  `console` and `matrix_console` print a run when it
ends; `comparison` puts the runs of several documents beside one another; `junit`, `markdown` and `page` write them.  Reads nothing but result files, and judges nothing.
"""
