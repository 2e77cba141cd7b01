"""What comes of runs: values, and every form in which people and programs are told of them.

`results` are the values, `results_document` their JSON by the published schema and `results_reader` the way back.  `console` and
`matrix_console` tell a run as it ends; `comparison` puts several documents beside one another; `junit`, `markdown` and
`page` write them for other readers.  Reads nothing but result files, and judges nothing.
"""
