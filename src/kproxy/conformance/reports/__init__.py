"""What comes of runs: values, and every form in which people and programs are told of them.

`results` are the values, `document` their JSON by the published schema and `reading` the way back.  `console` and
`overview` tell a run as it ends; `comparison` puts several documents beside one another; `junit`, `markdown` and
`page` write them for other readers.  Reads nothing but result files, and judges nothing.
"""
